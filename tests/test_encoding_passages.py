"""What of an event is embedded: who, when, the text and the turn before, always in the window."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memstore.encoding import DEFAULT_ENCODER, OnnxEncoder, is_blank, passage_frame, passages
from memstore.encoding.export import exported
from memstore.encoding.onnx import Card
from memstore.encoding.weights import cache_folder, resolve
from memstore.types import Encoder, Event


def event(content: str, **fields: object) -> Event:
    values: dict[str, object] = {
        "position": 1,
        "session_id": "s",
        "actor": "Melanie",
        "role": "user",
        "event_type": "message",
        "occurred_at": datetime(2023, 5, 8, 13, 56, tzinfo=UTC),
        "recorded_at": datetime(2023, 5, 8, 13, 56, tzinfo=UTC),
        "content": content,
    }
    return Event(**(values | fields))  # type: ignore[arg-type]


def test_the_header_says_who_and_when_and_the_turn_before_follows(encoder: Encoder) -> None:
    before = event("Wow,  is it\nyours?", actor="Caroline")
    (passage,) = passages(event(" I painted it last year. \n"), before, encoder)
    assert passage.text == ("Melanie (8 May 2023): I painted it last year. | Wow, is it yours?")
    assert (passage.chunk, passage.start, passage.stop) == (0, 1, 24)


def test_an_event_that_is_no_message_says_what_it_is(encoder: Encoder) -> None:
    call = event('search(query="flights to Lisbon")', event_type="tool_call", actor="assistant")
    result = event("TP 1042, 118 EUR", event_type="tool_result", actor="flights", role="tool")
    (passage,) = passages(result, call, encoder)
    assert passage.text == (
        'flights (8 May 2023, tool result): TP 1042, 118 EUR | search(query="flights to Lisbon")'
    )


def test_months_do_not_follow_the_locale_and_names_are_bounded() -> None:
    late = event("x", actor="a\n" * 300, event_type="e" * 400)
    head, tail = passage_frame(late, None)
    assert head.startswith("a a a")
    assert "8 May 2023" in head
    assert len(head) < 160
    assert tail == ""


def test_a_long_turn_before_is_cut_at_a_word() -> None:
    _, tail = passage_frame(event("x"), event("several words " * 200))
    assert tail.endswith(("several…", "words…"))
    assert len(tail) < 220
    _, tail = passage_frame(event("x"), event("前" * 200))
    assert len(tail) < 60


@pytest.mark.parametrize(
    "blank", ["", " \n\t", "\x00", "\ufffd", "\u200b\u2060", "\ufeff", "\u0301", "\xa0\u3000"]
)
def test_blank_content_is_not_embedded(blank: str, encoder: Encoder) -> None:
    # trap 13
    assert is_blank(blank)
    assert passages(event(blank), event("before"), encoder) == []
    assert passages(event("x"), event(blank), encoder) == passages(event("x"), None, encoder)


def test_what_says_something_is_not_blank() -> None:
    for text in ("a", " 1 ", "?", "👍", "日", "\x00x"):
        assert not is_blank(text)


def test_a_long_message_has_several_passages_each_with_its_header(encoder: Encoder) -> None:
    # trap 11
    content = "\n".join(f"Line {n} of the report says nothing of note." for n in range(300))
    found = passages(event(content), event("Send me the report, please."), encoder)
    assert len(found) > 5
    assert [passage.chunk for passage in found] == list(range(len(found)))
    for passage in found:
        assert passage.text == (
            f"Melanie (8 May 2023): {content[passage.start : passage.stop]}"
            " | Send me the report, please."
        )
        assert len(encoder.chunks(passage.text)) == 1


TEXTS = st.one_of(
    st.text(max_size=300),
    st.sampled_from(["word " * 400, "前" * 900, "x" * 700, "9f8e7d6c5b4a" * 90, "🧡" * 300]),
)


@settings(deadline=None)
@given(content=TEXTS, before=TEXTS, actor=st.text(min_size=1, max_size=80))
def test_whatever_the_texts_every_passage_fits_and_nothing_is_left_out(
    encoder: Encoder, content: str, before: str, actor: str
) -> None:
    found = passages(event(content, actor=actor), event(before), encoder)
    assert bool(found) != is_blank(content)
    covered: set[int] = set()
    for passage in found:
        assert len(encoder.chunks(passage.text)) <= 1
        assert content[passage.start : passage.stop] in passage.text
        covered.update(range(passage.start, passage.stop))
    if found:
        assert not "".join(c for n, c in enumerate(content) if n not in covered).strip()


@pytest.mark.parametrize("window", [1, 2, 5, 8, 12, 16, 24, 40])
def test_a_small_window_goes_without_the_turn_before_and_then_without_the_header(
    window: int, encoder: Encoder, tmp_path: Path
) -> None:
    # The default model with a smaller window, which is a line in its card.
    cache = cache_folder()
    export = exported(resolve(DEFAULT_ENCODER, cache), cache)
    for file in export.iterdir():
        if file.name != "card.json":
            (tmp_path / file.name).symlink_to(file)
    replace(Card.load(export), max_tokens=window + 2).save(tmp_path)
    small = OnnxEncoder(tmp_path, threads=1)

    content = "one two three four five six seven eight nine ten eleven twelve " * 3
    found = passages(event(content), event("the turn before this one"), small)
    assert found
    assert all(len(small.chunks(passage.text)) == 1 for passage in found)
    if window >= 40:
        assert found[0].text.endswith("| the turn before this one")
    if window <= 5:
        assert found[0].text == content[: found[0].stop]
