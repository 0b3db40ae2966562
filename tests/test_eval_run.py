"""Running systems through the real store, and the command line round it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result
from numpy.typing import NDArray

from eval import ablate, datasets, results, runner, systems
from eval.__main__ import main
from eval.forms import Form, Reshaped
from memstore import DEFAULT_SCHEMA, Encoder, Event, Memory, MemoryStore, Ranking
from memstore.encoding import passage_frame, passages
from tests.stores import connected

MESSAGES: list[dict[str, Any]] = [
    {"conv": "c", "id": "one 1", "session": "a", "role": "user", "text": "My cat is called Miso."},
    {"conv": "c", "id": "one 2", "session": "a", "role": "assistant", "text": "What a name!"},
    {"conv": "c", "id": "two 1", "session": "b", "role": "user", "text": "The car needs brakes."},
    {"conv": "c", "id": "two 2", "session": "b", "role": "assistant", "text": "Ask the garage."},
    {"conv": "c", "id": "two 3", "session": "b", "role": "tool", "text": "Garage: Tuesday at nine."}
    | {"event_type": "tool_result"},
    {"conv": "d", "id": "x", "speaker": "Ada", "text": "The meeting moved to Oslo."},
]
QUERIES: list[dict[str, Any]] = [
    {"qid": "cat", "conv": "c", "question": "What is the cat called?", "evidence": ["one 1"]}
    | {"category": "pets", "answers": ["Miso"]},
    {"qid": "car", "conv": "c", "question": "Which part of the car is worn?"}
    | {"category": "car", "evidence": ["two 1", "two 3"]},
    {"qid": "next", "conv": "c", "evidence": ["two 3"]},
    {"qid": "oslo", "conv": "d", "question": "Where is the meeting?", "answers": ["Oslo"]},
]
STATES = [{"conv": "c", "state": {"active_task": {"description": "Call the garage on Tuesday"}}}]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, lines in (("messages", MESSAGES), ("queries", QUERIES), ("states", STATES)):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (tmp_path / f"{name}.jsonl").write_text(text)
    return tmp_path


@pytest.fixture
def data(folder: Path) -> datasets.Dataset:
    return datasets.load("generic", folder)


@pytest.fixture
def store(database_url: str, encoder: Encoder) -> Iterator[MemoryStore]:
    with connected("sync", database_url, encoder) as opened:
        yield opened


@pytest.mark.parametrize("system", systems.NAMES)
def test_every_system_answers(store: MemoryStore, data: datasets.Dataset, system: str) -> None:
    outcome = runner.run(store, data, system, budgets=(200,))
    result = results.summary(outcome)
    assert (result["system"], result["n_queries"]) == (system, 4)
    assert {asked.query.qid for asked in outcome.asked} == {"cat", "car", "next", "oslo"}
    for asked in outcome.asked:
        assert len(asked.ranked) == len(set(asked.ranked))
        assert 0 < asked.budgets["200"]["tokens"] <= 200 or asked.query.question == ""
    if system != "full":
        assert "unlimited" not in result["metrics"]
    if system not in ("recent", "full"):
        first = {asked.query.qid: asked.ranked[:1] for asked in outcome.asked}
        assert first["cat"] == ("one 1",)
        assert result["metrics"]["answer@1"] == 1
        assert result["metrics"]["budget"]["200"]["answer"] == 1
    assert result["milliseconds"] or system in ("recent", "full")


def test_a_replay_has_everything_when_nothing_limits_it(
    store: MemoryStore, data: datasets.Dataset
) -> None:
    metrics = results.summary(runner.run(store, data, "full", budgets=(60,)))["metrics"]
    assert metrics["unlimited"]["fraction"] == metrics["unlimited"]["all"] == 1
    assert metrics["unlimited"]["answer"] == 1
    assert metrics["unlimited"]["tokens"] > metrics["budget"]["60"]["tokens"]
    assert metrics["budget"]["60"]["all"] < 1
    # From the start: what came first is in it, what came last is not.
    assert metrics["R@10"] == 1


def test_what_is_recent_comes_newest_first(store: MemoryStore, data: datasets.Dataset) -> None:
    outcome = runner.run(store, data, "recent", budgets=(70,))
    asked = {asked.query.qid: asked for asked in outcome.asked}
    assert asked["cat"].ranked == ("two 3", "two 2", "two 1", "one 2", "one 1")
    assert asked["cat"].sessions == ("b", "a")
    assert asked["next"].budgets["70"]["all"] == 1
    assert asked["cat"].budgets["70"]["any"] == 0


def test_a_question_that_is_blank_is_answered_from_the_state(
    store: MemoryStore, data: datasets.Dataset
) -> None:
    outcome = runner.run(store, data, budgets=(300,))
    (asked,) = (asked for asked in outcome.asked if asked.query.qid == "next")
    assert asked.ranked == ()
    assert asked.budgets["300"]["all"] == 1
    without = ablate.Cueless("agent", 1, DEFAULT_SCHEMA.model)
    outcome = runner.run(store, data, budgets=(300,), schema=without)
    (asked,) = (asked for asked in outcome.asked if asked.query.qid == "next")
    assert asked.budgets["300"]["all"] == 0


def test_nothing_is_stored_or_encoded_twice(store: MemoryStore, data: datasets.Dataset) -> None:
    told: list[tuple[str, int]] = []
    for _ in range(2):
        runner.run(store, data, progress=lambda step, done, total: told.append((step, total)))
    assert told.count(("messages encoded", 5)) == 1
    memory = runner.named(store, data.conversations[0])
    assert len(memory.events()) == 5
    assert memory.state().version == 1
    assert memory.state().log_position == 5


def test_another_ranking_takes_the_place_of_the_shipped_one(
    store: MemoryStore, data: datasets.Dataset
) -> None:
    nothing = Ranking().without(*Ranking().weights())
    outcome = runner.run(store, data, ranking=nothing)
    assert [asked.ranked for asked in outcome.asked] == [()] * 4


def test_an_unknown_system_is_named(store: MemoryStore, data: datasets.Dataset) -> None:
    with pytest.raises(ValueError, match="no system 'best'"):
        runner.run(store, data, "best")


# passages with a part left out


class Seen:
    """An encoder that keeps what it is shown."""

    name, dimension = "seen", 3

    def __init__(self) -> None:
        self.texts: list[str] = []

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.texts += texts
        return np.ones((len(texts), 3), np.float32)

    def chunks(self, text: str, *, reserve: int = 0) -> list[tuple[int, int]]:
        size = len(text) if len(text) <= 400 else 100
        return [(at, min(at + size, len(text))) for at in range(0, len(text), size)]


@pytest.mark.parametrize("form", ["header", "preceding", "event type"])
def test_exactly_one_part_of_a_passage_is_left_out(
    store: MemoryStore, data: datasets.Dataset, form: Form
) -> None:
    memory: Memory[Any] = runner.named(store, data.conversations[0])
    tricky = "It said (oddly): yes | My cat is called Miso. | no " + "and so on " * 40
    memory.append([{"content": "a | b"}, {"content": tricky, "event_type": "decision"}])
    events = memory.events()
    seen = Seen()
    reshaped = Reshaped(seen, form)
    reshaped.learn(events)
    whole: list[str] = []
    for before, event in zip([None, *events], events, strict=False):
        whole += [passage.text for passage in passages(event, before, reshaped)]
    reshaped.encode([*whole, "user (8 May 2023): a query"])
    assert len(seen.texts) == len(whole) + 1 > len(events)
    assert seen.texts.pop() == "user (8 May 2023): a query"
    bare: Callable[[Event], Event] = {
        "header": lambda event: event,
        "preceding": lambda event: event,
        "event type": lambda event: replace(event, event_type="message"),
    }[form]
    expected: list[str] = []
    for before, event in zip([None, *events], events, strict=False):
        kept = None if form == "preceding" else before
        texts = [passage.text for passage in passages(bare(event), kept, reshaped)]
        head = passage_frame(event, None)[0] if form == "header" else ""
        expected += [text.removeprefix(head) for text in texts]
    assert seen.texts == expected


def test_parts_cover_every_weight() -> None:
    named = [weight for part in ablate.parts() for weight in part.weights]
    assert set(named) == set(Ranking().weights())
    assert {part.name for part in ablate.PARTS} >= {
        "identity",
        "time",
        "event type",
        "neighbours",
        "header",
        "preceding turn",
        "lexical leg",
        "vector leg",
        "state-derived queries",
    }


# the command line


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_run_compare_and_report(folder: Path) -> None:
    keep = folder / "kept"
    of = ("--dataset", "generic", "--path", folder, "--budget", "100,200", "--keep", keep)
    written = [folder / "a.json", folder / "b.json"]
    for system, path in zip(("memstore", "recent"), written, strict=True):
        done = invoke("run", *of, "--system", system, "--json", path, "--trec", folder / "trec")
        assert done.exit_code == 0, done.output
    assert "4 questions, 6 messages" in " ".join(done.output.split())
    assert len((folder / "trec" / "qrels.txt").read_text().splitlines()) == 4
    result = json.loads(written[0].read_text())
    assert set(result["metrics"]["budget"]) == {"100", "200"}

    done = invoke("compare", *written, "--measure", "RR", "-m", "200 all")
    assert done.exit_code == 0, done.output
    assert "won/lost/tied" in done.output
    assert "What moved most in RR" in done.output
    done = invoke("compare", *written, "--measure", "nonsense")
    assert done.exit_code == 1
    assert "no question has 'nonsense'" in done.output

    done = invoke("report", *written, "--out", folder / "report.html")
    assert done.exit_code == 0, done.output
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert page.count("data:image/svg+xml;base64,") == 3
    assert page.count("<td>") > 20
    assert "http" not in page.replace("http://www.w3.org", "")


def test_ablate(folder: Path) -> None:
    parts = ("--only", "event type", "--only", "vector leg", "--only", "state-derived queries")
    table, out = folder / "table.md", folder / "ablation.json"
    done = invoke(
        *("ablate", "--dataset", "generic", "--path", folder, "--budget", "200", *parts),
        *("--markdown", table, "--json", out),
    )
    assert done.exit_code == 0, done.output
    rows = [line.split(" | ") for line in table.read_text().splitlines()]
    assert [row[0].strip("| ") for row in rows] == [
        *("what it is worth", "---", "as shipped"),
        *("event type", "vector leg", "state-derived queries"),
    ]
    (_, _, state) = json.loads(out.read_text())["ablations"]
    assert state["measures"]["200 all"]["n"] == 3


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["run", "--dataset", "generic", "--path", "{}", "--budget", "0"], "token counts"),
        (["run", "--dataset", "generic", "--path", "{}", "--budget", "1k"], "token counts"),
        (["run", "--dataset", "locomo", "--path", "{}/queries.jsonl"], "cannot be read as locomo"),
        (["run", "--dataset", "generic", "--path", "{}/nowhere"], "does not exist"),
        (
            ["ablate", "--dataset", "generic", "--path", "{}", "--only", "luck"],
            "there are identity",
        ),
        (["compare", "{}/queries.jsonl", "{}/queries.jsonl"], "queries.jsonl"),
        (["report", "{}/queries.jsonl"], "queries.jsonl"),
    ],
)
def test_what_cannot_be_done_is_said(folder: Path, arguments: list[str], reason: str) -> None:
    done = invoke(*(argument.format(folder) for argument in arguments))
    assert done.exit_code in (1, 2)
    assert reason in done.output
    assert "Traceback" not in done.output


def test_every_command_explains_itself() -> None:
    for command in main.commands.values():
        assert command.help
        assert all(option.help for option in command.params if isinstance(option, click.Option))
