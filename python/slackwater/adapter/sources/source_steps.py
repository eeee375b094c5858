"""The steps of ingestions: each commits what its source has read since the last one.

Source: spec controllers 5.1 to 5.3, docs/decisions 0002 and 0011.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from sqlalchemy import Connection

from slackwater.adapter.catalog.durable import DurableCatalog
from slackwater.adapter.catalog.model import CatalogItem, CatalogState
from slackwater.adapter.sources.checkpoint_counts import CheckpointCounts
from slackwater.adapter.sources.source_states import SourceStates
from slackwater.adapter.writing.staged_files import staged_files
from slackwater.checkpoints import statements
from slackwater.persist.client import PersistClient
from slackwater.persist.parts import RowsOrParts
from slackwater.persist.transactions import Step
from slackwater.repr.frontier import Timestamp
from slackwater.repr.hlc import Range
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import RelationDesc
from slackwater.repr.spans import Attributes, Moves, NoSpans, Spans
from slackwater.storage.ingestion import IngestionStep, Reached
from slackwater.storage.pieces import StagedRows
from slackwater.storage.progress import binding_rows


@dataclass(frozen=True, slots=True)
class SourceSteps:
    """Commits the steps of ingestions.

    `begin` lets nobody read collections before the time of their first contents; None: before their
    upper. `signal` lets those who wait for first contents look.
    """

    persist: PersistClient
    catalog: DurableCatalog
    states: SourceStates
    clock_ms: Callable[[], int]
    counts: CheckpointCounts
    begin: Callable[[Collection[GlobalId], Timestamp | None], None]
    signal: Callable[[], None]
    spans: Spans = field(default_factory=NoSpans)

    def commit(self, source_id: GlobalId, reached: Reached, step: IngestionStep) -> None:
        """Commits the step of an ingestion that has `reached` so far, at one time.

        In one transaction: the rows of all exports, the new binding of the remap, the state, the
        statistics, and the checkpoints that are applied with it. Raises `StepSuperseded`,
        SLACKWATER_DEPENDENCY_DROPPED.
        """
        named: Attributes = {"source": source_id, "step": reached.steps + 1}
        with self.spans.span("source step", named, Moves(source_id)):
            self._commit(source_id, reached, step)

    def _commit(self, source_id: GlobalId, reached: Reached, step: IngestionStep) -> None:
        current = self.catalog.state
        item = current.item(source_id)
        begins = step.statistics.begun
        targets = _targets(current, item, (*step.updates, *step.errors, *begins))
        appends: dict[int, RowsOrParts] = {}
        for export, rows in step.updates.items():
            target = targets.get(export)
            if target is not None and target.shard_id is not None:
                shard_id = target.shard_id
                if isinstance(rows, StagedRows):
                    appends[shard_id] = rows.parts
                else:
                    appends[shard_id] = staged_files(self.persist, shard_id, rows)
        for export, rows in step.errors.items():
            target = targets.get(export)
            errors_shard = None if target is None else target.errors_shard
            if errors_shard is not None:
                appends[errors_shard] = rows
        if step.frontier != reached.frontier:
            remap_shard, desc = _remap(current, item)
            appends[remap_shard] = binding_rows(desc, reached.frontier, step.frontier)
        more = [] if step.checkpoints is None else [self._applied(item, step.checkpoints)]
        begun = [targets[export].id for export in begins if export in targets]
        # Before the step they would be empty at times at which others of the source are not. The
        # durable since is never later than the one in memory, so the time of the step comes after.
        self.begin(begun, None)
        at = self.states.commit(source_id, reached, step, appends, more)
        self.begin(begun, at)
        self.states.arrived(source_id)
        if begun or not reached.statistics.snapshot_committed:
            self.signal()

    def _applied(self, source: CatalogItem, done: Range) -> Step:
        """Marks the checkpoints of the source's group as applied; those before them can go."""
        now_ms = self.clock_ms()

        def commit(conn: Connection) -> None:
            with self.counts.timed("commit", source.id):
                statements.commit(conn, source.id, done, now_ms)
                statements.prune(conn, source.id)

        return commit


def _targets(
    state: CatalogState, source: CatalogItem, exports: Collection[str]
) -> dict[str, CatalogItem]:
    """The collections that exports of the source fill, without those that were dropped."""
    made = source.ingested.exports
    found = {each: state.items.get(made[each]) for each in exports if each in made}
    others = [each for each in exports if each not in made]
    if others and source.shard_id is None:
        later = state.later_exports_of(source.id)
        found |= {each: later.get(each) for each in others}
    elif others:
        # A source with rows of its own has no other export that is not among those.
        found |= dict.fromkeys(others, source)
    return {export: item for export, item in found.items() if item is not None}


def _remap(state: CatalogState, source: CatalogItem) -> tuple[int, RelationDesc]:
    """The shard of the source's remap and its columns. Raises SLACKWATER_DEPENDENCY_DROPPED."""
    stored = state.item(source.progress).stored
    return stored.shard_id, stored.desc
