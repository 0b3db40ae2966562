"""Time expressions in a query, as intervals that are compared with the log's own times.

`dateparser` says what an expression means. Its search through free text guesses too much (82 %
is the year 1982, "may" a month) and can take 100 ms, so a pattern picks what it is asked about.
English, ISO 8601 and Chinese or Japanese dates are read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from memstore.ranking.frame import Floats

if TYPE_CHECKING:
    from dateparser.date import DateDataParser

DAY = 86_400.0
MOST = 4
"""Expressions read of one query."""

_MONTH = (
    r"(?:january|february|march|april|may|june|july|august|september|october|november|december"
    r"|(?:jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)\b\.?)"
)
_DAY = r"(?:[0-3]?\d(?:st|nd|rd|th)?(?!\d))"
_YEAR = r"(?:(?:19|20)\d\d(?!\d))"
_NUMBER = r"(?:an?|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\d{1,3})"
_WEEKDAY = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_EXPRESSION = re.compile(
    rf"""(?<![\w.])(?:
      (?P<iso>{_YEAR}-[01]\d(?:-[0-3]\d)?)(?![\d-])
    | (?P<cjk>{_YEAR}年(?:[01]?\d月(?:[0-3]?\d日)?)?)
    | (?P<dated>(?:{_DAY}\s+(?:of\s+)?{_MONTH}|{_MONTH}\s+{_DAY}|{_MONTH}),?\s+(?:of\s+)?{_YEAR})
    | (?P<yearless>{_DAY}\s+(?:of\s+)?{_MONTH}\b|{_MONTH}\s+{_DAY}\b
        |(?<=in\s){_MONTH}\b|(?<=since\s){_MONTH}\b|(?<=during\s){_MONTH}\b|(?<=last\s){_MONTH}\b)
    | (?:in|during|of|since|from|year)\s+(?P<year>{_YEAR})\b
    | (?P<relative>yesterday|today|(?:last|this)\s+(?:week|month|year)|last\s+{_WEEKDAY}
        |{_NUMBER}\s+(?:day|week|month|year)s?\s+ago)\b
    )""",
    re.VERBOSE,
)
_PLAIN = str.maketrans({"年": "-", "月": "-", "日": None, ",": " "})


@dataclass(frozen=True, slots=True)
class Times:
    """What a query says of time.

    `periods` are half-open (start, stop) in seconds since the epoch. `days` are (month, day)
    of any year, day 0 being the whole month.
    """

    periods: tuple[tuple[float, float], ...] = ()
    days: tuple[tuple[int, int], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.periods or self.days)


def find_times(folded: str, now: datetime | None = None) -> Times:
    """Read the time expressions of a casefolded text.

    Without `now`, what is relative to it ("last week") is left out.
    """
    if now is not None:
        now = now.astimezone(UTC)
    periods: list[tuple[float, float]] = []
    days: list[tuple[int, int]] = []
    for match in islice(_EXPRESSION.finditer(folded), MOST):
        kind = match.lastgroup
        if kind is None or (kind == "relative" and now is None):
            continue
        text = match[kind].translate(_PLAIN).strip("- ")
        if kind == "yearless":
            text += " 2000"  # a leap year
        data = _parser(now.date() if kind == "relative" and now else None).get_date_data(text)
        if data is None or data.date_obj is None:
            continue
        start = data.date_obj.replace(tzinfo=UTC)
        if kind == "yearless":
            days.append((start.month, start.day if data.period == "day" else 0))
        else:
            periods.append(_span(start, str(data.period)))
    return Times(tuple(periods), tuple(days))


def closeness(times: Times, occurred_at: Floats) -> Floats:
    """Say how near (n,) times are to a query's: 1 inside, less by e per week after the end.

    What happened is mostly told later, so that before the start it falls three times as fast.
    """
    result = np.zeros(len(occurred_at))
    if not len(occurred_at):
        return result
    for start, stop in (*times.periods, *_in_each_year(times.days, occurred_at)):
        gap = np.maximum(np.maximum(occurred_at - stop, 3 * (start - occurred_at)), 0.0)
        result = np.maximum(result, np.exp(-gap / (7 * DAY)))
    return result


def _in_each_year(
    days: Sequence[tuple[int, int]], occurred_at: Floats
) -> list[tuple[float, float]]:
    """Place days without a year in the last ten years that the log has."""
    if not days:
        return []
    first, last = (
        datetime.fromtimestamp(float(t), UTC).year for t in (occurred_at.min(), occurred_at.max())
    )
    found = []
    for year in range(max(first, last - 9), last + 1):
        for month, day in days:
            try:
                start = datetime(year, month, day or 1, tzinfo=UTC)
            except ValueError:  # 29 February
                continue
            found.append(_span(start, "day" if day else "month"))
    return found


def _span(start: datetime, period: str) -> tuple[float, float]:
    """Widen a moment to the day, week, month or year that it lies in."""
    start = start.replace(hour=0, minute=0, second=0, microsecond=0)
    if period == "year":
        start = start.replace(month=1, day=1)
        stop = start.replace(year=start.year + 1)
    elif period == "month":
        start = start.replace(day=1)
        stop = (start + timedelta(days=31)).replace(day=1)
    elif period == "week":
        start -= timedelta(days=start.weekday())
        stop = start + timedelta(days=7)
    else:
        stop = start + timedelta(days=1)
    return start.timestamp(), stop.timestamp()


@lru_cache(maxsize=16)
def _parser(today: date | None) -> DateDataParser:
    """Load the parser when a query first names a time: 0.8 s that other searches do without."""
    from dateparser.date import DateDataParser

    settings: dict[str, Any] = {"TIMEZONE": "UTC", "RETURN_AS_TIMEZONE_AWARE": False}
    if today is None:
        settings |= {"PREFER_DAY_OF_MONTH": "first", "PREFER_MONTH_OF_YEAR": "first"}
    else:
        settings["RELATIVE_BASE"] = datetime(today.year, today.month, today.day, 12)
    return DateDataParser(languages=["en"], settings=settings)
