"""The FILES source: discovery, exactly-once reading, errors."""

import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.repr.errors import SlackwaterError
from slackwater.repr.relation import RelationDesc
from slackwater.storage import files_source
from slackwater.storage.discovery import find_files, local_path
from slackwater.storage.file_formats import Format
from slackwater.storage.files_source import SETTLE_MS, FilesConfig, FilesIngestion
from slackwater.storage.infer import infer

DESC = RelationDesc.of(k="integer", v="string")
NOW = 2_000_000_000_000


def config(path, **more):
    return FilesConfig(str(path), Format("CSV", header=True), **more)


def put(path, *rows, modified_s=1000):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("k,v\n" + "".join(row + "\n" for row in rows))
    os.utime(path, (modified_s, modified_s))


def source(path, state=None, **more):
    return FilesIngestion(config(path, **more), "s", DESC, state)


def keys(step):
    return [] if "s" not in step.updates else step.updates["s"].column("k").to_pylist()


def advance(ingestion, now_ms=NOW):
    step = ingestion.poll(now_ms)
    if step is not None:
        ingestion.committed(step)
    return step


def test_files_are_read_once_in_order_of_time(tmp_path):
    put(tmp_path / "b.csv", "1,x", modified_s=1)
    put(tmp_path / "a.csv", "2,x", modified_s=2)
    put(tmp_path / "_hidden.csv", "9,x")
    put(tmp_path / ".tmp.csv", "9,x")
    put(tmp_path / "deep" / "c.csv", "9,x")
    ingestion = source(tmp_path)
    step = advance(ingestion)
    assert keys(step) == [1, 2]
    assert step.updates["s"].column_names == ["k", "v", "__diff"]
    assert step.status.status == "running"
    assert advance(ingestion) is None
    put(tmp_path / "c.csv", "3,x")
    assert keys(advance(source(tmp_path, step.state))) == [3]


def test_globs_and_uris(tmp_path):
    for name in ("x/1.csv", "x/y/2.csv", "x/y/z/3.csv", "x/4.txt", "x/_no/5.csv"):
        put(tmp_path / name)

    def found(path, pattern=None):
        return sorted(os.path.basename(f.path) for f in find_files(str(tmp_path / path), pattern))

    assert found("x/**/*.csv") == ["1.csv", "2.csv", "3.csv"]
    assert found("x/*/*.csv") == ["2.csv"]
    assert found("**") == ["1.csv", "2.csv", "3.csv", "4.txt"]
    assert found("x", "*.csv") == ["1.csv"]
    assert found("x/[12].csv") == ["1.csv"]
    assert found("x/1.csv") == ["1.csv"]
    assert found("nothing/*") == []
    assert local_path("file:///a%20b/*.csv", "/base") == "/a b/*.csv"
    assert local_path("c/?.csv", "/base") == "/base/c/?.csv"
    assert local_path("file:/a/?.csv", "/base") == "/a/?.csv"
    with pytest.raises(SlackwaterError, match="scheme s3"):
        local_path("s3://bucket/x", "/base")


