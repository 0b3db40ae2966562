"""A schema with tracked parts, and marks on its documents."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from hypothesis import strategies as st
from pydantic import (
    AwareDatetime,
    BaseModel,
    Field,
)

from memstore.freshness import Fresh, carry_marks
from memstore.schema import StateSchema

DAY = timedelta(days=1)
NOW = datetime(2026, 4, 28, 12, 0, tzinfo=UTC)
STAMP = NOW.isoformat()
LATER = NOW + DAY
FRESH = Fresh(10 * DAY)

Marks = dict[str, dict[str, str]]


class Entry(BaseModel):
    text: str
    said: AwareDatetime | None = None
    n: int = 0


class Profile(BaseModel):
    name: Annotated[str, FRESH] = ""
    home: Annotated[str | None, FRESH] = None
    likes: Annotated[list[str], FRESH] = Field(default_factory=list)
    prefs: Annotated[dict[str, Any], FRESH] = Field(default_factory=dict)
    entries: Annotated[list[Entry], Fresh(20 * DAY, since="said")] = Field(default_factory=list)
    free: dict[str, Any] = Field(default_factory=dict)


PROFILE = StateSchema("profile", 1, Profile)


def written(**fields: Any) -> dict[str, Any]:
    return PROFILE.dump(PROFILE.load({"name": "Ada", **fields}))


def marked(document: Any, now: datetime = NOW) -> Marks:
    return carry_marks(PROFILE, None, {}, document, now)


def carry(old: Any, marks: Marks, new: Any, now: datetime = LATER) -> Marks:
    return carry_marks(PROFILE, old, marks, new, now)


NAMES = st.sampled_from(["a", "b", "c", "d/e", ""])
PLAIN = st.integers(0, 3) | st.booleans() | st.sampled_from(["x", "y"])
PROFILES = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["Ada", "Bob"]),
        "home": st.none() | st.sampled_from(["Rome", "Oslo"]),
        "likes": st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=6),
        "prefs": st.dictionaries(NAMES, PLAIN | st.lists(PLAIN, max_size=2), max_size=4),
        "entries": st.lists(
            st.fixed_dictionaries(
                {"text": st.sampled_from(["s", "t", "u"]), "n": st.integers(0, 2)}
            ),
            max_size=5,
        ),
        "free": st.dictionaries(NAMES, PLAIN, max_size=3),
    }
)
