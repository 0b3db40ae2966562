"""Anybody's own data as a data set: the labelled folder that memstore itself is tuned on."""

from __future__ import annotations

from pathlib import Path

from eval.datasets import Conversation, Message, Query
from memstore import InvalidInput
from memstore.labelled import LabelledQuery, read_labelled


def load(path: Path) -> list[Conversation]:
    """Read a folder; its form is `memstore.labelled.read_labelled`'s.

    Raises `ValueError`, with the file and line, on what cannot be read.
    """
    try:
        found = read_labelled(path)
    except InvalidInput as error:
        raise ValueError(str(error)) from error
    return [
        Conversation(
            one.id,
            [Message(id, event) for id, event in one.messages],
            [_query(query) for query in one.queries],
            one.state,
        )
        for one in found
    ]


def _query(query: LabelledQuery) -> Query:
    return Query(
        qid=query.qid,
        question=query.question,
        evidence=query.evidence,
        answers=query.answers,
        category=query.category,
        asked_at=query.asked_at,
    )
