"""Budget tuning: the knee, the smallest budget, the split; from traces and from a folder."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from memstore import Budget, ConfigurationError, InvalidInput, NotFound
from memstore.cli import main
from memstore.labelled import read_labelled
from memstore.tuning import Measured, Point, knee, smallest, state_share
from tests.stores import KINDS, connected


def curve(*fractions: float) -> list[Point]:
    return [Point(100 * n, f, f, 100.0 * n) for n, f in enumerate(fractions, 1)]


def test_the_knee_is_where_more_tokens_bring_little() -> None:
    assert knee(curve(0.1, 0.5, 0.85, 0.9, 0.92, 0.93)) == 300
    assert knee(curve(0.5, 0.5, 0.5)) == 100
    assert knee(curve(0.9, 0.5)) == 100


def test_the_smallest_budget_keeps_the_share_from_there_on() -> None:
    points = curve(0.2, 0.9, 0.7, 0.9, 0.95)
    assert smallest(points, 0.9) == 400  # 200 has it too, but 300 would lose it again
    assert smallest(points, 0.95) == 500
    assert smallest(points, 0.99) is None
    assert smallest(points, 0.1) == 100


@given(st.lists(st.floats(0, 1), min_size=2, max_size=12), st.floats(0.01, 1))
def test_what_is_found_is_among_what_was_tried(fractions: list[float], wanted: float) -> None:
    points = curve(*fractions)
    budgets = [point.budget for point in points]
    assert knee(points) in budgets
    found = smallest(points, wanted)
    assert found in (None, *budgets)
    if found is not None:
        assert all(p.fraction >= wanted for p in points if p.budget >= found)


def test_the_state_gets_what_it_takes_up_to_half() -> None:
    measured = [Measured(1.0, 500, state, 0, 0) for state in [100] * 19 + [400]]
    assert state_share(measured, 1000) == 0.1
    assert state_share([Measured(1.0, 500, 900, 0, 0)], 1000) == 0.5
    assert state_share([Measured(1.0, 500, 0, 0, 0)], 1000) == 0.05


def test_a_models_window_keeps_room_for_the_answer() -> None:
    assert Budget.for_model("gpt-4", answer=4_000, share=1).total == 4_192
    assert Budget.for_model("gpt-4", answer=1_000_000, share=1).total == 4_096  # half at the most
    assert Budget.for_model("anthropic/claude-opus-4-6-20260205", answer=0).total == 250_000
    assert Budget.for_model("claude-opus-4-1", answer=0).total == 50_000  # the longest start
    assert Budget.for_model("mine", windows={"mine": 1_000}, answer=200).total == 200
    assert Budget.for_model("gpt-4", windows={"gpt-4": 100}, answer=0, share=0.5).total == 50
    with pytest.raises(ConfigurationError, match="windows="):
        Budget.for_model("unheard-of")
    for bad in ({"share": 0}, {"share": 1.5}, {"answer": -1}):
        with pytest.raises(InvalidInput):
            Budget.for_model("gpt-4", **bad)


def talk(memory: Any) -> list[tuple[Any, str, list[int]]]:
    """Sixty messages, five of which each answer a question."""
    random = Random(3)
    words = [
        "tea",
        "road",
        "station",
        "river",
        "letter",
        "garden",
        "window",
        "engine",
        "summer",
        "copper",
    ]
    topics = ["quokka", "zeppelin", "marmalade", "obsidian", "pelican"]
    lines = [" ".join(random.choices(words, k=18)) for _ in range(60)]
    for n, topic in enumerate(topics):
        lines[n * 11] = f"the {topic} arrived on {topic} day"
    memory.append([{"content": line} for line in lines])
    memory.patch({"user_preferences": {"drink": "tea"}})
    # The async store takes the memory itself, not its blocking face.
    inner = getattr(memory, "_inner", memory)
    return [(inner, f"when did the {t} arrive?", [n * 11 + 1]) for n, t in enumerate(topics)]


@pytest.mark.parametrize("kind", KINDS)
def test_tuning_a_store(database_url: str, kind: str) -> None:
    with connected(kind, database_url) as store:
        memory = store.memory(agent="a", user="u")
        labelled = talk(memory)
        seen: list[tuple[int, int]] = []
        tuned = store.tune(labelled, budgets=(48, 256, 1024), progress=lambda *at: seen.append(at))
        assert seen[-1] == (35, 35)
        assert tuned.questions == 5
        assert [point.budget for point in tuned.points] == [48, 256, 1024]
        assert all(point.tokens <= point.budget for point in tuned.points)
        assert tuned.points[1].fraction == 1
        assert tuned.smallest == tuned.budget == 256
        assert tuned.settings()["MEMSTORE_BUDGET"] == "256"
        assert tuned.state_share + tuned.tail_share <= 1
        assert memory.traces() == []  # measuring records nothing
        with pytest.raises(NotFound):
            store.tune([])
        with pytest.raises(InvalidInput):
            store.tune(labelled, budgets=(256,))


def folder_of(path: Path) -> Path:
    with (path / "messages.jsonl").open("w") as stream:
        for n in range(40):
            text = "the quokka arrived" if n == 7 else f"tea and road {n}"
            line = {"conv": "c", "id": f"m{n}", "text": text, "role": "user", "session": n // 10}
            stream.write(json.dumps(line) + "\n")
    (path / "queries.jsonl").write_text(
        json.dumps({"qid": 1, "conv": "c", "question": "who arrived?", "evidence": ["m7"]})
        + "\n"
        + json.dumps({"qid": 2, "conv": "c", "question": "who?", "evidence": ["nowhere"]})
        + "\n"
    )
    return path


def test_reading_a_labelled_folder(tmp_path: Path) -> None:
    (conversation,) = read_labelled(folder_of(tmp_path))
    assert len(conversation.messages) == 40
    assert conversation.messages[7][0] == "m7"
    asked = [(query.qid, query.question, query.evidence) for query in conversation.queries]
    assert asked == [("1", "who arrived?", ("m7",)), ("2", "who?", ("nowhere",))]
    (tmp_path / "messages.jsonl").write_text('{"conv": "c", "id": 1}\n')
    with pytest.raises(InvalidInput, match=r"messages\.jsonl, line 1: no 'text'"):
        read_labelled(tmp_path)
    (tmp_path / "messages.jsonl").write_text("{\n")
    with pytest.raises(InvalidInput, match=r"messages\.jsonl, line 1"):
        read_labelled(tmp_path)


def test_the_command_on_a_labelled_folder(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    settings, plot = tmp_path / "tuned.env", tmp_path / "curve.png"
    settings.write_text("OWNER_PASSWORD='x y'\nMEMSTORE_BUDGET=7\n")
    arguments = ["tune", "--labelled", str(folder), "--budgets", "64,512", "--encoder", "none"]
    result = CliRunner().invoke(
        main, [*arguments, "--json", "--write", str(settings), "--plot", str(plot)]
    )
    assert result.exit_code == 0, result.output
    tuned = json.loads(result.stdout)
    assert tuned["questions"] == 1
    written = settings.read_text()
    assert written.startswith(f"OWNER_PASSWORD='x y'\nMEMSTORE_BUDGET={tuned['budget']}\n")
    assert len(written.splitlines()) == 4
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_the_command_on_ones_own_traces(database_url: str) -> None:
    with connected("sync", database_url) as store:
        memory = store.memory(agent="a", user="u")
        for _, task, used in talk(memory):
            context = memory.resume(task, record=True)
            memory.feedback(context.id, used)
    arguments = ["tune", "--url", database_url, "--agent", "a", "--user", "u", "--encoder", "none"]
    result = CliRunner().invoke(main, [*arguments, "--budgets", "64,512", "--share", "1"])
    assert result.exit_code == 0, result.output
    assert "5 questions" in result.output
    assert "MEMSTORE_BUDGET=" in result.output
    result = CliRunner().invoke(main, [*arguments, "--agent", "b"])
    assert result.exit_code == 1
    assert "Error: there is no question" in result.stderr
    assert "MEMSTORE_RECORD_TRACES" in result.stderr
    assert "memory.feedback" in result.stderr
    assert CliRunner().invoke(main, ["tune"]).exit_code == 2


def test_what_can_not_be_written_or_drawn_is_said_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("the work began")

    monkeypatch.setattr("memstore.cli.tuning.read_labelled", never)
    arguments = ["tune", "--labelled", str(folder_of(tmp_path)), "--encoder", "none"]
    for wrong, said in (
        (["--plot", str(tmp_path / "curve.docx")], "curve.docx ends in none of"),
        (["--plot", str(tmp_path / "nowhere" / "curve.png")], "--plot: there is no folder"),
        (["--write", str(tmp_path / "nowhere" / "tuned.env")], "--write: there is no folder"),
    ):
        result = CliRunner().invoke(main, [*arguments, *wrong])
        assert result.exit_code == 2
        assert said in result.stderr
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)  # as where it isn't installed
    result = CliRunner().invoke(main, [*arguments, "--plot", str(tmp_path / "curve.png")])
    assert result.exit_code == 1
    assert "matplotlib is not installed" in result.stderr


def test_a_labelled_folder_without_evidence_is_refused(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    line = {"qid": 1, "conv": "c", "question": "who arrived?", "evidence": []}
    (folder / "queries.jsonl").write_text(json.dumps(line) + "\n")
    result = CliRunner().invoke(main, ["tune", "--labelled", str(folder), "--encoder", "none"])
    assert result.exit_code == 1
    assert "names its evidence" in result.stderr
