"""Delta tables in a store that speaks the protocol of S3, for sinks and for sources."""

from collections import Counter
from dataclasses import replace

import deltalake
import pyarrow as pa
import pytest
from moto.server import ThreadedMotoServer
from tests.support.persist.s3 import ACCESS_KEY, SECRET_KEY, S3Server

from slackwater.adapter.external.aws import RoleRefused
from slackwater.adapter.external.delta import DeltaTarget
from slackwater.adapter.external.delta_folder import DeltaFolder
from slackwater.adapter.external.delta_history import DeltaHistory
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.frontier import Frontier
from slackwater.repr.relation import RelationDesc
from slackwater.storage.lake.config import DeltaPlace, LakeSinkConfig
from slackwater.storage.lake.source_columns import source_columns
from slackwater.storage.lake.step_rows import conformed
from slackwater.storage.lake.table import LakeChanges, LakeProgress, TableChanged

DESC = RelationDesc.of(k="long", v="string")


@pytest.fixture(params=["table", "a b/t=1 ä+~"])
def folder(s3, request):
    """A place for a table, also below a prefix that no URL has as it is."""
    return DeltaFolder.at(f"s3://{s3.new_bucket()}/{request.param}", s3.access)


def target(folder, key=("k",)):
    config = LakeSinkConfig(DeltaPlace(folder.uri), "UPSERT" if key else "APPEND", key)
    return DeltaTarget(folder, "the_sink", "w", config, DESC)


def rows(numbers, text="a"):
    return pa.table({"k": pa.array(numbers, pa.int64()), "v": [f"{text}{n}" for n in numbers]})


def write(folder, found, **more):
    options = dict(folder.options)
    deltalake.write_deltalake(folder.url, found, storage_options=options, **more)


def contents(pieces, columns, has_diff=False):
    """What pieces add up to."""
    found = Counter()
    for piece in pieces:
        table = conformed(piece, source_columns(columns, "s"), has_diff=has_diff)
        for *row, diff in zip(*(each.to_pylist() for each in table.columns), strict=True):
            found[tuple(row)] += diff
    return Counter({row: diff for row, diff in found.items() if diff})


def at(frontier):
    return LakeProgress(Frontier(frontier), 0, 1)


def deleted(*keys):
    return pa.table({"k": pa.array(keys, pa.int64())})


def test_of_two_writers_that_have_loaded_a_table_one_commits(folder):
    target(folder).ensure()
    first, second = (target(folder).opened() for _ in range(2))
    assert (first.load(), second.load()) == (None, None)
    first.commit(LakeChanges(rows([1, 2]), deleted()), at(5))
    with pytest.raises(TableChanged):
        second.commit(LakeChanges(rows([3]), deleted()), at(6))
    assert second.load() == at(5)
    second.commit(LakeChanges(rows([3]), deleted(1)), at(7))
    assert target(folder).opened().load() == at(7)
    found = folder.opened(deltalake).to_pyarrow_table().to_pylist()
    assert sorted((row["k"], row["v"]) for row in found) == [(2, "a2"), (3, "a3")]


def test_a_source_reads_each_version(folder):
    write(folder, rows([1, 2, 3]), partition_by=["v"])
    source = DeltaHistory("s", folder)
    version = source.newest()
    columns = source.columns(version)
    had = contents(source.contents(version), columns)
    assert had == Counter({(n, f"a{n}"): 1 for n in (1, 2, 3)})
    write(folder, rows([4, 5], "é "), mode="append")
    folder.opened(deltalake).delete("k = 2")
    for changes in source.after(version):
        had.update(contents(changes.rows, changes.columns, has_diff=True))
        version = changes.version
    assert version.number == 2
    had = Counter({row: count for row, count in had.items() if count})
    assert had == contents(source.contents(version), columns)
    assert sorted(k for k, _ in had) == [1, 3, 4, 5]
    assert list(source.after(version)) == []


def test_files_that_are_gone_and_tables_that_are_not_there(s3, folder):
    write(folder, rows([1]))
    source = DeltaHistory("s", folder)
    version = source.newest()
    (file,) = folder.opened(deltalake).file_uris()
    s3.files().delete_file(folder.place(file))
    with pytest.raises(SlackwaterError) as lost:
        list(source.contents(version))
    assert lost.value.condition == "SLACKWATER_SOURCE_HISTORY_LOST"
    nowhere = DeltaFolder.at(f"{folder.uri}/nowhere", s3.access)
    with pytest.raises(SlackwaterError) as unreadable:
        DeltaHistory("s", nowhere).newest()
    assert unreadable.value.condition == "SLACKWATER_SOURCE_TABLE_UNREADABLE"
    assert nowhere.uri in str(unreadable.value)


def test_a_store_that_does_not_answer_is_told_without_secrets():
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    there = S3Server(f"http://{host}:{port}")
    folder = DeltaFolder.at(f"s3://{there.new_bucket()}/t", there.access)
    target(folder).ensure()
    server.stop()
    for ask, condition in (
        (target(folder).opened().load, "SLACKWATER_SINK_UNREACHABLE"),
        (DeltaHistory("s", folder).newest, "SLACKWATER_SOURCE_TABLE_UNREADABLE"),
    ):
        with pytest.raises(SlackwaterError) as told:
            ask()
        assert told.value.condition == condition
        assert not {SECRET_KEY, ACCESS_KEY} & set(str(told.value).split())
        assert "\x1b" not in str(told.value)
        assert SECRET_KEY not in repr(folder)


def test_a_role_gives_keys_of_its_own(s3):
    access = replace(s3.access, role="arn:aws:iam::123456789012:role/lake")
    folder = DeltaFolder.at(f"s3://{s3.new_bucket()}/t", access)
    target(folder).ensure()
    assert DeltaHistory("s", folder).newest().number == 0
    assert folder.settings.session_token
    assert folder.settings.secret_key != SECRET_KEY
    with pytest.raises(RoleRefused, match="role/lake is not given"):
        DeltaFolder.at("s3://bucket/t", replace(access, endpoint="http://127.0.0.1:1"))


def test_a_bucket_that_is_not_there_is_told(s3):
    with pytest.raises(SlackwaterError) as told:
        target(DeltaFolder.at("s3://no-such-bucket/t", s3.access)).ensure()
    assert told.value.condition == "SLACKWATER_SINK_UNREACHABLE"
    assert "no-such-bucket" in str(told.value)
