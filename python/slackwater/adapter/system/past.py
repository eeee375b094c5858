"""Rows of the system relations about the past: statements, their steps, sessions, and lags."""

from __future__ import annotations

from collections.abc import Iterator

from slackwater.adapter.history.texts import without_values
from slackwater.adapter.system.objects import SystemRow, moment
from slackwater.adapter.system.snapshot import SystemSnapshot


def activity_log(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    began = {each.session_id: each for each in snapshot.past_sessions}
    for s in snapshot.statements:
        session = began.get(s.session_id)
        yield (
            s.execution_id,
            s.sample_rate,
            s.cluster,
            s.application,
            s.isolation,
            s.timestamp,
            None if s.planned_ms is None else moment(s.planned_ms),
            moment(s.began_ms),
            None if s.finished_ms is None else moment(s.finished_ms),
            None if s.status is None else s.status.value,
            s.condition,
            s.error,
            s.rows_returned,
            s.rows_written,
            s.waited_ms,
            s.text.digest,
            s.session_id,
            s.text.kind,
            s.throttled,
            None if session is None else moment(session.connected_ms),
            None if session is None else session.application,
            s.user,
            s.text.sql,
            None if s.text.sql is None else without_values(s.text.sql),
            s.statement_id,
            s.spark_execution_id,
            None if s.strategy is None else s.strategy.value,
            s.cluster_id,
            s.database,
            s.search_path,
            s.version,
        )


def lifecycle(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for statement in snapshot.statements:
        for reached in statement.steps:
            yield statement.execution_id, reached.step.value, moment(reached.at_ms)


def lags(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for minute in snapshot.lag_minutes:
        occurred_at = moment(minute.minute_ms)
        for object_id, lag_ms in minute.lags_ms.items():
            yield occurred_at, object_id, lag_ms


def hydrations(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for told in snapshot.hydrations:
        record = told.record
        yield (
            record.global_id,
            told.cluster,
            told.replica,
            moment(record.installed_ms),
            None if record.started_ms is None else moment(record.started_ms),
            None if record.hydrated_ms is None else moment(record.hydrated_ms),
            "hydrated",
        )


def sessions(snapshot: SystemSnapshot) -> Iterator[SystemRow]:
    for each in snapshot.past_sessions:
        yield each.session_id, moment(each.connected_ms), each.application, each.user
