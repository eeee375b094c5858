"""Timestamp selection and its explanation, the oracle, retention, transactions."""

import json
from textwrap import dedent

import pytest

from slackwater.adapter import transactions as tx
from slackwater.adapter.time.explain import (
    TimestampExplanation,
    explain_json,
    explain_text,
    reason_text,
)
from slackwater.adapter.time.isolation import STRICT_SERIALIZABLE, Isolation, Level
from slackwater.adapter.time.oracle import TimestampOracle
from slackwater.adapter.time.selection import (
    AtLeastTimestamp,
    AtTimestamp,
    Constraint,
    FreshestTableWrite,
    Immediately,
    InputFrontiers,
    InputKind,
    NoTimestamp,
    Reason,
    TimestampRequest,
    determine,
)
from slackwater.repr.errors import FatalError, SlackwaterError
from slackwater.repr.frontier import EMPTY_FRONTIER, TIMESTAMP_MAX, Frontier, Timestamp
from slackwater.repr.ids import GlobalId

STRICT, SERIALIZABLE = STRICT_SERIALIZABLE, Isolation(Level.SERIALIZABLE)
STRONG = Isolation(Level.STRONG_SESSION_SERIALIZABLE)
BOUNDED = Isolation(Level.BOUNDED_STALENESS, 5)


def an_input(since, upper, number=1, kind=InputKind.STORAGE):
    return InputFrontiers(
        GlobalId(f"u{number}"),
        f"slackwater.default.t{number}",
        Frontier(since),
        Frontier(upper),
        kind,
    )


def choose(isolation, oracle, when, *inputs, session_ts=None):
    inputs = inputs or (an_input(10, 20),)
    return determine(TimestampRequest(inputs, isolation, when, oracle, session_ts=session_ts))


@pytest.mark.parametrize(
    ("isolation", "oracle", "when", "expected"),
    [
        (STRICT, 5, Immediately(), 10),
        (STRICT, 15, Immediately(), 15),
        (STRICT, 25, Immediately(), 25),
        (STRICT, 25, FreshestTableWrite(), 25),
        (STRICT, 15, AtLeastTimestamp(5), 10),
        (SERIALIZABLE, 5, Immediately(), 19),
        (SERIALIZABLE, 15, Immediately(), 19),
        (SERIALIZABLE, 25, Immediately(), 19),
        (SERIALIZABLE, None, Immediately(), 19),
        (SERIALIZABLE, 15, FreshestTableWrite(), 15),
        (STRICT, None, AtTimestamp(12), 12),
        (STRICT, 15, AtTimestamp(99), 99),
        (SERIALIZABLE, None, AtLeastTimestamp(13), 13),
        (STRONG, 5, Immediately(), 10),
        (STRONG, 15, Immediately(), 15),
        (STRONG, 25, Immediately(), 19),
        (STRONG, 15, FreshestTableWrite(), 15),
        (STRONG, 25, FreshestTableWrite(), 25),
        (STRONG, 15, AtLeastTimestamp(5), 10),
        (STRONG, 15, AtLeastTimestamp(13), 13),
        (BOUNDED, 5, Immediately(), 19),
        (BOUNDED, 24, Immediately(), 19),
        (BOUNDED, 30, AtTimestamp(12), 12),
    ],
)
def test_conformance_vectors(isolation, oracle, when, expected):
    assert choose(isolation, oracle, when).timestamp == expected


def test_a_session_sees_what_it_has_seen():
    assert choose(STRONG, 15, Immediately(), session_ts=17).timestamp == 17
    beyond = choose(STRONG, 25, Immediately(), session_ts=23)
    assert (beyond.timestamp, beyond.respond_immediately) == (23, False)
    assert choose(STRONG, 25, AtTimestamp(12), session_ts=23).timestamp == 12


