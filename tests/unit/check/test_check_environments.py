"""What the check tells of real environments, sound ones and damaged ones."""

from __future__ import annotations

import gzip
import json
import os
import threading
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from tests.support.adapter.coordination import Place
from tests.support.persist.persistence import (
    EAGER,
    acquired,
    copy_in_file,
    own_shard,
    updates,
)
from tests.support.persist.s3 import ACCESS_KEY, SECRET_KEY
from tests.support.waiting import wait_until
from typer.testing import CliRunner

from slackwater.adapter.history.files import HistoryFiles
from slackwater.adapter.history.lags import LagsOfMinute
from slackwater.adapter.system.lag_history import FOLDER, KINDS
from slackwater.check.verification import Environment, Verification
from slackwater.cli import app
from slackwater.findings import Finding
from slackwater.persist import tables
from slackwater.persist.blobs import LocalBlobs, file_part, inline_part
from slackwater.persist.client import Append, PersistClient
from slackwater.persist.compaction import Compactor, Merge
from slackwater.persist.locations import parse_location
from slackwater.persist.metastore import RetryPolicy
from slackwater.persist.parts import FileBody
from slackwater.persist.read_only import ReadOnlyMetastore
from slackwater.persist.uris import local_path
from slackwater.repr.errors import LOG_FILE, SlackwaterError
from slackwater.repr.frontier import Timestamp


@pytest.fixture
def small(sqlite_template, tmp_path):
    """An environment with a leader, whose metastore is a file."""
    with copy_in_file(sqlite_template, tmp_path) as environment:
        yield environment


def findings(env, *, deep=True, blobs=None):
    metastore = ReadOnlyMetastore.at(env.url)
    with closing(metastore):
        log = Path(env.location) / LOG_FILE
        given = Environment(metastore, blobs or LocalBlobs(Path(env.location)), log)
        verification = Verification(given, deep, lambda done, total: None)
        return list(verification.findings()), verification.counts


def told(env, **options):
    """What is not in order."""
    return [each for each in findings(env, **options)[0] if each.outcome != "ok"]


def append(client, shard, time, *rows, inline=False):
    """Rows (k, v, diff) at a time, in a file or inline."""
    table = updates(*((key, value, time, diff) for key, value, diff in rows))
    directory = client.files.shard_directory(shard)
    part = inline_part(table) if inline else file_part(client.blobs, table, directory)
    client.commits.commit([Append(shard, Timestamp(time), Timestamp(time + 1), (part,))])


def filled(env):
    """A client with a shard: two files, of which one retracts, and an inline part."""
    client = env.lead()
    shard = own_shard(client)
    append(client, shard, 0, *((key, f"value {key}", 1) for key in range(500)))
    append(client, shard, 1, (1, "value 1", -1), (2, "value 2", -1))
    append(client, shard, 2, (1, "value 1", 1), inline=True)
    return client, shard


def first_file(client, shard) -> Path:
    return local_path(client.reads.parts(shard)[0].body.uri)


def changed(env, statement):
    with env.engine.begin() as conn:
        conn.execute(statement)


def test_a_sound_environment_is_in_order(env):
    client, shard = filled(env)
    found, counts = findings(env)
    assert [(each.name, each.outcome) for each in found] == [
        ("metastore", "ok"),
        ("leader", "ok"),
        ("catalog", "ok"),
        ("shards", "ok"),
        # No object has the shard.
        ("leftovers", "ok"),
        ("history", "ok"),
    ]
    stored = client.reads.parts(shard)
    assert (counts.shards, counts.parts, counts.rows) == (1, 3, 503)
    assert counts.bytes == sum(part.body.size_bytes for part in stored)


def removed(file):
    file.unlink()


def truncated(file):
    os.truncate(file, file.stat().st_size - 1)


