"""The demo's data and scripts, without Spark."""

from __future__ import annotations

from importlib import resources

import pytest

from slackwater.demo import broker
from slackwater.demo.data import REFERENCES, move_into, unpack
from slackwater.demo.scripts import fill, literal, read_script
from slackwater.demo.stage import DAYS_AT_ONCE, SINGLE_DAYS, in_steps
from slackwater.demo.topic_tour import OLD_NAME
from slackwater.demo.topics import airlines_of, flights_of
from slackwater.demo.tour import VIEWS


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
    steps = in_steps(data.days)
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


def test_the_broker_of_the_demo_is_the_one_of_its_dependencies():
    wanted = (resources.files("slackwater") / "demo" / "kafka.xml").read_text()
    assert f'name="kafka_2.13" rev="{broker.VERSION}"' in wanted


def test_a_folder_without_the_broker_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv(broker.FOLDER, str(tmp_path))
    with pytest.raises(broker.BrokerMissingError, match=f"has no Kafka {broker.VERSION}"):
        broker.fetched_jars(print)


def test_flights_and_airlines_are_messages(data):
    day = data.days[0]
    flights = flights_of(day.path)
    assert len(flights) == day.flights
    assert flights[0] == (
        "UA1545",
        {"carrier": "UA", "month": 1, "day": 1, "dep_time": 517, "dep_delay": 2, "distance": 1400},
    )
    assert any(row["dep_time"] is None for _, row in flights)
    airlines = airlines_of(data.references / "airlines.csv")
    assert ("US", {"name": OLD_NAME}) in airlines
