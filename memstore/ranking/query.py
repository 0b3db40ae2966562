"""What a question asks for, read off its own words: a time, a number, somebody's words."""

from __future__ import annotations

import re

from memstore.ranking.frame import QueryFeatures

_WORD = re.compile(r"\w+")
_TIME = re.compile(
    r"^\W*(when|since when|until when|how long|(in |on |at )?(what|which) "
    r"(date|day|week|weekend|month|season|year|time))\b"
)
_NUMBER = re.compile(r"\bhow (many|much|old|often|long|far|big|tall)\b")
_LIMIT = 4_000


def query_features(text: str) -> QueryFeatures:
    """Read the features of a query; only its first 4,000 characters are looked at."""
    folded = text[:_LIMIT].casefold()
    return QueryFeatures(
        words=frozenset(_WORD.findall(folded)),
        asks_time=bool(_TIME.search(folded)),
        asks_number=bool(_NUMBER.search(folded)),
    )
