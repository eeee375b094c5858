"""The metastore: versions, leases, and what happens when it goes away."""

from __future__ import annotations

import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256

import pytest
from sqlalchemy import event, select, text, update
from sqlalchemy.exc import OperationalError
from tests.support.persist.persistence import (
    EAGER,
    compacted,
    contents,
    in_memory,
    new_environment,
    own_shard,
    updates,
)
from tests.support.waiting import PATIENCE

from slackwater.persist import holds
from slackwater.persist.blobs import file_part, inline_part
from slackwater.persist.client import Append, WriteResult
from slackwater.persist.leadership import Candidate, Fenced, acquire, current_leader
from slackwater.persist.metastore import (
    RetryPolicy,
    connect,
    create_all,
    environment_name,
    query,
    transaction,
)
from slackwater.persist.migrations import HISTORY
from slackwater.persist.tables import environment
from slackwater.persist.uris import local_path
from slackwater.repr.errors import SlackwaterError


def test_a_newer_environment_is_refused(env):
    create_all(env.engine)
    with env.engine.begin() as conn:
        conn.execute(update(environment).values(version=HISTORY.head + 1))
    with pytest.raises(SlackwaterError) as caught:
        create_all(env.engine)
    assert caught.value.condition == "SLACKWATER_ENVIRONMENT_VERSION"


def test_many_processes_create_at_once(new_database):
    url = new_database()
    engines = [connect(url) for _ in range(4)]
    threads = [threading.Thread(target=create_all, args=(engine,)) for engine in engines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert current_leader(engines[0]) is None
    for engine in engines:
        engine.dispose()


def test_the_leader_is_on_record(env):
    assert current_leader(env.engine) is None
    epoch = acquire(env.engine, Candidate("http://h:1", "/t", "app-1", "/l"), None)
    record = current_leader(env.engine)
    assert (record.epoch, record.address, record.application) == (epoch, "http://h:1", "app-1")


@pytest.mark.parametrize(
    "url", ["mysql://u:hidden@h/d", "nonsense", "sqlite://", "postgresql+asyncpg://u:hidden@h/d"]
)
def test_other_urls_are_refused_without_their_secret(url):
    with pytest.raises(SlackwaterError) as caught:
        connect(url)
    assert caught.value.condition == "SLACKWATER_INVALID_OPTION"
    assert "hidden" not in str(caught.value).replace("(hidden)", "")


def test_the_driver_of_postgresql_is_an_extra_which_the_error_names(monkeypatch):
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "slackwater.persist.postgres", raising=False)
    with pytest.raises(SlackwaterError, match=r"pip install 'slackwater\[postgres\]'") as caught:
        connect("postgresql://h/d")
    assert caught.value.condition == "SLACKWATER_CONNECTOR_MISSING"


@dataclass
class Clock:
    """Time that passes only while somebody sleeps."""

    now: float = 0.0
    slept: list[float] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept.append(seconds)

    def retry_policy(self) -> RetryPolicy:
        return RetryPolicy(monotonic=lambda: self.now, sleep=self.sleep)


def test_a_metastore_that_is_gone_is_an_error_after_ten_seconds(tmp_path):
    clock = Clock()
    secret = "postgresql+psycopg://user:hidden@127.0.0.1:1/db"
    with pytest.raises(SlackwaterError) as caught:
        current_leader(connect(secret), retry_policy=clock.retry_policy())
    assert caught.value.condition == "SLACKWATER_METASTORE_UNAVAILABLE"
    assert caught.value.sqlstate == "08006"
    assert "hidden" not in str(caught.value)
    assert 10 <= clock.now < 11
    assert len(clock.slept) > 10


def test_environments_at_one_path_have_different_names(new_database, tmp_path):
    names = set()
    for _ in range(2):
        engine = connect(new_database())
        create_all(engine)
        create_all(engine)
        with engine.begin() as conn:
            names.add(environment_name(conn, "file:///e"))
            # As one from before there were names.
            conn.execute(update(environment).values(name=None))
            assert environment_name(conn, "file:///e") == sha256(b"file:///e").hexdigest()[:12]
    assert len(names) == 2
    assert all(re.fullmatch("[0-9a-f]{12}", name) for name in names)


