"""The next process gets the same context, whatever its hash seed, its time zone and its past."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import memstore.demo
from memstore import MemoryStore
from memstore.importing import read_events
from tests.encoders import HashEncoder
from tests.stores import QUIET

ROOT = Path(__file__).parents[1]
THREAD = Path(memstore.demo.__file__).with_name("support_thread.jsonl")
RESUME = """
import sys
from datetime import UTC, datetime
from memstore import MemoryStore
from tests.encoders import HashEncoder
from tests.stores import QUIET

with MemoryStore.connect(sys.argv[1], encoder=HashEncoder(), settings=QUIET) as store:
    memory = store.memory(agent="a", user="u")
    if len(sys.argv) > 2:
        memory.resume("something else", budget=999)
        memory.search("gateway")
    now = datetime(2026, 11, 30, tzinfo=UTC)
    for budget in (150, 700, 2048):
        context = memory.resume("which sensor fell silent last week?", budget=budget, now=now)
        print(context.to_text())
        print(context.to_messages("openai"), context.tokens, context.dropped)
        print([(hit.event.position, hit.score, hit.reasons) for hit in context.search or ()])
"""


def test_another_process_gets_the_same_context(database_url: str) -> None:
    MemoryStore.prepare(database_url, encoder=HashEncoder(), settings=QUIET)
    with MemoryStore.connect(database_url, encoder=HashEncoder(), settings=QUIET) as store:
        memory = store.memory(agent="a", user="u")
        thread = list(read_events(THREAD))
        memory.append(thread[:150])
        memory.patch({"active_task": {"description": "mend the sensor"}})
        memory.append(thread[150:])
        memory.flush()
    printed = set()
    for seed, zone, more in (("1", "UTC", ()), ("2", "Asia/Kathmandu", ("more",))):
        done = subprocess.run(
            [sys.executable, "-c", RESUME, database_url, *more],
            env=os.environ | {"PYTHONHASHSEED": seed, "TZ": zone, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert "<recalled>" in done.stdout
        printed.add(done.stdout)
    assert len(printed) == 1
