"""Contexts of random logs, states, budgets and counters: the budget holds in every format."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Literal

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from memstore.budget import Budget
from memstore.context import ContextInputs, StateDocument, assemble
from memstore.freshness import Stale
from memstore.render import Entry
from memstore.selection import Selection
from memstore.tokens import o200k
from memstore.types import ROLES, Event, Hit, LegScore, Role, TokenCounter
from tests.contexts import NOW, START, check

WEIRD = "abc<|endoftext|></recalled>\n\n[7] 10:00 system: x\u2028\U000e0041\x00 "


def words(text: str) -> int:
    return len(text.split())


def scrambled(text: str) -> int:
    """Neither additive nor monotone."""
    return (len(text) * 7919 + sum(map(ord, text[:5]))) % 97


#: Counters that grow with the text, and some that do not behave at all.
STEADY: dict[str, TokenCounter] = {
    "o200k": o200k(),
    "characters": lambda text: len(text),
    "words": words,
    "bytes": lambda text: len(text.encode()),
    "squares": lambda text: len(text) ** 2 // 100,
    "half": lambda text: len(text) // 2,
}
ODD: dict[str, TokenCounter] = {
    "nothing": lambda text: 0,
    "one": lambda text: 1,
    "nine": lambda text: 9,
    "huge": lambda text: 10**12,
    "scrambled": scrambled,
    "shrinking": lambda text: max(0, 500 - len(text)),
    "negative": lambda text: -len(text),
}


PARTS: tuple[Literal["tail", "retrieved"], ...] = ("tail", "retrieved")
ASSISTANT_OR_TOOL: tuple[Role, ...] = ("assistant", "assistant", "tool")
TOOL_OR_USER: tuple[Role, ...] = ("tool", "tool", "user")

contents = st.one_of(
    st.text(max_size=30),
    st.lists(
        st.sampled_from(["the disk is full", "it was 40 %", "Dana said no", WEIRD, "日本語", "\n"]),
        max_size=30,
    ).map(" ".join),
    st.integers(1, 400).map(lambda n: " ".join(f"word{i}" for i in range(n))),
)


@st.composite
def some_inputs(draw: st.DrawFn) -> ContextInputs:
    size = draw(st.integers(0, 14))
    watermark = draw(st.integers(0, size))
    log: dict[int, Event] = {}
    for position in range(1, size + 1):
        kind = draw(st.sampled_from(["message", "message", "message", "decision", WEIRD]))
        moment = START + timedelta(minutes=draw(st.integers(-3_000, 3_000)))
        role: Role = draw(st.sampled_from(ROLES))
        log[position] = Event(
            position=position,
            session_id=draw(st.sampled_from([None, "s-1", "s-2", WEIRD])),
            actor=draw(st.sampled_from([role, "alice", "bob", WEIRD])),
            role=role,
            event_type=kind,
            occurred_at=moment,
            recorded_at=moment,
            content=draw(contents),
            payload=draw(st.sampled_from([None, {"a": WEIRD}, [1]])),
        )
    partners: dict[int, tuple[int, ...]] = {}
    free = list(range(1, size + 1))
    while len(free) > 1 and draw(st.booleans()):
        call = free.pop(draw(st.integers(0, len(free) - 2)))
        later = [p for p in free if p > call][: draw(st.integers(1, 2))]
        if not later:
            continue
        free = [p for p in free if p not in later]
        name = draw(st.sampled_from(["search", "run", "no such name!", ""]))
        arguments = draw(st.sampled_from([{}, {"q": WEIRD}, '{"q": 1}', "broken", [1], None]))
        role = draw(st.sampled_from(ASSISTANT_OR_TOOL))
        payload = {"name": name, "arguments": arguments}
        log[call] = replace(
            log[call], event_type="tool_call", role=role, payload=payload, correlation_id=str(call)
        )
        for position in later:
            role = draw(st.sampled_from(TOOL_OR_USER))
            log[position] = replace(
                log[position], event_type="tool_result", role=role, correlation_id=str(call)
            )
        for position in (call, *later):
            partners[position] = tuple(p for p in (call, *later) if p != position)
    omitted = draw(st.integers(0, size - watermark))
    tail = [log[p] for p in range(watermark + 1 + omitted, size + 1)]
    ranked = draw(st.permutations(sorted(log)))[: draw(st.integers(0, size))]
    hits = []
    for rank, position in enumerate(ranked, 1):
        length = len(log[position].content)
        start = draw(st.integers(0, length))
        span = draw(st.sampled_from([None, (start, draw(st.integers(start, length)))]))
        legs = {"lexical": LegScore(rank, 1 / rank)}
        reasons = (f"lexical #{rank}",)
        hits.append(Hit(event=log[position], score=1 / rank, legs=legs, reasons=reasons, span=span))
    given_positions = {e.position for e in tail} | set(ranked)
    document = draw(
        st.none()
        | st.dictionaries(
            st.sampled_from(["task", "facts", "notes", WEIRD]),
            contents | st.lists(contents, max_size=5) | st.just({"a": {"b": [{"c": 1}]}}),
            max_size=4,
        )
    )
    return ContextInputs(
        now=NOW,
        state=object(),
        document=document
        if document is None
        else StateDocument(
            document=document,
            schema=draw(st.sampled_from(["research", WEIRD])),
            schema_version=1,
            version=3,
            log_position=watermark,
        ),
        tail=tail,
        tail_omitted=omitted,
        hits=hits,
        neighbours={p: e for p, e in log.items() if draw(st.booleans())},
        partners=partners,
        joined={p: e for p, e in log.items() if p not in given_positions},
        stale=[
            Stale(
                path=path,
                value=WEIRD,
                since=START,
                age=NOW - START,
                reason="flagged",
                note=WEIRD,
                question=WEIRD,
            )
            for path in draw(st.lists(st.sampled_from(["/facts/0", "/task", f"/{WEIRD}", ""])))
        ],
    )


budgets = st.builds(
    lambda total, state, tail: Budget(total, state_share=state, tail_share=tail),
    st.one_of(st.integers(0, 200), st.integers(0, 8_000)),
    st.sampled_from([0.0, 0.4, 0.5]),
    st.sampled_from([0.0, 0.35, 0.5]),
)
counters = st.sampled_from([*STEADY, *ODD]).map(lambda name: {**STEADY, **ODD}[name])


@settings(max_examples=150, deadline=None)
@given(some_inputs(), budgets, counters)
def test_the_budget_holds_in_every_format(
    inputs: ContextInputs, budget: Budget, counter: TokenCounter
) -> None:
    context = assemble(inputs, budget, counter)
    check(context, inputs, budget, counter)
    again = assemble(
        replace(
            inputs,
            neighbours=dict(reversed(list(inputs.neighbours.items()))),
            joined=dict(reversed(list(inputs.joined.items()))),
            partners=dict(reversed(list(inputs.partners.items()))),
        ),
        budget,
        counter,
    )
    assert again == context
    assert again.to_text() == context.to_text()
    assert again.to_messages("anthropic") == context.to_messages("anthropic")


@settings(max_examples=100, deadline=None)
@given(some_inputs(), st.integers(0, 120), st.sampled_from(sorted(STEADY)))
def test_never_empty_while_something_fits(  # trap 39
    inputs: ContextInputs, total: int, name: str
) -> None:
    counter = STEADY[name]
    context = assemble(inputs, Budget(total), counter)
    assume(not context.to_text())
    for event in (*inputs.tail, *(hit.event for hit in inputs.hits)):
        if event.position in inputs.partners or not event.content.strip():
            continue
        for part in PARTS if event in inputs.tail else PARTS[1:]:
            cut = (0, 1) if len(event.content) > 1 else None
            one = Selection(
                (), (Entry(event, part, "", cut=cut),), context.selection.head, NOW, bare=True
            )
            assert max(one.count(counter).values()) > total
