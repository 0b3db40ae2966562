"""What plain Postgres gives: `ts_rank_cd` over English full text, the words joined by OR."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

import psycopg

from eval.systems import MOST, Rank
from memstore import Event
from memstore.text import clean_text

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
#: Characters of an entry that are indexed: a tsvector holds 1 MB at most.
LONGEST = 200_000


@contextmanager
def indexed(url: str, events: Sequence[Event]) -> Iterator[Rank]:
    """Index events in a temporary table and give a function that ranks them."""
    by_position = {event.position: event for event in events}
    with closing(psycopg.connect(url, autocommit=True)) as connection:
        connection.execute(_TABLE)
        with connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO entries VALUES (%s, to_tsvector('english', %s))",
                [(event.position, event.content[:LONGEST]) for event in events],
            )
        connection.execute("CREATE INDEX ON entries USING gin (body)")

        def rank(question: str) -> list[tuple[Event, float]]:
            given = {"question": clean_text(question), "limit": MOST}
            found = connection.execute(_RANK, given).fetchall()
            return [(by_position[position], float(score)) for position, score in found]

        yield rank
