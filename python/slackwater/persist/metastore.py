"""The metastore: one transactional database that says what an environment consists of.

SQLite (embedded) and PostgreSQL 15 or newer (production) are used through the same SQLAlchemy Core
statements. The table `environment` has one row. Every transaction that writes updates that row
first, or locks it: so the epoch in it fences a former leader, and the token in it tells whether a
commit happened whose answer was lost.

Isolation. The transactions that write are serial, in the order in which they get that row. SQLite
has one writer at a time, from ``BEGIN IMMEDIATE`` on. On PostgreSQL they run at READ COMMITTED: the
first statement waits for the row's lock and looks at its condition (the epoch, the tables upper)
again in the version that the holder before has committed, and each later statement sees all that
was committed before it began, which is all that was committed before the lock was got, and nothing
more, because every other writer waits for the same row. A higher level would add nothing and cost
retries: the snapshot would be taken before the wait, and after it the transaction would fail.
Transactions that only read take no lock and wait for nobody. They see one state, however many
statements they have: a read transaction of SQLite in WAL mode is a snapshot, and on PostgreSQL they
run at REPEATABLE READ, where a transaction that does not write cannot fail.

SQLite runs in WAL mode with ``synchronous=FULL``. With NORMAL a power failure could take back
commits that were acknowledged already; readers, sinks and other applications may have acted on
them, so an acknowledged write has to be on disk. FULL costs one fsync of the log for each commit
and no other, because in WAL mode the database file itself is only synchronised at checkpoints.
On PostgreSQL ``synchronous_commit=off`` is overruled for the same reason.

Source: spec controllers 2.1, 3.1, 3.9.
"""

from __future__ import annotations

