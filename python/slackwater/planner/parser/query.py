"""The grammar of statements about queries: SUBSCRIBE, cursors, EXPLAIN, and AS OF.

Source: surface 4 and 7, spec coordinator 2.11.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from slackwater.planner.parser.names import QualifiedName
from slackwater.planner.parser.options import boolean, duration, integer, read_options
from slackwater.planner.parser.statements import (
    AsOf,
    CloseCursor,
    DeclareCursor,
    Envelope,
    ExplainAnalyze,
    ExplainIncremental,
    ExplainPlan,
    ExplainTimestamp,
    Fetch,
    Maintained,
    ObjectKind,
    Query,
    Subscribe,
    TextSlice,
)
from slackwater.planner.parser.tokens import Kind, TokenCursor

_QUERY_WORDS = frozenset({"SELECT", "WITH", "VALUES", "TABLE", "FROM", "MAP", "REDUCE"})
_AFTER_ALIAS = frozenset(
    [
        "FROM",
        "WHERE",
        "GROUP",
        "HAVING",
        "ORDER",
        "SORT",
        "DISTRIBUTE",
        "CLUSTER",
        "LIMIT",
        "OFFSET",
        "WINDOW",
        "UNION",
        "EXCEPT",
        "MINUS",
        "INTERSECT",
        "JOIN",
        "CROSS",
        "INNER",
        "LEFT",
        "RIGHT",
        "FULL",
        "NATURAL",
        "SEMI",
        "ANTI",
        "LATERAL",
        "ON",
        "USING",
        "SELECT",
        "TABLESAMPLE",
        "PIVOT",
        "UNPIVOT",
        "QUALIFY",
        "AS",
    ]
)
_ALSO_FUNCTIONS = frozenset({"LEFT", "RIGHT"})
_TABLE_VERSIONS = frozenset({"VERSION", "SYSTEM_VERSION", "TIMESTAMP", "SYSTEM_TIME"})
_BEFORE_RELATION = frozenset({"FROM", "JOIN", "SELECT"})
_OTHER_STAGES = (
    ("RAW", "PLAN"),
    ("DECORRELATED", "PLAN"),
    ("LOCALLY", "OPTIMIZED", "PLAN"),
    ("OPTIMIZED", "PLAN", "WITH"),
    ("PHYSICAL", "PLAN", "WITH"),
    ("PLAN", "WITH"),
)
"""Stages that Materialize's plans have and ours do not, and its modifiers."""


def read_query(cursor: TokenCursor) -> Query:
    """The query at the cursor, up to the end of the statement, and the AS OF at its end, if any.

    ``SELECT 1 AS of`` and ``FROM range(2) AS OF (n)`` are aliases, ``t VERSION AS OF 1`` is
    Spark's own.
    """
    token = cursor.token
    if token.upper not in _QUERY_WORDS and not token.is_symbol("("):
        raise cursor.syntax_error("a query")
    return _read_as_of(cursor)


def read_timeless_query(cursor: TokenCursor) -> TextSlice:
    """The query at the cursor, which must not say when it is read."""
    query = read_query(cursor)
    if query.as_of is not None:
        raise cursor.unsupported(
            f"AS OF in the query of {cursor.statement}", "Say AS OF where the object is read."
        )
    return query.text


def _read_as_of(cursor: TokenCursor) -> Query:
    start = cursor.mark
    marks = cursor.groups()
    if not marks:
        raise cursor.syntax_error("a query")
    split = _as_of_index(cursor, marks)
    if split is None:
        return Query(cursor.slice(start))
    end = cursor.mark
    cursor.rewind(marks[split + 2])
    kind: Literal["at", "at_least"] = "at_least" if cursor.accept("AT", "LEAST") else "at"
    if cursor.mark == end:
        raise cursor.syntax_error("an expression")
    expression = cursor.slice(cursor.mark, end)
    query = Query(cursor.slice(start, marks[split]), AsOf(kind, expression))
    cursor.rewind(end)
    return query


