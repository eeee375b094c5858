"""A small room for the storage controller: what is durable, one step at a time, and who uses it.

`Room` is the shell of a simulation. It carries out the effects of the controller one by one on
`Durable`, and may die between any two of them; then everything but `Durable` is gone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from slackwater.repr.frontier import EMPTY_FRONTIER, MINIMUM_FRONTIER, Frontier
from slackwater.repr.ids import user_id
from slackwater.repr.read_policy import LagWriteFrontier
from slackwater.storage.controller import effects as ef
from slackwater.storage.controller.core import StorageController
from slackwater.storage.controller.descriptions import (
    CollectionDescription,
    CollectionMetadata,
    DurableState,
    ExportDescription,
    IngestionDescription,
    IngestionExport,
    OtherWriter,
    Progress,
    Table,
)
from slackwater.storage.controller.protocol import AppendDone, ShardFinalized, SnapshotRead

INSTANCE = "quickstart"


class Died(Exception):
    """The process is gone."""


@dataclass
class Shard:
    since: Frontier = MINIMUM_FRONTIER
    upper: Frontier = MINIMUM_FRONTIER
    shared: bool = False
    finalized: bool = False


@dataclass
class Durable:
    """What outlives the process."""

    catalog: dict = field(default_factory=dict)
    sinks: dict = field(default_factory=dict)
    shards: dict[int, Shard] = field(default_factory=dict)
    mappings: dict = field(default_factory=dict)
    unfinalized: set[int] = field(default_factory=set)
    tables_upper: Frontier = MINIMUM_FRONTIER
    next_id: int = 1
    next_shard: int = 1

    def state(self):
        claimed = self.mappings.keys() | self.unfinalized
        unclaimed = {s for s, each in self.shards.items() if not each.finalized} - claimed
        return DurableState(
            dict(self.mappings),
            frozenset(self.unfinalized),
            frozenset(unclaimed),
        )

    def new_shard(self, shared, since):
        number, self.next_shard = self.next_shard, self.next_shard + 1
        self.shards[number] = Shard(since=since, upper=MINIMUM_FRONTIER, shared=shared)
        return number

    def give_up(self, ids):
        """The shards of the objects are dropped, in the transaction that drops these."""
        for shard in [each for each, owner in self.mappings.items() if owner in ids]:
            del self.mappings[shard]
            self.unfinalized.add(shard)

    def apply(self, effect):
        """One durable effect."""
        match effect:
            case ef.DowngradeSince(shard, since):
                # A shard that was finalized meanwhile is a tombstone: nothing moves it.
                self.shards[shard].since = max(self.shards[shard].since, since)
            case ef.RegisterFinalization(shards):
                self.unfinalized |= set(shards)
            case ef.ReclaimShards(shards):
                assert not any(self.shards[each].finalized for each in shards)
                self.unfinalized -= set(shards)
            case ef.FinalizeShard(shard):
                assert shard not in self.mappings, "a shard in use was finalized"
                intended = shard in self.unfinalized or self.shards[shard].finalized
                assert intended, "a shard was finalized without intent"
                self.shards[shard] = Shard(EMPTY_FRONTIER, EMPTY_FRONTIER, finalized=True)
                self.unfinalized.discard(shard)

    def metadata(self, global_id):
        owned = sorted(shard for shard, owner in self.mappings.items() if owner == global_id)
        first = self.shards[owned[0]]
        return CollectionMetadata(
            owned[0], first.since, first.upper, first.shared, tuple(owned[1:])
        )


class Room:
    """A process that may die. `alive_for` says after how many more durable steps; None: never."""

    def __init__(self, durable=None, shared_sources=True):
        self.durable = durable or Durable()
        self.shared_sources = shared_sources
        self.alive_for = None
        self.open()

    def open(self):
        """Starts the process: everything that the catalog has, then reconciliation."""
        durable = self.durable
        self.core = StorageController(durable.state(), durable.tables_upper)
        self.core.placement.create_instance(INSTANCE)
        self.core.placement.connect_replica(INSTANCE, "r1", "here")
        self.sent, self.answers, self.snapshots = [], {}, {}
        assert self.core.migrate_collections() == frozenset()
        self.run()
        self.core.create_collections(
            [(i, description) for i, (description, _) in durable.catalog.items()],
            {each: durable.metadata(each) for each in durable.catalog},
        )
        self.recovered = {state.id: state.since for state in self.core.capabilities.settled()}
        for global_id, description in durable.sinks.items():
            token = self.core.exports.prepare(global_id, description.from_id)
            self.core.create_exports([(token, description)])
        self.core.set_read_policy([(i, policy) for i, (_, policy) in durable.catalog.items()])
        self.core.placement.initialization_complete()
        self.core.reconcile_state()
        self.run()

    def step(self):
        """A durable step is about to be taken."""
        if self.alive_for is not None:
            if self.alive_for == 0:
                raise Died
            self.alive_for -= 1

    def run(self, effects=None):
        """Carries out effects until nothing is left to do."""
        todo = self.core.process() if effects is None else effects
        while todo:
            for effect in todo:
                self.execute(effect)
            todo = self.core.process()

    def execute(self, effect):
        match effect:
            case ef.SendToReplica(_, command):
                self.sent.append(command)
            case ef.AppendRows(ticket, appends):
                self.step()
                for each in appends:
                    shard = self.durable.shards[each.shard_id]
                    if shard.shared:
                        self.durable.tables_upper = each.upper
                    else:
                        shard.upper = each.upper
                self.core.respond(AppendDone(ticket))
            case ef.AnswerAppend(ticket, error) | ef.AnswerSnapshot(ticket, error):
                self.answers[ticket] = error
            case ef.ReadSnapshot(ticket):
                self.snapshots[ticket] = effect
                self.core.respond(SnapshotRead(ticket))
            case ef.WriteStatus() | ef.Configure() | ef.ConnectReplica() | ef.DisconnectReplica():
                pass
            case ef.FinalizeShard(shard):
                self.check_unread(shard)
                self.step()
                self.durable.apply(effect)
                self.core.respond(ShardFinalized(shard))
            case ef.DowngradeSince(shard, since):
                self.check_allowed(shard, since)
                self.step()
                self.durable.apply(effect)
            case _:
                self.step()
                self.durable.apply(effect)

    def check_unread(self, shard):
        """Nobody who is alive may still read it (I26)."""
        for state in self.core.capabilities.settled():
            assert shard != state.metadata.shard_id

    def check_allowed(self, shard, since):
        """A durable since is never ahead of the one that the controller keeps (I17)."""
        for state in self.core.capabilities.settled():
            if state.metadata.shard_id == shard:
                assert since <= state.since

    def shares_tables_upper(self, source):
        return isinstance(source, Table) or (
            self.shared_sources and not isinstance(source, OtherWriter)
        )

    # Definitions

    def create(self, source, policy=None, shards=1, runs_ahead=False):
        """A new collection, as one definition."""
        policy = policy or LagWriteFrontier(2, 1)
        durable = self.durable
        global_id, durable.next_id = user_id(durable.next_id), durable.next_id + 1
        shared = self.shares_tables_upper(source)
        now = Frontier(max(0, durable.tables_upper.value - 1)) if shared else MINIMUM_FRONTIER
        self.step()
        made = [durable.new_shard(shared, now) for _ in range(shards)]
        durable.mappings.update(dict.fromkeys(made, global_id))
        description = CollectionDescription(source, runs_ahead=runs_ahead)
        durable.catalog[global_id] = (description, policy)
        self.step()
        self.core.shards.map((global_id, shard) for shard in made)
        self.core.create_collections(
            [(global_id, durable.catalog[global_id][0])], {global_id: durable.metadata(global_id)}
        )
        self.core.set_read_policy([(global_id, policy)])
        self.run()
        return global_id

    def ingestion(self):
        """A progress collection and an ingestion that is bound by it."""
        remap = self.create(Progress(), LagWriteFrontier(1, 1))
        return self.create(IngestionDescription(INSTANCE, "upstream", remap))

    def own_remap(self):
        """An ingestion that is its own progress collection."""
        upcoming = user_id(self.durable.next_id)
        return self.create(
            IngestionDescription(INSTANCE, "upstream", upcoming), LagWriteFrontier(1, 1)
        )

    def export_of(self, ingestion):
        return self.create(IngestionExport(ingestion, "orders"))

    def table(self, **options):
        return self.create(Table(), **options)

    def view(self, **options):
        return self.create(OtherWriter(), **options)

    def drop(self, global_id):
        """Drops a collection and what depends on it, as one definition."""
        durable = self.durable
        gone = [global_id]
        for each, (description, _) in durable.catalog.items():
            match description.data_source:
                case IngestionDescription(_, _, remap) if remap in gone and each not in gone:
                    gone.append(each)
                case IngestionExport(ingestion) if ingestion in gone:
                    gone.append(each)
        sinks = [i for i, description in durable.sinks.items() if description.from_id in gone]
        self.step()
        durable.give_up(gone)
        for each in gone:
            del durable.catalog[each]
        for each in sinks:
            del durable.sinks[each]
        self.step()
        self.core.shards.give_up(gone)
        self.core.drop_sinks(sinks)
        self.core.drop_sources(gone)
        self.run()
        return gone

    def sink(self, from_id, as_of=None):
        """A new sink, as one definition."""
        durable = self.durable
        global_id, durable.next_id = user_id(durable.next_id), durable.next_id + 1
        token = self.core.exports.prepare(global_id, from_id)
        begin = token.acquired_since if as_of is None else as_of
        description = ExportDescription(from_id, INSTANCE, "files", begin)
        self.step()
        durable.sinks[global_id] = description
        self.step()
        self.core.create_exports([(token, description)])
        self.run()
        return global_id

    def drop_sink(self, global_id):
        self.step()
        del self.durable.sinks[global_id]
        self.step()
        self.core.drop_sinks([global_id])
        self.run()

    # Writers

    def write(self, global_id, upper):
        """The writer of the collection commits up to `upper`, then reports it."""
        shard = self.durable.shards[self.durable.metadata(global_id).shard_id]
        self.step()
        if shard.shared:
            self.durable.tables_upper = max(self.durable.tables_upper, upper)
        else:
            shard.upper = max(shard.upper, upper)
        self.core.update_write_frontiers([(global_id, upper)])
        self.run()

    def restart(self):
        self.alive_for = None
        self.open()
