"""Notices where a program sees them: as Python warnings at its own line, and as values."""

import pytest
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.spark

SCATTERED = """
    SELECT id AS k, id % 3 AS g, concat('x', id) AS v
    FROM (SELECT id * 7919 % 300007 AS id FROM range(300000))
"""
"""Rows whose keys are in no order, so that no bounds of files and pages spare any of them."""

WARNED = """
import warnings

def warned(*statements, filtered="always"):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter(filtered)
        for statement in statements:
            spark.sql(statement).collect()
    return [[str(each.message), each.category.__name__, each.lineno] for each in found]

"""
LINE = 8
"""The line of these that begins the statement."""

LATER = """
import time, warnings

deadline = time.monotonic() + {patience}
with warnings.catch_warnings(record=True) as found:
    warnings.simplefilter("always")
    spark.sql({query!r}).{action}
    while not found and time.monotonic() < deadline:
        spark.sql("SELECT 1 FROM scattered LIMIT 1").collect()
result = [str(each.message) for each in found]
"""
"""An action of which the coordinator hears when the next statement may have begun already."""

KEYS = ("`g`, `v`", "`v`")
INDEX = "With an index it reads those alone: CREATE INDEX ON"


@pytest.fixture(scope="module")
def place(workplace_of_file):
    workplace_of_file.sql(f"CREATE TABLE scattered AS {SCATTERED}")
    return workplace_of_file


@pytest.fixture
def session(place, request):
    """A session that was told of nothing yet."""
    name = f"noticed {request.node.name}"
    place.use(name)
    return name


def warned(place, session, *statements):
    """The texts of the warnings that the statements give in Python."""
    found = place.python(f"{WARNED}result = warned(*{statements!r})", session=session)
    assert all(each[1:] == ["SlackwaterNotice", LINE] for each in found), found
    return [each[0] for each in found]


def test_a_notice_is_a_warning_at_the_line_of_its_statement(place, session):
    assert warned(place, session, "BEGIN", "BEGIN", "COMMIT") == [
        "There is a transaction in progress already."
    ]


def test_a_warning_that_is_an_error_ends_no_statement(place, session):
    place.sql("CREATE VIEW v AS SELECT 1 AS k")
    statements = ("BEGIN", "BEGIN", "COMMIT", "DROP VIEW v", "DROP MATERIALIZED VIEW IF EXISTS v")
    code = f"{WARNED}result = warned(*{statements!r}, filtered='error')"
    assert place.python(code, session=session) == []
    codes = [code for _, code, *_ in place.rows("SHOW NOTICES", session=session)]
    assert codes == ["25001", "42704"], "both were said"
    assert place.rows("SHOW VIEWS") == []


def test_notices_are_values(place, session):
    code = """
import slackwater
spark.sql("DROP MATERIALIZED VIEW IF EXISTS `no <b>such`").collect()
(told,) = slackwater.notices(spark)
result = [told.severity, told.code, told.message, told.hint, str(told)]
"""
    severity, code, message, hint, text = place.python(code, session=session)
    assert (severity, code, hint) == ("NOTICE", "42704", "")
    assert "no <b>such" in message
    assert text == message


@pytest.mark.parametrize("action", ["collect()", "show()", "head(3)", "toPandas()", "toArrow()"])
def test_a_scan_that_keeps_little_is_advised_an_index(place, session, action):
    query = "SELECT * FROM scattered WHERE k = 150077"
    code = LATER.format(query=query, action=action, patience=PATIENCE)
    (told,) = place.python(code, session=session)
    assert told == (
        f"The query has read 300,000 rows of slackwater.{place.schema}.scattered to find 1."
        f" {INDEX} `{place.schema}`.`scattered` (`k`)."
    )


def test_advice_has_a_row_that_says_what_to_run(place, session):
    """The statement of the notice is one, and with its index there is nothing to be said."""
    place.sql("SELECT v FROM scattered WHERE k IN (150077, 150078)", session=session)
    (row,) = place.rows(
        "SELECT DISTINCT hint, action, action_type FROM mz_internal.mz_notices n"
        " JOIN mz_catalog.mz_objects o ON n.object_id = o.id"
        " WHERE o.name = 'scattered' AND contains(action, current_schema())"
    )
    hint, action, action_type = row
    assert action in hint
    assert action_type == "sql_statements"
    place.sql(action)
    ((index, *_),) = place.rows("SHOW INDEXES ON scattered")
    other = f"{session}, again"
    place.use(other)
    assert warned(place, other, "SELECT v FROM scattered WHERE k = 150079") == []
    place.sql(f"DROP INDEX {index}")


def test_a_query_that_needs_its_scan_gets_no_advice(place, session):
    """Most rows, a condition that no key can have, few rows of a small table."""
    place.sql("CREATE TABLE small AS SELECT id AS k FROM range(1000)")
    statements = (
        "SELECT count(*) FROM scattered WHERE g = 1",
        "SELECT * FROM scattered WHERE k > 300005",
        "SELECT * FROM scattered WHERE k + 1 = 150078",
        "SELECT * FROM small WHERE k = 7",
    )
    assert warned(place, session, *statements) == []


def test_the_values_of_retractions_are_none_of_the_query(place, session):
    """A consolidation looks for them by filters of its own."""
    place.sql(f"CREATE TABLE changed AS {SCATTERED}")
    place.sql("DELETE FROM changed WHERE k IN (17, 150018)")
    place.sql("UPDATE changed SET g = 7 WHERE k IN (18, 150019)")
    (told,) = warned(place, session, "SELECT * FROM changed WHERE v = 'x55555'")
    assert told.endswith("`changed` (`v`).")
    place.sql("DROP TABLE changed")


def test_each_part_of_a_query_is_looked_at(place, session):
    """In a join and in a subquery; with several columns, as one piece of advice."""
    found = warned(
        place,
        session,
        "SELECT a.v FROM scattered a JOIN scattered b ON a.k = b.k"
        " WHERE a.v = 'x55555' AND a.g = 1",
        "SELECT (SELECT max(k) FROM scattered WHERE v = 'x44444') AS found",
    )
    wanted = [f"{INDEX} `{place.schema}`.`scattered` ({keys})." for keys in KEYS]
    assert [text.partition("1. ")[2] for text in found] == wanted