def test_a_file_that_is_still_written_waits(tmp_path):
    put(tmp_path / "a.csv", "1,x", modified_s=NOW // 1000)
    ingestion = source(tmp_path)
    step = advance(ingestion)
    assert keys(step) == []
    assert step.status.status == "starting"
    put(tmp_path / "a.csv", "1,x", "2,x", modified_s=NOW // 1000)
    assert advance(ingestion, NOW + SETTLE_MS - 1) is None
    assert keys(advance(ingestion, NOW + 2 * SETTLE_MS)) == [1, 2]


def test_a_time_in_the_future_does_not_block_a_file(tmp_path):
    put(tmp_path / "a.csv", "1,x", modified_s=NOW // 1000 + 3600)
    ingestion = source(tmp_path)
    advance(ingestion)
    assert keys(advance(ingestion, NOW + SETTLE_MS)) == [1]


def test_a_bad_row_stalls_before_its_file_until_it_is_corrected(tmp_path):
    put(tmp_path / "a.csv", "1,x", modified_s=1)
    put(tmp_path / "b.csv", "2,x", "2.0,y", modified_s=2)
    put(tmp_path / "c.csv", "3,x", modified_s=3)
    ingestion = source(tmp_path)
    step = advance(ingestion)
    assert keys(step) == [1]
    assert step.status.status == "stalled"
    assert step.status.details["file"] == str(tmp_path / "b.csv")
    assert step.status.details["line"] == "3"
    assert step.status.details["condition"] == "SLACKWATER_SOURCE_BAD_ROW"
    assert "b.csv, line 3: '2.0' is not an INT (column k)" in step.status.error
    assert advance(ingestion) is None
    put(tmp_path / "b.csv", "2,x", modified_s=4)
    step = advance(ingestion)
    assert keys(step) == [3, 2]
    assert (step.status.status, step.status.error) == ("running", None)


def test_skip_counts_bad_rows(tmp_path):
    put(tmp_path / "a.csv", "1,x", "oops", "2,y")
    step = advance(source(tmp_path, on_error="SKIP"))
    assert keys(step) == [1, 2]
    assert step.statistics.rows_skipped == 1
    assert step.status.status == "running"


def test_files_that_change_or_vanish_are_reported_and_keep_their_rows(tmp_path):
    put(tmp_path / "a.csv", "1,x")
    put(tmp_path / "b.csv", "2,x")
    ingestion = source(tmp_path)
    advance(ingestion)
    put(tmp_path / "a.csv", "1,x", "9,x")
    (tmp_path / "b.csv").unlink()
    step = advance(ingestion)
    assert step.updates == {}
    assert step.status.details["condition"] == "SLACKWATER_SOURCE_FILE_CHANGED"
    assert step.status.details["changed"] == [str(tmp_path / "a.csv")]
    assert step.status.details["vanished"] == [str(tmp_path / "b.csv")]
    put(tmp_path / "a.csv", "1,x")
    put(tmp_path / "b.csv", "2,x")
    assert advance(ingestion).status.error is None


def test_an_unreadable_file_stalls(tmp_path):
    (tmp_path / "a.csv").write_bytes(b'k,v\n1,"\xff"\n')
    os.utime(tmp_path / "a.csv", (1, 1))
    step = advance(source(tmp_path))
    assert step.status.details["condition"] == "SLACKWATER_SOURCE_FILE_UNREADABLE"
    assert "line 2 is not UTF-8" in step.status.error


def test_large_amounts_take_several_steps(tmp_path, monkeypatch):
    for i in range(5):
        put(tmp_path / f"{i}.csv", f"{i},x")
    monkeypatch.setattr(files_source, "STEP_BYTES", 16)
    ingestion = source(tmp_path)
    steps = [advance(ingestion) for _ in range(3)]
    assert [keys(step) for step in steps] == [[0, 1], [2, 3], [4]]
    assert [step.status.status for step in steps] == ["starting", "starting", "running"]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(["put", "poll", "crash", "commit"]), max_size=25),
    st.sampled_from([1, 20, 10**9]),
)
def test_every_row_once_whatever_crashes(tmp_path_factory, events, step_bytes):
    """A crash before the commit loses the step, one after it only the process."""
    folder = tmp_path_factory.mktemp("s")
    old = files_source.STEP_BYTES
    files_source.STEP_BYTES = step_bytes
    try:
        committed, state, written = [], None, 0
        ingestion = source(folder)
        for event in [*events, "crash", *["commit"] * 30]:
            if event == "put":
                put(folder / f"{written}.csv", f"{written},x", modified_s=written + 1)
                written += 1
            elif event == "poll":
                ingestion.poll(NOW)
            elif event == "crash":
                ingestion = source(folder, state)
            elif (step := ingestion.poll(NOW)) is not None:
                committed += keys(step)
                state = step.state
                ingestion.committed(step)
        assert committed == list(range(written))
    finally:
        files_source.STEP_BYTES = old


def test_many_files_in_one_step(tmp_path):
    for i in range(365):
        (tmp_path / f"{i}.csv").write_text("k,v\n" + "".join(f"{r},v{r}\n" for r in range(900)))
        os.utime(tmp_path / f"{i}.csv", (i, i))
    step = advance(source(tmp_path))
    assert len(step.updates["s"]) == 365 * 900


def test_ten_thousand_known_files(tmp_path):
    for i in range(10_000):
        (tmp_path / f"{i}.csv").touch()
    known = [[f.path, f.size_bytes, f.modified_ns, 0, 0] for f in find_files(str(tmp_path), None)]
    ingestion = source(tmp_path, json.dumps({"version": 1, "files": known}))
    advance(ingestion)
    assert advance(ingestion) is None


def types(desc):
    return {column.name: column.sql_type for column in desc.columns}


def test_inference(tmp_path):
    (tmp_path / "a.csv").write_text(
        "b,i,d,day,t,s,mixed,none\n"
        'true,1,1,2020-01-01,2020-01-01T00:00:00Z,"a,b",2020-01-01,NA\n'
        "NA,2,NA,NA,NA,NA,NA,NA\n"
    )
    (tmp_path / "b.csv").write_text(
        "b,i,d,day,t,s,mixed,none\nfalse,NA,2.5,NA,NA,1,2020-01-01 10:00:00,NA\n"
    )
    form = Format("CSV", header=True, null_text="NA")
    assert types(infer(FilesConfig(str(tmp_path), form), "s")) == {
        "b": "BOOLEAN", "i": "BIGINT", "d": "DOUBLE", "day": "DATE", "t": "TIMESTAMP",
        "s": "STRING", "mixed": "TIMESTAMP", "none": "STRING",
    }  # fmt: skip
    with pytest.raises(SlackwaterError) as failed:
        infer(FilesConfig(str(tmp_path / "none*"), form), "s")
    assert failed.value.condition == "SLACKWATER_SOURCE_FILES_NOT_FOUND"


def test_inference_merges_files_by_the_names_of_their_columns(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,a\n")
    (tmp_path / "b.csv").write_text('y,x,z\n"b",2.5,1\n')
    os.utime(tmp_path / "a.csv", (1, 1))
    assert types(infer(config(tmp_path), "s")) == {"x": "DOUBLE", "y": "STRING"}


def test_bad_rows_do_not_count_in_inference_when_they_are_skipped(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,a\n1\n")
    assert types(infer(config(tmp_path, on_error="SKIP"), "s")) == {"x": "BIGINT", "y": "STRING"}
    with pytest.raises(SlackwaterError, match="line 3: 1 fields instead of 2"):
        infer(config(tmp_path), "s")


def test_json_inference(tmp_path):
    (tmp_path / "a.json").write_text(
        '{"n": 1, "x": {"b": [1, 2.5], "a": null}}\n{"n": 2.5, "c": true, "x": {"a": "t"}}\n'
    )
    assert types(infer(FilesConfig(str(tmp_path), Format("JSON")), "s")) == {
        "c": "BOOLEAN",
        "n": "DOUBLE",
        "x": "STRUCT<`a`: STRING, `b`: ARRAY<DOUBLE>>",
    }