def with_one_row_less(file):
    table = pq.read_table(file)
    pq.write_table(table.slice(1), file, compression="zstd")


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (removed, "{file} is missing"),
        (truncated, "{file} has {less} bytes, not {size}"),
        (with_one_row_less, "bytes, not {size}"),
    ],
)
def test_a_damaged_file_is_told(small, damage, text):
    client, shard = filled(small)
    file = first_file(client, shard)
    size = file.stat().st_size
    damage(file)
    (finding,) = told(small, deep=False)
    assert (finding.name, finding.outcome) == ("files", "FAIL")
    assert finding.text.startswith(f"shard {shard}: ")
    assert text.format(file=file.as_uri(), size=size, less=size - 1) in finding.text


def test_other_bytes_of_the_same_size_are_told_when_files_are_read(small):
    """In a page, and in the head of one."""
    client, shard = filled(small)
    file = first_file(client, shard)
    sound = file.read_bytes()
    column = pq.ParquetFile(file).metadata.row_group(0).column(1)
    begin = column.dictionary_page_offset or column.data_page_offset
    for place in (begin + column.total_compressed_size - 1, begin + 60):
        damaged = bytearray(sound)
        damaged[place] ^= 1
        file.write_bytes(damaged)
        assert told(small, deep=False) == []
        (finding,) = told(small)
        assert (finding.name, finding.outcome) == ("files", "FAIL")
        assert "cannot be read" in finding.text


@contextmanager
def damaged(env, table, key, values):
    """The row with that key has these values, as long as the block runs."""
    ((name, value),) = key.items()
    row = table.c[name] == value
    with env.engine.begin() as conn:
        before = conn.execute(sa.select(table).where(row)).mappings().one()
        conn.execute(sa.update(table).where(row).values(values))
    yield
    changed(env, sa.update(table).where(row).values(dict(before)))


def test_a_damaged_row_is_told(small):
    """Each is put right before the next one."""
    _, shard = filled(small)
    parts, environment = tables.parts, tables.environment
    first = {"part_id": 1}
    for table, key, values, name, text in (
        (parts, first, {"rows": 501}, "files", "has 500 rows, not 501"),
        (parts, first, {"upper": 99}, "shards", "overlap with the next append"),
        (parts, first, {"shard_id": 77}, "shards", "1 parts are on record, and no such shard"),
        (parts, first, {"uri": None}, "shards", "neither rows nor a file: 1"),
        (parts, first, {"inline_ipc": b"no stream"}, "files", "part 1: "),
        (parts, first, {"min_time": 1, "max_time": 0}, "shards", "the wrong order: 1"),
        (tables.shards, {"shard_id": shard}, {"schema_json": "{}"}, "shards", "not decode: KeyE"),
        (tables.shards, {"shard_id": shard}, {"upper": 2}, "shards", "begins at the upper 2: 3"),
        (environment, {"id": 1}, {"next_shard_id": 1}, "shards", "still to be given"),
        (environment, {"id": 1}, {"next_part_id": 3}, "shards", "still to be given"),
        (environment, {"id": 1}, {"epoch": 9}, "leader", "on record as the leader of epoch 9"),
        (environment, {"id": 1}, {"epoch": 0}, "leader", "is 0, and leaders have had 1"),
        (environment, {"id": 1}, {"version": 99}, "metastore", "knows up to 10"),
        (environment, {"id": 1}, {"version": 9}, "metastore", "is of version 9, not 10"),
    ):
        with damaged(small, table, key, values):
            found = told(small)
        assert (name, "FAIL") in [(e.name, e.outcome) for e in found if text in e.text], found
    assert told(small) == []


def test_rows_that_are_there_less_than_zero_times_are_told(small):
    client, shard = filled(small)
    append(client, shard, 3, (2, "value 2", -1), (7, "nobody", -1))
    (finding,) = told(small)
    assert finding.text == f"shard {shard}: 2 rows are there less than zero times"
    assert told(small, deep=False) == []


