"""What of an event is embedded: who and when, the text, and the turn before it.

A bare turn such as "Yes, last week" says too little to be found; with its header and the
preceding turn the dense leg finds twice as much.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from memstore.types import Encoder, Event

MONTHS = (
    "January", "February", "March", "April", "May", "June", "July",
    "August", "September", "October", "November", "December",
)  # fmt: skip
"""Written out here: strftime would follow the process's locale."""

LONGEST_NAME = 64  # characters of an actor or event type in the header
SHORT = 4_096  # characters that may fit as they are; longer texts are cut without trying
PRECEDING_TOKENS = 48  # about; of the preceding turn


@dataclass(frozen=True, slots=True)
class Passage:
    """One chunk of an event: its number from 0, its span of `content`, and the text to embed."""

    chunk: int
    start: int
    stop: int
    text: str


def passages(event: Event, preceding: Event | None, encoder: Encoder) -> list[Passage]:
    """Return what to embed of an event, in one or more passages that fit the encoder's window.

    `preceding` is the turn before it in its session, or for a tool's result its call. Each
    passage carries the header and the preceding turn; an encoder whose window is too small for
    them goes without the turn, then without both. Blank content gives none.
    """
    if is_blank(event.content):
        return []
    head, tail = passage_frame(event, preceding)
    for before, after in ((head, tail), (head, "")):
        found = _framed(event.content, before, after, encoder)
        if found:
            return found
    return _cut_up(event.content, "", "", encoder, 0)


def passage_frame(event: Event, preceding: Event | None) -> tuple[str, str]:
    """Return what goes before and after an event's text when it is embedded.

    The header is ``actor (8 May 2023): `` and, where the event is not a message, ``actor (8 May
    2023, tool result): ``, by the date in UTC. The preceding turn follows as `` | text``, cut
    at a word.
    """
    when = event.occurred_at
    header = f"{when.day} {MONTHS[when.month - 1]} {when.year}"
    if event.event_type != "message":
        header += f", {event.event_type[:LONGEST_NAME].replace('_', ' ')}"
    head = f"{' '.join(event.actor.split())[:LONGEST_NAME]} ({header}): "
    turn = "" if preceding is None else " ".join(preceding.content.split())
    tail = "" if is_blank(turn) else f" | {_cut(turn, PRECEDING_TOKENS)}"
    return head, tail


def is_blank(text: str) -> bool:
    """Say whether a text has nothing to embed: only blanks, control, format and lone marks."""
    return all(
        character == "\ufffd" or unicodedata.category(character)[0] in "ZCM" for character in text
    )


def _framed(content: str, head: str, tail: str, encoder: Encoder) -> list[Passage]:
    """Frame the content, whole if it fits; nothing if the frame leaves no room."""
    if len(content) <= SHORT:
        start, stop = len(content) - len(content.lstrip()), len(content.rstrip())
        whole = Passage(0, start, stop, head + content[start:stop] + tail)
        if _fits(whole.text, encoder):
            return [whole]
    reserve = _estimate(head) + _estimate(tail)
    for reserved in (reserve, 2 * reserve):  # the estimate is rough
        found = _cut_up(content, head, tail, encoder, reserved)
        if all(_fits(passage.text, encoder) for passage in found):
            return found
    return []


def _cut_up(content: str, head: str, tail: str, encoder: Encoder, reserve: int) -> list[Passage]:
    return [
        Passage(number, start, stop, head + content[start:stop] + tail)
        for number, (start, stop) in enumerate(encoder.chunks(content, reserve=reserve))
    ]


def _fits(text: str, encoder: Encoder) -> bool:
    return len(encoder.chunks(text)) <= 1


def _estimate(text: str) -> int:
    """Guess a text's tokens: four ASCII characters make one, any other makes one alone."""
    plain = sum(character.isascii() for character in text)
    return (plain + 3) // 4 + len(text) - plain


def _cut(text: str, tokens: int) -> str:
    """Return the longest prefix of about `tokens` tokens that ends at a word."""
    quarters = 0
    for index, character in enumerate(text):
        quarters += 1 if character.isascii() else 4
        if quarters > 4 * tokens:
            blank = text.rfind(" ", 0, index + 1)
            return text[: blank if blank > index // 2 else index].rstrip() + "…"
    return text
