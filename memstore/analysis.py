"""Text to terms, for the lexical index and for queries alike.

Words are stemmed; what is more than a word (a path, a version, an e-mail address, `snake_case`)
is kept whole and in parts, so that it is found by either; scripts without spaces become
overlapping pairs of characters. Nothing in a text is ever read as query syntax.
"""

from __future__ import annotations

import hashlib
import threading
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import regex
import Stemmer

from memstore.text import clean_text

__all__ = ["MAX_DISTINCT", "MAX_QUERY_TERMS", "MAX_TERM", "Analysis", "query_terms", "terms"]

MAX_DISTINCT = 10_000
MAX_QUERY_TERMS = 64
MAX_TERM = 64
#: Characters of one unbroken compound that are taken apart: any path, but no base64 blob.
MAX_COMPOUND = 2_048


@dataclass(frozen=True, slots=True)
class Analysis:
    """The terms of a text with their frequencies.

    `length` is the sum of the frequencies, the document length of BM25. `omitted` counts the
    distinct terms that were left out because there were too many.
    """

    frequencies: dict[str, int]
    length: int
    omitted: int


# Scripts written without spaces between words; digits among them are words of their own.
_PAIRED = r"[\p{Han}\p{Hiragana}\p{Katakana}ー]"
_CLUSTERED = r"[[\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]--\p{Nd}]"
# One Han character can be a word (cat, tea), unless it only serves grammar.
_HAN_WORD = regex.compile(
    r"[\p{Han}--[的了是我你他她它们們在有和与與吗嗎呢啊吧这這那不也就都很着著过過到要会會说說去来來上下个個一"
    r"及或被把给給让讓对對从從还還没沒怎样樣什么麼谁誰哪]]",
    regex.VERSION1,
)
_CHAR = rf"[\w--{_PAIRED}--{_CLUSTERED}]"
# What joins words into one thing: strongly (parts that are things themselves) and weakly.
_STRONG = r"(?::[/\\]{1,2}|::|->|\+\+|[/\\:@=&?\#+~%])"
_WEAK = r"(?:[.\-']|(?<=\d),(?=\d))"
_RUN = regex.compile(
    rf"""
      (?P<paired>{_PAIRED}+)
    | (?P<clustered>{_CLUSTERED}+)
    | (?P<sigil>(?<![{_CHAR}.\-])
        (?:[\#@\p{{Sc}}] | \.(?=\p{{L}}) | --(?=\p{{L}}) | -(?=\d|\p{{L}}(?!\w))))?
      (?P<body>{_CHAR}++(?>(?:{_STRONG}|{_WEAK}){_CHAR}++)*+)
      (?P<suffix>\+\+?|[\#%])?
    """,
    regex.VERSION1 | regex.VERBOSE,
)
_JOINT = regex.compile(rf"{_STRONG}|{_WEAK}|_", regex.VERSION1)
# The T of a timestamp parts as well: a date is looked for without its time.
_STRONG_SPLIT = regex.compile(rf"{_STRONG}|(?<=\d-\d\d)[Tt](?=\d\d)", regex.VERSION1)
_WEAK_SPLIT = regex.compile(_WEAK, regex.VERSION1)
_CASES = regex.compile(
    r"""
      (?:\p{Lu}\p{M}*)+(?!\p{Ll})
    | (?:\p{Lu}\p{M}*)?(?:\p{Ll}\p{M}*)+
    | \p{Nd}+
    | [^\p{Lu}\p{Ll}\p{Nd}]+
    """,
    regex.VERSION1 | regex.VERBOSE,
)
_CONTRACTION = regex.compile(r"'(?:s|re|ve|ll|d|m)$", regex.IGNORECASE)
_NEGATION = regex.compile(r"^\p{L}+n't$", regex.IGNORECASE)
_ACRONYM = regex.compile(r"^(?:\p{L}\.){2,}\p{L}$")
_GROUPED = regex.compile(r"(?<![\d,])\d{1,3}(?:,\d{3})+(?![\d,])")
_PLURAL_ACRONYM = regex.compile(r"^\p{Lu}{2,}s$")
_VERSION = regex.compile(r"^[vV](?=\d+\.)")
_DIGIT_SEAM = regex.compile(r"\d[-_']+\d")
_NAMING = regex.compile(r"[\p{L}\p{N}]")
_ACCENTED = regex.compile(r"[\p{Latin}\p{Greek}\p{Cyrillic}\p{Arabic}\p{Hebrew}]", regex.VERSION1)
_HANGUL = regex.compile(r"\p{Hangul}")
_FOREIGN_DIGIT = regex.compile(r"[\p{Nd}--0-9]", regex.VERSION1)
# Accents that can be left out. The breve that makes Cyrillic й of и makes another letter.
_ACCENT = regex.compile(r"[\p{M}--\u0306]|(?<![иу])\u0306", regex.VERSION1)
_MANY_MARKS = regex.compile(r"(\p{M}{30})\p{M}+")
_EMOJI = regex.compile(
    r"""
      \p{Regional_Indicator}{2}
    | [\p{Extended_Pictographic}\u2600-\u27BF][\p{Emoji_Modifier}\uFE0F\U000E0020-\U000E007F]*
      (?:\u200D\p{Extended_Pictographic}[\p{Emoji_Modifier}\uFE0F]*)*
    """,
    regex.VERSION1 | regex.VERBOSE,
)
_EMOJI_PART = regex.compile(r"[\p{Extended_Pictographic}\u2600-\u27BF]", regex.VERSION1)

