"""When a view is recomputed although it has a program."""

from __future__ import annotations

import pytest

from slackwater.compute.choice import FOLLOWED_ROWS, Costs, changed_rows
from slackwater.persist.parts import InlineBody, Part

MANY = 10 * FOLLOWED_ROWS


@pytest.mark.parametrize("rows", [0, 1, FOLLOWED_ROWS, 1000 * FOLLOWED_ROWS])
def test_few_changes_are_always_followed(rows):
    costs = Costs()
    costs.ticked(MANY, 10**12)
    assert not costs.recompute(FOLLOWED_ROWS - 1, rows)


def test_a_table_that_is_filled_or_emptied_at_once_is_read_as_a_whole():
    assert Costs().recompute(MANY, MANY)
    assert Costs().recompute(MANY, 0)
    assert not Costs().recompute(MANY, 100 * MANY)


def test_what_was_measured_decides():
    costs = Costs()
    costs.ticked(MANY, MANY)
    assert not costs.recompute(MANY, MANY)
    costs.filled(MANY, 0)
    costs.computed(MANY, MANY // 2)
    assert costs.recompute(MANY, MANY)
    costs.computed(MANY, 2 * MANY)
    assert not costs.recompute(MANY, MANY)
    costs.ticked(MANY, 3 * MANY)
    assert costs.recompute(MANY, MANY)


def test_what_is_small_says_nothing_of_what_is_large():
    costs = Costs()
    for tell in (costs.ticked, costs.computed, costs.filled):
        tell(FOLLOWED_ROWS - 1, 10**12)
    for rows in (0, MANY, 10 * MANY, 100 * MANY):
        assert costs.recompute(MANY, rows) == Costs().recompute(MANY, rows)


def test_reading_goes_on_while_it_costs_less_and_is_tried_again_where_it_cost_more():
    costs = Costs()
    costs.read(50)
    assert not costs.recompute_and_not_read()
    costs.computed(1, 100)
    assert not costs.recompute_and_not_read()
    costs.read(150)
    tries = 0
    while costs.recompute_and_not_read():
        costs.computed(1, 100)
        tries += 1
    assert 2 < tries < 20


def test_to_recompute_may_take_twice_what_it_was_expected_to():
    costs = Costs()
    assert costs.most_whole_us(0) == 0
    assert costs.most_whole_us(100 * MANY) == 200 * MANY * costs.whole_us_per_row
    costs.computed(MANY, 50 * MANY)
    assert costs.most_whole_us(MANY) == 100 * MANY


def spanning(first, last, rows):
    return Part(1, 1, 0, 100, InlineBody(b""), rows, first, last, False)


def test_what_changes_at_one_time_is_counted_where_parts_say_when():
    parts = [spanning(7, 7, 5), spanning(3, 3, 1), spanning(7, 7, 2)]
    assert changed_rows(parts) == [(3, 1), (7, 7)]
    assert changed_rows([*parts, spanning(4, 7, 9)]) == [(3, 1)]
    assert changed_rows([*parts, spanning(1, 2, 9)]) == [(3, 1), (7, 7)]
    assert changed_rows([]) == []
