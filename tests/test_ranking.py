"""The ranking on small frames made by hand, and what must hold for any frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from memstore.ranking import (
    LEXICAL,
    RECIPROCAL,
    VECTOR,
    Frame,
    QueryFeatures,
    Ranked,
    Settings,
    query_features,
    rank,
)

Floats = NDArray[np.float64]
ALL_SETTINGS = {"default": Settings(), "lexical": LEXICAL, "vector": VECTOR, "rrf": RECIPROCAL}
NOBODY = QueryFeatures()


def make_frame(
    n: int,
    *,
    tf: Any = None,
    cosine: Sequence[float] | Floats | None = None,
    **given: Any,
) -> Frame:
    """Build a frame of n entries of one session, one chunk each, with what is given replaced."""
    counts = np.zeros((n, 1)) if tf is None else np.asarray(tf, dtype=np.float64)
    values: dict[str, Any] = {
        "position": np.arange(1, n + 1),
        "session": np.zeros(n, np.int64),
        "actor": np.zeros(n, np.int64),
        "actors": ["user"],
        "role": ["user"] * n,
        "event_type": ["message"] * n,
        "occurred_at": np.zeros(n),
        "text": [""] * n,
        "asks": np.zeros(n, bool),
        "eligible": np.ones(n, bool),
        "terms": [f"term{i}" for i in range(counts.shape[1])],
        "tf": counts,
        "df": (counts > 0).sum(axis=0).astype(np.float64),
        "doc_length": np.full(n, 10.0),
        "documents": max(n, 1),
        "average_length": 10.0,
        "chunk_row": np.arange(n),
        "chunk": np.zeros(n, np.int64),
        "cosine": np.full(n, np.nan) if cosine is None else np.asarray(cosine, dtype=np.float64),
    }
    return Frame(**(values | given))


def positions(frame: Frame, ranked: Ranked) -> list[int]:
    return [int(p) for p in frame.position[ranked.order]]


@st.composite
def frames(draw: st.DrawFn) -> Frame:
    n, t = draw(st.integers(0, 12)), draw(st.integers(0, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    chunks = rng.integers(0, 4, n)
    m = int(chunks.sum())
    cosine = rng.uniform(-1, 1, m)
    cosine[rng.random(m) < draw(st.sampled_from([0.0, 0.3, 1.0]))] = np.nan
    tf = rng.poisson(draw(st.sampled_from([0.0, 0.7])), (n, t)).astype(np.float64)
    return make_frame(
        n,
        tf=tf,
        position=rng.permutation(40)[:n] + 1,
        session=rng.integers(-1, 3, n),
        actor=rng.integers(0, 3, n),
        actors=["Ann", "Bo Li", "user"],
        role=[("user", "assistant", "tool")[i] for i in rng.integers(0, 3, n)],
        text=[("When?", "yesterday, 3 of them", "")[i] for i in rng.integers(0, 3, n)],
        asks=rng.random(n) < 0.3,
        eligible=rng.random(n) < 0.8,
        df=(tf > 0).sum(axis=0) + rng.integers(0, 5, t).astype(np.float64),
        doc_length=tf.sum(axis=1) + rng.integers(0, 50, n),
        documents=n + 5,
        average_length=float(rng.uniform(1, 20)),
        chunk_row=np.repeat(np.arange(n), chunks),
        chunk=np.concatenate([np.arange(c) for c in chunks]) if n else np.empty(0, np.int64),
        cosine=cosine,
    )


QUERIES = st.sampled_from(
    [NOBODY, query_features("When did Ann move?"), query_features("How many has Bo?")]
)


def permuted(frame: Frame, order: np.ndarray[Any, Any]) -> Frame:
    """Reorder a frame's entries, and its chunks backwards."""
    values: dict[str, Any] = {}
    for field in fields(frame):
        value = getattr(frame, field.name)
        if field.name in ("role", "event_type", "text"):
            values[field.name] = [value[i] for i in order]
        elif field.name in ("chunk", "cosine"):
            values[field.name] = value[::-1]
        elif field.name == "chunk_row":
            values[field.name] = np.argsort(order)[value][::-1]
        elif isinstance(value, np.ndarray) and field.name != "df":
            values[field.name] = value[order]
        else:
            values[field.name] = value
    return Frame(**values)


