"""User errors: a condition, an SQLSTATE, a message that names the object and what to do.

The catalogue is ``slackwater-error-conditions.json`` beside this file, in the format of Spark's
``error-conditions.json``; the shim reads the same file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

_PLACEHOLDER = re.compile(r"<([A-Za-z_][A-Za-z0-9_]*)>")


@dataclass(frozen=True, slots=True)
class TextPosition:
    """The place of an error in a statement's text, as Spark counts: line from 1, column from 0."""

    line: int
    column: int


class SlackwaterError(Exception):
    """An error that a user caused or must know about.

    `condition` is a key of the catalogue, or one of Spark's own where Spark's applies.
    `message` is complete: condition, text and SQLSTATE are put together by the front end.
    """

    def __init__(
        self,
        condition: str,
        sqlstate: str,
        message: str,
        parameters: Mapping[str, str],
        position: TextPosition | None = None,
    ) -> None:
        super().__init__(f"[{condition}] {message} SQLSTATE: {sqlstate}")
        self.condition = condition
        self.sqlstate = sqlstate
        self.message = message
        self.parameters = dict(parameters)
        self.position = position

    @property
    def is_data_error(self) -> bool:
        """Whether values caused it, or how many there are: then the same values do it again."""
        return self.sqlstate.startswith(DATA_STATES) or self.condition in DATA_CONDITIONS

    @property
    def is_outage(self) -> bool:
        """Whether the metastore does not answer; of a change the outcome may be either."""
        return self.condition == "SLACKWATER_METASTORE_UNAVAILABLE"

    def to_json(self) -> dict[str, Any]:
        """The error as the shim's protocol carries it."""
        return {
            "condition": self.condition,
            "sqlstate": self.sqlstate,
            "message": self.message,
            "parameters": self.parameters,
            "position": (
                None
                if self.position is None
                else {"line": self.position.line, "column": self.position.column}
            ),
        }


DATA_CONDITIONS = frozenset(
    {
        "INCONSISTENT_BEHAVIOR_CROSS_VERSION.DATETIME_PATTERN_RECOGNITION",
        "INCONSISTENT_BEHAVIOR_CROSS_VERSION.DATETIME_WEEK_BASED_PATTERN",
        "INCONSISTENT_BEHAVIOR_CROSS_VERSION.PARSE_DATETIME_BY_NEW_PARSER",
        "INVALID_FORMAT.ESC_AT_THE_END",
        "INVALID_FORMAT.ESC_IN_THE_MIDDLE",
        "INVALID_FORMAT.MISMATCH_INPUT",
        "RECURSION_LEVEL_LIMIT_EXCEEDED",
        "RECURSION_ROW_LIMIT_EXCEEDED",
    }
)
"""Errors that rows cause too, with states of syntax in Spark: patterns in columns, recursion."""

DATA_STATES = ("21", "22", "23", "38", "39", "P0", "54000", "54006")
"""States of errors that values cause, so that the same values cause them again.

Cardinality, data, keys of a map, failed functions, errors that the query raises itself, and values
that grow beyond what Spark can hold. Memory and storage are not among them: these may come back.
"""


LOG_FILE = "log/coordinator.jsonl"
"""The file of the coordinator's log, below the environment's location."""


def first_line(text: str) -> str:
    """The first line of what another program says of a failure."""
    return text.strip().splitlines()[0] if text.strip() else "no message"


class FatalError(Exception):
    """A broken invariant. The coordinator stops; the shim starts it again."""


@cache
def conditions() -> Mapping[str, Mapping[str, Any]]:
    """The catalogue: condition to ``{"message": [line, ...], "sqlState": state}``."""
    file = resources.files(__package__).joinpath("slackwater-error-conditions.json")
    text = file.read_text(encoding="utf-8")
    catalogue: Mapping[str, Mapping[str, Any]] = json.loads(text)
    return catalogue


def user_error(
    condition: str, /, *, position: TextPosition | None = None, **parameters: str
) -> SlackwaterError:
    """The error for `condition`, ready to raise.

    Every placeholder ``<name>`` of the condition's message must be given, and nothing else;
    a mismatch is a defect of ours and raises KeyError.
    """
    entry = conditions()[condition]
    template = "\n".join(entry["message"])
    expected = set(_PLACEHOLDER.findall(template))
    if expected != set(parameters):
        raise KeyError(f"{condition} takes {sorted(expected)}, got {sorted(parameters)}")
    message = _PLACEHOLDER.sub(lambda match: parameters[match[1]], template)
    return SlackwaterError(condition, entry["sqlState"], message, parameters, position)


def unsupported(feature: str, advice: str) -> SlackwaterError:
    """SLACKWATER_UNSUPPORTED, ready to raise."""
    return user_error("SLACKWATER_UNSUPPORTED", feature=feature, advice=advice)


def invalid_option(option: str, statement: str, value: str, reason: str) -> SlackwaterError:
    """SLACKWATER_INVALID_OPTION for an option of a statement, ready to raise."""
    return user_error(
        "SLACKWATER_INVALID_OPTION", option=option, statement=statement, value=value, reason=reason
    )
