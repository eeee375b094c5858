"""Catalogs of Iceberg beside a workplace, to which its connection `lake` leads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException
from tests.support.iceberg.java import Java, Tables
from tests.support.waiting import wait_until

from slackwater.adapter.external.iceberg_catalogs import catalog_properties


@dataclass(frozen=True)
class Lake:
    """A catalog for one test, as pyiceberg and Java have it."""

    catalog: Catalog
    java: Java
    namespace: str

    def table(self, name: str) -> Any:
        return self.catalog.load_table((self.namespace, name))

    def rows(self, name: str) -> list[tuple[object, ...]]:
        """The rows of a table as Java reads them, with deletes by equality."""
        return sorted(map(tuple, self.java.rows(self.table(name).metadata_location)), key=str)

    def summed(self, name: str) -> tuple[list[Any], set[int]]:
        """The rows of a table of MODE APPEND now, as pyiceberg reads them, and their times."""
        rows: Counter[tuple[object, ...]] = Counter()
        times = set()
        for row in self.table(name).scan().to_arrow().to_pylist():
            *values, diff, time = row.values()
            if diff is not None:
                rows[tuple(values)] += diff
                times.add(time)
        assert all(count >= 0 for count in rows.values())
        return sorted(rows.elements(), key=str), times

    def into(self, name: str) -> str:
        return f"ICEBERG CATALOG CONNECTION lake (NAMESPACE '{self.namespace}', TABLE '{name}')"


def a_lake(workplace: Any, kind: str, java: Java) -> Lake:
    """A new connection to a catalog: a server (rest), or a database (sql)."""
    access = java.access() if kind == "rest" else Tables(workplace.folder).access()
    workplace.sql(
        f"CREATE CONNECTION lake TO ICEBERG CATALOG (CATALOG TYPE {kind}, "
        f"URL '{access.url}', WAREHOUSE '{access.warehouse}')"
    )
    catalog = load_catalog("default", **catalog_properties(access, None))
    return Lake(catalog, java, f"n.{workplace.schema}")


def expire(lake: Lake, name: str) -> None:
    """Lets all snapshots expire but the current one."""
    table = lake.table(name)
    current = table.metadata.current_snapshot_id
    ids = [each.snapshot_id for each in table.metadata.snapshots if each.snapshot_id != current]
    table.maintenance.expire_snapshots().by_ids(ids).commit()


def insisting(change: Callable[[], None]) -> None:
    """Makes a change of a table until no commit of a sink is faster."""

    def tried() -> bool:
        try:
            change()
        except CommitFailedException:
            return False
        return True

    wait_until(tried, what="the change is committed")
