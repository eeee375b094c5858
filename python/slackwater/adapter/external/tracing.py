"""Spans for OpenTelemetry, when its own variables say where they go.

The library sends them in a thread of its own, out of a queue that has an end: nobody waits for it.
Without these variables it is not imported.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import structlog

from slackwater.adapter.external.libraries import opentelemetry
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.spans import Attributes, Fail
from slackwater.repr.version import VERSION

PREFIX = "slackwater."
"""The names of attributes begin with it."""
CLOSING_S = 1.0
"""So long spans that wait are still sent at the end."""

_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")

_log = structlog.get_logger("tracing")


def is_asked_for(variables: Mapping[str, str]) -> bool:
    """Whether variables of OpenTelemetry say where spans go."""
    is_off = (
        variables.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
        or variables.get("OTEL_TRACES_EXPORTER", "").strip().lower() == "none"
    )
    return not is_off and any(variables.get(each) for each in _ENDPOINTS)


@dataclass(frozen=True, slots=True)
class Tracing:
    """Spans that go to a provider of the library. `library` is what `opentelemetry` gives."""

    library: Any
    provider: Any

    @contextmanager
    def span(self, name: str, attributes: Attributes) -> Iterator[Fail]:
        """A span whose error is the condition alone: messages may have what users wrote."""
        found = {PREFIX + each: v for each, v in attributes.items() if v is not None}
        tracer = self.provider.get_tracer("slackwater", VERSION)
        with tracer.start_as_current_span(
            name, attributes=found, record_exception=False, set_status_on_exception=False
        ) as span:

            def fail(condition: str) -> None:
                codes = self.library.trace
                span.set_status(codes.Status(codes.StatusCode.ERROR, condition))

            try:
                yield fail
            except SlackwaterError as error:
                fail(error.condition)
                raise
            except BaseException as error:
                fail(type(error).__name__)
                raise

    def close(self) -> None:
        """Sends what waits, for `CLOSING_S` at most."""
        ending = threading.Thread(target=self.provider.shutdown, name="tracing", daemon=True)
        ending.start()
        ending.join(CLOSING_S)


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
