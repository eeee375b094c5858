"""Sinks into tables: whatever fails, the table has the relation, or each of its changes once."""

from collections import Counter
from functools import partial

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.property.histories import histories
from tests.support.storage.fake_lakes import Crash, Lake, Table

from slackwater.persist.leadership import Fenced
from slackwater.repr.errors import FatalError, SlackwaterError
from slackwater.repr.frontier import Frontier
from slackwater.repr.relation import RelationDesc
from slackwater.storage.lake import sink as lake_sink
from slackwater.storage.lake.changes import LakeRows
from slackwater.storage.lake.config import DeltaPlace, LakeSinkConfig
from slackwater.storage.lake.sink import LakeSink, SinkTable
from slackwater.storage.lake.table import LakeProgress
from slackwater.storage.sink_folder import Claim

DESC = RelationDesc.of(k="long", v="string")
PLACE = DeltaPlace("/t")
UPSERT = LakeSinkConfig(PLACE, "UPSERT", ("k",))
LOOSE = LakeSinkConfig(PLACE, "UPSERT", ("k",), is_enforced=False)
APPEND = LakeSinkConfig(PLACE, "APPEND")
CONFIGS = st.sampled_from([UPSERT, LOOSE, APPEND])
END = 20


class Leadership:
    """The number of the leader."""

    def __init__(self):
        self.epoch = 0

    def claim(self, progress=None):
        """That of the next leader."""
        self.epoch += 1
        return Claim("u7", "the_sink", self.epoch, partial(self._confirm, self.epoch), progress)

    def _confirm(self, epoch):
        if epoch != self.epoch:
            raise Fenced(epoch, self.epoch)


def updates(rows):
    schema = DESC.update_schema()
    columns = list(zip(*rows, strict=True)) or [[]] * len(schema)
    return pa.Table.from_arrays(
        [pa.array(list(c), f.type) for c, f in zip(columns, schema, strict=True)], schema=schema
    )


def opened(table, claim=None, config=UPSERT, **more):
    version = more.pop("version", 0)
    options = {"clock": lambda: 0, "is_stopped": lambda: False} | more
    claim = Leadership().claim() if claim is None else claim
    rows = LakeRows(config, DESC, "the_sink")
    return LakeSink(rows, SinkTable("the table /t", version), claim, table, **options)


def keyed_history(changes):
    """Updates by which each key has at most one row at each time, and the rows at the end."""
    rows, made = {}, []
    for time in range(END):
        for k, v in changes.get(time, {}).items():
            if k in rows and rows[k] == v:
                continue
            if k in rows:
                made.append((k, rows.pop(k), time, -1))
            if v != "-":
                rows[k] = v
                made.append((k, v, time, 1))
    return made, rows


KEYS = st.sampled_from([None, 1, 2, 3])
CHANGES = st.dictionaries(
    st.integers(0, END - 1),
    st.dictionaries(KEYS, st.sampled_from(["a", "b", None, "-"]), max_size=4),
    max_size=12,
)
UPPERS = st.lists(st.integers(1, END), min_size=1, max_size=5)
FATES = st.sampled_from(["crash before", "crash after", "fail", "lose", "compact", "delay", "late"])


def run(lake, config, made, uppers, leader):
    """Opens the sink again and again, until everything is out."""
    recorded = None
    for attempt in range(200):
        try:
            sink = opened(lake.table(), leader.claim(recorded), config)
            while sink.frontier != Frontier(END):
                reached = sink.frontier
                lower = Frontier(0) if reached is None else reached
                wanted = uppers[attempt % len(uppers)] if attempt < 100 else END
                upper = Frontier(min(END, lower.value + wanted))
                sink.write(lower, upper, [updates([u for u in made if u[2] < upper.value])])
                sink.flush()
                assert sink.frontier >= upper
                recorded = sink.frontier
            return sink
        except (Crash, SlackwaterError):
            continue
    raise AssertionError("it does not get anywhere")


def expected(config, made, rows):
    if config.mode == "UPSERT":
        return Counter(rows.items())
    return Counter((k, v, diff, time) for k, v, time, diff in made)


