"""The same in every time zone: the process's, the client's, the database's and the values' own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from memstore import MemoryStore
from tests.encoders import HashEncoder
from tests.processes import ROOT, administration
from tests.stores import KINDS, QUIET

ZONES = ("America/St_Johns", "Asia/Kathmandu", "Pacific/Kiritimati")

# Everything that a store says of times, as JSON; what the clock of the run decides is left out.
RUN = r"""
import json, re, sys
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo
from memstore import NewEvent
from tests.encoders import HashEncoder
from tests.stores import connected

kind, url, user = sys.argv[1:]
new_york, st_johns, kathmandu = map(
    ZoneInfo, ("America/New_York", "America/St_Johns", "Asia/Kathmandu"))

def at(*parts, zone=UTC, fold=0):
    return datetime(*parts, tzinfo=zone, fold=fold)

TIMES = [
    at(2025, 3, 9, 1, 59, 59, zone=new_york),          # a second before the clocks go forward
    at(2025, 3, 9, 3, 0, 0, zone=new_york),            # and the next one
    at(2025, 3, 9, 2, 30, zone=new_york),              # no clock showed this
    at(2025, 3, 9, 23, 30, zone=st_johns),             # the 10th in UTC
    at(2025, 3, 10, 2, 15, zone=kathmandu),            # the 9th in UTC
    at(2025, 11, 2, 1, 30, zone=new_york),             # the first half past one
    at(2025, 11, 2, 1, 30, zone=new_york, fold=1),     # the second
    at(2025, 11, 2, 6, 0),                             # between the two
    at(2025, 11, 2, 1, 30, zone=timezone(timedelta(hours=-5, minutes=-45, seconds=-30))),
    at(2025, 12, 31, 23, 59, 59, 999_999, zone=timezone(timedelta(hours=14))),
    at(2026, 1, 1, zone=timezone(timedelta(hours=-12))),
    at(1969, 12, 31, 23, 59, 59, 500_000),
    at(1850, 1, 1, 12, zone=new_york),                 # local mean time, -4:56:02
    at(2, 1, 1),
    at(9998, 12, 31, 23),
]
out = {}
with connected(kind, url, HashEncoder()) as store:
    memory = store.memory(agent="a", user=user)
    memory.append([
        NewEvent(content=f"entry {n} about tea", occurred_at=time, session_id=f"s{n % 2}")
        for n, time in enumerate(TIMES, 1)
    ])
    events = memory.events()
    out["utc"] = [e.occurred_at.isoformat() for e in events]
    out["instants"] = [e.occurred_at == t.astimezone(UTC) for e, t in zip(events, TIMES)]
    out["kinds"] = sorted({str(t.tzinfo) for e in events for t in (e.occurred_at, e.recorded_at)})
    out["ranges"] = [
        [[e.position for e in memory.events(since=a, until=b)] for b in TIMES] for a in TIMES]
    memory.flush()
    out["search"] = [
        [[h.event.position, round(h.score, 6), h.reasons]
         for h in memory.search(q, since=since, until=until, k=20)]
        for q in ("tea", "tea on 9 March 2025", "what about tea in November 2025?", "in 2025",
                  "the tea on 2025-03-10", "tea at 6:00 on 2 November 2025")
        for since, until in ((None, None), (TIMES[0], TIMES[4]), (TIMES[5], TIMES[6]))]
    fact = {"statement": "she lives in Gander", "positions": [3],
            "confirmed_at": at(2025, 3, 9, 23, 30, zone=st_johns).isoformat()}
    first = memory.patch({"confirmed_facts": [fact]})
    second = memory.patch({"user_preferences": {"a": 1}}, log_position=9)
    found = []
    for zone in (UTC, st_johns, kathmandu):
        for state in (first, second):
            for step in (-1, 0, 1):
                moment = (state.created_at + timedelta(microseconds=step)).astimezone(zone)
                try:
                    found.append(memory.state(as_of=moment).version)
                except Exception as error:
                    found.append(type(error).__name__)
    out["as_of"] = found
    out["created"] = [str(s.created_at.tzinfo) for s in (first, second, memory.state())]
    out["history"] = sorted({str(v.created_at.tzinfo) for v in memory.history()})
    state = memory.state()
    out["document"] = state.document
    out["stale"] = [[p.path, p.question, p.since.isoformat()] for p in state.stale]
    for name, budget in (("whole", 4_000), ("part", 300)):
        context = memory.resume("the tea on 9 March 2025", budget=budget)
        out[name] = re.sub(r"Now: \S+ \S+", "Now:", context.to_text())
        out[f"{name} messages"] = re.sub(
            r"Now: \S+ \S+", "Now:", json.dumps(context.to_messages("anthropic")))
        out[f"{name} tokens"] = dict(context.tokens)
