"""Functions that are not the engines' own: in Spark of SQL and of Python, in DuckDB macros."""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.types import DataType, IntegerType, StringType, StructType
from pyspark.util import PythonEvalType
from tests.fuzz.query import both

from slackwater.compute.engine import Function

SCHEMA = "spark_catalog.default"


@dataclass(frozen=True, slots=True)
class OfSql:
    """`body` means the same in both engines. Its arguments are a and b, of the kinds `takes`."""

    takes: Sequence[str]
    gives: str
    body: str


@dataclass(frozen=True, slots=True)
class OfPython:
    """`body` means in DuckDB what `call` does; it is pickled whole as long as it is a lambda."""

    takes: Sequence[str]
    gives: str
    body: str
    call: Callable[..., Any]
    form: int = PythonEvalType.SQL_BATCHED_UDF


OF_SQL: Mapping[str, OfSql] = {
    "own_rest": OfSql(("integer",), "integer", "coalesce(a, 5) % 3 - 1"),
    "own_sum": OfSql(("integer", "integer"), "integer", "a + coalesce(b, a, 1)"),
    "own_is_small": OfSql(("integer",), "boolean", "a < 2"),
    "own_framed": OfSql(("string",), "string", "'<' || a || '>'"),
}
OF_PYTHON: Mapping[str, OfPython] = {
    "own_shifted": OfPython(
        ("integer",), "integer", "2 * a + 1", lambda a: None if a is None else 2 * a + 1
    ),
    "own_named": OfPython(
        ("string",),
        "string",
        "coalesce(a, 'none') || '.'",
        lambda a: f"{'none' if a is None else a}.",
        PythonEvalType.SQL_ARROW_BATCHED_UDF,
    ),
}
_NAMES = "ab"
_SPARK = {"integer": "INT", "string": "STRING", "boolean": "BOOLEAN"}
_RETURNED: Mapping[str, DataType] = {"integer": IntegerType(), "string": StringType()}


def calls(kind: str, value_of: Callable[[str], str]) -> Iterator[str]:
    """Calls that give a value of the kind; `value_of` gives an argument of a kind."""
    for name, function in {**OF_SQL, **OF_PYTHON}.items():
        if function.gives == kind:
            call = f"{name}({', '.join(map(value_of, function.takes))})"
            yield both(f"{SCHEMA}.{call}", call) if name in OF_SQL else call


def macros() -> Iterator[str]:
    """The statements that DuckDB knows them by."""
    for name, function in {**OF_SQL, **OF_PYTHON}.items():
        arguments = ", ".join(_NAMES[: len(function.takes)])
        yield f"CREATE MACRO {name}({arguments}) AS ({function.body})"


def definitions(texts: Sequence[str]) -> Iterator[str]:
    """The statements of Spark for those of SQL that the texts call."""
    for name, function in _called(texts):
        yield _definition(name, function, function.body)


def register(session: SparkSession, texts: Sequence[str]) -> None:
    """Lets queries of the session call all that the texts call."""
    for statement in definitions(texts):
        session.sql(statement)
    session.sparkContext.pythonExec = sys.executable
    for name, function in OF_PYTHON.items():
        if any(f"{name}(" in text for text in texts):
            by_arrow = function.form == PythonEvalType.SQL_ARROW_BATCHED_UDF
            made = udf(function.call, _RETURNED[function.gives], useArrow=by_arrow)
            session.udf.register(name, made)


def replacements(texts: Sequence[str]) -> Iterator[str]:
    """After these they mean something else."""
    for name, function in _called(texts):
        yield _definition(name, function, "NULL")


def of_python(text: str) -> list[Function]:
    """Those of Python that the text calls, as a statement brings them along."""
    return [_pickled(name, each) for name, each in OF_PYTHON.items() if f"{name}(" in text]


def are_in(text: str) -> bool:
    return "own_" in text


def _called(texts: Sequence[str]) -> Iterator[tuple[str, OfSql]]:
    for name, function in OF_SQL.items():
        if any(f"{name}(" in text for text in texts):
            yield name, function


def _definition(name: str, function: OfSql, body: str) -> str:
    named = zip(_NAMES, function.takes, strict=False)
    arguments = ", ".join(f"{argument} {_SPARK[kind]}" for argument, kind in named)
    signature = f"{name}({arguments}) RETURNS {_SPARK[function.gives]}"
    return f"CREATE OR REPLACE FUNCTION {signature} RETURN {body}"


def _pickled(name: str, function: OfPython) -> Function:
    returned = _RETURNED[function.gives]
    command = CloudPickleSerializer().dumps((function.call, returned))
    return {
        "kind": "python",
        "name": name,
        "command": base64.b64encode(command).decode(),
        "eval_type": function.form,
        "deterministic": True,
        "version": f"{sys.version_info.major}.{sys.version_info.minor}",
        "returns": StructType().add("value", returned).jsonValue(),
    }