def test_writes_wait_for_a_server_that_restarts(postgres, tmp_path):
    env = new_environment(postgres.new_database(), tmp_path)
    tried = threading.Event()
    back = RetryPolicy(
        wait_ms=int(PATIENCE * 1000),
        sleep=lambda seconds: (tried.set(), threading.Event().wait(seconds)),
    )
    client = env.lead(retry_policy=back)
    shard = own_shard(client)
    postgres.stop()
    writer = threading.Thread(
        target=lambda: client.commits.commit(
            [Append(shard, 0, 1, (inline_part(updates((1, "a", 0, 1))),))]
        )
    )
    writer.start()
    assert tried.wait(PATIENCE)
    assert contents(client, shard, 0) == []
    postgres.start()
    writer.join(PATIENCE)
    assert contents(client, shard, 0) == [(1, "a")]
    env.engine.dispose()


def test_a_read_sees_one_state_and_waits_for_nobody(env):
    client = env.lead()
    token = select(environment.c.commit_token)
    seen = []

    def look(conn):
        seen.append(conn.scalar(token))
        with ThreadPoolExecutor(1) as pool:
            pool.submit(own_shard, client).result()
        seen.append(conn.scalar(token))

    query(env.engine, look)
    assert seen[0] == seen[1] != query(env.engine, lambda conn: conn.scalar(token))


def test_who_writes_gets_the_row_of_the_environment_first(env):
    """What makes the writers serial, see the docstring of the metastore."""
    client = env.lead()
    first: list[str] = []
    begun: list[bool] = []

    def statement(conn, cursor, sql, *rest):
        if begun:
            begun.clear()
            first.append(" ".join(sql.split()))

    event.listen(env.engine, "begin", lambda conn: begun.append(True))
    event.listen(env.engine, "before_cursor_execute", statement)
    shard = own_shard(client)
    client.commits.commit([Append(shard, 0, 1, (inline_part(updates((1, "a", 0, 1))),))])
    client.commits.advance({shard: 3})
    client.maintenance.set_since({shard: 2})
    client.transactions.transact(lambda conn: client.definitions.drop_shard(conn, shard))
    env.lead(expected_epoch=1)
    assert len(first) >= 7
    for sql in first:
        reads = sql.startswith("SELECT") and "FROM environment" in sql
        locks = "FOR UPDATE" in sql or env.engine.dialect.name == "sqlite"
        assert sql.startswith("UPDATE environment") or (reads and locks), sql


def test_on_postgres_levels_and_durability_are_what_the_argument_needs(postgres):
    url = postgres.new_database()
    engine = connect(url + "&options=-csynchronous_commit%3Doff")
    settings = ["transaction_isolation", "transaction_read_only", "synchronous_commit"]

    def shown(conn):
        return [conn.scalar(text(f"SHOW {name}")) for name in settings]

    assert query(engine, shown) == ["repeatable read", "on", "on"]
    assert transaction(engine, shown) == ["read committed", "off", "on"]
    engine.dispose()


def test_on_sqlite_a_commit_is_on_disk(tmp_path):
    engine = connect(f"sqlite:///{tmp_path}/m.db")
    with engine.connect() as conn:
        assert conn.scalar(text("PRAGMA journal_mode")) == "wal"
        assert conn.scalar(text("PRAGMA synchronous")) == 2
    engine.dispose()


def test_a_file_of_sqlite_is_for_its_owner_alone(tmp_path):
    """It holds secrets, and who has made its folder may let others look into that."""
    engine = connect(f"sqlite:///{tmp_path}/m.db")
    with engine.connect() as conn:
        conn.execute(text("CREATE TABLE t (i INTEGER)"))
        made = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert made == {"m.db": 0o600, "m.db-wal": 0o600, "m.db-shm": 0o600}
    engine.dispose()


class Gone(Exception):
    """What a driver raises when the connection breaks."""


def break_next_commit(engine, *, after: bool) -> list[str]:
    """The next commit breaks the connection before it, or after it took effect."""
    broken: list[str] = []

    def commit(conn):
        if broken:
            return
        broken.append("yes")
        if after:
            conn.connection.driver_connection.commit()
        conn.connection.driver_connection.close()
        raise OperationalError("COMMIT", {}, Gone("lost"), connection_invalidated=True)

    event.listen(engine, "commit", commit)
    return broken


