"""Texts and JSON values of every kind, for Hypothesis."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

# Hypothesis leaves surrogates out unless they are asked for.
any_text = st.text(st.characters(exclude_categories=()))
surrogates = st.text(st.characters(categories=["Cs"], include_characters="a\0é😀"))


def same(a: Any, b: Any) -> bool:
    """Equal in value and in type at every level: 1, 1.0 and True are three things."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)
