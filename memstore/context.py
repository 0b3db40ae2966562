"""What an agent is handed at restart: its state, the log's tail and what bears on the task.

`assemble` is pure and deterministic. It fills the budget by estimate, most valuable first, then
counts the real renderings (text and both providers' messages) and takes the least valuable parts
back until all of them fit: so the budget holds whatever the counter does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from typing import Any, Generic
from uuid import UUID, uuid4

from typing_extensions import TypeVar

from memstore.assembly import Assembly
from memstore.budget import Budget
from memstore.outline import StaleEntry
from memstore.render import Entry
from memstore.selection import Provider, Selection
from memstore.tokens import checked
from memstore.types import JSON, Event, Hit, SearchResult, TokenCounter

__all__ = ["Context", "ContextInputs", "Dropped", "StateDocument", "Tokens", "assemble"]

S = TypeVar("S", default=Any)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateDocument:
    """A state as plain JSON, with what its heading says."""

    document: Mapping[str, JSON]
    schema: str
    schema_version: int
    version: int
    log_position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextInputs:
    """What a context is made from.

    `state` is handed through as it is; `document` is what is rendered. `tail` holds the events
    after the state's log position, in order; where only the newest were loaded, `tail_omitted`
    counts the older ones that were not. `hits` are best first. `neighbours` are events, by
    position, that may be shown round a hit where they fit. `partners` gives, for a tool call or
    result, the other positions under its correlation id, and `joined` the events of those that
    are neither in the tail nor among the hits. `now` must be aware.
    """

    now: datetime
    task: str = ""
    state: Any = None
    document: StateDocument | None = None
    stale: Sequence[StaleEntry] = ()
    tail: Sequence[Event] = ()
    tail_omitted: int = 0
    hits: Sequence[Hit] = ()
    neighbours: Mapping[int, Event] = field(default_factory=dict)
    partners: Mapping[int, Sequence[int]] = field(default_factory=dict)
    joined: Mapping[int, Event] = field(default_factory=dict)
    search: SearchResult | None = None
    degraded: str = ""
    milliseconds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Dropped:
    """What a context leaves out. `tokens` is None where it was not worth counting."""

    part: str
    reason: str
    position: int | None = None
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Tokens(Mapping[str, int]):
    """Tokens by part, and of each rendering.

    `total`, the largest rendering, is what the budget limits. Parts are counted by themselves;
    `overhead` is the rest of the total: headings, marks, the frame, message overhead.
    """

    state: int
    tail: int
    retrieved: int
    overhead: int
    total: int
    text: int
    openai: int
    anthropic: int

    def __getitem__(self, key: str) -> int:
        value: int = asdict(self)[key]
        return value

    def __iter__(self) -> Iterator[str]:
        return (field.name for field in fields(self))

    def __len__(self) -> int:
        return len(fields(self))


@dataclass(frozen=True, slots=True, kw_only=True)
class Context(Generic[S]):
    """What an agent needs to go on, within its budget in every rendering.

    `state` is the memory's own: of ``memory.resume()`` it is what ``memory.state()`` gives.
    `tail` and `retrieved` are the entries as shown, in the log's order; an entry's `cut` says
    where it was shortened. `dropped` is what did not make it, and why. `id` names this context
    when `feedback` says what of it helped.
    """

    state: S
    stale: tuple[StaleEntry, ...]
    tail: tuple[Entry, ...]
    retrieved: tuple[Entry, ...]
    dropped: tuple[Dropped, ...]
    tokens: Tokens
    task: str = ""
    search: SearchResult | None = None
    degraded: str = ""
    milliseconds: dict[str, float] = field(default_factory=dict)
    selection: Selection = field(repr=False)
    id: UUID = field(default_factory=uuid4, compare=False)

    def to_text(self) -> str:
        """Render one text: quoted data in a frame that nothing inside it can close."""
        return self.selection.text()

    def to_messages(self, provider: Provider = "openai") -> list[dict[str, Any]]:
        """Render messages for OpenAI's chat completions or Anthropic's Messages API.

        The first message, of role user, holds the state and the retrieved entries as quoted
        data; the tail follows as the turns that it was. Put your system prompt before it (for
        Anthropic in ``system``) and the next user message after it. Anthropic requires the
        tools whose calls are replayed in the request's ``tools``. Empty where nothing fits.
        """
        return self.selection.messages(provider)


def assemble(inputs: ContextInputs, budget: Budget, counter: TokenCounter) -> Context:
    """Choose and render what fits the budget: the state, the tail, then what was retrieved."""
    assembly = Assembly(inputs, budget, checked(counter))
    selection = assembly.choose()
    totals = selection.count(assembly.count)
    parts = assembly.part_tokens(selection)
    total = max(totals.values())
    return Context(
        state=inputs.state,
        stale=tuple(inputs.stale),
        tail=tuple(e for e in selection.entries if e.part == "tail"),
        retrieved=tuple(e for e in selection.entries if e.part == "retrieved"),
        dropped=tuple(Dropped(*item) for item in assembly.dropped(selection)),
        tokens=Tokens(**parts, overhead=max(0, total - sum(parts.values())), total=total, **totals),
        task=inputs.task,
        search=inputs.search,
        degraded=inputs.degraded,
        milliseconds=dict(inputs.milliseconds),
        selection=selection,
    )
