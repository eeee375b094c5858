"""Maintained views as objects: their checks, plans, shards and dataflows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from sqlalchemy import Connection

from slackwater.adapter.catalog.context import Context
from slackwater.adapter.catalog.details import MaterializedViewDetails
from slackwater.adapter.catalog.model import CATALOG_NAME, CatalogItem, CatalogState
from slackwater.adapter.catalog.replaced import refuse_replacements
from slackwater.adapter.catalog.settings import refuse_other_reading, refuse_other_settings
from slackwater.adapter.controllers.dataflows import (
    Dataflows,
    collection_indexes,
    definition_of,
    indexed_views,
    settings_of,
)
from slackwater.adapter.controllers.relations import Relations
from slackwater.adapter.ddl.refreshes import aligned, first_time, schedule_of
from slackwater.adapter.ddl.replacement_rules import refuse_schedule, replacement_target
from slackwater.adapter.history.dataflows import Ticked, ticks
from slackwater.adapter.system.dataflow_history import DataflowHistory
from slackwater.adapter.time.timeline import Timeline
from slackwater.compute.definitions import Definition, version_of
from slackwater.compute.engine import Analysis, Engine, ViewPlan
from slackwater.compute.planning import Planner
from slackwater.compute.records import TickRecord
from slackwater.controller.holds import Holder, HoldKind, ReadHold
from slackwater.planner.delta.explain import (
    RECOMPUTED,
    explain_program,
    explain_recomputed,
    explain_refreshed,
)
from slackwater.planner.delta.lowering import invalid_mz_now_use
from slackwater.planner.parser import statements as st
from slackwater.planner.parser.canonical import to_sql
from slackwater.planner.parser.names import QualifiedName
from slackwater.planner.plan.column_lineage import column_lineage
from slackwater.planner.plan.functions import advice_for
from slackwater.repr.dataflow_error import ERRORS
from slackwater.repr.errors import SlackwaterError, unsupported, user_error
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId, is_system
from slackwater.repr.refresh import RefreshSchedule
from slackwater.repr.relation import RelationDesc, quote_identifier, quote_string


@dataclass(frozen=True, slots=True)
class PlannedView:
    """A maintained view before its shards exist. `read` has the objects below its query."""

    item: CatalogItem
    plan: ViewPlan
    as_of: Timestamp
    notices: tuple[str, ...]
    hold: ReadHold
    read: Mapping[GlobalId, CatalogItem | None]

    def describes(self, state: CatalogState) -> bool:
        """Whether the query means the same in `state`: no object below it has changed.

        An object is not altered in place, so an identical one has the same description.
        """
        return all(
            item is not None and state.items.get(global_id) is item
            for global_id, item in self.read.items()
        )


@dataclass(frozen=True, slots=True)
class Views:
    """Plans maintained views. `done` has what dataflows have done, also under leaders before."""

    relations: Relations
    timeline: Timeline
    engine: Engine
    planner: Planner
    dataflows: Dataflows
    done: DataflowHistory

    def plan_new(
        self,
        blank: CatalogItem,
        context: Context,
        statement: st.CreateMaterializedView,
        replaces: tuple[str, str] | None = None,
    ) -> PlannedView:
        """Checks the query of the view `blank` and plans it. To be followed by `release`.

        `replaces` is the schema and the name of the view that it is to replace.

        Raises SLACKWATER_FOREIGN_RELATION, SLACKWATER_UNMATERIALIZABLE_FUNCTION,
        SLACKWATER_TEMPORAL_FILTER, SLACKWATER_UNSUPPORTED_TYPE, SLACKWATER_REFRESH_TOO_EARLY, what
        `replacement_target` raises, and Spark's errors of the query.
        """
        state = self.relations.state
        analysis = self._analyzed(blank.full_name, context, statement.query.text)
        item = self._defined(blank, context, statement, analysis)
        if replaces is not None:
            item = _replacing(state, item, replaces, statement)
        plan = self.plan(item)
        if not statement.refresh:
            self._refuse_untimely(item.full_name, plan, analysis, context.settings)
        self.planner.leave(item.id, definition_of(item, state), plan)
        # Held before the time is chosen, so that the view can be hydrated at that time.
        hold = self.relations.hold(
            [self.relations.item(each) for each in _collections(plan)],
            Holder(HoldKind.DEFINITION, item.id),
        )
        try:
            now = self.timeline.read_ts()
            item = _scheduled(item, statement, now)
            as_of = first_time(item.full_name, item.refresh, now, hold.since)
        except SlackwaterError:
            self.planner.forget(item.id, context.settings)
            self.relations.storage.release(hold)
            raise
        return PlannedView(
            _maintained(item, plan),
            plan,
            as_of,
            _notices(item, plan),
            hold,
            self._read(state, item, plan),
        )

    def _analyzed(self, full: str, context: Context, text: str) -> Analysis:
        """The analysis of the query. Refuses a query that cannot be maintained."""
        refuse_other_reading(full, context.settings)
        engine = self.engine.under(context.settings)
        analysis = engine.analyze(text, context.catalog, context.namespace, context.functions)
        self.refuse_foreign(full, analysis)
        self._refuse_unmaintainable(full, analysis)
        for below in analysis.views:
            refuse_other_settings(full, context.settings, self.relations.item(GlobalId(below)))
        return analysis

    def _defined(
        self,
        blank: CatalogItem,
        context: Context,
        statement: st.CreateMaterializedView,
        analysis: Analysis,
    ) -> CatalogItem:
        """The object with its columns and its definition, before its plan is known."""
        full, text = blank.full_name, statement.query.text
        renamed = self.renamed(analysis.desc, statement.columns, full)
        asserted = _asserted(renamed, statement.assert_not_null, full)
        desc = _not_null(renamed, asserted)
        desc.arrow_schema()
        named = QualifiedName((CATALOG_NAME, blank.schema_name, blank.name))
        made = replace(statement, name=named, or_replace=False, if_not_exists=False)
        return replace(
            blank,
            create_sql=to_sql(made),
            desc=desc,
            depends_on=self.dependencies(analysis),
            details=MaterializedViewDetails(
                query=text,
                catalog=context.catalog,
                namespace=context.namespace,
                settings=context.settings,
                functions=analysis.functions,
                named=self.named(analysis),
                retain_history_ms=statement.retain_history_ms,
                asserting=_asserting(text, desc, asserted, full),
            ),
        )

    @staticmethod
    def _read(
        state: CatalogState, item: CatalogItem, plan: ViewPlan
    ) -> dict[GlobalId, CatalogItem | None]:
        """The objects that the query names, and those below them, as they are in `state`.

        `state` is from before the analysis, so that changes during the analysis are seen as well.
        """
        named = {*item.depends_on, *_collections(plan)}
        below = {each.id: each for each in state.below(named)}
        return {**dict.fromkeys(named), **below}

    def release(self, planned: PlannedView) -> None:
        """Releases the inputs: the view holds them itself now, or is not created."""
        if planned.item.id not in self.relations.state.items:
            self.planner.forget(planned.item.id, _details(planned.item).settings)
        self.relations.storage.release(planned.hold)

    def with_shards(self, conn: Connection, planned: PlannedView) -> CatalogItem:
        """Creates the view's shards in the transaction and names them in the item."""
        if planned.item.desc is None:
            raise AssertionError("a view has columns")
        as_of, create = planned.as_of, self.relations.persist.definitions.create_shard
        rows, errors = (
            create(conn, desc, since=as_of, upper=as_of) for desc in (planned.item.desc, ERRORS)
        )
        details = replace(_details(planned.item), as_of=as_of, errors=errors)
        return replace(planned.item, shard_id=rows, details=details)

    def plan(self, item: CatalogItem) -> ViewPlan:
        """The plan of a view or an index. The driver keeps it until it is told to forget it."""
        definition = definition_of(item, self.relations.state)
        return self.planner.plan(item.full_name, definition, settings_of(item))

    def analyze(self, context: Context, text: str) -> Analysis:
        """The analysis of a query with the settings and names of `context`."""
        engine = self.engine.under(context.settings)
        return engine.analyze(text, context.catalog, context.namespace)

    def last_tick(self, item: CatalogItem) -> TickRecord | None:
        """The record of the view's last tick, under whichever leader; None: none is on record."""
        told = [Ticked(each.replica, each.record) for each in self.dataflows.ticks()]
        found = (each.record for each in ticks(self.done.records(told)))
        own = (each for each in found if each.global_id == item.id)
        return max(own, key=lambda each: each.committed_ms, default=None)

    def explain_item(self, item: CatalogItem) -> list[tuple[object, ...]]:
        resident = self.dataflows.out_of_memory(item.id) is None
        settings = _details(item).settings
        schedule = item.refresh
        return self._explained(self.plan(item), settings, resident=resident, refresh=schedule)

    def explain_query(
        self, text: str, context: Context, cluster: GlobalId | None
    ) -> list[tuple[object, ...]]:
        """The operators of a view of that query, as `plan_query` plans it."""
        return self._explained(self.plan_query(text, context, cluster), context.settings)

    def plan_query(self, text: str, context: Context, cluster: GlobalId | None) -> ViewPlan:
        """The plan of a view of that query on the cluster, which looks up in indexes there.

        The driver keeps it until it is told to forget it. Raises what `plan_new` raises.
        """
        settings, engine = context.settings, self.engine.under(context.settings)
        analysis = engine.analyze(text, context.catalog, context.namespace, context.functions)
        self.refuse_foreign("A maintained view", analysis)
        self._refuse_unmaintainable("A maintained view", analysis)
        state, reads = self.relations.state, self.dependencies(analysis)
        definition = Definition(
            text,
            context.catalog,
            context.namespace,
            analysis.functions,
            whole=indexed_views(reads, cluster, state),
            indexes=collection_indexes(reads, cluster, settings, state),
        )
        plan = self.planner.plan("A maintained view", definition, settings)
        self._refuse_untimely("a maintained view", plan, analysis, settings)
        return plan

    def refuse_foreign(self, name: str, analysis: Analysis) -> None:
        """Raises SLACKWATER_FOREIGN_RELATION when the query reads relations of other catalogs.

        Also SLACKWATER_REPLACEMENT when it reads a replacement.
        """
        refuse_replacements(self.relations.state, (*analysis.relations, *analysis.views))
        if analysis.foreign:
            raise user_error(
                "SLACKWATER_FOREIGN_RELATION", objectName=name, relationName=analysis.foreign[0]
            )

    def dependencies(self, analysis: Analysis) -> tuple[GlobalId, ...]:
        """The objects that the query names or reads, without system relations."""
        ids = dict.fromkeys([*analysis.relations, *analysis.views])
        return tuple(GlobalId(i) for i in ids if not is_system(GlobalId(i)))

    @staticmethod
    def named(analysis: Analysis) -> tuple[GlobalId, ...]:
        """The dependencies that the query itself names."""
        named = (GlobalId(each) for each in analysis.named)
        return tuple(each for each in named if not is_system(each))

    @staticmethod
    def renamed(desc: RelationDesc, columns: tuple[str, ...] | None, name: str) -> RelationDesc:
        """`desc` with the names of a column list. Raises SLACKWATER_COLUMN_MISMATCH."""
        if columns is None:
            return desc
        if len(columns) != len(desc.columns):
            raise user_error(
                "SLACKWATER_COLUMN_MISMATCH",
                objectName=name,
                details=f"{len(columns)} names for {len(desc.columns)} columns",
            )
        return RelationDesc(tuple(c.renamed(n) for c, n in zip(desc.columns, columns, strict=True)))

    def _refuse_unmaintainable(self, full: str, analysis: Analysis) -> None:
        system = [i for i in analysis.relations if is_system(GlobalId(i))]
        if system:
            raise unsupported(
                f"A materialized view over a system relation ({full})",
                advice="Query the system relation itself, or make a plain view over it.",
            )
        if analysis.timed:
            raise unsupported(
                f"{full} over {analysis.timed[0]} at a time of its own",
                advice="A maintained view follows what it reads: leave VERSION AS OF, TIMESTAMP "
                "AS OF and AS OF out, or keep its rows with CREATE TABLE .. AS SELECT.",
            )
        if analysis.nondeterministic:
            function = analysis.nondeterministic[0]
            raise user_error(
                "SLACKWATER_UNMATERIALIZABLE_FUNCTION",
                objectName=full,
                functionName=function,
                advice=advice_for(function),
            )

    def _refuse_untimely(
        self, name: str, plan: ViewPlan, analysis: Analysis, settings: Mapping[str, str] | None
    ) -> None:
        """Refuses a view that changes with time and has no program, and forgets its plan.

        Without a program, the times of its changes are unknown. Raises SLACKWATER_TEMPORAL_FILTER.
        """
        if plan.program is not None or not analysis.uses_mz_now:
            return
        self.engine.under(settings).forget_plan(plan.kept.plan_id)
        reason = invalid_mz_now_use(plan.kept.plan)
        raise user_error(
            "SLACKWATER_TEMPORAL_FILTER",
            objectName=name,
            reason=reason or f"the view would have to be recomputed at each time: {plan.reason}",
        )

    def _explained(
        self,
        plan: ViewPlan,
        settings: Mapping[str, str] | None,
        *,
        resident: bool = True,
        refresh: RefreshSchedule | None = None,
    ) -> list[tuple[object, ...]]:
        self.engine.under(settings).forget_plan(plan.kept.plan_id)
        analyzed = plan.kept.plan
        names = {str(each): self.relations.item(each).full_name for each in _collections(plan)}
        if refresh is not None:
            rows = explain_refreshed(analyzed, names)
        elif plan.program is None:
            rows = explain_recomputed(analyzed, names, plan.reason)
        else:
            rows = explain_program(analyzed, names, resident=resident)
        return [
            (row.id, row.parent, row.operator, row.maintenance, row.reason, row.advice)
            for row in rows
        ]