# Invisible characters go (joiners, direction marks, variation selectors, keycaps), and the
# typographic forms of apostrophe, hyphen, minus and fraction slash become the plain ones.
_INVISIBLE = (
    "\u00ad\u034f\u061c\u180b\u180c\u180d\u180e\u200c\u200d\u200e\u200f\u202a\u202b\u202c\u202d"
    "\u202e\u2060\u2061\u2062\u2063\u2064\u2066\u2067\u2068\u2069\u20e3\u0640\ufeff"
)
_PLAIN: dict[int, str | None] = {ord(char): None for char in _INVISIBLE}
_PLAIN |= dict.fromkeys(range(0xFE00, 0xFE10))
_PLAIN |= dict.fromkeys(map(ord, "\u2018\u2019\u02bc\u02b9\u2032\u05f3"), "'")
_PLAIN |= dict.fromkeys(map(ord, "\u2010\u2012\u2013\u2212"), "-")
_PLAIN |= {0x2044: "/", 0x2215: "/"}
# Latin letters that carry their accent inside, where decomposition finds nothing to strip.
_INNER_ACCENTS = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ı": "i", "ħ": "h"}
)
_NO_JOINTS = str.maketrans("", "", "-_'")
# Punctuation that means nothing at the edge of a word.
_QUIET = "\"'`*()[]{}<>,;:!?|/\\=&~"
_QUIET_END = _QUIET + "."


class _Local(threading.local):
    """One stemmer per thread: a PyStemmer object must not be shared between threads."""

    def __init__(self) -> None:
        self.stem = Stemmer.Stemmer("english", 0).stemWord


_local = _Local()


def terms(text: str) -> Analysis:
    """Analyse a text to at most 10,000 distinct terms of at most 64 characters each.

    A longer word or compound becomes a digest of itself, so it is still found when given in
    full. Terms past the limits are counted in `omitted`; the first ones are kept.
    """
    frequencies: dict[str, int] = {}
    left: set[str] = set()
    for term in _all_terms(clean_text(text), left):
        if term in frequencies:
            frequencies[term] += 1
        elif len(frequencies) < MAX_DISTINCT:
            frequencies[term] = 1
        else:
            left.add(term)
    left.difference_update(frequencies)
    return Analysis(frequencies, sum(frequencies.values()), len(left))