def _as_of_index(cursor: TokenCursor, marks: Sequence[int]) -> int | None:
    """The index in `marks` of the AS OF of the whole query."""
    for index in range(len(marks) - 3, 0, -1):
        if cursor.at(marks[index]).is_word("AS") and cursor.at(marks[index + 1]).is_word("OF"):
            tail = marks[index + 2 :]
            is_time = not _is_table_version(cursor, marks[:index]) and _is_time(cursor, tail)
            return index if is_time else None
    return None


def _is_table_version(cursor: TokenCursor, before: Sequence[int]) -> bool:
    """Whether AS OF belongs to ``t VERSION AS OF``; `version` alone may be a relation's name."""
    if len(before) < 2 or cursor.at(before[-1]).upper not in _TABLE_VERSIONS:
        return False
    token = cursor.at(before[-2])
    return not (token.is_symbol(",") or token.is_symbol(".") or token.upper in _BEFORE_RELATION)


def _is_time(cursor: TokenCursor, tail: Sequence[int]) -> bool:
    """Whether the groups after AS OF can be one expression that ends the statement."""
    for index, mark in enumerate(tail):
        token = cursor.at(mark)
        if token.kind is Kind.SYMBOL and token.text in (",", "|>"):
            return False
        if token.upper in _AFTER_ALIAS:
            called = index + 1 < len(tail) and cursor.at(tail[index + 1]).is_symbol("(")
            if not (called and token.upper in _ALSO_FUNCTIONS):
                return False
    return not (len(tail) == 1 and _is_column_list(cursor, tail[0]))


def _is_column_list(cursor: TokenCursor, mark: int) -> bool:
    """Whether a group is ``(a, b)``: columns of an alias named "of"."""
    position = mark
    if not cursor.at(position).is_symbol("("):
        return False
    while True:
        if cursor.at(position + 1).kind not in (Kind.WORD, Kind.QUOTED):
            return False
        separator = cursor.at(position + 2)
        if separator.is_symbol(")"):
            return True
        if not separator.is_symbol(","):
            return False
        position += 2


def read_subscribe(cursor: TokenCursor) -> Subscribe:
    cursor.statement = "SUBSCRIBE"
    cursor.expect("SUBSCRIBE")
    cursor.accept("TO")
    target = _subscribe_target(cursor)
    snapshot, progress = True, False
    as_of: AsOf | None = None
    up_to: TextSlice | None = None
    envelope: Envelope | None = None
    order: TextSlice | None = None
    seen: set[str] = set()
    while not cursor.at_end:
        clause = _subscribe_clause(cursor, seen)
        match clause:
            case "WITH":
                options = read_options(cursor, {"SNAPSHOT": boolean, "PROGRESS": boolean})
                snapshot = bool(options.get("SNAPSHOT", True))
                progress = bool(options.get("PROGRESS", False))
            case "AS OF":
                kind: Literal["at", "at_least"] = (
                    "at_least" if cursor.accept("AT", "LEAST") else "at"
                )
                as_of = AsOf(kind, _clause_text(cursor))
            case "UP TO":
                up_to = _clause_text(cursor)
            case "ENVELOPE":
                envelope = _subscribe_envelope(cursor)
            case _:
                order = _clause_text(cursor)
    return Subscribe(target, snapshot, progress, as_of, up_to, envelope, order)


_CLAUSES = ("WITH", "AS OF", "UP TO", "ENVELOPE", "WITHIN TIMESTAMP ORDER BY")


def _next_clause(cursor: TokenCursor) -> str | None:
    for clause in _CLAUSES:
        if cursor.looking_at(*clause.split()):
            return clause if clause != "WITH" or cursor.peek().is_symbol("(") else None
    return None


