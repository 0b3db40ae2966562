"""Cut a text into spans that fit an encoder's window, at sentences where that costs little.

An encoder drops what is beyond its window without a word, and with it the one fact in a long
message's last line. So a long text is embedded as several chunks, and its best chunk counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

Offsets = Callable[[str], list[tuple[int, int]]]
"""Maps a text to its tokens' (start, stop) character offsets, without special tokens."""

PIECE = 8_192  # characters tokenized at once: bounds memory, and how long the GIL is held
LONGEST_CHUNK = 512  # tokens: in a longer one, whatever the window, one fact is hard to see
REACH = 2_048  # characters looked through for a boundary: tokens may be sparse

_PARAGRAPH = re.compile(r"\n[ \t\r]*\n\s*")
_LINE = re.compile(r"\n\s*")
_SENTENCE = re.compile(r"[.!?…]+[\"'”’)\]]*\s+|[。！？؟।]+[」』”]*\s*")
_WORD = re.compile(r"\s+")


def chunk_room(window: int, reserve: int) -> int:
    """Return a chunk's tokens: the window less the reserve, but at least a quarter of it."""
    return max(1, min(window, LONGEST_CHUNK) - reserve, min(window, LONGEST_CHUNK) // 4)


def split(text: str, offsets: Offsets, limit: int, overlap: int = 24) -> list[tuple[int, int]]:
    """Split a text into (start, stop) spans of at most `limit` tokens each.

    The spans are in order, have no blanks at their ends, and cover every other character. A
    window ends at the last paragraph, line, sentence or word that ends in its last quarter,
    tried in this order. The next one repeats up to `overlap` tokens (at most an eighth of the
    window) from a sentence's or word's beginning: evidence such as "She moved to Porto. It
    was in May." may lie across a cut. A text without tokens has no spans.
    """
    if limit < 1:
        raise ValueError("a window holds at least one token")
    starts = _token_starts(text, offsets)
    spans: list[tuple[int, int]] = []
    for start, stop in _windows(text, starts, limit, min(overlap, limit // 8)):
        spans.extend(_fitting(text, start, stop, offsets, limit, whole=stop - start == len(text)))
    return spans


def _token_starts(text: str, offsets: Offsets) -> NDArray[np.int64]:
    """Find where each token begins, piece by piece."""
    parts: list[NDArray[np.int64]] = []
    begin = 0
    while begin < len(text):
        end = min(begin + PIECE, len(text))
        if end < len(text):
            # Cut a piece at a blank, so that no word is tokenized in two halves.
            blank = max(text.rfind(" ", begin + 1, end), text.rfind("\n", begin + 1, end))
            end = blank if blank > begin else end
        piece = offsets(text[begin:end])
        parts.append(np.fromiter((first for first, _ in piece), np.int64, len(piece)) + begin)
        begin = end
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _windows(
    text: str, starts: NDArray[np.int64], limit: int, overlap: int
) -> Iterator[tuple[int, int]]:
    """Yield windows of at most `limit` tokens that together cover the text."""
    count = len(starts)
    first = 0  # index of the window's first token
    begin = 0
    while first < count:
        if first + limit >= count:
            yield begin, len(text)
            return
        hard = int(starts[first + limit])
        soft = int(starts[first + limit - max(1, limit // 4)])
        stop = _last_end(text, soft, hard) or hard
        yield begin, stop
        # Several tokens may begin at one character: go on by one at least.
        following = max(int(np.searchsorted(starts, stop)), first + 1)
        back = max(following - overlap, first + 1)
        if back < following:
            begin = _first_beginning(text, int(starts[back]), stop)
            first = int(np.searchsorted(starts, begin))
        else:
            begin, first = stop, following


def _last_end(text: str, soft: int, hard: int) -> int | None:
    """Find the best place to end a window within text[soft:hard]."""
    soft = max(soft, hard - REACH)
    for boundary in (_PARAGRAPH, _LINE, _SENTENCE, _WORD):
        ends = [match.end() for match in boundary.finditer(text, soft, hard)]
        if ends and ends[-1] > soft:
            return ends[-1]
    return None


def _first_beginning(text: str, soft: int, stop: int) -> int:
    """Find where a repeated stretch of text[soft:stop] may begin: a sentence, or a word."""
    soft = max(soft, stop - REACH)
    for boundary in (_LINE, _SENTENCE, _WORD):
        match = boundary.search(text, soft, stop)
        if match and match.end() < stop:
            return match.end()
    return stop


def _fitting(
    text: str, start: int, stop: int, offsets: Offsets, limit: int, *, whole: bool
) -> Iterator[tuple[int, int]]:
    """Yield the span without its outer blanks, halved until it fits.

    A word cut in two may have more tokens than it had as one, so a window is counted again.
    """
    inner = text[start:stop]
    start += len(inner) - len(inner.lstrip())
    inner = inner.strip()
    stop = start + len(inner)
    if not inner:
        return
    # The whole of a short text has been counted as it stands, in one piece.
    if (whole and len(text) <= PIECE) or len(inner) == 1:
        yield start, stop
        return
    tokens = offsets(inner)
    if len(tokens) <= limit:
        yield start, stop
        return
    middle = start + min(max(tokens[len(tokens) // 2][0], 1), len(inner) - 1)
    yield from _fitting(text, start, middle, offsets, limit, whole=False)
    yield from _fitting(text, middle, stop, offsets, limit, whole=False)
