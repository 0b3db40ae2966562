"""Counting is exact, and a cut text fits whatever the counter."""

from __future__ import annotations

import random
import string
import subprocess
import sys
import threading
import warnings
import zlib
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from memstore.errors import InvalidInput
from memstore.tokens import checked, o200k, truncate

any_text = st.text(st.characters(exclude_categories=()))
samples = st.text("ab cdé\n猫のท 👩\u200d💻🏽\u0301-=1") | any_text

#: Counters of every temper; "restless" goes up and down as a text grows.
COUNTERS: dict[str, Callable[[str], int]] = {
    "o200k": o200k(),
    "characters": len,
    "words": lambda text: len(text.split()),
    "bytes": lambda text: len(text.encode("utf-8", "surrogatepass")),
    "framed": lambda text: len(text) + 3,
    "restless": lambda text: len(text) // 2 + zlib.crc32(text.encode("utf-8", "replace")) % 7,
    "nothing": lambda text: 0,
    "everything": lambda text: 10**9 if text else 0,
    "open brackets": lambda text: text.count("a") * 5 - text.count("b") * 4,
}


# Counting


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("hello world", 2),
        ("a" * 8, 1),
        (" " * 128, 1),
        ("1234567", 3),
        ("Привет, мир", 4),
        ("<|endoftext|>", 7),  # text, not the special token
        ("\0", 1),
    ],
)
def test_o200k(text: str, tokens: int) -> None:
    assert o200k()(text) == tokens


def test_the_counts_are_those_of_the_wheels_own_interface() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # from inside the wheel
        from bpe_openai import get_encoding

        encoding = get_encoding("o200k_base")
    letters = random.Random(3)
    alphabet = string.printable + "éß猫のที👩\u200d💻\u0301\u00a0\u2028<|endoftext|>"
    for size in (1, 10, 100, 1_000, 10_000):
        text = "".join(letters.choices(alphabet, k=size))
        assert o200k()(text) == len(encoding.encode_ordinary(text))


@pytest.mark.parametrize(
    ("text", "same_as"),
    [("\udc97", "\ufffd"), ("a\ud83db", "a\ufffdb"), ("\ud83d\ude00", "😀")],
)
def test_half_an_emoji_counts_as_what_is_stored(text: str, same_as: str) -> None:  # trap 2
    assert o200k()(text) == o200k()(same_as)
    assert o200k().fits(text, o200k()(same_as))


@given(any_text, st.integers(-2, 20))
def test_fits_agrees_with_the_count(text: str, limit: int) -> None:
    assert o200k().fits(text, limit) == (o200k()(text) <= limit)


def test_texts_of_a_megabyte_are_counted() -> None:
    assert o200k()("a" * 2**20) == 2**17
    assert o200k()("x " * 2**19) == 2**19 + 1