@pytest.mark.parametrize("after", [True, False])
def test_a_commit_whose_answer_is_lost_happens_once(env, after):
    client = env.lead(retry_policy=Clock().retry_policy())
    shard = own_shard(client)
    contents(client, shard, 0)
    ran = []
    broken = break_next_commit(env.engine, after=after)
    part = inline_part(updates((1, "a", 0, 1)))
    client.commits.commit([Append(shard, 0, 1, (part,))], steps=[lambda conn: ran.append(1)])
    assert broken
    assert len(ran) == (1 if after else 2)
    for reader in (client, env.lead(expected_epoch=1)):
        assert contents(reader, shard, 0) == [(1, "a")]
        assert reader.reads.state(shard).upper == 1


@pytest.mark.parametrize("after", [True, False])
def test_a_lost_commit_is_resolved_after_a_takeover(env, after):
    """The old leader loses the answer, is fenced, and still learns what happened."""
    clock = Clock()
    successors = []

    def take_over(seconds):
        clock.sleep(seconds)
        if not successors:
            successors.append(env.lead(expected_epoch=1))
            own_shard(successors[0])

    retry_policy = RetryPolicy(monotonic=lambda: clock.now, sleep=take_over)
    client = env.lead(retry_policy=retry_policy)
    shard = own_shard(client)
    break_next_commit(env.engine, after=after)
    part = inline_part(updates((1, "a", 0, 1)))
    if after:
        client.commits.commit([Append(shard, 0, 1, (part,))])
    else:
        with pytest.raises(Fenced):
            client.commits.commit([Append(shard, 0, 1, (part,))])
    assert len(contents(env.lead(expected_epoch=2), shard, 0)) == int(after)


@contextmanager
def metastore_away(engine):
    """The next commit breaks; from its last step on nothing can begin until the block ends."""
    away: list[int] = []

    def refuse(*arguments):
        if away:
            raise OperationalError("BEGIN", {}, Gone("away"), connection_invalidated=True)

    event.listen(engine, "begin", refuse)
    yield away
    away.clear()


@pytest.mark.parametrize("after", [True, False])
def test_an_unknown_outcome_is_said_and_read_again(env, after):
    client = env.lead(retry_policy=Clock().retry_policy())
    shard = own_shard(client)
    break_next_commit(env.engine, after=after)
    part = inline_part(updates((1, "a", 0, 1)))
    with metastore_away(env.engine) as away, pytest.raises(SlackwaterError, match="not known"):
        client.commits.commit([Append(shard, 0, 1, (part,))], steps=[lambda conn: away.append(1)])
    client.commits.advance({shard: 1})
    assert client.reads.state(shard).upper == 1
    assert len(contents(client, shard, 0)) == int(after)


@pytest.mark.parametrize("after", [True, False])
@pytest.mark.parametrize("asked", [True, False])
def test_i8_an_unknown_outcome_is_resolved_by_its_write_id(env, after, asked):
    client = env.lead(retry_policy=Clock().retry_policy())
    shard = own_shard(client)
    break_next_commit(env.engine, after=after)
    append = Append(shard, 0, 1, (inline_part(updates((1, "a", 0, 1))),))
    write = {"w": WriteResult(0, 1, 0)}
    with metastore_away(env.engine) as away, pytest.raises(SlackwaterError, match="not known"):
        client.commits.commit([append], write_ids=write, steps=[lambda conn: away.append(1)])
    if asked:
        assert client.commits.written("w") == (write["w"] if after else None)
        assert client.reads.state(shard).upper == int(after)
    assert client.commits.commit([append], write_ids=write) is not after
    assert contents(client, shard, 0) == [(1, "a")]
    assert client.commits.written("w") == write["w"]


class Full(Exception):
    """A disk that is full, as both drivers tell it."""

    sqlstate = "53100"


class Broken(Exception):
    """An error that waiting does not help with."""

    sqlstate = "XX000"


@contextmanager
def look_ups_fail(engine, reason):
    """The next commit breaks, and nothing can begin after it, for a reason of another kind."""
    away: list[int] = []

    def refuse(*arguments):
        if away:
            raise OperationalError("BEGIN", {}, reason)

    event.listen(engine, "begin", refuse)
    yield away
    away.clear()


