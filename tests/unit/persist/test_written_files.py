"""Files that executors have written: which of them a write may take. Without Spark."""

from __future__ import annotations

import os
import uuid

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.adapter.calls import calls_of
from tests.support.adapter.coordination import Place

from slackwater.persist.s3 import S3Blobs, S3Settings
from slackwater.persist.uris import local_path
from slackwater.repr.errors import SlackwaterError


@pytest.fixture
def place(env):
    place = Place(env)
    place.table("t", k="long")
    place.table("u", k="long")
    yield place
    place.close()


def directory(place, name, write_id):
    body = {"table": place.item(name).id, "write_id": write_id}
    return calls_of(place.coordinator)["/v1/prepare_write"](body)["directory"]


def put(folder, name, *numbers):
    """A file as an executor leaves it; its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    pq.write_table(pa.table({"k": pa.array(numbers, pa.int64())}), path)
    return path


def write(place, write_id, *uris, name="t"):
    body = {
        "session": "app/1",
        "table": place.item(name).id,
        "write_id": write_id,
        "mode": "append",
        "files": [{"uri": u, "rows": 1, "size_bytes": 1, "modified_ms": 0} for u in uris],
    }
    return calls_of(place.coordinator)["/v1/write"](body)


def numbers(place, name="t"):
    return sorted(row["k"] for row in place.rows(name))


def test_files_of_a_write_are_taken_however_their_directory_is_written(place):
    first, second = uuid.uuid4().hex, uuid.uuid4().hex
    path = put(local_path(directory(place, "t", first)), f"{first}-0-x.snappy.parquet", 1)
    write(place, first, path.as_uri().replace("file:///", "file:/"))
    path = put(local_path(directory(place, "t", second)), f"{second}-0-x.snappy.parquet", 2)
    uri = path.as_uri().replace("shards", "%73hards").replace("/write-", "/./write-")
    write(place, second, uri)
    # To repeat it has no effect.
    write(place, second, uri)
    assert numbers(place) == [1, 2]
    stored = {part.body.uri for part in place.env.persist.reads.parts(place.item("t").shard_id)}
    assert path.as_uri() in stored


def foreign(place, tmp_path, write_id, kind):
    """The URI of a file that is none of this write of t, although it can be read."""
    own = local_path(directory(place, "t", write_id))
    own.mkdir(parents=True)
    match kind:
        case "outside":
            return put(tmp_path / "elsewhere", "secret.parquet", 7).as_uri()
        case "climbing":
            put(tmp_path / "elsewhere", "secret.parquet", 7)
            up = os.path.relpath(tmp_path / "elsewhere", own)
            return f"{own.as_uri()}/{up}/secret.parquet"
        case "climbing in disguise":
            put(own.parent, "f.parquet", 7)
            return f"{own.as_uri()}/%2e%2e%2ff.parquet"
        case "another shard":
            return put(local_path(directory(place, "u", write_id)), "f.parquet", 7).as_uri()
        case "another write":
            return put(local_path(directory(place, "t", "other")), "f.parquet", 7).as_uri()
        case "the shard itself":
            return put(own.parent, "f.parquet", 7).as_uri()
        case "below":
            return put(own / "below", "f.parquet", 7).as_uri()
        case "a link":
            (own / "f.parquet").symlink_to(put(tmp_path / "elsewhere", "secret.parquet", 7))
            return (own / "f.parquet").as_uri()
        case "a linked directory":
            own.rmdir()
            put(tmp_path / "elsewhere", "secret.parquet", 7)
            own.symlink_to(tmp_path / "elsewhere")
            return (own / "secret.parquet").as_uri()
        case "a directory":
            (own / "f.parquet").mkdir()
            return (own / "f.parquet").as_uri()
        case "a host":
            return put(own, "f.parquet", 7).as_uri().replace("file:///", "file://host/")
        case "no scheme":
            return str(put(own, "f.parquet", 7))
        case "credentials":
            return "s3://key:secret@bucket/prefix/secret.parquet"
    raise AssertionError(kind)


KINDS = [
    "outside", "climbing", "climbing in disguise", "another shard", "another write", "below",
    "the shard itself", "a link", "a linked directory", "a directory", "a host", "no scheme",
    "credentials",
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_other_files_are_refused(place, tmp_path, kind):
    write_id = uuid.uuid4().hex
    uri = foreign(place, tmp_path, write_id, kind)
    own = f"{directory(place, 't', write_id)}/own.parquet"
    with pytest.raises(SlackwaterError) as failed:
        write(place, write_id, own, uri)
    assert (failed.value.condition, failed.value.sqlstate) == ("SLACKWATER_FOREIGN_FILE", "42501")
    number = 1 if kind == "a linked directory" else 2
    assert f"file {number} is not in the directory of this write" in str(failed.value)
    assert "slackwater.default.t" in str(failed.value)
    assert "secret" not in str(failed.value)
    assert numbers(place) == []


def test_a_file_counts_once_and_an_id_is_plain(place):
    write_id = uuid.uuid4().hex
    uri = put(local_path(directory(place, "t", write_id)), "f.parquet", 1).as_uri()
    with pytest.raises(SlackwaterError, match="file 2 is named twice"):
        write(place, write_id, uri, uri.replace("file:///", "file:/"))
    with pytest.raises(SlackwaterError, match="its id cannot be") as failed:
        write(place, "../../secret", uri)
    assert failed.value.condition == "SLACKWATER_FOREIGN_FILE"
    assert "secret" not in str(failed.value)
    assert numbers(place) == []


@pytest.mark.parametrize(
    ("uri", "own"),
    [
        ("s3://b/env/shards/1/write-w/f.parquet", True),
        ("s3a://b/env/shards/1/write-w/f.parquet", True),
        ("s3://b/env/shards/1/write-w/../f.parquet", False),
        ("s3://b/env/shards/1/write-w/..", False),
        ("s3://b/env/shards/1/write-w/x/f.parquet", False),
        ("s3://b/env/shards/1/write-w", False),
        ("s3://b/env/shards/1/write-w2/f.parquet", False),
        ("s3://b/env/shards/2/write-w/f.parquet", False),
        ("s3://b/other/shards/1/write-w/f.parquet", False),
        ("s3://other/env/shards/1/write-w/f.parquet", False),
        ("s3://key:secret@b/env/shards/1/write-w/f.parquet", False),
        ("s3://b/env/shards/1/write-w/f.parquet?version=1", False),
        ("file:///b/env/shards/1/write-w/f.parquet", False),
        ("b/env/shards/1/write-w/f.parquet", False),
    ],
)
def test_in_s3_names_are_compared(uri, own):
    blobs = S3Blobs("s3://b/env", S3Settings(), None)
    expected = "s3://b/env/shards/1/write-w/f.parquet" if own else None
    assert blobs.own(uri, "s3://b/env/shards/1/write-w") == expected


def write_diffs(place, *rows):
    """Writes a file of rows, each with its diff; the answer."""
    write_id = uuid.uuid4().hex
    folder = local_path(directory(place, "t", write_id))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{write_id}-0-x.snappy.parquet"
    columns = [pa.array(each, pa.int64()) for each in zip(*rows, strict=True)]
    pq.write_table(pa.table(columns, names=["k", "__diff"]), path)
    uri = path.as_uri()
    body = {
        "session": "app/1",
        "table": place.item("t").id,
        "write_id": write_id,
        "mode": "diff",
        "files": [{"uri": uri, "rows": len(rows), "size_bytes": 1, "modified_ms": 0}],
    }
    return calls_of(place.coordinator)["/v1/write"](body)


def test_a_row_counts_as_often_as_its_diff_says(place):
    told = write_diffs(place, (1, 3), (2, 1), (4, 0))
    assert (told["inserted"], told["deleted"]) == (4, 0)
    told = write_diffs(place, (1, -2), (3, 2))
    assert (told["inserted"], told["deleted"]) == (2, 2)
    assert numbers(place) == [1, 2, 3, 3]
