"""The load run, in miniature: the loop is open, answers are told apart, a real server is asked."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter
from typing import Any

import pytest
from click.testing import CliRunner

from eval.__main__ import main
from eval.load import MIX, Step, arrivals, offer, quantile, show, verdict


def test_a_real_server_is_put_under_load() -> None:
    arguments = ["--rates", "4,8", "--seconds", "2", "--memories", "2", "--size", "20"]
    done = CliRunner().invoke(
        main, ["load", *arguments, "--encoder", "none", "--json"], catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    steps = found["steps"]
    assert [step["rate"] for step in steps] in ([4.0, 8.0], [4.0])
    for step in steps:
        assert step["offered"] == len(arrivals(step["rate"], 2.0, seed=1))
        assert step["answers"] == {"ok": step["offered"]}
        assert 0 < step["milliseconds"]["p50"] <= step["milliseconds"]["p99"]
        assert step["by_kind"].keys() <= MIX.keys()
    assert {"keeps_up_at", "saturated_at"} <= found.keys()


@pytest.mark.parametrize("rates", ["", "x", "1,0", "-3"])
def test_rates_that_are_none(rates: str) -> None:
    done = CliRunner().invoke(main, ["load", "--rates", rates])
    assert done.exit_code == 2
    assert "are no rates" in done.output


async def test_the_loop_is_open() -> None:
    """Nobody is answered until all have asked: a client that waits would never end."""
    expected = len(arrivals(2_000, 0.05, seed=1))
    asked, all_asked = 0, asyncio.Event()

    async def send(kind: str) -> int:
        nonlocal asked
        asked += 1
        if asked == expected:
            all_asked.set()
        await asyncio.wait_for(all_asked.wait(), 30)
        return 200

    step = await offer(send, 2_000, 0.05, most=10_000)
    assert step.statuses == {"ok": expected}
    # Who came first waited for the last: its latency says so, since it counts from when it was due.
    assert max(max(values) for values in step.latencies.values()) >= 0.03


async def test_what_is_under_way_is_bounded_and_what_was_not_sent_is_told() -> None:
    under_way = most = 0
    go = asyncio.Event()
    asyncio.get_running_loop().call_later(0.2, go.set)

    async def send(kind: str) -> int:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await go.wait()
        under_way -= 1
        return 200

    step = await offer(send, 1_000, 0.1, most=7)
    assert most == 7
    assert step.statuses["ok"] == 7
    assert step.statuses["not sent"] == step.offered - 7
    assert not step.keeps_up


async def test_answers_are_told_apart() -> None:
    codes = iter([200, 201, 204, 429, 503, 500, 404, 0] * 100)

    async def send(kind: str) -> int:
        return next(codes)

    step = await offer(send, 2_000, 0.1, most=1_000)
    names = {"ok", "429", "503", "other 500", "other 404", "no answer"}
    assert step.statuses.keys() == names
    assert sum(map(len, step.latencies.values())) == step.statuses["ok"]
    assert not step.keeps_up


def test_arrivals_are_a_poisson_process() -> None:
    found = arrivals(100, 100, seed=3)
    assert found == sorted(found) == arrivals(100, 100, seed=3)
    assert found != arrivals(100, 100, seed=4)
    assert 9_600 < len(found) < 10_400  # within four deviations
    gaps = [b - a for a, b in itertools.pairwise(found)]
    mean = sum(gaps) / len(gaps)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert deviation == pytest.approx(mean, rel=0.05)  # as an exponential distribution has


@pytest.mark.parametrize(
    ("share", "value"), [(0.0, 1), (0.5, 50), (0.95, 95), (0.951, 96), (0.99, 99), (1.0, 100)]
)
def test_quantiles(share: float, value: int) -> None:
    assert quantile([float(n) for n in range(100, 0, -1)], share) == value
    assert str(quantile([], share)) == "nan"


def made(rate: float, ok: int, took: float = 1.0, **others: int) -> Step:
    statuses = Counter({"ok": ok} | {name.strip("_"): n for name, n in others.items()})
    return Step(rate, 1.0, {"search": [0.01] * ok}, statuses, [0.001], took)


@pytest.mark.parametrize(
    ("steps", "kept", "lost"),
    [
        ([made(10, 10), made(20, 20)], 20, None),
        ([made(10, 10), made(20, 20, took=1.2)], 10, 20),
        ([made(100, 100), made(200, 195, _503=5)], 100, 200),
        ([made(100, 97, _429=3)], None, 100),
    ],
)
def test_where_it_saturates(
    steps: Any, kept: float | None, lost: float | None, capsys: pytest.CaptureFixture[str]
) -> None:
    from rich.console import Console

    assert verdict(steps) == {"keeps_up_at": kept, "saturated_at": lost}
    show(steps, Console(width=100))
    told = capsys.readouterr().out
    for rate in (kept, lost):
        if rate is not None:
            assert f"at {rate:g}" in told
