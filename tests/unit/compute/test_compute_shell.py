"""The shell of the compute controller: order, commits, and who is told why one failed."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest
from tests.support.compute.controller_room import ComputeRoom, index, of_kind, view
from tests.support.waiting import PATIENCE

from slackwater.compute.controller import protocol as pr
from slackwater.compute.controller.shell import (
    Compute,
    ConnectionLost,
    OutputRefusal,
    ReplicaStatus,
    Seams,
)
from slackwater.controller.protocol import AllowCompaction, ReplicaKey
from slackwater.repr.errors import FatalError, SlackwaterError
from slackwater.repr.frontier import EMPTY_FRONTIER, Frontier, Timestamp
from slackwater.repr.read_policy import LagWriteFrontier

AWAY = SlackwaterError("SLACKWATER_METASTORE_UNAVAILABLE", "58030", "no answer", {})


class LockedStorage:
    """The storage controller of a room, and its lock."""

    def __init__(self, core):
        self._core = core
        self._lock = threading.Lock()

    def do(self, action):
        with self._lock:
            found = action(self._core)
            self._core.process()
        return found

    def look(self, action):
        with self._lock:
            return action(self._core)


class Link:
    """A replica that notes what it is told, and says what the test lets it say."""

    def __init__(self, respond):
        self.say = respond
        self.told = []
        self.woken = 0
        self.closed = False
        self.answers = {}

    def send(self, command):
        self.told.append(command)
        answer = self.answers.get(type(command))
        if answer is not None:
            self.say([answer(command)])

    def wake(self):
        self.woken += 1

    def close(self):
        self.closed = True

    def drop(self):
        self.close()

    def join(self):
        assert self.closed


@dataclass
class Outputs:
    """Stored outputs: `uppers` by target. `refusing` and `failing` are targets."""

    uppers: dict = field(default_factory=dict)
    commits: list = field(default_factory=list)
    refusing: set = field(default_factory=set)
    failing: dict = field(default_factory=dict)

    def append(self, outputs):
        for each in outputs:
            if each.target in self.failing:
                raise self.failing[each.target]
            if each.target in self.refusing or self.uppers[each.target] != each.lower:
                raise OutputRefusal(each.target)
        self.commits.append(outputs)
        self.uppers |= {each.target: each.upper for each in outputs}

    def upper(self, target):
        return self.uppers.get(target)


class Told:
    def __init__(self):
        self.moves, self.statuses = 0, []

    def moved(self):
        self.moves += 1

    def told(self, before, now):
        self.statuses.append((before, now))


class Shelled:
    def __init__(self):
        self.room = ComputeRoom()
        self.discarded = []
        self.outputs, self.told, self.links, self.now_ms = Outputs(), Told(), {}, 1_000
        self.compute = Compute(
            Seams(
                LockedStorage(self.room.storage.core),
                self.outputs,
                self._connect,
                self.told,
                lambda: self.now_ms,
                self.discarded.append,
            )
        )
        self.compute.create_instance("c")
        self.table = self.room.table()

    def _connect(self, key, location, respond):
        self.links[key.replica] = Link(respond)
        return self.links[key.replica]

    def replica(self, name="r1"):
        self.compute.add_replica("c", name, "here")
        self.compute.initialization_complete()
        return self.links[name]

    def views(self, *names, as_of=5):
        """Views over the table, whose outputs are complete up to their as-of."""
        made = []
        for name in names:
            target = self.room.target(as_of)
            self.outputs.uppers[target] = Frontier(as_of)
            made.append((view(name, target, [self.table], as_of=as_of), target))
        restored = self.compute.create([("c", each) for each, _ in made], {}, Timestamp(9))
        assert not restored.refused
        return [target for _, target in made]


@pytest.fixture
def shelled():
    made = Shelled()
    yield made
    made.compute.validate()
    made.compute.close()


def computed(name, lower, upper):
    return pr.Computed(name, Frontier(lower), Frontier(upper), b"rows", b"")


def advanced(link):
    return [(each.id, each.upper.value) for each in of_kind(link.told, pr.OutputAdvanced)]


def test_what_one_call_brings_is_one_commit(shelled):
    first, second = shelled.views("u101", "u102")
    link = shelled.replica()
    link.told.clear()
    link.say([computed("u101", 5, 7), computed("u102", 5, 8)])
    (commit,) = shelled.outputs.commits
    assert [(c.target, c.lower.value, c.upper.value) for c in commit] == [
        (first, 5, 7),
        (second, 5, 8),
    ]
    assert sorted(advanced(link)) == [("u101", 7), ("u102", 8)]
    # The storage controller knew it before the replica was told.
    uppers = shelled.room.stored
    assert uppers.frontiers(first).upper == Frontier(7)
    assert shelled.told.moves == 1


def test_a_refused_output_takes_no_other_with_it(shelled):
    first, second = shelled.views("u101", "u102")
    link = shelled.replica()
    link.told.clear()
    shelled.outputs.refusing.add(first)
    link.say([computed("u101", 5, 7), computed("u102", 5, 8)])
    assert [[c.target for c in commit] for commit in shelled.outputs.commits] == [[second]]
    assert sorted(advanced(link)) == [("u101", 5), ("u102", 8)]


def test_an_output_that_is_gone_is_refused(shelled):
    (target,) = shelled.views("u101")
    link = shelled.replica()
    del shelled.outputs.uppers[target]
    shelled.outputs.refusing.add(target)
    link.told.clear()
    link.say([computed("u101", 5, 7)])
    assert advanced(link) == [("u101", 5)]


@pytest.mark.parametrize("error", [AWAY, FatalError("broken")])
def test_whoever_offers_is_told_why_a_commit_failed(shelled, error):
    first, second = shelled.views("u101", "u102")
    link = shelled.replica()
    shelled.outputs.failing[first] = error
    link.told.clear()
    with pytest.raises(type(error)) as raised:
        link.say([computed("u101", 5, 7), computed("u102", 5, 8)])
    assert raised.value is error
    # Nothing is under way any more: the next offer is taken.
    assert sorted(advanced(link)) == [("u101", 5), ("u102", 5)]
    shelled.outputs.failing.clear()
    link.say([computed("u101", 5, 7), computed("u102", 5, 8)])
    assert shelled.outputs.uppers == {first: Frontier(7), second: Frontier(8)}


def test_of_refused_outputs_one_may_fail_and_the_others_are_answered(shelled):
    first, second, third = shelled.views("u101", "u102", "u103")
    link = shelled.replica()
    shelled.outputs.refusing.add(first)
    link.told.clear()

    def append(outputs, commit=shelled.outputs.append):
        if [each.target for each in outputs] == [second]:
            raise AWAY
        commit(outputs)

    shelled.outputs.append = append
    with pytest.raises(SlackwaterError):
        link.say([computed(f"u10{n}", 5, 7) for n in (1, 2, 3)])
    assert sorted(advanced(link)) == [("u101", 5), ("u102", 5), ("u103", 7)]
    assert shelled.outputs.uppers[third] == Frontier(7)


def test_a_commit_whose_outcome_is_not_known_is_read(shelled):
    (target,) = shelled.views("u101")
    link = shelled.replica()
    link.told.clear()

    def append(outputs):
        shelled.outputs.uppers[target] = outputs[0].upper
        raise AWAY

    shelled.outputs.append = append
    with pytest.raises(SlackwaterError):
        link.say([computed("u101", 5, 7)])
    assert advanced(link) == [("u101", 7)]


def test_what_a_replica_says_while_it_is_told_comes_after_that(shelled):
    shelled.views("u101")
    link = shelled.replica()

    def over(command):
        return pr.FrontierReport(command.id, EMPTY_FRONTIER, EMPTY_FRONTIER, EMPTY_FRONTIER)

    link.answers[AllowCompaction] = over
    shelled.compute.drop("c", ["u101"])
    # It is gone at once, so that its id can be used again.
    shelled.views("u101")
    created = [c.dataflow.export_ids for c in of_kind(link.told, pr.CreateDataflow)]
    assert created == [("u101",), ("u101",)]


def test_commands_of_many_threads_come_in_the_order_of_the_controller(shelled):
    link = shelled.replica()

    def defines(worker):
        for number in range(20):
            name = f"u{worker}{number:02}1"
            made = index(name, [shelled.table])
            policies = {name: LagWriteFrontier(2)}
            shelled.compute.create([("c", made)], policies, Timestamp(9))
            shelled.compute.drop("c", [name])

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(defines, worker) for worker in (1, 2, 3, 4)]:
            done.result(PATIENCE)
    seen = {}
    for command in link.told:
        match command:
            case pr.CreateDataflow(dataflow):
                assert dataflow.export_ids[0] not in seen
                seen[dataflow.export_ids[0]] = "created"
            case AllowCompaction(name, since) if since.is_empty:
                assert seen[name] == "created"
                seen[name] = "dropped"
    assert set(seen.values()) == {"dropped"}
    assert len(seen) == 80


def test_a_replica_that_was_dropped_is_heard_no_more(shelled):
    (target,) = shelled.views("u101")
    link = shelled.replica()
    shelled.compute.drop_replica("c", "r1")
    assert link.closed
    link.say([computed("u101", 5, 7), pr.Heartbeat(0)])
    assert shelled.outputs.uppers[target] == Frontier(5)
    assert shelled.compute.lease_ms() is None


def test_of_two_replicas_the_first_is_taken_and_both_are_told(shelled):
    (target,) = shelled.views("u101")
    one, two = shelled.replica("r1"), shelled.replica("r2")
    one.told.clear()
    two.told.clear()
    one.say([computed("u101", 5, 7)])
    two.say([computed("u101", 5, 9)])
    assert shelled.outputs.uppers[target] == Frontier(7)
    assert advanced(one)[0] == advanced(two)[0] == ("u101", 7)


def test_a_lease_is_as_old_as_the_oldest_name_that_a_replica_may_use(shelled):
    link = shelled.replica()
    assert shelled.compute.lease_ms() == 1_000
    shelled.now_ms = 9_000
    link.say([pr.Heartbeat(busy_ms=3_000)])
    assert shelled.compute.lease_ms() == 6_000
    shelled.replica("r2")
    shelled.now_ms = 10_000
    link.say([pr.Heartbeat(busy_ms=0)])
    assert shelled.compute.lease_ms() == 9_000
    link.say([pr.Heartbeat(busy_ms=5_000)])
    assert shelled.compute.lease_ms() == 9_000


def test_a_log_is_read_from_each_replica(shelled):
    for name in ("r1", "r2"):
        link = shelled.replica(name)
        link.answers[pr.Peek] = lambda peek, rows=name: pr.PeekAnswered(
            peek.peek_id, pr.PeekRows(rows.encode())
        )
    found = [answer for _, answer in shelled.compute.log(pr.Log.ARRANGEMENTS)]
    assert [each.rows for each in found] == [b"r1", b"r2"]
    asked = {peek.id for link in shelled.links.values() for peek in of_kind(link.told, pr.Peek)}
    assert len(asked) == 1


def test_a_peek_is_answered_cancelled_or_ends_with_the_shell(shelled):
    described = index("u50", [shelled.table], as_of=5)
    shelled.compute.create([("c", described)], {}, Timestamp(9))
    link = shelled.replica()
    limits = pr.PeekLimits(3, 9)
    wanted = pr.Peek("", "u50", Timestamp(7), b"keys", limits)
    answered, cancelled, left = (shelled.compute.peek("c", wanted, "r1") for _ in range(3))
    told = of_kind(link.told, pr.Peek)
    assert told[0] == pr.Peek(answered.peek_id, "u50", Timestamp(7), b"keys", limits)
    link.say([pr.PeekAnswered(answered.peek_id, pr.PeekRows(b"rows"))])
    assert answered.answer.result(PATIENCE) == pr.PeekRows(b"rows")
    shelled.compute.cancel_peek(cancelled.peek_id)
    assert cancelled.answer.result(PATIENCE) == pr.PeekCanceled()
    assert pr.CancelPeek(cancelled.peek_id) in link.told
    shelled.compute.cancel_peek(answered.peek_id)
    assert not left.answer.done()
    shelled.compute.close()
    assert left.answer.result(PATIENCE) == pr.PeekCanceled()


def test_a_replica_is_online_while_it_is_connected(shelled):
    assert shelled.compute.replica_statuses() == {}
    first = shelled.replica("r1")
    shelled.replica("r2")
    keys = r1, r2 = ReplicaKey("c", "r1"), ReplicaKey("c", "r2")
    assert shelled.compute.replica_statuses() == dict.fromkeys(keys, ReplicaStatus(True, 1_000))
    shelled.now_ms = 2_000
    first.say([ConnectionLost()])
    assert shelled.compute.replica_statuses()[r1] == ReplicaStatus(False, 2_000)
    shelled.now_ms = 3_000
    shelled.compute.maintain()
    assert shelled.compute.replica_statuses()[r1] == ReplicaStatus(True, 3_000)
    # What the former connection says is not about the present one.
    first.say([ConnectionLost()])
    assert shelled.compute.replica_statuses()[r1] == ReplicaStatus(True, 3_000)
    shelled.compute.drop_replica("c", "r1")
    assert shelled.compute.replica_statuses() == {r2: ReplicaStatus(True, 1_000)}


def test_the_file_of_a_peek_that_nobody_waits_for_is_discarded(shelled):
    shelled.compute.create([("c", index("u50", [shelled.table], as_of=5))], {}, Timestamp(9))
    link = shelled.replica()
    stash = pr.Stash("file:///peeks", pr.PeekLimits(30, 90))
    wanted = pr.Peek("", "u50", Timestamp(7), None, pr.PeekLimits(3, 9), stash)
    peek = shelled.compute.peek("c", wanted, "r1")
    (told,) = of_kind(link.told, pr.Peek)
    assert told.stash == stash
    files = [pr.PeekStashed(f"file:///peeks/{name}", 20, 80, 1, "{}") for name in "ab"]
    link.say([pr.PeekAnswered(peek.peek_id, each) for each in files])
    assert peek.answer.result(PATIENCE) == files[0]
    assert shelled.discarded == ["file:///peeks/b"]


def test_what_waits_for_its_input_is_scheduled_when_that_was_committed(shelled):
    shelled.views("u101", as_of=10)
    link = shelled.replica()
    assert of_kind(link.told, pr.Schedule) == []
    shelled.room.tick(12)
    shelled.compute.committed()
    assert of_kind(link.told, pr.Schedule) == [pr.Schedule("u101")]
    assert link.woken == 1


def test_statuses_are_told_with_what_they_were(shelled):
    shelled.views("u101")
    link = shelled.replica()
    failed = pr.DataflowStatus("u101", pr.Problem("X", "58030", "no"), is_stalled=True)
    link.say([failed])
    link.say([pr.DataflowStatus("u101")])
    assert shelled.told.statuses == [
        (pr.DataflowStatus("u101"), failed),
        (failed, pr.DataflowStatus("u101")),
    ]
    statuses = shelled.compute.look(lambda core: core.statuses("c", "u101"))
    assert statuses == {"r1": pr.DataflowStatus("u101")}
    assert ReplicaKey("c", "r1") in shelled.compute._links


def test_a_replica_whose_connection_was_lost_is_connected_again(shelled):
    (target,) = shelled.views("u101")
    before = shelled.replica()
    log = shelled.compute._logs["c"][0]
    asked = shelled.compute.peek("c", pr.Peek("", log, Timestamp(0)), "r1").answer
    assert len(of_kind(before.told, pr.Peek)) == 1
    before.say([ConnectionLost()])
    before.say([ConnectionLost(), computed("u101", 5, 7)])
    told = list(before.told)
    shelled.compute.maintain()
    assert before.closed
    # What only it was asked has an answer, what is still to be done is told anew.
    assert isinstance(asked.result(PATIENCE), pr.PeekFailed)
    link = shelled.links["r1"]
    assert link is not before
    assert [c.dataflow.export_ids for c in of_kind(link.told, pr.CreateDataflow)] == [("u101",)]
    before.say([ConnectionLost(), computed("u101", 5, 7)])
    assert shelled.outputs.uppers[target] == Frontier(5)
    link.say([computed("u101", 5, 8)])
    assert shelled.outputs.uppers[target] == Frontier(8)
    assert before.told == told