def test_a_file_in_deletion_that_a_part_names_is_told(small):
    client, shard = filled(small)
    uri = first_file(client, shard).as_uri()
    row = {"uri": uri, "shard_id": shard, "size_bytes": 1, "replaced_ms": 1, "condemned": True}
    changed(small, sa.insert(tables.garbage).values(row))
    (finding,) = told(small)
    assert (finding.outcome, uri in finding.text) == ("FAIL", True)


def test_files_that_nothing_names_are_told_and_are_no_error(small):
    client, shard = filled(small)
    directory = client.files.shard_directory(shard)
    file_part(client.blobs, updates((1, "left", 0, 1)), directory)
    (Path(small.location) / "shards" / "notes.txt").write_text("of somebody else")
    found = [each for each in findings(small)[0] if each.name == "leftovers"]
    assert [each.outcome for each in found] == ["ok", "ok", "ok"]
    assert f"1 shards of no object, removed later: {shard}" in found[0].text
    assert "notes.txt" in found[2].text


def test_a_table_that_is_gone_is_told(small):
    filled(small)
    changed(small, sa.text("DROP TABLE secrets"))
    (finding,) = told(small)
    assert (finding.outcome, "lacks secrets" in finding.text) == ("FAIL", True)


def test_a_damaged_file_of_a_metastore_is_told(small):
    filled(small)
    small.engine.dispose()
    file = Path(small.engine.url.database)
    damaged = bytearray(file.read_bytes())
    damaged[4096 * 3 : 4096 * 12] = bytes(4096 * 9)
    file.write_bytes(damaged)
    finding = told(small)[0]
    assert (finding.name, finding.outcome) == ("metastore", "FAIL")


@dataclass(frozen=True)
class Interrupted:
    """Files of which each look comes after `first` has been called, once or always."""

    files: LocalBlobs
    first: list = field(default_factory=list)

    def open(self, uri):
        if self.first:
            self.first[-1]()
        return self.files.open(uri)

    def __getattr__(self, name):
        return getattr(self.files, name)


def merged(client, shard):
    """All parts become one file, and the files before are gone at once."""
    before = client.reads.parts(shard)
    last = max(part.max_time for part in before)
    assert Compactor(client, EAGER).compact(shard, Merge(before, before), last)
    for part in before:
        if isinstance(part.body, FileBody):
            local_path(part.body.uri).unlink()


def test_a_part_that_a_merge_replaces_meanwhile_is_no_finding(small):
    client, shard = filled(small)
    blobs = Interrupted(client.blobs)

    def merge():
        blobs.first.clear()
        merged(client, shard)

    blobs.first.append(merge)
    found, counts = findings(small, blobs=blobs)
    assert [each.outcome for each in found] == ["ok"] * len(found)
    assert counts.parts == len(client.reads.parts(shard))


def test_parts_that_are_replaced_each_time_are_told_once_and_fail_nothing(small):
    client, shard = filled(small)
    (finding,) = told(small, blobs=Interrupted(client.blobs, [lambda: merged(client, shard)]))
    assert (finding.name, finding.outcome) == ("contents", "warn")


