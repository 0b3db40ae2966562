"""OpenTelemetry spans, for who asks for them: names, counts and times, never what was said.

Off, it costs a comparison; the library is only imported where it is switched on. No id of an
agent, a user, a session or a tenant goes into a span, no text, and of an error its kind alone.
"""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from importlib import metadata
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from memstore.errors import MissingExtra

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer, TracerProvider

__all__ = ["count", "disable", "enable", "export", "ids", "inject", "lap", "request", "span"]

P = ParamSpec("P")
R = TypeVar("R")

PREFIX = "memstore."

_tracer: Tracer | None = None


def enable(provider: TracerProvider | None = None) -> None:
    """Make spans from now on, in this process, with a provider or the global one.

    Raises `MissingExtra` without the extra ``telemetry``.
    """
    global _tracer
    try:
        from opentelemetry import trace
    except ImportError as error:
        raise MissingExtra("opentelemetry-api", "telemetry") from error
    _tracer = trace.get_tracer("memstore", metadata.version("memstore"), provider)


def disable() -> None:
    """Make no more spans."""
    global _tracer
    _tracer = None


def export() -> Callable[[], None]:
    """Send spans by OTLP over HTTP, as the ``OTEL_`` variables say; return what ends it.

    Where a provider is set already (by ``opentelemetry-instrument``, say) that one is used.
    """
    try:
        from opentelemetry import trace
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise MissingExtra("opentelemetry-sdk", "telemetry") from error
    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        enable()
        return lambda: None
    os.environ.setdefault("OTEL_SERVICE_NAME", "memstore")
    provider = TracerProvider(resource=Resource.create())
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    enable()
    return provider.shutdown


def span(name: str, **counts: int | bool | str) -> AbstractContextManager[Any]:
    """Make what happens inside a span, a child of the one that it happens in."""
    return nullcontext() if _tracer is None else _current(_tracer, name, counts)


@contextmanager
def _current(tracer: Tracer, name: str, counts: dict[str, Any], **how: Any) -> Iterator[Span]:
    # An exception's words may be a client's: neither they nor its trace are recorded.
    with tracer.start_as_current_span(
        name if how else PREFIX + name,
        attributes={PREFIX + key: value for key, value in counts.items()},
        record_exception=False,
        set_status_on_exception=False,
        **how,
    ) as made:
        try:
            yield made
        except BaseException as error:
            fail(made, type(error).__name__)
            raise


def fail(made: Span, kind: str) -> None:
    """Mark a span as failed."""
    from opentelemetry.trace import StatusCode

    made.set_attribute("error.type", kind)
    made.set_status(StatusCode.ERROR)


def traced(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make each call of a function a span, of an asynchronous one too."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        if inspect.iscoroutinefunction(function):

            @wraps(function)
            async def run(*args: P.args, **kwargs: P.kwargs) -> Any:
                with span(name):
                    return await function(*args, **kwargs)

            return cast(Callable[P, R], run)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            with span(name):
                return function(*args, **kwargs)

        return call

    return decorate


def lap(name: str, seconds: float) -> None:
    """Make a span of a step that took so long and ends now."""
    if _tracer is not None:
        now = time.time_ns()
        _tracer.start_span(PREFIX + name, start_time=now - int(seconds * 1e9)).end(now)


def count(**counts: int | bool) -> None:
    """Add counts to the span that this happens in."""
    if _tracer is not None:
        from opentelemetry.trace import get_current_span

        get_current_span().set_attributes({PREFIX + k: v for k, v in counts.items()})


def ids() -> dict[str, str]:
    """Return the current trace's and span's ids, for a log line; nothing where there are none."""
    if _tracer is None:
        return {}
    from opentelemetry import trace

    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {
        "trace_id": trace.format_trace_id(context.trace_id),
        "span_id": trace.format_span_id(context.span_id),
    }


def inject(headers: MutableMapping[str, str]) -> None:
    """Say in a request's headers which trace it belongs to."""
    if _tracer is not None:
        from opentelemetry.propagate import inject as add

        add(headers)


def request(method: str, headers: dict[str, str]) -> AbstractContextManager[Any]:
    """Make a server's request a span, in the trace that its headers name."""
    if _tracer is None:
        return nullcontext()
    from opentelemetry.propagate import extract
    from opentelemetry.trace import SpanKind

    return _current(_tracer, method, {}, kind=SpanKind.SERVER, context=extract(headers))


def answered(made: Any, method: str, route: str, status: int, request_id: str) -> None:
    """Say of a request's span what is known at its end: the route's template, not its path."""
    if made is not None:
        made.update_name(f"{method} {route}".rstrip())
        made.set_attributes(
            {
                "http.request.method": method,
                "http.route": route,
                "http.response.status_code": status,
                f"{PREFIX}request_id": request_id,
            }
        )
        if status >= 500:
            fail(made, str(status))
