"""What feeds send. Source: spec checkpoint 5.6."""

import json

import pytest

from slackwater.repr.hlc import Time
from slackwater.storage.changefeed.messages import (
    BadMessage,
    MessageTarget,
    Payloads,
    Resolved,
    message_of,
    table_of,
    target_of,
)

KEYS = {"t": ["id"], "two": ["a", "b"]}
ROW = {"after": {"id": 1}, "key": [1], "topic": "t", "updated": "5.0000000001"}
NAME = "202004042351304139680000000000000-5d-1-2-00000001-{}-8.ndjson"


def read(body, target=None):
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return message_of(target or MessageTarget(), text, "f", KEYS)


def only(body, target=None):
    found = read(body, target)
    assert isinstance(found, Payloads)
    (row,) = found.rows
    return row


def test_rows():
    row = only({"payload": [ROW], "length": 1})
    assert (row.feed, row.topic, row.key, row.after) == ("f", "t", "[1]", '{"id":1}')
    assert row.updated == 5 * 10**10 + 1
    assert only({"payload": [{**ROW, "after": None, "before": {"id": 1}}]}).after is None
    missing = {name: value for name, value in ROW.items() if name != "after"}
    assert only({"payload": [missing]}).after is None


def test_a_resolved_time():
    assert read({"resolved": "5.0000000000"}) == Resolved(Time(5, 0))
    # It wins, as in the original.
    assert read({"resolved": "5.0", "payload": [ROW]}) == Resolved(Time(5, 0))


def test_an_empty_body_is_nothing():
    assert read(b" ") == Payloads(())


def test_numbers_keep_their_digits_and_keys_have_one_text():
    body = (
        b'{"payload": [{"after": {"id": 9007199254740995, "x": 1.50, "y": 1e400},'
        b' "key": [ 9007199254740995 ], "topic": "t", "updated": "1.0"}]}'
    )
    row = only(body)
    assert row.key == "[9007199254740995]"
    assert row.after == '{"id":9007199254740995,"x":1.50,"y":1E+400}'


@pytest.mark.parametrize(
    ("same", "text"),
    [
        (["[42]", "[ 42 ]", "[42.0]", "[4.2e1]", "[420E-1]"], "[42]"),
        (["[1.5]", "[1.50]", "[15e-1]", "[0.15E+1]"], "[1.5]"),
        (["[-1.5, 0]", "[-1.50, -0.00]", "[-15e-1, 0e7]"], "[-1.5,0]"),
        (["[9007199254740995.10]"], "[9007199254740995.1]"),
        (["[1e2000]", "[10e1999]"], "[1E+2000]"),
        (
            [f"[{'1' * 40}.{'3' * 40}]", f"[{'1' * 40}.{'3' * 40}00]"],
            f"[{'1' * 40}.{'3' * 40}]",
        ),
        (['["é"]', '["\\u00e9"]', '[ "\\u00E9"]'], '["\\u00e9"]'),
        (['["1.50"]'], '["1.50"]'),
    ],
)
def test_a_key_has_one_text_however_it_is_written(same, text):
    for key in same:
        body = f'{{"payload": [{{"key": {key}, "topic": "t", "updated": "1.0"}}]}}'
        assert only(body.encode()).key == text


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{", "the body is not JSON"),
        (b"\xff", "the body is not JSON"),
        (b"[" * 100_000, "the body is not JSON"),
        (b'{"payload": [1' + b"0" * 5000 + b"]}", "the body is not JSON"),
        (b'{"payload": [1e99999999999999999999]}', "the body is not JSON"),
        (b'{"payload": [NaN]}', "the body is not JSON"),
        ([], "the body is no JSON object"),
        ({}, "the message has neither payload nor resolved"),
        ({"payload": {}}, "the message has neither payload nor resolved"),
        ({"payload": [], "more": 1}, "the message has a field that is not known"),
        ({"payload": [{**ROW, "more": 1}]}, "a payload has a field that is not known"),
        ({"payload": [7]}, "a payload has a field that is not known, or is no object"),
        ({"payload": [{**ROW, "updated": None}]}, "WITH updated"),
        ({"payload": [{**ROW, "updated": 5.0}]}, "WITH updated"),
        ({"payload": [{**ROW, "updated": "0x1.0"}]}, "updated is no time"),
        ({"payload": [{**ROW, "topic": ""}]}, "table name is empty"),
        ({"payload": [{**ROW, "topic": "a.b.c.t"}]}, "a topic is no name of a table"),
        ({"payload": [{**ROW, "topic": "a..t"}]}, "a topic is no name of a table"),
        ({"payload": [{**ROW, "topic": "\ud800"}]}, "a topic is no name of a table"),
        ({"payload": [{**ROW, "topic": "a\0"}]}, "a topic is no name of a table"),
        ({"payload": [{**ROW, "key": None}]}, "a payload has no key"),
        ({"payload": [{**ROW, "after": [1]}]}, "after is no object"),
        ({"resolved": 5}, "resolved is no text"),
        ({"resolved": "-5.0"}, "resolved is no time"),
    ],
)
def test_what_is_no_message(body, reason):
    with pytest.raises(BadMessage) as raised:
        read(body)
    assert reason in raised.value.reason


