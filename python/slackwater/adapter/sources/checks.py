"""The conditions of CHECK, evaluated by Spark over the requests that wait at the same moment.

Source: spec coordinator 6.4.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, Protocol

import pyarrow as pa

from slackwater.adapter.catalog.details import CheckConfig, CheckedInput
from slackwater.adapter.catalog.model import CatalogItem, CatalogState
from slackwater.adapter.sources.secrets import Secrets
from slackwater.compute.engine import Check, Engine
from slackwater.repr.errors import user_error
from slackwater.repr.ids import GlobalId

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class CheckedRequest(Protocol):
    """A request as a condition sees it; `received_us` is in microseconds since the epoch."""

    @property
    def body(self) -> bytes: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def received_us(self) -> int: ...


def verify(engine: Engine, config: CheckConfig) -> None:
    """Raises SLACKWATER_INVALID_CHECK, and Spark's errors of the condition."""
    engine.under(config.settings).check(config.condition, config.desc).close()


class Checks:
    """The conditions of all sources. Thread-safe."""

    def __init__(self, engine: Engine, secrets: Secrets, state: Callable[[], CatalogState]) -> None:
        self._engine = engine
        self._secrets = secrets
        self._state = state
        self._lock = threading.Lock()
        self._open: dict[GlobalId, tuple[CheckConfig, Check]] = {}

    def holds(
        self, item: CatalogItem, config: CheckConfig, requests: Sequence[CheckedRequest]
    ) -> list[bool]:
        """For each request, whether the condition of the source `item` is true.

        It is false where a text is not UTF-8. Raises SLACKWATER_DEPENDENCY_DROPPED when a secret
        is gone, SLACKWATER_SECRET_NOT_TEXT, and when Spark or the metastore cannot be asked.
        """
        check = self._check(item, config)
        secrets = [self._secret(each) for each in config.inputs]
        found = [_row(config, secrets, request) for request in requests]
        rows = [row for row in found if row is not None]
        schema = config.desc.arrow_schema()
        columns = [[row[i] for row in rows] for i in range(len(schema))]
        arrays = [pa.array(c, field.type) for c, field in zip(columns, schema, strict=True)]
        answers = iter(check.holds(pa.Table.from_arrays(arrays, schema=schema)) if rows else ())
        return [row is not None and next(answers) for row in found]

    def _check(self, item: CatalogItem, config: CheckConfig) -> Check:
        with self._lock:
            known = self._open.get(item.id)
            if known is not None and known[0] == config:
                return known[1]
        opened = self._engine.under(config.settings).check(config.condition, config.desc)
        with self._lock:
            self._open[item.id] = (config, opened)
            items = self._state().items
            gone = [self._open.pop(each)[1] for each in tuple(self._open) if each not in items]
        for each in gone:
            each.close()
        return opened

    def _secret(self, wanted: CheckedInput) -> str | bytes | None:
        if wanted.secret is None:
            return None
        item = self._state().item(wanted.secret)
        value = self._secrets.value(item)
        if wanted.is_bytes:
            return value
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            raise user_error("SLACKWATER_SECRET_NOT_TEXT", objectName=item.full_name) from None


def _row(
    config: CheckConfig, secrets: Sequence[str | bytes | None], request: CheckedRequest
) -> list[Any] | None:
    """The values of a request; None if one of its texts is not UTF-8."""
    values: list[Any] = []
    for each, secret in zip(config.inputs, secrets, strict=True):
        match each.kind:
            case "BODY" if each.is_bytes:
                values.append(request.body)
            case "BODY":
                try:
                    values.append(request.body.decode("utf-8"))
                except UnicodeDecodeError:
                    return None
            case "HEADERS" if each.is_bytes:
                values.append([(name, value.encode()) for name, value in request.headers.items()])
            case "HEADERS":
                values.append(list(request.headers.items()))
            case "SECRET":
                values.append(secret)
    return [*values, _EPOCH + timedelta(microseconds=request.received_us)]
