"""Maintained views as objects: what may be one, its plan, its shards, its dataflow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from sqlalchemy import Connection
from sqlglot.errors import ParseError

from slackwater.adapter.catalog.model import CatalogItem, CatalogState, ItemKind
from slackwater.adapter.catalog.settings import refuse_other_reading, refuse_other_settings
from slackwater.adapter.environment import Environment
from slackwater.adapter.sessions import Context
from slackwater.compute.dataflow import Dataflow, Input
from slackwater.compute.engine import Analysis, ViewProgram
from slackwater.planner.delta.explain import ExplainRow, explain
from slackwater.planner.delta.explain_program import explain_program
from slackwater.planner.delta.lowering import NotMaintained, program_of
from slackwater.planner.delta.program import VERSION as PROGRAM_VERSION
from slackwater.planner.parser import statements as st
from slackwater.planner.parser.names import QualifiedName, resolve
from slackwater.planner.parser.tokens import tokenize
from slackwater.planner.plan.algebra import Source
from slackwater.planner.plan.build import build_plan
from slackwater.planner.plan.canonical import to_sql
from slackwater.planner.plan.functions import refuse_unmaterializable
from slackwater.planner.plan.nodes import Opaque, ViewPlan
from slackwater.planner.plan.resolution import ResolvedRelation, ResolvedView, parse_query
from slackwater.repr.errors import user_error
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import GlobalId, is_system
from slackwater.repr.relation import RelationDesc
from slackwater.storage.controller.holds import Holder, HoldKind, ReadHold


@dataclass(frozen=True, slots=True)
class Draft:
    """A maintained view before its shards exist. `read` is all that its query was resolved to."""

    item: CatalogItem
    plan: ViewPlan
    as_of: Timestamp
    notices: tuple[str, ...]
    hold: ReadHold
    read: Mapping[GlobalId, CatalogItem | None]

    def describes(self, state: CatalogState) -> bool:
        """Whether the query means the same in `state`: a name means an object until that changes.

        An object is not altered in place, so the same one is the same description.
        """
        return all(
            item is not None and state.items.get(global_id) is item
            for global_id, item in self.read.items()
        )


@dataclass(frozen=True, slots=True)
class Planned:
    """How a view is maintained: by a program, if there is one for its query."""

    plan: ViewPlan
    program: ViewProgram | None


class Views:
    """Plans maintained views."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._planned: dict[GlobalId, Planned] = {}

    def draft(
        self,
        item_id: GlobalId,
        schema: str,
        name: str,
        context: Context,
        statement: st.CreateMaterializedView,
    ) -> Draft:
        """Checks the query and plans it. To be followed by `release`.

        Raises SLACKWATER_FOREIGN_RELATION, SLACKWATER_UNMATERIALIZABLE_FUNCTION,
        SLACKWATER_TEMPORAL_FILTER, SLACKWATER_UNSUPPORTED_TYPE, and Spark's errors of the query.
        """
        full = f"slackwater.{schema}.{name}"
        text = statement.query.text
        refuse_other_reading(full, context.settings)
        state = self._env.state
        engine = self._env.engine.under(context.settings)
        analysis = engine.analyze(text, context.catalog, context.namespace)
        self.refuse_foreign(full, analysis)
        self._refuse_unmaintainable(full, text, analysis)
        desc = self.renamed(analysis.desc, statement.columns, full)
        desc.arrow_schema()
        item = CatalogItem(
            id=item_id,
            kind=ItemKind.MATERIALIZED_VIEW,
            schema_name=schema,
            name=name,
            create_sql=to_sql(
                replace(
                    statement,
                    name=QualifiedName(("slackwater", schema, name)),
                    or_replace=False,
                    if_not_exists=False,
                )
            ),
            desc=desc,
            depends_on=self.dependencies(analysis),
            owner=context.user,
            created_ms=self._env.now(),
            details={
                "query": text,
                "catalog": context.catalog,
                "namespace": list(context.namespace),
                "settings": None if context.settings is None else dict(context.settings),
                "named": self.named(analysis),
                "retain_history_ms": statement.retain_history_ms,
            },
        )
        plan = self.plan(item)
        program = self._program(item) if self._env.programs else None
        self._planned[item_id] = Planned(plan, program)
        maintenance = "recompute" if program is None and plan.is_opaque else "incremental"
        notices: tuple[str, ...] = ()
        if program is None and isinstance(plan.root, Opaque):
            notices = (
                f"{full} is recomputed whenever its inputs change, because of "
                f"{plan.root.reason}. {plan.root.advice}",
            )
        details = {**item.details, "maintenance": maintenance}
        if program is not None:
            details["program"] = {
                "version": PROGRAM_VERSION,
                "fingerprint": program.kept.plan.fingerprint,
            }
        # Held before the time is chosen, so that the view can be filled at that time.
        hold = self._env.hold(
            [self._env.item(each) for each in plan.collections],
            Holder(HoldKind.DEFINITION, item_id),
        )
        as_of = self._env.oracle.read_ts()
        return Draft(
            replace(item, details=details),
            plan,
            as_of,
            notices,
            hold,
            self._read(state, item, plan),
        )

    @staticmethod
    def _read(
        state: CatalogState, item: CatalogItem, plan: ViewPlan
    ) -> dict[GlobalId, CatalogItem | None]:
        """What the query names, and what is below, as it is in `state`.

        `state` is from before the analysis: what has changed while Spark looked is seen as well.
        """
        ids = {*item.depends_on, *plan.collections}
        pending = list(ids)
        while pending:
            known = state.items.get(pending.pop())
            below = () if known is None else known.depends_on
            pending.extend(each for each in below if each not in ids)
            ids.update(below)
        return {each: state.items.get(each) for each in ids}

    def release(self, draft: Draft) -> None:
        """The view exists and holds its inputs itself, or does not come to be."""
        unused = self._planned.pop(draft.item.id, None)
        if unused is not None and unused.program is not None:
            engine = self._env.engine.under(draft.item.details.get("settings"))
            engine.forget_plan(unused.program.kept.plan_id)
        self._env.storage.release(draft.hold)

    def with_shards(self, conn: Connection, draft: Draft) -> CatalogItem:
        """Creates the view's shards in the transaction and names them in the item."""
        desc = draft.item.desc
        if desc is None:
            raise AssertionError("a view has columns")
        create = self._env.persist.create_shard
        shard_id = create(conn, desc, since=draft.as_of, upper=draft.as_of, grouped=False)
        states = [
            create(conn, state, since=draft.as_of, upper=draft.as_of, grouped=False)
            for state in (() if "program" in draft.item.details else draft.plan.states)
        ]
        details = {**draft.item.details, "states": states, "as_of": int(draft.as_of)}
        return replace(draft.item, shard_id=shard_id, details=details)

    def plan_ahead(self, item: CatalogItem) -> None:
        """Plans the view, so that `dataflow` need not: it may be asked with the catalog locked."""
        self._planned[item.id] = self._plan_of(item)

    def _plan_of(self, item: CatalogItem) -> Planned:
        return Planned(self.plan(item), self._kept_program(item))

    def _kept_program(self, item: CatalogItem) -> ViewProgram | None:
        """The program that maintains an existing view, if it was created to have one."""
        return self._program(item) if "program" in item.details else None

    def _program(self, item: CatalogItem) -> ViewProgram | None:
        details = item.details
        return self._program_for(
            details["query"],
            details["catalog"],
            tuple(details["namespace"]),
            details.get("settings"),
        )

    def _program_for(
        self,
        text: str,
        catalog: str,
        namespace: tuple[str, ...],
        settings: Mapping[str, str] | None,
    ) -> ViewProgram | None:
        """The program of a query; None: it has an operator that none is made for.

        The driver keeps its plan until it is told to forget it.
        """
        engine = self._env.engine.under(settings)
        kept = engine.plan(text, catalog, namespace)
        try:
            return ViewProgram(kept, program_of(kept.plan))
        except NotMaintained:
            engine.forget_plan(kept.plan_id)
            return None

    def dataflow(self, item: CatalogItem) -> Dataflow:
        """The dataflow that maintains the view."""
        if item.shard_id is None:
            raise AssertionError(f"the view {item.id} has no shard")
        planned = self._planned.pop(item.id, None) or self._plan_of(item)
        plan = planned.plan
        return Dataflow(
            global_id=item.id,
            name=item.full_name,
            plan=plan,
            inputs=self._inputs(plan),
            output_shard=item.shard_id,
            state_shards=tuple(int(shard_id) for shard_id in item.details["states"]),
            as_of=Timestamp(int(item.details["as_of"])),
            settings=item.details.get("settings"),
            program=planned.program,
        )

    def plan(self, item: CatalogItem) -> ViewPlan:
        """The maintenance plan of a view's stored query."""
        if item.desc is None:
            raise AssertionError(f"the view {item.id} has no columns")
        return self._plan(
            item.details["query"],
            item.desc,
            item.details["catalog"],
            tuple(item.details["namespace"]),
            item.details.get("settings"),
            item.full_name,
        )

    def explain_item(self, item: CatalogItem) -> list[tuple[object, ...]]:
        program = self._kept_program(item)
        if program is not None:
            return self._explained_program(program, item.details.get("settings"))
        return self._explained(self.plan(item))

    def explain_query(self, text: str, context: Context) -> list[tuple[object, ...]]:
        catalog, namespace, settings = context.catalog, context.namespace, context.settings
        analysis = self._env.engine.under(settings).analyze(text, catalog, namespace)
        name = "A maintained view"
        self.refuse_foreign(name, analysis)
        if self._env.programs:
            program = self._program_for(text, catalog, namespace, settings)
            if program is not None:
                return self._explained_program(program, settings)
        return self._explained(self._plan(text, analysis.desc, catalog, namespace, settings, name))

    def refuse_foreign(self, name: str, analysis: Analysis) -> None:
        """Raises SLACKWATER_FOREIGN_RELATION when the query reads what is not ours."""
        if analysis.foreign:
            raise user_error(
                "SLACKWATER_FOREIGN_RELATION", objectName=name, relationName=analysis.foreign[0]
            )

    def dependencies(self, analysis: Analysis) -> tuple[GlobalId, ...]:
        """The objects that the query names or reads, without system relations."""
        ids = dict.fromkeys([*analysis.relations, *analysis.views])
        return tuple(GlobalId(i) for i in ids if not is_system(GlobalId(i)))

    @staticmethod
    def named(analysis: Analysis) -> list[str]:
        """Those of the dependencies that the query itself names."""
        return [each for each in analysis.named if not is_system(GlobalId(each))]

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
        return RelationDesc(
            tuple(replace(c, name=n) for c, n in zip(desc.columns, columns, strict=True))
        )

    def _refuse_unmaintainable(self, full: str, text: str, analysis: Analysis) -> None:
        if analysis.uses_mz_now:
            raise user_error(
                "SLACKWATER_TEMPORAL_FILTER",
                objectName=full,
                reason="temporal filters are not maintained",
            )
        system = [i for i in analysis.relations if is_system(GlobalId(i))]
        if system:
            raise user_error(
                "SLACKWATER_UNSUPPORTED",
                feature=f"A materialized view over a system relation ({full})",
                advice="Query the system relation itself, or make a plain view over it.",
            )
        words = [token.upper for token in tokenize(text)]
        if any(pair == ("WITHIN", "GROUP") for pair in pairwise(words)):
            # The planner's parser takes percentile_cont for another function.
            raise user_error(
                "SLACKWATER_UNSUPPORTED",
                feature=f"WITHIN GROUP in a materialized view ({full})",
                advice="Use percentile(x, p), or compute it when reading the view.",
            )
        try:
            parsed = parse_query(text)
        except ParseError as error:
            raise user_error(
                "SLACKWATER_UNSUPPORTED",
                feature=f"A construct in the query of {full}",
                advice=f"It could not be planned: {str(error).splitlines()[0]}",
            ) from None
        refuse_unmaterializable(parsed, full)
        if analysis.nondeterministic:
            raise user_error(
                "SLACKWATER_UNMATERIALIZABLE_FUNCTION",
                objectName=full,
                functionName=analysis.nondeterministic[0],
                advice="Compute it when reading the view.",
            )

    def _plan(
        self,
        text: str,
        output: RelationDesc,
        catalog: str,
        own_namespace: tuple[str, ...],
        settings: Mapping[str, str] | None,
        name: str,
    ) -> ViewPlan:
        engine = self._env.engine.under(settings)

        def lookup(
            parts: tuple[str, ...], namespace: tuple[str, ...] | None
        ) -> ResolvedRelation | ResolvedView:
            at = own_namespace if namespace is None else namespace
            schema, own = resolve(QualifiedName(parts), catalog, at)
            item = self._env.state.get(schema, own)
            if item.kind is ItemKind.VIEW and item.desc is not None:
                refuse_other_settings(name, settings, item)
                return ResolvedView(
                    item.details["query"], tuple(item.details["namespace"]), item.desc.names
                )
            if item.desc is None:
                raise user_error("SLACKWATER_UNKNOWN_RELATION", objectName=item.full_name)
            return ResolvedRelation(item.id, item.desc)

        def schema_of(query: str) -> RelationDesc:
            return engine.analyze(query, catalog, own_namespace).desc

        return build_plan(text, output, lookup, schema_of)

    def _inputs(self, plan: ViewPlan) -> dict[GlobalId, Input]:
        """Where the collections are that the plan reads."""
        inputs = {}
        for global_id in plan.collections:
            item = self._env.item(global_id)
            if item.shard_id is None or item.desc is None:
                raise AssertionError(f"{global_id} is read and has no shard")
            inputs[global_id] = Input(item.shard_id, item.desc, item.errors_shard, item.full_name)
        return inputs

    def _explained_program(
        self, program: ViewProgram, settings: Mapping[str, str] | None
    ) -> list[tuple[object, ...]]:
        self._env.engine.under(settings).forget_plan(program.kept.plan_id)
        plan = program.kept.plan
        read = [GlobalId(node.collection) for node in plan.nodes if isinstance(node, Source)]
        names = {str(global_id): self._env.item(global_id).full_name for global_id in read}
        return _rows_of(explain_program(plan, names))

    def _explained(self, plan: ViewPlan) -> list[tuple[object, ...]]:
        names = {global_id: self._env.item(global_id).full_name for global_id in plan.collections}
        return _rows_of(explain(plan, names))


def _rows_of(rows: Sequence[ExplainRow]) -> list[tuple[object, ...]]:
    return [
        (row.id, row.parent, row.operator, row.maintenance, row.reason, row.advice) for row in rows
    ]
