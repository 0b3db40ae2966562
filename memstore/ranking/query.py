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
_TOLD = re.compile(
    r"\b(did|have|had|were|would) you\b"
    r"|\byou (recommend|suggest|advise|say|said|told|tell|gave|give|mention|explain|list|propos"
    r"|describ|wrote|write|show|outlin|made|make)"
    r"|\byour (recommend|suggest|advice|answer|explanation|respon|repl|proposal)"
)
TIME_WORDS = re.compile(
    r"\b(yesterday|today|tomorrow|tonight|ago|last|next|since|until|recently|soon"
    r"|(week|weekend|month|year|day)s?|morning|evening|night"
    r"|january|february|march|april|may|june|july|august|september|october|november|december"
    r"|monday|tuesday|wednesday|thursday|friday|saturday|sunday)\b|\b\d{4}\b"
)
"""What a casefolded text has that tells a time."""
NUMBER_WORDS = re.compile(
    r"\d|\b(one|two|three|four|five|six|seven|eight|nine|ten|couple|few|several|once|twice)\b"
)
"""What a casefolded text has that tells a number."""
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
    asks_told: bool = False
    """It asks what the assistant said."""
    legible: float = 1.0
    """The share of it that the encoder can read; the cosine counts for that much."""
    times: Times = field(default_factory=Times)
    """The times that it names."""

    @property
    def reads_text(self) -> bool:
        """Whether ranking looks into the entries' texts for it."""
        return self.asks_time or self.asks_number


def query_features(
    text: str, now: datetime | None = None, *, legible: float = 1.0
) -> QueryFeatures:
    """Read the features of a query; only its first 4,000 characters are looked at.

    `now` is what "yesterday" and "last week" are relative to; without it they are not read.
    `legible` is the share of the query's tokens that the encoder's vocabulary has: an English
    encoder's cosines of Chinese texts are noise.
    """
    folded = text[:_LIMIT].casefold()
    return QueryFeatures(
        words=frozenset(_WORD.findall(folded)),
        asks_time=bool(_TIME.search(folded)),
        asks_number=bool(_NUMBER.search(folded)),
        asks_told=bool(_TOLD.search(folded)),
        legible=legible,
        times=find_times(folded, now),
    )