# What must hold for any frame


@pytest.mark.parametrize("name", ALL_SETTINGS)
@settings(max_examples=60)
@given(frame=frames(), query=QUERIES)
def test_each_eligible_entry_comes_exactly_once_with_a_finite_score(
    name: str, frame: Frame, query: QueryFeatures
) -> None:
    ranked = rank(frame, query, ALL_SETTINGS[name])
    assert sorted(ranked.order) == list(np.flatnonzero(frame.eligible))  # traps 13, 17, 18
    assert np.isfinite(ranked.scores).all()
    assert (np.diff(ranked.scores[ranked.order]) <= 0).all()


@pytest.mark.parametrize("name", ALL_SETTINGS)
@settings(max_examples=60)
@given(frame=frames(), query=QUERIES, seed=st.integers(0, 1000))
def test_the_order_of_the_rows_does_not_matter(
    name: str, frame: Frame, query: QueryFeatures, seed: int
) -> None:
    other = permuted(frame, np.random.default_rng(seed).permutation(len(frame)))
    first, second = (rank(f, query, ALL_SETTINGS[name]) for f in (frame, other))
    by_position = dict(zip(other.position.tolist(), second.scores.tolist(), strict=True))
    expected = [by_position[p] for p in frame.position.tolist()]
    np.testing.assert_allclose(first.scores, expected, atol=1e-9)
    np.testing.assert_array_equal(
        first.best_chunk[np.argsort(frame.position)], second.best_chunk[np.argsort(other.position)]
    )


@given(frame=frames(), query=QUERIES)
def test_contributions_add_up_to_the_score(frame: Frame, query: QueryFeatures) -> None:
    ranked = rank(frame, query)
    total = np.sum(list(ranked.contributions.values()), axis=0) if len(frame) else np.empty(0)
    np.testing.assert_allclose(ranked.scores, total, atol=1e-9)


@given(frame=frames(), query=QUERIES)
def test_leg_ranks_follow_the_legs_scores(frame: Frame, query: QueryFeatures) -> None:
    ranked = rank(frame, query)
    for leg, leg_ranks in ranked.leg_ranks.items():
        found = np.flatnonzero(leg_ranks)
        best_first = found[np.argsort(leg_ranks[found])]
        assert list(leg_ranks[best_first]) == list(range(1, len(found) + 1))
        assert (np.diff(ranked.leg_scores[leg][best_first]) <= 0).all()


# Small frames


def test_an_empty_frame_gives_nothing() -> None:
    ranked = rank(make_frame(0), query_features("anything"))
    assert len(ranked.order) == len(ranked.scores) == len(ranked.best_chunk) == 0


def test_without_any_evidence_entries_come_in_the_order_of_the_log() -> None:
    frame = make_frame(4, position=np.array([7, 2, 9, 4]), session=np.full(4, -1))
    assert positions(frame, rank(frame, NOBODY)) == [2, 4, 7, 9]


@pytest.mark.parametrize("name", ["default", "rrf"])
def test_one_leg_is_enough_to_be_found(name: str) -> None:  # trap 18
    tf = np.zeros((30, 1))
    tf[3] = 1
    cosine = np.full(30, 0.1)
    cosine[20] = 0.8
    frame = make_frame(30, tf=tf, cosine=cosine, session=np.full(30, -1))
    assert set(positions(frame, rank(frame, NOBODY, ALL_SETTINGS[name]))[:2]) == {4, 21}


