"""The grammar of DROP, ALTER, COMMENT ON and SHOW. Source: surface 4, spec coordinator 5.4, 5.5."""

from __future__ import annotations

from slackwater.planner.parser.changefeed import read_changefeed_table
from slackwater.planner.parser.cluster_statements import (
    CommentOnCluster,
    DropClusterReplicas,
    DropClusters,
    ShowCreateCluster,
)
from slackwater.planner.parser.clusters import (
    AlteredCluster,
    accept_swap,
    read_alter_cluster,
    read_cluster_name,
    read_comment_on_cluster,
    read_drop_cluster,
)
from slackwater.planner.parser.connection_statements import AlterConnection, RotateKeys
from slackwater.planner.parser.connections import read_alter_connection
from slackwater.planner.parser.create import read_cluster, retain_history
from slackwater.planner.parser.kafka_source import RefreshSchema, ResnapshotSource, SkipLost
from slackwater.planner.parser.names import QualifiedName
from slackwater.planner.parser.options import OptionValue, ReadValue, read_options
from slackwater.planner.parser.secrets import read_alter_secret
from slackwater.planner.parser.session import read_alter_system, read_variable_name
from slackwater.planner.parser.source_tables import RefreshReferences
from slackwater.planner.parser.statements import (
    AlterApplyReplacement,
    AlterRename,
    AlterSecret,
    AlterSetCluster,
    AlterSetRetainHistory,
    AlterSinkFrom,
    AlterSourceAddTable,
    AlterSystem,
    CommentOn,
    DropObjects,
    ObjectKind,
    ReplayDeadLetters,
    Show,
    ShowAll,
    ShowCreate,
    ShowKind,
    ShowVariable,
    SwapSchemas,
)
from slackwater.planner.parser.tokens import Kind, TokenCursor

_SPARK_KINDS = frozenset({ObjectKind.TABLE, ObjectKind.VIEW, ObjectKind.SCHEMA})
_REFUSED_KINDS = (
    "ROLE",
    "TYPE",
    "NETWORK POLICY",
)
_REFUSED_ALTERS = (*_REFUSED_KINDS, "DEFAULT PRIVILEGES")
_REFUSED_SHOWS = (
    "SUBSOURCES",
    "TYPES",
    "ROLES",
    "NETWORK POLICIES",
    "PRIVILEGES",
    "DEFAULT PRIVILEGES",
    "ROLE MEMBERSHIP",
)
_KINDS_TEXT = (
    "The kinds are TABLE, VIEW, MATERIALIZED VIEW, SOURCE, SINK, INDEX, SECRET, CONNECTION, "
    "SCHEMA and CLUSTER."
)
_RETAINERS = frozenset(
    {ObjectKind.TABLE, ObjectKind.MATERIALIZED_VIEW, ObjectKind.SOURCE, ObjectKind.INDEX}
)


_ON_CLUSTERS = frozenset(
    {ObjectKind.MATERIALIZED_VIEW, ObjectKind.SOURCE, ObjectKind.SINK, ObjectKind.INDEX}
)


def _accept_kind(cursor: TokenCursor, *left_out: ObjectKind) -> ObjectKind | None:
    for kind in ObjectKind:
        if kind not in left_out and cursor.accept(*kind.value.split()):
            return kind
    return None


def _refuse(cursor: TokenCursor, verb: str, kinds: tuple[str, ...], advice: str) -> None:
    for kind in kinds:
        if cursor.looking_at(*kind.split()):
            raise cursor.unsupported(f"{verb} {kind}", advice)


def read_drop(cursor: TokenCursor) -> DropObjects | DropClusters | DropClusterReplicas | None:
    """DROP of one or more objects; None for Spark's kinds and clauses."""
    cursor.expect("DROP")
    if cursor.looking_at("CLUSTER"):
        return read_drop_cluster(cursor)
    _refuse(cursor, "DROP", (*_REFUSED_KINDS, "OWNED"), _KINDS_TEXT)
    kind = _accept_kind(cursor, ObjectKind.COLUMN)
    if kind is None:
        return None
    cursor.statement = f"DROP {kind.value}"
    if_exists = cursor.accept("IF", "EXISTS")
    if kind in _SPARK_KINDS and cursor.token.kind not in (Kind.WORD, Kind.QUOTED):
        return None
    names = [cursor.name()]
    while cursor.accept_symbol(","):
        names.append(cursor.name())
    if kind is ObjectKind.INDEX and cursor.looking_at("ON"):
        return None
    cascade = cursor.accept("CASCADE")
    restrict = not cascade and cursor.accept("RESTRICT")
    if kind in _SPARK_KINDS and len(names) == 1 and not cursor.at_end:
        return None
    return DropObjects(kind, tuple(names), if_exists, cascade if cascade or restrict else None)


