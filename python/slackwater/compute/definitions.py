"""The texts in a description of a dataflow, which the controller does not read: plans and shards.

`described` makes them of values, `Definition.read` and `StoredShards.read` values of them. Their
form is part of the protocol with replicas: JSON, of which a field that is not known is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cattrs import Converter

from slackwater.compute.controller.descriptions import (
    DataflowDescription,
    IndexExport,
    MaterializedViewExport,
    SubscribeExport,
)
from slackwater.compute.dataflow import Dataflow, Input, SubscriptionExport, ViewExport
from slackwater.compute.dataflow import IndexExport as MaintainedExport
from slackwater.compute.engine import Indexed, IndexQuery, Known, ViewPlan
from slackwater.planner.delta.program import VERSION as PROGRAM_VERSION
from slackwater.repr.errors import FatalError
from slackwater.repr.frontier import TIMESTAMP_MIN, Timestamp
from slackwater.repr.ids import GlobalId
from slackwater.repr.relation import RelationDesc

_converter = Converter(forbid_extra_keys=True)


@dataclass(frozen=True, slots=True)
class PlanVersion:
    """The version of a plan: plans whose versions are equal compute the same rows."""

    version: int
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Definition:
    """A query that is maintained: its names mean what they mean in `catalog` and `namespace`.

    `functions` are those that it calls. `relations` are those that it names and those that these
    name, as `Known` has them; None: a query that is planned at once, by the catalog. The last
    `keys` columns are those of an index. `made_by` is the version of the plan that the output has
    been computed by. `whole` are the plain views below it that stay whole in its plan, since an
    index on the same cluster has their rows; `indexes` those on collections below it.
    """

    query: str
    catalog: str
    namespace: tuple[str, ...]
    functions: tuple[Mapping[str, Any], ...] = ()
    keys: int = 0
    made_by: PlanVersion | None = None
    whole: tuple[str, ...] = ()
    relations: tuple[Mapping[str, Any], ...] | None = None
    indexes: tuple[IndexQuery, ...] = ()

    @property
    def known(self) -> Known:
        """The meanings of the names in its query."""
        return Known(self.functions, self.relations)

    @property
    def indexed(self) -> Indexed:
        """The indexes that its plan is to know of."""
        return Indexed(self.whole, self.indexes)

    @property
    def text(self) -> str:
        """The definition as a description of a dataflow carries it."""
        return json.dumps(_converter.unstructure(self), separators=(",", ":"))

    @staticmethod
    def read(text: str) -> Definition:
        """The definition in the text."""
        return _converter.structure(json.loads(text), Definition)


@dataclass(frozen=True, slots=True)
class StoredShards:
    """The shards of a collection, its columns as Spark's JSON, and its name for messages."""

    name: str
    shard_id: int
    columns: str
    errors_shard: int | None = None

    @property
    def text(self) -> str:
        """The shards as a description of a dataflow carries them."""
        return json.dumps(_converter.unstructure(self), separators=(",", ":"))

    @staticmethod
    def read(text: str) -> StoredShards:
        """The shards in the text."""
        return _converter.structure(json.loads(text), StoredShards)

    @property
    def desc(self) -> RelationDesc:
        """The columns."""
        return RelationDesc.from_json(self.columns)


def version_of(plan: ViewPlan) -> PlanVersion:
    """The version of the plan."""
    return PlanVersion(PROGRAM_VERSION, plan.kept.plan.fingerprint)


def definition_of(dataflow: DataflowDescription) -> Definition:
    """The query that the dataflow maintains."""
    (built,) = dataflow.objects_to_build
    return Definition.read(built.plan)


def planned(dataflow: DataflowDescription, plan: ViewPlan) -> Dataflow:
    """The dataflow as a replica maintains it, with the plan of its query.

    Its inputs are the collections that the plan reads; the description may hold others.
    """
    stored = {each.id: StoredShards.read(each.relation) for each in dataflow.source_imports}
    reads = [GlobalId(each) for each in plan.kept.plan.collections]
    export = _export(dataflow, plan)
    begins = dataflow.initial_storage_as_of
    if isinstance(export, SubscriptionExport):
        begins = dataflow.as_of
    return Dataflow(
        global_id=dataflow.export_ids[0],
        name=dataflow.name,
        plan=plan,
        inputs={each: _input(stored[each]) for each in reads},
        as_of=TIMESTAMP_MIN if begins is None else Timestamp(begins.value),
        export=export,
        settings=None if dataflow.settings is None else dict(dataflow.settings),
        refresh=dataflow.refresh_schedule,
        takes_over=dataflow.takes_over,
    )


def _input(stored: StoredShards) -> Input:
    return Input(stored.shard_id, stored.desc, stored.errors_shard, stored.name)


def _export(
    dataflow: DataflowDescription, plan: ViewPlan
) -> ViewExport | MaintainedExport | SubscriptionExport:
    match (*dataflow.index_exports, *dataflow.sink_exports):
        case (IndexExport(keys=keys),):
            return MaintainedExport(len(keys))
        case (SubscribeExport(),):
            return SubscriptionExport()
        case (MaterializedViewExport(relation=relation),):
            written = StoredShards.read(relation)
            if written.errors_shard is None:
                raise FatalError(f"the view {dataflow.name} has no shard of errors")
            made_by = definition_of(dataflow).made_by
            return ViewExport(
                written.desc,
                written.shard_id,
                written.errors_shard,
                plan_changed=made_by != version_of(plan),
            )
        case others:
            raise FatalError(f"{dataflow.name} has the exports {others}: a replica maintains one")