def test_entries_without_a_vector_are_found_by_their_words() -> None:  # trap 14
    tf = np.zeros((10, 2))
    tf[9] = 1
    cosine = np.linspace(0.1, 0.3, 10)
    cosine[5:] = np.nan
    frame = make_frame(10, tf=tf, cosine=cosine, session=np.full(10, -1))
    ranked = rank(frame, NOBODY)
    assert positions(frame, ranked)[0] == 10
    assert ranked.best_chunk[9] == -1
    assert ranked.leg_ranks["vector"][9] == 0


def test_an_entry_without_a_vector_does_not_outrank_the_best_match() -> None:  # trap 13
    frame = make_frame(3, cosine=[np.nan, 0.2, 0.9], session=np.full(3, -1))
    assert positions(frame, rank(frame, NOBODY)) == [3, 1, 2]


def test_the_best_chunk_counts_and_is_named() -> None:  # traps 11 and 18
    frame = make_frame(
        2,
        session=np.full(2, -1),
        chunk_row=np.array([0, 0, 0, 1]),
        chunk=np.array([0, 1, 2, 0]),
        cosine=np.array([0.1, 0.2, 0.9, 0.5]),
    )
    ranked = rank(frame, NOBODY)
    assert positions(frame, ranked) == [1, 2]
    assert list(ranked.best_chunk) == [2, 0]
    assert ranked.leg_scores["vector"][0] == 0.9


def test_a_long_tool_result_does_not_crowd_out_short_turns() -> None:
    """Sixty chunks have many chances for a middling cosine, and hold every query word."""
    tf = np.ones((11, 3))
    length = np.full(11, 8.0)
    tf[10], length[10] = 4, 9_000
    frame = make_frame(
        11,
        tf=tf,
        session=np.full(11, -1),
        role=["user"] * 10 + ["tool"],
        event_type=["message"] * 10 + ["tool_result"],
        doc_length=length,
        average_length=float(length.mean()),
        chunk_row=np.concatenate([np.arange(10), np.full(60, 10)]),
        chunk=np.concatenate([np.zeros(10, np.int64), np.arange(60)]),
        cosine=np.concatenate([np.full(10, 0.45), np.linspace(0.1, 0.5, 60)]),
    )
    assert positions(frame, rank(frame, NOBODY))[-1] == 11


def test_a_long_tool_result_is_found_when_it_has_the_answer() -> None:
    tf = np.ones((11, 3))
    tf[:10, 2] = 0
    length = np.full(11, 8.0)
    length[10] = 9_000
    frame = make_frame(
        11,
        tf=tf,
        session=np.full(11, -1),
        role=["user"] * 10 + ["tool"],
        doc_length=length,
        average_length=float(length.mean()),
        chunk_row=np.concatenate([np.arange(10), np.full(60, 10)]),
        chunk=np.concatenate([np.zeros(10, np.int64), np.arange(60)]),
        cosine=np.concatenate([np.full(10, 0.2), np.full(59, 0.1), [0.7]]),
    )
    ranked = rank(frame, NOBODY)
    assert positions(frame, ranked)[0] == 11
    assert ranked.best_chunk[10] == 59


def test_the_turns_beside_a_match_profit_inside_its_session_only() -> None:
    tf = np.zeros((6, 1))
    tf[2] = 1
    frame = make_frame(6, tf=tf, session=np.array([1, 1, 1, 2, 2, 2]))
    scores = rank(frame, NOBODY).scores
    assert scores[1] > scores[3]
    assert scores[3] == scores[4] == scores[5]


def test_entries_without_a_session_have_no_neighbours() -> None:
    tf = np.zeros((3, 1))
    tf[1] = 1
    frame = make_frame(3, tf=tf, session=np.full(3, -1))
    scores = rank(frame, NOBODY).scores
    assert scores[0] == scores[2] == 0


def test_neighbours_are_found_in_interleaved_sessions() -> None:
    tf = np.zeros((6, 1))
    tf[2] = 1
    frame = make_frame(6, tf=tf, session=np.array([1, 2, 1, 2, 1, 2]))
    scores = rank(frame, NOBODY).scores
    assert scores[4] > scores[3] == scores[1]


