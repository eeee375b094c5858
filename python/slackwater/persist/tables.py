"""All tables of the metastore: a new one gets them as they are declared here.

`migrations.HISTORY` leads an older one to the same.
They are declared here and nowhere else: what compares `metadata` with a database, such as
`make revision`, takes a table that it does not know for one that is to be dropped.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    text,
)

GROUP_NAME_LENGTH = 255
"""The most characters of the name of a checkpoint group, or of a partition of one."""
HLC_LENGTH = 39
"""The characters of a time of checkpoints, which is kept as text."""

metadata = MetaData()

# The environment, and who leads it

environment = Table(
    "environment",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("version", Integer, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("commit_token", String(64), nullable=False),
    Column("tables_upper", BigInteger, nullable=False),
    Column("next_shard_id", BigInteger, nullable=False),
    Column("next_part_id", BigInteger, nullable=False),
    # NULL in environments from before there were names.
    Column("name", String(32), nullable=True),
)

leaders = Table(
    "leaders",
    metadata,
    Column("epoch", BigInteger, primary_key=True, autoincrement=False),
    Column("address", String, nullable=False),
    Column("token_file", String, nullable=False),
    Column("application", String, nullable=False),
    Column("log", String, nullable=False),
    # The last commit of the epoch before: so a fenced leader can learn what became of its own.
    Column("previous_token", String(64), nullable=False),
)

leases = Table(
    "leader_leases",
    metadata,
    # Nobody but the leader of the epoch renews it; a row that is gone has been given up or taken.
    Column("epoch", BigInteger, primary_key=True, autoincrement=False),
    Column("host", String, nullable=False),
    Column("boot", String, nullable=False),
    Column("pid_namespace", String, nullable=False),
    Column("owner_user", String, nullable=False),
    Column("pid", BigInteger, nullable=False),
    Column("started", String, nullable=False),
    Column("lease_ms", BigInteger, nullable=False),
    Column("renewals", BigInteger, nullable=False),
)

# Shards

shards = Table(
    "shards",
    metadata,
    Column("shard_id", BigInteger, primary_key=True, autoincrement=False),
    Column("schema_json", Text, nullable=False),
    Column("since", BigInteger, nullable=False),
    # NULL: the shard's upper is the environment's shared tables upper.
    Column("upper", BigInteger),
    Column("dropped", Boolean, nullable=False),
)

parts = Table(
    "parts",
    metadata,
    Column("part_id", BigInteger, primary_key=True, autoincrement=False),
    Column("shard_id", BigInteger, nullable=False),
    Column("lower", BigInteger, nullable=False),
    Column("upper", BigInteger, nullable=False),
    Column("inline_ipc", LargeBinary),
    Column("uri", Text),
    Column("size_bytes", BigInteger),
    Column("modified_ms", BigInteger),
    Column("uniform_time", BigInteger),
    Column("uniform_diff", BigInteger),
    Column("rows", BigInteger, nullable=False),
    Column("min_time", BigInteger, nullable=False),
    Column("max_time", BigInteger, nullable=False),
    Column("has_retractions", Boolean, nullable=False),
    Index("parts_by_shard", "shard_id"),
    # A file that a part of any shard names is no garbage. Inline parts are not in it.
    Index(
        "parts_by_uri",
        "uri",
        sqlite_where=text("uri IS NOT NULL"),
        postgresql_where=text("uri IS NOT NULL"),
    ),
)

writes = Table(
    "writes",
    metadata,
    Column("write_id", String(64), primary_key=True),
    Column("time", BigInteger, nullable=False),
    Column("inserted", BigInteger, nullable=False),
    Column("deleted", BigInteger, nullable=False),
    Column("written_ms", BigInteger, nullable=False),
    Index("writes_by_age", "written_ms"),
)

garbage = Table(
    "garbage",
    metadata,
    # A file that no part names. It is deleted when nobody can be reading it any more.
    Column("uri", String, primary_key=True),
    Column("shard_id", BigInteger, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("replaced_ms", BigInteger, nullable=False),
    # It is being deleted: no part may name it again.
    Column("condemned", Boolean, nullable=False),
    Index("garbage_by_shard", "shard_id", "replaced_ms"),
)

reader_leases = Table(
    "reader_leases",
    metadata,
    Column("reader_id", String(64), primary_key=True),
    Column("application", String, nullable=False),
    Column("since", BigInteger, nullable=False),
    Column("expires_ms", BigInteger, nullable=False),
)

# The catalog

catalog_counters = Table(
    "catalog_counters",
    metadata,
    # One row: the revision, the next id, the next audit event.
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("revision", BigInteger, nullable=False),
    Column("next_id", BigInteger, nullable=False),
    Column("next_event", BigInteger, nullable=False),
)

catalog_schemas = Table(
    "catalog_schemas",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("comment", Text),
)

catalog_items = Table(
    "catalog_items",
    metadata,
    Column("id", Text, primary_key=True),
    Column("body", Text, nullable=False),
)

catalog_clusters = Table(
    "catalog_clusters",
    metadata,
    Column("id", Text, primary_key=True),
    Column("body", Text, nullable=False),
)

# What ALTER SYSTEM has set. A name that a version does not know stays, for those that do.
catalog_parameters = Table(
    "catalog_parameters",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

catalog_audit = Table(
    "catalog_audit",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("event_type", Text, nullable=False),
    Column("object_type", Text, nullable=False),
    Column("details", Text, nullable=False),
    Column("user_name", Text),
    Column("occurred_ms", BigInteger, nullable=False),
)

secrets = Table(
    "secrets",
    metadata,
    Column("secret_id", Text, primary_key=True),
    Column("value", LargeBinary, nullable=False),
)

# Sources

# A state that no step has made yet is the empty text.
source_states = Table(
    "source_states",
    metadata,
    Column("source_id", Text, primary_key=True),
    Column("step", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
)

source_statistics = Table(
    "source_statistics",
    metadata,
    Column("source_id", Text, primary_key=True),
    Column("counters", Text, nullable=False),
)

source_status_history = Table(
    "source_status_history",
    metadata,
    Column("source_id", Text, primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("occurred_ms", BigInteger, nullable=False),
    Column("status", Text, nullable=False),
    Column("error", Text),
    Column("details", Text, nullable=False),
)

# Replication slots of sources that were dropped, which their servers may still have.
abandoned_slots = Table(
    "abandoned_slots",
    metadata,
    Column("source_id", Text, primary_key=True),
    Column("body", Text, nullable=False),
)

ingress = Table(
    "ingress",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("settings", Text, nullable=False),
)

# Checkpoints


def _ordered(length: int) -> String:
    """Text in the order of its bytes, whatever the language of the database."""
    return String(length).with_variant(String(length, collation="C"), "postgresql")


checkpoint_groups = Table(
    "checkpoint_groups",
    metadata,
    Column("group_name", _ordered(GROUP_NAME_LENGTH), primary_key=True),
    Column("committed", _ordered(HLC_LENGTH), nullable=False),
)

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("group_name", _ordered(GROUP_NAME_LENGTH), primary_key=True),
    Column("partition_name", _ordered(GROUP_NAME_LENGTH), primary_key=True),
    Column("source_hlc", _ordered(HLC_LENGTH), primary_key=True),
    Column("first_seen_ms", BigInteger, nullable=False),
    # NULL: not applied.
    Column("applied_ms", BigInteger),
)

# One for each question that a refresh has about a partition: it seeks, and reads no history.
_waiting = checkpoints.c.applied_ms.is_(None)
_applied = checkpoints.c.applied_ms.is_not(None)
for _name, _which in (("waiting", _waiting), ("applied", _applied)):
    Index(
        f"checkpoints_{_name}",
        checkpoints.c.group_name,
        checkpoints.c.partition_name,
        checkpoints.c.source_hlc,
        sqlite_where=_which,
        postgresql_where=_which,
    )
