"""The parts that ranking is made of: BM25 over arrays, reciprocal ranks, several queries merged."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from rank_bm25 import BM25Okapi

from memstore.ranking import (
    Postings,
    Ranked,
    best_by_bm25,
    bm25,
    idf,
    merge,
    rrf,
)

Floats = NDArray[np.float64]


# BM25


@settings(max_examples=60)
@given(
    documents=st.lists(
        st.lists(st.sampled_from("abcdef"), min_size=1, max_size=8), min_size=1, max_size=8
    ),
    query=st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=4, unique=True),
    k1=st.floats(0.1, 3),
    b=st.floats(0, 1),
)
def test_bm25_equals_rank_bm25_under_the_same_idf(
    documents: list[list[str]], query: list[str], k1: float, b: float
) -> None:
    reference = BM25Okapi(documents, k1=k1, b=b)
    df = np.array([sum(term in d for d in documents) for term in query], np.float64)
    reference.idf = dict(zip(query, idf(df, len(documents)).tolist(), strict=True))
    tf = np.array([[d.count(term) for term in query] for d in documents], np.float64)
    lengths = np.array([len(d) for d in documents], np.float64)
    scores = bm25(tf, df, lengths, len(documents), float(lengths.mean()), k1, b)
    np.testing.assert_allclose(scores, reference.get_scores(query), atol=1e-9)


def test_a_common_word_counts_less_than_a_rare_one_and_never_negatively() -> None:  # trap 10
    weights = idf(np.array([98.0, 1.0, 0.0]), 100)
    assert 0 < weights[0] < weights[1] < weights[2]


def test_bm25_of_no_terms_is_zero() -> None:
    empty = np.empty((3, 0))
    assert list(bm25(empty, np.empty(0), np.ones(3), 3, 1.0)) == [0, 0, 0]


@given(
    documents=st.lists(
        st.lists(st.sampled_from("abcdef"), min_size=1, max_size=8), min_size=1, max_size=15
    ),
    eligible=st.sets(st.integers(1, 15)),
    limit=st.integers(1, 20),
)
def test_whole_lists_give_the_same_scores_as_arrays(
    documents: list[list[str]], eligible: set[int], limit: int
) -> None:
    words = ["a", "b", "z"]
    tf = np.array([[document.count(word) for word in words] for document in documents], float)
    length = np.array([len(document) for document in documents], float)
    expected = bm25(tf, (tf > 0).sum(0).astype(float), length, len(documents), length.mean())
    lists = []
    for column, word in enumerate(words):
        row = np.flatnonzero(tf[:, column])
        may = np.array([n + 1 in eligible for n in row.tolist()], bool)
        lists.append(Postings(word, row + 1, tf[row, column].astype(int), length[row], may))
    position, score = best_by_bm25(lists, len(documents), length.mean(), limit)
    found = [n + 1 for n in np.flatnonzero(expected > 0).tolist() if n + 1 in eligible]
    best = sorted(found, key=lambda n: (-expected[n - 1], n))[:limit]
    assert score == pytest.approx([expected[n - 1] for n in position.tolist()])
    assert len(position) == len(best)
    assert score == pytest.approx([expected[n - 1] for n in best])


# Fusion


def test_rrf_adds_reciprocal_ranks_and_skips_what_a_leg_lacks() -> None:
    fused = rrf([np.array([1, 0, 2]), np.array([2, 1, 0])], constant=60)
    np.testing.assert_allclose(fused, [1 / 61 + 1 / 62, 1 / 61, 1 / 62])
    np.testing.assert_allclose(rrf([np.array([1])], (0.5,)), [0.5 / 61])
    assert len(rrf([])) == 0


def as_ranked(scores: Sequence[float]) -> Ranked:
    values = np.asarray(scores, dtype=np.float64)
    return Ranked(order=np.argsort(-values, kind="stable"), scores=values)


def test_merging_takes_each_entry_once_and_the_weightier_query_first() -> None:
    task = (np.array([1, 2, 3]), as_ranked([3.0, 2.0, 1.0]))
    cue = (np.array([3, 4]), as_ranked([90.0, 10.0]))
    merged = merge([task, cue], (1.0, 0.5))
    assert [position for position, _ in merged] == [1, 2, 3, 4]
    assert dict(merged)[3] == 0.5


def test_merging_nothing_gives_nothing() -> None:
    assert merge([]) == []
    assert merge([(np.empty(0, np.int64), as_ranked([]))]) == []


def test_merging_breaks_ties_by_position() -> None:
    assert merge([(np.array([9, 4]), as_ranked([1.0, 1.0]))]) == [(4, 1.0), (9, 1.0)]