def query_terms(text: str, *, limit: int = MAX_QUERY_TERMS) -> dict[str, int]:
    """Analyse a query: as `terms`, without stop words unless there is nothing else.

    Of more than `limit` terms the longest are kept, since they tend to be the rarest; a
    caller that knows document frequencies can ask for more and choose by them.
    """
    found = terms(text).frequencies
    telling = {term: count for term, count in found.items() if term not in _STOP_TERMS} or found
    if len(telling) > limit:
        kept = set(sorted(telling, key=len, reverse=True)[:limit])
        telling = {term: count for term, count in telling.items() if term in kept}
    return telling


def _all_terms(text: str, left: set[str]) -> Iterator[str]:
    if not text.isascii():
        for emoji in _EMOJI.findall(text):
            yield from _emoji_terms(emoji)
        text = _normalise(text)
    for chunk in text.split():
        yield from _cached(chunk) if len(chunk) <= MAX_TERM else _chunk_terms(chunk, left)


@lru_cache(maxsize=32_768)
def _cached(chunk: str) -> tuple[str, ...]:
    """Analyse a short chunk; the words of a language come again and again."""
    word = chunk.lstrip(_QUIET).rstrip(_QUIET_END)
    if word.isascii() and word.isalpha() and (word.islower() or word.istitle() or word.isupper()):
        return (_local.stem(word.lower()),)  # what the long way would give, five times faster
    return tuple(_chunk_terms(chunk, set()))


def _chunk_terms(chunk: str, left: set[str]) -> Iterator[str]:
    """Analyse what stands between two spaces; `left` takes the words of too long a compound."""
    for match in _RUN.finditer(chunk):
        paired, clustered, sigil, body, suffix = match.groups()
        if paired:
            yield from _pairs(paired)
            if len(paired) > 1:
                yield from _HAN_WORD.findall(paired)
        elif clustered:
            yield from _pairs(regex.findall(r"\X", clustered))
        elif not _NAMING.search(body):
            continue  # a rule drawn with underscores, or an accent on nothing
        elif len(body) <= MAX_COMPOUND or not _JOINT.search(body):
            yield from _compound_terms(sigil or "", body, suffix or "")
        else:
            yield _whole(body)
            # The cut may fall inside a joint; a match ends at a word.
            for head in _RUN.finditer(body[:MAX_COMPOUND]):
                yield from _compound_terms("", head["body"], "")
            left.update(_JOINT.split(body[MAX_COMPOUND:]))


def _normalise(text: str) -> str:
    """Bring to NFKC with plain punctuation.

    Runs of over 30 marks are cut (UAX 15's stream-safe text): sorting them takes quadratic
    time, minutes for 1 MB of two alternating accents.
    """
    if len(text) > 30:
        text = _MANY_MARKS.sub(r"\1", text)
    return unicodedata.normalize("NFKC", text).translate(_PLAIN)


def _compound_terms(sigil: str, body: str, suffix: str) -> Iterable[str]:
    """Analyse words without spaces between them: whole, by strong joints, by weak ones."""
    segments = _STRONG_SPLIT.split(body)
    if len(segments) > 1:
        yield _whole(body)
    if sigil and suffix and len(segments) == 1:
        yield _whole(sigil + body + suffix)
    elif sigil:
        yield _whole(sigil + segments[0])
    if suffix:
        yield _whole(segments[-1] + suffix)
    for segment in segments:
        yield from _segment_terms(segment)


def _segment_terms(segment: str) -> Iterator[str]:
    """Analyse words joined by dots, hyphens, apostrophes or the commas inside a number."""
    if "'" in segment:
        if _NEGATION.match(segment):
            yield _whole(segment)
            return
        segment = _CONTRACTION.sub("", segment)
    words = _WEAK_SPLIT.split(segment)
    if len(words) == 1:
        yield from _word_terms(segment)
    elif _ACRONYM.match(segment):
        yield _whole(segment.replace(".", ""))
    elif (number := _ungrouped(segment)) != segment:
        yield from _segment_terms(number)
        yield from words
    else:
        yield _joined(segment)
        if _VERSION.match(segment):
            yield _whole(segment[1:])
        for word in words:
            yield from _word_terms(word)


