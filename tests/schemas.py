"""Schemas that tests of states and their documents share."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st
from pydantic import (
    BaseModel,
)

from memstore.schema import StateSchema

NOW = datetime(2026, 4, 28, 12, 0, tzinfo=UTC)


class Notes(BaseModel):
    title: str = ""
    anything: Any = None
    number: float = 0.0
    maybe: float | None = None


NOTES = StateSchema("notes", 1, Notes)


class Item(BaseModel):
    name: str
    at: datetime


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)
