"""What a query asks for, read off its own words: whose words, a time, a number."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime

from memstore.ranking.times import Times, find_times

_WORD = re.compile(r"\w+")
_TIME = re.compile(
    r"^\W*(when|since when|until when|how long|(in |on |at )?(what|which) "
    r"(date|day|week|weekend|month|season|year|time))\b"
)
_NUMBER = re.compile(r"\bhow (many|much|old|often|long|far|big|tall)\b")
_LIMIT = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryFeatures:
    """What the query says about the entries that it wants, beyond its terms."""

    words: frozenset[str] = frozenset()
    """Its casefolded words, among which actors' names are looked up."""
    asks_time: bool = False
    """It asks when or how long."""
    asks_number: bool = False
    """It asks how many or how much."""
    times: Times = field(default_factory=Times)
    """The times that it names."""


def query_features(text: str, now: datetime | None = None) -> QueryFeatures:
    """Read the features of a query; only its first 4,000 characters are looked at.

    `now` is what "yesterday" and "last week" are relative to; without it they are not read.
    """
    folded = text[:_LIMIT].casefold()
    return QueryFeatures(
        words=frozenset(_WORD.findall(folded)),
        asks_time=bool(_TIME.search(folded)),
        asks_number=bool(_NUMBER.search(folded)),
        times=find_times(folded, now),
    )
