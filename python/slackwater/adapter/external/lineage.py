"""Events of lineage on their way to where OpenLineage's own variables say, in a thread.

Nobody waits for it: what finds no room in the queue is left out, and so is what cannot be sent.
Nothing is sent, and the library is not imported, unless one of these variables is there.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from queue import Full, Queue
from typing import Any

import structlog

from slackwater.adapter.catalog.lineage import LineageDataset, LineageEvent, LineageRead
from slackwater.adapter.external.libraries import openlineage
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.version import VERSION

PRODUCER = f"urn:slackwater:{VERSION}"
ROOM = 1000
"""So many events wait at most."""
CLOSING_S = 1.0
"""So long events that wait are still sent at the end."""

_log = structlog.get_logger("lineage")


def is_asked_for(variables: Mapping[str, str]) -> bool:
    """Whether variables of OpenLineage say where events go."""
    if variables.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return False
    named = {"OPENLINEAGE_URL", "OPENLINEAGE_CONFIG"}
    return any(
        value and (name in named or name.startswith("OPENLINEAGE__TRANSPORT"))
        for name, value in variables.items()
    )


def emitter() -> Callable[[LineageEvent, int], None]:
    """The function that sends an event, and the milliseconds when it happened, and waits for that.

    Raises SLACKWATER_CONNECTOR_MISSING, and what the library raises of its configuration.
    """
    library = openlineage()
    # It logs each event that it cannot send, with the address, and that may have a password.
    logging.getLogger("openlineage").setLevel(logging.CRITICAL)
    client = library.client.OpenLineageClient()

    def emit(event: LineageEvent, at_ms: int) -> None:
        client.emit(job_event(library, event, at_ms))

    return emit


def job_event(library: Any, event: LineageEvent, at_ms: int) -> Any:
    """The event as the library has it."""
    base, facets = library.client.event_v2, library.client.facet_v2
    job_type = facets.job_type_job.JobTypeJobFacet(
        processingType="STREAMING",
        integration="SLACKWATER",
        jobType=event.kind.upper(),
        producer=PRODUCER,
    )
    query = facets.sql_job.SQLJobFacet(query=event.sql, dialect="slackwater", producer=PRODUCER)
    return base.JobEvent(
        eventTime=datetime.fromtimestamp(at_ms / 1000, timezone.utc).isoformat(),
        producer=PRODUCER,
        job=base.Job(event.namespace, event.name, {"jobType": job_type, "sql": query}),
        inputs=[
            base.InputDataset(e.namespace, e.name, facets=_schema(facets, e)) for e in event.inputs
        ],
        outputs=[
            base.OutputDataset(each.namespace, each.name, facets=_output(facets, event, each))
            for each in event.outputs
        ],
    )


def _schema(facets: Any, dataset: LineageDataset) -> dict[str, Any]:
    if not dataset.columns:
        return {}
    of = facets.schema_dataset
    fields = [of.SchemaDatasetFacetFields(each.name, each.type) for each in dataset.columns]
    return {"schema": of.SchemaDatasetFacet(fields=fields, producer=PRODUCER)}


def _output(facets: Any, event: LineageEvent, dataset: LineageDataset) -> dict[str, Any]:
    if dataset.namespace != event.namespace:
        # It is elsewhere, and stays as it is.
        return _schema(facets, dataset)
    of = facets.lifecycle_state_change_dataset
    change: str = event.change
    earlier = None
    if event.renamed_from is not None and dataset.name == event.name:
        change = "RENAME"
        earlier = of.PreviousIdentifier(name=event.renamed_from, namespace=event.namespace)
    state = of.LifecycleStateChangeDatasetFacet(
        of.LifecycleStateChange[change], earlier, producer=PRODUCER
    )
    return {
        **_schema(facets, dataset),
        **({} if event.change == "DROP" else _column_lineage(facets, dataset)),
        "lifecycleStateChange": state,
    }


def _column_lineage(facets: Any, dataset: LineageDataset) -> dict[str, Any]:
    if not dataset.made_of:
        return {}
    of = facets.column_lineage_dataset

    def read(kind: str, each: LineageRead) -> Any:
        becomes = of.Transformation(kind, each.becomes)
        return of.InputField(each.namespace, each.name, each.column, [becomes])

    fields = {
        column.name: of.Fields([read("DIRECT", each) for each in reads])
        for column, reads in zip(dataset.columns, dataset.made_of, strict=True)
    }
    rows = [read("INDIRECT", each) for each in dataset.rows]
    return {"columnLineage": of.ColumnLineageDatasetFacet(fields, rows, producer=PRODUCER)}


@dataclass(slots=True)
class LineageSender:
    """Sends events one after the other. Thread-safe. `connect` gives what sends one."""

    connect: Callable[[], Callable[[LineageEvent, int], None]]
    clock_ms: Callable[[], int]
    _queue: Queue[tuple[LineageEvent, int] | None] = field(
        default_factory=lambda: Queue(ROOM), init=False
    )
    _thread: threading.Thread | None = field(default=None, init=False)

    def start(self) -> None:
        """Begins to send, in a thread. Without the library it says so in the log."""
        try:
            emit = self.connect()
        except SlackwaterError as error:
            _log.warning("not sent", reason=error.message)
            return
        except Exception as error:
            # Its text may have values of the configuration, and so a password.
            reason = f"OpenLineage cannot be configured so: {type(error).__name__}"
            _log.warning("not sent", reason=reason)
            return
        self._thread = threading.Thread(target=self._run, args=(emit,), name="lineage", daemon=True)
        self._thread.start()

    def tell(self, events: tuple[LineageEvent, ...]) -> None:
        """Queues events. Does not block; those for which there is no room are left out."""
        if self._thread is None:
            return
        at_ms = self.clock_ms()
        for number, event in enumerate(events):
            try:
                self._queue.put_nowait((event, at_ms))
            except Full:
                _log.warning("events left out", number=len(events) - number)
                return

    def close(self) -> None:
        """Sends what waits, for `CLOSING_S` at most."""
        if self._thread is None:
            return
        try:
            self._queue.put_nowait(None)
        except Full:
            return
        self._thread.join(CLOSING_S)

    def _run(self, emit: Callable[[LineageEvent, int], None]) -> None:
        while (told := self._queue.get()) is not None:
            event, at_ms = told
            try:
                emit(event, at_ms)
            except Exception as error:
                # Its text may have the address, and with it a password.
                _log.warning("event not sent", object=event.name, error=type(error).__name__)