def test_the_catalog_is_compared_with_itself_and_with_shards(small):
    """Each damage is put right before the next one."""
    place = Place(small)
    place.table("t", k="long")
    place.table('a<b>"c', k="long")
    place.sql("CREATE SOURCE c FROM LOAD GENERATOR COUNTER")
    place.sql("CREATE SECRET s AS 'hidden'")
    place.write("t", {"k": 1})
    assert told(small) == []
    items = tables.catalog_items
    table, source = place.item("t"), place.item("c")
    body = table.to_json()
    for values, text in (
        ({"body": "{"}, f"{table.id} of catalog_items does not decode: JSONDecodeError"),
        ({"body": body.replace('"table"', '"tab"')}, f"{table.id} of catalog_items does not"),
        ({"body": body.replace('"t"', '"A<B>\\"c"')}, "two objects of a schema have one name"),
        ({"body": body.replace('"default"', '"gone"')}, "needs [] or its schema"),
        ({"body": body.replace("long", "string")}, "slackwater.default.t has other types than"),
        ({"body": body.replace(f'"id": "{table.id}"', '"id": "x"')}, "it has the id x"),
        (
            {"body": body.replace(f'"shard_id": {table.shard_id}', '"shard_id": null')},
            "slackwater.default.t has no shard",
        ),
        (
            {"body": body.replace(f'"shard_id": {table.shard_id}', '"shard_id": 999')},
            "slackwater.default.t needs shard 999, which does not exist",
        ),
        (
            {
                "body": body.replace(
                    f'"shard_id": {table.shard_id}', f'"shard_id": {source.shard_id}'
                )
            },
            "have one shard",
        ),
    ):
        found = sa.update(items).where(items.c.id == table.id)
        changed(small, found.values(values))
        assert any(text in each.text for each in told(small)), (text, told(small))
        changed(small, found.values(body=body))
    shards = tables.shards
    dropped = sa.update(shards).where(shards.c.shard_id == table.shard_id)
    changed(small, dropped.values(dropped=True))
    assert any("which was dropped" in each.text for each in told(small))
    changed(small, dropped.values(dropped=False))
    changed(small, sa.update(tables.catalog_counters).values(next_id=1))
    assert any("which is still to be given" in each.text for each in told(small))
    changed(small, sa.update(tables.catalog_counters).values(next_id=999))
    place.close()
    assert told(small) == []
    changed(small, sa.delete(tables.secrets))
    (finding,) = told(small)
    assert finding.text == "slackwater.default.s is a secret without a value"


def test_an_environment_that_is_written_meanwhile_is_in_order(env):
    place = Place(env)
    place.env.persist.files.inline_bytes = 3000
    place.table("t", k="long", v="string")
    enough, written = threading.Event(), []

    def write():
        while not enough.is_set():
            rows = [{"k": len(written), "v": "x" * number} for number in range(100)]
            written.append(place.write("t", *rows))
            place.write("t", *rows[:50], diff=-1)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for seen in range(3):
            wait_until(lambda seen=seen: len(written) > seen)
            assert told(env) == []
    finally:
        enough.set()
        writer.join()
        place.close()


@pytest.mark.parametrize(
    "damage",
    [lambda raw: raw[:-5], lambda raw: b"no gzip", lambda raw: gzip.compress(b'{"kind": ')],
)
def test_a_damaged_file_of_the_history_is_told(small, damage):
    filled(small)
    blobs = LocalBlobs(Path(small.location))
    HistoryFiles(blobs, 1, FOLDER, KINDS).write([LagsOfMinute(60_000, {"u1": 5})])
    (file,) = blobs.list(blobs.uri(FOLDER))
    assert findings(small)[0][-1] == Finding("history", "ok", "1 files")
    path = local_path(file.uri)
    path.write_bytes(damage(path.read_bytes()))
    (finding,) = told(small)
    assert (finding.name, finding.outcome, path.name in finding.text) == ("history", "warn", True)


def test_a_log_that_is_no_text_is_told(small):
    filled(small)
    log = Path(small.location) / LOG_FILE
    log.parent.mkdir(parents=True)
    log.write_text('{"a": 1}\na line of a library\n{"b"')
    assert findings(small)[0][-1] == Finding("log", "ok", f"{log}, 3 lines")
    log.write_bytes(b"\xff\n")
    (finding,) = told(small)
    assert (finding.name, finding.outcome) == ("log", "warn")


