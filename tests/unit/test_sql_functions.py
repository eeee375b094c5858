"""Functions that a maintained view refuses."""

from __future__ import annotations

import pytest

from slackwater.planner.plan.functions import refuse_unmaterializable
from slackwater.planner.plan.resolution import parse_query
from slackwater.repr.errors import SlackwaterError


@pytest.mark.parametrize(
    "call",
    [
        "rand()", "randn(3)", "uuid()", "now()", "current_timestamp()", "current_timestamp",
        "current_date", "monotonically_increasing_id()", "collect_list(k)",
        "collect_set(k)", "first(k)", "any_value(k)", "last(k)", "current_user()", "shuffle(a)",
        "row_number() OVER (PARTITION BY k)", "spark_partition_id()",
        "localtimestamp()", "current_database()", "input_file_name()",
    ],
)  # fmt: skip
def test_refused_with_its_name_and_an_alternative(call):
    with pytest.raises(SlackwaterError) as caught:
        refuse_unmaterializable(parse_query(f"SELECT {call} FROM t"), "v")
    assert caught.value.condition == "SLACKWATER_UNMATERIALIZABLE_FUNCTION"
    assert call.partition("(")[0] in caught.value.message
    assert "v cannot use" in caught.value.message


@pytest.mark.parametrize("call", ["unix_timestamp()", "array_agg(k)"])
def test_other_names_of_refused_functions(call):
    with pytest.raises(SlackwaterError) as caught:
        refuse_unmaterializable(parse_query(f"SELECT {call} FROM t"), "v")
    assert caught.value.condition == "SLACKWATER_UNMATERIALIZABLE_FUNCTION"


@pytest.mark.parametrize(
    "call",
    [
        "sum(k)", "array_sort(collect_list(k))", "sort_array(collect_set(k))", "hash(k)",
        "first_value(k) OVER (PARTITION BY v ORDER BY k)", "unix_timestamp(ts)", "max(now)",
        "row_number() OVER (ORDER BY k)", "date_add(d, 1)",
    ],
)  # fmt: skip
def test_allowed(call):
    refuse_unmaterializable(parse_query(f"SELECT {call} FROM t"), "v")


def test_temporal_filters_are_refused_for_what_they_are():
    query = parse_query("SELECT * FROM t WHERE mz_now() <= unix_millis(ends)")
    with pytest.raises(SlackwaterError) as caught:
        refuse_unmaterializable(query, "v")
    assert caught.value.condition == "SLACKWATER_TEMPORAL_FILTER"
