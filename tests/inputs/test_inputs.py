"""Queries with which Spark tests itself, as views whose tables double, empty and come back."""

from __future__ import annotations

import pytest
from tests.inputs.__main__ import COUNTS
from tests.inputs.counts import difference, read
from tests.inputs.examine import FileShare
from tests.inputs.files import input_files, is_query

FILES = (
    "except-all.sql",
    pytest.param("subquery/in-subquery/not-in-group-by.sql", marks=pytest.mark.nightly),
)
"""`make inputs` takes all."""


@pytest.mark.spark
@pytest.mark.parametrize("name", FILES)
def test_views_of_spark_s_own_queries_are_these_queries(declared, tmp_path, name):
    (file,) = (each for each in input_files() if each.name == name)
    found = FileShare(file).examine(declared, tmp_path)
    assert found.mismatches == []
    assert found.counts.keys() == {name}
    assert difference(read(COUNTS), found.counts) == []


def test_a_statement_ends_at_its_semicolon():
    files = {each.name: each for each in input_files()}
    first, *_, last = files["cte.sql"].statements
    assert first == "create temporary view t as select * from values 0, 1, 2 as t(id)"
    assert last == "DROP TABLE IF EXISTS t4"
    assert sum(map(is_query, files["except-all.sql"].statements)) > 10
    assert files["cte-legacy.sql"].settings == {
        "spark.sql.legacy.ctePrecedencePolicy": "legacy",
    }
    assert files["cte-legacy.sql"].statements == files["cte-nested.sql"].statements
