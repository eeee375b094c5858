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


@pytest.fixture
def scattered(workplace):
    workplace.sql(f"CREATE TABLE scattered AS {SCATTERED}")
    return workplace


def warned(place, *statements):
    """The texts of the warnings that the statements give in Python."""
    found = place.python(f"{WARNED}result = warned(*{statements!r})")
    assert all(each[1:] == ["SlackwaterNotice", LINE] for each in found), found
    return [each[0] for each in found]


def test_a_notice_is_a_warning_at_the_line_of_its_statement(workplace):
    assert warned(workplace, "BEGIN", "BEGIN", "COMMIT") == [
        "There is a transaction in progress already."
    ]


def test_a_warning_that_is_an_error_ends_no_statement(workplace):
    workplace.sql("CREATE VIEW v AS SELECT 1 AS k")
    statements = ("BEGIN", "BEGIN", "COMMIT", "DROP VIEW v", "DROP MATERIALIZED VIEW IF EXISTS v")
    code = f"{WARNED}result = warned(*{statements!r}, filtered='error')"
    assert workplace.python(code) == []
    codes = [code for _, code, *_ in workplace.rows("SHOW NOTICES")]
    assert codes[-2:] == ["25001", "42704"], "both were said"
    assert workplace.rows("SHOW VIEWS") == []


def test_notices_are_values(workplace):
    code = """
import slackwater
spark.sql("DROP MATERIALIZED VIEW IF EXISTS `no <b>such`").collect()
last = slackwater.notices(spark)[-1]
result = [last.severity, last.code, last.message, last.hint, str(last)]
"""
    severity, code, message, hint, text = workplace.python(code)
    assert (severity, code, hint) == ("NOTICE", "42704", "")
    assert "no <b>such" in message
    assert text == message


@pytest.mark.parametrize("action", ["collect()", "show()", "head(3)", "toPandas()", "toArrow()"])
def test_a_scan_that_keeps_little_is_advised_an_index(scattered, action):
    query = "SELECT * FROM scattered WHERE k = 77"
    code = LATER.format(query=query, action=action, patience=PATIENCE)
    (told,) = scattered.python(code)
    assert told == (
        f"The query has read 300,000 rows of slackwater.{scattered.schema}.scattered to find 1."
        f" {INDEX} `{scattered.schema}`.`scattered` (`k`)."
    )


def test_advice_has_a_row_that_says_what_to_run(scattered):
    """The statement of the notice is one, and with its index the query is as it should be."""
    scattered.sql("SELECT v FROM scattered WHERE k IN (77, 78)")
    (row,) = scattered.rows(
        "SELECT hint, action, action_type FROM mz_internal.mz_notices n JOIN mz_catalog.mz_objects"
        " o ON n.object_id = o.id WHERE o.name = 'scattered' AND contains(action, current_schema())"
    )
    hint, action, action_type = row
    assert action in hint
    assert action_type == "sql_statements"
    scattered.sql(action)
    assert len(scattered.rows("SHOW INDEXES ON scattered")) == 1
    before = len(scattered.rows("SHOW NOTICES"))
    assert warned(scattered, "SELECT v FROM scattered WHERE k = 79") == []
    assert len(scattered.rows("SHOW NOTICES")) == before


def test_a_query_that_needs_its_scan_gets_no_advice(scattered):
    """Most rows, a condition that no key can have, few rows of a small table."""
    scattered.sql("CREATE TABLE small AS SELECT id AS k FROM range(1000)")
    assert (
        warned(
            scattered,
            "SELECT count(*) FROM scattered WHERE g = 1",
            "SELECT * FROM scattered WHERE k > 300005",
            "SELECT * FROM scattered WHERE k + 1 = 78",
            "SELECT * FROM small WHERE k = 7",
        )
        == []
    )


def test_each_part_of_a_query_is_looked_at(scattered):
    """In a join and in a subquery; with several columns, as one piece of advice."""
    found = warned(
        scattered,
        "SELECT a.v FROM scattered a JOIN scattered b ON a.k = b.k WHERE a.v = 'x1' AND a.g = 1",
        "SELECT (SELECT max(k) FROM scattered WHERE v = 'x5') AS found",
    )
    wanted = [f"{INDEX} `{scattered.schema}`.`scattered` ({keys})." for keys in KEYS]
    assert [text.partition("1. ")[2] for text in found] == wanted
