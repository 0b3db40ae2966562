"""Search on a real database: exact BM25, k hits, filters, a failing encoder, chunks, erasure."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from random import Random
from typing import Any

import numpy as np
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from rank_bm25 import BM25Okapi

from memstore import (
    EncoderFailed,
    EncoderMismatch,
    InvalidInput,
    MemoryStore,
    NewEvent,
    NotFound,
    Ranking,
    Settings,
)
from memstore.analysis import query_terms, terms
from memstore.ranking import LEXICAL, VECTOR
from tests.encoders import HashEncoder
from tests.stores import KINDS, QUIET, connected

WORDS = [*"the a of to and in we it is that for on with about talk did when plan road tea".split()]


class Broken(HashEncoder):
    """An encoder that raises while it is told to, for all texts or for those with a word."""

    def __init__(self, word: str = "") -> None:
        self.word = word
        self.broken = True

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if self.broken and any(self.word in text for text in texts):
            raise RuntimeError("no encoder today")
        return super().encode(texts)


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, database_url: str) -> Iterator[Any]:
    with connected(request.param, database_url, HashEncoder()) as opened:
        yield opened


def positions(result: Any) -> list[int]:
    return [hit.event.position for hit in result.hits]


def sentences(words: list[str], longest: int) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(words), min_size=1, max_size=longest).map(" ".join)


CORPUS = ["alpha", "beta", "gamma", "delta", "PATH/x.py", "数据库", "é"]
ASKED = ["alpha", "beta", "x.py", "数据库", "zeta"]


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(corpus=st.lists(sentences(CORPUS, 8), min_size=2, max_size=12), query=sentences(ASKED, 4))
def test_the_lexical_leg_scores_as_rank_bm25_does(
    database_url: str, corpus: list[str], query: str
) -> None:
    with MemoryStore.connect(database_url, encoder=None, settings=QUIET) as store:
        memory = store.memory(agent="bm25", user=str(hash((tuple(corpus), query))))
        if not memory.events(limit=1):
            memory.append([NewEvent(content=text) for text in corpus])
        result = memory.search(query, k=50, ranking=LEXICAL)
    documents = [
        [t for t, n in terms(text).frequencies.items() for _ in range(n)] for text in corpus
    ]
    reference = BM25Okapi(documents, k1=Ranking().k1, b=Ranking().b)
    for term in reference.idf:
        df = sum(term in document for document in documents)
        # Lucene's idf, which is never negative, in place of rank-bm25's.
        reference.idf[term] = float(np.log1p((len(corpus) - df + 0.5) / (df + 0.5)))
    expected = reference.get_scores(list(query_terms(query)))
    found = {
        hit.event.position: hit.legs["lexical"].score
        for hit in result.hits
        if "lexical" in hit.legs  # a neighbour of a hit has no score of its own
    }
    assert found == pytest.approx(
        {n: score for n, score in enumerate(expected, 1) if score > 0}, rel=1e-6
    )


def test_a_rare_word_is_found_among_ten_thousand_messages(database_url: str) -> None:
    # traps 7 and 10: the question's common words outnumber the rare one
    random = Random(10)
    rare = ["zyzzyva", "quokka", "Ouagadougou", "ERR-4471", "xylem"]
    planted = random.sample(range(10_000), len(rare))
    contents = [" ".join(random.choices(WORDS, k=random.randint(6, 20))) for _ in range(10_000)]
    for word, at in zip(rare, planted, strict=True):
        contents[at] = f"we did talk about the {word} plan"
    with connected("sync", database_url) as store:
        memory = store.memory(agent="a", user="u")
        for start in range(0, 10_000, 2_000):
            memory.append([NewEvent(content=c) for c in contents[start : start + 2_000]])
        for word, at in zip(rare, planted, strict=True):
            result = memory.search(f"When did we talk about the {word}?")
            assert result.hits[0].event.position == at + 1, word
            assert result.leg_hits["lexical"] > 0


def test_exactly_ten_hits_for_a_small_memory_among_many(database_url: str) -> None:
    # trap 17: 500 messages of one user among 100,000
    random = Random(17)
    with connected("sync", database_url, HashEncoder()) as store:
        mine = store.memory(agent="a", user="mine")
        mine.append([NewEvent(content=" ".join(random.choices(WORDS, k=8))) for _ in range(500)])
        mine.flush()
        fill(database_url, 99_500)
        for query in ("tea", "the road", "zyzzyva"):
            for ranking in (None, VECTOR):
                result = mine.search(query, ranking=ranking)
                assert len(result.hits) == 10
        everything = mine.search("tea road", k=500)
        assert len(set(positions(everything))) == 500
        exact = brute_force(mine, "tea road")
        assert positions(mine.search("tea road", ranking=VECTOR)) == exact[:10]


def fill(url: str, count: int) -> None:
    """Put other users' messages into the same tables, as their owner."""
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute(
            "INSERT INTO memstore.memories (memory_id, tenant_id, agent_id, user_id, last_position)"
            " VALUES (gen_random_uuid(), 1, 'a', 'others', %s)",
            (count,),
        )
        other = conn.execute("SELECT memory_id FROM memstore.memories WHERE user_id = 'others'")
        (memory_id,) = other.fetchone() or ()
        conn.execute(
            "INSERT INTO memstore.events (memory_id, position, tenant_id, actor, role, event_type,"
            " occurred_at, recorded_at, content, length)"
            " SELECT %(id)s, n, 1, 'user', 'user', 'message', now(), now(), 'tea road', 2"
            " FROM generate_series(1, %(n)s) AS n",
            {"id": memory_id, "n": count},
        )
        conn.execute(
            "INSERT INTO memstore.postings"
            " (memory_id, position, tenant_id, frequency, length, term)"
            " SELECT %(id)s, n, 1, 1, 2, term"
            " FROM generate_series(1, %(n)s) AS n, unnest(ARRAY['tea', 'road']) AS term",
            {"id": memory_id, "n": count},
        )
        conn.execute(
            "INSERT INTO memstore.vectors_1"
            " (memory_id, position, chunk, tenant_id, start, stop, embedding)"
            " SELECT %(id)s, n, 0, 1, 0, 8, mine.embedding"
            " FROM generate_series(1, %(n)s) AS n,"
            " (SELECT embedding FROM memstore.vectors_1 LIMIT 1) AS mine",
            {"id": memory_id, "n": count},
        )


