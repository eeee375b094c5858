"""Spans for OpenTelemetry, when its own variables say where they go.

The library sends them in a thread of its own, out of a queue that has an end: nobody waits for it.
Without these variables it is not imported.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import structlog

from slackwater.adapter.external.libraries import opentelemetry
from slackwater.adapter.external.moving import RecentMoves
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.spans import Attributes, Awaited, Fail, Moves, PastSpan
from slackwater.repr.version import VERSION

PREFIX = "slackwater."
"""The names of attributes begin with it."""
CLOSING_S = 1.0
"""So long spans that wait are still sent at the end."""
OPEN_AT_MOST = 10_000
"""The most statements whose spans are open."""

_MS = 1_000_000
"""Nanoseconds."""

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")

_log = structlog.get_logger("tracing")


def is_asked_for(variables: Mapping[str, str]) -> bool:
    """Whether variables of OpenTelemetry say where spans go."""
    is_off = (
        variables.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
        or variables.get("OTEL_TRACES_EXPORTER", "").strip().lower() == "none"
    )
    return not is_off and any(variables.get(each) for each in _ENDPOINTS)


class Tracing:
    """Spans that go to a provider of the library. `library` is what `opentelemetry` gives.

    The span of a statement is open from its first call until its end, which comes a little later:
    of more than `OPEN_AT_MOST` the oldest ends before that, without what its end would have said.
    """

    def __init__(self, library: Any, provider: Any) -> None:
        self.library = library
        self.provider = provider
        self._tracer = provider.get_tracer("slackwater", VERSION)
        self._lock = threading.Lock()
        self._statements: OrderedDict[Hashable, Any] = OrderedDict()
        self._moves: RecentMoves[Any] = RecentMoves()

    @contextmanager
    def span(self, name: str, attributes: Attributes, moves: Moves | None = None) -> Iterator[Fail]:
        """A span whose error is the condition alone: messages may have what users wrote."""
        with self._current(name, attributes) as (span, fail):
            if moves is None:
                yield fail
                return
            with self._lock:
                moving = self._moves.begin(moves, span.get_span_context(), time.time_ns())
            try:
                yield fail
            finally:
                moving.ended = time.time_ns()

    @contextmanager
    def call(self, statement: Hashable, name: str, attributes: Attributes) -> Iterator[Fail]:
        with self._lock:
            whole = self._statements.get(statement)
            if whole is None:
                whole = self._started("statement", None)
                self._statements[statement] = whole
            oldest = self._statements.popitem(last=False)[1] if self._is_full() else None
        if oldest is not None:
            oldest.end()
        with self._current(name, attributes, self._below(whole)) as (_, fail):
            yield fail

    @contextmanager
    def wait(self, name: str, awaited: Awaited) -> Iterator[Fail]:
        began = time.time_ns()
        named = {"object": awaited.object_id, "timestamp": awaited.time}
        with self._current(name, named) as (span, fail):
            try:
                yield fail
            finally:
                ids = awaited.below()
                with self._lock:
                    served = self._moves.that_served(ids, awaited.time, began)
                for each in served:
                    span.add_link(each)

    def ended(self, statement: Hashable, whole: PastSpan, parts: Sequence[PastSpan]) -> None:
        with self._lock:
            span = self._statements.pop(statement, None)
        # What has read without a call has no span before it has ended.
        span = span or self._started(whole.name, whole.began_ms)
        span.update_name(whole.name)
        below = self._below(span)
        for part in parts:
            self._end(self._started(part.name, part.began_ms, below), part)
        self._end(span, whole)

    def close(self) -> None:
        """Sends what waits, for `CLOSING_S` at most."""
        ending = threading.Thread(target=self.provider.shutdown, name="tracing", daemon=True)
        ending.start()
        ending.join(CLOSING_S)

    def _is_full(self) -> bool:
        return len(self._statements) > OPEN_AT_MOST

    def _started(self, name: str, began_ms: int | None, below: Any = None) -> Any:
        """A span that has begun, without a parent unless it is `below` one."""
        context = self.library.context.Context() if below is None else below
        start_ns = None if began_ms is None else began_ms * _MS
        return self._tracer.start_span(name, context=context, start_time=start_ns)

    def _below(self, span: Any) -> Any:
        trace = self.library.trace
        return trace.set_span_in_context(span, self.library.context.Context())

    def _end(self, span: Any, past: PastSpan) -> None:
        span.set_attributes(_named(past.attributes))
        if past.condition is not None:
            self._fail(span, past.condition)
        # The clocks of a statement and of its span may differ by less than a millisecond. A span
        # that is not in the sample has no times.
        span.end(max(past.ended_ms * _MS, getattr(span, "start_time", 0)))

    def _fail(self, span: Any, condition: str) -> None:
        codes = self.library.trace
        span.set_status(codes.Status(codes.StatusCode.ERROR, condition))

    @contextmanager
    def _current(
        self, name: str, attributes: Attributes, context: Any = None
    ) -> Iterator[tuple[Any, Fail]]:
        with self._tracer.start_as_current_span(
            name,
            context=context,
            attributes=_named(attributes),
            record_exception=False,
            set_status_on_exception=False,
        ) as span:

            def fail(condition: str) -> None:
                self._fail(span, condition)

            try:
                yield span, fail
            except SlackwaterError as error:
                fail(error.condition)
                raise
            except BaseException as error:
                fail(type(error).__name__)
                raise


def _named(attributes: Attributes) -> dict[str, str | int]:
    return {PREFIX + each: v for each, v in attributes.items() if v is not None}


def open_tracing(exporter: Callable[[Any], Any] | None = None) -> Tracing | None:
    """Spans that go where the variables say; None, with a line in the log: they cannot.

    `exporter` gives another place to send them to.
    """
    try:
        library = opentelemetry()
        sdk = library.sdk
        otlp = library.exporter.otlp.proto.http.trace_exporter
        sends = otlp.OTLPSpanExporter() if exporter is None else exporter(library)
        named = sdk.resources.Resource.create({"service.name": "slackwater"})
        provider = sdk.trace.TracerProvider(resource=named, shutdown_on_exit=False)
        provider.add_span_processor(sdk.trace.export.BatchSpanProcessor(sends))
    except SlackwaterError as error:
        _log.warning("not traced", reason=error.message)
        return None
    except Exception as error:
        # Its text may have values of the configuration, and so a password.
        reason = f"OpenTelemetry cannot be configured so: {type(error).__name__}"
        _log.warning("not traced", reason=reason)
        return None
    return Tracing(library, provider)
