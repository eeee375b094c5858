"""The conditions of CHECK, evaluated by Spark over the requests that wait at the same moment.

Source: spec coordinator 6.4.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, Literal, Protocol

import pyarrow as pa

from slackwater.adapter.catalog.model import CatalogItem, CatalogState
from slackwater.adapter.sources.secrets import Secrets
from slackwater.compute.engine import Check, Engine
from slackwater.repr.errors import user_error
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import RelationDesc
from slackwater.storage.webhook import column, header_map

_RECEIVED = "__received"
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True, slots=True)
class CheckedInput:
    """What a condition may look at, and what it calls it. `secret` is the id of one."""

    kind: Literal["BODY", "HEADERS", "SECRET"]
    name: str
    secret: GlobalId | None
    is_bytes: bool


@dataclass(frozen=True, slots=True)
class CheckConfig:
    """A condition with the session settings under which it was written."""

    condition: str
    inputs: tuple[CheckedInput, ...]
    settings: Mapping[str, str] | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> CheckConfig:
        inputs = tuple(CheckedInput(**each) for each in found["inputs"])
        return CheckConfig(found["condition"], inputs, found["settings"])

    @property
    def secrets(self) -> list[GlobalId]:
        """The ids of its secrets."""
        found = [each.secret for each in self.inputs if each.secret is not None]
        return list(dict.fromkeys(found))

    @property
    def desc(self) -> RelationDesc:
        """The columns of the rows that the condition is asked about."""
        columns = []
        for each in self.inputs:
            kind = "binary" if each.is_bytes else "string"
            if each.kind == "HEADERS":
                columns.append(header_map(each.name, kind))
            else:
                columns.append(column(each.name, kind, nullable=False))
        return RelationDesc((*columns, column(_RECEIVED, "timestamp", nullable=False)))


class Request(Protocol):
    """What a condition is asked about; `received_us` counts from the epoch."""

    @property
    def body(self) -> bytes: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def received_us(self) -> int: ...


def verify(engine: Engine, config: CheckConfig) -> None:
    """Raises SLACKWATER_INVALID_CHECK, and what Spark says of the condition."""
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
        self, item: CatalogItem, config: CheckConfig, requests: Sequence[Request]
    ) -> list[bool]:
        """Which requests the condition of the source `item` is true for.

        A text that is not UTF-8 makes it fail. Raises SLACKWATER_DEPENDENCY_DROPPED when a secret
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
    config: CheckConfig, secrets: Sequence[str | bytes | None], request: Request
) -> list[Any] | None:
    """The values of a request; None if a text of it is none."""
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
