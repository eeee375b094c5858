"""The demo's data and scripts, without Spark."""

from __future__ import annotations

import pytest

from slackwater.demo.data import REFERENCES, move_into, unpack
from slackwater.demo.scripts import fill, literal, read_script
from slackwater.demo.tour import DAYS_AT_ONCE, SINGLE_DAYS, VIEWS, _steps


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return unpack(tmp_path_factory.mktemp("demo") / "data", 365)


def test_all_flights_of_the_year(data):
    assert len(data.days) == 365
    assert data.flights == 336_776
    assert [(day.month, day.day) for day in data.days] == sorted(
        (day.month, day.day) for day in data.days
    )


def test_files_have_a_header_and_their_rows(data):
    for day in data.days[:3]:
        lines = day.path.read_text().splitlines()
        assert lines[0].startswith("year,month,day,")
        assert len(lines) == day.flights + 1


def test_references_are_there(data):
    assert sorted(path.stem for path in data.references.iterdir()) == sorted(REFERENCES)


def test_moving_renames(data, tmp_path):
    moved = data.days[-2:]
    assert move_into(moved, tmp_path) == sum(day.flights for day in moved)
    assert sorted(path.name for path in tmp_path.iterdir()) == [day.path.name for day in moved]
    assert not any(day.path.exists() for day in moved)


def test_steps_lose_no_day(data):
    steps = _steps(data.days)
    assert [day for step in steps for day in step] == list(data.days)
    assert [len(step) for step in steps[:SINGLE_DAYS]] == [1] * SINGLE_DAYS
    assert max(len(step) for step in steps) == DAYS_AT_ONCE


def test_every_view_has_a_query_and_a_statement():
    assert set(VIEWS) == set(read_script("queries"))
    assert set(VIEWS) <= set(read_script("statements"))


def test_a_placeholder_without_a_value_is_an_error():
    with pytest.raises(KeyError):
        fill(read_script("statements")["flights"])


def test_literals_are_escaped():
    assert literal("it's \\ here") == "it\\'s \\\\ here"