def test_what_is_too_stale_is_refused_and_not_waited_for():
    late = an_input(10, 15, 2)
    with pytest.raises(SlackwaterError, match=r"t2 is 11 ms behind, .* at most 5 ms") as caught:
        choose(BOUNDED, 25, Immediately(), an_input(10, 20), late)
    assert (caught.value.condition, caught.value.sqlstate) == (
        "SLACKWATER_STALENESS_EXCEEDED",
        "40001",
    )


def test_an_as_of_below_since_names_each_offender_and_only_those():
    inputs = (an_input(10, 20, 1), an_input(2, 20, 2), an_input(7, 20, 3))
    with pytest.raises(SlackwaterError) as caught:
        choose(STRICT, 15, AtTimestamp(3), *inputs)
    assert (caught.value.condition, caught.value.sqlstate) == (
        "SLACKWATER_NO_VALID_TIMESTAMP",
        "22000",
    )
    assert "slackwater.default.t1 (since 10)" in caught.value.message
    assert "slackwater.default.t3 (since 7)" in caught.value.message
    assert "t2" not in caught.value.message


def test_closed_inputs_are_complete_for_ever():
    closed = an_input(10, TIMESTAMP_MAX)
    assert choose(STRICT, 15, Immediately(), closed).timestamp == 15
    determination = choose(SERIALIZABLE, None, Immediately(), closed)
    assert determination.timestamp == TIMESTAMP_MAX
    assert determination.respond_immediately
    assert determination.upper == EMPTY_FRONTIER


@pytest.mark.parametrize("when", [Immediately(), AtTimestamp(50), AtLeastTimestamp(50)])
@pytest.mark.parametrize("isolation", [STRICT, STRONG, SERIALIZABLE, BOUNDED])
def test_an_empty_since_can_never_be_read(isolation, when):
    with pytest.raises(SlackwaterError, match="t1 has been dropped"):
        choose(isolation, 15, when, an_input(TIMESTAMP_MAX, 20))


def test_answers_at_once_only_if_every_input_is_complete():
    assert choose(STRICT, 19, Immediately()).respond_immediately
    assert not choose(STRICT, 20, Immediately()).respond_immediately
    late = an_input(10, 15, 2)
    assert not choose(STRICT, 19, Immediately(), an_input(10, 20), late).respond_immediately


def test_a_constant_has_no_time_and_mz_now_alone_shows_the_oracle():
    constant = determine(TimestampRequest((), STRICT, Immediately()))
    assert constant.timestamp_context == NoTimestamp()
    assert constant.timestamp == TIMESTAMP_MAX
    for isolation in (STRICT, STRONG, SERIALIZABLE, BOUNDED):
        now = determine(TimestampRequest((), isolation, Immediately(), Timestamp(77), True))
        assert now.timestamp == 77
        assert now.respond_immediately


def test_a_missing_oracle_read_is_a_defect():
    with pytest.raises(FatalError):
        choose(STRICT, None, Immediately())


def test_only_binding_constraints_are_kept():
    determination = choose(STRICT, 15, Immediately())
    assert [c.reason for c in determination.constraints.lower] == [Reason.ISOLATION_LEVEL]
    determination = choose(STRICT, 10, Immediately())
    assert [c.reason for c in determination.constraints.lower] == [
        Reason.STORAGE_INPUT,
        Reason.ISOLATION_LEVEL,
    ]
    assert choose(STRICT, 1, AtTimestamp(12)).constraints.upper[0].reason is Reason.QUERY_AS_OF


def explanation(when=None, isolation=STRICT):
    base = 1714115383000
    inputs = (
        an_input(base, base + 1001, 1),
        InputFrontiers(
            GlobalId("u2"),
            "slackwater.default.mv",
            Frontier(base - 1000),
            EMPTY_FRONTIER,
            InputKind.COMPUTE,
        ),
    )
    determination = choose(isolation, base + 130, when or Immediately(), *inputs)
    return TimestampExplanation(determination, inputs, base + 200)


