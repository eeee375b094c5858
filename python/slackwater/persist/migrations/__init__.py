"""The history of the metastore's schema: one Alembic revision for each version.

The files ``versions/vNNNN_<what>.py`` are the history, for SQLite and PostgreSQL alike; the highest
number is the version that this program knows. The version of a metastore is in its row
`environment`, so neither making one nor opening one that is up to date needs Alembic. Alembic's own
table is made to agree with that row before each upgrade: a metastore that has none is upgraded like
any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection


@dataclass(frozen=True, slots=True)
class History:
    """The revisions in a folder of Alembic scripts."""

    folder: Path

    @property
    def head(self) -> int:
        """The newest version."""
        return max(int(path.name[1:5]) for path in (self.folder / "versions").glob("v*.py"))

    def upgrade(self, conn: Connection, version: int | None) -> None:
        """Brings the schema from `version` (None: there are no tables) to `head`.

        Runs in the transaction of `conn`, so that all of it happens or nothing. Not to be called
        by two threads at once.
        """
        # A third of a second, which only a process that has something to upgrade has to spend.
        from alembic import command
        from alembic.config import Config

        config = Config(attributes={"connection": conn})
        config.set_main_option("script_location", str(self.folder).replace("%", "%%"))
        if version is not None:
            command.stamp(config, revision(version), purge=True)
        command.upgrade(config, revision(self.head))


def revision(version: int) -> str:
    """Alembic's name of a version."""
    return f"{version:04d}"


HISTORY = History(Path(__file__).parent)
