"""Measures, paired tests, and the forms in which results are kept."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rank_bm25 import BM25Okapi
from rich.console import Console

from eval import answers, bm25, compare, measures, results
from eval.datasets import Conversation, Dataset, Message, Query
from eval.runner import Asked, Outcome
from memstore import NewEvent


def test_the_measures_of_one_question_by_hand() -> None:
    row = measures.per_query({"q": ["a", "b"]}, {"q": ["x", "a", "a", "y", "z", "w", "b"]})["q"]
    assert (row["R@1"], row["R@5"], row["R@10"]) == (0, 0.5, 1)  # the second "a" has no rank
    assert (row["Success@1"], row["Success@5"]) == (0, 1)
    assert (row["All@5"], row["All@10"], row["RR"]) == (0, 1, 0.5)
    ideal = 1 + 1 / math.log2(3)
    assert row["nDCG@10"] == pytest.approx((1 / math.log2(3) + 1 / math.log2(7)) / ideal)


def test_a_question_that_finds_nothing_counts_as_zero() -> None:
    rows = measures.per_query({"q": ["a"], "r": ["a"]}, {"r": ["a"]})
    assert set(rows["q"].values()) == {0.0}
    assert set(rows["r"].values()) == {1.0}
    assert measures.per_query({}, {}) == {}


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_an_interval_holds_the_mean_and_is_the_same_each_time(values: list[float]) -> None:
    low, high = measures.interval(values, draws=200)
    assert min(values) - 1e-9 <= low <= high <= max(values) + 1e-9
    assert measures.interval(values, draws=200) == (low, high)


def test_a_difference_by_chance_and_one_that_is_more() -> None:
    random = np.random.default_rng(1)
    noise = random.random(60)
    nothing = measures.paired(noise.tolist(), random.permutation(noise).tolist(), draws=2_000)
    assert nothing.difference == pytest.approx(0)
    assert nothing.p > 0.9
    better = measures.paired((noise + 0.2).tolist(), noise.tolist(), draws=2_000)
    assert better.difference == pytest.approx(0.2)
    assert (better.p, better.wins, better.losses, better.ties) == (1 / 2_001, 60, 0, 0)
    assert better.low == pytest.approx(better.high) == pytest.approx(0.2)


def test_the_randomisation_test_is_exact_for_few_questions() -> None:
    """Of the 8 sign patterns of three equal differences, 2 are as extreme as the observed."""
    result = measures.paired([1, 1, 1, 0], [0, 0, 0, 0], draws=20_000)
    assert result.p == pytest.approx(0.25, abs=0.015)
    assert (result.wins, result.losses, result.ties) == (3, 0, 1)
    assert measures.paired([0.5, 1], [0.5, 1], draws=100).p == 1


@pytest.mark.parametrize(
    ("answer", "text", "found"),
    [
        ("India", "She moved to India.", True),
        ("India", "She moved to Indiana.", False),
        ("india", "INDIA", True),
        ("Washington, D.C.", "in Washington,\n D.C. since", True),
        ("pesäpallo", "It is pesa\u0308pallo now", True),
        ("周五", "改到周五晚上", True),
        ("iPhone", "用iPhone手机", True),
        ("3", "in 2023", False),
        ("a.c", "abc", False),
        ("", "anything", False),
    ],
)
def test_answers_word_for_word(answer: str, text: str, found: bool) -> None:
    pattern = answers.pattern([answer])
    assert bool(pattern and pattern.search(answers.folded(text))) is found


def asked(qid: str, ranked: str, *, category: str = "", **query: Any) -> Asked:
    given = {"evidence": ("a", "b")} | query
    question = Query(qid=qid, question=f"Who is {qid}?", category=category, **given)
    found = {"all": 0.0, "any": 1.0, "fraction": 0.5, "tokens": 90.0}
    return Asked("c", question, tuple(ranked), ("s",), ("s",), None, {"100": found})


def outcome(*everything: Asked, system: str = "memstore") -> Outcome:
    done = Outcome(Dataset("generic", "mine", []), system, "none", asked=list(everything))
    done.searching["total"] = [1.0, 2.0, 3.0]
    done.seconds["search"] = 0.5
    return done


def test_a_result_has_the_form_that_others_read() -> None:
    result = results.summary(outcome(asked("q", "axb", category="1"), asked("r", "xyz")))
    assert {"dataset", "system", "encoder", "n_queries", "by_category", "seconds"} <= result.keys()
    assert (result["dataset"], result["n_queries"], result["seconds"]) == ("generic", 2, 0.5)
    assert result["metrics"]["R@10"] == 0.5
    assert {"All@10", "nDCG@10", "RR"} <= result["metrics"].keys()
    assert result["metrics"]["session"]["R@1"] == 1
    budget = {"all": 0.0, "any": 1.0, "fraction": 0.5, "tokens": 90.0}
    assert result["metrics"]["budget"] == {"100": budget}
    assert list(result["by_category"]) == ["", "1"]
    assert result["by_category"]["1"]["R@10"] == 1
    assert result["intervals"].keys() >= {"R@10", "100 all"}
    assert result["milliseconds"]["total"] == {"p50": 2.0, "p95": 3.0}


def test_what_no_question_has_is_none_and_a_blank_question_counts_in_contexts_only() -> None:
    only_answers = asked("q", "ab", evidence=(), answers=("x",))
    metrics = results.summary(outcome(only_answers))["metrics"]
    assert (metrics["R@10"], metrics["answer@10"], metrics["answer RR"]) == (None, 0, 0)
    blank = Asked("c", Query(qid="r", question=" ", evidence=("a",)), (), (), (), None, {})
    rows = results.rows_of([asked("q", "ab"), blank])
    assert rows["q"]["R@10"] == 1
    assert rows["r"] == {}


def test_results_are_read_back_and_others_refused(tmp_path: Path) -> None:
    result = results.summary(outcome(asked("q", "ab")))
    results.write_json(result, tmp_path / "new" / "a.json")
    again = results.read_json(tmp_path / "new" / "a.json")
    assert again["metrics"] == result["metrics"]
    (tmp_path / "b.json").write_text("[]")
    with pytest.raises(ValueError, match="not a result"):
        results.read_json(tmp_path / "b.json")


IDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)


@given(st.lists(IDS, min_size=1, max_size=5, unique=True), IDS)
def test_trec_files_parse_whatever_the_ids_are(
    tmp_path_factory: pytest.TempPathFactory, documents: list[str], qid: str
) -> None:
    folder = tmp_path_factory.mktemp("trec")
    query = Query(qid=qid, question="?", evidence=(documents[-1],))
    done = Asked("c", query, tuple(documents), (), (), None, {})
    results.write_trec(outcome(done), folder)
    with (folder / "run.txt").open(encoding="utf-8", newline="\n") as stream:
        run = list(ir_measures.read_trec_run(stream))  # type: ignore[no-untyped-call]
    with (folder / "qrels.txt").open(encoding="utf-8", newline="\n") as stream:
        qrels = list(ir_measures.read_trec_qrels(stream))  # type: ignore[no-untyped-call]
    assert len(run) == len({found.doc_id for found in run}) == len(documents)
    assert [found.doc_id for found in qrels] == [run[-1].doc_id]
    wanted = ir_measures.parse_measure("RR")
    assert ir_measures.calc_aggregate([wanted], qrels, run)[wanted] == 1 / len(documents)


def test_two_results_are_compared_question_by_question() -> None:
    first = results.summary(outcome(asked("q", "ab", category="x"), asked("r", "ax")))
    second = results.summary(outcome(asked("q", "ax", category="x"), asked("s", "ab")))
    both = compare.compare(first, second)
    assert (both.qids, both.only_one) == (("q",), 2)
    assert both.values("R@10", both.qids) == ([1.0], [0.5])
    assert list(both.moved("R@10")) == [(0.5, "q")]
    assert both.by_category() == {"x": ("q",)}
    assert both.measures()[0] == "R@10"
    assert {"RR", "100 all", "100 tokens"} <= set(both.measures())
    with pytest.raises(ValueError, match="share no question"):
        compare.compare(first, results.summary(outcome(asked("other", "ab"))))


def test_of_tokens_the_fewer_win() -> None:
    first, second = (results.summary(outcome(asked("q", found))) for found in ("ab", "ax"))
    second["per_query"]["q"]["measures"]["100 tokens"] = 120.0
    screen = io.StringIO()
    both = compare.compare(first, second)
    compare.show(both, ("R@10", "100 tokens"), 0, Console(file=screen, width=120))
    rows = {line.split("  ")[0]: line.split() for line in screen.getvalue().splitlines()}
    assert rows["R@10"][-1] == rows["100 tokens"][-1] == "1/0/0"
    assert "-30" in rows["100 tokens"]


def test_our_bm25_over_plain_words_is_rank_bm25s() -> None:
    """The same order as the reference's, once its IDF is ours."""

    class Reference(BM25Okapi):  # type: ignore[misc]
        def _calc_idf(self, nd: dict[str, int]) -> None:
            self.idf = {
                word: math.log1p((self.corpus_size - n + 0.5) / (n + 0.5)) for word, n in nd.items()
            }

    texts = [f"the {word} of a {other} {other}" for word in "abcd" for other in ("x", word * 2)]
    messages = [Message(str(n), NewEvent(content=text)) for n, text in enumerate(texts)]
    analyse = bm25.plain("porter")
    index = bm25.Index(Conversation("c", messages), analyse)
    split = [[term for term, n in analyse(t).items() for _ in range(n)] for t in texts]
    query = analyse("d of the dd x")
    scores = Reference(split, k1=1.2, b=0.75).get_scores(list(query))
    expected = [str(n) for n in np.lexsort((np.arange(8), -scores)) if scores[n] > 0]
    assert index.ranked(query, 1.2, 0.75) == expected
