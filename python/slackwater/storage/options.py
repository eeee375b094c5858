"""Options of CREATE SOURCE and CREATE SINK, as text, to configurations.

Names are upper case with single spaces, values are text without quotes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from slackwater.repr.errors import SlackwaterError, user_error
from slackwater.storage.discovery import local_path
from slackwater.storage.file_formats import FileFormat, Format
from slackwater.storage.files_source import FilesConfig
from slackwater.storage.generators import GeneratorConfig, GeneratorKind
from slackwater.storage.sink_files import Envelope, SinkConfig

_UNITS_MS: Mapping[str, float] = {
    "ms": 1, "millisecond": 1, "milliseconds": 1,
    "s": 1000, "sec": 1000, "second": 1000, "seconds": 1000,
    "m": 60_000, "min": 60_000, "minute": 60_000, "minutes": 60_000,
    "h": 3_600_000, "hour": 3_600_000, "hours": 3_600_000,
    "d": 86_400_000, "day": 86_400_000, "days": 86_400_000,
}  # fmt: skip
_GENERATOR_OPTIONS: Mapping[GeneratorKind, tuple[str, ...]] = {
    "COUNTER": ("MAX CARDINALITY", "SEED", "TICK INTERVAL", "UP TO"),
    "AUCTION": ("SEED", "TICK INTERVAL", "UP TO"),
    "CLOCK": ("TICK INTERVAL", "UP TO"),
}
_FILES_OPTIONS = ("DELIMITER", "FORMAT", "HEADER", "NULL", "ON ERROR", "PATH", "PATTERN")
_SINK_OPTIONS = ("FORMAT", "PATH")
_DELIMITERS: Mapping[str, str] = {"\\t": "\t", "TAB": "\t"}


class _Options:
    """The options of one statement; its methods read them or raise the user's error."""

    __slots__ = ("_statement", "_values")

    def __init__(self, statement: str, values: Mapping[str, str], known: tuple[str, ...]) -> None:
        self._statement = statement
        self._values = values
        for name in values:
            if name not in known:
                raise user_error(
                    "SLACKWATER_UNKNOWN_OPTION",
                    statement=statement,
                    option=name,
                    options=", ".join(known),
                )

    def invalid(self, name: str, reason: str) -> SlackwaterError:
        return user_error(
            "SLACKWATER_INVALID_OPTION",
            option=name,
            statement=self._statement,
            value=repr(self._values.get(name, "")),
            reason=reason,
        )

    def text(self, name: str) -> str | None:
        return self._values.get(name)

    def required(self, name: str) -> str:
        value = self._values.get(name)
        if not value:
            raise self.invalid(name, "it must be given")
        return value

    def whole(self, name: str, least: int) -> int | None:
        text = self._values.get(name)
        if text is None:
            return None
        if not re.fullmatch(r"-?[0-9]{1,18}", text.strip()) or int(text) < least:
            raise self.invalid(name, f"it must be a whole number of at least {least}")
        return int(text)

    def flag(self, name: str) -> bool:
        text = self._values.get(name, "false").strip().lower()
        if text in ("true", "on", "yes", "1", ""):
            return True
        if text in ("false", "off", "no", "0"):
            return False
        raise self.invalid(name, "it must be true or false")

    def interval_ms(self, name: str, default_ms: int) -> int:
        text = self._values.get(name)
        if text is None:
            return default_ms
        milliseconds = interval_ms(text)
        if milliseconds is None or milliseconds < 1:
            raise self.invalid(name, "it must be an interval of at least '1ms', such as '1s'")
        return milliseconds

    def file_format(self) -> FileFormat:
        match self.required("FORMAT").upper():
            case "CSV":
                return "CSV"
            case "JSON":
                return "JSON"
            case "PARQUET":
                return "PARQUET"
            case _:
                raise self.invalid("FORMAT", "it must be CSV, JSON or PARQUET")


def interval_ms(text: str) -> int | None:
    """Milliseconds of an interval such as ``500ms`` or ``1 hour 30 minutes``, or None."""
    parts = re.findall(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)\s*", text)
    rebuilt = re.sub(r"\s+", "", text)
    if not parts or rebuilt != "".join(number + unit for number, unit in parts):
        return None
    if any(unit.lower() not in _UNITS_MS for _, unit in parts):
        return None
    return round(sum(float(number) * _UNITS_MS[unit.lower()] for number, unit in parts))


def generator_config(kind: str, values: Mapping[str, str]) -> GeneratorConfig:
    """The configuration of CREATE SOURCE ... FROM LOAD GENERATOR `kind` (`values`).

    Raises SLACKWATER_UNSUPPORTED, SLACKWATER_UNKNOWN_OPTION, SLACKWATER_INVALID_OPTION.
    """
    known: GeneratorKind
    match kind.upper():
        case "COUNTER":
            known = "COUNTER"
        case "AUCTION":
            known = "AUCTION"
        case "CLOCK":
            known = "CLOCK"
        case _:
            raise user_error(
                "SLACKWATER_UNSUPPORTED",
                feature=f"LOAD GENERATOR {kind.upper()}",
                advice="Use COUNTER, AUCTION or CLOCK.",
            )
    options = _Options(f"LOAD GENERATOR {known}", values, _GENERATOR_OPTIONS[known])
    return GeneratorConfig(
        kind=known,
        tick_interval_ms=options.interval_ms("TICK INTERVAL", 1000),
        seed=options.whole("SEED", 0) or 0,
        up_to=options.whole("UP TO", 0),
        max_cardinality=options.whole("MAX CARDINALITY", 1),
    )


def files_config(values: Mapping[str, str], base: str) -> FilesConfig:
    """The configuration of CREATE SOURCE ... FROM FILES (`values`).

    A relative PATH is below `base`. Raises SLACKWATER_UNSUPPORTED, SLACKWATER_UNKNOWN_OPTION,
    SLACKWATER_INVALID_OPTION.
    """
    options = _Options("FROM FILES", values, _FILES_OPTIONS)
    delimiter = options.text("DELIMITER") or ","
    delimiter = _DELIMITERS.get(delimiter, delimiter)
    if len(delimiter.encode()) != 1 or delimiter in '"\\\r\n':
        raise options.invalid("DELIMITER", "it must be one ASCII character, or \\t")
    on_error: Literal["STALL", "SKIP"]
    match (options.text("ON ERROR") or "STALL").upper():
        case "STALL":
            on_error = "STALL"
        case "SKIP":
            on_error = "SKIP"
        case _:
            raise options.invalid("ON ERROR", "it must be STALL or SKIP")
    return FilesConfig(
        path=local_path(options.required("PATH"), base),
        format=Format(
            kind=options.file_format(),
            header=options.flag("HEADER"),
            delimiter=delimiter,
            null_text=options.text("NULL") or "",
        ),
        pattern=options.text("PATTERN"),
        on_error=on_error,
    )


def sink_config(
    values: Mapping[str, str],
    base: str,
    envelope: Envelope = "DIFF",
    key: tuple[str, ...] = (),
    snapshot: bool = True,
) -> SinkConfig:
    """The configuration of CREATE SINK ... INTO FILES (`values`); `check_config` checks the key.

    Raises SLACKWATER_UNSUPPORTED, SLACKWATER_UNKNOWN_OPTION, SLACKWATER_INVALID_OPTION.
    """
    options = _Options("INTO FILES", values, _SINK_OPTIONS)
    form = options.file_format()
    if form == "CSV":
        raise options.invalid("FORMAT", "it must be PARQUET or JSON")
    return SinkConfig(local_path(options.required("PATH"), base), form, envelope, key, snapshot)
