"""The FILES source: discovery, exactly-once reading, errors."""

import gzip
import json
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.repr.errors import SlackwaterError
from slackwater.repr.relation import RelationDesc
from slackwater.storage import files_source
from slackwater.storage.discovery import find_files, local_path
from slackwater.storage.file_formats import Format, UnreadableFileError, read_rows
from slackwater.storage.files_source import SETTLE_MS, FilesConfig, FilesIngestion
from slackwater.storage.sample import sample, verify

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
    # A folder of such a name is no pattern, and what comes after it may be one.
    put(tmp_path / "[x]{a,b}*" / "?.csv")
    put(tmp_path / "[x]{a,b}*" / "6.csv")
    assert found("[x]{a,b}*") == ["6.csv", "?.csv"]
    assert found("[x]{a,b}*/?.csv") == ["?.csv"]
    assert found("[x]{a,b}*/[6].csv") == ["6.csv"]
    assert local_path("file:///a%20b/*.csv", no_folder) == "/a b/*.csv"
    assert local_path("c/?.csv", lambda: "/base") == "/base/c/?.csv"
    assert local_path("file:/a/?.csv", no_folder) == "/a/?.csv"
    assert local_path("/a/../b/?%20#", no_folder) == "/b/?%20#"
    with pytest.raises(SlackwaterError, match="scheme s3"):
        local_path("s3://bucket/x", no_folder)
    with pytest.raises(SlackwaterError, match="The relative path c, as the working folder"):
        local_path("c", no_folder)


def no_folder():
    raise FileNotFoundError


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


def rows_of(step):
    counted = step.statistics
    return counted.snapshot_records_staged, counted.snapshot_records_known


def parquet_source(path, state=None, **more):
    return FilesIngestion(FilesConfig(str(path), Format("PARQUET")), "s", DESC, state, **more)


def put_parquet(path, *keys):
    pq.write_table(pa.table({"k": pa.array(keys, pa.int32()), "v": ["x"] * len(keys)}), path)
    os.utime(path, (1000, 1000))


def test_parquet_files_say_how_many_rows_the_first_contents_have(tmp_path, monkeypatch):
    for number, keys_of_file in enumerate([(1, 2, 3), (4,), (5, 6)]):
        put_parquet(tmp_path / f"{number}.parquet", *keys_of_file)
    monkeypatch.setattr(files_source, "STEP_BYTES", 1)
    ingestion = parquet_source(tmp_path)
    first = advance(ingestion)
    assert rows_of(first) == (3, 6)
    # A leader that takes over in the middle goes on with them.
    ingestion = parquet_source(tmp_path, first.state)
    assert [rows_of(advance(ingestion)) for _ in range(2)] == [(4, 6), (6, 6)]
    put_parquet(tmp_path / "later.parquet", 7)
    last = advance(ingestion)
    assert (keys(last), rows_of(last)) == ([7], (None, None)), "the first contents are over"
    put_parquet(tmp_path / "still later.parquet", 8)
    assert rows_of(advance(parquet_source(tmp_path, last.state, has_begun=True))) == (None, None)


def test_nobody_knows_the_rows_of_what_does_not_say_it(tmp_path, monkeypatch):
    for number in range(2):
        put(tmp_path / "csv" / f"{number}.csv", f"{number},x")
    monkeypatch.setattr(files_source, "STEP_BYTES", 1)
    ingestion = source(tmp_path / "csv")
    steps = [advance(ingestion) for _ in range(2)]
    assert [rows_of(step) for step in steps] == [(1, None), (2, 2)]
    counts = [(s.statistics.offset_committed, s.statistics.offset_known) for s in steps]
    assert counts == [(1, 2), (2, 2)]
    (tmp_path / "p").mkdir()
    put_parquet(tmp_path / "p" / "0.parquet", 1)
    (tmp_path / "p" / "1.parquet").write_bytes(b"it is being written")
    assert rows_of(advance(parquet_source(tmp_path / "p"))) == (1, None)


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


def paths(groups, folder):
    return [[os.path.relpath(file.path, folder) for file in group] for group in groups]


