"""The tour of topics: from a topic into views, and from a view into another topic."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slackwater.demo.broker import BrokerProcess
from slackwater.demo.data import Data, move_into
from slackwater.demo.display import Display
from slackwater.demo.plain import Plain, sorted_rows
from slackwater.demo.scripts import fill, read_script
from slackwater.demo.stage import NEW_NAME, RENAMED, SINGLE_DAYS, Stage, in_steps, ms_since, spread
from slackwater.demo.topics import Topics, airlines_of, flights_of
from slackwater.demo.watch import DEADLINE_S, Watch

VIEWS = ("carrier_days", "carriers")
OLD_NAME = "US Airways Inc."


@dataclass(frozen=True, slots=True)
class Kafka:
    """A broker that runs, and its topics."""

    process: BrokerProcess
    topics: Topics


@dataclass(slots=True)
class _Figures:
    """The measurements, in milliseconds."""

    flights: list[float] = field(default_factory=list)
    renames: list[float] = field(default_factory=list)


class TopicTour:
    """Runs the chapters on one session. `feed` is an empty folder: what was sent is moved there."""

    def __init__(self, spark: Any, data: Data, feed: Path, kafka: Kafka, display: Display) -> None:
        self._spark = spark
        self._data = data
        self._feed = feed
        self._kafka = kafka
        self._display = display
        self._stage = Stage(spark, read_script("schema", "topics"), display)
        self._queries = read_script("queries")
        self._plain = Plain(spark, data.references, feed)
        self._figures = _Figures()

    def run(self, then: Callable[[], None]) -> None:
        """Runs every chapter, and `then`. Checks that fail are recorded in the display."""
        self._sources()
        self._views()
        watch = Watch(self._stage.session(), "slackwater.demo.carriers", "flights")
        try:
            self._send_days(watch)
            self._rename(watch)
        finally:
            watch.close()
        self._read_the_sink()
        self._compare()
        self._summary()
        then()
        # The broker ends with the demo: what reads it would look for it in vain.
        self._stage.run("drop")

    def _sources(self) -> None:
        self._display.chapter("Two topics become collections")
        self._stage.clear()
        topics = self._kafka.topics
        topics.make("airlines", 1, {"cleanup.policy": "compact"})
        topics.make("flights", 3, {})
        topics.send("airlines", airlines_of(self._data.references / "airlines.csv"))
        self._stage.run("connection", address=topics.address)
        self._stage.run("airlines")
        self._stage.run("flights")

    def _views(self) -> None:
        self._display.chapter("Views over both, and a sink that writes one into a topic")
        names = {name: name for name in ("flights", "airlines", "carrier_days")}
        for view in VIEWS:
            self._stage.run(view, query=fill(self._queries[view], **names))
        self._stage.run("sink")

    def _send_days(self, watch: Watch) -> None:
        days = self._data.days
        self._display.chapter(f"{self._data.flights} flights are sent to the topic")
        sent, steps = 0, in_steps(days)
        with self._display.progress("days", len(days)) as advance:
            for number, step in enumerate(steps):
                if number == len(steps) // 2:
                    self._kill_the_broker()
                flights = [flight for day in step for flight in flights_of(day.path)]
                self._kafka.topics.send("flights", flights)
                began = time.perf_counter()
                sent += move_into(step, self._feed)
                watch.wait_for(sent)
                if number < SINGLE_DAYS:
                    self._figures.flights.append(ms_since(began))
                advance(len(step), f"{sent} flights in the view")
        self._stage.run("progress")
        self._display.check(
            "the view has every flight that was sent, once", watch.total == self._data.flights
        )

    def _kill_the_broker(self) -> None:
        self._display.say("The broker is killed, and comes back.")
        self._kafka.process.kill()
        self._kafka.process.start(self._kafka.topics.answers)

    def _rename(self, watch: Watch) -> None:
        self._display.chapter("An airline gets another name: its key gets another message")
        for name in (NEW_NAME, *(OLD_NAME, NEW_NAME) * RENAMED):
            self._send_name("US", name, watch)
        self._kafka.topics.send("airlines", [("SW", {"name": "Slackwater Air"})])
        rows = self._stage.run("read_airline")
        self._display.check(
            "a read sees the last name", [row["airline"] for row in rows] == [NEW_NAME]
        )
        self._plain.change(NEW_NAME)

    def _send_name(self, carrier: str, name: str, watch: Watch) -> None:
        watch.recent.clear()
        self._kafka.topics.send("airlines", [(carrier, {"name": name})])
        began = time.perf_counter()
        watch.wait_for_row("airline", name)
        self._figures.renames.append(ms_since(began))

    def _read_the_sink(self) -> None:
        self._display.chapter("What the sink has written, read by another client")
        rows = self._spark.sql("SELECT * FROM carriers").collect()
        wanted = {row["carrier"]: row.asDict() for row in rows}

        def is_enough(found: Mapping[str, Mapping[str, Any]]) -> bool:
            return found == wanted

        found = self._kafka.topics.last_by_key("carriers", is_enough, DEADLINE_S)
        self._display.text("\n".join(f"{key}\t{value}" for key, value in list(found.items())[:3]))
        self._display.check("the last message of each key is the row of the view", found == wanted)

    def _compare(self) -> None:
        self._display.chapter("Each view against a recomputation: plain Spark over the CSV files")
        for view in VIEWS:
            kept = sorted_rows(self._spark.sql(f"SELECT * FROM {view}").collect())
            self._stage.compare(view, kept, self._plain.rows(view))

    def _summary(self) -> None:
        self._display.chapter("How long a message took to be visible")
        figures = self._figures
        self._display.rows(
            ["from the broker's acknowledgement", "median", "slowest"],
            [
                ["a day of flights → in a view of a view", *spread(figures.flights)],
                ["a name → in a view of a view", *spread(figures.renames)],
            ],
        )
