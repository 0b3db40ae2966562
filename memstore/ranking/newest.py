"""Statements made anew: of short entries that say much the same of one thing, the newest leads.

"The build is 2.8" and, a week later, "The build is 2.9" match a question alike; which of them a
score prefers is chance, and the older one is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from memstore.ranking.bm25 import idf
from memstore.ranking.frame import Frame, Ranked

LOOKED_AT = 50
"""Entries that are compared with each other: those that lead."""
SHORT = 40
"""Terms; a longer entry says more than one thing."""
COVERED = 0.5
"""The share of what the best entry has of the query's terms, by rarity, that a rival must have."""
ALIKE = 0.5
"""The share of the longer one's words that two entries have in common."""
_WORD = re.compile(r"\w+")


def rivals(frame: Frame, ranked: Ranked) -> list[list[int]]:
    """Group positions of leading short entries of one actor that have the same query terms.

    Questions say nothing, and what has few of the terms is about something else. Only groups of
    two or more are given.
    """
    first = ranked.order[:LOOKED_AT]
    has = frame.tf[first] > 0
    covered = has @ idf(frame.df, frame.documents)
    least = max(COVERED * float(covered.max(initial=0.0)), 1e-9)
    groups: dict[tuple[int, str, bytes], list[int]] = {}
    for row in np.flatnonzero(covered >= least).tolist():
        index = int(first[row])
        if not frame.asks[index] and frame.doc_length[index] <= SHORT:
            key = (int(frame.actor[index]), frame.role[index], has[row].tobytes())
            groups.setdefault(key, []).append(int(frame.position[index]))
    return [group for group in groups.values() if len(group) > 1]


def newest_first(
    order: Sequence[int], groups: Sequence[Sequence[int]], texts: Mapping[int, str]
) -> tuple[list[int], dict[int, int]]:
    """Let the entries of a group whose texts are alike change places, so that the newest leads.

    `order` are positions, best first, and `groups` what `rivals` gave. Returns the new order,
    and for each older entry the newest that is like it.
    """
    result = list(order)
    place = {position: index for index, position in enumerate(result)}
    newest: dict[int, int] = {}
    for group in groups:
        known = [position for position in group if position in place and position in texts]
        for alike in _alike(sorted(known, key=place.__getitem__), texts):
            places = sorted(place[position] for position in alike)
            latest = sorted(alike, reverse=True)
            for index, position in zip(places, latest, strict=True):
                result[index], place[position] = position, index
            newest |= dict.fromkeys(latest[1:], latest[0])
    return result, newest


def _alike(positions: Sequence[int], texts: Mapping[int, str]) -> list[list[int]]:
    """Put each entry with the first one before it that is like it."""
    found: list[tuple[frozenset[str], list[int]]] = []
    for position in positions:
        words = frozenset(_WORD.findall(texts[position].casefold()))
        for others, members in found:
            if len(words & others) >= ALIKE * max(len(words), len(others), 1):
                members.append(position)
                break
        else:
            found.append((words, [position]))
    return [members for _, members in found if len(members) > 1]
