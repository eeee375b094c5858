"""The stored SQL of objects that Spark's grammar created."""

from __future__ import annotations

from slackwater.repr.relation import RelationDesc, quote_identifier


def create_table_sql(
    full_name: str, desc: RelationDesc, retain_history_ms: int | None, comment: str | None
) -> str:
    """A CREATE TABLE statement that makes the same table again."""
    columns = []
    for column in desc.columns:
        words = [quote_identifier(column.name), column.sql_type]
        if not column.nullable:
            words.append("NOT NULL")
        if column.default_sql is not None:
            words.append(f"DEFAULT {column.default_sql}")
        columns.append(" ".join(words))
    name = ".".join(quote_identifier(part) for part in full_name.split("."))
    text = f"CREATE TABLE {name} ({', '.join(columns)})"
    if comment:
        escaped = comment.replace("\\", "\\\\").replace("'", "\\'")
        text += f" COMMENT '{escaped}'"
    if retain_history_ms is not None:
        text += f" WITH (RETAIN HISTORY FOR '{retain_history_ms} ms')"
    return text
