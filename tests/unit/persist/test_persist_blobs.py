"""Blob locations: files are whole or not there, wherever they are."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url
from tests.support.persist.persistence import (
    DESC,
    EAGER,
    acquired,
    compacted,
    contents,
    new_environment,
    own_shard,
    updates,
)
from tests.support.persist.s3 import ACCESS_KEY, SECRET_KEY

from slackwater.persist.blobs import LocalBlobs, file_part, inline_part
from slackwater.persist.client import Append, PersistClient
from slackwater.persist.locations import PASSWORD, PASSWORD_FILE, parse_location, with_password
from slackwater.persist.reading import read
from slackwater.persist.s3 import S3Blobs, S3Settings, s3_location
from slackwater.persist.uris import file_uri
from slackwater.repr.errors import FatalError, SlackwaterError
from slackwater.spark.session import settings


@pytest.fixture(params=["local", "s3"])
def blobs(request, tmp_path):
    if request.param == "local":
        return LocalBlobs(tmp_path / "files")
    s3 = request.getfixturevalue("s3")
    return S3Blobs.at(f"s3://{s3.new_bucket()}/the/prefix", S3Settings.of(s3.environment))


def listed(blobs):
    return {blob.uri: blob.size_bytes for blob in blobs.list(blobs.uri())}


def test_a_file_is_read_as_it_was_written(blobs):
    directory = blobs.uri("shards", "7")
    text = os.urandom(40_000_000)
    blob = blobs.put(directory, ".bin", lambda file: file.write(text))
    assert blob.uri.startswith(f"{directory}/")
    assert blob.uri.endswith(".bin")
    assert blob.size_bytes == len(text)
    with blobs.open(blob.uri) as file:
        assert file.read() == text
        assert file.read_at(100, 39_000_000) == text[39_000_000:39_000_100]
    assert listed(blobs) == {blob.uri: len(text)}
    blobs.settle([blob.uri])
    blobs.delete(blob.uri)
    blobs.delete(blob.uri)
    assert listed(blobs) == {}


def test_a_directory_is_removed_as_far_as_it_is_empty(tmp_path):
    blobs = LocalBlobs(tmp_path)
    shard = blobs.uri("shards", "7")
    for write in ("write-a", "write-b"):
        blobs.put(f"{shard}/{write}", ".bin", lambda file: file.write(b"x"))
    (kept, gone) = sorted(listed(blobs))
    blobs.delete(gone)
    blobs.remove_directory(shard)
    blobs.remove_directory(blobs.uri("shards", "8"))
    assert list(listed(blobs)) == [kept]
    assert [path.name for path in (tmp_path / "shards" / "7").iterdir()] == ["write-a"]
    blobs.delete(kept)
    blobs.remove_directory(shard)
    assert list((tmp_path / "shards").iterdir()) == []


def test_removing_a_directory_removes_no_object(s3):
    blobs = S3Blobs.at(f"s3://{s3.new_bucket()}/the/prefix", S3Settings.of(s3.environment))
    blob = blobs.put(blobs.uri("shards", "7"), ".bin", lambda file: file.write(b"x"))
    blobs.remove_directory(blobs.uri("shards", "7"))
    assert list(listed(blobs)) == [blob.uri]


def test_nothing_is_seen_of_a_file_that_is_not_complete(blobs):
    seen = []

    def write(file):
        file.write(b"x" * 20_000_000)
        seen.append({uri for uri in listed(blobs) if not Path(uri).name.startswith(".")})
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(SlackwaterError) as caught:
        blobs.put(blobs.uri("shards"), ".bin", write)
    assert caught.value.condition in ("SLACKWATER_NO_SPACE", "SLACKWATER_STORAGE_UNAVAILABLE")
    assert seen == [set()]
    assert listed(blobs) == {}


def test_many_writers_at_once(blobs):
    directory = blobs.uri("shards", "1")
    table = updates((1, "a", 0, 1), (2, None, 0, -1))
    with ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(lambda _: file_part(blobs, table, directory), range(40)))
    assert listed(blobs) == {part.body.uri: part.body.size_bytes for part in parts}
    assert read(parts, DESC, blobs=blobs).num_rows == 80


def test_a_missing_or_damaged_file_is_fatal(blobs):
    part = file_part(blobs, updates((1, "a", 0, 1)), blobs.uri("shards"))
    damaged = blobs.put(blobs.uri("shards"), ".parquet", lambda file: file.write(b"PAR1no"))
    with pytest.raises(FatalError):
        read([replace(part, body=replace(part.body, uri=damaged.uri))], DESC, blobs=blobs)
    blobs.delete(part.body.uri)
    with pytest.raises(FatalError):
        read([part], DESC, blobs=blobs)


def test_a_shard_over_it(blobs, new_database, tmp_path):
    env = new_environment(new_database(), tmp_path)
    epoch = acquired(env.engine, None)
    client = PersistClient(env.engine, blobs, epoch)
    shard = own_shard(client)
    for time in range(70):
        part = inline_part(updates((time, "x", time, 1)))
        client.commits.commit([Append(shard, time, time + 1, (part,))])
    assert compacted(client, shard, 69, replace(EAGER, inline_bytes=0)) > 0
    assert contents(client, shard, 69) == sorted([(n, "x") for n in range(70)], key=repr)
    files = {p.body.uri: p.body.size_bytes for p in client.reads.parts_at(shard, 69)}
    assert files.items() <= listed(blobs).items()
    assert client.files.staging_directory(shard, "w") == blobs.uri("shards", str(shard), "write-w")
    env.engine.dispose()


def test_files_of_others_and_their_new_directories_are_synchronised(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
    root = tmp_path / "environment"
    folder = root / "shards" / "1" / "write-a"
    folder.mkdir(parents=True)
    (folder / "part").write_bytes(b"x")
    LocalBlobs(root).settle([file_uri(folder / "part")])
    wanted = [folder / "part", folder, root / "shards" / "1", root / "shards", root]
    assert sorted(synced) == sorted(path.stat().st_ino for path in wanted)
    with pytest.raises(SlackwaterError, match="No such file"):
        LocalBlobs(root).settle([file_uri(folder / "gone")])


def test_the_order_of_synchronising_a_file(tmp_path, monkeypatch):
    """The file's contents before its name, and its name before anybody is told."""
    done = []
    fsync, rename = os.fsync, os.rename
    monkeypatch.setattr(
        os, "fsync", lambda d: (done.append(os.readlink(f"/proc/self/fd/{d}")), fsync(d))
    )
    monkeypatch.setattr(os, "rename", lambda a, b: (done.append("rename"), rename(a, b)))
    blobs = LocalBlobs(tmp_path)
    blobs.put(blobs.uri("a"), ".x", lambda file: file.write(b"x"))
    assert done[0] == str(tmp_path)
    assert done[1].endswith(".x.writing")
    assert done[2:] == ["rename", str(tmp_path / "a")]