@histories()
@given(CHANGES, UPPERS, st.dictionaries(st.integers(0, 60), FATES, max_size=12), CONFIGS)
def test_the_table_has_each_change_once_whatever_fails(changes, uppers, fates, config):
    made, rows = keyed_history(changes)
    calls = iter(range(10**6))

    def fate(call):
        # A commit is asked twice: what others do before it, and what becomes of it.
        found = fates.get(next(calls), "done")
        is_others = found in ("compact", "delay", "late")
        return found if is_others == (call == "others") else "done"

    lake = Lake(fate)
    run(lake, config, made, uppers, Leadership())
    assert lake.rows == expected(config, made, rows)
    frontiers = [each.frontier for each in lake.commits]
    assert frontiers == sorted(set(frontiers))
    lake.arrive()
    assert lake.rows == expected(config, made, rows)


class Interrupted(Table):
    """Lets `other` happen before its call number `at`."""

    def __init__(self, lake, at, other):
        super().__init__(lake)
        self.left, self.other = at, other

    def _do(self, call, act):
        self.left -= 1
        if self.left == -1:
            self.other()
        super()._do(call, act)


@histories()
@given(CHANGES, st.integers(1, END), st.integers(0, 30), UPPERS, CONFIGS)
def test_a_hung_leader_commits_nothing_beside_the_next_one(
    changes, first, hangs_at, uppers, config
):
    """The next one begins, and writes, while the first one is about to do anything."""
    made, rows = keyed_history(changes)
    lake, leader = Lake(), Leadership()
    hung = leader.claim()
    table = Interrupted(lake, hangs_at, lambda: run(lake, config, made, uppers, leader))
    try:
        sink = opened(table, hung, config)
        for lower in range(0, END, first):
            upper = Frontier(min(END, lower + first))
            sink.write(Frontier(lower), upper, [updates(made)])
            sink.flush()
    except Fenced:
        assert leader.epoch > 1
    run(lake, config, made, uppers, leader)
    assert lake.rows == expected(config, made, rows)


@histories()
@given(CHANGES, st.integers(1, END), st.integers(1, 3), UPPERS, CONFIGS)
def test_a_commit_of_the_leader_before_comes_late(changes, first, comes_at, uppers, config):
    """The next leader has loaded the table, and then the one before it still commits a range."""
    made, rows = keyed_history(changes)
    lake, leader = Lake(), Leadership()
    old = opened(lake.table(), leader.claim(), config)

    def late():
        try:
            old.write(Frontier(0), Frontier(first), [updates(made)])
        except Fenced:
            assert lake.version > 0

    table = Interrupted(lake, comes_at, late)
    sink = opened(table, leader.claim(), config)
    for lower in range(0, END, uppers[0]):
        upper = Frontier(min(END, lower + uppers[0]))
        sink.write(Frontier(lower), upper, [updates([u for u in made if u[2] < upper.value])])
        sink.flush()
    run(lake, config, made, uppers, leader)
    assert lake.rows == expected(config, made, rows)


def test_a_range_is_one_change_of_each_key():
    lake = Lake()
    sink = opened(lake.table())
    sink.write(Frontier(0), Frontier(1), [updates([(1, "a", 0, 1)])])
    came_and_went = [(1, "a", 1, -1), (1, "b", 1, 1), (1, "b", 2, -1), (1, "c", 2, 1)]
    passing = [(2, "x", 1, 1), (2, "x", 2, -1)]
    sink.write(Frontier(1), Frontier(3), [updates(came_and_went + passing)])
    assert lake.rows == {(1, "c"): 1}
    assert sink.statistics.messages_committed == 2
    again = [(1, "c", 3, -1), (1, "d", 3, 1), (1, "d", 4, -1), (1, "c", 4, 1)]
    sink.write(Frontier(3), Frontier(5), [updates(again)])
    assert len(lake.commits) == 2
    sink.flush()
    assert lake.commits[-1] == LakeProgress(Frontier(5), 0, 1)


def test_the_snapshot_comes_at_the_time_of_the_beginning():
    lake = Lake()
    sink = opened(lake.table(), config=APPEND)
    rows = [updates([(1, "a", 0, 1), (1, "b", 5, 1), (2, "c", 6, 1)])]
    sink.write(Frontier(5), Frontier(7), rows)
    assert lake.rows == {(1, "a", 1, 5): 1, (1, "b", 1, 5): 1, (2, "c", 1, 6): 1}


