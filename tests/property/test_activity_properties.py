"""The history of statements: each ends once, leaders lose none, and no secret is shown."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict

from hypothesis import example, given
from hypothesis import strategies as st
from tests.property.histories import histories

from slackwater.adapter.history.core import HistoryCore, Limits
from slackwater.adapter.history.events import (
    Bound,
    CallBegan,
    CallEnded,
    Connected,
    Disconnected,
    Done,
    Ended,
    Failure,
    Key,
    Released,
    Said,
    Wrote,
)
from slackwater.adapter.history.records import Status
from slackwater.adapter.history.texts import READ_CHARACTERS, without_values
from slackwater.adapter.protocol import ReadStrategy
from slackwater.planner.parser.parse import parse
from slackwater.repr.errors import SlackwaterError

KEYS = [Key(session, name) for session in ("a/1", "a/2") for name in ("1", "2", "x-y")]
keys = st.sampled_from(KEYS)
holds = st.none() | st.sampled_from(["h1", "h2", "h3"])
failures = st.sampled_from([Failure("SLACKWATER_CANCELED"), Failure("DIVIDE_BY_ZERO", "by zero")])
counts = st.none() | st.integers(0, 9)
strategies = st.none() | st.sampled_from(ReadStrategy)
results = st.one_of(
    st.builds(Bound, st.integers(0, 9), holds),
    st.builds(Wrote, st.integers(0, 9), st.integers(0, 9)),
    st.builds(Done, counts),
    failures,
)
said = st.builds(
    Said,
    st.none() | st.sampled_from(["SELECT 1", "INSERT INTO t VALUES (1)", "CREATE SECRET s AS 'p'"]),
    writes=st.booleans(),
    rate=st.sampled_from([0.0, 0.5, 1.0]),
)
steps = st.lists(
    st.one_of(
        st.builds(lambda key, text: ("began", key, text), keys, said),
        st.builds(lambda key, result: ("ended", key, result), keys, results),
        st.builds(
            lambda *told: ("released", *told), st.sampled_from(["h1", "h2"]), counts, strategies
        ),
        st.builds(lambda key: ("gone", key.session_id), keys),
        st.builds(lambda key: ("came", key.session_id), keys),
        st.just(("stored",)),
        st.just(("not stored",)),
        st.just(("taken over",)),
    ),
    max_size=40,
)
LIMITS = Limits(records=4, age_ms=60)


def event(step, now_ms, number):
    match step:
        case ("began", key, text):
            return CallBegan(key, now_ms, f"e{number}", text)
        case ("ended", key, result):
            return CallEnded(key, now_ms, result, 2, now_ms - 1)
        case ("released", hold, rows, strategy):
            return Released(hold, now_ms, rows, strategy=strategy)
        case ("gone", session):
            return Disconnected(session, now_ms)
        case ("came", session):
            return Connected(session, now_ms, "app", "me")


def ended(of):
    """What the history and what it tells of an end have in common."""
    if isinstance(of, Ended):
        return (of.key, of.ended_ms, of.status, of.timestamp, of.rows_returned, of.rows_written)
    key = Key(of.session_id, of.statement_id)
    return (key, of.finished_ms, of.status, of.timestamp, of.rows_returned, of.rows_written)


class Leaders:
    """Leaders one after the other, what they have stored, and the ends that were seen."""

    def __init__(self):
        self.stored = []
        self.ended = {}
        self.told = Counter()
        self.core = HistoryCore(LIMITS, data_rate=400)

    def take(self, step, now_ms, number):
        match step:
            case ("stored",):
                self.stored.extend(self.core.take_changed(now_ms))
            case ("not stored",):
                self.core.put_back(self.core.take_changed(now_ms))
            case ("taken over",):
                # Nothing is lost but what was not stored yet, and what is too old by now.
                self.core.forget_old(now_ms)
                self.stored.extend(self.core.take_changed(now_ms + 1))
                before = self.core.statements(), self.core.sessions()
                self.core = HistoryCore(LIMITS, data_rate=400)
                for _ in range(2):
                    self.core.recover(self.stored, now_ms)
                self.compare(*before)
            case _:
                self.core.apply(event(step, now_ms, number))
                self.told += Counter(ended(each) for each in self.core.take_ended())
        self.core.forget_old(now_ms)
        self.check(now_ms)

    def compare(self, statements, sessions):
        found = {each.execution_id: each for each in self.core.statements()}
        for statement in statements:
            again = found[statement.execution_id]
            if statement.status is None:
                assert again.status is Status.ABORTED
            else:
                assert again == statement
        assert self.core.sessions() == sessions

    def check(self, now_ms):
        self.core.validate()
        for statement in self.core.statements():
            assert statement.began_ms >= now_ms - LIMITS.age_ms
            known = self.ended.get(statement.execution_id)
            assert known in (None, statement), "a statement has ended twice"
            if statement.status is not None and known is None:
                # Who took over has ended what it has not seen the end of, and tells nobody.
                assert self.told[ended(statement)] > 0 or statement.status is Status.ABORTED
            if statement.status is not Status.SUCCESS:
                assert statement.strategy is None
            if statement.status is not None:
                self.ended[statement.execution_id] = statement
                assert statement.finished_ms is not None


@histories()
@given(steps, st.lists(st.integers(0, 30), min_size=40, max_size=40))
def test_a_statement_ends_once_under_any_leaders(taken, pauses):
    leaders, now_ms = Leaders(), 1000
    for number, (step, pause) in enumerate(zip(taken, pauses, strict=False)):
        now_ms += pause
        leaders.take(step, now_ms, number)
    for session in ("a/1", "a/2"):
        leaders.core.apply(Disconnected(session, now_ms))
    assert all(each.status is not None for each in leaders.core.statements())
    leaders.core.validate()


@histories()
@given(
    st.lists(st.tuples(strategies, st.booleans(), st.none() | failures), min_size=1, max_size=6),
    st.booleans(),
)
def test_a_read_is_of_an_index_when_all_of_it_was(reads, writes):
    core, key = HistoryCore(Limits(), data_rate=1_000_000), Key("a/1", "1")
    core.apply(CallBegan(key, 0, "e", Said("SELECT 1", writes=writes)))
    for number, _ in enumerate(reads):
        core.apply(CallBegan(key, 1, "e", Said("SELECT 1")))
        core.apply(CallEnded(key, 1, Bound(1, f"h{number}")))
    core.apply(CallEnded(key, 1, Bound(1, None)))
    # They may end in any order.
    in_order = sorted(enumerate(reads), key=lambda each: each[1][1])
    for number, (strategy, _, failure) in in_order:
        core.apply(Released(f"h{number}", 2, failure=failure, strategy=strategy))
    (statement,) = core.statements()
    known = {strategy for strategy, _, _ in reads if strategy is not None}
    if writes or any(failure for _, _, failure in reads) or not known:
        assert statement.strategy is None
    elif ReadStrategy.STANDARD in known:
        assert statement.strategy is ReadStrategy.STANDARD
    else:
        is_fast = ReadStrategy.FAST_PATH in known
        wanted = ReadStrategy.FAST_PATH if is_fast else ReadStrategy.CONSTANT
        assert statement.strategy is wanted


SECRET = "hunter2Zq"
quotes = st.sampled_from(
    [
        "'{}'",
        '"{}"',
        "r'{}'",
        'R"{}"',
        "'a''{}'",
        "'\\'{}'",
        "'{}",
        '"{}',
        "X'{}'",
        "'{}' ''",
        "/* x */ '{}'",
        "'\n{}'",
        "'pass' '{}'",
    ]
)
gaps = st.sampled_from([" ", "\n", "  ", " /* c */ ", " -- c\n", "\t", " /* ' */ "])
sensible = st.sampled_from(
    [
        "CREATE SECRET s AS {}",
        "CREATE SECRET IF NOT EXISTS `a b` AS {};",
        "ALTER SECRET s AS {}",
        "ALTER SECRET IF EXISTS s AS {}",
        "CREATE CONNECTION c TO POSTGRES (HOST 'h', USER 'u', PASSWORD {})",
        "CREATE CONNECTION c TO POSTGRES (HOST 'h', USER 'u', PASSWORD = SECRET {})",
        "CREATE CONNECTION c TO KAFKA (BROKER 'b', SASL PASSWORD {})",
        "CREATE CONNECTION c TO AWS (SECRET ACCESS KEY {})",
        "CREATE CONNECTION c TO CONFLUENT SCHEMA REGISTRY (URL 'http://u', PASSWORD = {})",
        "ALTER CONNECTION c SET (PASSWORD = {})",
        "CREATE CHECKPOINT GROUP g BACKED BY POSTGRES 'postgresql://u@h' PASSWORD {}",
        "CREATE TABLE t (k INT) TBLPROPERTIES ('password' = {})",
        "SELECT v AS secret, aes_encrypt(v, {}) FROM t",
        "SET spark.x.password = {}",
        "INSERT INTO credentials VALUES (1, {})",
        "EXECUTE IMMEDIATE 'CREATE SECRET s AS ' || {}",
    ]
)
noise = st.sampled_from(["", ")", " ,", " foo bar", " '", " ?", " :p", "; SELECT 1", " $$"])


@st.composite
def texts(draw):
    """Statements with a secret, some of them with something wrong, or cut anywhere behind it."""
    literal = draw(quotes).format(SECRET)
    text = draw(sensible).replace("{}", literal) + draw(noise)
    text = draw(gaps).join(text.split(" "))
    if draw(st.booleans()):
        text = draw(st.sampled_from([str.lower, str.upper, str.swapcase]))(text)
    start = text.lower().index(SECRET.lower())
    return text[: draw(st.integers(start + 1, len(text)))] if draw(st.booleans()) else text


def failure_of(text):
    try:
        parse(text)
    except SlackwaterError as error:
        return Failure(error.condition, error.message)
    return Failure("USER_RAISED_EXCEPTION", f"near {text}")


@histories()
@given(texts())
@example(f"CREATE SECRET s AS {SECRET}")
@example(f"create connection c to postgres (password {SECRET})")
@example(f"CREATE TABLE t (k INT) TBLPROPERTIES ('pass\\u0077ord' = '{SECRET}')")
@example(f"SELECT 'postgresql://u:{SECRET}@h'")
@example("CREATE SECRET s AS '" + "x" * READ_CHARACTERS + f"{SECRET}'")
def test_no_secret_is_in_any_column(text):
    core, key = HistoryCore(Limits(), data_rate=1_000_000), Key("a/1", "1")
    core.apply(CallBegan(key, 1, "e", Said(text)))
    core.apply(CallEnded(key, 2, failure_of(text)))
    (statement,) = core.statements()
    sql = statement.text.sql
    redacted = None if sql is None else without_values(sql)
    shown = json.dumps([asdict(statement), redacted], default=str)
    for length in (len(SECRET), 4):
        assert SECRET[:length].lower() not in shown.lower()
    assert statement.text.kind.replace("_", "").isalpha()


@histories()
@given(st.text(max_size=60), st.booleans())
def test_any_text_is_shown_somehow(text, writes):
    core, key = HistoryCore(Limits(), data_rate=1_000_000), Key("a/1", "1")
    core.apply(CallBegan(key, 1, "e", Said(text, writes=writes)))
    core.validate()
    (statement,) = core.statements()
    assert statement.text.sql is None or without_values(statement.text.sql) is not None
