"""Messages of pgoutput as a server of version 15 has sent them, and what is none."""

from __future__ import annotations

import pytest
from tests.support.storage import fake_postgres as fake

from slackwater.storage.postgres.pgoutput import (
    UNSENT,
    Begin,
    Commit,
    Delete,
    Insert,
    Relation,
    RelationColumn,
    Truncate,
    Update,
    decoded,
)

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
    b"I\x00\x00@\x00N\x00\x04t\x00\x00\x00\x011t\x00\x00\x00\x01xt\x00\x00\x00\x041.50t\x00\x00"
    b"\x00\n{1,2,NULL}": Insert(16384, ["1", "x", "1.50", "{1,2,NULL}"]),
    b"U\x00\x00@\x00N\x00\x04t\x00\x00\x00\x011t\x00\x00\x00\x01yt\x00\x00\x00\x041.50t\x00\x00"
    b"\x00\n{1,2,NULL}": Update(16384, ["1", "y", "1.50", "{1,2,NULL}"]),
    b"D\x00\x00@\x00K\x00\x04t\x00\x00\x00\x011nnn": Delete(16384, ["1", None, None, None]),
    b"T\x00\x00\x00\x01\x00\x00\x00@\x00": Truncate((16384,)),
}


@pytest.mark.parametrize("data", SENT)
def test_what_a_server_has_sent(data):
    assert decoded(data) == SENT[data]


def test_what_a_server_may_send_besides():
    whole = fake.update(7, ["ü", fake.UNSENT, None], ["", "a\nb", None])
    assert decoded(whole) == Update(7, ["ü", UNSENT, None], ["", "a\nb", None], has_all=True)
    moved = fake.update(7, ["2", "x"], ["1", None], "K")
    assert decoded(moved) == Update(7, ["2", "x"], ["1", None])
    assert decoded(fake.delete(7, ["1", "x"])) == Delete(7, ["1", "x"], has_all=True)
    assert decoded(fake.truncate(1, 2, 3)) == Truncate((1, 2, 3))
    assert decoded(fake.insert(7, [])) == Insert(7, [])
    assert decoded(fake.relation(7, "", "pg_class", "f", [])) == Relation(
        7, "pg_catalog", "pg_class", "f", ()
    )
    for silent in (b"Y\x00\x00\x00\x01s\x00t\x00", b"O" + bytes(8) + b"o\x00", b"M" + bytes(20)):
        assert decoded(silent) is None


@pytest.mark.parametrize("data", [*SENT, fake.update(7, ["1"], ["2"])])
def test_a_message_that_ends_early_is_none(data):
    needed = len(data) - (8 if data[:1] in b"BC" else 0)
    for end in range(1, needed - 4):
        with pytest.raises(ValueError, match="pgoutput ends"):
            decoded(data[:end])


@pytest.mark.parametrize("data", [b"", b"S1", b"U\0\0\0\1X", b"R\0\0\0\1s\0t\0x\0\0"])
def test_what_is_no_message(data):
    with pytest.raises(ValueError, match=r"unknown|ends"):
        decoded(data)