def test_what_was_there_before_the_sink_goes_when_its_key_comes():
    lake = Lake()
    lake.rows.update([(1, "theirs"), (9, "theirs")])
    opened(lake.table()).write(Frontier(0), Frontier(1), [updates([(1, "a", 0, 1)])])
    assert lake.rows == {(1, "a"): 1, (9, "theirs"): 1}


def test_the_rows_of_the_relation_before_go_when_their_keys_come():
    lake, leader = Lake(), Leadership()
    sink = opened(lake.table(), leader.claim())
    sink.write(Frontier(0), Frontier(1), [updates([(1, "a", 0, 1)])])
    sink = opened(lake.table(), leader.claim(), version=1)
    sink.write(Frontier(1), Frontier(2), [updates([(1, "b", 1, 1)])])
    assert lake.rows == {(1, "b"): 1}


def test_without_a_snapshot_the_first_range_has_what_came_since():
    lake = Lake()
    config = LakeSinkConfig(PLACE, "UPSERT", ("k",), snapshot=False)
    sink = opened(lake.table(), config=config)
    rows = [(1, "a", 0, 1), (2, "a", 0, 1), (1, "a", 3, -1), (1, "b", 3, 1)]
    sink.write(Frontier(2), Frontier(4), [updates(rows)])
    assert lake.rows == {(1, "b"): 1}


def test_two_rows_of_a_key_are_refused_and_nothing_is_written():
    lake = Lake()
    rows = [updates([(1, "a", 1, 1), (1, "b", 2, 1), (2, "a", 1, 1)])]
    with pytest.raises(SlackwaterError, match=r"SLACKWATER_SINK_KEY.*k = 1 at 2"):
        opened(lake.table()).write(Frontier(0), Frontier(3), rows)
    assert not lake.commits
    opened(lake.table(), config=LOOSE).write(Frontier(0), Frontier(3), rows)
    assert lake.rows == {(1, "b"): 1, (2, "a"): 1}


def test_a_diff_that_does_not_fit_its_column_becomes_several():
    lake = Lake()
    sink = opened(lake.table(), config=APPEND)
    sink.write(Frontier(0), Frontier(2), [updates([(1, "a", 1, 2**32), (2, "b", 1, -(2**31))])])
    found = Counter()
    for k, v, diff, time in lake.rows.elements():
        assert (abs(diff) < 2**31, time) == (True, 1)
        found[k, v] += diff
    assert found == {(1, "a"): 2**32, (2, "b"): -(2**31)}


def test_a_commit_waits_for_its_interval_and_not_for_rows():
    now = [0]
    lake = Lake()
    sink = opened(lake.table(), clock=lambda: now[0])
    assert sink.is_due
    sink.write(Frontier(0), Frontier(1), [])
    assert sink.is_due
    sink.write(Frontier(1), Frontier(2), [updates([(1, "a", 1, 1)])])
    assert not sink.is_due
    now[0] = 9_999
    assert not sink.is_due
    now[0] = 10_000
    assert sink.is_due
    sink.write(Frontier(2), Frontier(3), [])
    assert sink.is_due
    sink.write(Frontier(3), Frontier(4), [updates([(2, "a", 3, 1)])])
    now[0] = 5_000
    assert sink.is_due, "the clock was set back"


def test_a_silent_relation_is_told_of_more_and_more_seldom():
    now = [0]
    lake = Lake()
    sink = opened(lake.table(), clock=lambda: now[0])
    sink.write(Frontier(0), Frontier(1), [])
    for upper in range(2, 2_300):
        now[0] += 1_000
        sink.write(Frontier(upper - 1), Frontier(upper), [])
        sink.tell()
    told = [each.frontier.value for each in lake.commits]
    assert told == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1624, 2224]


@pytest.mark.parametrize(
    ("found", "version", "reason"),
    [
        (None, 0, "it says nothing, and all before 10 is out"),
        (LakeProgress(Frontier(9), 0, 0), 0, "it knows of 9, and all before 10"),
        (LakeProgress(Frontier(10), 1, 0), 0, "another copy of the environment"),
        (LakeProgress(Frontier(10), 0, 5), 0, "another copy of the environment"),
    ],
)
def test_what_does_not_say_where_to_go_on_is_refused(found, version, reason):
    lake = Lake(progress=found)
    with pytest.raises(SlackwaterError, match=f"SLACKWATER_SINK_PROGRESS_LOST.*{reason}"):
        opened(lake.table(), Leadership().claim(Frontier(10)), version=version)
    assert not lake.commits