def _asserted(desc: RelationDesc, names: Sequence[str], view: str) -> frozenset[str]:
    """The columns of `desc` that ASSERT NOT NULL names. Raises SLACKWATER_UNKNOWN_COLUMN."""
    known = {column.name.lower() for column in desc.columns}
    for name in names:
        if name.lower() not in known:
            raise user_error(
                "SLACKWATER_UNKNOWN_COLUMN",
                columnName=name,
                objectName=view,
                columns=", ".join(desc.names),
            )
    meant = {name.lower() for name in names}
    return frozenset(name for name in desc.names if name.lower() in meant)


def _not_null(desc: RelationDesc, asserted: frozenset[str]) -> RelationDesc:
    columns = (replace(c, nullable=c.nullable and c.name not in asserted) for c in desc.columns)
    return RelationDesc(tuple(columns))


def _asserting(text: str, desc: RelationDesc, asserted: frozenset[str], view: str) -> str | None:
    """The query, made to fail where an asserted column of `desc` is NULL; None without any."""
    if not asserted:
        return None
    columns = []
    for position, column in enumerate(desc.columns):
        value = f"c{position}"
        if column.name in asserted:
            arguments = f"{value}, {quote_string(view)}, {quote_string(column.name)}"
            value = f"slackwater_not_null({arguments})"
        columns.append(f"{value} AS {quote_identifier(column.name)}")
    inner = ", ".join(f"c{position}" for position in range(len(columns)))
    return f"SELECT {', '.join(columns)} FROM (\n{text}\n) AS q({inner})"


