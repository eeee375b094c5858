"""Following the log of a server: where it is read, and who takes its changes.

Source: docs/decisions 0072.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from slackwater.storage.postgres.changes import TableChanges
from slackwater.storage.postgres.pgoutput import Begin, Commit, Relation, Truncate, decoded
from slackwater.storage.postgres.replication import Keepalive, Received
from slackwater.storage.postgres.row_changes import changed_relation

Readers = Mapping[int, Sequence[TableChanges]]
"""The tables that take the changes of a table of the upstream, by its oid."""


class Follower:
    """A place in the log that one connection sends.

    The server describes a table before its first change, and again once it was altered. A table
    that joins between takes its changes by the last description.
    """

    def __init__(self, position: int) -> None:
        """All that was committed before `position` was read already."""
        self.position = position
        self.in_transaction = False
        self.messages = self.size_bytes = 0
        self._skips = False
        self._relations: dict[int, Relation] = {}

    def begin_step(self) -> None:
        """Counts messages anew."""
        self.messages = self.size_bytes = 0

    def take(self, received: Received, tables: Readers) -> None:
        """The next that the server sent."""
        if isinstance(received, Keepalive):
            if not self.in_transaction:
                self.position = max(self.position, received.end)
            return
        self.messages += 1
        self.size_bytes += len(received)
        changed = changed_relation(received)
        if changed is not None:
            for table in () if self._skips else tables.get(changed, ()):
                if not table.is_described:
                    table.relation(self._relations[changed])
                table.take(received)
            return
        message = decoded(received)
        match message:
            case None:
                return
            case Begin(commit_lsn=commit_lsn):
                self.in_transaction = True
                self._skips = commit_lsn < self.position
            case Commit(end_lsn=end_lsn):
                self.in_transaction = False
                self.position = max(self.position, end_lsn)
            case Relation(oid=oid):
                self._relations[oid] = message
                for table in () if self._skips else tables.get(oid, ()):
                    table.relation(message)
            case Truncate(oids=oids):
                if not self._skips:
                    for table in (each for oid in oids for each in tables.get(oid, ())):
                        table.truncate()
