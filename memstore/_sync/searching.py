# generated from memstore/_async by scripts/generate_sync.py: edit there
"""Search: two legs bring candidates, a frame of arrays is read round them, ranking orders it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from memstore import ranking, sql, telemetry
from memstore._sync import log, spaces, vectors
from memstore._sync.database import Conn, fetch_all
from memstore._sync.encoding_queue import vector_text
from memstore._sync.runtime import in_thread
from memstore.analysis import query_terms
from memstore.arrays import array_text
from memstore.candidates import (
    LEGS,
    Clock,
    Found,
    Leg,
    Query,
    build_frame,
    frame_positions,
    to_hit,
)
from memstore.encoding import check_vectors, is_blank, legible_share
from memstore.errors import EncoderMismatch, InvalidInput, MemstoreError
from memstore.filters import EventFilter, conditions, exists
from memstore.fitting import Seen
from memstore.space import Space
from memstore.text import check_time, check_whole, clean_text
from memstore.types import Hit, Identity, SearchResult

if TYPE_CHECKING:
    from memstore._sync.store import MemoryStore

MAX_HITS = 1_000
LONGEST_QUERY = 512  # terms looked up at most
MOST_TERMS = 128  # terms scored at most, the rarest
NO_CHUNKS = (None,) * 5


def encode_queries(
    store: MemoryStore, texts: Sequence[str], now: datetime
) -> tuple[list[Query], str]:
    """Encode queries, off the loop, with no transaction open.

    Returns them in order, and what was left out, in words, when the encoder fails.
    """
    plain = [Query(text=text, vector=None, legible=1.0, now=now) for text in texts]
    readable = [text for text in texts if not is_blank(text)]
    if store._space is None or not readable:
        return plain, ""
    store._db.check()  # before a model whose threads a forked child lacks
    try:
        encoder = store._query_encoder()
        assert encoder is not None
        vectors = check_vectors(
            in_thread(encoder.encode, readable), encoder.dimension, len(readable)
        )
        legible = [legible_share(encoder, text) for text in readable]
    except EncoderMismatch:
        raise
    except Exception as error:
        return plain, f"lexical only: the encoder failed ({type(error).__name__})"
    encoded = {
        text: replace(query, vector=vector_text(vector), legible=share)
        for text, query, vector, share in zip(
            readable, [q for q in plain if not is_blank(q.text)], vectors, legible, strict=True
        )
    }
    return [encoded.get(query.text, query) for query in plain], ""


def find(
    conn: Conn,
    memory_id: UUID,
    space: Space | None,
    query: Query,
    where: EventFilter,
    settings: ranking.Settings,
    clock: Clock,
) -> Found | None:
    """Rank a memory's entries for one query; None where the memory holds nothing."""
    tags = where.parameters()
    row = (conn.execute(sql.statement("memory_statistics"), {"memory_id": memory_id})).fetchone()
    if row is None or not row["last_position"]:
        return None
    last, vector = row["last_position"], query.vector
    features = ranking.query_features(query.text, query.now, legible=query.legible)
    given = tags | {
        "memory_id": memory_id,
        "terms": rare_terms(conn, memory_id, query.text),
        "vector": vector,
        "k1": settings.k1,
        "b": settings.b,
        "limit": settings.candidates,
        "texts": features.reads_text,
    }
    average_length = max(row["indexed_terms"], 1) / last
    legs: dict[str, Leg] = {}
    postings: list[ranking.Postings] = []
    if given["terms"]:
        statement = sql.statement("postings").format(filters=exists(tags))
        postings = [ranking.Postings(*found) for found in fetch_all(conn, statement, given)]
        if settings.lexical:
            legs["lexical"] = ranking.best_by_bm25(
                postings, last, average_length, settings.candidates, settings.k1, settings.b
            )
    clock.lap("lexical")
    if vector is not None and space is not None and settings.vector:
        legs["vector"] = vectors.leg(conn, space, given, tags, last, settings.frame)
    clock.lap("vector")
    given["positions"] = array_text(frame_positions(legs.values(), settings, last))
    statement = sql.statement("frame_entries").format(filters=conditions(tags))
    (entries,) = fetch_all(conn, statement, given)
    chunks: Sequence[Any] = NO_CHUNKS
    if vector is not None and space is not None:
        statement = sql.statement("frame_chunks").format(vectors=space.vectors)
        (chunks,) = fetch_all(conn, statement, given)
    clock.lap("candidates")
    frame, spans = build_frame(entries, postings, chunks, last, average_length)
    ranked = ranking.rank(frame, features, settings)
    clock.lap("ranking")
    return Found(
        frame,
        ranked,
        spans,
        {leg: len(legs[leg][0]) if leg in legs else 0 for leg in LEGS},
        ranking.rivals(frame, ranked) if settings.newest and not features.times else (),
    )


