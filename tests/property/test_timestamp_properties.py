"""Timestamp selection and the oracle keep their promises."""

from hypothesis import given
from hypothesis import strategies as st
from tests.property.histories import histories

from slackwater.adapter.time.isolation import Isolation, Level
from slackwater.adapter.time.oracle import TimestampOracle
from slackwater.adapter.time.selection import (
    AtLeastTimestamp,
    AtTimestamp,
    FreshestTableWrite,
    Immediately,
    InputFrontiers,
    InputKind,
    TimestampRequest,
    determine,
    gather_constraints,
    minimize,
    solve_constraints,
)
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import TIMESTAMP_MAX, Frontier, Timestamp
from slackwater.repr.ids import GlobalId

times = st.one_of(st.integers(0, 12), st.just(TIMESTAMP_MAX - 1)).map(Timestamp)
frontiers = st.one_of(st.integers(0, 12), st.just(TIMESTAMP_MAX)).map(Frontier)
whens = st.one_of(
    st.just(Immediately()),
    st.just(FreshestTableWrite()),
    times.map(AtTimestamp),
    times.map(AtLeastTimestamp),
)
inputs = st.builds(
    InputFrontiers,
    st.integers(1, 9).map(lambda n: GlobalId(f"u{n}")),
    st.just("slackwater.default.t"),
    frontiers,
    frontiers,
    st.sampled_from(InputKind),
)
isolations = st.builds(
    lambda level, staleness: Isolation(level, staleness * (level is Level.BOUNDED_STALENESS)),
    st.sampled_from(Level),
    st.integers(1, 20),
)
requests = st.builds(
    TimestampRequest,
    st.lists(inputs, min_size=1, max_size=4).map(tuple),
    isolations,
    whens,
    times,
    st.just(False),
    frontiers,
    st.none() | times,
)


def by_steps(request):
    """The time by the steps of spec coordinator 2.4; None: it is not valid for all inputs."""
    when = request.when
    candidate = when.timestamp if isinstance(when, AtTimestamp | AtLeastTimestamp) else 0
    since = max(each.since.value for each in request.inputs)
    if not isinstance(when, AtTimestamp):
        candidate = max(candidate, since)
    oracle, level = request.oracle_read_ts, request.isolation.level
    upper = min((each.upper for each in request.inputs), key=lambda upper: upper.value)
    largest = min(upper, request.present).last_complete()
    if isinstance(when, FreshestTableWrite):
        candidate = max(candidate, oracle)
    elif isinstance(when, Immediately):
        match level:
            case Level.STRICT_SERIALIZABLE:
                candidate = max(candidate, oracle)
            case Level.STRONG_SESSION_SERIALIZABLE:
                candidate = max(candidate, request.session_ts or 0, min(largest, oracle))
            case Level.SERIALIZABLE:
                candidate = max(candidate, largest)
            case Level.BOUNDED_STALENESS:
                earliest = max(candidate, oracle - request.isolation.staleness_ms)
                candidate = largest if earliest <= largest else None
    if candidate is None:
        return None
    dropped = any(each.since.is_empty for each in request.inputs)
    return None if dropped or candidate < since else candidate


@histories()
@given(requests)
def test_both_forms_agree_and_minimizing_changes_nothing(request):
    constraints = gather_constraints(request)
    expected = by_steps(request)
    assert solve_constraints(request, constraints) == expected
    assert solve_constraints(request, minimize(constraints)) == expected


@histories()
@given(requests)
def test_the_choice_is_readable_and_recent_enough(request):
    try:
        determination = determine(request)
    except SlackwaterError:
        dropped = any(i.since.is_empty for i in request.inputs)
        too_early = isinstance(request.when, AtTimestamp) and any(
            i.since.value > request.when.timestamp for i in request.inputs
        )
        too_stale = (
            isinstance(request.when, Immediately)
            and request.isolation.level is Level.BOUNDED_STALENESS
            and by_steps(request) is None
        )
        assert dropped or too_early or too_stale
        return
    chosen = determination.timestamp
    assert all(i.since.allows(chosen) for i in request.inputs)
    if isinstance(request.when, AtTimestamp):
        assert chosen == request.when.timestamp
    elif isinstance(request.when, AtLeastTimestamp):
        assert chosen >= request.when.timestamp
    elif isinstance(request.when, FreshestTableWrite) or (
        request.isolation.level is Level.STRICT_SERIALIZABLE
    ):
        assert chosen >= request.oracle_read_ts
    elif request.isolation.level is Level.STRONG_SESSION_SERIALIZABLE:
        assert chosen >= (request.session_ts or 0)
    elif request.isolation.level is Level.BOUNDED_STALENESS:
        assert chosen >= request.oracle_read_ts - request.isolation.staleness_ms
        assert determination.respond_immediately
    complete = all(i.upper.is_empty or chosen < i.upper.value for i in request.inputs)
    assert determination.respond_immediately == complete


@histories()
@given(
    st.integers(0, 9),
    st.lists(
        st.integers(0, 30) | st.sampled_from(["write", "commit", "acknowledge", "read", "restart"]),
        max_size=40,
    ),
)
def test_i55_times_of_reads_and_writes_are_linear_over_clocks_and_restarts(upper, steps):
    """The clock jumps to any number; a process ends at any point of a group commit."""
    clock = [0]
    oracle = TimestampOracle.recover(Timestamp(upper), lambda: clock[0])
    durable, last_write, latest_read, acknowledged = upper, upper - 1, 0, 0
    waiting: list[int] = []
    committed: list[int] = []
    for step in steps:
        if step == "write":
            given_out = oracle.write_ts()
            assert given_out.timestamp > max(last_write, latest_read)
            assert given_out.timestamp >= max(clock[0], durable)
            assert given_out.advance_to == given_out.timestamp + 1
            last_write = given_out.timestamp
            waiting.append(last_write)
        elif step == "commit" and waiting:
            committed.append(waiting.pop(0))
            durable = committed[-1] + 1
        elif step == "acknowledge" and committed:
            acknowledged = committed.pop(0)
            oracle.apply_write(Timestamp(acknowledged))
        elif step == "read":
            read = oracle.read_ts()
            assert max(acknowledged, latest_read) <= read <= max(0, durable - 1)
            latest_read = read
        elif step == "restart":
            # What was committed but not acknowledged may be read now; what was not is lost.
            waiting, committed, last_write = [], [], durable - 1
            oracle = TimestampOracle.recover(Timestamp(durable), lambda: clock[0])
        elif isinstance(step, int):
            clock[0] = step
