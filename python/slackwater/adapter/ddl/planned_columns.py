"""The columns that statements declare in Spark's words."""

from __future__ import annotations

from dataclasses import dataclass, replace

from slackwater.adapter.catalog.context import Context
from slackwater.adapter.catalog.settings import ESCAPED_LITERALS
from slackwater.compute.engine import Engine
from slackwater.repr.relation import RelationDesc, quote_string


@dataclass(frozen=True, slots=True)
class DeclaredColumns:
    """Reads declarations of columns as Spark's parser understands them."""

    spark: Engine

    def declared(self, columns: str, context: Context) -> RelationDesc:
        """The columns of a declaration in that session.

        Spark lets every column of `from_json` be NULL, and keeps NOT NULL in a cast.
        """

        def fields(query: str) -> RelationDesc:
            analysis = self.engine(context).analyze(query, "slackwater", ("default",))
            return RelationDesc.from_json(analysis.desc.columns[0].type_json)

        parsed = fields(f"SELECT from_json('{{}}', {quote_string(columns)}) AS row")
        needed = fields(f"SELECT CAST(NULL AS STRUCT<{columns}>) AS row")
        pairs = zip(parsed.columns, needed.columns, strict=True)
        return RelationDesc(tuple(replace(c, nullable=n.nullable) for c, n in pairs))

    def engine(self, context: Context) -> Engine:
        """Spark with the session's settings, save for those of the syntax of texts."""
        settings = dict(context.settings or {})
        settings.pop(ESCAPED_LITERALS, None)
        return self.spark.under(settings)