def contents_of(folder):
    return {
        path: (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("is_open", [True, False])
def test_nothing_is_changed(small, tmp_path, is_open):
    filled(small)
    if not is_open:
        small.engine.dispose()
    before = contents_of(tmp_path)
    assert any(path.name.endswith("-wal") for path in before) == is_open
    # The memory that those who have the file open share has their locks.
    assert told(small) == []
    assert {p: c for p, c in contents_of(tmp_path).items() if not p.name.endswith("-shm")} == {
        p: c for p, c in before.items() if not p.name.endswith("-shm")
    }


def test_a_file_that_somebody_begins_to_write_is_read_again(small):
    filled(small)
    small.engine.dispose()
    seen = []
    with closing(ReadOnlyMetastore.at(small.url)) as metastore:

        def body(conn):
            seen.append(conn.scalar(sa.select(tables.environment.c.next_shard_id)))
            if len(seen) == 1:
                changed(small, sa.update(tables.environment).values(next_shard_id=77))
            return seen[-1]

        assert metastore.query(body) == 77
        assert seen == [2, 77]
        hasty = replace(metastore, retry_policy=RetryPolicy(wait_ms=0))
        with pytest.raises(SlackwaterError, match="readonly database"):
            hasty.query(lambda conn: conn.execute(sa.delete(tables.parts)))


# The command


def run(*arguments):
    return CliRunner().invoke(app, ["check", *map(str, arguments)])


def test_the_command_prints_findings_and_counts(small):
    client, shard = filled(small)
    ok = run("--location", small.location, "--metastore", small.url, "--deep")
    assert ok.exit_code == 0
    assert ok.stdout.splitlines()[-1].startswith("everything is in order: 1 shards, 3 parts, 503")
    first_file(client, shard).unlink()
    failed = run("--location", small.location, "--metastore", small.url)
    assert failed.exit_code == 1
    assert "FAIL" in failed.stdout
    assert failed.stdout.splitlines()[-1].startswith("1 checks failed")
    told = json.loads(run("--location", small.location, "--metastore", small.url, "--json").stdout)
    assert (told["failed"], told["deep"]) == (1, False)
    assert told["counts"]["rows"] == 503
    assert [each["name"] for each in told["findings"] if each["outcome"] == "FAIL"] == ["files"]


def test_where_there_is_no_environment_none_is_made(tmp_path):
    nowhere = run("--location", tmp_path / "nowhere")
    assert (nowhere.exit_code, "does not exist" in nowhere.stdout) == (1, True)
    empty = run("--location", tmp_path)
    assert (empty.exit_code, "no file with a metastore" in empty.stdout) == (1, True)
    file = tmp_path / "odd ?#%.db"
    file.touch()
    blank = run("--location", tmp_path, "--metastore", sa.URL.create("sqlite", database=str(file)))
    assert (blank.exit_code, "has no environment" in blank.stdout) == (1, True)
    assert os.listdir(tmp_path) == [file.name]
    assert run("--location", tmp_path, "--metastore", "mysql://h/d").exit_code == 1


def test_an_environment_in_s3(small, s3, tmp_path, monkeypatch):
    location = f"s3://{s3.new_bucket()}/x"
    variables = {
        "AWS_ENDPOINT_URL": s3.endpoint,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "XDG_STATE_HOME": str(tmp_path),
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    blobs = parse_location(location, variables).blobs(variables)
    client = PersistClient(small.engine, blobs, acquired(small.engine, None))
    shard = own_shard(client)
    append(client, shard, 0, (1, "a", 1))
    append(client, shard, 1, (1, "a", -1))
    command = ("--location", location, "--metastore", small.url, "--deep")
    assert run(*command).exit_code == 0
    gone = client.reads.parts(shard)[1].body.uri
    blobs.delete(gone)
    failed = run(*command)
    assert (failed.exit_code, f"{gone} is missing" in failed.stdout) == (1, True)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    away = run(*command)
    assert (away.exit_code, f"Cannot read {location}" in away.stdout) == (1, True), away.stdout
    assert SECRET_KEY not in away.stdout


def test_a_tombstone_costs_no_look(small):
    client, shard = filled(small)
    client.transactions.transact(lambda conn: client.definitions.drop_shard(conn, shard))
    assert findings(small)[1].parts == 3
    assert client.maintenance.finalize(shard)
    found, counts = findings(small)
    assert [each.outcome for each in found] == ["ok"] * len(found)
    assert counts.shards == 0