Altered = (
    AlterRename
    | SwapSchemas
    | AlterSetCluster
    | AlteredCluster
    | AlterSetRetainHistory
    | AlterSinkFrom
    | AlterApplyReplacement
    | AlterSourceAddTable
    | ReplayDeadLetters
    | SkipLost
    | ResnapshotSource
    | RefreshReferences
    | RefreshSchema
    | AlterSecret
    | AlterConnection
    | RotateKeys
    | AlterSystem
)


def read_alter(
    cursor: TokenCursor,
) -> Altered | None:
    """ALTER of an object or of the system; None for what only Spark has."""
    cursor.expect("ALTER")
    if cursor.looking_at("SYSTEM"):
        return read_alter_system(cursor)
    if cursor.looking_at("CLUSTER"):
        return read_alter_cluster(cursor)
    _refuse(cursor, "ALTER", _REFUSED_ALTERS, _KINDS_TEXT)
    kind = _accept_kind(cursor, ObjectKind.COLUMN)
    if kind is None:
        return None
    cursor.statement = f"ALTER {kind.value}"
    if kind is ObjectKind.SECRET and (secret := read_alter_secret(cursor)) is not None:
        return secret
    if kind is ObjectKind.CONNECTION and (changed := read_alter_connection(cursor)) is not None:
        return changed
    if_exists = cursor.accept("IF", "EXISTS")
    if kind in _SPARK_KINDS and cursor.token.kind not in (Kind.WORD, Kind.QUOTED):
        return None
    name = cursor.name()
    if cursor.looking_at("RENAME", "TO"):
        cursor.expect("RENAME", "TO")
        return AlterRename(kind, name, cursor.name("the new name"), if_exists)
    if kind is ObjectKind.SCHEMA and accept_swap(cursor, if_exists):
        return SwapSchemas(name, cursor.name("a schema"))
    if kind is ObjectKind.SINK and cursor.looking_at("SET", "FROM"):
        cursor.expect("SET", "FROM")
        return AlterSinkFrom(name, cursor.name("a relation"), if_exists)
    if kind is ObjectKind.MATERIALIZED_VIEW and cursor.accept("APPLY", "REPLACEMENT"):
        return AlterApplyReplacement(name, cursor.name("a replacement"), if_exists)
    if kind is ObjectKind.SOURCE and cursor.accept("ADD", "TABLE"):
        return AlterSourceAddTable(name, read_changefeed_table(cursor), if_exists)
    if kind is ObjectKind.SOURCE and cursor.accept("REPLAY", "DEAD", "LETTERS"):
        return ReplayDeadLetters(name, if_exists)
    if kind is ObjectKind.SOURCE and cursor.accept("SKIP", "LOST"):
        return SkipLost(name, if_exists)
    if kind is ObjectKind.SOURCE and cursor.accept("RESNAPSHOT"):
        return ResnapshotSource(name, if_exists, _tables(cursor))
    if kind is ObjectKind.SOURCE and cursor.accept("REFRESH", "REFERENCES"):
        return RefreshReferences(name, if_exists)
    if kind is ObjectKind.SOURCE and cursor.accept("REFRESH", "SCHEMA"):
        return RefreshSchema(name, if_exists, _tables(cursor))
    if kind in _ON_CLUSTERS and cursor.accept("SET", "CLUSTER"):
        return AlterSetCluster(kind, name, read_cluster_name(cursor), if_exists)
    if kind in _RETAINERS and cursor.looking_at("SET") and cursor.peek().is_symbol("("):
        cursor.advance()
        known: dict[str, ReadValue] = {"RETAIN HISTORY": retain_history}
        if kind is ObjectKind.SOURCE:
            known["TIMESTAMP INTERVAL"] = _fixed_option
        history = int(read_options(cursor, known)["RETAIN HISTORY"])
        return AlterSetRetainHistory(kind, name, history, if_exists)
    if kind in _RETAINERS and cursor.looking_at("RESET") and cursor.peek().is_symbol("("):
        cursor.advance()
        read_options(cursor, {"RETAIN HISTORY": _no_value})
        return AlterSetRetainHistory(kind, name, None, if_exists)
    _refuse_alter(cursor, kind)
    return None


def _fixed_option(cursor: TokenCursor, option: str) -> OptionValue:
    raise cursor.unsupported(f"Changing {option} of a source", "Create the source anew.")


def _no_value(cursor: TokenCursor, option: str) -> OptionValue:
    return True


def _refuse_alter(cursor: TokenCursor, kind: ObjectKind) -> None:
    """Refuses kinds that Spark does not have; Spark takes the other statements about its own."""
    if cursor.at_end:
        if kind is ObjectKind.SECRET:
            raise cursor.syntax_error("AS or RENAME TO")
        if kind is ObjectKind.CONNECTION:
            raise cursor.syntax_error("SET, RESET or RENAME TO")
        if kind not in _SPARK_KINDS:
            raise cursor.syntax_error("RENAME TO, SET or RESET")
        return
    first, second = cursor.token, cursor.peek()
    foreign = (first.upper, second.upper) in {("SWAP", "WITH"), ("OWNER", "TO")}
    if kind in _SPARK_KINDS and not foreign:
        return
    action = f"{first.upper} {second.upper}".strip()
    if not action:
        raise cursor.syntax_error("RENAME TO, SET or RESET")
    raise cursor.unsupported(
        f"ALTER {kind.value} ... {action}",
        "ALTER knows RENAME TO, SET CLUSTER and SET (RETAIN HISTORY FOR '...'); of a sink, "
        "SET FROM; of a materialized view, APPLY REPLACEMENT; of a schema, SWAP WITH.",
    )