def test_text_layout():
    assert explain_text(explanation()) == dedent("""\
                        query timestamp: 1714115383130 (2024-04-26 07:09:43.130)
                  oracle read timestamp: 1714115383130 (2024-04-26 07:09:43.130)
        largest not in advance of upper: 1714115384000 (2024-04-26 07:09:44.000)
                                  upper:[1714115384001 (2024-04-26 07:09:44.001)]
                                  since:[1714115383000 (2024-04-26 07:09:43.000)]
                can respond immediately: true
                               timeline: Some(EpochMilliseconds)
                      session wall time: 1714115383200 (2024-04-26 07:09:43.200)

        source slackwater.default.t1 (u1, storage):
                          read frontier:[1714115383000 (2024-04-26 07:09:43.000)]
                         write frontier:[1714115384001 (2024-04-26 07:09:44.001)]

        source slackwater.default.mv (u2, compute):
                          read frontier:[1714115382000 (2024-04-26 07:09:42.000)]
                         write frontier:[]

        binding constraints:
        lower:
          (IsolationLevel(StrictSerializable)): [1714115383130 (2024-04-26 07:09:43.130)]""")


def test_text_of_an_as_of_shows_both_bounds_and_no_oracle():
    text = explain_text(explanation(AtTimestamp(1714115383500)))
    assert "oracle" not in text
    assert text.endswith(
        "lower:\n  (QueryAsOf): [1714115383500 (2024-04-26 07:09:43.500)]\n"
        "upper:\n  (QueryAsOf): [1714115383500 (2024-04-26 07:09:43.500)]"
    )


def test_text_of_a_constant():
    constant = determine(TimestampRequest((), STRICT, Immediately()))
    assert explain_text(TimestampExplanation(constant, (), 5)) == dedent("""\
                        query timestamp: 9223372036854775807
        largest not in advance of upper: 9223372036854775807
                                  upper:[]
                                  since:[            0]
                can respond immediately: true
                               timeline: None
                      session wall time:             5 (1970-01-01 00:00:00.005)""")


def test_json_form():
    document = json.loads(explain_json(explanation()))
    base = 1714115383000
    assert document == {
        "determination": {
            "timestamp_context": {
                "TimelineTimestamp": {
                    "timeline": "EpochMilliseconds",
                    "chosen_ts": base + 130,
                    "oracle_ts": base + 130,
                }
            },
            "since": [base],
            "upper": [base + 1001],
            "largest_not_in_advance_of_upper": base + 1000,
            "oracle_read_ts": base + 130,
            "session_oracle_read_ts": None,
            "real_time_recency_ts": None,
            "constraints": {
                "lower": [{"bound": [base + 130], "reason": "IsolationLevel(StrictSerializable)"}],
                "upper": [],
            },
        },
        "sources": [
            {
                "name": "slackwater.default.t1 (u1, storage)",
                "read_frontier": [base],
                "write_frontier": [base + 1001],
            },
            {
                "name": "slackwater.default.mv (u2, compute)",
                "read_frontier": [base - 1000],
                "write_frontier": [],
            },
        ],
        "session_wall_time": base + 200,
        "respond_immediately": True,
    }


def test_at_most_ten_ids_are_printed():
    ids = tuple(GlobalId(f"u{n}") for n in range(1, 13))
    shown = reason_text(Constraint(Frontier(1), Reason.STORAGE_INPUT, ids))
    assert shown == "StorageInput([u1, u2, u3, u4, u5, u6, u7, u8, u9, u10, ...])"


def test_oracle_conformance():
    oracle = TimestampOracle(Timestamp(10))
    oracle.apply_write(Timestamp(5))
    assert (oracle.read_ts(), oracle.peek_write_ts()) == (10, 10)

    oracle = TimestampOracle(Timestamp(0))
    assert [oracle.write_ts().timestamp for _ in range(4)] == [1, 2, 3, 4]
    oracle.apply_write(Timestamp(2))
    assert (oracle.read_ts(), oracle.peek_write_ts()) == (2, 4)

    oracle = TimestampOracle(Timestamp(0))
    for time in (2, 4):
        oracle.apply_write(Timestamp(time))
        assert (oracle.read_ts(), oracle.peek_write_ts()) == (time, time)

    oracle = TimestampOracle(Timestamp(3), lambda: TIMESTAMP_MAX - 1)
    given = oracle.write_ts()
    assert (given.timestamp, given.advance_to) == (TIMESTAMP_MAX - 1, TIMESTAMP_MAX)
    assert oracle.read_ts() == 3
    with pytest.raises(FatalError):
        oracle.write_ts()