def brute_force(memory: Any, query: str) -> list[int]:
    """Rank by the cosine of what is embedded, in half precision as it is stored."""
    from memstore.encoding.passages import passages

    encoder = HashEncoder()
    events = memory.events(limit=1_000)
    vector = encoder.encode([query])[0].astype(np.float16).astype(np.float64)
    scores = []
    for before, event in zip([None, *events], events, strict=False):
        parts = [passage.text for passage in passages(event, before, encoder)]
        rows = encoder.encode(parts).astype(np.float16).astype(np.float64)
        scores.append((-float((rows @ vector).max()), event.position))
    return [position for _, position in sorted(scores)]


def test_every_filter_restricts_both_legs(store: Any) -> None:
    # trap 22
    memory = store.memory(agent="a", user="u")
    memory.append(
        [
            NewEvent(
                content=f"tea plan {n}",
                role="user" if n % 2 else "assistant",
                actor=f"actor {n % 3}",
                event_type="decision" if n % 5 == 0 else "message",
                session_id=f"s{n % 4}",
            )
            for n in range(1, 61)
        ]
    )
    memory.flush()
    for ranking in (None, LEXICAL, VECTOR):
        for tags, holds in (
            ({"role": "user"}, lambda e: e.role == "user"),
            ({"actor": "actor 1"}, lambda e: e.actor == "actor 1"),
            ({"event_type": "decision"}, lambda e: e.event_type == "decision"),
            ({"session": ["s1", "s2"]}, lambda e: e.session_id in ("s1", "s2")),
            ({"after": 20, "before": 31}, lambda e: 20 < e.position < 31),
        ):
            matching = [e.position for e in memory.events(limit=100) if holds(e)]
            result = memory.search("tea plan", k=60, ranking=ranking, **tags)
            assert sorted(positions(result)) == matching
            assert len(memory.search("tea plan", k=7, ranking=ranking, **tags).hits) == min(
                7, len(matching)
            )
    assert memory.search("tea", session="nowhere").hits == ()


@pytest.mark.parametrize(
    "query",
    [
        "",
        "   ",
        "the",
        "What's your password policies?",  # trap 6
        "team:foobar",
        "call me -- about the -5% discount",
        "' OR 1=1; --",
        "a & b | !c <-> (d",
        "\x00",
        "\udc97",
        "tea " * 15_000,  # trap 8
        " ".join(f"w{n}" for n in range(60_000)),
        "茶",
    ],
    ids=lambda query: repr(query[:16]),
)
def test_any_text_is_a_query(database_url: str, query: str) -> None:
    with connected("sync", database_url, HashEncoder()) as store:
        memory = store.memory(agent="a", user="u")
        memory.append([NewEvent(content="tea at the station"), NewEvent(content="茶を飲む")])
        memory.flush()
        result = memory.search(query)
        assert result.degraded == ""
        assert len(result.hits) <= 2


