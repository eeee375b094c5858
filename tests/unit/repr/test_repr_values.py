"""Change batches, counted antichains, ids, read policies."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.repr.change_batch import ChangeBatch, MutableAntichain
from slackwater.repr.errors import FatalError, SlackwaterError
from slackwater.repr.frontier import EMPTY_FRONTIER, Frontier, Timestamp
from slackwater.repr.ids import (
    introspection_source_index_id,
    is_system,
    is_transient,
    is_user,
    system_id,
    user_id,
)
from slackwater.repr.read_policy import (
    DROPPED,
    STEP_BACK,
    LagWriteFrontier,
    NoPolicy,
    ValidFrom,
    advance_by_policy,
)
from slackwater.repr.relation import DIFF_COLUMN, TIME_COLUMN, Column, RelationDesc, stored_column


def at(time):
    return Frontier(time)


def test_a_change_batch_is_consolidated():
    batch = ChangeBatch([(Timestamp(3), 1), (Timestamp(1), 2), (Timestamp(3), -1)])
    assert list(batch.items()) == [(1, 2)]
    batch.update(Timestamp(1), -2)
    assert batch.is_empty
    assert batch.only_releases
    assert ChangeBatch.move(at(5), at(5)).is_empty
    assert list(ChangeBatch.move(at(5), EMPTY_FRONTIER).items()) == [(5, -1)]
    assert ChangeBatch.move(at(5), at(7)) == ChangeBatch([(Timestamp(7), 1), (Timestamp(5), -1)])
    assert not ChangeBatch.move(at(5), at(7)).only_releases


def test_an_antichain_says_how_its_frontier_moves_and_refuses_what_is_no_multiset():
    counted = MutableAntichain()
    assert counted.frontier == EMPTY_FRONTIER
    counted.install(at(4))
    assert counted.apply(ChangeBatch([(Timestamp(6), 2)])).is_empty
    assert counted.apply(ChangeBatch([(Timestamp(4), -1)])) == ChangeBatch.move(at(4), at(6))
    for wrong in ([(Timestamp(5), 1)], [(Timestamp(6), -3)], [(Timestamp(9), -1)]):
        with pytest.raises(FatalError):
            counted.apply(ChangeBatch(wrong))
    with pytest.raises(FatalError):
        counted.install(at(9))
    assert list(counted.items()) == [(6, 2)]
    assert counted.apply(ChangeBatch([(Timestamp(6), -2)])) == ChangeBatch([(Timestamp(6), -1)])
    assert counted.frontier == EMPTY_FRONTIER


def test_an_antichain_forgets_times_behind_an_old_one():
    counted = MutableAntichain()
    counted.install(at(0))
    for time in range(1, 10_000):
        counted.apply(ChangeBatch.move(at(time - 1) if time > 1 else EMPTY_FRONTIER, at(time)))
    assert list(counted.items()) == [(0, 1), (9_999, 1)]
    assert len(counted._heap) < 200


def test_families_of_ids():
    ids = [system_id(1), introspection_source_index_id(2), user_id(3), "t4"]
    assert ids == ["s1", "si2", "u3", "t4"]
    assert [is_system(each) for each in ids] == [True, True, False, False]
    assert [is_user(each) for each in ids] == [False, False, True, False]
    assert [is_transient(each) for each in ids] == [False, False, False, True]


def test_policies_have_the_formulas_of_the_specification():
    assert NoPolicy(at(3)).frontier(at(9)) == at(3)
    assert ValidFrom(at(3)).frontier(at(9)) == at(3)
    assert DROPPED.frontier(at(9)) == EMPTY_FRONTIER
    assert LagWriteFrontier(0, 0).frontier(at(5)) == at(5)
    assert LagWriteFrontier(0, 7).frontier(at(5)) == at(5)
    assert LagWriteFrontier(3, 1).frontier(at(10)) == at(7)
    assert LagWriteFrontier(30, 1).frontier(at(10)) == at(0)
    assert LagWriteFrontier(1000, 100).frontier(at(5_678)) == at(4_600)
    # A granularity above the lag would keep more history than was asked for.
    assert LagWriteFrontier(10, 1000).frontier(at(5_678)) == at(5_660)
    assert STEP_BACK.frontier(at(0)) == at(0)
    assert STEP_BACK.frontier(at(10)) == at(9)
    for policy in (STEP_BACK, LagWriteFrontier(0, 0), LagWriteFrontier(9, 2)):
        assert policy.frontier(EMPTY_FRONTIER) == at(0)


def test_policies_that_would_drop_or_divide_by_zero_cannot_be_made():
    with pytest.raises(ValueError, match="granularity"):
        LagWriteFrontier(1, 0)
    with pytest.raises(ValueError, match="negative"):
        LagWriteFrontier(-1, 1)


def test_a_policy_never_wins_back_history():
    assert advance_by_policy(at(7), ValidFrom(at(3)), at(9)) == at(7)
    assert advance_by_policy(at(7), STEP_BACK, EMPTY_FRONTIER) == at(7)
    assert advance_by_policy(at(7), STEP_BACK, at(20)) == at(19)


def test_a_column_under_another_name_has_its_collations():
    metadata = {"comment": "c", "__COLLATIONS": {"t.element": "spark.UTF8_LCASE"}}
    texts = {"type": "array", "elementType": "string", "containsNull": True}
    column = Column("t", json.dumps(texts), metadata_json=json.dumps(metadata))
    renamed = column.renamed("other")
    assert (renamed.name, renamed.type_json) == ("other", column.type_json)
    assert json.loads(renamed.metadata_json) == {
        "comment": "c",
        "__COLLATIONS": {"other.element": "spark.UTF8_LCASE"},
    }
    assert Column("t", '"long"').renamed("u") == Column("u", '"long"')


def test_what_rows_cause_is_a_data_error_whatever_its_state():
    pattern = SlackwaterError(
        "INVALID_FORMAT.ESC_IN_THE_MIDDLE", "42601", "a pattern in a column", {}
    )
    assert pattern.is_data_error
    assert not SlackwaterError("PARSE_SYNTAX_ERROR", "42601", "a query", {}).is_data_error


@pytest.mark.parametrize(
    ("name", "stored"),
    [
        ("__time", "__time'"),
        ("__DIFF", "__DIFF'"),
        ("__Time'", "__Time''"),
        ("__t\u0131me", "__t\u0131me'"),
        ("__d\u0130FF'", "__d\u0130FF" + "'" * 2),
        ("time", "time"),
        ("__time_", "__time_"),
        ("'__time", "'__time"),
        ("__time' ", "__time' "),
        ("__diff\n", "__diff\n"),
        ("__row", "__row"),
        ("a'", "a'"),
        ("", ""),
    ],
)
def test_columns_that_may_be_taken_for_ours_have_other_names_in_files(name, stored):
    assert stored_column(name) == stored
    desc = RelationDesc.of(**{name: "integer"})
    assert desc.arrow_schema().names == [stored]
    assert desc.update_schema().names == [stored, TIME_COLUMN, DIFF_COLUMN]


near_ours = st.from_regex(r"_{1,3}([tT][iI\u0130\u0131][mM][eE]|[dD]i[fF]f)'{0,3}\n?")


@given(st.lists(st.one_of(near_ours, st.text(max_size=3)), unique_by=str.casefold))
def test_no_two_columns_have_the_same_name_in_files(names):
    stored = [stored_column(name).casefold() for name in names]
    assert len(set(stored)) == len(names)
    assert not {TIME_COLUMN, DIFF_COLUMN} & set(stored)
