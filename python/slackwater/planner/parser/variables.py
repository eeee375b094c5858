"""The session variables: names, defaults, what values they take.

Only variables that change something are here; the others of Materialize are known by name and
refused, because a setting without effect would be a lie. Source: spec coordinator 5.6.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from slackwater.planner.parser.durations import format_duration, parse_duration
from slackwater.repr.errors import SlackwaterError, unsupported, user_error

STRICT_SERIALIZABLE = "strict serializable"
STRONG_SESSION_SERIALIZABLE = "strong session serializable"
SERIALIZABLE = "serializable"
BOUNDED_STALENESS = "bounded staleness"
PREFIX = "slackwater"

_UPGRADED_LEVELS = ("read uncommitted", "read committed", "repeatable read")
CLUSTER = "quickstart"
"""The name of the cluster that an environment begins with."""


@dataclass(frozen=True, slots=True)
class Assigned:
    """A valid value in its canonical form, and a notice for the user if it is not what he wrote."""

    value: str
    notice: str | None = None


@dataclass(frozen=True, slots=True)
class SessionVariable:
    """One session variable.

    `parse` turns the text of a value into its canonical form and raises ValueError with a
    reason for users. A `read_only` variable has its value from the coordinator; `default` is
    empty then.
    """

    name: str
    default: str
    parse: Callable[[str], Assigned]
    description: str
    read_only: bool = False


def _isolation(text: str) -> Assigned:
    level = " ".join(text.lower().split())
    if level in (STRICT_SERIALIZABLE, STRONG_SESSION_SERIALIZABLE, SERIALIZABLE):
        return Assigned(level)
    if level.startswith(f"{BOUNDED_STALENESS} "):
        return Assigned(f"{BOUNDED_STALENESS} {_staleness(level.removeprefix(BOUNDED_STALENESS))}")
    if level in _UPGRADED_LEVELS:
        return Assigned(
            SERIALIZABLE, f"The isolation level {level} is not weaker here: it is serializable."
        )
    known = (STRICT_SERIALIZABLE, STRONG_SESSION_SERIALIZABLE, SERIALIZABLE)
    raise ValueError(f"the values are {', '.join(known)}, and {BOUNDED_STALENESS} 5s for example")


def _staleness(text: str) -> str:
    """A duration that is longer than nothing."""
    duration = parse_duration(text)
    if duration == 0:
        raise ValueError(f"{BOUNDED_STALENESS} is more than 0 ms")
    return format_duration(duration)


def _cluster(text: str) -> Assigned:
    """The name of a cluster; that there is one, the catalog knows."""
    if not text.strip():
        raise ValueError("the name of a cluster is expected")
    return Assigned(text)


def canonical_duration(text: str) -> str:
    """A duration; like PostgreSQL's, a number without a unit is milliseconds."""
    digits = text.strip()
    bare = digits.isascii() and digits.isdecimal()
    return f"{parse_duration(digits + 'ms' if bare else text)} ms"


def _timeout(text: str) -> Assigned:
    """A duration; 0 means no limit."""
    return Assigned(canonical_duration(text))


def _rate(text: str) -> Assigned:
    """A number from 0 to 1."""
    number = text.strip()
    if re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,20})?(e-[0-9]{1,2})?", number) is None:
        raise ValueError("it is a number from 0 to 1, such as 0.1")
    if float(number) > 1:
        raise ValueError("it goes from 0 to 1")
    return Assigned(str(float(number)))


_UNITS = {"": 1, "b": 1, "kb": 1024, "mb": 1024**2, "gb": 1024**3}


def _size(text: str) -> Assigned:
    """Bytes, or a number with a unit."""
    found = re.fullmatch(r"([0-9]{1,12}) ?([a-z]*)", text.strip().lower())
    unit = None if found is None else _UNITS.get(found[2])
    if found is None or unit is None or int(found[1]) == 0:
        raise ValueError("a size is a number of bytes, or a number with B, kB, MB, GB, as in 64MB")
    return Assigned(f"{int(found[1]) * unit} B")


def canonical_boolean(text: str) -> str:
    """``on`` or ``off``. Raises ValueError with a reason."""
    word = text.strip().lower()
    if word in ("on", "true", "yes", "1"):
        return "on"
    if word in ("off", "false", "no", "0"):
        return "off"
    raise ValueError("the values are on, off")


