"""Kills the coordinator or the driver at random moments while clients write and replace tables.

After each kill: every acknowledged write is there exactly once, no transaction is half there, a
table that was being replaced is the old one or the new one, and every view equals a recomputation.
Writers read what they wrote by indexes, on a table and on a plain view, in between as well.
Before a kill some rows are written, on a slow machine too; the loop goes on until it has killed a
few times, and enough was written.
`SLACKWATER_CHAOS_SECONDS` and `SLACKWATER_CHAOS_SEED` make it longer, or repeat a run.
"""

from __future__ import annotations

import itertools
import os
import random
import threading
import time
from collections import Counter

import pytest
from tests.support.applications.application import Application, Gone, SqlError, coordinators, kill
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.spark

SECONDS = float(os.environ.get("SLACKWATER_CHAOS_SECONDS", "20"))
SEED = int(os.environ.get("SLACKWATER_CHAOS_SEED", "20130101"))
WRITERS = 2
KILLS = 3
SINGLES = 20
MOST_BEFORE = 10
"""So many single rows are written before a kill, or fewer."""
UNCERTAIN = ("SLACKWATER_STATEMENT_INTERRUPTED", "SLACKWATER_COORDINATOR_UNAVAILABLE")
SAID_NOTHING_HAPPENED = (
    "SLACKWATER_CONCURRENT_CHANGE",
    "SLACKWATER_FENCED",
    "SLACKWATER_LOCK_LOST",
    "SLACKWATER_TRANSACTION_LOST",
)

VIEWS = {
    "totals": "SELECT writer, count(*) AS n, sum(x) AS x FROM singles GROUP BY writer",
    "pairs": "SELECT l.id, l.x AS a, r.x AS b FROM lefts l JOIN rights r ON l.id = r.id",
    "balance": "SELECT count(*) AS n, sum(a - b) AS difference FROM pairs",
    "biggest": "SELECT writer, max(x) AS x FROM singles GROUP BY writer",
    "ages": "SELECT g, count(*) AS n FROM refilled GROUP BY g",
}

INDEXED = {
    "single": ("singles", "SELECT count(*) FROM singles WHERE id = {}", 1),
    "pair": ("pairs_now", "SELECT sum(a - b) FROM pairs_now WHERE id = {}", 0),
}
"""For each kind of write what has an index on `id`, a read by it, and what has to come back."""

REPLACED = ("refilled", "remade")
REPLACED_ROWS = 100


class Writer(threading.Thread):
    """Writes single rows and transactions of two tables until it is told to stop or is cut off.

    `acknowledged` and `uncertain` are ids; an id is in neither when the product said that nothing
    was written.
    """

    def __init__(self, application, name, ids):
        super().__init__(daemon=True)
        self._application = application
        self._name = name
        self._ids = ids
        self.stop = threading.Event()
        self.acknowledged = {"single": set(), "pair": set()}
        self.uncertain = {"single": set(), "pair": set()}
        self.surprises = []

    def run(self):
        while not self.stop.is_set():
            number = next(self._ids)
            kind = "pair" if number % 3 == 0 else "single"
            try:
                self._write(kind, number)
                self.acknowledged[kind].add(number)
                self._read_back(kind, number)
            except (Gone, TimeoutError):
                self.uncertain[kind].add(number)
                return
            except SqlError as error:
                self._failed(kind, number, error)

    def _read_back(self, kind, number):
        """Reads by the index what was just written."""
        _, text, expected = INDEXED[kind]
        try:
            found = self._application.value(text.format(number), session=self._name)
        except SqlError as error:
            if error.condition not in UNCERTAIN:
                self.surprises.append(str(error))
            return
        if found != expected:
            self.surprises.append(f"{text.format(number)} is {found}")

    def _failed(self, kind, number, error):
        if error.condition in UNCERTAIN:
            self.uncertain[kind].add(number)
        elif error.condition not in SAID_NOTHING_HAPPENED:
            self.surprises.append(str(error))
            self.uncertain[kind].add(number)
        if kind == "pair":
            try:
                self._sql("ROLLBACK")
            except (SqlError, Gone, TimeoutError):
                self.stop.wait(0.01)

    def _write(self, kind, number):
        if kind == "single":
            self._sql(f"INSERT INTO singles VALUES ({number}, '{self._name}', {number % 100})")
            return
        self._sql("BEGIN")
        self._sql(f"INSERT INTO lefts VALUES ({number}, {number})")
        self._sql(f"INSERT INTO rights VALUES ({number}, {number})")
        self._sql("COMMIT")

    def _sql(self, text):
        self._application.sql(text, session=self._name)


class Replacer(threading.Thread):
    """Replaces tables by their own next generation, with equal and with other columns.

    `generations` says for each table between which ones it has to be; it outlives the thread.
    """

    def __init__(self, application, generations, numbers):
        super().__init__(daemon=True)
        self._application = application
        self._numbers = numbers
        self.generations = generations
        self.stop = threading.Event()
        self.surprises = []

    def run(self):
        while not self.stop.is_set():
            more = {"refilled": "", "remade": f", 'x' AS v{next(self._numbers)}"}
            for name, columns in more.items():
                if not self._replace(name, f"SELECT g + 1 AS g, i{columns} FROM {name}"):
                    return
            # The writers are to get on as well.
            self.stop.wait(0.1)

    def _replace(self, name, query):
        low, high = self.generations[name]
        try:
            text = f"CREATE OR REPLACE TABLE {name} AS {query}"
            self._application.sql(text, session="replacer")
            self.generations[name] = (low + 1, high + 1)
        except (Gone, TimeoutError):
            self.generations[name] = (low, high + 1)
            return False
        except SqlError as error:
            if error.condition not in SAID_NOTHING_HAPPENED:
                self.generations[name] = (low, high + 1)
                if error.condition not in UNCERTAIN:
                    self.surprises.append(str(error))
        return True


