"""A small room for the compute controller: real stored collections, and a shell that commits.

`ComputeRoom` carries out the effects of the controller. Commands and responses go through their
encodings, as over a wire; what replicas do is left to the tests.
"""

from __future__ import annotations

import pytest
from tests.support.storage.storage_model import Room

from slackwater.compute.controller import effects as ef
from slackwater.compute.controller import protocol as pr
from slackwater.compute.controller.core import ComputeController
from slackwater.compute.controller.descriptions import (
    CopyToExport,
    DataflowDescription,
    IndexExport,
    MaterializedViewExport,
    ObjectToBuild,
    SourceImport,
    SubscribeExport,
)
from slackwater.compute.controller.encoding import (
    decode_command,
    decode_response,
    encode_command,
    encode_response,
)
from slackwater.compute.controller.errors import ComputeError
from slackwater.compute.controller.protocol import (
    FromReplica,
    OutputCommitted,
    OutputRefused,
)
from slackwater.controller.protocol import ReplicaKey
from slackwater.repr.frontier import EMPTY_FRONTIER, Frontier
from slackwater.repr.read_policy import LagWriteFrontier

CLUSTER = "c"


def at(time):
    return EMPTY_FRONTIER if time is None else Frontier(time)


def dataflow(exports, sources=(), indexes=(), as_of=5, **options):
    """A dataflow with these exports, which computes something of its imports."""
    return DataflowDescription(
        name=" ".join(each.id for each in exports),
        objects_to_build=tuple(ObjectToBuild(each.on, "plan") for each in exports),
        source_imports=tuple(SourceImport(each, "relation") for each in sources),
        index_imports=tuple(indexes),
        index_exports=tuple(e for e in exports if isinstance(e, IndexExport)),
        sink_exports=tuple(e for e in exports if not isinstance(e, IndexExport)),
        as_of=Frontier(as_of) if isinstance(as_of, int) else as_of,
        **options,
    )


def index(global_id, sources=(), indexes=(), as_of=5, **options):
    return dataflow([IndexExport(global_id, "t1", ("k",))], sources, indexes, as_of, **options)


def view(global_id, target, sources=(), indexes=(), as_of=5, **options):
    export = MaterializedViewExport(global_id, "t1", target)
    return dataflow([export], sources, indexes, as_of, **options)


def subscribe(global_id, sources=(), indexes=(), as_of=5, **options):
    return dataflow([SubscribeExport(global_id, "t1")], sources, indexes, as_of, **options)


def copy_to(global_id, sources=(), as_of=5, **options):
    return dataflow([CopyToExport(global_id, "t1", "folder")], sources, (), as_of, **options)


class ComputeRoom:
    """A controller over a room of storage, with one instance."""

    def __init__(self, read_only=False, commits=True):
        self.storage = Room()
        self.stored = self.storage.core.capabilities
        self.core = ComputeController(self.stored, read_only=read_only)
        self.core.create_instance(CLUSTER)
        self.commits = commits
        self.effects = []
        self.committed = {}

    # What is stored

    def table(self, upper=10):
        table = self.storage.table(policy=LagWriteFrontier(5))
        self.tick(upper)
        return table

    def tick(self, upper):
        """All tables are complete up to `upper`."""
        if (tables := self.stored.tables_upper) < Frontier(upper):
            self.storage.durable.tables_upper = Frontier(upper)
            self.stored.advance_tables(Frontier(upper))
        assert self.stored.tables_upper >= tables

    def target(self, upper=0):
        """The stored collection of a view."""
        made = self.storage.view()
        if upper:
            self.storage.write(made, Frontier(upper))
        return made

    # The shell

    def run(self):
        """Carries out all effects and returns them."""
        found = []
        while self.core.ready():
            for effect in self.core.process():
                found.append(effect)
                self.execute(effect)
        self.core.validate()
        self.effects += found
        return found

    def maintain(self):
        found = list(self.core.maintain())
        for effect in found:
            self.execute(effect)
        return found + self.run()

    def execute(self, effect):
        match effect:
            case ef.SendToReplica(_, _, command):
                assert decode_command(encode_command(command)) == command
            case ef.CommitOutput() if self.commits:
                self.commit(effect)

    def commit(self, effect):
        """Appends to the stored collection, which refuses whatever is not next."""
        state = self.stored.collections.get(effect.target)
        if state is None or state.upper != effect.lower:
            upper = EMPTY_FRONTIER if state is None else state.upper
            self.core.respond(OutputRefused(effect.ticket, upper))
            return
        self.committed.setdefault(effect.target, []).append(effect)
        self.storage.write(effect.target, effect.upper)
        self.core.respond(OutputCommitted(effect.ticket))

    # Replicas

    def replica(self, name):
        """Adds a replica and returns what it is told."""
        self.core.add_replica_to_instance(CLUSTER, name, "here")
        return sent(self.run(), name)

    def nonce(self, name):
        return self.core.replicas(CLUSTER)[name].nonce

    def says(self, name, *responses, nonce=None):
        """The replica sends the responses; what follows from them."""
        for each in responses:
            assert decode_response(encode_response(each)) == each
            key = ReplicaKey(CLUSTER, name)
            given = self.nonce(name) if nonce is None else nonce
            self.core.respond(FromReplica(key, given, each))
        return self.run()


def sent(effects, to):
    """The commands that the replica is sent."""
    return [
        each.command
        for each in effects
        if isinstance(each, ef.SendToReplica) and each.to.replica == to
    ]


def of_kind(effects, kind):
    return [each for each in effects if isinstance(each, kind)]


def refused(variant, action, *arguments, **options):
    with pytest.raises(ComputeError) as caught:
        action(*arguments, **options)
    assert caught.value.variant is variant
    return caught.value.names


def indexed(room, upper=10, as_of=5, name="u50"):
    """A table with an index, and the name of each."""
    table = room.table(upper)
    room.core.create_dataflow(CLUSTER, index(name, [table], as_of=as_of))
    room.run()
    return table, name


def holds_of(room, table, kind):
    return [h.since for h in room.stored.holds if h.ids == {table} and h.holder.kind is kind]


def report(global_id, write=None, read=None, output=None):
    return pr.FrontierReport(
        global_id,
        None if write is None else at(write),
        None if read is None else at(read),
        None if output is None else at(output),
    )


def done(global_id):
    return pr.FrontierReport(global_id, EMPTY_FRONTIER, EMPTY_FRONTIER, EMPTY_FRONTIER)
