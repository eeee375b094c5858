"""What a source FROM WEBHOOK makes of headers and bodies."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.adapter.catalog.details import WebhookDetails, from_json, to_json
from slackwater.planner.parser.statements import HeaderColumn, HeaderRule
from slackwater.storage import webhook
from slackwater.storage.webhook import (
    BadRequest,
    RepeatedHeader,
    RequestRows,
    TooManyRows,
    WebhookConfig,
    header_values,
    included,
    rows_of,
    table,
)


def values(form, body):
    return list(rows_of(WebhookConfig(form), body, {}).values)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", []),
        (b" \n ", []),
        (b'{"a": 1}', ['{"a": 1}']),
        (b'{"a":1}\n{"a":2}\n', ['{"a":1}', '{"a":2}']),
        (b'{"a":1}{"a":2}[3]"x"', ['{"a":1}', '{"a":2}', "[3]", '"x"']),
        (b"1 2\t3", ["1", "2", "3"]),
        (b"[1, 2]", ["[1, 2]"]),
        (b"9007199254740995 1e400", ["9007199254740995", "1e400"]),
        (b"1" * 10_000, ["1" * 10_000]),
        ('"é\\u0000\\ud800"'.encode(), ['"é\\u0000\\ud800"']),
        (b"null true", ["null", "true"]),
    ],
)
def test_json_values_stay_as_they_are_written(body, expected):
    assert values("JSON", body) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"[]", []),
        (b'[1, {"a": [2]} ,"x"]', ["1", '{"a": [2]}', '"x"']),
        (b"[1][2,3] 4", ["1", "2", "3", "4"]),
        (b'{"a": [1]}', ['{"a": [1]}']),
        (b"[[1],[]]", ["[1]", "[]"]),
    ],
)
def test_an_array_becomes_its_elements(body, expected):
    assert values("JSON ARRAY", body) == expected


@pytest.mark.parametrize("form", ["JSON", "JSON ARRAY"])
@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[1,]",
        b"[1 2]",
        b"[,]",
        b"[",
        b"[1",
        b"01",
        b"1.",
        b"+1",
        b"NaN",
        b"[Infinity]",
        b"nulltrue",
        b"'a'",
        b'{"a": 1,}',
        b'"a\nb"',
        b"\xff",
        b"\xef\xbb\xbf1",
        b"[" * 100_000,
        b"<a/>",
    ],
)
def test_what_is_not_json_is_refused(form, body):
    with pytest.raises(BadRequest) as caught:
        values(form, body)
    assert caught.value.reason in ("the body is not JSON", "the body is not UTF-8")


@given(
    st.lists(
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.floats(allow_nan=False, allow_infinity=False)
            | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            max_leaves=8,
        )
    )
)
def test_elements_of_any_array_are_its_elements(elements):
    found = values("JSON ARRAY", json.dumps(elements).encode())
    assert [json.loads(text) for text in found] == elements
    whole = values("JSON", "\n".join(json.dumps(each) for each in elements).encode())
    assert [json.loads(text) for text in whole] == elements


@given(st.binary())
def test_any_body_is_rows_or_refused(body):
    assert values("BYTES", body) == [body]
    for form in ("TEXT", "JSON", "JSON ARRAY"):
        try:
            found = values(form, body)
        except BadRequest:
            continue
        if form == "TEXT":
            assert found == [body.decode()]
        for each in found if form != "TEXT" else ():
            json.loads(each)


def test_a_header_that_comes_twice_is_refused():
    assert header_values([(b"X-Id", b"1"), (b"host", b"a")]) == {"x-id": "1", "host": "a"}
    with pytest.raises(RepeatedHeader):
        header_values([(b"x-id", b"1"), (b"X-ID", b"1")])


def test_values_that_are_no_text_are_left_out():
    found = header_values([(b"a", b"\xff"), (b"b", b"x\ty"), (b"c", b"\x7f"), (b"d", b"")])
    assert found == {"b": "x\ty", "d": ""}


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([], {"a", "b", "c"}),
        ([HeaderRule("a", is_blocked=True)], {"b", "c"}),
        ([HeaderRule("a"), HeaderRule("x")], {"a"}),
        ([HeaderRule("a"), HeaderRule("a", is_blocked=True), HeaderRule("b")], {"b"}),
    ],
)
def test_blocked_headers_go_first_and_then_only_those_allowed_stay(rules, expected):
    assert set(included(rules, {"a": "1", "b": "2", "c": "3"})) == expected


def test_every_row_of_a_request_has_its_headers():
    config = WebhookConfig(
        "JSON ARRAY",
        (HeaderColumn("x-id", "id"), HeaderColumn("x-sig", "sig", is_bytes=True)),
        (HeaderRule("x-id"),),
    )
    made = table(
        config,
        [
            rows_of(config, b"[1, 2]", {"x-id": "7", "x-sig": "s"}),
            rows_of(config, b"", {"x-id": "8"}),
            rows_of(config, b"3", {"other": "9"}),
        ],
    )
    assert made.schema.names == ["body", "headers", "id", "sig", "__diff"]
    assert made.to_pylist() == [
        {"body": "1", "headers": [("x-id", "7")], "id": "7", "sig": b"s", "__diff": 1},
        {"body": "2", "headers": [("x-id", "7")], "id": "7", "sig": b"s", "__diff": 1},
        {"body": "3", "headers": [], "id": None, "sig": None, "__diff": 1},
    ]
    assert [column.nullable for column in config.desc.columns] == [False, False, True, True]


def test_a_small_body_cannot_become_rows_without_end(monkeypatch):
    monkeypatch.setattr(webhook, "ROWS_BYTES", 10_000)
    config = WebhookConfig("JSON ARRAY", rules=())
    headers = {"x": "y" * 1000}
    assert len(rows_of(config, b"[1,2,3]", headers).values) == 3
    with pytest.raises(TooManyRows):
        rows_of(config, b"[1,2,3,4,5,6,7,8,9,10]", headers)


def test_the_configuration_survives_json():
    config = WebhookConfig("TEXT", (HeaderColumn("a", "b", True),), (HeaderRule("c", True),))
    plain = WebhookConfig("JSON")
    for each in (config, plain):
        kept = json.loads(json.dumps(to_json(WebhookDetails(each))))
        assert from_json("source", kept) == WebhookDetails(each)
    assert table(plain, [RequestRows(["1"], {})]).num_rows == 1
