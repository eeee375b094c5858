"""Messages of pgoutput as a server of version 15 has sent them, and what is none."""

from __future__ import annotations

import pytest
from tests.support.storage import fake_postgres as fake

from slackwater.storage.postgres.pgoutput import (
    Begin,
    Commit,
    Relation,
    RelationColumn,
    Truncate,
    decoded,
)
from slackwater.storage.postgres.row_changes import changed_relation, row_changes

SENT = {
    b"B\x00\x00\x00\x00\x01Rd(\x00\x03\x04?\x10\x00]\x9d\x00\x00\x02\xd6": Begin(0x1526428),
    b"C\x00\x00\x00\x00\x00\x01Rd(\x00\x00\x00\x00\x01RdX\x00\x03\x04?\x10\x00]\x9d": Commit(
        0x1526428, 0x1526458
    ),
    b"R\x00\x00@\x00public\x00t\x00d\x00\x04\x01id\x00\x00\x00\x00\x17\xff\xff\xff\xff\x00b\x00"
    b"\x00\x00\x00\x19\xff\xff\xff\xff\x00n\x00\x00\x00\x06\xa4\xff\xff\xff\xff\x00a\x00\x00\x00"
    b"\x03\xef\xff\xff\xff\xff": Relation(
        16384,
        "public",
        "t",
        "d",
        (
            RelationColumn("id", 23, True),
            RelationColumn("b", 25),
            RelationColumn("n", 1700),
            RelationColumn("a", 1007),
        ),
    ),
    b"T\x00\x00\x00\x01\x00\x00\x00@\x00": Truncate((16384,)),
}

OF_ROWS = [
    b"I\x00\x00@\x00N\x00\x04t\x00\x00\x00\x011t\x00\x00\x00\x01xt\x00\x00\x00\x041.50t\x00\x00"
    b"\x00\n{1,2,NULL}",
    b"U\x00\x00@\x00N\x00\x04t\x00\x00\x00\x011t\x00\x00\x00\x01yt\x00\x00\x00\x041.50t\x00\x00"
    b"\x00\n{1,2,NULL}",
    b"D\x00\x00@\x00K\x00\x04t\x00\x00\x00\x011nnn",
]


@pytest.mark.parametrize("data", SENT)
def test_what_a_server_has_sent(data):
    assert changed_relation(data) is None
    assert decoded(data) == SENT[data]


def test_what_a_server_has_sent_of_rows():
    assert [changed_relation(data) for data in OF_ROWS] == [16384] * 3
    found = row_changes(OF_ROWS, [0, 1, 2, 3])
    assert (found.kinds, found.has_all) == (b"IUD", False)
    assert [column.to_pylist() for column in found.new.columns] == [
        ["1", "1"],
        ["x", "y"],
        ["1.50", "1.50"],
        ["{1,2,NULL}", "{1,2,NULL}"],
    ]
    assert [column.to_pylist() for column in found.old.columns] == [["1"], [None], [None], [None]]


def test_what_a_server_may_send_besides():
    assert decoded(fake.truncate(1, 2, 3)) == Truncate((1, 2, 3))
    assert decoded(fake.relation(7, "", "pg_class", "f", [])) == Relation(
        7, "pg_catalog", "pg_class", "f", ()
    )
    for silent in (b"Y\x00\x00\x00\x01s\x00t\x00", b"O" + bytes(8) + b"o\x00", b"M" + bytes(20)):
        assert decoded(silent) is None


@pytest.mark.parametrize("data", SENT)
def test_a_message_that_ends_early_is_none(data):
    needed = len(data) - (8 if data[:1] in b"BC" else 0)
    for end in range(1, needed - 4):
        with pytest.raises(ValueError, match="pgoutput ends"):
            decoded(data[:end])


@pytest.mark.parametrize("data", [*OF_ROWS, fake.update(7, ["1"], ["2"])])
def test_a_message_of_a_row_that_ends_early_is_none(data):
    for end in range(1, len(data)):
        with pytest.raises(ValueError, match="pgoutput ends"):
            assert changed_relation(data[:end]) is None or row_changes([data[:end]], [0])


def test_rows_that_do_not_fit_to_each_other_are_none():
    with pytest.raises(ValueError, match="another number of values"):
        row_changes([fake.insert(7, ["1"]), fake.insert(7, ["1", "2"])], [0])
    with pytest.raises(ValueError, match="fewer values than its relation"):
        row_changes([fake.insert(7, ["1"])], [1])
    nothing = row_changes([fake.insert(7, [])], [None])
    assert nothing.new.columns[0].to_pylist() == [None]


@pytest.mark.parametrize("data", [b"", b"S1", b"R\0\0\0\1s\0t\0x\0\0"])
def test_what_is_no_message(data):
    with pytest.raises(ValueError, match=r"unknown|ends"):
        decoded(data)


@pytest.mark.parametrize("head", [b"UX", b"IO", b"IK", b"DN", b"XN"])
def test_what_is_no_change_of_a_row(head):
    data = head[:1] + b"\0\0\0\7" + head[1:] + b"\0\1n"
    with pytest.raises(ValueError, match="of an unknown kind"):
        row_changes([data], [0])