def test_oracle_goes_on_when_the_clock_goes_back_and_after_a_restart():
    clock = iter([100, 50, 50, 200])
    oracle = TimestampOracle(Timestamp(0), lambda: next(clock))
    assert [oracle.write_ts().timestamp for _ in range(4)] == [100, 101, 102, 200]
    again = TimestampOracle.recover(Timestamp(201), lambda: 7)
    assert again.read_ts() == 200
    assert again.write_ts().timestamp == 201
    assert TimestampOracle.recover(Timestamp(0), lambda: 7).read_ts() == 0


def refused(condition, sqlstate, call):
    with pytest.raises(SlackwaterError) as caught:
        call()
    assert (caught.value.condition, caught.value.sqlstate) == (condition, sqlstate)


def test_writes_of_a_block_commit_together():
    block = tx.add_write(tx.add_write(tx.begin(tx.Idle()), "a"), "b")
    assert tx.commit(block) == ("a", "b")


def test_what_has_no_effect():
    block = tx.add_write(tx.begin(tx.Idle()), "a")
    assert tx.begin(block) == block
    assert tx.begin(block, read_only=True) == block
    assert tx.commit(tx.Idle()) == ()


def test_a_lost_block_says_so_once():
    for call in (
        lambda: tx.begin(tx.Lost()),
        lambda: tx.check_read(tx.Lost(), "t"),
        lambda: tx.add_write(tx.Lost(), "w"),
        lambda: tx.check_outside_block(tx.Lost(), "UPDATE"),
        lambda: tx.commit(tx.Lost()),
    ):
        refused("SLACKWATER_TRANSACTION_LOST", "40001", call)
    assert tx.statement_failed(tx.Lost()) == tx.Failed()
    assert tx.in_block(tx.Lost())


def test_reads_of_a_block_share_the_first_time():
    block = tx.begin(tx.Idle())
    assert tx.check_read(block, "t") is None
    block = tx.record_read(tx.record_read(block, Timestamp(5)), Timestamp(9))
    assert tx.check_read(block, "t") == 5
    assert tx.check_read(tx.Idle(), "t") is None
    assert tx.record_read(tx.Idle(), Timestamp(5)) == tx.Idle()


def test_what_a_block_refuses():
    block = tx.begin(tx.Idle())
    reading, writing = tx.record_read(block, Timestamp(5)), tx.add_write(block, "w")
    refused("SLACKWATER_READ_ONLY_TRANSACTION", "25006", lambda: tx.add_write(reading, "w"))
    refused(
        "SLACKWATER_READ_ONLY_TRANSACTION",
        "25006",
        lambda: tx.add_write(tx.begin(tx.Idle(), read_only=True), "w"),
    )
    refused("SLACKWATER_WRITE_ONLY_TRANSACTION", "25000", lambda: tx.check_read(writing, "t"))
    refused(
        "SLACKWATER_TRANSACTION_STATEMENT", "25001", lambda: tx.check_outside_block(block, "UPDATE")
    )
    tx.check_outside_block(tx.Idle(), "UPDATE")


def test_a_failed_block_takes_nothing_but_its_end():
    failed = tx.statement_failed(tx.add_write(tx.begin(tx.Idle()), "lost"))
    assert tx.statement_failed(tx.Idle()) == tx.Idle()
    for call in (
        lambda: tx.begin(failed),
        lambda: tx.check_read(failed, "t"),
        lambda: tx.add_write(failed, "w"),
        lambda: tx.check_outside_block(failed, "CREATE TABLE"),
    ):
        refused("SLACKWATER_FAILED_TRANSACTION", "25P02", call)
    assert tx.commit(failed) == ()