def test_a_directory_that_cannot_be_listed_cannot_be_read(tmp_path):
    blobs = LocalBlobs(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(SlackwaterError) as caught:
        list(blobs.list(blobs.uri("file/below")))
    assert caught.value.condition == "SLACKWATER_STORAGE_UNREADABLE"
    assert caught.value.message.startswith(
        f"Cannot read {blobs.uri('file/below')}: Not a directory"
    )


def test_a_store_that_does_not_answer_is_an_error_without_secrets(s3, port):
    environment = {**s3.environment, "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{port}"}
    gone = S3Blobs.at("s3://a-bucket", S3Settings.of(environment))
    there = S3Blobs.at(f"s3://{s3.new_bucket()}", S3Settings.of(s3.environment))
    part = file_part(there, updates((1, "a", 0, 1)), there.uri())
    for attempt, condition in [
        (
            lambda: file_part(gone, updates((1, "a", 0, 1)), gone.uri("x")),
            "SLACKWATER_STORAGE_UNAVAILABLE",
        ),
        (lambda: list(gone.list(gone.uri())), "SLACKWATER_STORAGE_UNREADABLE"),
        (lambda: gone.delete(gone.uri("x")), "SLACKWATER_STORAGE_UNAVAILABLE"),
        (lambda: read([part], DESC, blobs=gone), "SLACKWATER_STORAGE_UNREADABLE"),
        (
            lambda: there.put("s3://no-such-bucket/x", "", lambda file: None),
            "SLACKWATER_STORAGE_UNAVAILABLE",
        ),
    ]:
        with pytest.raises(SlackwaterError) as caught:
            attempt()
        assert caught.value.condition == condition
        assert ACCESS_KEY not in str(caught.value)
        assert SECRET_KEY not in str(caught.value)
    assert SECRET_KEY not in repr(there)
    settings = S3Settings(secret_key="hidden", access_key="known", session_token="short")
    assert settings.hide("known:hidden:short") == "***:***:***"


ODD = "/a b/c?d#e/f%20g+h'\"<[i]/{j,k}*ü"
"""A path with what means something in URLs, patterns and texts of SQL."""


@pytest.mark.parametrize(
    ("text", "uri"),
    [
        ("/a/b c", "file:///a/b%20c"),
        ("file:///a/b%20c", "file:///a/b%20c"),
        ("file:/a", "file:///a"),
        ("file://localhost/a/../b/", "file:///b"),
        ("file:///a?b#c", "file:///a%3Fb%23c"),
        (ODD, "file:///a%20b/c%3Fd%23e/f%2520g%2Bh%27%22%3C%5Bi%5D/%7Bj%2Ck%7D%2A%C3%BC"),
        ("s3://bucket", "s3://bucket"),
        ("s3a://bucket/x/y/", "s3://bucket/x/y"),
    ],
)
def test_locations(text, uri, tmp_path):
    location = parse_location(text, {"XDG_STATE_HOME": str(tmp_path)})
    assert location.uri == uri
    if uri.startswith("file:"):
        file = make_url(location.metastore(None, {})).database
        assert file == str(location.local / "metastore.sqlite")
        assert location.blobs({}).uri("shards") == f"{uri}/shards"
        return
    assert location.local.parent == tmp_path / "slackwater"
    assert location.metastore("postgresql://h/d", {}) == "postgresql://h/d"
    with pytest.raises(SlackwaterError) as caught:
        location.metastore(None, {})
    assert caught.value.condition == "SLACKWATER_METASTORE_REQUIRED"


def test_an_account_without_a_home_is_told_which_variable_helps(monkeypatch):
    def homeless():
        raise RuntimeError

    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(SlackwaterError, match="XDG_STATE_HOME") as caught:
        parse_location("s3://bucket/x", {})
    assert caught.value.condition == "SLACKWATER_INVALID_OPTION"


def test_two_slashes_name_a_host(tmp_path):
    with pytest.raises(SlackwaterError, match="Write file:///tmp/environment"):
        parse_location("file://tmp/environment", {})


def test_a_plain_path_is_relative_to_the_working_directory(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert parse_location("environment", {}).local == tmp_path / "environment"


@pytest.mark.parametrize(
    "uri",
    [
        "s3://",
        "s3://key:hidden@bucket/x",
        "s3://b/x?hidden=1",
        "s3://bucket/a/../b",
        "s3://bucket/a b",
    ],
)
def test_wrong_s3_uris_are_refused_without_their_secret(uri):
    with pytest.raises(SlackwaterError) as caught:
        s3_location(uri)
    assert caught.value.condition == "SLACKWATER_INVALID_OPTION"
    assert "hidden" not in str(caught.value).replace("(hidden)", "")


@pytest.mark.parametrize(
    "text",
    ["gs://bucket/x", "hdfs://host:8020/x", "hdfs:///x", "hdfs:/x", "abfss://c@a.example/x"],
)
def test_other_schemes_are_refused(text):
    with pytest.raises(SlackwaterError) as caught:
        parse_location(text, {})
    assert caught.value.condition == "SLACKWATER_UNSUPPORTED"
    assert f"the scheme {text.partition(':')[0]} " in caught.value.message
    assert "directory" in caught.value.message
    assert "s3://bucket/prefix" in caught.value.message


def test_a_colon_in_the_name_of_a_folder_makes_no_scheme(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("a:b", "2013-01-01T10:00", "x/hdfs:/y", "./hdfs:/x"):
        assert parse_location(name, {}).local == tmp_path / name


@pytest.mark.parametrize(
    ("url", "variables", "wanted"),
    [
        ("postgresql://a@h/d", {PASSWORD: "p@ss/w"}, "postgresql://a:p%40ss%2Fw@h/d"),
        ("postgresql://a@h/d", {}, "postgresql://a@h/d"),
        ("sqlite:///x.db", {PASSWORD: "p"}, "sqlite:///x.db"),
        ("no url", {PASSWORD: "p"}, "no url"),
    ],
)
def test_the_password_of_the_metastore_comes_from_a_variable(url, variables, wanted):
    assert with_password(url, variables) == wanted


def test_the_password_of_the_metastore_comes_from_a_file(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("opensesame\n")
    found = with_password("postgresql://a@h/d", {PASSWORD_FILE: str(secret)})
    assert found == "postgresql://a:opensesame@h/d"
    with pytest.raises(SlackwaterError) as caught:
        with_password("postgresql://a@h/d", {PASSWORD_FILE: str(tmp_path / "none")})
    assert caught.value.condition == "SLACKWATER_INVALID_OPTION"
    assert "passwordFile" in caught.value.message


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+psycopg://a:opensesame@h/d",
        "postgresql://h/d?user=a&password=opensesame",
        "mysql://a:opensesame@h/d",
    ],
)
def test_a_password_in_the_setting_of_the_metastore_is_refused(url):
    for variables in ({}, {PASSWORD: "other"}):
        with pytest.raises(SlackwaterError) as caught:
            parse_location("s3://bucket/x", {}).metastore(url, variables)
        assert (caught.value.condition, caught.value.sqlstate) == (
            "SLACKWATER_PASSWORD_SHOWN",
            "28000",
        )
        told = f"{caught.value.message} {caught.value.parameters}"
        assert "opensesame" not in told
        for name in ("metastore", "metastore.password", "metastore.passwordFile"):
            assert f"spark.slackwater.{name}" in told.replace(",", " ").split()
        for variable in (PASSWORD, PASSWORD_FILE):
            assert variable in told


def test_settings_of_spark_hold_no_password(monkeypatch):
    monkeypatch.delenv(PASSWORD, raising=False)
    url = "postgresql+psycopg://a:opensesame@h/d"
    assert "opensesame" not in str(settings("/somewhere", url))
    assert os.environ[PASSWORD] == "opensesame"
    assert with_password(settings(None, url)["spark.slackwater.metastore"], os.environ) == url
    monkeypatch.delenv(PASSWORD)