def test_topics():
    assert table_of("t") == "t"
    assert table_of("db.public.t") == "t"
    assert table_of('"a.b"."say ""t"""') == 'say "t"'


def test_the_feed_of_a_query():
    target = target_of(["two"])
    row = {"after": {"b": 2, "a": "x", "c": 0}, "before": None, "updated": "1.0"}
    assert only({"payload": [row]}, target).key == '["x",2]'
    gone = only(
        {"payload": [{"after": None, "before": {"a": 1, "b": 2}, "updated": "1.0"}]}, target
    )
    assert (gone.key, gone.after, gone.topic) == ("[1,2]", None, "two")
    never = {"payload": [{"after": None, "before": None, "updated": "1.0"}]}
    assert read(never, target) == Payloads(())
    for bad in ({"updated": "1.0"}, {"after": {"a": 1}, "updated": "1.0"}):
        with pytest.raises(BadMessage):
            read({"payload": [bad]}, target)
    with pytest.raises(BadMessage):
        read({"payload": []}, target_of(["nothing"]))


def test_files_of_rows():
    target = target_of(["2020-04-04", NAME.format("db.public.t")])
    lines = (
        b'{"after": {"id": 1}, "key": [1], "updated": "1.0"}\n\n{"key": [2], "updated": "1.0"}\n'
    )
    found = read(lines, target)
    assert [(row.topic, row.key) for row in found.rows] == [("t", "[1]"), ("t", "[2]")]
    assert target_of(["2020-04-04", NAME.format("a-b")]).topic == "a-b"
    query = target_of(["two", "2020-04-04", NAME.format("ignored")])
    assert only(b'{"after": {"a": 1, "b": 2}, "updated": "1.0"}', query).key == "[1,2]"


def test_a_file_of_a_resolved_time():
    target = target_of(["2020-04-04", "202004042351304139680000000000000.RESOLVED"])
    assert read(b"{}", target) == Resolved(Time(1586044290413968000, 0))
    with pytest.raises(BadMessage):
        target_of(["2020-04-04", "202099042351304139680000000000000.RESOLVED"])


def test_paths():
    assert target_of([]) == MessageTarget()
    assert target_of(["t"]) == MessageTarget(table="t")
    # It only looks like a file.
    name = "202004042351304139680000000000000.RESOLVED"
    assert target_of([name]) == MessageTarget(table=name)
    assert target_of(["a", "b"]) is None
    assert target_of(["a", "b", "c", "d"]) is None
    assert target_of(["2020-04-04", "x.ndjson"]) is None
