"""Both forms of timestamp selection agree, and their choice keeps its promises."""

from hypothesis import given
from hypothesis import strategies as st

from slackwater.adapter.timestamp_selection import (
    AtLeastTimestamp,
    AtTimestamp,
    FreshestTableWrite,
    Immediately,
    InputFrontiers,
    InputKind,
    Isolation,
    TimestampRequest,
    classical_candidate,
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
requests = st.builds(
    TimestampRequest,
    st.lists(inputs, min_size=1, max_size=4).map(tuple),
    st.sampled_from(Isolation),
    whens,
    times,
)


@given(requests)
def test_both_forms_agree_and_minimizing_changes_nothing(request):
    constraints = gather_constraints(request)
    expected = classical_candidate(request)
    assert solve_constraints(request, constraints) == expected
    assert solve_constraints(request, minimize(constraints)) == expected


@given(requests)
def test_the_choice_is_readable_and_recent_enough(request):
    try:
        determination = determine(request)
    except SlackwaterError:
        dropped = any(i.since.is_empty for i in request.inputs)
        too_early = isinstance(request.when, AtTimestamp) and any(
            i.since.value > request.when.timestamp for i in request.inputs
        )
        assert dropped or too_early
        return
    chosen = determination.timestamp
    assert all(i.since.allows(chosen) for i in request.inputs)
    if isinstance(request.when, AtTimestamp):
        assert chosen == request.when.timestamp
    elif isinstance(request.when, AtLeastTimestamp):
        assert chosen >= request.when.timestamp
    elif isinstance(request.when, FreshestTableWrite) or (
        request.isolation is Isolation.STRICT_SERIALIZABLE
    ):
        assert chosen >= request.oracle_read_ts
    complete = all(i.upper.is_empty or chosen < i.upper.value for i in request.inputs)
    assert determination.respond_immediately == complete
