"""The dataflows that a replica has not planned yet, and the thread that plans them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from slackwater.compute import schedule
from slackwater.compute.controller.descriptions import DataflowDescription
from slackwater.compute.dataflow import Dataflow
from slackwater.compute.definitions import definition_of, planned
from slackwater.compute.planning import Planner
from slackwater.compute.schedule import Failure
from slackwater.repr.errors import LOG_FILE, SlackwaterError, first_line, user_error
from slackwater.repr.ids import GlobalId

_LOG = structlog.get_logger("slackwater.compute")


@dataclass(frozen=True, slots=True)
class PlanListeners:
    """Callbacks of the thread that plans: `planned` takes a dataflow, `failed` why there is none.

    A dataflow that failed is planned again after a pause.
    """

    planned: Callable[[DataflowDescription, Dataflow], None]
    failed: Callable[[GlobalId, Failure], None]


@dataclass(slots=True)
class _Waiting:
    described: DataflowDescription
    failure: Failure | None = None


@dataclass(slots=True)
class PlannedDataflows:
    """Plans dataflows one after the other, in a thread of its own. Thread-safe.

    A plan asks Spark, which may not be there yet, and takes its time: who tells a replica of a
    dataflow does not wait for that.
    """

    planner: Planner
    listeners: PlanListeners
    name: str
    monotonic: Callable[[], float] = time.monotonic
    _changed: threading.Condition = field(default_factory=threading.Condition, init=False)
    _waiting: dict[GlobalId, _Waiting] = field(default_factory=dict, init=False)
    _is_stopping: bool = field(default=False, init=False)
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(
            target=self._run, name=f"slackwater-{self.name}-plans", daemon=True
        )

    def start(self) -> None:
        """Begins to plan."""
        self._thread.start()

    def stop(self) -> None:
        """Plans nothing more. A plan that is being made is given back."""
        with self._changed:
            self._is_stopping = True
            self._changed.notify_all()

    def add(self, described: DataflowDescription) -> None:
        """Plans the dataflow, as soon as it is its turn."""
        with self._changed:
            self._waiting[described.export_ids[0]] = _Waiting(described)
            self._changed.notify_all()

    def remove(self, global_id: GlobalId) -> None:
        """Does not plan the dataflow, unless it is planned already."""
        with self._changed:
            self._waiting.pop(global_id, None)

    def _run(self) -> None:
        while (waiting := self._next()) is not None:
            self._plan(waiting)

    def _next(self) -> _Waiting | None:
        """The next dataflow to plan; None: it is time to stop."""
        with self._changed:
            while not self._is_stopping:
                now_ms = self._now_ms()
                ready = (w for w in self._waiting.values() if _is_due(w, now_ms))
                found = next(ready, None)
                if found is not None:
                    return found
                failures = [w.failure for w in self._waiting.values() if w.failure is not None]
                retry_ms = schedule.next_retry_ms(failures)
                self._changed.wait(None if retry_ms is None else max(0, retry_ms - now_ms) / 1000)
        return None

    def _plan(self, waiting: _Waiting) -> None:
        described = waiting.described
        global_id = described.export_ids[0]
        try:
            dataflow = self._planned(described)
        except SlackwaterError as error:
            self._failed(waiting, error)
            return
        except Exception as error:
            _LOG.exception("plan_failed", dataflow=global_id)
            reason = first_line(str(error)).removesuffix(".")
            self._failed(waiting, user_error("SLACKWATER_INTERNAL", reason=reason, log=LOG_FILE))
            return
        with self._changed:
            is_wanted = not self._is_stopping and self._waiting.get(global_id) is waiting
            if is_wanted:
                del self._waiting[global_id]
        if is_wanted:
            self.listeners.planned(described, dataflow)
        else:
            self.planner.give_back(dataflow.plan, dataflow.settings)

    def _planned(self, described: DataflowDescription) -> Dataflow:
        definition = definition_of(described)
        settings = None if described.settings is None else dict(described.settings)
        plan = self.planner.take(described.export_ids[0], definition)
        if plan is None:
            plan = self.planner.plan(described.name, definition, settings)
        return planned(described, plan)

    def _failed(self, waiting: _Waiting, error: SlackwaterError) -> None:
        global_id = waiting.described.export_ids[0]
        _LOG.warning("plan_failed", dataflow=global_id, error=str(error))
        failure = schedule.after_failure(error, waiting.failure, self._now_ms())
        with self._changed:
            waiting.failure = failure
            is_wanted = self._waiting.get(global_id) is waiting
        if is_wanted:
            self.listeners.failed(global_id, failure)

    def _now_ms(self) -> int:
        return int(self.monotonic() * 1000)


def _is_due(waiting: _Waiting, now_ms: int) -> bool:
    return waiting.failure is None or waiting.failure.retry_at_ms <= now_ms
