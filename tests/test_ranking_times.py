"""Time expressions in a query, and how near the log's times are to them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memstore.ranking.times import DAY, Times, closeness, find_times

NOW = datetime(2023, 8, 16, 12, tzinfo=UTC)  # a Wednesday


def seconds(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("text", "start", "stop"),
    [
        ("what did ann paint on october 13, 2023?", "2023-10-13", "2023-10-14"),
        ("on 7 july, 2023", "2023-07-07", "2023-07-08"),
        ("the 3rd of march 2021", "2021-03-03", "2021-03-04"),
        ("in july 2023", "2023-07-01", "2023-08-01"),
        ("since sept 2021", "2021-09-01", "2021-10-01"),
        ("how often in 2023", "2023-01-01", "2024-01-01"),
        ("deployed 2024-02-29", "2024-02-29", "2024-03-01"),
        ("deployed 2024-02", "2024-02-01", "2024-03-01"),
        ("2023年5月7日吃", "2023-05-07", "2023-05-08"),
        ("2023年12月", "2023-12-01", "2024-01-01"),
        ("yesterday", "2023-08-15", "2023-08-16"),
        ("today", "2023-08-16", "2023-08-17"),
        ("last friday", "2023-08-11", "2023-08-12"),
        ("last week", "2023-08-07", "2023-08-14"),
        ("two weeks ago", "2023-07-31", "2023-08-07"),
        ("this month", "2023-08-01", "2023-09-01"),
        ("3 months ago", "2023-05-01", "2023-06-01"),
        ("moved 4 years ago", "2019-01-01", "2020-01-01"),
    ],
)
def test_what_an_expression_means(text: str, start: str, stop: str) -> None:
    assert find_times(text, NOW).periods == ((seconds(start), seconds(stop)),)


@pytest.mark.parametrize(
    ("text", "day"),
    [("on may 3", (5, 3)), ("in june", (6, 0)), ("29 february", (2, 29))],
)
def test_a_day_without_a_year_is_left_to_the_log(text: str, day: tuple[int, int]) -> None:
    assert find_times(text) == Times(days=(day,))


@pytest.mark.parametrize(
    "text",
    [
        "may i ask who may come",
        "from 65% to 82%",
        "1/2000 in uk",
        "version 3.2023 of it",
        "31 february 2023",
        "bootstrap 5.3.0 and 2024-13-77",
        "march on",
        "",
    ],
)
def test_what_is_no_time(text: str) -> None:
    assert not find_times(text, NOW)


def test_without_a_present_relative_times_are_not_read() -> None:
    assert not find_times("what did we say yesterday, and last week?")


def test_the_present_may_be_in_any_offset() -> None:  # trap 24
    present = datetime(2023, 8, 16, 1, tzinfo=timezone(timedelta(hours=5)))
    assert find_times("today", present).periods[0][0] == seconds("2023-08-15")


def test_several_expressions_are_read_up_to_a_limit() -> None:
    assert len(find_times("5 may 2023 and 6 may 2023").periods) == 2
    assert len(find_times("in 2023 " * 500).periods) == 4


@given(st.text(alphabet="0123456789 -年月日maybdecinlstagokwery,.", max_size=60))
def test_any_text_can_be_read(text: str) -> None:
    for start, stop in find_times(text, NOW).periods:
        assert start < stop


def test_closeness_is_one_inside_and_falls_slower_after_than_before() -> None:
    times = Times(periods=((10 * DAY, 11 * DAY),))
    at = np.array([10.0, 10.9, 18.0, 3.0, 1000.0]) * DAY
    near = closeness(times, at)
    assert list(near[:2]) == [1, 1]
    assert near[2] == pytest.approx(np.exp(-1))
    assert near[3] == pytest.approx(np.exp(-3))
    assert near[4] < 1e-9


def test_a_day_without_a_year_is_near_in_every_year_of_the_log() -> None:
    at = np.array([seconds(t) for t in ("2021-06-10", "2022-01-01", "2023-06-30")])
    near = closeness(Times(days=((6, 0),)), at)
    assert near[0] == near[2] == 1
    assert near[1] < 0.01


def test_the_leap_day_is_looked_for_in_leap_years_only() -> None:
    at = np.array([seconds(t) for t in ("2023-02-28", "2024-02-29")])
    near = closeness(Times(days=((2, 29),)), at)
    assert near[1] == 1
    assert near[0] < 1e-9


def test_no_time_is_near_when_none_is_named() -> None:
    assert list(closeness(Times(), np.array([0.0, 1.0]))) == [0, 0]
    assert len(closeness(Times(days=((6, 0),)), np.empty(0))) == 0