def test_a_query_to_an_empty_memory(store: Any) -> None:
    result = store.memory(agent="a", user="nobody").search("tea")
    assert (result.hits, result.unencoded) == ((), 0)


def test_hits_explain_themselves(store: Any) -> None:
    memory = store.memory(agent="a", user="u")
    memory.append([NewEvent(content="we drank tea"), NewEvent(content="the road was long")])
    memory.flush()
    best = memory.search("tea").hits[0]
    assert best.legs["lexical"].rank == best.legs["vector"].rank == 1
    assert any("lexical #1 (tea)" in reason for reason in best.reasons)
    assert best.span is None


def test_one_hit_for_a_long_message_and_its_best_passage(store: Any) -> None:
    # traps 11 and 18
    memory = store.memory(agent="a", user="u")
    long = " ".join(["filler words about nothing"] * 200) + " the vault code is quokka"
    memory.append([NewEvent(content=long), NewEvent(content="short")])
    memory.flush()
    result = memory.search("vault code quokka")
    assert positions(result).count(1) == 1
    start, stop = result.hits[0].span
    assert "quokka" in long[start:stop]
    assert stop - start < len(long)


def test_what_has_no_vector_yet_is_found_by_words(store: Any) -> None:
    # trap 14
    memory = store.memory(agent="a", user="u")
    memory.append([NewEvent(content="tea"), NewEvent(content="   "), NewEvent(content="")])
    result = memory.search("tea")
    assert positions(result) == [1]
    assert (result.unencoded, result.leg_hits["vector"]) == (1, 0)
    memory.flush()
    assert memory.search("tea").unencoded == 0


@pytest.mark.parametrize("kind", KINDS)
def test_an_encoder_that_raises_loses_nothing(database_url: str, kind: str) -> None:
    # trap 14
    encoder = Broken()
    with connected(kind, database_url, encoder) as store:
        memory = store.memory(agent="a", user="u")
        memory.append([NewEvent(content="tea"), NewEvent(content="road")])
        with pytest.raises(EncoderFailed, match="no encoder today"):
            memory.flush()
        result = memory.search("tea")
        assert positions(result)[0] == 1
        assert "encoder failed" in result.degraded
        assert "encoder failed" in memory.resume("tea").degraded
        encoder.broken = False
        memory.flush()
        result = memory.search("tea")
        assert (result.degraded, result.unencoded) == ("", 0)


@pytest.mark.parametrize("kind", KINDS)
def test_one_failing_entry_holds_up_no_other(database_url: str, kind: str) -> None:
    # trap 14
    encoder = Broken("poison")
    with connected(kind, database_url, encoder) as store:
        memory = store.memory(agent="a", user="u")
        memory.append([NewEvent(content=c) for c in ("one", "two", "poison", "four")])
        with pytest.raises(EncoderFailed, match=r"1 entries|2 entries"):
            memory.flush()
        # "four" has the poison as its preceding turn, so it fails with it
        assert memory.search("one").unencoded <= 2
        encoder.broken = False
        memory.flush()
        assert memory.search("one").unencoded == 0


class Misfit(HashEncoder):
    dimension = 32


class Lying(HashEncoder):
    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return super().encode(texts)[:, :32]


def test_an_encoder_that_does_not_fit_is_refused(database_url: str) -> None:
    # trap 12
    MemoryStore.prepare(database_url, encoder=HashEncoder(), settings=QUIET)
    other = HashEncoder()
    other.name = "another"
    with pytest.raises(EncoderMismatch, match="space add another"):
        MemoryStore.connect(database_url, encoder=other, settings=QUIET)
    for encoder in (Misfit(), Lying()):
        with MemoryStore.connect(database_url, encoder=encoder, settings=QUIET) as store:
            memory = store.memory(agent="a", user="u")
            memory.append(content="tea")
            for use in (memory.flush, lambda memory=memory: memory.search("tea")):
                with pytest.raises(EncoderMismatch):
                    use()


