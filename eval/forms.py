"""An encoder that is shown less of each passage, to measure what the rest is worth.

The store embeds an entry's text with a header (who, when, what) before it and the turn before
it behind. This encoder takes parts of that off again before it encodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from memstore import Encoder, Event
from memstore.encoding import legible_share, passage_frame

Form = Literal["header", "preceding", "event type"]

_HEAD_END, _TAIL_START = "): ", " | "


class Reshaped:
    """Encodes passages without their header, the preceding turn, or the event type in the header.

    It must `learn` the events before their passages come, to know the parts apart from text
    that looks like them. What it does not know, such as a query, is encoded as it is.
    """

    def __init__(self, inner: Encoder, without: Form) -> None:
        self._inner = inner
        self._without = without
        self._heads: dict[str, str] = {}
        self._tails: set[str] = set()

    @property
    def name(self) -> str:
        return f"{self._inner.name} without {self._without}"

    @property
    def dimension(self) -> int:
        return self._inner.dimension

    def chunks(self, text: str, *, reserve: int = 0) -> list[tuple[int, int]]:
        return self._inner.chunks(text, reserve=reserve)

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return self._inner.encode([self.reshape(text) for text in texts])

    def legible(self, text: str) -> float:
        return legible_share(self._inner, text)

    def learn(self, events: Sequence[Event]) -> None:
        """Note the headers of events, and how each looks as the turn before another."""
        for event in events:
            head, tail = passage_frame(event, event)
            kept = {
                "header": "",
                "preceding": head,
                "event type": passage_frame(replace(event, event_type="message"), None)[0],
            }
            self._heads[head] = kept[self._without]
            if tail:
                self._tails.add(tail)

    def reshape(self, text: str) -> str:
        """Take the part off that is to be left out."""
        head = self._head(text)
        if self._without != "preceding":
            return self._heads.get(head, "") + text[len(head) :]
        at = text.find(_TAIL_START, len(head))
        while at >= 0:
            if text[at:] in self._tails:
                return text[:at]
            at = text.find(_TAIL_START, at + 1)
        return text

    def _head(self, text: str) -> str:
        """Find the header that a text begins with, or nothing."""
        at = text.find(_HEAD_END)
        while at >= 0:
            if text[: at + len(_HEAD_END)] in self._heads:
                return text[: at + len(_HEAD_END)]
            at = text.find(_HEAD_END, at + 1)
        return ""