def read_comment(cursor: TokenCursor) -> CommentOn | CommentOnCluster | None:
    """COMMENT ON for the kinds of objects that Spark has not."""
    if not cursor.looking_at("ON", ahead=1):
        return None
    cursor.expect("COMMENT", "ON")
    _refuse(cursor, "COMMENT ON", _REFUSED_KINDS, _KINDS_TEXT)
    if cursor.looking_at("CLUSTER"):
        return read_comment_on_cluster(cursor)
    kind = _accept_kind(cursor, ObjectKind.TABLE, ObjectKind.SCHEMA)
    if kind is None:
        return None
    cursor.statement = f"COMMENT ON {kind.value}"
    at = cursor.token
    name = cursor.name()
    if kind is ObjectKind.COLUMN and len(name.parts) < 2:
        raise cursor.syntax_error("relation.column", at)
    cursor.expect("IS")
    if cursor.accept("NULL"):
        return CommentOn(kind, name, None)
    return CommentOn(kind, name, cursor.string("a string, or NULL"))


def read_show(cursor: TokenCursor) -> Shown | None:
    """Our SHOW statements; None for Spark's."""
    cursor.expect("SHOW")
    cursor.statement = "SHOW"
    if cursor.looking_at("CREATE"):
        return _show_create(cursor)
    if cursor.accept("ALL"):
        return ShowAll() if cursor.at_end else None
    if cursor.accept("TRANSACTION", "ISOLATION", "LEVEL"):
        return ShowVariable("transaction_isolation")
    _refuse(cursor, "SHOW", _REFUSED_SHOWS, "SHOW OBJECTS lists everything that there is.")
    for kind in ShowKind:
        if cursor.accept(*kind.value.split()):
            return _show(cursor, kind)
    variable = read_variable_name(cursor)
    return None if variable is None else ShowVariable(variable)


Shown = Show | ShowCreate | ShowCreateCluster | ShowVariable | ShowAll


def _show(cursor: TokenCursor, kind: ShowKind) -> Show | None:
    cursor.statement = f"SHOW {kind.value}"
    schema: QualifiedName | None = None
    cluster: str | None = None
    on: QualifiedName | None = None
    has_schema = kind not in (ShowKind.CLUSTERS, ShowKind.CLUSTER_REPLICAS, ShowKind.NOTICES)
    in_schema = cursor.looking_at("IN") and not cursor.looking_at("IN", "CLUSTER")
    if has_schema and (cursor.looking_at("FROM") or in_schema):
        cursor.advance()
        schema = cursor.name("a schema")
    if kind is ShowKind.INDEXES and cursor.accept("ON"):
        on = cursor.name("a relation")
    if has_schema:
        cluster = read_cluster(cursor)
    like = cursor.string("a pattern as a string") if cursor.accept("LIKE") else None
    if cursor.looking_at("WHERE"):
        raise cursor.unsupported(
            f"SHOW {kind.value} ... WHERE", "Use LIKE, or query the relations of mz_catalog."
        )
    if kind is ShowKind.VIEWS and not cursor.at_end:
        return None
    return Show(kind, schema, like, cluster, on)


def _show_create(cursor: TokenCursor) -> ShowCreate | ShowCreateCluster | None:
    cursor.expect("CREATE")
    _refuse(cursor, "SHOW CREATE", _REFUSED_KINDS, _KINDS_TEXT)
    if cursor.accept("CLUSTER"):
        cursor.statement = "SHOW CREATE CLUSTER"
        return ShowCreateCluster(read_cluster_name(cursor))
    if cursor.looking_at("SECRET"):
        raise cursor.unsupported("SHOW CREATE SECRET", "Nothing shows the value of a secret.")
    kind = _accept_kind(cursor, ObjectKind.SCHEMA, ObjectKind.COLUMN)
    if kind is None:
        return None
    cursor.statement = f"SHOW CREATE {kind.value}"
    return ShowCreate(kind, cursor.name())


def _tables(cursor: TokenCursor) -> tuple[QualifiedName, ...]:
    """Names of tables in parentheses behind TABLES, if that is next."""
    if not cursor.accept("TABLES"):
        return ()
    cursor.expect_symbol("(")
    found = [cursor.name("a table")]
    while cursor.accept_symbol(","):
        found.append(cursor.name("a table"))
    cursor.expect_symbol(")")
    return tuple(found)
