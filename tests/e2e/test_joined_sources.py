"""Views over a topic joined with a table of PostgreSQL, while both change.

At each time the views are what a model makes of both sources at that time, and each source is what
its writer had written by some moment: messages of a partition in order, transactions whole.
"""

from __future__ import annotations

import itertools
import json
import random
import threading
from collections import Counter

import pytest
from tests.support.applications.many_relations import read_at_once
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

KEYS = 8
"""Keys of the topic are 0 to 7, those of the table 2 to 9: each side lacks some of the other's."""
SEEN = 6
"""So many steps of each source are seen, in turns, before the writers stop."""
VIEWS = {
    "matched": "SELECT m.key, m.n, m.t, r.id, r.ref, r.name FROM messages m JOIN rows r"
    " ON CAST(m.key AS INT) = r.id",
    "totals": "SELECT coalesce(m.n, r.ref) AS k, count(m.key) AS left_side, count(r.id) AS"
    " right_side, sum(r.id) AS total FROM messages m FULL OUTER JOIN rows r ON m.n = r.ref"
    " GROUP BY coalesce(m.n, r.ref)",
}
HISTORY = "RETAIN HISTORY FOR '1 hour'"
SCHEMA = (
    "SELECT schema_id FROM mz_catalog.mz_connections"
    " WHERE id IN (SELECT connection_id FROM mz_catalog.mz_sources WHERE name = 'pg_rows')"
)
"""The schema of the test: `pg_rows` is a name that no other test gives to a source."""


def matched(messages, rows):
    """The model of the first view."""
    return Counter(
        (key, n, t, i, ref, name)
        for key, n, t in messages
        for i, ref, name in rows
        if int(key) == i
    )


def totals(messages, rows):
    """The model of the second."""
    pairs = [(m, r) for m in messages for r in rows if m[1] is not None and m[1] == r[1]]
    pairs += [(m, None) for m in messages if all(m is not left for left, _ in pairs)]
    pairs += [(None, r) for r in rows if all(r is not right for _, right in pairs)]
    groups: dict[object, list[object]] = {}
    for m, r in pairs:
        key = m[1] if m is not None and m[1] is not None else None if r is None else r[1]
        groups.setdefault(key, []).append((m, r))
    return Counter(
        (
            key,
            sum(m is not None for m, _ in found),
            sum(r is not None for _, r in found),
            sum(r[0] for _, r in found if r is not None)
            if any(r is not None for _, r in found)
            else None,
        )
        for key, found in groups.items()
    )


class Writer(threading.Thread):
    """Does one step after the other until it is stopped; `states` has what each has left."""

    def __init__(self, step):
        super().__init__(daemon=True)
        self._step = step
        self._stopped = threading.Event()

    def run(self):
        while not self._stopped.wait(0.01):
            self._step()

    def stop(self):
        self._stopped.set()
        self.join()


class Messages:
    """What was sent to the topic: by partition, the contents after each message."""

    def __init__(self, producer, topic):
        self._producer, self._topic = producer, topic
        self._random = random.Random(1)
        self.states = {0: [{}], 1: [{}]}

    def step(self):
        for _ in range(self._random.randint(1, 4)):
            key = self._random.randrange(KEYS)
            partition = key % 2
            value = None
            if self._random.random() < 0.75:
                n, t = self._random.choice((None, *range(2, 10))), self._random.choice((None, "x"))
                value = {"n": n, "t": t}
            state = dict(self.states[partition][-1])
            state.pop(str(key), None)
            if value is not None:
                state[str(key)] = (str(key), value["n"], value["t"])
            self.states[partition].append(state)
            sent = None if value is None else json.dumps(value)
            self._producer.produce(self._topic, key=str(key), value=sent, partition=partition)
        assert self._producer.flush(60) == 0


class Transactions:
    """What was written to the table: the contents after each transaction."""

    def __init__(self, connection):
        self._connection = connection
        self._random = random.Random(2)
        self.states = [{}]

    def step(self):
        state = dict(self.states[-1])
        with self._connection.transaction():
            for _ in range(self._random.randint(1, 4)):
                self._statement(state)
        self.states.append(state)

    def _statement(self, state):
        number, ref = self._random.randrange(2, 10), self._random.choice((None, *range(10)))
        name = f"name {self._random.randrange(100)}"
        if number not in state:
            sql, given = "INSERT INTO rows VALUES (%s, %s, %s)", (number, ref, name)
            state[number] = (number, ref, name)
        elif self._random.random() < 0.4:
            sql, given = "DELETE FROM rows WHERE id = %s", (number,)
            del state[number]
        elif self._random.random() < 0.2:
            sql, given = "UPDATE rows SET ref = %s", (ref,)
            state.update({each: (each, ref, row[2]) for each, row in state.items()})
        else:
            sql, given = "UPDATE rows SET ref = %s, name = %s WHERE id = %s", (ref, name, number)
            state[number] = (number, ref, name)
        self._connection.execute(sql, given)


def changes_of(place, name, begin, end):
    """The changes of a relation by their times; at `begin` all that is there."""
    found: dict[int, Counter] = {}
    for time, diff, *row in place.rows(f"SUBSCRIBE {name} AS OF {begin} UP TO {end}"):
        found.setdefault(time, Counter())[tuple(row)] += diff
    return found


def is_reached(states, reached, contents):
    """The number of the first state from `reached` on that has these contents."""
    for number in range(reached, len(states)):
        if Counter(states[number].values()) == contents:
            return number
    raise AssertionError(f"{contents} is nothing that the writer has left after {reached} steps")


