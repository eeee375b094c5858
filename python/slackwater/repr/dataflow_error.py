"""Errors as data: what could not be made a row, at a time and with a diff like a row.

An error that is definite (asking again gives the same) belongs to the contents of a collection.
While one is present at a time, a read at that time fails as a whole; once it is retracted, reads
succeed again. What may pass (a connection, a directory that cannot be listed) is never data: it
goes to the status of the source.

Source: spec controllers 5.5.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from slackwater.repr.errors import FatalError, SlackwaterError, user_error
from slackwater.repr.frontier import Timestamp
from slackwater.repr.relation import RelationDesc

DATA_ERROR = "SLACKWATER_DATA_ERROR"
"""The condition of a refused read of a view, while a row makes a query fail."""

SOURCE_ERROR = "SLACKWATER_SOURCE_ERROR"
"""The condition of a refused read of a source, while something that it was given is no row."""

SOME_ROW = "a row"
"""A row in messages, if nothing more is known of it."""

ERRORS = RelationDesc.of(error="string")
"""The collection of errors beside a collection of rows: each error as `encode` writes it."""


@dataclass(frozen=True, slots=True)
class DecodeError:
    """A message that is no row. `at` says where it is, such as a file and a line."""

    at: str
    reason: str

    @property
    def text(self) -> str:
        return f"{self.at}: {self.reason}"


@dataclass(frozen=True, slots=True)
class KeyDecodeError:
    """The key of an upsert cannot be read. A delete of the same bytes takes the error back."""

    raw: bytes
    inner: DecodeError

    @property
    def text(self) -> str:
        return f"a key cannot be read: {self.inner.text}"


@dataclass(frozen=True, slots=True)
class ValueDecodeError:
    """The value for a key cannot be read. The next value, or a delete, takes the error back.

    `for_key` is the key as messages show it, `raw` its bytes.
    """

    inner: DecodeError
    for_key: str
    raw: bytes = b""

    @property
    def text(self) -> str:
        return f"the value for the key {self.for_key} cannot be read: {self.inner.text}"


@dataclass(frozen=True, slots=True)
class NullKeyError:
    """An upsert without a key. A delete without a key takes the error back."""

    at: str

    @property
    def text(self) -> str:
        return f"{self.at}: the key is NULL"


@dataclass(frozen=True, slots=True)
class EvaluationError:
    """A row makes the query of a view fail. The row's correction takes the error back.

    `view` is the view whose query it is; one that reads it has the same error. `cause` is the text
    of the original error with its condition, `sqlstate` its state, `inputs` what the view reads,
    `row` how messages call the row.
    """

    view: str
    sqlstate: str
    cause: str
    inputs: str
    row: str = SOME_ROW

    @property
    def text(self) -> str:
        return f"{self.row} makes the query of {self.view} fail: {self.cause}"

    @staticmethod
    def of(error: SlackwaterError, view: str, inputs: str, row: str = SOME_ROW) -> EvaluationError:
        """`error`, found when `view` was computed; it may be that of a view below."""
        state = error.sqlstate
        if error.condition == DATA_ERROR:
            said = error.parameters
            return EvaluationError(
                said["viewName"], state, said["cause"], said["inputs"], said["row"]
            )
        return EvaluationError(view, state, f"[{error.condition}] {error.message}", inputs, row)


UpsertError: TypeAlias = KeyDecodeError | ValueDecodeError | NullKeyError
DataflowError: TypeAlias = DecodeError | UpsertError | EvaluationError


def encode(error: DataflowError) -> str:
    """The error as text. Equal errors have equal texts, so that they can be retracted."""
    return json.dumps(_fields(error), sort_keys=True, separators=(",", ":"))


def _fields(error: DataflowError) -> dict[str, Any]:
    match error:
        case DecodeError(at, reason):
            return {"kind": "decode", "at": at, "reason": reason}
        case KeyDecodeError(raw, inner):
            text = base64.b64encode(raw).decode()
            return {"kind": "key", "raw": text, "inner": _fields(inner)}
        case ValueDecodeError(inner, for_key, raw):
            text = base64.b64encode(raw).decode()
            return {"kind": "value", "for_key": for_key, "raw": text, "inner": _fields(inner)}
        case NullKeyError(at):
            return {"kind": "null-key", "at": at}
        case EvaluationError(view, sqlstate, cause, inputs, row):
            fields = {
                "kind": "evaluation",
                "view": view,
                "sqlstate": sqlstate,
                "cause": cause,
                "inputs": inputs,
            }
            # Errors of earlier versions are retracted as they were written.
            return fields if row == SOME_ROW else {**fields, "row": row}


def decode(text: str) -> DataflowError:
    """The error that `encode` wrote. Raises FatalError for any other text."""
    try:
        return _error(json.loads(text))
    except (ValueError, KeyError, TypeError) as problem:
        raise FatalError(f"a stored error cannot be read: {problem}") from problem


def _error(found: dict[str, Any]) -> DataflowError:
    match found["kind"]:
        case "decode":
            return DecodeError(found["at"], found["reason"])
        case "key":
            return KeyDecodeError(base64.b64decode(found["raw"]), _decode_error(found["inner"]))
        case "value":
            inner = _decode_error(found["inner"])
            return ValueDecodeError(inner, found["for_key"], base64.b64decode(found["raw"]))
        case "null-key":
            return NullKeyError(found["at"])
        case "evaluation":
            return EvaluationError(
                found["view"],
                found["sqlstate"],
                found["cause"],
                found["inputs"],
                found.get("row", SOME_ROW),
            )
        case other:
            raise ValueError(f"unknown kind {other}")


def _decode_error(found: dict[str, Any]) -> DecodeError:
    return DecodeError(found["at"], found["reason"])


def error_rows(changes: list[tuple[DataflowError, int]]) -> pa.Table:
    """Errors with their diffs as rows of `ERRORS` with ``__diff``."""
    return ERRORS.with_diffs(((encode(error),), diff) for error, diff in changes)


def refusal(errors: pa.Table, object_name: str, time: Timestamp) -> SlackwaterError | None:
    """Why a collection whose errors at `time` are these rows cannot be read then; None: it can."""
    if errors.num_rows == 0:
        return None
    first = decode(min(errors.column("error").to_pylist()))
    if isinstance(first, EvaluationError):
        return _evaluation_refusal(first, object_name, time)
    return user_error(
        SOURCE_ERROR,
        objectName=object_name,
        timestamp=str(time),
        count=str(errors.num_rows),
        cause=first.text.removesuffix("."),
    )


def _evaluation_refusal(
    error: EvaluationError, object_name: str, time: Timestamp
) -> SlackwaterError:
    """The SQLSTATE is the original one."""
    told = user_error(
        DATA_ERROR,
        objectName=object_name,
        timestamp=str(time),
        viewName=error.view,
        cause=error.cause.removesuffix("."),  # The sentence goes on, and ends itself.
        inputs=error.inputs,
        row=error.row,
    )
    parameters = {**told.parameters, "cause": error.cause}
    return SlackwaterError(told.condition, error.sqlstate, told.message, parameters)