def _word_terms(word: str) -> Iterator[str]:
    """Analyse one word; an identifier also by its underscores and its changes of case."""
    parts = [part for part in word.split("_") if part]
    if len(parts) > 1:
        yield _joined(word)
    if parts and (word[0] == "_" or word[-1] == "_"):
        yield _whole(word)
    for part in parts:
        if _PLURAL_ACRONYM.match(part):
            part = part[:-1]
        yield from _forms(part)
        cases = () if part.islower() and part.isalpha() else _CASES.findall(part)
        # Two parts are a name; many short ones are a hash or base64.
        if len(cases) == 2 or 2 < len(cases) <= len(part) / 3:
            for case in cases:
                yield from _forms(case)


def _joined(text: str) -> str:
    """Make one term of hyphenated or underscored words: `e-mail`, `e_mail`, `eMail`, `email`.

    Where two numbers meet the joint stays: 1-5 is not 15.
    """
    if _DIGIT_SEAM.search(text):
        return _whole(text)
    joined = text.translate(_NO_JOINTS)
    return next(iter(_forms(joined))) if joined.isalnum() else _whole(text)


def _forms(word: str) -> Iterator[str]:
    """Fold and stem a word; give its form without accents too, and a Hangul word's pairs."""
    if not _NAMING.search(word):
        return
    folded = _fold(word)
    yield _bounded(folded, stem=True)
    if folded.isascii():
        return
    if _ACCENTED.search(folded):
        bare = _ACCENT.sub("", unicodedata.normalize("NFD", folded))
        plain = unicodedata.normalize("NFC", bare).translate(_INNER_ACCENTS)
        if plain != folded:
            yield _bounded(plain, stem=True)
    if len(folded) > 2 and _HANGUL.search(folded):
        yield from _pairs(folded)


def _whole(text: str) -> str:
    return _bounded(_fold(_ungrouped(text)), stem=False)


def _ungrouped(text: str) -> str:
    """Drop the commas that group a number's digits: 1,000.5 is 1000.5."""
    return _GROUPED.sub(lambda number: number[0].replace(",", ""), text) if "," in text else text


def _fold(text: str) -> str:
    if text.isascii():
        return text.lower()
    text = _FOREIGN_DIGIT.sub(lambda digit: str(unicodedata.decimal(digit[0], digit[0])), text)
    return unicodedata.normalize("NFKC", text.casefold())


def _bounded(term: str, *, stem: bool) -> str:
    if len(term) > MAX_TERM:
        return "digest:" + hashlib.blake2b(term.encode(), digest_size=16).hexdigest()
    return _local.stem(term) if stem and term.isalpha() else term


def _pairs(characters: str | list[str]) -> Iterator[str]:
    if len(characters) == 1:
        yield characters[0]
    for first, second in pairwise(characters):
        yield first + second


def _emoji_terms(emoji: str) -> Iterator[str]:
    emoji = emoji.replace("\ufe0f", "")
    yield _bounded(emoji, stem=False)
    if len(emoji) > 1:
        yield from _EMOJI_PART.findall(emoji)


# Function words of English: in a question they say nothing about the answer.
_STOP_WORDS = """
    a an the this that these those and or but if then than so as of at by for from in into on onto
    to with about over under again i me my mine myself we us our ours ourselves you your yours
    yourself he him his himself she her hers herself it its itself they them their theirs themselves
    what which who whom whose when where why how is am are was were be been being have has had
    having do does did doing done can could will would shall should might must not no nor only
    own same too very just there here all any both each few more most other some such
    don't doesn't didn't isn't aren't wasn't weren't haven't hasn't hadn't won't wouldn't can't
    couldn't shouldn't
"""
_STOP_TERMS = frozenset(term for word in _STOP_WORDS.split() for term in _cached(word))
