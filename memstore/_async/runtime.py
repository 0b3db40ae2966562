"""What differs between the two sides and is written by hand in both: waiting, threads, the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from memstore.errors import ConfigurationError

T = TypeVar("T")

Lock = asyncio.Lock
sleep = asyncio.sleep


async def in_thread(function: Callable[..., T], /, *args: object) -> T:
    """Run a blocking call (a model, a subprocess) off the event loop."""
    return await asyncio.to_thread(function, *args)


class LoopGuard:
    """Remembers the event loop that a pool was opened in, and refuses any other.

    A pool used from another loop would hang until its time-out.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def check(self) -> None:
        if asyncio.get_running_loop() is not self._loop:
            raise ConfigurationError(
                "this store was opened in another event loop: open one per loop"
            )
