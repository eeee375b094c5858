"""The parameters of the system, as they are now: by ALTER SYSTEM, by the file, or by default.

Source: spec controllers M2, coordinator 5.7.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from slackwater.planner.parser.parameters import PARAMETERS, checked
from slackwater.repr.errors import SlackwaterError, user_error

MOST_CHARACTERS = 1024 * 1024
"""The length of the longest file that is read."""

_log = structlog.get_logger("parameters")


@dataclass(frozen=True, slots=True)
class ParameterEntry:
    """A parameter as it is now. `source` is ``system``, ``file`` or ``default``."""

    name: str
    value: str
    default: str
    source: str
    description: str


class SystemParameters:
    """The values of all parameters. One thread at a time changes them; any thread may ask.

    For each parameter, at all times::

        value == what ALTER SYSTEM set, else what the file says, else the default

    What has another value after a change is told to each of `controllers`, as a mapping of names to
    values, before the change returns. It does not guarantee that what runs goes by it already.
    """

    def __init__(self, controllers: Sequence[Callable[[Mapping[str, str]], None]]) -> None:
        self._controllers = controllers
        self._in_file: Mapping[str, str] = {}
        self._altered: Mapping[str, str] = {}

    def alter(self, values: Mapping[str, str]) -> None:
        """Takes all values that ALTER SYSTEM has set.

        Names and values that another version wrote, and this one does not know, have no effect.
        """
        known = {}
        for name, value in values.items():
            try:
                known[name] = checked(name, value)
            except SlackwaterError as error:
                _log.warning("parameter ignored", name=name, value=value, error=error.message)
        self._change(self._in_file, known)

    def load(self, values: Mapping[str, str]) -> None:
        """Takes all values of the file, which `ParameterFile` has checked."""
        self._change(values, self._altered)

    def value(self, name: str) -> str:
        """The value now. KeyError for a name that is none."""
        return self._altered.get(name) or self._in_file.get(name) or PARAMETERS[name].default

    def entries(self) -> tuple[ParameterEntry, ...]:
        """All parameters, by name."""
        altered, in_file = self._altered, self._in_file
        found = []
        for name, parameter in sorted(PARAMETERS.items()):
            value, source = parameter.default, "default"
            if name in altered:
                value, source = altered[name], "system"
            elif name in in_file:
                value, source = in_file[name], "file"
            found.append(
                ParameterEntry(name, value, parameter.default, source, parameter.description)
            )
        return tuple(found)

    def _change(self, in_file: Mapping[str, str], altered: Mapping[str, str]) -> None:
        before = {**self._in_file, **self._altered}
        after = {**in_file, **altered}
        self._in_file, self._altered = in_file, altered
        changed = {
            name: after.get(name, PARAMETERS[name].default)
            for name in sorted({*before, *after})
            if before.get(name) != after.get(name)
        }
        if changed:
            _log.info("parameters", **changed)
            for update_configuration in self._controllers:
                update_configuration(changed)


class ParameterFile:
    """A file with a parameter in each line, ``name = value``. Not thread-safe.

    A value may stand in single quotes. Empty lines, and those that begin with ``#``, are left out.
    A file that cannot be read, or has one line that is not right, is ignored as a whole: `refused`
    is told why, once until the file changes, and what was read before stays.
    """

    def __init__(self, path: Path, refused: Callable[[SlackwaterError], None]) -> None:
        self.path = path
        self._refused = refused
        self._seen: str | None = None
        self._fault: tuple[str | None, str] | None = None

    def look(self) -> Mapping[str, str] | None:
        """All values of the file, if it is right and has changed; None: what there was, stays."""
        text = None
        try:
            text = self._text()
            values = None if text == self._seen else self._values(text)
        except SlackwaterError as error:
            fault = (text, error.message)
            if fault != self._fault:
                self._fault = fault
                self._refused(error)
            return None
        self._seen, self._fault = text, None
        return values

    def _text(self) -> str:
        try:
            with self.path.open(encoding="utf-8") as file:
                text = file.read(MOST_CHARACTERS + 1)
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
            raise self._wrong(reason or type(error).__name__) from None
        if len(text) > MOST_CHARACTERS:
            raise self._wrong(f"it has more than {MOST_CHARACTERS} characters")
        return text

    def _values(self, text: str) -> Mapping[str, str]:
        found: dict[str, str] = {}
        for number, line in enumerate(text.splitlines(), start=1):
            stripped = line.strip()
            if not stripped or stripped.startswith("#"):
                continue
            name, sign, value = (each.strip() for each in stripped.partition("="))
            if not (name and sign and value):
                raise self._wrong(f"line {number} is no name = value")
            if name in found:
                raise self._wrong(f"line {number} names {name} again")
            is_quoted = len(value) > 1 and value[0] == value[-1] == "'"
            try:
                found[name] = checked(name, value[1:-1] if is_quoted else value)
            except SlackwaterError as error:
                raise self._wrong(f"line {number}: {error.message}") from None
        return found

    def _wrong(self, reason: str) -> SlackwaterError:
        return user_error("SLACKWATER_PARAMETERS_FILE", path=str(self.path), reason=reason)
