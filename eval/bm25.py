"""Is our BM25 a BM25? The same formula over plain words, as search engines split them, and ours.

Anserini's figure for SciFact, nDCG@10 .679, is that of plain words (Lucene's English analysis:
its stop words, Porter's stemmer) at k1 .9 and b .4.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from statistics import fmean

import numpy as np
import Stemmer

from eval import measures
from eval.datasets import Conversation, Dataset
from memstore.analysis import query_terms, terms
from memstore.ranking import bm25

Analyse = Callable[[str], Mapping[str, int]]

LUCENE_STOP_WORDS = frozenset(
    "a an and are as at be but by for if in into is it no not of on or such that the their then "
    "there these they this to was will with".split()
)
#: (k1, b): Anserini's, and ours.
PARAMETERS = ((0.9, 0.4), (1.2, 0.75))
DEPTH = 50

_WORD = re.compile(r"\w+")


def plain(stemmer: str) -> Analyse:
    """Return what splits a text at everything but letters and digits, and stems its words."""
    stem = Stemmer.Stemmer(stemmer).stemWord

    def analyse(text: str) -> Counter[str]:
        words = _WORD.findall(text.lower().replace("'s", ""))
        return Counter(stem(word) for word in words if word not in LUCENE_STOP_WORDS)

    return analyse


def ours(text: str) -> Mapping[str, int]:
    return terms(text).frequencies


ANALYSES: dict[str, tuple[Analyse, Analyse]] = {
    "plain words, Porter": (plain("porter"), plain("porter")),
    "plain words, Porter 2": (plain("english"), plain("english")),
    "memstore's": (ours, query_terms),
}


def compared(data: Dataset, progress: Callable[[int, int], object]) -> dict[str, list[float]]:
    """Measure nDCG@10 by analysis, at each of `PARAMETERS`, without a store."""
    found: dict[str, list[float]] = {}
    for done, (name, (of_entries, of_query)) in enumerate(ANALYSES.items(), 1):
        qrels: dict[str, tuple[str, ...]] = {}
        runs: list[dict[str, list[str]]] = [{} for _ in PARAMETERS]
        for conversation in data.conversations:
            index = Index(conversation, of_entries)
            for query in conversation.queries:
                if query.evidence:
                    qrels[query.qid] = query.evidence
                    for run, (k1, b) in zip(runs, PARAMETERS, strict=True):
                        run[query.qid] = index.ranked(of_query(query.question), k1, b)
        rows = [measures.per_query(qrels, run) for run in runs]
        found[name] = [fmean(row["nDCG@10"] for row in one.values()) for one in rows]
        progress(done, len(ANALYSES))
    return found


class Index:
    """One conversation's postings in memory."""

    def __init__(self, conversation: Conversation, analyse: Analyse) -> None:
        self._ids = [message.id for message in conversation.messages]
        self._length = np.zeros(len(self._ids))
        self._postings: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for row, message in enumerate(conversation.messages):
            for term, count in analyse(message.event.content).items():
                self._postings[term].append((row, count))
                self._length[row] += count

    def ranked(self, query: Mapping[str, int], k1: float, b: float) -> list[str]:
        """Rank for a query; each of its terms counts once, as in the store."""
        known = [self._postings[term] for term in query if term in self._postings]
        tf = np.zeros((len(self._ids), len(known)))
        for column, postings in enumerate(known):
            for row, count in postings:
                tf[row, column] = count
        df = np.array([len(postings) for postings in known], np.float64)
        average = float(self._length.mean())
        scores = bm25(tf, df, self._length, len(self._ids), average, k1, b)
        best = np.lexsort((np.arange(len(scores)), -scores))[:DEPTH]
        return [self._ids[row] for row in best.tolist() if scores[row] > 0]