def test_the_counter_is_shared_and_loaded_without_its_slow_package() -> None:
    assert o200k() is o200k()
    code = """
import sys
from memstore.tokens import o200k
assert o200k()("hello world") == 2
assert "bpe_openai" not in sys.modules
assert "torch" not in sys.modules
import warnings
warnings.simplefilter("ignore")
import bpe_openai
assert len(bpe_openai.get_encoding("o200k_base").encode_ordinary("hello world")) == 2
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_counter_works_in_every_thread() -> None:
    counts: list[int] = []
    threads = [threading.Thread(target=lambda: counts.append(o200k()("a b c"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [3, 3, 3, 3]


# Cutting


@pytest.mark.parametrize("name", COUNTERS)
@given(text=samples, limit=st.integers(-1, 40))
def test_a_cut_text_is_a_prefix_that_fits(name: str, text: str, limit: int) -> None:
    counter = COUNTERS[name]
    cut = truncate(text, limit, counter)
    assert text.startswith(cut)
    assert counter(cut) <= limit or cut == ""
    if counter(text) <= limit:
        assert cut == text


@given(st.text("ab", max_size=300), st.integers(0, 300))
def test_without_words_or_marks_the_cut_is_the_longest_possible(text: str, limit: int) -> None:
    assert truncate(text, limit, len) == text[:limit]
    assert truncate(text, limit, COUNTERS["bytes"]) == text[:limit]


@given(samples, st.integers(1, 40))
def test_hardly_anything_that_fits_is_left_out(text: str, limit: int) -> None:  # trap 39
    cut = truncate(text, limit, len)
    # At most a word, or a character with all of its accents, and the space before it.
    assert len(cut) > limit - 70 or cut == text
    if len(text) >= limit:
        assert cut or not text[:limit].strip()


@given(st.text("ab cé猫👩\u200d💻🏽\u0301🇩🇪"), st.integers(1, 40))
def test_no_character_is_cut_in_two(text: str, limit: int) -> None:
    ends = {match.end() for match in regex.finditer(r"\X", text)}
    stop = len(truncate(text, limit, len))
    first = min(ends, default=0)
    assert stop in ends or stop == 0 or stop < first


@pytest.mark.parametrize(
    ("text", "limit", "cut"),
    [
        ("the quick brown fox", 10, "the quick"),
        ("the quick brown fox", 9, "the quick"),
        ("the quick\n\nbrown fox", 14, "the quick"),
        ("unbreakable", 5, "unbre"),
        ("   unbreakable", 5, "   un"),
        ("黑猫睡觉了", 3, "黑猫睡"),
        ("see 黑猫睡觉了", 6, "see 黑猫"),
        ("abe\u0301f", 3, "ab"),
        ("ab👩\u200d💻", 4, "ab"),
        ("e\u0301\u0301x", 2, "e\u0301"),  # the first does not fit whole
        ("ab", 0, ""),
        ("", 0, ""),
        ("", 5, ""),
    ],
)
def test_where_a_text_is_cut(text: str, limit: int, cut: str) -> None:
    assert truncate(text, limit, len) == cut


def random_letters() -> str:
    return "".join(random.Random(7).choices(string.ascii_letters, k=2**20))


@pytest.mark.parametrize(
    "text",
    ["a" * 2**20, random_letters(), "lorem ipsum " * 2**16, " " * 2**20, "猫" * 2**18],
    ids=["one letter", "random letters", "words", "spaces", "han"],
)
@pytest.mark.parametrize("limit", [1, 100, 2_048])
def test_a_megabyte_is_cut_to_the_limit(text: str, limit: int) -> None:
    counter = o200k()
    cut = truncate(text, limit, counter)
    assert limit - 1 <= counter(cut) <= limit


def test_few_counts_are_needed() -> None:
    text = "The quick brown fox jumps over the lazy dog, said the report of 28 April. " * 14_000
    lengths: list[int] = []

    def counter(part: str) -> int:
        lengths.append(len(part))
        return o200k()(part)

    truncate(text, 2_048, counter)
    assert len(lengths) <= 25
    assert sorted(lengths)[-2] < 40_000  # the whole once, then only what is near the limit


@pytest.mark.parametrize(
    ("given", "counted"),
    [
        (3, 3),
        (0, 0),
        (2.25, 3),
        (Fraction(7, 2), 4),
        (np.int64(5), 5),
        (np.float32(1.5), 2),
        (10**400, 10**400),
    ],
)
def test_a_part_of_a_token_counts_as_one(given: Any, counted: int) -> None:
    assert checked(lambda _: given)("text") == counted


@pytest.mark.parametrize(
    "given", [None, "3", b"3", [3], float("nan"), float("inf"), Decimal("NaN"), 3j, object()]
)
def test_a_counter_that_counts_nothing_is_refused(given: Any) -> None:
    # it would be compared with the budget, and either always fit or never
    with pytest.raises(InvalidInput, match="no number of tokens") as refused:
        checked(lambda _: given)("text")
    assert refused.value.path == "counter"


def test_a_counter_is_a_function() -> None:
    for wrong in (3, "len", object()):
        with pytest.raises(InvalidInput, match="must be a function"):
            checked(wrong)  # type: ignore[arg-type]
    assert checked(o200k()) is o200k()