@pytest.mark.parametrize("after", [True, False])
@pytest.mark.parametrize("reason", [Full("database or disk is full"), Broken("malformed")])
def test_an_outcome_that_cannot_be_looked_up_stays_unknown(env, after, reason):
    client = env.lead(retry_policy=Clock().retry_policy())
    shard = own_shard(client)
    break_next_commit(env.engine, after=after)
    append = Append(shard, 0, 1, (inline_part(updates((1, "a", 0, 1))),))
    write = {"w": WriteResult(0, 1, 0)}
    with (
        look_ups_fail(env.engine, reason) as away,
        pytest.raises(SlackwaterError, match="is not known") as told,
    ):
        client.commits.commit([append], write_ids=write, steps=[lambda conn: away.append(1)])
    assert told.value.condition == "SLACKWATER_METASTORE_UNAVAILABLE"
    assert client.commits.written("w") == (write["w"] if after else None)
    assert client.reads.state(shard).upper == int(after)


@pytest.mark.parametrize("after", [True, False])
@pytest.mark.parametrize(
    ("reason", "condition"),
    [(Full("database or disk is full"), "SLACKWATER_NO_SPACE"), (Broken("malformed"), None)],
)
def test_a_commit_that_fails_is_looked_up_before_it_is_said(env, after, reason, condition):
    """An error of the commit itself, after which the metastore answers."""
    client = env.lead(retry_policy=Clock().retry_policy())
    shard = own_shard(client)
    contents(client, shard, 0)
    broken: list[int] = []

    def commit(conn):
        if not broken:
            broken.append(1)
            if after:
                conn.connection.driver_connection.commit()
            raise OperationalError("COMMIT", {}, reason)

    event.listen(env.engine, "commit", commit)
    append = Append(shard, 0, 1, (inline_part(updates((1, "a", 0, 1))),))
    if after:
        client.commits.commit([append])
    elif condition is None:
        with pytest.raises(OperationalError):
            client.commits.commit([append])
    else:
        with pytest.raises(SlackwaterError) as told:
            client.commits.commit([append])
        assert told.value.condition == condition
    assert len(contents(client, shard, 0)) == int(after)


@pytest.mark.parametrize("after", [True, False])
def test_a_merge_whose_outcome_was_unknown_loses_nothing(env, after):
    client = env.lead(retry_policy=Clock().retry_policy())
    shard = own_shard(client)
    for time in range(3):
        part = file_part(
            client.blobs, updates((time, "a", time, 1)), client.files.shard_directory(shard)
        )
        client.commits.commit([Append(shard, time, time + 1, (part,))])
    with metastore_away(env.engine) as away:

        def leave(*_):
            away.append(1)

        event.listen(env.engine, "commit", leave)
        break_next_commit(env.engine, after=after)
        with pytest.raises(SlackwaterError, match="not known"):
            compacted(client, shard, 2, replace(EAGER, inline_bytes=0))
        event.remove(env.engine, "commit", leave)
    client.commits.advance({shard: 3})
    assert len(client.reads.parts(shard)) == (1 if after else 3)
    assert contents(client, shard, 2) == [(0, "a"), (1, "a"), (2, "a")]
    for part in client.reads.parts(shard):
        assert local_path(part.body.uri).exists()


def test_leases(env):
    client = env.lead()
    lease = holds.ReaderLease("r1", "app", 100, 5_000)
    seen: list[object] = []
    client.transactions.transact(
        lambda conn: holds.register(conn, lease),
        lambda conn: holds.register(conn, holds.ReaderLease("r2", "app", 50, 9_000)),
        lambda conn: holds.register(conn, holds.ReaderLease("r1", "app", 120, 6_000)),
        lambda conn: seen.extend(holds.leases(conn)),
        lambda conn: seen.append(holds.expire(conn, 6_000)),
        lambda conn: seen.append(holds.expire(conn, 6_000)),
        lambda conn: seen.append(holds.leases(conn)),
    )
    assert seen == [
        holds.ReaderLease("r1", "app", 120, 6_000),
        holds.ReaderLease("r2", "app", 50, 9_000),
        ("r1",),
        (),
        (holds.ReaderLease("r2", "app", 50, 9_000),),
    ]


@pytest.mark.filterwarnings("ignore:Selection of the SingletonThreadPool")
def test_a_metastore_in_memory_makes_no_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    engine = connect(in_memory())
    create_all(engine)
    engine.dispose()
    assert list(tmp_path.iterdir()) == []
