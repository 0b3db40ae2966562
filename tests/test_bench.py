"""The benchmark runs, in miniature; how fast anything is, no test asks."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from eval.bench import Measured, bench, show
from memstore import MemoryStore, Settings

NAMES = ["load a state", "append a message", "search in 60 entries", "resume in a new process"]


def test_the_benchmark_runs(database_url: str) -> None:
    MemoryStore.prepare(database_url, settings=Settings())
    arguments = ["--url", database_url, "--size", "60", "--calls", "3", "--processes", "1"]
    done = CliRunner().invoke(bench, [*arguments, "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    results = json.loads(done.stdout)
    assert [one["name"][: len(name)] for one, name in zip(results, NAMES, strict=True)] == NAMES
    for one in results:
        assert one["milliseconds"] > 0
        assert one["ratio"] == pytest.approx(one["milliseconds"] / one["floor_milliseconds"])
    assert set(results[2]["parts"]) >= {"lexical", "vector", "ranking"}
    assert set(results[3]["parts"]) == {"interpreter", "imports", "open", "encoder", "resume"}


@pytest.mark.parametrize(("most", "mark"), [(3.0, "above"), (5.0, "within"), (None, "")])
def test_a_ratio_is_compared_with_what_is_wanted(
    capsys: pytest.CaptureFixture[str], most: float | None, mark: str
) -> None:
    one = Measured("load", "SELECT", most_ratio=most, calls=[4.0, 8.0, 8.0], floors=[2.0, 2.0])
    show([one])
    out = capsys.readouterr().out
    assert "load  8.00      2.00    4.0" in out
    assert [word for word in ("above", "within") if word in out] == [mark] * bool(mark)
