"""The demo's SQL: named statements in a file, with ``${placeholders}``."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from string import Template

_HEADER = "-- name: "


def read_script(*names: str) -> Mapping[str, str]:
    """The statements of the files ``sql/demo/<name>.sql``, by their names, without semicolons."""
    folder = resources.files("slackwater") / "sql" / "demo"
    statements = {}
    for name in names:
        text = (folder / f"{name}.sql").read_text(encoding="utf-8")
        for block in text.split(_HEADER)[1:]:
            title, _, body = block.partition("\n")
            statements[title.strip()] = body.strip().removesuffix(";")
    return statements


def fill(statement: str, /, **values: object) -> str:
    """The statement with its placeholders replaced. Raises KeyError when one has no value."""
    return Template(statement).substitute({key: str(value) for key, value in values.items()})


def literal(text: str) -> str:
    """`text` as the inside of a string literal of Spark SQL."""
    return text.replace("\\", "\\\\").replace("'", "\\'")