def test_what_a_filter_excludes_supports_its_neighbours_and_stays_out() -> None:
    tf = np.zeros((6, 1))
    tf[1] = 1
    eligible = np.array([True, False, True, True, True, True])
    frame = make_frame(6, tf=tf, eligible=eligible)
    found = positions(frame, rank(frame, NOBODY))
    assert sorted(found) == [1, 3, 4, 5, 6]
    assert set(found[:3]) == {1, 3, 4}


def test_the_answer_after_a_matching_question_is_preferred() -> None:
    tf = np.zeros((3, 1))
    tf[1] = 1
    asks = np.array([False, True, False])
    with_question = rank(make_frame(3, tf=tf, asks=asks), NOBODY).scores
    assert with_question[2] > with_question[0]


def test_a_named_actor_is_preferred() -> None:
    given: dict[str, Any] = {"actor": np.array([0, 1, 0]), "actors": ["Ann", "Bo"]}
    frame = make_frame(3, session=np.full(3, -1), **given)
    assert positions(frame, rank(frame, query_features("What does Bo like?")))[0] == 2
    assert positions(frame, rank(frame, query_features("Do Ann and Bo cook?"))) == [1, 2, 3]
    assert positions(frame, rank(frame, query_features("Who cooks?"))) == [1, 2, 3]


def test_a_named_actors_name_is_not_searched_in_the_text_of_others() -> None:
    """Who says "Hey Bo" is somebody else."""
    frame = make_frame(
        3,
        tf=[[1, 0], [0, 1], [0, 0]],
        terms=["bo", "cook"],
        session=np.full(3, -1),
        actor=np.array([0, 1, 0]),
        actors=["Ann", "Bo"],
    )
    scores = rank(frame, query_features("What does Bo cook?")).scores
    assert scores[0] == scores[2]


def test_a_role_is_no_name() -> None:
    frame = make_frame(2, actor=np.array([0, 1]), actors=["user", "assistant"])
    assert positions(frame, rank(frame, query_features("Did the assistant help?"))) == [1, 2]


def test_the_users_own_words_outweigh_the_assistants() -> None:
    frame = make_frame(2, tf=[[1], [1]], role=["assistant", "user"], session=np.full(2, -1))
    assert positions(frame, rank(frame, NOBODY)) == [2, 1]


def test_a_log_without_the_users_role_has_no_prior() -> None:
    frame = make_frame(2, role=["assistant", "tool"], session=np.full(2, -1))
    assert list(rank(frame, NOBODY).scores) == [0, 0]


def test_each_system_follows_its_leg() -> None:
    tf = np.array([[3.0], [1.0], [0.0]])
    frame = make_frame(3, tf=tf, cosine=[0.1, 0.5, 0.9], role=["user", "assistant", "tool"])
    assert positions(frame, rank(frame, NOBODY, LEXICAL)) == [1, 2, 3]
    assert positions(frame, rank(frame, NOBODY, VECTOR)) == [3, 2, 1]


def test_a_weight_left_out_contributes_nothing() -> None:
    names = [name for name in Settings().weights() if getattr(Settings(), name)]
    frame = make_frame(3, tf=[[1], [0], [2]], cosine=[0.1, 0.2, 0.3])
    for name in names:
        assert name not in rank(frame, NOBODY, Settings().without(name)).contributions


def test_an_unknown_weight_cannot_be_left_out() -> None:
    with pytest.raises(TypeError):
        Settings().without("telepathy")


def test_the_cosine_counts_by_what_the_encoder_can_read() -> None:
    """An English encoder's cosines of Chinese texts are noise."""
    frame = make_frame(2, tf=[[1], [0]], cosine=[0.2, 0.3], session=np.full(2, -1))
    assert positions(frame, rank(frame, NOBODY, Settings(vector=2.0))) == [2, 1]
    unread = query_features("\u8fd9\u662f\u4ec0\u4e48", legible=0.1)
    assert positions(frame, rank(frame, unread, Settings(vector=2.0))) == [1, 2]


