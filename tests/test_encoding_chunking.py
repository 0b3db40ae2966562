"""Cutting long texts: every span fits, nothing is left out, and it stays linear."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memstore.encoding import split
from memstore.encoding.chunking import PIECE, Offsets, chunk_room
from memstore.types import Encoder


def words(text: str) -> list[tuple[int, int]]:
    """One token per word or sign."""
    return [match.span() for match in re.finditer(r"\w+|[^\w\s]", text)]


def pairs(text: str) -> list[tuple[int, int]]:
    """One token per two characters of a word, from its beginning: cutting a word adds tokens."""
    return [
        (start, min(start + 2, word.end()))
        for word in re.finditer(r"\S+", text)
        for start in range(word.start(), word.end(), 2)
    ]


def octets(text: str) -> list[tuple[int, int]]:
    """One token per UTF-8 byte: several tokens begin at one character."""
    return [(place, place + 1) for place, character in enumerate(text) for _ in character.encode()]


TOKENIZERS = [words, pairs, octets]
TEXTS = st.lists(
    st.one_of(
        st.text(alphabet="ab. \n!日。", max_size=60),
        st.text(max_size=20).filter(lambda text: not re.search("[\ud800-\udfff]", text)),
        st.sampled_from(["\n\n", " ", "word " * 50, "x" * 120, "One. Two? Three!\n", "\u200b\x00"]),
    ),
    max_size=12,
).map("".join)


@pytest.mark.parametrize("offsets", TOKENIZERS)
@settings(deadline=None)
@given(text=TEXTS, limit=st.integers(4, 60), overlap=st.integers(0, 30))
def test_spans_fit_and_cover_all_that_is_not_blank(
    offsets: Offsets, text: str, limit: int, overlap: int
) -> None:
    # trap 11
    spans = split(text, offsets, limit, overlap)
    if not offsets(text):
        assert spans == []
        return
    covered: set[int] = set()
    for start, stop in spans:
        inner = text[start:stop]
        assert inner
        assert inner == inner.strip()
        assert len(offsets(inner)) <= limit
        covered.update(range(start, stop))
    missed = "".join(text[place] for place in range(len(text)) if place not in covered)
    assert missed.strip() == ""
    assert spans == sorted(set(spans))


def test_a_text_that_fits_is_one_span_without_its_outer_blanks() -> None:
    assert split("  two words \n", words, 2) == [(2, 11)]
    assert split("", words, 2) == split(" \n\t", words, 2) == []


def test_a_window_ends_at_a_paragraph_line_sentence_or_word() -> None:
    # The last quarter of a window of 16 words is looked through, the best boundary first.
    filler = " ".join(["word"] * 12)
    paragraph = f"{filler} one.\n\nTwo three. Four five six seven eight"
    line = f"{filler} one.\nTwo three four five six seven eight"
    sentence = f"{filler} one. Two three four five six seven eight"
    word = f"{filler} one two three four five six seven"
    for text, end in [(paragraph, "one."), (line, "one."), (sentence, "one."), (word, "four")]:
        start, stop = split(text, words, 16, overlap=0)[0]
        assert text[start:stop].endswith(end)


def test_windows_overlap_from_the_beginning_of_a_sentence_or_word() -> None:
    text = " ".join(f"Sentence number {n} says this." for n in range(40))
    spans = split(text, words, 60, overlap=7)
    assert len(spans) > 2
    for (_, stop), (start, _) in pairwise(spans):
        assert start < stop
        assert text[start:].startswith("Sentence")


def test_words_that_no_piece_can_cut_still_fit() -> None:
    # trap 5: a long word, and a text without blanks longer than what is tokenized at once
    for text in ("x" * 3_000, "日" * (PIECE + 500), "é" * (2 * PIECE)):
        for offsets in (pairs, octets):
            spans = split(text, offsets, 100)
            assert spans[0][0] == 0
            assert spans[-1][1] == len(text)
            assert all(len(offsets(text[start:stop])) <= 100 for start, stop in spans)


def test_a_character_of_more_tokens_than_the_window_stands_alone() -> None:
    assert split("a日b", octets, 2) == [(0, 1), (1, 2), (2, 3)]


def test_the_work_grows_with_the_text_and_not_faster() -> None:
    def characters_tokenized(length: int) -> int:
        seen = 0

        def offsets(text: str) -> list[tuple[int, int]]:
            nonlocal seen
            seen += len(text)
            return words(text)

        split(("A sentence of some words. " * length)[:length], offsets, 200)
        return seen

    assert characters_tokenized(1 << 20) < 3 * (1 << 20)
    # Marks without end, blanks and breaks: where a boundary's pattern could run on.
    for unit in ("." * 40, " " * 40, "\n", "\n \n", "!?\"')", "。", "\x00"):
        split(unit * (200_000 // len(unit)), words, 200)


def test_a_chunk_is_never_smaller_than_a_quarter_of_the_window() -> None:
    assert chunk_room(254, 0) == 254
    assert chunk_room(254, 60) == 194
    assert chunk_room(254, 1_000) == 63
    assert chunk_room(8_192, 0) == 512
    assert chunk_room(2, 9) == 1
    with pytest.raises(ValueError, match="at least one token"):
        split("text", words, 0)


def test_a_megabyte_is_cut_by_the_encoders_own_tokenizer(encoder: Encoder) -> None:
    line = "2026-04-28T10:00:00Z worker-7 level=info msg='claimed 32 rows' took=18ms id=8f3a\n"
    text = line * (1_048_576 // len(line))
    spans = encoder.chunks(text, reserve=60)
    assert spans[0][0] == 0
    assert spans[-1][1] == len(text.rstrip())
    assert all(later[0] <= earlier[1] + 1 for earlier, later in pairwise(spans))
    assert all(len(encoder.chunks(text[start:stop], reserve=60)) == 1 for start, stop in spans[:20])