def _subscribe_clause(cursor: TokenCursor, seen: set[str]) -> str:
    """Reads the keywords of the next clause. Each may be written once, in any order."""
    clause = _next_clause(cursor)
    if clause is None or clause in seen:
        left = [known for known in _CLAUSES if known not in seen]
        raise cursor.syntax_error(", ".join([*left, "the end of the statement"]))
    seen.add(clause)
    cursor.expect(*clause.split())
    return clause


def _clause_text(cursor: TokenCursor) -> TextSlice:
    return cursor.rest("an expression", stop=lambda: _next_clause(cursor) is not None)


def _subscribe_target(cursor: TokenCursor) -> QualifiedName | TextSlice:
    if not cursor.token.is_symbol("("):
        return cursor.name("a relation or a query in parentheses")
    start = cursor.mark
    cursor.skip_group()
    end = cursor.mark
    cursor.rewind(start + 1)
    if cursor.token.upper not in _QUERY_WORDS and not cursor.token.is_symbol("("):
        raise cursor.syntax_error("a query")
    query = cursor.slice(start + 1, end - 1)
    cursor.rewind(end)
    return query


def _subscribe_envelope(cursor: TokenCursor) -> Envelope:
    if cursor.accept("UPSERT"):
        return Envelope("UPSERT", read_key(cursor))
    if cursor.accept("DEBEZIUM"):
        return Envelope("DEBEZIUM", read_key(cursor))
    raise cursor.syntax_error("UPSERT or DEBEZIUM")


def read_key(cursor: TokenCursor) -> tuple[str, ...]:
    """``KEY (a, b)``, with or without parentheses around it."""
    wrapped = cursor.accept_symbol("(")
    cursor.expect("KEY")
    key = cursor.identifiers()
    if wrapped:
        cursor.expect_symbol(")")
    return key


def read_declare(cursor: TokenCursor) -> DeclareCursor | None:
    if not cursor.looking_at("CURSOR", ahead=2):
        return None
    cursor.statement = "DECLARE CURSOR"
    cursor.expect("DECLARE")
    name = cursor.identifier("the name of a cursor")
    cursor.expect("CURSOR", "FOR")
    if cursor.looking_at("SUBSCRIBE"):
        return DeclareCursor(name, read_subscribe(cursor))
    return DeclareCursor(name, read_query(cursor))


def read_fetch(cursor: TokenCursor) -> Fetch:
    cursor.statement = "FETCH"
    cursor.expect("FETCH")
    if not _is_last_name(cursor):
        cursor.accept("FORWARD")
    count = None if not _is_last_name(cursor) and cursor.accept("ALL") else _fetch_count(cursor)
    if cursor.looking_at("FROM") or cursor.looking_at("IN"):
        cursor.advance()
    name = cursor.identifier("the name of a cursor")
    timeout_ms: int | None = None
    if cursor.accept("WITH"):
        timeout_ms = int(read_options(cursor, {"TIMEOUT": duration})["TIMEOUT"])
    return Fetch(name, count, timeout_ms)


def _is_last_name(cursor: TokenCursor) -> bool:
    """Whether the word at the cursor is the cursor's name, though it may look like a keyword."""
    behind = cursor.peek()
    return behind.kind is Kind.END or behind.is_symbol(";") or behind.is_word("WITH")


def _fetch_count(cursor: TokenCursor) -> int:
    is_count = cursor.token.kind is Kind.NUMBER or cursor.token.is_symbol("-")
    return int(integer(cursor, "count")) if is_count else 1


def read_close(cursor: TokenCursor) -> CloseCursor:
    cursor.statement = "CLOSE"
    cursor.expect("CLOSE")
    return CloseCursor(cursor.identifier("the name of a cursor"))


def read_explain(
    cursor: TokenCursor,
) -> ExplainTimestamp | ExplainIncremental | ExplainAnalyze | ExplainPlan | None:
    """Our EXPLAIN statements; None for Spark's."""
    cursor.expect("EXPLAIN")
    if cursor.accept("TIMESTAMP"):
        return _explain_timestamp(cursor)
    if cursor.accept("INCREMENTAL"):
        return _explain_incremental(cursor)
    _refuse_explain(cursor)
    stage = _plan_stage(cursor)
    if stage is not None:
        return _explain_plan(cursor, stage)
    # EXPLAIN of ANALYZE TABLE is Spark's.
    if cursor.peek().upper in ("FOR", "MATERIALIZED") and cursor.accept("ANALYZE"):
        return _explain_analyze(cursor)
    return None


