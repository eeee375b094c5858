"""Texts of the schemas of a new sink about its relation and columns: DOC ON, and comments.

Source: Materialize's documentation of its sinks; docs/decisions 0075.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from slackwater.adapter.catalog.model import CatalogItem, fold
from slackwater.planner.parser.kafka_sink import Side, SinkDoc
from slackwater.planner.parser.names import QualifiedName
from slackwater.repr.errors import SlackwaterError, invalid_option
from slackwater.storage.kafka.sink_avro import SinkSchema

_STATEMENT = "CREATE SINK"


@dataclass(frozen=True, slots=True)
class Docs:
    """The docs of a sink over `written`, whose messages have that `key`.

    What is said of one side counts more than what is said of both, and that more than a comment.
    """

    written: CatalogItem
    resolve: Callable[[QualifiedName], tuple[str, str]]
    key: Collection[str]

    def added(self, schema: SinkSchema, given: Sequence[SinkDoc], side: Side) -> SinkSchema:
        """The schema of keys or of values with its docs. Raises SLACKWATER_INVALID_OPTION for
        `given` docs of what is not there."""
        doc = self.written.comment
        columns = {
            column.name: str(comment)
            for column in self.written.stored.desc.columns
            if (comment := json.loads(column.metadata_json).get("comment"))
        }
        # The last one counts, so those of one side come after those of both.
        for each in sorted(given, key=lambda each: each.side is not None):
            column = self._checked(each)
            if each.side not in (None, side):
                continue
            if column is None:
                doc = each.text
            else:
                columns[column] = each.text
        told = tuple(sorted((name, text) for name, text in columns.items() if text))
        return replace(schema, doc=doc or None, column_docs=told)

    def _checked(self, doc: SinkDoc) -> str | None:
        """The name of the column as the relation has it; None: the relation itself is meant."""
        where = self.written.schema_name, self.written.name
        if tuple(map(fold, self.resolve(doc.relation))) != tuple(map(fold, where)):
            raise _refused(doc, f"the sink writes {self.written.full_name}")
        if doc.column is None:
            return None
        folded = fold(doc.column)
        for column in self.written.stored.desc.columns:
            if fold(column.name) == folded:
                if doc.side == "KEY" and folded not in map(fold, self.key):
                    raise _refused(doc, "the key does not have this column")
                return column.name
        raise _refused(doc, f"{self.written.full_name} has no such column")


def _refused(doc: SinkDoc, reason: str) -> SlackwaterError:
    named = doc.relation if doc.column is None else f"{doc.relation}.{doc.column}"
    return invalid_option("DOC ON", _STATEMENT, str(named), reason)
