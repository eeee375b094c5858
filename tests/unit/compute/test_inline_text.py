"""Streams of updates as text: whole where they are small, else only what is read."""

from __future__ import annotations

import base64

import pyarrow as pa
import pytest

from slackwater.compute.relations import SMALL_IPC_BYTES, inline_text
from slackwater.persist.blobs import inline_part
from slackwater.repr.relation import RelationDesc

DESC = RelationDesc.of(k="long", v="string", w="double")


def stream(rows: int, desc: RelationDesc = DESC) -> bytes:
    schema = desc.update_schema()
    values = [[pa.scalar(1).cast(field.type).as_py()] * rows for field in schema]
    return inline_part(pa.table(values, schema=schema)).body.ipc


def read(text: str) -> pa.Table:
    with pa.ipc.open_stream(base64.b64decode(text)) as found:
        return found.read_all()


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        (None, ["k", "v", "w"]),
        (frozenset({"w", "k"}), ["k", "w"]),
        (frozenset(), []),
    ],
)
def test_of_a_large_stream_only_what_is_read_is_brought(fields, names):
    updates = read(inline_text(stream(1000), DESC, fields))
    assert updates.column_names == [*names, "__time", "__diff"]
    assert updates.num_rows == 1000
    assert set(updates.column("__diff").to_pylist()) == {1}


def test_a_small_stream_is_the_same_for_everybody():
    ipc = stream(1)
    assert len(ipc) <= SMALL_IPC_BYTES
    assert inline_text(ipc, DESC, frozenset({"k"})) is inline_text(ipc, DESC)


def test_a_stream_that_is_older_than_a_column_has_it():
    older = stream(1000, DESC.only({"k", "v"}))
    updates = read(inline_text(older, DESC, frozenset({"v", "w"})))
    assert updates.column_names == ["v", "w", "__time", "__diff"]
    assert updates.column("w").null_count == 1000
