"""What differs between the two sides and is written by hand in both: waiting, threads, the loop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

Lock = threading.Lock
sleep = time.sleep


def in_thread(function: Callable[..., T], /, *args: object) -> T:
    """Run a blocking call: here the caller's own thread."""
    return function(*args)


class LoopGuard:
    """There is no event loop on this side, so any thread may use the store."""

    def check(self) -> None:
        return None