def test_a_later_commit_fences_a_leader_that_does_not_lead_any_more():
    leader, lake = Leadership(), Lake()
    old = leader.claim()
    run(lake, UPSERT, [], [END], leader)
    with pytest.raises(Fenced):
        opened(lake.table(), old)


def test_a_table_that_was_made_again_is_noticed_by_the_next_commit():
    lake = Lake()
    sink = opened(lake.table())
    sink.write(Frontier(0), Frontier(1), [updates([(1, "a", 0, 1)])])
    lake.progress, lake.version = None, 7
    with pytest.raises(SlackwaterError, match=r"SLACKWATER_SINK_PROGRESS_LOST.*says nothing"):
        sink.write(Frontier(1), Frontier(2), [updates([(2, "a", 1, 1)])])


def test_a_sink_that_always_comes_second_stalls():
    lake = Lake(lambda call: "compact" if call == "others" else "done")
    with pytest.raises(SlackwaterError, match=r"SLACKWATER_SINK_UNREACHABLE.*all the time"):
        opened(lake.table()).write(Frontier(0), Frontier(1), [updates([(1, "a", 0, 1)])])
    assert lake.version == lake_sink.ATTEMPTS
    lake.version = 0
    stopped = opened(lake.table(), is_stopped=lambda: True)
    with pytest.raises(SlackwaterError, match="all the time"):
        stopped.write(Frontier(0), Frontier(1), [updates([(1, "a", 0, 1)])])
    assert lake.version == 1


def test_a_gap_is_refused():
    sink = opened(Lake().table())
    sink.write(Frontier(0), Frontier(5), [])
    with pytest.raises(FatalError, match="leaves a gap"):
        sink.write(Frontier(6), Frontier(7), [])


def counts(sink):
    found = sink.statistics
    return found.snapshot_records_staged, found.snapshot_records_known


class Counting(Table):
    """Tells of rows one by one, and notes what the sink counts of its first range."""

    sink = None

    def commit(self, changes, progress, written):
        self.seen = []
        for _ in range(changes.inserted.num_rows):
            self.seen.append(counts(self.sink))
            written(1)
        super().commit(changes, progress)


@pytest.mark.parametrize("config", [UPSERT, APPEND])
def test_the_first_range_is_counted_while_it_is_written(config):
    lake = Lake()
    table = Counting(lake)
    table.sink = sink = opened(table, config=config)
    rows = updates([(n, "a", 0, 1) for n in range(3)])
    lake.fate = lambda call: "compact" if call == "others" and len(table.seen) < 4 else "done"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lake_sink, "ATTEMPTS", 2)
        with pytest.raises(SlackwaterError, match="other writers commit"):
            sink.write(Frontier(0), Frontier(5), [rows])
    assert table.seen == [(0, 3), (1, 3), (2, 3)], "each attempt begins anew"
    lake.fate = lambda call: "done"
    table.sink = sink = opened(table, config=config)
    sink.write(Frontier(0), Frontier(5), [rows])
    sink.write(Frontier(5), Frontier(9), [updates([(1, "a", 6, -1)])])
    assert counts(sink) == (3, 3)


def test_a_first_range_that_was_written_whole_is_counted_whole():
    """Not every table tells of rows; and of a relation without rows none is to be written."""
    table = Table(Lake())
    table.commit = lambda changes, progress, written: Table.commit(table, changes, progress)
    sink = opened(table)
    sink.write(Frontier(0), Frontier(5), [updates([(1, "a", 0, 1)])])
    assert counts(sink) == (1, 1)
    sink = opened(Table(Lake()))
    sink.write(Frontier(0), Frontier(5), [updates([])])
    assert counts(sink) == (0, 0)


def test_who_finds_the_first_range_written_counts_none():
    """The commit of the leader before arrives when the next one is about to make its own."""
    lake, leader = Lake(lambda call: "late" if call == "others" else "done"), Leadership()
    rows = updates([(1, "a", 0, 1)])
    with pytest.raises(SlackwaterError, match="UNREACHABLE"):
        opened(lake.table(), leader.claim()).write(Frontier(0), Frontier(5), [rows])
    lake.fate = lambda call: "done"
    sink = opened(lake.table(), leader.claim())
    sink.write(Frontier(0), Frontier(5), [rows])
    assert sink.frontier == Frontier(5)
    assert counts(sink) == (None, None)