def test_what_the_user_said_is_found_by_a_long_reply_to_it() -> None:
    def ranked(length: float) -> tuple[list[int], Ranked]:
        frame = make_frame(
            4,
            cosine=[0.3, 0.3, 0.3, 0.8],
            role=["user", "assistant", "user", "assistant"],
            doc_length=np.array([9, length, 9, length]),
        )
        found = rank(frame, NOBODY, Settings(length=0.0))
        return positions(frame, found), found

    order, found = ranked(400)
    assert found.scores[2] > found.scores[0]
    assert order[0] == 3


def test_an_entry_is_not_buried_under_what_short_replies_answer() -> None:
    """The best by both legs stays ahead of user turns whose replies are a few words long."""
    frame = make_frame(
        6,
        tf=[[0], [0], [0], [0], [0], [2]],
        cosine=[0.3, 0.7, 0.2, 0.7, 0.2, 0.9],
        role=["user", "assistant", "user", "assistant", "user", "tool"],
        doc_length=np.array([9.0, 12, 9, 12, 9, 30]),
    )
    found = rank(frame, NOBODY)
    assert positions(frame, found)[0] == 6


def test_a_question_about_the_assistants_words_prefers_them() -> None:
    frame = make_frame(2, role=["user", "assistant"], session=np.full(2, -1))
    assert positions(frame, rank(frame, query_features("What did you recommend?"))) == [2, 1]
    assert positions(frame, rank(frame, query_features("What did I eat?"))) == [1, 2]


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("When did she move?", "We moved last week"),
        ("When did she move?", "MARCH it was"),
        ("How many dogs are there?", "There are three of them"),
        ("How many dogs are there?", "I have 2"),
    ],
)
def test_a_text_with_what_is_asked_for_is_preferred(question: str, text: str) -> None:
    frame = make_frame(2, text=["Lovely dogs", text], session=np.full(2, -1))
    assert positions(frame, rank(frame, query_features(question))) == [2, 1]
    assert positions(frame, rank(frame, query_features("Who is she?"))) == [1, 2]


def test_an_entry_of_the_named_time_is_preferred() -> None:
    day = datetime(2023, 5, 8, tzinfo=UTC).timestamp()
    frame = make_frame(3, occurred_at=np.array([day - 1e7, day, day + 1e7]), session=np.full(3, -1))
    for question in ("Where on 8 May 2023?", "Where on May 8?"):
        assert positions(frame, rank(frame, query_features(question)))[0] == 2


def test_a_session_that_covers_the_query_lifts_its_entries() -> None:
    tf = np.zeros((8, 2))
    tf[0, 0] = tf[3, 1] = 1  # one session has both terms, far apart
    tf[4, 0] = tf[5, 0] = 1  # the other has one of them twice
    frame = make_frame(8, tf=tf, session=np.array([1] * 4 + [2] * 4))
    contributions = rank(frame, NOBODY).contributions["coverage"]
    assert contributions[0] == contributions[3] > contributions[4] > 0


# Queries


@pytest.mark.parametrize(
    ("text", "asks_time", "asks_number"),
    [
        ("When did Ann move?", True, False),
        ("  In which year did it start", True, False),
        ("How long have they been friends?", True, True),
        ("How many dogs does she have?", False, True),
        ("What happened when Ann moved?", False, False),
        ("On what day did it happen?", True, False),
        ("", False, False),
    ],
)
def test_what_a_question_asks_for(text: str, asks_time: bool, asks_number: bool) -> None:
    found = query_features(text)
    assert (found.asks_time, found.asks_number) == (asks_time, asks_number)


def test_query_features_of_any_text_are_cheap() -> None:  # traps 6 and 8
    found = query_features("how " * 60_000 + "\x00 \udc97 ' OR 1=1 --")
    assert found.words == {"how"}


def test_settings_can_be_replaced() -> None:
    assert replace(Settings(), lexical=0.0) == Settings().without("lexical")
