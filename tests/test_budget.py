from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memstore.budget import Budget
from memstore.errors import InvalidInput


def test_the_first_argument_is_tokens() -> None:
    assert Budget(2_048).total == 2_048


def test_parts_are_fractions_of_the_whole() -> None:
    budget = Budget(1_000, state_share=0.5, tail_share=0.25)
    assert (budget.state, budget.tail) == (500, 250)


@given(total=st.integers(0, 10**9), state=st.floats(0, 1), data=st.data())
def test_parts_never_exceed_the_whole(total: int, state: float, data: st.DataObject) -> None:
    tail = data.draw(st.floats(0, 1 - state))
    budget = Budget(total, state_share=state, tail_share=tail)
    assert 0 <= budget.state + budget.tail <= total


@pytest.mark.parametrize("total", [-1, 2.5, "2048", None, True, float("nan")])
def test_a_total_that_is_no_number_of_tokens_is_refused(total: object) -> None:
    with pytest.raises(InvalidInput, match="total"):
        Budget(total)  # type: ignore[arg-type]


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan"), float("inf"), "0.5", None, True])
@pytest.mark.parametrize("name", ["state_share", "tail_share"])
def test_a_share_that_is_no_fraction_is_refused(name: str, share: object) -> None:
    with pytest.raises(InvalidInput, match=name):
        Budget(100, **{name: share})  # type: ignore[arg-type]


def test_shares_that_leave_less_than_nothing_are_refused() -> None:
    with pytest.raises(InvalidInput):
        Budget(100, state_share=0.6, tail_share=0.5)


def test_a_budget_is_a_value() -> None:
    assert Budget(5) == Budget(5)
    with pytest.raises(dataclasses.FrozenInstanceError):
        Budget(5).total = 6  # type: ignore[misc]
