"""The tour: one function for each chapter, in the order in which they are shown."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slackwater.demo.data import Data, move_into
from slackwater.demo.display import Display
from slackwater.demo.plain import SCHEMAS, Plain, read_csv, sorted_rows
from slackwater.demo.scripts import fill, literal, read_script
from slackwater.demo.stage import NEW_NAME, RENAMED, SINGLE_DAYS, Stage, in_steps, ms_since, spread
from slackwater.demo.watch import DEADLINE_S, TooSlowError, Watch

VIEWS = ("carrier_days", "carriers", "fleet", "rain", "destinations")


@dataclass(frozen=True, slots=True)
class Moment:
    """A time of the past, in milliseconds, and the number of flights then."""

    time_ms: int
    flights: int


@dataclass(slots=True)
class Figures:
    """The measurements, in milliseconds."""

    file_to_view: list[float] = field(default_factory=list)
    write_to_view: list[float] = field(default_factory=list)
    recompute: dict[str, float] = field(default_factory=dict)


class Tour:
    """Runs the chapters on one session. `feed` and `out` are existing, empty folders."""

    def __init__(self, spark: Any, data: Data, feed: Path, out: Path, display: Display) -> None:
        self._spark = spark
        self._data = data
        self._feed = feed
        self._out = out
        self._display = display
        self._stage = Stage(spark, read_script("schema", "statements"), display)
        self._queries = read_script("queries")
        self._plain = Plain(spark, data.references, feed)
        self._figures = Figures()
        self._fed = 0

    def run(self) -> None:
        """Runs every chapter. Checks that fail are recorded in the display."""
        self._collections()
        self._views()
        watch = Watch(self._stage.session(), "slackwater.demo.carriers", "flights")
        try:
            past = self._feed_days(watch)
            self._changes(watch)
        finally:
            watch.close()
        self._read_the_past(past)
        self._explain()
        self._sink()
        self._compare()
        self._summary()

    def _collections(self) -> None:
        self._display.chapter("Tables with reference data, and files that become a source")
        self._stage.clear()
        for name in ("airlines", "airports", "planes", "weather"):
            self._stage.run(name)
        for name, schema in SCHEMAS.items():
            self._display.say(
                f"python> spark.read.csv('{name}.csv', ...).writeTo('{name}').append()"
            )
            path = self._data.references / f"{name}.csv"
            read_csv(self._spark, path, schema).writeTo(f"slackwater.demo.{name}").append()
        self._stage.run("flights", feed=literal(str(self._feed)))

    def _views(self) -> None:
        self._display.chapter("Views that are kept up to date, one of them over another")
        names = {name: name for name in ("flights", *SCHEMAS, "carrier_days")}
        for view in VIEWS:
            self._stage.run(view, query=fill(self._queries[view], **names))

    def _feed_days(self, watch: Watch) -> Moment:
        days = self._data.days
        self._display.chapter(f"{len(days)} days of flights arrive, {self._data.flights} in all")
        steps = in_steps(days)
        past = Moment(0, 0)
        with self._display.progress("days", len(days)) as advance:
            for number, step in enumerate(steps):
                began = time.perf_counter()
                self._fed += move_into(step, self._feed)
                if number < SINGLE_DAYS:
                    watch.wait_for(self._fed)
                    self._figures.file_to_view.append(ms_since(began))
                else:
                    self._read_while_moving()
                    watch.wait_for(self._fed)
                advance(len(step), f"{self._fed} flights in the view")
                if number == min(SINGLE_DAYS, len(steps)) - 1:
                    row = self._spark.sql(self._stage.statements["now"]).collect()[0]
                    past = Moment(row["time"], row["flights"])
        self._display.say("A view and its own inputs, read together while they change, agree:")
        self._stage.run("consistent")
        self._display.check(
            "the view has every flight that was fed", watch.total == self._data.flights
        )
        return past

    def _read_while_moving(self) -> None:
        """Joins the view with its inputs while a change is under way."""
        row = self._spark.sql(self._stage.statements["consistent"]).collect()[0]
        if row["differences"] != 0:
            self._display.check("the view agrees with its inputs at every moment", False, str(row))

    def _changes(self, watch: Watch) -> None:
        self._display.chapter("Reference data changes, and SUBSCRIBE sees what that does")
        began = time.perf_counter()
        self._stage.run("rename_airline", name=NEW_NAME)
        rows = self._stage.run("read_airline")
        self._figures.write_to_view.append(ms_since(began))
        self._display.check(
            "a read after the UPDATE sees it, two views further",
            [row["airline"] for row in rows] == [NEW_NAME],
        )
        self._display.say("python> slackwater.subscribe(spark, 'slackwater.demo.carriers')")
        updates = watch.wait_for_row("airline", NEW_NAME)
        self._display.rows(list(updates[0]), [list(update.values()) for update in updates])
        for name in ("begin", "new_airline", "new_plane", "commit", "scrap_planes", "merge_planes"):
            self._stage.run(name)
        self._measure_writes()
        self._plain.change(NEW_NAME)

    def _measure_writes(self) -> None:
        """Renames the airline to and fro; measures from the statement to the answer of a read."""
        for name in ("US Airways Inc.", NEW_NAME) * RENAMED:
            began = time.perf_counter()
            self._spark.sql(fill(self._stage.statements["rename_airline"], name=name)).collect()
            rows = self._spark.sql(self._stage.statements["read_airline"]).collect()
            self._figures.write_to_view.append(ms_since(began))
            if [row["airline"] for row in rows] != [name]:
                self._display.check("a read after a write sees it", False, str(rows))

    def _read_the_past(self, past: Moment) -> None:
        self._display.chapter("AS OF: every collection of a query at one time of the past")
        row = self._stage.run("then", time=past.time_ms)[0]
        self._display.check(
            f"at {past.time_ms} the view and the source had {past.flights} flights",
            tuple(row) == (past.flights, past.flights),
            str(row),
        )

    def _explain(self) -> None:
        self._display.chapter("EXPLAIN: at which time, and how a view is maintained")
        rows = self._stage.run("explain_timestamp", show=False)
        self._display.text("\n".join(str(row[0]) for row in rows))
        rows = self._stage.run("explain_incremental")
        self._display.check(
            "no part of the view is recomputed",
            bool(rows) and all(row["maintenance"] != "recompute" for row in rows),
        )

    def _sink(self) -> None:
        self._display.chapter("A sink: every change once, in files that others can read")
        self._stage.run("sink", sink=literal(str(self._out)))
        now = self._spark.sql(self._stage.statements["now"]).collect()[0]["time"]
        manifest = _wait_for_manifest(self._out / "manifest.json", now)
        self._display.text(json.dumps(manifest, indent=1)[:800])
        found = _contents(self._out, manifest, now)
        rows = self._spark.sql(f"SELECT * FROM carriers AS OF {now}").collect()
        wanted = Counter(json.dumps(row.asDict(), sort_keys=True) for row in rows)
        self._display.check("the sink's files add up to the view", found == wanted)

    def _compare(self) -> None:
        self._display.chapter("Each view against a recomputation: plain Spark over the CSV files")
        names = {name: name for name in ("flights", *SCHEMAS)}
        names["carrier_days"] = f"({fill(self._queries['carrier_days'], **names)})"
        for view in VIEWS:
            kept = sorted_rows(self._spark.sql(f"SELECT * FROM {view}").collect())
            wanted = self._plain.rows(view)
            self._stage.compare(view, kept, wanted)
            query = fill(self._queries[view], **names)
            self._spark.sql(query).collect()
            began = time.perf_counter()
            again = sorted_rows(self._spark.sql(query).collect())
            self._figures.recompute[view] = ms_since(began)
            if again != wanted:
                self._display.check(f"{view}: its query over the collections", False)

    def _summary(self) -> None:
        self._display.chapter("How long a change took to be visible")
        figures = self._figures
        rows = [
            ["a file in the folder → in a view of a view", *spread(figures.file_to_view)],
            [
                "UPDATE and the read that sees it, two views further",
                *spread(figures.write_to_view),
            ],
        ]
        for view, took in figures.recompute.items():
            rows.append([f"recomputing {view} from the collections, warm", f"{took:.0f} ms", ""])
        self._display.rows(["what", "median", "slowest"], rows)


def _wait_for_manifest(path: Path, beyond_ms: int) -> dict[str, Any]:
    """The sink's manifest once its frontier is beyond a time. Raises TooSlowError."""
    pause = threading.Event()
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        if path.exists():
            manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            if manifest["frontier"] > beyond_ms:
                return manifest
        pause.wait(0.02)
    raise TooSlowError(f"{path} does not get beyond {beyond_ms}")


def _contents(folder: Path, manifest: dict[str, Any], as_of_ms: int) -> Counter[str]:
    """The rows that the updates up to a time add up to."""
    rows: Counter[str] = Counter()
    for entry in manifest["files"]:
        for line in (folder / entry["path"]).read_text(encoding="utf-8").splitlines():
            update = json.loads(line)
            time_ms, diff = update.pop("mz_timestamp"), update.pop("mz_diff")
            if time_ms <= as_of_ms:
                rows[json.dumps(update, sort_keys=True)] += diff
    return Counter({row: count for row, count in rows.items() if count})
