"""The parameters of the system: names, defaults, bounds, and values as users write them.

A parameter is a number or a switch that an operator changes while the environment runs. Only those
that change something are here, as with the variables of a session, of which some are parameters as
well: then the parameter is what new sessions begin with. Source: spec coordinator 5.7.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from slackwater.planner.parser import variables
from slackwater.planner.parser.durations import format_duration, parse_duration
from slackwater.repr.errors import unsupported, user_error

MINUTE_MS = 60 * 1000
DAY_MS = 24 * 60 * MINUTE_MS
KB = 1024
MB = 1024 * KB
GB = 1024 * MB


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of the system.

    `parse` turns the text of a value into its canonical form and raises ValueError with a reason
    for users; `values` says which it takes. `of_sessions`: it is the default of the variable of
    that name.
    """

    name: str
    default: str
    parse: Callable[[str], str]
    values: str
    description: str
    of_sessions: bool = False


def _duration(name: str, default_ms: int, bounds: tuple[int, int], description: str) -> Parameter:
    least, most = bounds
    values = f"{format_duration(least)} to {format_duration(most)}"

    def parse(text: str) -> str:
        found = variables.milliseconds(variables.canonical_duration(text))
        if not least <= found <= most:
            raise ValueError(f"it goes from {values}")
        return f"{found} ms"

    return Parameter(name, f"{default_ms} ms", parse, values, description)


def _shown(size: int) -> str:
    for unit, length in (("GB", GB), ("MB", MB), ("kB", KB)):
        if size % length == 0:
            return f"{size // length}{unit}"
    return f"{size}B"


def _size(name: str, default: int, bounds: tuple[int, int], description: str) -> Parameter:
    least, most = bounds
    values = f"{_shown(least)} to {_shown(most)}"

    def parse(text: str) -> str:
        found = variables.parse_size(text)
        if not least <= found <= most:
            raise ValueError(f"it goes from {values}")
        return f"{found} B"

    return Parameter(name, f"{default} B", parse, values, description)


def _count(name: str, default: int, bounds: tuple[int, int], description: str) -> Parameter:
    least, most = bounds
    values = f"{least} to {most}"

    def parse(text: str) -> str:
        digits = text.strip().lstrip("0") or "0"
        is_number = text.isascii() and digits.isdecimal() and len(digits) <= len(str(most))
        if not (is_number and least <= int(digits) <= most):
            raise ValueError(f"it is a whole number from {values}")
        return digits

    return Parameter(name, str(default), parse, values, description)


def _of_sessions(name: str) -> Parameter:
    own = variables.VARIABLES[name]
    return Parameter(
        name,
        own.default,
        lambda text: own.parse(text).value,
        "those of the [variable](#variables-of-a-session)",
        own.description,
        of_sessions=True,
    )


PARAMETERS: Mapping[str, Parameter] = {
    parameter.name: parameter
    for parameter in (
        _count(
            "compute_hydration_concurrency",
            4,
            (1, 1000),
            "How many views and indexes a replica fills at once, without those that are stalled",
        ),
        _duration(
            "default_retain_history",
            1000,
            (0, 3650 * DAY_MS),
            "How much history is kept of what has no RETAIN HISTORY of its own",
        ),
        _duration(
            "default_timestamp_interval",
            1000,
            (10, MINUTE_MS),
            "How often the time of tables and sources moves on while nothing is written",
        ),
        _of_sessions("emit_timestamp_notice"),
        Parameter(
            "enable_storage_shard_finalization",
            "on",
            variables.canonical_boolean,
            "on, off",
            "Whether the files of dropped objects are removed",
        ),
        _size(
            "group_commit_max_waiting_bytes",
            512 * MB,
            (MB, 64 * GB),
            "How many bytes of writes may wait for their commit; more are refused",
        ),
        _count(
            "keep_n_source_status_history_entries",
            200,
            (1, 100_000),
            "How many changes of status are kept of each source",
        ),
        _of_sessions("max_query_result_size"),
        _size(
            "persist_blob_target_size",
            128 * MB,
            (MB, 4 * GB),
            "The size up to which files of a collection are merged",
        ),
        _size(
            "persist_compaction_memory_bound_bytes",
            64 * MB,
            (MB, 4 * GB),
            "How many bytes the coordinator merges by itself; Spark merges more",
        ),
        _size(
            "persist_inline_writes_single_max_bytes",
            2 * MB,
            (1, 16 * MB),
            "Up to this size what is written goes into the metastore and not into a file",
        ),
        _size(
            "persist_inline_writes_total_max_bytes",
            4 * MB,
            (KB, 64 * MB),
            "How many bytes of a collection stay in the metastore before they are merged",
        ),
        _duration(
            "persist_reader_lease_duration",
            15 * MINUTE_MS,
            (MINUTE_MS, DAY_MS),
            "How long replaced files stay, for readers that are not known to the coordinator",
        ),
        _of_sessions("statement_logging_sample_rate"),
        _size(
            "statement_logging_target_data_rate",
            MB,
            (KB, GB),
            "How many bytes of statements a second the history takes; it leaves out what is more",
        ),
        _of_sessions("statement_timeout"),
        _of_sessions("transaction_isolation"),
    )
}
"""All parameters, by their names."""


def parameter(name: str) -> Parameter:
    """The parameter `name`, in any case, with or without the prefix ``slackwater.``.

    Raises SLACKWATER_UNSUPPORTED for a variable that is none of the system,
    SLACKWATER_READ_ONLY_VARIABLE, and SLACKWATER_UNKNOWN_VARIABLE for any other name.
    """
    key = name.lower().removeprefix(f"{variables.PREFIX}.")
    found = PARAMETERS.get(key)
    if found is not None:
        return found
    if key not in variables.KNOWN_NAMES:
        raise user_error("SLACKWATER_UNKNOWN_VARIABLE", variable=name)
    own = variables.VARIABLES.get(key)
    if own is not None and own.read_only:
        raise user_error("SLACKWATER_READ_ONLY_VARIABLE", variable=key)
    raise unsupported(
        f"ALTER SYSTEM SET {key}", advice=f"The parameters are {', '.join(PARAMETERS)}."
    )


def is_of_session(name: str) -> bool:
    """Whether a session has a value of its own: for all names but those of the system alone."""
    found = PARAMETERS.get(name)
    return found is None or found.of_sessions


def checked(name: str, value: str) -> str:
    """The canonical form of a value. Raises SLACKWATER_INVALID_VARIABLE, and what `parameter` does.

    It is a fixed point: ``checked(n, checked(n, v)) == checked(n, v)``.
    """
    found = parameter(name)
    try:
        return found.parse(value)
    except ValueError as reason:
        raise variables.invalid(found.name, value, reason) from None


def milliseconds(values: Mapping[str, str], name: str) -> int | None:
    """The duration among `values`, in milliseconds; None when it is not there."""
    return parse_duration(values[name]) if name in values else None


def size_bytes(values: Mapping[str, str], name: str) -> int | None:
    """The size among `values`, in bytes; None when it is not there."""
    return variables.size_bytes(values[name]) if name in values else None