def _replacing(
    state: CatalogState,
    item: CatalogItem,
    replaces: tuple[str, str],
    statement: st.CreateMaterializedView,
) -> CatalogItem:
    """The object as the replacement of a view, which it depends on."""
    refuse_schedule(statement)
    target = replacement_target(state, item, replaces)
    named = QualifiedName((CATALOG_NAME, item.schema_name, item.name))
    replaced = QualifiedName((CATALOG_NAME, target.schema_name, target.name))
    return replace(
        item,
        create_sql=to_sql(replace(statement, name=named, replaces=replaced)),
        depends_on=(*item.depends_on, target.id),
        details=replace(_details(item), replaces=target.id),
    )


def _scheduled(
    item: CatalogItem, statement: st.CreateMaterializedView, now: Timestamp
) -> CatalogItem:
    """The object with its refresh schedule, if it is created at `now`."""
    schedule = schedule_of(statement.refresh, now)
    if schedule is None:
        return item
    named = QualifiedName((CATALOG_NAME, item.schema_name, item.name))
    made = replace(
        statement,
        name=named,
        or_replace=False,
        if_not_exists=False,
        refresh=aligned(statement.refresh, now),
    )
    details = replace(_details(item), refresh=schedule)
    return replace(item, create_sql=to_sql(made), details=details)


def _maintained(item: CatalogItem, plan: ViewPlan) -> CatalogItem:
    """The object with its kind of maintenance, the version of its plan and its lineage."""
    followed: Literal["incremental", "recompute"] = "incremental" if plan.program else "recompute"
    details = replace(
        _details(item),
        maintenance=followed if item.refresh is None else "refresh",
        program=version_of(plan),
        lineage=column_lineage(plan.kept.plan),
    )
    return replace(item, details=details)


def _notices(item: CatalogItem, plan: ViewPlan) -> tuple[str, ...]:
    if plan.program is not None or item.refresh is not None:
        return ()
    return (
        f"{item.full_name} is recomputed whenever its inputs change, because of "
        f"{plan.reason}. {RECOMPUTED}",
    )


def _details(view: CatalogItem) -> MaterializedViewDetails:
    return view.of(MaterializedViewDetails)


def _collections(plan: ViewPlan) -> tuple[GlobalId, ...]:
    return tuple(GlobalId(each) for each in plan.kept.plan.collections)