def _boolean(text: str) -> Assigned:
    return Assigned(canonical_boolean(text))


def _fixed(text: str) -> Assigned:
    raise ValueError("it cannot be changed")


VARIABLES: Mapping[str, SessionVariable] = {
    variable.name: variable
    for variable in (
        SessionVariable(
            "cluster",
            CLUSTER,
            _cluster,
            "The cluster whose indexes reads use, and on which new objects run",
        ),
        SessionVariable(
            "emit_timestamp_notice",
            "off",
            _boolean,
            "Whether every read says in a notice at which time it reads",
        ),
        SessionVariable(
            "max_query_result_size",
            f"{1024**3} B",
            _size,
            "The most that the rows of a query, a SUBSCRIBE or a FETCH may have in memory",
        ),
        SessionVariable("mz_version", "", _fixed, "The version of Slackwater", read_only=True),
        SessionVariable(
            "statement_logging_sample_rate",
            "1.0",
            _rate,
            "The part of statements that the history keeps; at most that of the system",
        ),
        SessionVariable(
            "statement_timeout",
            "60000 ms",
            _timeout,
            "How long a statement waits before it is given up; 0 for ever",
        ),
        SessionVariable(
            "transaction_isolation",
            STRICT_SERIALIZABLE,
            _isolation,
            "How reads choose their time",
        ),
    )
}

KNOWN_NAMES: frozenset[str] = frozenset(VARIABLES) | frozenset(
    [
        "application_name",
        "client_encoding",
        "client_min_messages",
        "cluster_replica",
        "current_object_missing_warnings",
        "database",
        "datestyle",
        "extra_float_digits",
        "search_path",
        "sql_safe_updates",
        "idle_in_transaction_session_timeout",
        "timezone",
        "real_time_recency",
        "real_time_recency_timeout",
        "emit_plan_insights_notice",
        "emit_trace_id_notice",
        "emit_introspection_query_notice",
        "auto_route_catalog_queries",
        "enable_session_rbac_checks",
        "welcome_message",
        "is_superuser",
        "max_identifier_length",
        "server_version",
    ]
)
"""Every name, in lower case, that belongs to Slackwater and not to Spark's configuration."""


def variable(name: str) -> SessionVariable:
    """The variable `name`, in any case, with or without the prefix ``slackwater.``.

    Raises SLACKWATER_UNSUPPORTED for one of Materialize's that would do nothing here, and
    SLACKWATER_UNKNOWN_VARIABLE for any other.
    """
    key = name.lower().removeprefix(f"{PREFIX}.")
    found = VARIABLES.get(key)
    if found is not None:
        return found
    if key in KNOWN_NAMES:
        instead = f"The variables are {', '.join(VARIABLES)}."
        raise unsupported(
            f"The variable {key}",
            advice="SET TIME ZONE '...' is Spark's." if key == "timezone" else instead,
        )
    raise user_error("SLACKWATER_UNKNOWN_VARIABLE", variable=name)


def assign(name: str, value: str | None) -> Assigned:
    """The value of `variable(name)` after it is set to `value`; None means its default.

    Raises SLACKWATER_READ_ONLY_VARIABLE, SLACKWATER_INVALID_VARIABLE, and what `variable` does.
    """
    found = variable(name)
    if found.read_only:
        raise user_error("SLACKWATER_READ_ONLY_VARIABLE", variable=found.name)
    if value is None:
        return Assigned(found.default)
    try:
        return found.parse(value)
    except ValueError as reason:
        raise invalid(found.name, value, reason) from None


def invalid(name: str, value: str, reason: ValueError) -> SlackwaterError:
    """SLACKWATER_INVALID_VARIABLE for a value that a variable or parameter does not take."""
    return user_error(
        "SLACKWATER_INVALID_VARIABLE", variable=name, value=repr(value), reason=str(reason)
    )


@lru_cache(maxsize=64)
def milliseconds(value: str) -> int:
    """The canonical value of a timeout as a number."""
    return parse_duration(value)


def parse_size(text: str) -> int:
    """The size that users write as ``64MB``, in bytes. Raises ValueError with a reason."""
    return size_bytes(_size(text).value)


def size_bytes(value: str) -> int:
    """The canonical value of a size as a number."""
    return int(value.removesuffix(" B"))
