"""Faults of the world outside: bad files, a metastore that goes away, a disk that is full."""

from __future__ import annotations

import os

import pytest
from sqlalchemy import text
from tests.support.applications.application import Application, SqlError, only_coordinator
from tests.support.applications.stopped import stopped
from tests.support.waiting import wait_until

from slackwater.persist.metastore import connect

pytestmark = pytest.mark.spark

STATUS = (
    "SELECT s.status, s.error FROM mz_internal.mz_source_statuses s "
    "JOIN mz_catalog.mz_sources o ON s.id = o.id "
    "JOIN mz_catalog.mz_schemas c ON o.schema_id = c.id "
    "WHERE o.name = '{source}' AND c.name = '{schema}'"
)


def drop_in(folder, name, content):
    """A file that appears as a whole."""
    folder.mkdir(exist_ok=True)
    hidden = folder / f".{name}"
    hidden.write_text(content)
    hidden.rename(folder / name)


def create_source(place, name, file_format, *more):
    options = ", ".join([f"PATH '{place.folder / name}'", f"FORMAT {file_format}", *more])
    place.sql(
        f"CREATE SOURCE {name} (k INT, v STRING) FROM FILES ({options}) "
        "WITH (TIMESTAMP INTERVAL '50ms')"
    )


def status(place, source):
    rows = place.rows(STATUS.format(source=source, schema=place.schema))
    return tuple(rows[0]) if rows else ("", "")


def wait_for_rows(place, relation, wanted):
    wait_until(
        lambda: sorted(place.rows(f"SELECT k FROM {relation}")) == [[k] for k in wanted],
        what=f"{relation} = {wanted}",
    )


@pytest.mark.parametrize(
    ("file_format", "good", "bad", "line"),
    [
        ("CSV", "1,a\n", "2,b\n\n3,c\nx,d\n", 4),
        ("JSON", '{"k": 1}\n', '{"k": 2}\n{"k": 3\n', 2),
    ],
)
def test_malformed_row_stalls_its_source_alone(workplace, file_format, good, bad, line):
    folder = workplace.folder / "feed"
    drop_in(folder, "1.txt", good)
    create_source(workplace, "feed", file_format)
    drop_in(workplace.folder / "other", "1.txt", good)
    create_source(workplace, "other", file_format)
    wait_for_rows(workplace, "feed", [1])
    drop_in(folder, "2.txt", bad)
    wait_until(lambda: status(workplace, "feed")[0] == "stalled", what="the source stalls")
    assert f"2.txt, line {line}:" in status(workplace, "feed")[1]
    drop_in(workplace.folder / "other", "2.txt", good.replace("1", "7"))
    wait_for_rows(workplace, "other", [1, 7])
    assert workplace.rows("SELECT k FROM feed") == [[1]]
    drop_in(folder, "2.txt", good.replace("1", "5"))
    wait_for_rows(workplace, "feed", [1, 5])
    assert status(workplace, "feed") == ("running", None)


def test_skip_counts_bad_rows(workplace):
    drop_in(workplace.folder / "feed", "1.csv", "1,a\nx,b\n3,c\n")
    create_source(workplace, "feed", "CSV", "ON ERROR SKIP")
    wait_for_rows(workplace, "feed", [1, 3])


def test_a_file_that_vanished_is_told_and_its_rows_stay(workplace):
    folder = workplace.folder / "feed"
    drop_in(folder, "1.csv", "1,a\n")
    create_source(workplace, "feed", "CSV")
    wait_for_rows(workplace, "feed", [1])
    (folder / "1.csv").unlink()
    wait_until(lambda: "1.csv" in (status(workplace, "feed")[1] or ""), what="the status names it")
    assert workplace.rows("SELECT k FROM feed") == [[1]]
    drop_in(folder, "2.csv", "2,b\n")
    wait_for_rows(workplace, "feed", [1, 2])


def test_data_error_stalls_one_view(workplace):
    workplace.sql("CREATE TABLE t (k INT, d INT)")
    workplace.sql("CREATE MATERIALIZED VIEW quotients AS SELECT k, 10 div d AS q FROM t")
    workplace.sql("CREATE MATERIALIZED VIEW counted AS SELECT count(*) AS n FROM t")
    workplace.sql("INSERT INTO t VALUES (1, 5)")
    assert workplace.rows("SELECT q FROM quotients") == [[2]]
    workplace.sql("INSERT INTO t VALUES (2, 0)")
    with pytest.raises(SqlError) as failed:
        workplace.rows("SELECT q FROM quotients")
    assert failed.value.condition == "SLACKWATER_DATA_ERROR"
    assert failed.value.sqlstate.startswith("22")
    assert workplace.value("SELECT n FROM counted") == 2
    workplace.sql("DELETE FROM t WHERE k = 2")
    wait_for_rows_of(workplace, "SELECT q FROM quotients", [[2]])