def ids_of(start):
    number = start
    while True:
        yield number
        number += WRITERS


def open_application(location, writers):
    application = Application(location)
    for session in ("main", "replacer", *writers):
        application.sql("USE slackwater.default", session=session)
    return application


def create(application):
    application.sql("CREATE TABLE singles (id INT, writer STRING, x INT)")
    application.sql("CREATE TABLE lefts (id INT, x INT)")
    application.sql("CREATE TABLE rights (id INT, x INT)")
    for name in REPLACED:
        rows = f"SELECT 0 AS g, cast(id AS INT) AS i FROM range({REPLACED_ROWS})"
        application.sql(f"CREATE TABLE {name} AS {rows}")
    for name, query in VIEWS.items():
        application.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    application.sql(f"CREATE VIEW pairs_now AS {VIEWS['pairs']}")
    for name, _, _ in INDEXED.values():
        application.sql(f"CREATE INDEX ON {name} (id)")


def verify(application, writers):
    """Compares the tables with what the writers were told, and the views with their queries."""
    found = {
        "single": Counter(row[0] for row in application.rows("SELECT id FROM singles")),
        "pair": Counter(row[0] for row in application.rows("SELECT id FROM lefts")),
    }
    rights = Counter(row[0] for row in application.rows("SELECT id FROM rights"))
    assert found["pair"] == rights, "half a transaction"
    for kind, ids in found.items():
        twice = [number for number, count in ids.items() if count != 1]
        assert twice == [], f"{kind} more than once"
        acknowledged = set().union(*(writer.acknowledged[kind] for writer in writers))
        uncertain = set().union(*(writer.uncertain[kind] for writer in writers))
        assert acknowledged - set(ids) == set(), f"acknowledged {kind} lost"
        assert set(ids) - acknowledged - uncertain == set(), f"{kind} that nobody wrote"
    for name, query in VIEWS.items():
        kept = f"SELECT * FROM {name}"
        difference = application.rows(
            f"({kept} EXCEPT ALL {query}) UNION ALL ({query} EXCEPT ALL {kept})"
        )
        assert difference == [], name
    assert application.value("SELECT coalesce(difference, 0) FROM balance") == 0
    for kind, (_, text, expected) in INDEXED.items():
        for number in sorted(found[kind])[-5:]:
            assert application.value(text.format(number)) == expected


def verify_replaced(application, generations):
    """Each table is whole, and of a generation that it may be of; from there it goes on."""
    for name in REPLACED:
        least, most, count, numbers = application.rows(
            f"SELECT min(g), max(g), count(*), count(DISTINCT i) FROM {name}"
        )[0]
        assert (least, count, numbers) == (most, REPLACED_ROWS, REPLACED_ROWS), f"{name} is mixed"
        low, high = generations[name]
        assert low <= least <= high, f"{name} is of a generation that it cannot be of"
        generations[name] = (least, least)


def singles(writers):
    return sum(len(writer.acknowledged["single"]) for writer in writers)


def enough(kills, writers, generations):
    """Whether it has killed a few times, enough was written, and each table was replaced."""
    replaced = all(low > 0 for low, _ in generations.values())
    return sum(kills.values()) >= KILLS and singles(writers) >= SINGLES and replaced


def write(writers, number):
    """Waits until they have written so many single rows, or none of them goes on."""
    wait_until(
        lambda: singles(writers) >= number or not any(each.is_alive() for each in writers),
        every_s=0.01,
        what=f"{number} rows",
    )


def test_kill_loop(tmp_path):
    location = tmp_path / "environment"
    choices = random.Random(SEED)
    deadline = time.monotonic() + SECONDS
    names = [f"writer{number}" for number in range(WRITERS)]
    generators = [ids_of(number) for number in range(WRITERS)]
    writers = []
    replacers = []
    generations = dict.fromkeys(REPLACED, (0, 0))
    numbers = itertools.count()
    application = open_application(location, names)
    create(application)
    kills = Counter()
    try:
        while time.monotonic() < deadline or not enough(kills, writers, generations):
            running = [Writer(application, *each) for each in zip(names, generators, strict=True)]
            writers += running
            replacers.append(Replacer(application, generations, numbers))
            threads = [*running, replacers[-1]]
            for thread in threads:
                thread.start()
            write(running, choices.randint(0, MOST_BEFORE))
            running[0].stop.wait(choices.uniform(0, 0.5))
            victim = choices.choice(["coordinator", "coordinator", "driver"])
            kills[victim] += 1
            if victim == "driver":
                application.kill()
                application = open_application(location, names)
            else:
                for pid in coordinators(location):
                    kill(pid)
                running[0].stop.wait(choices.uniform(0.1, 2))
            for thread in threads:
                thread.stop.set()
            for thread in threads:
                thread.join(PATIENCE)
                assert not thread.is_alive()
            verify(application, writers)
            verify_replaced(application, generations)
    finally:
        application.close()
    surprised = [*writers, *replacers]
    assert [surprise for each in surprised for surprise in each.surprises] == []
    wait_until(lambda: not coordinators(location), what="the coordinator's end")