print(json.dumps(out))
"""


def started(kind: str, url: str, user: str, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", RUN, kind, url, user],
        env=os.environ | variables,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


def answer(process: subprocess.Popen[str]) -> Any:
    stdout, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return json.loads(stdout)


@pytest.fixture
def url(database_url: str) -> str:
    MemoryStore.prepare(database_url, encoder=HashEncoder(), settings=QUIET)
    return database_url


def test_a_run_is_the_same_in_every_zone(url: str) -> None:
    # traps 23 and 24
    expected = answer(started("sync", url, "utc", TZ="UTC"))
    check(expected)
    for kind in KINDS:
        running = [started(kind, url, f"{kind} {zone}", TZ=zone) for zone in ZONES]
        for process in running:
            assert answer(process) == expected


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "America/St_Johns"])
def test_the_databases_zone_does_not_matter(url: str, zone: str) -> None:
    expected = answer(started("sync", url, "before", TZ="UTC"))
    check(expected)
    with administration(url) as conn:
        name = conn.info.dbname
        for setting in (f"timezone = '{zone}'", "datestyle = 'ISO, DMY'"):
            conn.execute(f"ALTER DATABASE {name} SET {setting}".encode())
    with administration(url) as conn:
        assert conn.execute("SHOW timezone").fetchone() == (zone,)
    assert answer(started("sync", url, "after", TZ="UTC")) == expected
    assert answer(started("async", url, "both", TZ="Asia/Kathmandu")) == expected
    assert answer(started("sync", url, "client", PGTZ="Asia/Kathmandu", TZ="UTC")) == expected


def check(run: dict[str, Any]) -> None:
    """The run in UTC is as it should be: else they could all be wrong alike."""
    assert all(run["instants"])
    assert run["utc"][:9] == [
        "2025-03-09T06:59:59+00:00",
        "2025-03-09T07:00:00+00:00",
        "2025-03-09T07:30:00+00:00",
        "2025-03-10T02:00:00+00:00",
        "2025-03-09T20:30:00+00:00",
        "2025-11-02T05:30:00+00:00",
        "2025-11-02T06:30:00+00:00",
        "2025-11-02T06:00:00+00:00",
        "2025-11-02T07:15:30+00:00",
    ]
    assert run["kinds"] == ["UTC"]
    assert run["created"] == ["UTC"] * 3
    assert run["history"] == ["UTC"]
    assert run["ranges"][0][3] == [1, 2, 3, 5]  # the clocks go forward, half-open
    assert run["ranges"][5][6] == [6, 8]  # the first half past one, and what lies between
    assert run["ranges"][6][5] == []
    assert run["as_of"] == ["NotFound", 1, 1, 1, 2, 2] * 3
    assert run["stale"][0][:2] == [
        "/confirmed_facts/0",
        "You said on 10 March 2025 that she lives in Gander; is that still so?",
    ]
    assert "2025-03-10 Mon" in run["whole"]
    assert "02:00 user: entry 4 about tea" in run["whole"]
    assert {position for position, *_ in run["search"][1]} == {1, 2, 3}
