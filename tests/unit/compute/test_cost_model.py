"""When a view is recomputed although it has a program."""

from __future__ import annotations

import pytest

from slackwater.compute.cost_model import INCREMENTAL_BELOW_ROWS, CostModel, changed_rows
from slackwater.persist.parts import InlineBody, Part

MANY = 10 * INCREMENTAL_BELOW_ROWS


@pytest.mark.parametrize("rows", [0, 1, INCREMENTAL_BELOW_ROWS, 1000 * INCREMENTAL_BELOW_ROWS])
def test_few_changes_are_always_followed(rows):
    cost_model = CostModel()
    cost_model.ticked(MANY, 10**12)
    assert not cost_model.recompute(INCREMENTAL_BELOW_ROWS - 1, rows)


def test_a_table_that_is_filled_or_emptied_at_once_is_read_as_a_whole():
    assert CostModel().recompute(MANY, MANY)
    assert CostModel().recompute(MANY, 0)
    assert not CostModel().recompute(MANY, 100 * MANY)


def test_what_was_measured_decides():
    cost_model = CostModel()
    cost_model.ticked(MANY, MANY)
    assert not cost_model.recompute(MANY, MANY)
    cost_model.hydrated(MANY, 0)
    cost_model.computed(MANY, MANY // 2)
    assert cost_model.recompute(MANY, MANY)
    cost_model.computed(MANY, 2 * MANY)
    assert not cost_model.recompute(MANY, MANY)
    cost_model.ticked(MANY, 3 * MANY)
    assert cost_model.recompute(MANY, MANY)


def test_what_is_small_says_nothing_of_what_is_large():
    cost_model = CostModel()
    for tell in (cost_model.ticked, cost_model.computed, cost_model.hydrated):
        tell(INCREMENTAL_BELOW_ROWS - 1, 10**12)
    for rows in (0, MANY, 10 * MANY, 100 * MANY):
        assert cost_model.recompute(MANY, rows) == CostModel().recompute(MANY, rows)


def test_reading_goes_on_while_it_costs_less_and_is_tried_again_where_it_cost_more():
    cost_model = CostModel()
    cost_model.read(50)
    assert not cost_model.recompute_and_not_read()
    cost_model.computed(1, 100)
    assert not cost_model.recompute_and_not_read()
    cost_model.read(150)
    tries = 0
    while cost_model.recompute_and_not_read():
        cost_model.computed(1, 100)
        tries += 1
    assert 2 < tries < 20


def test_to_recompute_may_take_twice_what_it_was_expected_to():
    cost_model = CostModel()
    assert cost_model.most_whole_us(0) == 0
    assert cost_model.most_whole_us(100 * MANY) == 200 * MANY * cost_model.whole_us_per_row
    cost_model.computed(MANY, 50 * MANY)
    assert cost_model.most_whole_us(MANY) == 100 * MANY


def spanning(first, last, rows):
    return Part(1, 1, 0, 100, InlineBody(b""), rows, first, last, False)


def test_what_changes_at_one_time_is_counted_where_parts_say_when():
    parts = [spanning(7, 7, 5), spanning(3, 3, 1), spanning(7, 7, 2)]
    assert changed_rows(parts) == [(3, 1), (7, 7)]
    assert changed_rows([*parts, spanning(4, 7, 9)]) == [(3, 1)]
    assert changed_rows([*parts, spanning(1, 2, 9)]) == [(3, 1), (7, 7)]
    assert changed_rows([]) == []
