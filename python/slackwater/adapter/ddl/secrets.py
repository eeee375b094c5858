"""CREATE SECRET and ALTER SECRET."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Connection

from slackwater.adapter.catalog.details import SecretDetails
from slackwater.adapter.catalog.model import ItemKind
from slackwater.adapter.catalog.ops import AlterItem, CatalogOp, CreateItem
from slackwater.adapter.ddl.changes import Changes
from slackwater.adapter.sessions.sessions import Execution
from slackwater.adapter.sources.secrets import Secrets, version_of
from slackwater.planner.parser import statements as st
from slackwater.planner.parser.canonical import to_sql


class SecretDefinitions:
    """Definitions of secrets. The value is kept in the transaction that makes the object."""

    def __init__(self, changes: Changes, secrets: Secrets) -> None:
        self._changes = changes
        self._secrets = secrets

    def create_secret(
        self, execution: Execution, named: tuple[str, str], statement: st.CreateSecret
    ) -> None:
        blank = self._changes.new_item(ItemKind.SECRET, *named, execution.user)
        item = replace(blank, create_sql=to_sql(statement), details=SecretDetails())

        def make(conn: Connection) -> Sequence[CatalogOp]:
            self._secrets.put(conn, item.id, statement.value)
            return [CreateItem(item)]

        with self._changes.defining(execution.cancellation):
            self._changes.commit(make, execution.user)

    def alter_secret(self, execution: Execution, statement: st.AlterSecret) -> None:
        named = self._changes.existing_name(
            execution, ItemKind.SECRET, statement.name, if_exists=statement.if_exists
        )
        if named is None:
            return
        with self._changes.defining(execution.cancellation):
            item = self._changes.state.get(*named, ItemKind.SECRET)
            details = SecretDetails(version_of(item) + 1)

            def make(conn: Connection) -> Sequence[CatalogOp]:
                self._secrets.put(conn, item.id, statement.value)
                return [AlterItem(item.id, details=details)]

            self._changes.commit(make, execution.user)