def wait_for_rows_of(place, query, wanted):
    def fits():
        try:
            return place.rows(query) == wanted
        except SqlError:
            return False

    wait_until(fits, what=query)


@pytest.mark.postgres
def test_metastore_that_goes_away_or_hangs_and_comes_back(postgres, tmp_path):
    """A clear error, then everything goes on."""
    metastore = postgres.new_database()
    with Application(tmp_path / "environment", metastore) as application:
        application.sql("USE slackwater.default")
        application.sql("CREATE TABLE t (k INT)")
        application.sql("INSERT INTO t VALUES (1)")
        postgres.stop()
        try:
            with pytest.raises(SqlError) as failed:
                application.sql("INSERT INTO t VALUES (2)")
            assert failed.value.condition == "SLACKWATER_METASTORE_UNAVAILABLE"
        finally:
            postgres.start()
        wait_until(lambda: insert(application, 3), what="a write succeeds again")
        assert application.rows("SELECT k FROM t ORDER BY k") == [[1], [3]]
        # Processes that stand neither answer nor break a connection: after ten seconds they count
        # as away.
        hung = server_processes(metastore)
        with stopped(hung):
            answered = condition_of(application, "INSERT INTO t VALUES (4)")
            assert answered in (None, "SLACKWATER_METASTORE_UNAVAILABLE")
        wait_until(lambda: insert(application, 5), what="a write succeeds again")
        assert application.rows("SELECT k FROM t WHERE k <> 4 ORDER BY k") == [[1], [3], [5]]


def condition_of(application, statement):
    """The condition of the error with which a statement is answered; None for success."""
    try:
        application.sql(statement)
    except SqlError as error:
        return error.condition
    return None


def server_processes(metastore):
    """The processes of PostgreSQL that serve the applications of a database."""
    statement = text(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
        "AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )
    engine = connect(metastore)
    with engine.connect() as conn:
        found = conn.scalars(statement).all()
    engine.dispose()
    return found


def insert(application, number):
    try:
        application.sql(f"INSERT INTO t VALUES ({number})")
    except SqlError:
        return False
    return True


def insert_often(application):
    for _ in range(20):
        application.sql("INSERT INTO t SELECT id, repeat('x', 1500) || id FROM range(1000)")


@pytest.mark.nightly
def test_no_space(tmp_path):
    """A limit on the size of files stands for a full disk: large writes fail, reads go on."""
    import resource

    location = tmp_path / "environment"
    with Application(location) as application:
        application.sql("USE slackwater.default")
        application.sql("CREATE TABLE t (k INT, v STRING)")
        application.sql("CREATE MATERIALIZED VIEW counted AS SELECT count(*) AS n FROM t")
        application.sql("INSERT INTO t VALUES (1, 'a')")
        pid = only_coordinator(location)
        before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        largest = max(path.stat().st_size for path in location.rglob("*") if path.is_file())
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (largest, before[1]))
        with pytest.raises(SqlError) as failed:
            insert_often(application)
        assert failed.value.condition in (
            "SLACKWATER_NO_SPACE",
            "SLACKWATER_METASTORE_UNAVAILABLE",
            "SLACKWATER_STORAGE_UNAVAILABLE",
        )
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
        wait_until(lambda: application.value("SELECT n FROM counted") >= 1, what="reads go on")
        application.sql("INSERT INTO t VALUES (2, 'b')")
        assert application.value("SELECT count(*) FROM t WHERE k = 2 AND v = 'b'") == 1


def test_the_coordinator_is_no_part_of_the_drivers_process_group(shared_application):
    """So an interrupt from the terminal, which goes to the whole group, does not end it."""
    shared_application.sql("SHOW SCHEMAS IN slackwater")
    pid = only_coordinator(shared_application.location)
    assert os.getpgid(pid) == pid
    assert os.getpgid(pid) != os.getpgid(shared_application.pid)