def _explain_timestamp(cursor: TokenCursor) -> ExplainTimestamp:
    cursor.statement = "EXPLAIN TIMESTAMP"
    shape = _format(cursor)
    cursor.expect("FOR")
    return ExplainTimestamp(read_query(cursor), shape)


def _format(cursor: TokenCursor) -> Literal["TEXT", "JSON"]:
    if not cursor.accept("AS"):
        return "TEXT"
    if cursor.accept("JSON"):
        return "JSON"
    if not cursor.accept("TEXT"):
        raise cursor.syntax_error("TEXT or JSON")
    return "TEXT"


def _plan_stage(cursor: TokenCursor) -> Literal["OPTIMIZED", "PHYSICAL"] | None:
    """The stage behind EXPLAIN; without its name the optimized one. None: it asks for no plan."""
    if cursor.accept("PHYSICAL", "PLAN"):
        return "PHYSICAL"
    if cursor.accept("OPTIMIZED", "PLAN"):
        return "OPTIMIZED"
    if cursor.looking_at("PLAN", "FOR") or cursor.looking_at("PLAN", "AS"):
        cursor.expect("PLAN")
        return "OPTIMIZED"
    return None


def _explain_plan(cursor: TokenCursor, stage: Literal["OPTIMIZED", "PHYSICAL"]) -> ExplainPlan:
    cursor.statement = f"EXPLAIN {stage} PLAN"
    shape = _format(cursor)
    cursor.expect("FOR")
    for kind in (ObjectKind.MATERIALIZED_VIEW, ObjectKind.INDEX):
        if cursor.accept(*kind.value.split()):
            return ExplainPlan(stage, Maintained(kind, cursor.name()), shape)
    if cursor.looking_at("VIEW") or cursor.looking_at("CREATE"):
        raise cursor.unsupported(
            f"{cursor.statement} FOR {cursor.token.upper}",
            "Name a materialized view or an index, or write the query.",
        )
    return ExplainPlan(stage, read_timeless_query(cursor), shape)


def _explain_incremental(cursor: TokenCursor) -> ExplainIncremental:
    cursor.statement = "EXPLAIN INCREMENTAL"
    introduced = cursor.accept("FOR")
    if cursor.accept("MATERIALIZED", "VIEW"):
        return ExplainIncremental(cursor.name())
    if not introduced:
        raise cursor.syntax_error("FOR")
    return ExplainIncremental(read_timeless_query(cursor))


def _explain_analyze(cursor: TokenCursor) -> ExplainAnalyze:
    cursor.statement = "EXPLAIN ANALYZE"
    cursor.accept("FOR")
    cursor.expect("MATERIALIZED", "VIEW")
    return ExplainAnalyze(cursor.name())


def _refuse_explain(cursor: TokenCursor) -> None:
    refused = {
        ("FILTER", "PUSHDOWN"),
        ("ANALYZE", "CPU"),
        ("ANALYZE", "MEMORY"),
        ("ANALYZE", "HINTS"),
        ("KEY", "SCHEMA"),
        ("VALUE", "SCHEMA"),
        ("REPLAN", "FOR"),
    }
    for words in (*sorted(refused), *_OTHER_STAGES):
        if cursor.looking_at(*words):
            raise cursor.unsupported(
                f"EXPLAIN {' '.join(words)}",
                "EXPLAIN shows Spark's plan, EXPLAIN INCREMENTAL how a view is maintained, EXPLAIN "
                "OPTIMIZED PLAN and EXPLAIN PHYSICAL PLAN by which operators.",
            )
