"""What plain Postgres gives: `ts_rank_cd` over English full text, the words joined by OR."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import psycopg

from memstore import Event

_TABLE = """
CREATE TEMPORARY TABLE entries (position bigint PRIMARY KEY, body tsvector NOT NULL)
"""
# plainto_tsquery quotes the words; its ANDs become ORs, else one absent word finds nothing.
_RANK = """
WITH query AS (
    SELECT replace(plainto_tsquery('english', %(question)s)::text, '&', '|')::tsquery AS q
)
SELECT position, ts_rank_cd(body, q) AS score
FROM entries, query
WHERE body @@ q
ORDER BY score DESC, position
LIMIT %(limit)s
"""


def ts_rank(
    url: str, events: Sequence[Event], depth: int
) -> Callable[[str], list[tuple[Event, float]]]:
    """Index events in a temporary table and return a function that ranks them."""
    connection = psycopg.connect(url, autocommit=True)
    connection.execute(_TABLE)
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO entries VALUES (%s, to_tsvector('english', %s))",
            [(event.position, event.content[:200_000]) for event in events],
        )
    connection.execute("CREATE INDEX ON entries USING gin (body)")
    by_position = {event.position: event for event in events}

    def rank(question: str) -> list[tuple[Event, float]]:
        found = connection.execute(_RANK, {"question": question, "limit": depth}).fetchall()
        return [(by_position[position], float(score)) for position, score in found]

    return rank
