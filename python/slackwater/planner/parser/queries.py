"""Queries in statements."""

from __future__ import annotations

from slackwater.planner.parser import statements as st
from slackwater.planner.parser.names import QualifiedName


def query_of(statement: st.Statement) -> str | None:
    """The query whose names the coordinator resolves for the statement; None where it has none.

    That of a statement which reads a relation by its name is ``TABLE name``.
    """
    match statement:
        case st.CreateView(query=query) | st.CreateViewUnder(query=query):
            return query.text
        case st.CreateMaterializedView(query=query):
            return query.text
        case st.CreateIndex(on=name) | st.CreateSink(from_name=name):
            return _whole(name)
        case st.Subscribe(target=QualifiedName() as name):
            return _whole(name)
        case st.DeclareCursor(statement=st.Subscribe() as inner):
            return query_of(inner)
        case st.DeclareCursor(statement=st.Query(text=query)):
            return query.text
        case st.ExplainTimestamp(query=st.Query(text=query)):
            return query.text
        case (
            st.Subscribe(target=st.TextSlice() as query)
            | st.ExplainIncremental(target=st.TextSlice() as query)
            | st.ExplainPlan(target=st.TextSlice() as query)
        ):
            return query.text
        case _:
            return None


def _whole(name: QualifiedName) -> str:
    return f"TABLE {name.sql}"
