"""A changefeed's ingestion over a world in memory that is durable, and crashes that spare it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from slackwater.checkpoints import MemoryStore
from slackwater.repr.relation import DIFF_COLUMN, RelationDesc
from slackwater.storage.changefeed.encoding import place_of
from slackwater.storage.changefeed.files import FolderReader
from slackwater.storage.changefeed.ingestion import (
    ChangefeedConfig,
    ChangefeedIngestion,
    Durable,
    Inputs,
)
from slackwater.storage.changefeed.messages import ChangeRecord, MessageTarget, Resolved, message_of
from slackwater.storage.changefeed.tables import FeedTable
from slackwater.storage.ingestion import Reached

ACCOUNTS = RelationDesc.of(id="long", owner="string", balance="long")
LANDING, DEAD_LETTERS = "landing", "dead_letters"


def config_of(tables, **around):
    found = {name: FeedTable(ACCOUNTS, ("id",)) for name in tables}
    return ChangefeedConfig("slackwater.default.bank", found, LANDING, DEAD_LETTERS, **around)


class World:
    """What is durable of a source: landing, tables, state, frontier, checkpoints.

    `send` lands a message; `step` lets the ingestion bind. It resumes whenever `crash` was called.
    `folder` is that of a source of files.
    """

    def __init__(self, config, folder=None):
        self.config = config
        self.folder = folder
        self.store = MemoryStore()
        self.landing = Counter()
        self.dead_letters = Counter()
        self.tables = {name: Counter() for name in config.tables}
        self.reached = Reached()
        self.begins = {}
        self.arrived = []
        self.replays = 0
        self.told = []
        if config.feeds:
            self.store.ensure("u1", config.feeds)
        self.resume()

    @property
    def frontier(self):
        frontier = self.reached.frontier
        return 0 if frontier is None else frontier.positions[0].offset

    def take(self):
        arrived, self.arrived = self.arrived, []
        return arrived

    def replay_requests(self):
        return self.replays

    def replayed(self, replay_requests, tried, left):
        self.replays -= replay_requests
        self.told.append((tried, left))

    def resume(self):
        """The ingestion from what is durable."""
        self.arrived = []
        found = {True: [], False: []}
        for (landed, bound), count in self.landing.items():
            assert count > 0
            found[bound] += [landed] * count
        self.ingestion = ChangefeedIngestion(
            "u1",
            self.config,
            Inputs(
                lambda lookahead: self.store.state("u1", lookahead),
                self,
                None if self.folder is None else self.reader(),
                lambda: list(self.dead_letters.elements()),
            ),
            Durable(
                found[False],
                found[True],
                self.reached.frontier,
                self.reached.state,
                frozenset(self.reached.statistics.begun),
            ),
        )

    def create(self, table):
        """The source gets a table, with an export that none had before."""
        export = f"{table}, made {len(self.begins)}"
        self.begins[export] = None
        self.tables[export] = Counter()
        self._declare({**self.config.later, table: export})

    def drop(self, table):
        """A table that the source got goes."""
        del self.tables[self.config.later[table]]
        self._declare({name: e for name, e in self.config.later.items() if name != table})

    def _declare(self, later):
        made = [name for name in self.config.tables if name not in self.config.later]
        tables = {name: FeedTable(ACCOUNTS, ("id",)) for name in (*made, *later)}
        self.config = replace(self.config, tables=tables, later=later)
        self.resume()

    @property
    def keys(self):
        return {name: table.key for name, table in self.config.tables.items()}

    def reader(self):
        """What reads the folder of a source of files."""
        return FolderReader(
            str(self.folder),
            self.keys,
            lambda time, feed: self.store.advance("u1", feed, time),
            self.config.lookahead,
        )

    def send(self, message):
        found = message_of(MessageTarget(), message.body, message.feed, self.keys)
        if isinstance(found, Resolved):
            self.store.advance("u1", message.feed, found.time)
        else:
            self.land(*found.rows)

    def land(self, *rows):
        self.landing.update((row, False) for row in rows)
        self.arrived += rows

    def step(self, *, dies_before=False, dies_after=False):
        """One poll; its step is durable unless it `dies_before`. Whether there was one."""
        step = self.ingestion.poll(0)
        if step is not None and not dies_before:
            self._commit(step)
            if not dies_after:
                self.ingestion.committed(step)
        if dies_before or dies_after:
            self.resume()
        self.ingestion.validate()
        self.store.state("u1", None).validate()
        return step is not None

    def rows(self, table):
        """The rows of a table by their ids, each of which is there once."""
        counts = self.tables[self.config.later.get(table, table)]
        assert all(count == 1 for count in counts.values())
        found = {row[0]: dict(zip(ACCOUNTS.names, row, strict=True)) for row in counts}
        assert len(found) == len(counts)
        return found

    def _commit(self, step):
        for export in step.statistics.begun:
            assert self.begins[export] is None
            self.begins[export] = self.frontier
        for export, updates in step.updates.items():
            for row in updates.to_pylist():
                diff = row.pop(DIFF_COLUMN)
                if export == LANDING:
                    bound = row.pop("bound")
                    _add(self.landing, (_landed(row), bound), diff)
                elif export == DEAD_LETTERS:
                    reason = row.pop("reason")
                    _add(self.dead_letters, (_landed(row), reason), diff)
                else:
                    _add(self.tables[export], tuple(row.values()), diff)
        self.reached = self.reached.after(step)
        if step.checkpoints is not None:
            self.store.commit("u1", step.checkpoints)


def _landed(row):
    return ChangeRecord(**{**row, "updated": place_of(row["updated"])})


def _add(counts, key, diff):
    counts[key] += diff
    assert counts[key] >= 0
    if counts[key] == 0:
        del counts[key]