def rare_terms(conn: Conn, memory_id: UUID, query: str) -> list[str]:
    """Analyse a query; of a long one keep the terms that are rarest in this memory."""
    terms = list(query_terms(query, limit=LONGEST_QUERY))
    if len(terms) <= MOST_TERMS:
        return terms
    parameters = {"memory_id": memory_id, "terms": terms}
    counts = dict(fetch_all(conn, sql.statement("document_frequencies"), parameters))
    return sorted(counts, key=lambda term: (counts[term], term))[:MOST_TERMS]


@telemetry.traced("search")
def search(
    store: MemoryStore,
    identity: Identity,
    query: str,
    k: int,
    where: EventFilter,
    settings: ranking.Settings | None,
    now: datetime | None,
) -> SearchResult:
    """Find the k best entries for one query."""
    if not 1 <= check_whole(k, "k") <= MAX_HITS:
        raise InvalidInput(f"between 1 and {MAX_HITS} hits are returned", path="k")
    where.parameters()  # refuse what is wrong before any model runs
    settings = at_least(settings or ranking.Settings(), k)
    clock = Clock.start()
    (asked,), degraded = encode_queries(store, [clean_text(query)], moment(now))
    clock.lap("encode")
    memory_id = identity.memory_id
    with store._db.transaction(snapshot=True) as conn:
        clock.lap("connect")
        space, limits = spaces.usable(conn, store._space)
        degraded = "; ".join(filter(None, (degraded, limits)))
        found = find(conn, memory_id, space, asked, where, settings, clock)
        if found is None:
            return SearchResult(hits=(), degraded=degraded, milliseconds=clock.milliseconds)
        most = k if store.reranker is None else max(k, store.settings.rerank)
        best = found.ranked.order if settings.distinct else found.ranked.order[:most]
        order = found.frame.position[found.ranked.order].tolist()
        compared = {position for group in found.rivals for position in group}
        events = log.at(conn, memory_id, compared.union(order[: len(best)]))
        unencoded = count_unencoded(conn, memory_id, space)
    order, newest = ranking.newest_first(
        order, found.rivals, {p: e.content for p, e in events.items()}
    )
    row = {position: index for index, position in enumerate(found.frame.position.tolist())}
    hits = [
        to_hit(events[position], found, row[position], score, newest.get(position))
        for position, score in zip(order, found.ranked.scores[best].tolist(), strict=False)
    ]
    if settings.distinct:
        hits = without_repeats(hits)
    clock.lap("entries")
    hits, left_out = reranked(store, asked.text, hits, clock)
    hits, degraded = hits[:k], "; ".join(filter(None, (degraded, left_out)))
    telemetry.count(hits=len(hits), unencoded=unencoded, degraded=bool(degraded))
    return SearchResult(
        hits=tuple(hits),
        leg_hits=found.leg_hits,
        unencoded=unencoded,
        degraded=degraded,
        milliseconds=clock.milliseconds,
    )


def without_repeats(hits: list[Hit]) -> list[Hit]:
    """Leave out hits that say what a better one says."""
    seen, kept = Seen(), []
    for hit in hits:
        if seen.repeats(hit.event, hit.event.content) is None:
            seen.add(hit.event, hit.event.content)
            kept.append(hit)
    return kept


def reranked(
    store: MemoryStore, query: str, hits: list[Hit], clock: Clock
) -> tuple[list[Hit], str]:
    """Order hits by the store's reranker, where it has one, off the loop.

    Returns them, and what was left out, in words, when it fails.
    """
    if store.reranker is None or is_blank(query):
        return hits, ""
    try:
        ordered = in_thread(store._rerankers.rerank, query, hits, store.settings.rerank)
    except MemstoreError as error:
        return hits, f"not re-ranked: {error}"
    clock.lap("rerank")
    return ordered, ""


def moment(now: datetime | None) -> datetime:
    """Return when a query is asked: now, unless the caller says otherwise."""
    return datetime.now(UTC) if now is None else check_time(now, "now")


def at_least(settings: ranking.Settings, k: int) -> ranking.Settings:
    """Let the legs and the frame hold as many entries as are asked for."""
    return replace(settings, candidates=max(settings.candidates, k), frame=max(settings.frame, k))


def count_unencoded(conn: Conn, memory_id: UUID, space: Space | None) -> int:
    """Count the entries that have no vector yet."""
    if space is None:
        return 0
    cursor = conn.execute(
        sql.statement("waiting_entries"), {"memory_id": memory_id, "space_id": space.space_id}
    )
    row = cursor.fetchone()
    return int(row["waiting"]) if row else 0