import hashlib
import random
import secrets
import sqlite3
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from sqlalchemy import (
    Connection,
    Engine,
    create_engine,
    event,
    func,
    insert,
    inspect,
    select,
    update,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.pool import NullPool

from slackwater.persist.migrations import HISTORY, History
from slackwater.persist.tables import environment, metadata
from slackwater.repr.errors import SlackwaterError, invalid_option, user_error

T = TypeVar("T")

_READ_ONLY = "slackwater_read_only"
SILENCE_MS = 10_000
"""After so long without a word from it, a metastore counts as away."""
_BUSY_TIMEOUT_MS = 5_000
_IDLE_MS = 5_000
"""A transaction whose owner says nothing for so long is ended by the server, with its locks."""
_CREATION_LOCK = 7_163_411
_GONE_SQLSTATES = ("08", "57P", "53", "40", "55P03", "25006", "25P03")
_GONE_SQLITE = (
    "database is locked",
    "database table is locked",
    "unable to open database file",
    "disk i/o error",
    "attempt to write a readonly database",
)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The patience of a statement with a metastore that is gone.

    `monotonic` gives seconds, `sleep` takes seconds.
    """

    wait_ms: int = 10_000
    first_pause_ms: int = 20
    longest_pause_ms: int = 500
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


RETRY_POLICY = RetryPolicy()


class OutcomeUnknown(Exception):
    """The metastore went away during a commit and did not come back in time.

    Whether the transaction happened is not known. `error` is what the user is told.
    """

    def __init__(self, error: SlackwaterError) -> None:
        super().__init__(str(error))
        self.error = error


def connect(url: str | URL, *, silence_ms: int = SILENCE_MS) -> Engine:
    """An engine for the metastore at `url`; no connection is opened yet.

    An exchange with a server that hangs fails after `silence_ms`. `url` is ``sqlite:///path`` or
    ``postgresql+psycopg://...`` (``postgresql://`` means the same). An SQLite file and
    its directory are made, the file for its owner alone. Raises SLACKWATER_INVALID_OPTION for
    anything else, SLACKWATER_CONNECTOR_MISSING without the driver of PostgreSQL, and
    SLACKWATER_STORAGE_UNAVAILABLE when file or directory cannot be made.
    """
    parsed = _parse(url)
    if parsed.get_backend_name() == "sqlite":
        # A database in memory has a URI of SQLite's own, and no file.
        if "uri" not in parsed.query:
            _make_file(parsed)
        engine = create_engine(parsed, hide_parameters=True)
        busy_ms = min(silence_ms, _BUSY_TIMEOUT_MS)
        event.listen(engine, "connect", lambda raw, _: _prepare_sqlite(raw, busy_ms))
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    try:
        from slackwater.persist.postgres import limit_silence
    except ImportError:
        # The driver of PostgreSQL is an extra.
        raise user_error(
            "SLACKWATER_CONNECTOR_MISSING", system="PostgreSQL", extra="postgres"
        ) from None
    engine = create_engine(
        parsed,
        hide_parameters=True,
        isolation_level="READ COMMITTED",
        connect_args=_postgres_arguments(parsed, silence_ms),
    )
    limit_silence(engine, silence_ms)
    idle_ms = min(silence_ms, _IDLE_MS)
    event.listen(engine, "connect", lambda raw, _: _prepare_postgres(raw, idle_ms))
    return engine


def connect_read_only(url: str | URL) -> Engine:
    """An engine that cannot write, for the metastore at `url`; no connection is opened yet.

    Neither file nor directory is made, and beside a file that nobody has open nothing is. Raises
    what `connect` raises.
    """
    parsed = _parse(url)
    if parsed.get_backend_name() != "sqlite":
        return connect(parsed)
    file = Path(str(parsed.database)).absolute()
    engine = create_engine(
        parsed, hide_parameters=True, poolclass=NullPool, creator=lambda: _opened(file)
    )
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def is_open(file: Path) -> bool:
    """Whether somebody may have the SQLite file open, and write it."""
    return file.with_name(f"{file.name}-wal").exists()


def _opened(file: Path) -> Any:
    """A connection that cannot write. Readers of a file that changes make files beside it."""
    how = "mode=ro" if is_open(file) else "mode=ro&immutable=1"
    return sqlite3.connect(f"file:{quote(str(file))}?{how}", uri=True, isolation_level=None)


def create_all(
    engine: Engine,
    *,
    history: History = HISTORY,
    retry_policy: RetryPolicy = RETRY_POLICY,
    declare: Callable[[], object] = lambda: None,
) -> None:
    """Makes the tables and the environment's row in a metastore that has none.

    `declare` is called before they are made: it imports the modules that declare them.

    They are made as they are declared, which is what the history leads to. A metastore of an older
    version stays as it is: whoever takes the lead upgrades it. Several processes may do this at the
    same time. Raises SLACKWATER_ENVIRONMENT_VERSION when the environment was made by a newer
    program, and SLACKWATER_METASTORE_UNAVAILABLE.
    """

    def look(conn: Connection) -> bool:
        if not inspect(conn).has_table(environment.name):
            return False
        check_version(conn, history)
        return True

    def create(conn: Connection) -> None:
        if conn.dialect.name == "postgresql":
            conn.execute(select(func.pg_advisory_xact_lock(_CREATION_LOCK)))
        if look(conn):
            return
        metadata.create_all(conn, checkfirst=False)
        conn.execute(
            insert(environment).values(
                id=1,
                version=HISTORY.head,
                epoch=0,
                commit_token="",
                tables_upper=0,
                next_shard_id=1,
                next_part_id=1,
                name=secrets.token_hex(6),
            )
        )

    if not query(engine, look, retry_policy=retry_policy):
        declare()
        transaction(engine, create, retry_policy=retry_policy)


def environment_name(conn: Connection, location: str) -> str:
    """The name that tells this environment apart from others in the systems that it uses.

    It is random, so that two at equal paths of two machines have different ones. An environment
    from before there were such names has one of its location.
    """
    found = conn.execute(select(environment.c.name)).scalar_one()
    return hashlib.sha256(location.encode()).hexdigest()[:12] if found is None else str(found)


def check_version(conn: Connection, history: History = HISTORY) -> int:
    """The version of the metastore. Raises SLACKWATER_ENVIRONMENT_VERSION if it is not known."""
    found = int(conn.execute(select(environment.c.version)).scalar_one())
    if found > history.head:
        raise user_error(
            "SLACKWATER_ENVIRONMENT_VERSION",
            location=conn.engine.url.render_as_string(hide_password=True),
            found=str(found),
            known=str(history.head),
        )
    return found


def upgrade(conn: Connection, history: History = HISTORY) -> None:
    """Brings the metastore to the newest version, in the transaction of `conn`.

    For the transaction that takes the lead: with its commit the leader before is fenced, and before
    it nobody sees the new tables. Raises SLACKWATER_ENVIRONMENT_VERSION.
    """
    found = check_version(conn, history)
    if found < history.head:
        history.upgrade(conn, found)
        conn.execute(update(environment).values(version=history.head))


def query(
    engine: Engine, body: Callable[[Connection], T], *, retry_policy: RetryPolicy = RETRY_POLICY
) -> T:
    """Runs `body` in a transaction that only reads one state; waits for a metastore that is gone.

    A writer is never waited for. Raises SLACKWATER_METASTORE_UNAVAILABLE.
    """
    return transaction(engine, body, read_only=True, retry_policy=retry_policy)


def transaction(
    engine: Engine,
    body: Callable[[Connection], T],
    *,
    committed: Callable[[Connection], bool] | None = None,
    read_only: bool = False,
    retry_policy: RetryPolicy = RETRY_POLICY,
) -> T:
    """Runs `body` in one transaction and returns what it returned.

    When the metastore is gone the whole transaction is tried again, so `body` may run more than
    once, but it takes effect once at most. A commit that raised anything may have happened all the
    same; `committed`, asked in a new transaction, tells. Without it the body is taken to be
    repeatable. Raises SLACKWATER_METASTORE_UNAVAILABLE and SLACKWATER_NO_SPACE when nothing was
    written, `OutcomeUnknown` when that cannot be found out, and whatever `body` raises.
    """
    started = retry_policy.monotonic()
    pause_ms = retry_policy.first_pause_ms
    unsettled: _Unsettled[T] | None = None
    while True:
        attempt: list[T] = []
        try:
            if unsettled is not None and committed is not None:
                if _once(engine, committed, read_only=False, attempt=[]):
                    return unsettled.result
                cause, unsettled = unsettled.cause, None
                _raise_if_final(engine, cause)
            return _once(engine, body, read_only=read_only, attempt=attempt)
        except DBAPIError as error:
            if attempt and committed is not None:
                unsettled = _Unsettled(attempt[0], error)
            elif unsettled is None:
                _raise_if_final(engine, error)
            # Why a look-up failed does not matter: until one answers, the outcome is not known.
            waited_ms = (retry_policy.monotonic() - started) * 1000
            if waited_ms >= retry_policy.wait_ms:
                raise _unavailable(
                    engine, error, waited_ms, unknown=unsettled is not None
                ) from None
        retry_policy.sleep(pause_ms / 1000 * random.uniform(0.5, 1.0))
        pause_ms = min(2 * pause_ms, retry_policy.longest_pause_ms)


@dataclass(frozen=True, slots=True)
class _Unsettled(Generic[T]):
    """A commit that was sent and has failed by `cause`; it may have happened with `result`."""

    result: T
    cause: DBAPIError


def _raise_if_final(engine: Engine, error: DBAPIError) -> None:
    """Raises for a failure that waiting does not help with. Nothing was written."""
    if _disk_is_full(error):
        raise user_error("SLACKWATER_NO_SPACE", what="the metastore", path=_place(engine)) from None
    if not _is_gone(error):
        raise error


def _once(
    engine: Engine, body: Callable[[Connection], T], *, read_only: bool, attempt: list[T]
) -> T:
    """One try. `attempt` holds the result from the moment at which the commit is sent."""
    with engine.connect() as conn:
        conn.execution_options(**{_READ_ONLY: read_only})
        if read_only and conn.dialect.name == "postgresql":
            conn.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        with conn.begin():
            result = body(conn)
            attempt.append(result)
        return result


def _unavailable(
    engine: Engine, error: DBAPIError, waited_ms: float, *, unknown: bool
) -> SlackwaterError | OutcomeUnknown:
    reason = _reason(engine, error)
    if unknown:
        reason += " (it was lost during a commit: whether this write happened is not known)"
    raised = user_error(
        "SLACKWATER_METASTORE_UNAVAILABLE", seconds=f"{waited_ms / 1000:.0f}", reason=reason
    )
    return OutcomeUnknown(raised) if unknown else raised


def _reason(engine: Engine, error: DBAPIError) -> str:
    lines = str(error.orig).strip().splitlines()
    text = lines[0] if lines else type(error.orig).__name__
    password = engine.url.password
    return text.replace(password, "***") if password else text


def _is_gone(error: DBAPIError) -> bool:
    """Whether waiting may help: the database is away, busy, or asked for a repetition."""
    if error.connection_invalidated:
        return True
    state = getattr(error.orig, "sqlstate", None)
    if state is not None:
        return str(state).startswith(_GONE_SQLSTATES)
    text = str(error.orig).lower()
    if type(error.orig).__module__.startswith("psycopg"):
        names = {each.__name__ for each in type(error.orig).__mro__}
        return not names.isdisjoint(("OperationalError", "InterfaceError"))
    return any(symptom in text for symptom in _GONE_SQLITE)


def _disk_is_full(error: DBAPIError) -> bool:
    full = "database or disk is full" in str(error.orig)
    return full or getattr(error.orig, "sqlstate", None) == "53100"


def _place(engine: Engine) -> str:
    return engine.url.database or "" if engine.dialect.name == "sqlite" else str(engine.url.host)


def _parse(url: str | URL) -> URL:
    try:
        parsed = make_url(url)
        if parsed.drivername in ("postgresql", "postgres"):
            parsed = parsed.set(drivername="postgresql+psycopg")
        known = parsed.drivername in ("sqlite", "sqlite+pysqlite", "postgresql+psycopg")
        shown = parsed.render_as_string(hide_password=True)
        reason = "it is neither sqlite:///path nor postgresql+psycopg://host/database"
        if known and parsed.get_backend_name() == "sqlite" and parsed.database in (None, ""):
            known, reason = False, "an SQLite metastore needs the path of a file"
    except (ArgumentError, NoSuchModuleError, ValueError):
        known, shown, reason = False, "(hidden)", "it is not a URL"
    if not known:
        raise invalid_option("spark.slackwater.metastore", "the session", shown, reason)
    return parsed


def _make_file(url: URL) -> None:
    file = Path(str(url.database)).absolute()
    parent = file.parent
    try:
        parent.mkdir(parents=True, exist_ok=True)
        # It holds secrets, and others may see the folder. SQLite's further files are like it.
        if not file.exists():
            file.touch(mode=0o600)
    except OSError as error:
        raise user_error(
            "SLACKWATER_STORAGE_UNAVAILABLE",
            what=str(parent),
            reason=error.strerror or "it cannot be made",
        ) from None


def _postgres_arguments(url: URL, silence_ms: int) -> Mapping[str, Any]:
    """Limits that turn a silent network into an error; what the URL says goes first."""
    limits: Mapping[str, Any] = {
        "connect_timeout": min(5, max(2, silence_ms // 1000)),
        "keepalives_idle": 3,
        "keepalives_interval": 2,
        "keepalives_count": 3,
        "tcp_user_timeout": silence_ms,
        "application_name": "slackwater",
    }
    return {key: value for key, value in limits.items() if key not in url.query}


def _prepare_sqlite(connection: Any, busy_ms: int) -> None:
    # The driver must not begin transactions by itself: it would begin them too late, and deferred.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout={busy_ms}")
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.close()


def _begin_sqlite(conn: Connection) -> None:
    # A deferred transaction that turns into a writer can fail at once with "database is locked".
    read_only = conn.get_execution_options().get(_READ_ONLY, False)
    conn.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")


def _prepare_postgres(connection: Any, idle_ms: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '10s'")
        # Or a leader that hangs within a transaction would keep its successor out for ever.
        cursor.execute(f"SET idle_in_transaction_session_timeout = {idle_ms}")
        cursor.execute(
            "SELECT set_config('synchronous_commit', 'on', false)"
            " WHERE current_setting('synchronous_commit') = 'off'"
        )
    connection.commit()
