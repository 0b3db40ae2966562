"""What resume searches the log by: the task, its questions, and what the state works on. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

TASK_WEIGHT = 1.0
CUE_WEIGHT = 0.5
MAX_CUES = 4
MAX_CUES_BESIDE = 2  # beside a task
MAX_QUESTIONS = 6
SENTENCE_END = re.compile(r"(?<=[.?!])\s+|(?<=[。？！])|\n+")
QUESTION_END = re.compile(r"[?？][\"'”’」』)）*_\s]*$")


def make_queries(task: str, cues: Sequence[str]) -> list[tuple[str, float]]:
    """List the queries with their weights: the task, its questions, what the state works on.

    A task that mostly consists of questions is asked question by question as well, since each
    would drown in the others; what is told in many sentences is one query, whose parts mean
    little alone. The task is not the record's language; the state's active task and open issues
    are nearer, but weigh less while there is a task.
    """
    others = distinct(cues)
    if not task.strip():
        return [(cue, TASK_WEIGHT) for cue in others[:MAX_CUES]]
    sentences = distinct(part.strip() for part in SENTENCE_END.split(task))
    questions = [sentence for sentence in sentences if QUESTION_END.search(sentence)]
    asked = [task]
    if len(questions) > 1 and 2 * len(questions) > len(sentences):
        asked += questions[:MAX_QUESTIONS]
    beside = [cue for cue in others if cue not in asked][:MAX_CUES_BESIDE]
    return [(text, TASK_WEIGHT) for text in asked] + [(cue, CUE_WEIGHT) for cue in beside]


def distinct(values: Iterable[str]) -> list[str]:
    """Keep the first of equal texts, and no blank ones."""
    return list(dict.fromkeys(value for value in values if value.strip()))
