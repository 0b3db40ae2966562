"""Prometheus metrics of one application, in a registry of its own."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

#: A client may make up any number of others.
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Measures:
    """Counts requests, search steps, degraded answers and tokens; shows queue and load."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = Histogram(
            "memstore_request_seconds",
            "Requests by route and status",
            ("method", "route", "status"),
            registry=registry,
            buckets=SECONDS,
        )
        self._steps = Histogram(
            "memstore_step_seconds",
            "Steps of searching and resuming; encode is the encoder's time",
            ("step",),
            registry=registry,
            buckets=SECONDS,
        )
        self._degraded = Counter(
            "memstore_degraded_answers", "Answers without the vector leg", registry=registry
        )
        self._tokens = Counter(
            "memstore_context_tokens", "Tokens of contexts handed out", registry=registry
        )
        self.under_way = Gauge(
            "memstore_requests_under_way", "Requests under way", registry=registry
        )
        self._queue = Gauge(
            "memstore_queue_entries", "Entries that wait for a vector", registry=registry
        )
        self._age = Gauge(
            "memstore_queue_age_seconds", "How long the oldest has waited", registry=registry
        )

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        self._requests.labels(method, route, str(status)).observe(seconds)

    def answer(self, milliseconds: Mapping[str, float], degraded: str, tokens: int = 0) -> None:
        """Count one search or resume."""
        for step, value in milliseconds.items():
            self._steps.labels(step).observe(value / 1000)
        if degraded:
            self._degraded.inc()
        self._tokens.inc(tokens)

    def queue(self, entries: int, age: float) -> None:
        self._queue.set(entries)
        self._age.set(age)

    def text(self) -> bytes:
        """Write all of it in Prometheus's text format."""
        return generate_latest(self._registry)
