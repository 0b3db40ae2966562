"""What a context shows, as a value: state lines and entries, and every rendering of them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from memstore.errors import InvalidInput
from memstore.messages import anthropic_messages, count_messages, openai_messages, turns
from memstore.render import Entry, block, log
from memstore.types import TokenCounter

__all__ = ["Provider", "Selection"]

Provider = Literal["openai", "anthropic"]


@dataclass(frozen=True, slots=True)
class Selection:
    """The chosen parts. `head` is the log's last position; `bare` leaves the preamble out."""

    state: tuple[str, ...]
    entries: tuple[Entry, ...]
    head: int
    now: datetime
    bare: bool = False

    def __bool__(self) -> bool:
        return bool(self.state or self.entries)

    def text(self) -> str:
        """Render one text, everything in the order of the log."""
        if not self:
            return ""
        return block(self.state, log(self.entries, head=self.head), now=self.now, bare=self.bare)

    def messages(self, provider: Provider) -> list[dict[str, Any]]:
        """Render new message objects for a provider."""
        if provider not in ("openai", "anthropic"):
            raise InvalidInput("must be 'openai' or 'anthropic'", path="provider")
        if not self:
            return []
        replayed, positions = turns(self.entries)
        lines = log(self.entries, turns=positions, head=self.head)
        quoted = block(self.state, lines, now=self.now, bare=self.bare)
        render = openai_messages if provider == "openai" else anthropic_messages
        return render(quoted, replayed)

    def count(self, counter: TokenCounter) -> dict[str, int]:
        """Count the tokens of every rendering: ``text``, ``openai``, ``anthropic``."""
        return {
            "text": counter(self.text()) if self else 0,
            "openai": count_messages(self.messages("openai"), counter),
            "anthropic": count_messages(self.messages("anthropic"), counter),
        }