def both_are_seen_to_go_on(place):
    """Waits until the statistics of both sources have moved often enough, in turns."""
    seen = {"messages": [], "pg_rows": []}

    def often_enough():
        for name, received in place.rows(
            "SELECT s.name, c.messages_received FROM mz_internal.mz_source_statistics c"
            " JOIN mz_catalog.mz_sources s ON s.id = c.id WHERE s.name IN ('messages', 'pg_rows')"
            f" AND s.schema_id = ({SCHEMA})"
        ):
            if received not in seen[name]:
                seen[name].append(received)
        return all(len(each) >= SEEN for each in seen.values())

    wait_until(often_enough, every_s=0.1, what="both sources go on")


def test_views_are_the_model_of_both_sources_at_each_time(workplace, kafka, upstream):
    place, topic = workplace, kafka.new_topic(2)
    broker = f"BROKER '{kafka.address}', SECURITY PROTOCOL 'PLAINTEXT'"
    place.sql(f"CREATE CONNECTION k TO KAFKA ({broker}) WITH (VALIDATE = false)")
    place.sql(f"CREATE CONNECTION pg TO POSTGRES ({upstream.options})")
    upstream.run(
        "CREATE TABLE rows (id INT PRIMARY KEY, ref INT, name TEXT)",
        "CREATE PUBLICATION p FOR ALL TABLES",
    )
    messages = Messages(kafka.producer(), topic)
    transactions = Transactions(upstream.connected())
    for _ in range(10):
        messages.step()
        transactions.step()
    place.sql(
        f"CREATE SOURCE messages (n INT, t STRING) FROM KAFKA CONNECTION k (TOPIC '{topic}') KEY"
        " FORMAT TEXT VALUE FORMAT JSON ENVELOPE UPSERT"
        f" WITH (TIMESTAMP INTERVAL '100 ms', {HISTORY})"
    )
    place.sql(
        "CREATE SOURCE pg_rows FROM POSTGRES CONNECTION pg (PUBLICATION 'p') FOR TABLES (rows)"
        f" WITH (TIMESTAMP INTERVAL '100 ms', {HISTORY})"
    )
    for name, query in VIEWS.items():
        place.sql(f"CREATE MATERIALIZED VIEW {name} WITH ({HISTORY}) AS {query}")
    names = ("messages", "rows", *VIEWS)
    place.rows("SELECT * FROM matched, totals LIMIT 1")
    begin = max(frontier for frontier, _ in frontiers(place))
    writers = [Writer(messages.step), Writer(transactions.step)]
    for each in writers:
        each.start()
    both_are_seen_to_go_on(place)
    for each in writers:
        each.stop()
    ends = Counter(messages.states[0][-1].values()) + Counter(messages.states[1][-1].values())
    lasts = Counter(transactions.states[-1].values())
    wait_until(
        lambda: (
            Counter(map(tuple, place.rows("SELECT * FROM messages"))) == ends
            and Counter(map(tuple, place.rows("SELECT * FROM rows"))) == lasts
        ),
        what="all that was written is there",
    )
    place.rows("SELECT * FROM matched, totals LIMIT 1")
    end = min(upper for _, upper in frontiers(place))
    changes = {name: changes_of(place, name, begin, end) for name in names}
    times = sorted({time for found in changes.values() for time in found})
    in_turns(changes["messages"], changes["rows"], begin)
    contents = {name: Counter() for name in names}
    reached = {0: 0, 1: 0, "rows": 0}
    for time in times:
        for name, found in changes.items():
            contents[name].update(found.get(time, {}))
            contents[name] = +contents[name]
        for partition, states in messages.states.items():
            part = Counter(
                {row: n for row, n in contents["messages"].items() if int(row[0]) % 2 == partition}
            )
            reached[partition] = is_reached(states, reached[partition], part)
        reached["rows"] = is_reached(transactions.states, reached["rows"], contents["rows"])
        both = list(contents["messages"].elements()), list(contents["rows"].elements())
        assert contents["matched"] == matched(*both), time
        assert contents["totals"] == totals(*both), time
    assert contents["messages"] == ends
    assert contents["rows"] == lasts
    # What a query reads at a time is what the changes up to it make.
    time = times[len(times) // 2]
    queries = {name: f"SELECT * FROM {name}" for name in names}
    found = read_at_once(place.application, queries, at=time)
    for name in names:
        expected = Counter()
        for at, change in changes[name].items():
            if at <= time:
                expected.update(change)
        read = [tuple(json.loads(row).values()) for row in found[name].elements()]
        assert Counter(read) == +expected, (name, time)


def frontiers(place):
    """The read and write frontiers of the sources and the views."""
    return [
        (int(read), int(write))
        for read, write in place.rows(
            "SELECT f.read_frontier, f.write_frontier FROM mz_internal.mz_frontiers f JOIN"
            " mz_catalog.mz_objects o ON f.object_id = o.id WHERE o.name IN ('messages', 'rows',"
            f" 'matched', 'totals') AND o.schema_id = ({SCHEMA})"
        )
    ]


def in_turns(one, other, begin):
    """Asserts that each has changed between two changes of the other, several times."""
    times = sorted(
        [(time, 0) for time in one if time > begin] + [(time, 1) for time in other if time > begin]
    )
    turns = sum(a[1] != b[1] for a, b in itertools.pairwise(times))
    assert turns >= 4, times