def test_columns_are_looked_for_in_files_by_their_headers(tmp_path):
    put(tmp_path / "b.csv", "1,a", modified_s=1)
    put(tmp_path / "a.csv", modified_s=3)
    (tmp_path / "c.csv").write_bytes(b"\xef\xbb\xbf\r\nv,k\r\n")
    (tmp_path / "d.csv.gz").write_bytes(gzip.compress(b"k,v\r\n"))
    (tmp_path / "empty.csv").touch()
    (tmp_path / "blank.csv").write_text("\n\n")
    assert paths(sample(config(tmp_path)), tmp_path) == [["b.csv", "a.csv", "d.csv.gz"], ["c.csv"]]
    without = FilesConfig(str(tmp_path), Format("CSV"))
    assert paths(sample(without), tmp_path) == [["b.csv", "a.csv", "c.csv", "d.csv.gz"]]
    assert sample(config(tmp_path / "none")) == ()


def test_columns_are_looked_for_in_at_most_so_many_bytes(tmp_path, monkeypatch):
    for number in range(4):
        put(tmp_path / f"{number}.csv", "1,a", modified_s=number)
    monkeypatch.setattr("slackwater.storage.sample.SAMPLE_BYTES", 10)
    assert paths(sample(config(tmp_path)), tmp_path) == [["0.csv", "1.csv"]]


def test_the_oldest_parquet_file_says_what_the_columns_are(tmp_path):
    for number in range(2):
        pq.write_table(DESC.arrow_schema().empty_table(), tmp_path / f"{number}.parquet")
    form = Format("PARQUET")
    assert paths(sample(FilesConfig(str(tmp_path), form)), tmp_path) == [["0.parquet"]]
    (tmp_path / "bad").write_bytes(b"nothing")
    with pytest.raises(SlackwaterError) as refused:
        sample(FilesConfig(str(tmp_path / "bad"), form))
    assert refused.value.condition == "SLACKWATER_SOURCE_FILE_UNREADABLE"
    assert refused.value.parameters["file"] == str(tmp_path / "bad")


def test_a_path_that_cannot_be_looked_at_is_told_by_sources_and_samples(tmp_path):
    wrong = FilesConfig(str(tmp_path / ("x" * 300)), Format("CSV"))
    for look in (sample, lambda it: FilesIngestion(it, "s", DESC, None).poll(NOW)):
        with pytest.raises(SlackwaterError, match="File name too long") as refused:
            look(wrong)
        assert refused.value.condition == "SLACKWATER_SOURCE_FILE_UNREADABLE"
        assert refused.value.parameters["file"] == wrong.path


def test_columns_by_which_files_cannot_be_read_are_refused(tmp_path):
    put(tmp_path / "a.csv", "1,a", "x,b")
    found = sample(config(tmp_path))[0]
    with pytest.raises(SlackwaterError, match="line 3: 'x' is not an INT"):
        verify(found, config(tmp_path), DESC)
    verify(found, config(tmp_path, on_error="SKIP"), DESC)
    with pytest.raises(SlackwaterError, match="its header lacks the column w"):
        verify(found, config(tmp_path, on_error="SKIP"), RelationDesc.of(w="string"))


@pytest.mark.parametrize(
    ("header", "names"),
    [
        ("id,name,name", {"id": "0", "name1": "1", "name2": "2", "name": "1", "NAME2": "2"}),
        ("id,,", {"_c1": "1", "_c2": "2"}),
        (",qty", {"_c0": "0", "QTY": "1"}),
        ("a,A", {"a": "0", "A": "1", "a0": "0", "A1": "1"}),
        ("NA,b", {"_c0": "0", "NA": "0"}),
        (" a ,name1,name,name", {"a": "0", " a ": "0", "name1": "1", "name2": "2", "name3": "3"}),
    ],
)
@pytest.mark.parametrize("quote", ["", '"'])
def test_a_column_is_found_by_its_name_or_by_the_one_that_spark_gives(header, names, quote):
    count = header.count(",") + 1
    row = ",".join(f"{quote}{place}{quote}" for place in range(count))
    form = Format("CSV", header=True, null_text="NA")
    for name, place in names.items():
        rows = read_rows(f"{header}\n{row}\n".encode(), form, RelationDesc.of(**{name: "string"}))
        assert rows.table.to_pylist() == [{name: place}], name
    with pytest.raises(UnreadableFileError, match="lacks the column name9"):
        read_rows(f"{header}\n".encode(), form, RelationDesc.of(name9="string"))
