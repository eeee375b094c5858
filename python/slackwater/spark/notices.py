"""Notices in Python: what statements said beside their results, as values and as warnings."""

from __future__ import annotations

import json
import sys
import threading
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any, TextIO

from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JError

LISTENERS = "org.apache.spark.sql.slackwater.process.Notices"
BETWEEN = ("pyspark", "py4j", "slackwater", "threading")
"""The packages between a user's line and the warning about it."""
NOWHERE = "<slackwater>"
"""The file of a warning that no line of the user has caused."""
NEXT_MS = 60_000
WAITS_FOR = "waits_for"


@dataclass(frozen=True, slots=True)
class Notice:
    """A message beside a result. `severity` is NOTICE or WARNING, `code` an SQLSTATE.

    `hint` says what to do; it is empty where nothing is to be done.
    """

    severity: str
    code: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".rstrip()


class SlackwaterNotice(UserWarning):
    """The warning for a notice, whose text it has; `notice` has its parts."""

    def __init__(self, notice: Notice) -> None:
        super().__init__(str(notice))
        self.notice = notice


def notices(spark: Any) -> list[Notice]:
    """The last hundred notices of the session `spark`, the oldest first.

    `spark` is a session of any kind, a Connect session included. Raises what Spark does when the
    current catalog is not Slackwater's.
    """
    rows = spark.sql("SHOW NOTICES").collect()
    return [Notice(row["name"], row["code"], row["message"], row["hint"]) for row in rows]


def warn_of_notices(spark: Any) -> None:
    """Makes a `SlackwaterNotice` of each notice of this application from now on.

    `warnings.warn` is called while the statement runs, for the user's line that has started it, and
    filters of warnings apply. One that would be raised as an error is written to standard error:
    the statement has had its effect. What Spark does in threads of its own, as for `toPandas`, and
    all of it where PYSPARK_PIN_THREAD is false, is told by another thread, a moment later and
    without a line. Does nothing for a Connect session, whose driver is elsewhere: `notices` has
    them. The session of a builder that `slackwater.configure` made calls it by itself.

    In a notebook, and where somebody types at Python, a line of standard error says what a
    statement waits for when that takes longer than a second.
    """
    listeners = _listeners(spark)
    if listeners is None or listeners.isListenedTo():
        return
    warner = Warner()
    listeners.listen(warner, _is_watched())
    threading.Thread(
        target=_take_others, args=(listeners, warner), name="slackwater-notices", daemon=True
    ).start()


def lacks_jar(spark: Any) -> bool:
    """Whether the session's driver is here, and runs without the jar."""
    return getattr(spark, "_sc", None) is not None and _listeners(spark) is None


def _listeners(spark: Any) -> Any:
    """The JVM's class that has the notices; None without the jar, or where the JVM is elsewhere."""
    context = getattr(spark, "_sc", None)
    if context is None:
        return None
    found = context._gateway.jvm
    for part in LISTENERS.split("."):
        found = getattr(found, part)
    # Without the jar the name is that of a package, which may have anything in it.
    return found if isinstance(found, JavaClass) else None


class Warner:
    """A `java.util.function.Consumer` of the JSON of notices, which the driver calls."""

    def accept(self, told: str) -> None:
        self.take(json.loads(told))

    def take(self, told: Mapping[str, str]) -> None:
        notice = Notice(**told)
        try:
            _warn(SlackwaterNotice(notice))
        except SlackwaterNotice as unwanted:
            print(f"{notice.severity}: {unwanted}", file=sys.stderr)

    class Java:
        implements = ("java.util.function.Consumer",)


def _take_others(listeners: Any, warner: Warner) -> None:
    """Takes the notices of other threads of the driver, until it has ended."""
    line = WaitLine(sys.stderr)
    while True:
        try:
            told = listeners.next(NEXT_MS)
        except (Py4JError, OSError):
            return
        if told is None:
            continue
        found = json.loads(told)
        if WAITS_FOR in found:
            line.show(found[WAITS_FOR] or "")
        else:
            warner.take(found)


class WaitLine:
    """A line of `stream` that says what a statement waits for, and that the next one replaces."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown = 0

    def show(self, text: str) -> None:
        """Shows `text`; nothing of the line is left when it is empty."""
        # Spaces over what was there serve terminals and notebooks alike.
        self._stream.write(f"\r{text.ljust(self._shown)}" + ("" if text else "\r"))
        self._stream.flush()
        self._shown = len(text)


def _is_watched() -> bool:
    """Whether somebody types at this program, and sees what it writes to standard error."""
    return "ipykernel" in sys.modules or (hasattr(sys, "ps1") and sys.stderr.isatty())


def _warn(warning: SlackwaterNotice) -> None:
    """Warns at the line of the user that this thread comes from, if there is one."""
    frame: FrameType | None = sys._getframe(1)
    level = 2
    while frame is not None and _package(frame) in BETWEEN:
        frame, level = frame.f_back, level + 1
    if frame is None:
        warnings.warn_explicit(warning, None, NOWHERE, 1)
    else:
        warnings.warn(warning, stacklevel=level)


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]