@pytest.mark.parametrize("kind", KINDS)
def test_another_encoder_is_filled_beside_and_switched(database_url: str, kind: str) -> None:
    # trap 15
    new = HashEncoder()
    new.name = "newer"
    with connected(kind, database_url, HashEncoder()) as store:
        memory = store.memory(agent="a", user="u")
        memory.append([NewEvent(content="tea"), NewEvent(content="road")])
        memory.flush()
        assert store.add_space(new).status == "filling"
        memory.append(content="third")
        with pytest.raises(Exception, match="3 entries still wait"):
            store.switch_space("newer")
        assert store.fill_space(new) == 3
        assert positions(memory.search("tea"))[0] == 1  # the old one serves on
        assert store.switch_space("newer").status == "serving"
        assert [(s.encoder, s.status) for s in store.spaces()] == [
            ("hash", "retained"),
            ("newer", "serving"),
        ]
        with pytest.raises(Exception, match="serves"):
            store.drop_space("newer")
        store.drop_space("hash")
        with pytest.raises(NotFound):
            store.drop_space("hash")
    with connected(kind, database_url, new) as store:
        assert positions(store.memory(agent="a", user="u").search("tea"))[0] == 1


def test_the_background_thread_encodes(database_url: str) -> None:
    with connected(
        "sync", database_url, HashEncoder(), Settings(encode_in_background=True)
    ) as store:
        memory = store.memory(agent="a", user="u")
        memory.append([NewEvent(content=f"tea {n}") for n in range(200)])
        for _ in range(600):
            if memory.unencoded() == 0:
                break
            time.sleep(0.05)
        assert memory.unencoded() == 0


@pytest.mark.parametrize("kind", KINDS)
def test_erasing_leaves_no_trace(database_url: str, kind: str) -> None:
    # trap 16: the marker is looked for in every table of the database
    marker = "zyzzyva7"
    with connected(kind, database_url, HashEncoder()) as store:
        memory = store.memory(agent="a", user=f"user {marker}")
        kept = store.memory(agent="a", user="kept")
        for one in (memory, kept):
            one.append(
                content=f"tea {marker}" if one is memory else "tea",
                session=marker if one is memory else None,
                payload={"k": marker} if one is memory else None,
            )
            one.flush()
            one.patch({"user_preferences": {"x": marker if one is memory else "y"}})
        memory.append(content=f"not encoded {marker}")
        assert found_in(database_url, marker, memory.identity.memory_id)
        memory.erase(author="me", reason="asked")
        left = found_in(database_url, marker, memory.identity.memory_id)
        assert left == {"erasures"}
        assert memory.search("tea").hits == ()
        assert memory.state().version == 0
        assert positions(kept.search("tea")) == [1]
        assert kept.state().version == 1
        with pytest.raises(NotFound):
            memory.erase()
        assert memory.append(content="again").positions == (1,)


def found_in(url: str, marker: str, memory_id: Any) -> set[str]:
    """Name the tables that hold the marker or the memory's id anywhere."""
    found = set()
    with psycopg.connect(url) as conn:
        tables = conn.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'memstore'"
        ).fetchall()
        for (table,) in tables:
            for (row,) in conn.execute(f"SELECT t::text FROM memstore.{table} AS t".encode()):
                if marker in row or str(memory_id) in row:
                    found.add(table)
    return found


def may(day: int) -> datetime:
    return datetime(2026, 5, day, tzinfo=UTC)


def test_a_relative_time_is_read_from_when_it_is_asked(store: Any) -> None:
    memory = store.memory(agent="a", user="u")
    days = {4: "on the fourth", 11: "on the eleventh", 18: "on the eighteenth", 25: "at the end"}
    memory.append(
        [
            NewEvent(
                content=f"we drank tea {words}", occurred_at=datetime(2026, 5, day, tzinfo=UTC)
            )
            for day, words in days.items()
        ]
    )
    for now, expected in (
        (datetime(2026, 5, 13, tzinfo=UTC), 1),
        (datetime(2026, 5, 20, tzinfo=UTC), 2),
    ):
        found = memory.search("who drank tea last week?", now=now)
        assert positions(found)[0] == expected
        assert positions(memory.resume("who drank tea last week?", now=now).search)[0] == expected
    with pytest.raises(InvalidInput, match="now"):
        memory.search("tea", now=datetime(2026, 5, 13))


class Monolingual(HashEncoder):
    """An encoder that says it can read no Chinese."""

    def legible(self, text: str) -> float:
        return 0.0 if re.search(r"[一-鿿]", text) else 1.0


def test_what_the_encoder_cannot_read_is_left_to_words(database_url: str) -> None:
    with connected("sync", database_url, Monolingual()) as store:
        memory = store.memory(agent="a", user="u")
        memory.append([NewEvent(content="我们讨论了数据库"), NewEvent(content="天气很好")])
        memory.flush()
        assert positions(memory.search("数据库"))[0] == 1


def test_the_encoder_tells_how_much_it_can_read(encoder: Any) -> None:
    assert encoder.legible("We settled on Postgres in May.") == 1.0
    assert encoder.legible("我们在五月决定使用数据库") < 0.9
    assert encoder.legible("") == 1.0
