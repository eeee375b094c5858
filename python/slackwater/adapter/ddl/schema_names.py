"""ALTER SCHEMA ... RENAME TO and SWAP WITH: schemas get other names, and keep what is in them.

Views go on to mean the same objects. Their queries are changed as texts, so Spark is asked about
each of them whether it means the same with the new names, before anything is committed.

Source: spec coordinator 4.4; docs/decisions 0104.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass

from slackwater.adapter.catalog.details import MaterializedViewDetails
from slackwater.adapter.catalog.model import CatalogItem, CatalogState
from slackwater.adapter.catalog.ops import apply
from slackwater.adapter.catalog.renamed_schemas import affected, renamed
from slackwater.adapter.controllers.dataflows import meaning_of, settings_of
from slackwater.adapter.ddl.changes import Changes
from slackwater.adapter.sessions.sessions import Execution
from slackwater.compute.definitions import PlanVersion
from slackwater.compute.engine import Engine
from slackwater.planner.parser import statements as st
from slackwater.planner.parser.names import QualifiedName, resolve_schema
from slackwater.planner.plan.algebra import AnalyzedPlan
from slackwater.repr.errors import SlackwaterError, user_error

ATTEMPTS = 3
"""The most times that views are looked through, the last one with the catalog locked."""


@dataclass(frozen=True, slots=True)
class SchemaNames:
    """Gives schemas other names, in one commit with the definitions that have these names."""

    changes: Changes
    engine: Engine

    def swap(self, execution: Execution, statement: st.SwapSchemas) -> None:
        """Lets two schemas swap their names.

        Raises SLACKWATER_SCHEMA_NOT_FOUND, SLACKWATER_SYSTEM_OBJECT, SLACKWATER_SAME_SCHEMA,
        SLACKWATER_WRONG_CATALOG, and SLACKWATER_NAME_NOT_CHANGED for a view that cannot follow.
        """
        asked = (statement.name, statement.other)
        one, two = (self._name(execution, each) for each in asked)
        if one == two:
            raise user_error("SLACKWATER_SAME_SCHEMA", schemaName=one)
        self._rename(execution, {one: two, two: one})

    def rename(self, execution: Execution, statement: st.AlterRename) -> None:
        """Gives a schema a name that no other one has. Raises what `swap` raises,
        SLACKWATER_SCHEMA_ALREADY_EXISTS and SLACKWATER_RESERVED_NAME."""
        catalog = execution.context.catalog
        name = resolve_schema(statement.name, catalog)
        if statement.if_exists and self.changes.state.find_schema(name) is None:
            execution.session.notify(f"There is no schema {name}.", code="42704")
            return
        new_name = resolve_schema(statement.new_name, catalog)
        self._rename(execution, {self._name(execution, statement.name): new_name})

    def _name(self, execution: Execution, name: QualifiedName) -> str:
        """The name as the schema has it. Raises SLACKWATER_SCHEMA_NOT_FOUND."""
        return self.changes.state.schema(resolve_schema(name, execution.context.catalog)).name

    def _rename(self, execution: Execution, names: Mapping[str, str]) -> None:
        """Asks Spark while other definitions go on, and again if the catalog has changed then."""
        cancellation = execution.cancellation
        for attempt in range(1, ATTEMPTS + 1):
            with self.changes.defining(cancellation) if attempt == ATTEMPTS else nullcontext():
                before = self.changes.state
                ops = renamed(before, names)
                after, _ = apply(before, ops)
                for item in affected(before, names):
                    follows = self._means_the_same(item, before, after)
                    # What ends the statement looks like an error of the query, too.
                    cancellation.check_deadline("the schemas got their names")
                    if not follows:
                        raise user_error(
                            "SLACKWATER_NAME_NOT_CHANGED",
                            schemaName=next(iter(names)),
                            objectName=item.full_name,
                        )
                with self.changes.defining(cancellation):
                    if self.changes.state is before:
                        self.changes.commit(ops, execution.user)
                        return

    def _means_the_same(self, item: CatalogItem, before: CatalogState, after: CatalogState) -> bool:
        """Whether the view's query computes the same before and after."""
        new = self._plan(after.items[item.id], after)
        if isinstance(new, AnalyzedPlan) and new.fingerprint == _made_by(item):
            return True
        old = self._plan(item, before)
        if isinstance(old, SlackwaterError):
            # It fails as it is, whatever schemas are called.
            return True
        if isinstance(new, SlackwaterError):
            return False
        if new.fingerprint == old.fingerprint:
            return True
        # A plain view may have luck in it, or the time: then no two plans are the same.
        again = self._plan(item, before)
        return (
            isinstance(again, AnalyzedPlan)
            and again.fingerprint != old.fingerprint
            and new.collections == old.collections
        )

    def _plan(self, item: CatalogItem, state: CatalogState) -> AnalyzedPlan | SlackwaterError:
        """The plan of the view's query as the catalog is in `state`, or why there is none."""
        meant, engine = meaning_of(item, state), self.engine.under(settings_of(item))
        try:
            kept = engine.plan(meant.query, meant.catalog, meant.namespace, meant.known)
        except SlackwaterError as error:
            if error.is_outage:
                raise
            return error
        engine.forget_plan(kept.plan_id)
        return kept.plan


def _made_by(item: CatalogItem) -> str | None:
    """The fingerprint of the plan that has made the contents of a maintained view."""
    match item.details:
        case MaterializedViewDetails(program=PlanVersion(fingerprint=fingerprint)):
            return fingerprint
        case _:
            return None
