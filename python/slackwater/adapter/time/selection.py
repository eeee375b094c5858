"""Timestamp selection: the choice of the one time at which a query reads all its collections.

Pure: frontiers, the oracle's read timestamp, isolation and AS OF in; one time, or an error, out.
The rule is a set of bounds, each with its reason, so that EXPLAIN TIMESTAMP can print those that
bind. A second, independent form of it is in the property tests, which compare the two.

Source: spec coordinator 2.2 to 2.6.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import reduce

from slackwater.adapter.time.isolation import Isolation, Level
from slackwater.repr.errors import FatalError, SlackwaterError, user_error
from slackwater.repr.frontier import (
    EMPTY_FRONTIER,
    MINIMUM_FRONTIER,
    TIMESTAMP_MAX,
    Frontier,
    Timestamp,
)
from slackwater.repr.ids import GlobalId


@dataclass(frozen=True, slots=True)
class Immediately:
    """No AS OF."""


@dataclass(frozen=True, slots=True)
class AtTimestamp:
    """``AS OF t``."""

    timestamp: Timestamp


@dataclass(frozen=True, slots=True)
class AtLeastTimestamp:
    """``AS OF AT LEAST t``."""

    timestamp: Timestamp


@dataclass(frozen=True, slots=True)
class FreshestTableWrite:
    """The read of a read-then-write: it must see every write that has been acknowledged."""


@dataclass(frozen=True, slots=True)
class InBlock:
    """A read of a transaction block whose time is chosen."""

    timestamp: Timestamp


QueryWhen = Immediately | AtTimestamp | AtLeastTimestamp | FreshestTableWrite | InBlock


def as_of_timestamp(when: QueryWhen) -> Timestamp | None:
    """The time that the statement or its block names, if one does."""
    return when.timestamp if isinstance(when, AtTimestamp | AtLeastTimestamp | InBlock) else None


def advances_to_since(when: QueryWhen) -> bool:
    return not isinstance(when, AtTimestamp | InBlock)


def is_transactional(when: QueryWhen) -> bool:
    """Whether the chosen time becomes the time of the transaction that the query runs in."""
    return isinstance(when, Immediately | FreshestTableWrite)


class InputKind(Enum):
    STORAGE = "storage"
    COMPUTE = "compute"


@dataclass(frozen=True, slots=True)
class InputFrontiers:
    """One collection that the query reads. `name` is qualified, for messages.

    `since` must be protected by a hold for as long as the outcome is used.
    """

    id: GlobalId
    name: str
    since: Frontier
    upper: Frontier
    kind: InputKind = InputKind.STORAGE


@dataclass(frozen=True, slots=True)
class TimestampRequest:
    """Everything that the choice depends on.

    `depends_on_time`: the query mentions `mz_now()`. A query without inputs that does not is
    constant and needs no time. `oracle_read_ts` must be given when `needs_oracle_read` says so.
    The freshest time is before `present`, also where all inputs are final beyond it. Where the
    isolation goes by what the session has seen, `session_ts` is the latest of that.
    """

    inputs: tuple[InputFrontiers, ...]
    isolation: Isolation
    when: QueryWhen
    oracle_read_ts: Timestamp | None = None
    depends_on_time: bool = False
    present: Frontier = EMPTY_FRONTIER
    session_ts: Timestamp | None = None

    @property
    def chooses_by(self) -> Level | None:
        """The level by which the time is chosen; None: the query, its block or a write says."""
        is_chosen = bool(self.inputs) and isinstance(self.when, Immediately)
        return self.isolation.level if is_chosen else None

    @property
    def largest_complete(self) -> Timestamp:
        """The latest time at which all inputs are final, before the present."""
        return min(meet_of_uppers(self.inputs), self.present).last_complete()


@dataclass(frozen=True, slots=True)
class TimelineTimestamp:
    """A time on the one timeline that there is, EpochMilliseconds."""

    chosen_ts: Timestamp
    oracle_ts: Timestamp | None


@dataclass(frozen=True, slots=True)
class NoTimestamp:
    """The query is constant: any time would do."""


TimestampContext = TimelineTimestamp | NoTimestamp


class Reason(Enum):
    STORAGE_INPUT = "StorageInput"
    COMPUTE_INPUT = "ComputeInput"
    QUERY_AS_OF = "QueryAsOf"
    ISOLATION_LEVEL = "IsolationLevel"
    TRANSACTION = "Transaction"


@dataclass(frozen=True, slots=True)
class Constraint:
    """An inclusive bound of the chosen time.

    `ids` and `isolation` are the collections or the isolation level that it comes from, if any.
    """

    bound: Frontier
    reason: Reason
    ids: tuple[GlobalId, ...] = ()
    isolation: Isolation | None = None


@dataclass(frozen=True, slots=True)
class Constraints:
    """The binding bounds: those that no other bound implies."""

    lower: tuple[Constraint, ...]
    upper: tuple[Constraint, ...]


@dataclass(frozen=True, slots=True)
class TimestampDetermination:
    """The choice, and the bounds and frontiers from which it was made.

    `since` and `upper` are those of all inputs together. `respond_immediately`: no input has to
    progress before the query can be answered.
    """

    timestamp_context: TimestampContext
    since: Frontier
    upper: Frontier
    largest_not_in_advance_of_upper: Timestamp
    oracle_read_ts: Timestamp | None
    constraints: Constraints
    respond_immediately: bool
    session_ts: Timestamp | None = None

    @property
    def timestamp(self) -> Timestamp:
        """The chosen time; the maximum for a constant query."""
        context = self.timestamp_context
        return context.chosen_ts if isinstance(context, TimelineTimestamp) else TIMESTAMP_MAX

    @property
    def has_timestamp(self) -> bool:
        return isinstance(self.timestamp_context, TimelineTimestamp)


def needs_oracle_read(
    isolation: Isolation, when: QueryWhen, *, has_inputs: bool, depends_on_time: bool
) -> bool:
    """Whether `determine` needs the oracle's read timestamp.

    It must then be read after the statement arrived; an older value breaks linearizability.
    A query without inputs that shows `mz_now()` has no upper to follow, so at every isolation
    level the oracle is its present.
    """
    if not has_inputs and not depends_on_time:
        return False
    match when:
        case FreshestTableWrite():
            return True
        case Immediately():
            return isolation.follows_oracle or not has_inputs
        case _:
            return False


def join_of_sinces(inputs: Iterable[InputFrontiers]) -> Frontier:
    return reduce(Frontier.join, (i.since for i in inputs), MINIMUM_FRONTIER)


def meet_of_uppers(inputs: Iterable[InputFrontiers]) -> Frontier:
    return reduce(Frontier.meet, (i.upper for i in inputs), EMPTY_FRONTIER)


def _used_oracle_ts(request: TimestampRequest) -> Timestamp | None:
    if not needs_oracle_read(
        request.isolation,
        request.when,
        has_inputs=bool(request.inputs),
        depends_on_time=request.depends_on_time,
    ):
        return None
    if request.oracle_read_ts is None:
        raise FatalError("the oracle was not read for a query that needs its read timestamp")
    return request.oracle_read_ts


def _freshest(request: TimestampRequest) -> Timestamp | None:
    """The time that the choice goes up to where its bounds let it; None: it takes the earliest."""
    match request.chooses_by:
        case Level.SERIALIZABLE | Level.BOUNDED_STALENESS:
            return request.largest_complete
        case Level.STRONG_SESSION_SERIALIZABLE:
            oracle_ts = _used_oracle_ts(request)
            assert oracle_ts is not None
            return min(request.largest_complete, oracle_ts)
        case _:
            return None


def _bounds_of_isolation(
    request: TimestampRequest,
) -> tuple[Timestamp | None, Timestamp | None]:
    """The earliest and the latest time that the isolation level allows, where it says one."""
    oracle_ts = _used_oracle_ts(request)
    match request.chooses_by:
        case Level.STRONG_SESSION_SERIALIZABLE:
            return request.session_ts, None
        case Level.BOUNDED_STALENESS:
            assert oracle_ts is not None
            earliest = max(0, oracle_ts - request.isolation.staleness_ms)
            return Timestamp(earliest), request.largest_complete
        case _:
            return oracle_ts, None


def _readable_at(since: Frontier, time: Timestamp) -> bool:
    # allows() is false for the empty since, which no time is beyond: a dropped input.
    return since.allows(time)


def gather_constraints(request: TimestampRequest) -> Constraints:
    """All bounds, dominated ones included, each with its reason."""
    lower: list[Constraint] = []
    upper: list[Constraint] = []
    for kind, reason in (
        (InputKind.STORAGE, Reason.STORAGE_INPUT),
        (InputKind.COMPUTE, Reason.COMPUTE_INPUT),
    ):
        by_since: dict[Frontier, list[GlobalId]] = {}
        for each in request.inputs:
            if each.kind is kind:
                by_since.setdefault(each.since, []).append(each.id)
        lower += [Constraint(s, reason, tuple(ids)) for s, ids in sorted(by_since.items())]
    named = as_of_timestamp(request.when)
    if named is not None:
        is_block = isinstance(request.when, InBlock)
        bound = Constraint(Frontier(named), Reason.TRANSACTION if is_block else Reason.QUERY_AS_OF)
        lower.append(bound)
        if not advances_to_since(request.when):
            upper.append(bound)
    for bounds, time in zip((lower, upper), _bounds_of_isolation(request), strict=True):
        if time is not None:
            level = Reason.ISOLATION_LEVEL
            bounds.append(Constraint(Frontier(time), level, isolation=request.isolation))
    return Constraints(tuple(lower), tuple(upper))


def minimize(constraints: Constraints) -> Constraints:
    """Only the binding bounds: time is totally ordered, so those equal to the tightest."""
    tightest_lower = max((c.bound for c in constraints.lower), default=MINIMUM_FRONTIER)
    tightest_upper = min((c.bound for c in constraints.upper), default=EMPTY_FRONTIER)
    return Constraints(
        tuple(c for c in constraints.lower if c.bound == tightest_lower),
        tuple(c for c in constraints.upper if c.bound == tightest_upper),
    )


def solve_constraints(request: TimestampRequest, constraints: Constraints) -> Timestamp | None:
    """The time by the constraint form of spec 2.4, or None if the bounds contradict each other."""
    lower = max((c.bound for c in constraints.lower), default=MINIMUM_FRONTIER)
    upper = min((c.bound for c in constraints.upper), default=None)
    candidate = Timestamp(lower.value)
    freshest = _freshest(request)
    if freshest is not None:
        bounds = [Timestamp(c.bound.value) for c in constraints.upper]
        candidate = max(candidate, min([*bounds, freshest]))
    if upper is not None and candidate > upper.value:
        return None
    if any(i.since.is_empty for i in request.inputs):
        return None
    # A closed collection is complete through MAX, but MAX as a *since* is the empty one, so only
    # an empty since can make a candidate of MAX invalid, and that case has been handled.
    return candidate


def determine(request: TimestampRequest) -> TimestampDetermination:
    """Chooses the time of a query.

    Raises SLACKWATER_NO_VALID_TIMESTAMP, which names each input that cannot be read at the time
    and its since, and SLACKWATER_STALENESS_EXCEEDED, which names the input that is furthest behind.
    Raises FatalError if the oracle's read timestamp is needed and missing.
    """
    since = join_of_sinces(request.inputs)
    upper = meet_of_uppers(request.inputs)
    largest = upper.last_complete()
    if not request.inputs and not request.depends_on_time:
        return TimestampDetermination(
            NoTimestamp(), since, upper, largest, None, Constraints((), ()), True
        )
    constraints = gather_constraints(request)
    chosen = solve_constraints(request, constraints)
    if chosen is None:
        raise _too_stale(request) or no_valid_timestamp(request)
    oracle_ts = _used_oracle_ts(request)
    return TimestampDetermination(
        timestamp_context=TimelineTimestamp(chosen, oracle_ts),
        since=since,
        upper=upper,
        largest_not_in_advance_of_upper=largest,
        oracle_read_ts=oracle_ts,
        constraints=minimize(constraints),
        respond_immediately=is_complete_at(request.inputs, chosen),
        session_ts=request.session_ts,
    )


def is_complete_at(inputs: Sequence[InputFrontiers], time: Timestamp) -> bool:
    """Whether the contents of all inputs at `time` are final."""
    return not any(i.upper.allows(time) for i in inputs)


def no_valid_timestamp(request: TimestampRequest) -> SlackwaterError:
    """The error for a request that no time satisfies."""
    named = as_of_timestamp(request.when)
    wanted = TIMESTAMP_MAX if named is None else named
    offending = [i for i in request.inputs if not _readable_at(i.since, wanted)] or [
        i for i in request.inputs if i.since.is_empty
    ]
    details = ", ".join(f"{i.name} {_since_text(i.since)}" for i in offending)
    prefix = "" if named is None else f"it asks for {named}, but "
    return user_error("SLACKWATER_NO_VALID_TIMESTAMP", details=prefix + details)


def _too_stale(request: TimestampRequest) -> SlackwaterError | None:
    """The error for inputs that are further behind than the isolation allows, if they are."""
    is_bounded = request.chooses_by is Level.BOUNDED_STALENESS
    if not is_bounded or any(i.since.is_empty for i in request.inputs):
        return None
    slowest = min(request.inputs, key=lambda each: each.upper)
    return user_error(
        "SLACKWATER_STALENESS_EXCEEDED",
        objectName=slowest.name,
        lag=str((_used_oracle_ts(request) or 0) - request.largest_complete),
        staleness=str(request.isolation.staleness_ms),
    )


def _since_text(since: Frontier) -> str:
    if since.is_empty:
        return "has been dropped and can be read at no time"
    return f"(since {since.value}) can only be read from {since.value} on"
