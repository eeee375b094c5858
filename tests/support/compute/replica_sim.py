"""A replica that computes nothing but times, and says what a replica says.

`SimReplica` is a process. It may lose its connection and go on alone, or die. Over a connection
it takes commands one by one, in order, and has responses that wait to be received. It asserts what
a replica may expect of the controller: times of inputs that can be read, a schedule that comes
once, few hydrations at once, no compaction that overtakes a peek.

The contents of a dataflow are those of `times_of`: they depend on its id alone.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from slackwater.compute.controller import protocol as pr
from slackwater.compute.controller.descriptions import (
    CopyToExport,
    MaterializedViewExport,
    SubscribeExport,
)
from slackwater.compute.controller.history import ReplicaState
from slackwater.compute.controller.reconciliation import reconcile
from slackwater.controller.protocol import Hello, InitializationComplete
from slackwater.repr.frontier import EMPTY_FRONTIER, Frontier, Timestamp
from slackwater.repr.ids import is_transient


def times_of(global_id, lower, upper):
    """The times in ``[lower, upper)`` at which the contents of the dataflow change."""
    salt = zlib.crc32(global_id.encode())
    return [t for t in range(lower, upper) if (t * t + salt) % 3 != 0]


def changes(global_id, as_of, lower, upper):
    """The updates of a dataflow that begins at `as_of`: its contents there, then the changes.

    Each is the time at which it is told and the one at which it happened.
    """
    found = [(max(t, as_of), t) for t in times_of(global_id, 0, upper)]
    return [(told, t) for told, t in found if lower <= told < upper]


@dataclass
class Progress:
    """How far an export is in this process. `as_of` is where this process began to compute it."""

    as_of: int
    connected_as_of: int
    upper: int
    offered: int = 0
    sent: int = 0
    scheduled: bool = False
    has_copied: bool = False

    @property
    def is_hydrated(self):
        return self.upper > self.as_of


class SimReplica:
    """One replica process. `stored` are the stored collections, `limit` bounds its hydrations.

    `is_live(id)`: whether that collection was not dropped.
    """

    def __init__(self, name, stored, limit, is_live):
        self.name, self.stored, self.limit, self.is_live = name, stored, limit, is_live
        self.die()
        self.nonce = None

    def die(self):
        self.state = ReplicaState()
        self.progress: dict[str, Progress] = {}
        self.described: dict = {}
        self.inbox, self.outbox, self.buffer = [], [], []
        self.is_ready = False

    # Connections

    def connect(self, nonce):
        self.nonce = nonce
        self.inbox, self.outbox, self.buffer = [], [], []
        self.is_ready = False

    def disconnect(self):
        """What was under way is lost, but for what the controller gets too late."""
        self.nonce = None
        late, self.outbox = self.outbox, []
        self.inbox = []
        return late

    # Commands

    def receive(self):
        """Takes the next command."""
        command = self.inbox.pop(0)
        if self.is_ready:
            self._apply(command)
            return
        self.buffer.append(command)
        if isinstance(command, InitializationComplete):
            self._reconcile()

    def _reconcile(self):
        assert isinstance(self.buffer[0], Hello)
        assert self.buffer[0].nonce == self.nonce
        actions = reconcile(self.state, self.buffer)
        self.state = actions.state
        scheduled = [c.id for c in self.buffer if isinstance(c, pr.Schedule)]
        assert len(set(scheduled)) == len(scheduled), "scheduled twice"
        for each in actions.stop:
            del self.progress[each]
        for allowed in actions.keep:
            progress = self.progress[allowed.id]
            progress.connected_as_of = allowed.since.value
            # Nothing was reported over this connection; what it computes is offered anew.
            progress.sent = allowed.since.value
            progress.scheduled = False
        for dataflow in actions.start:
            self._create(dataflow)
        for each in scheduled:
            if each in self.progress:
                self._may_begin(each)
                self.progress[each].scheduled = True
        for each, upper in self.state.outputs.items():
            if each in self.progress:
                self.progress[each].offered = upper.value
        self.is_ready = True
        self._few_hydrate()

    def _create(self, dataflow):
        for each in dataflow.export_ids:
            as_of = dataflow.as_of.value
            self.progress[each] = Progress(as_of, as_of, as_of, sent=0)
            self.described[each] = dataflow

    def _apply(self, command):
        before = set(self.state.export_ids)
        match command:
            case pr.CreateDataflow(dataflow):
                assert before.isdisjoint(dataflow.export_ids), "created twice"
                self._create(dataflow)
            case pr.Schedule(global_id):
                assert not self.progress[global_id].scheduled, "scheduled twice"
                self._may_begin(global_id)
                self.progress[global_id].scheduled = True
            case pr.Peek(_, global_id, time):
                assert self.state.sinces[global_id].value <= time, "a peek before the since"
        kinds = {i: self._export(i) for i in before}
        self.state.apply(command)
        for each, since in self.state.sinces.items():
            for peek in self.state.peeks.values():
                assert peek.id != each or since.value <= peek.time, "compaction overtakes a peek"
        for each in before - self.state.export_ids:
            self._end(each, kinds[each])
        if isinstance(command, pr.OutputAdvanced) and command.id in self.progress:
            self.progress[command.id].offered = command.upper.value
        self._few_hydrate()

    def _end(self, global_id, export):
        progress = self.progress.pop(global_id)
        assert not any(peek.id == global_id for peek in self.state.peeks.values())
        read = None
        match export:
            case SubscribeExport():
                reached = Frontier(max(progress.sent, 0))
                self.outbox.append(pr.SubscribeDropped(global_id, reached))
            case CopyToExport():
                if not progress.has_copied:
                    self.outbox.append(pr.CopyToAnswered(global_id, pr.CopyToDropped()))
            case _:
                read = EMPTY_FRONTIER
        self.outbox.append(pr.FrontierReport(global_id, read, EMPTY_FRONTIER, read))

    def _may_begin(self, global_id):
        """A schedule comes when the inputs have the as-of, and after those of the indexes.

        A hold on what was dropped may have moved the as-of since the schedule was decided, before
        this connection too.
        """
        dataflow = self.described[global_id]
        if is_transient(global_id):
            return
        as_of = self.progress[global_id].connected_as_of
        for each in dataflow.source_ids if self.is_ready and self.is_live(global_id) else ():
            assert self.stored.frontiers(each).upper.value > as_of, "scheduled too early"
        for each in dataflow.index_imports:
            assert self.progress[each].scheduled, "scheduled before what it reads"

    def _few_hydrate(self):
        """I48, as a replica sees it: it knows earlier than the controller what is done."""
        hydrating = [
            i
            for i, each in self.progress.items()
            if each.scheduled and each.upper <= each.connected_as_of and not is_transient(i)
        ]
        assert len(hydrating) <= self.limit, f"{hydrating} hydrate at once"

    # Work

    def _export(self, global_id):
        dataflow = self.described[global_id]
        exports = (*dataflow.index_exports, *dataflow.sink_exports)
        return next(each for each in exports if each.id == global_id)

    def work(self, global_id, steps):
        """Computes further, as far as the inputs are complete. False if nothing can be done."""
        progress = self.progress[global_id]
        if not progress.scheduled and not progress.is_hydrated:
            return False
        dataflow = self.described[global_id]
        stored = [self.stored.frontiers(i) for i in dataflow.source_ids]
        imports = [self.progress[i] for i in dataflow.index_imports]
        uppers = [each.upper.value for each in stored if each is not None]
        uppers += [each.upper if each.is_hydrated else 0 for each in imports]
        # A constant changes for ever here, so that it has something to do.
        upper = min([progress.upper + steps, *uppers])
        if upper <= progress.upper:
            return False
        for each in stored:
            reads_at = max(progress.connected_as_of, progress.upper)
            assert each is not None, "an input is gone"
            # Alone, and before it knows what a new controller wants of it, it reads what it can.
            is_held = self.nonce is not None and self.is_ready
            assert not is_held or each.since.value <= reads_at, "an input was compacted"
        progress.upper = upper
        return True

    def report(self, global_id, parts):
        """Says how far the export is: of "write", "input" and "output" those in `parts`."""
        progress = self.progress[global_id]
        reached = Frontier(max(progress.upper, progress.connected_as_of))
        told = dict.fromkeys(parts, reached)
        export = self._export(global_id)
        if isinstance(export, CopyToExport):
            told.pop("write", None)
            told.pop("output", None)
        if progress.has_copied:
            told = {}
        if told:
            self.outbox.append(pr.FrontierReport(global_id, **told))

    def offer(self, global_id):
        """Sends what was computed since the last time: a batch, a copy, or updates of a view."""
        progress = self.progress[global_id]
        if not progress.is_hydrated:
            return
        upper = progress.upper
        match self._export(global_id):
            case SubscribeExport() if upper > progress.sent:
                lower = progress.sent if self._told(global_id) else 0
                updates = changes(global_id, progress.as_of, lower, upper)
                progress.sent = upper
                self.outbox.append(
                    pr.SubscribeBatch(
                        global_id,
                        Frontier(lower),
                        Frontier(upper),
                        tuple(pr.SubscribeUpdate(Timestamp(a), b"%d" % b) for a, b in updates),
                    )
                )
            case CopyToExport() if not progress.has_copied:
                progress.has_copied = True
                count = len(times_of(global_id, 0, progress.as_of + 1))
                self.outbox.append(pr.CopyToAnswered(global_id, pr.CopyToRows(count)))
            case MaterializedViewExport() if global_id in self.state.writing:
                lower = progress.offered
                if upper > lower:
                    rows = [b for _, b in changes(global_id, progress.as_of, lower, upper)]
                    raw = repr(rows).encode()
                    offer = pr.Computed(global_id, Frontier(lower), Frontier(upper), raw)
                    self.outbox.append(offer)
                    progress.offered = upper

    def _told(self, global_id):
        return self.progress[global_id].sent > 0

    def answer(self, peek_id):
        """Answers the peek if it can be read. False if it has to wait."""
        peek = self.state.peeks[peek_id]
        progress = self.progress.get(peek.id)
        if progress is None or not progress.is_hydrated or progress.upper <= peek.time:
            return False
        assert self.state.sinces[peek.id].value <= peek.time, "a peek before the since"
        del self.state.peeks[peek_id]
        rows = repr(times_of(peek.id, 0, peek.time + 1)).encode()
        self.outbox.append(pr.PeekAnswered(peek_id, pr.PeekRows(rows)))
        return True
