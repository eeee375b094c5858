"""Who may look: names of hosts, the door, and where the console may listen."""

from __future__ import annotations

import pytest

from slackwater.console.security import (
    FAILURES,
    LOCKED_S,
    LOGIN_S,
    Door,
    Hosts,
    host_name,
    is_loopback,
)


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("127.0.0.1:8070", "127.0.0.1"),
        ("LocalHost", "localhost"),
        ("[::1]:8070", "::1"),
        ("", ""),
        ("evil.example:8070", "evil.example"),
        (" 127.0.0.1 ", "127.0.0.1"),
    ],
)
def test_the_name_of_a_host(header, name):
    assert host_name(header) == name


def test_other_names_than_those_of_the_address_are_refused():
    own = Hosts.of("127.0.0.1", [])
    assert all(own.allows(f"{name}:8070") for name in ("localhost", "127.0.0.1", "[::1]"))
    for name in ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "", "0.0.0.0"):
        assert not own.allows(name)
    outside = Hosts.of("10.0.0.5", ["Console.Example"])
    assert outside.allows("10.0.0.5")
    assert outside.allows("console.example:443")
    assert not outside.allows("localhost")


@pytest.mark.parametrize(
    ("host", "inside"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.5", False),
        ("example.com", False),
        ("", False),
    ],
)
def test_loopback(host, inside):
    assert is_loopback(host) is inside


def test_the_door_knows_its_password_and_who_is_inside():
    door = Door("pässword")
    assert door.log_in("passw", 0.0) is None
    value = door.log_in("pässword", 1.0)
    other = door.log_in("pässword", 1.0)
    assert value != other
    assert door.is_inside(value, 2.0)
    assert door.is_inside(other, 2.0)
    assert not door.is_inside("", 2.0)
    assert not door.is_inside(value[:-1], 2.0)
    assert not door.is_inside(value, 1.0 + LOGIN_S)


def test_who_guesses_is_locked_out_and_who_is_inside_stays():
    door = Door("right")
    value = door.log_in("right", 0.0)
    for _ in range(FAILURES):
        assert door.log_in("wrong", 1.0) is None
    assert door.is_locked(1.0)
    assert door.log_in("right", 1.0) is None
    assert door.is_inside(value, 1.0)
    assert door.log_in("right", 1.0 + LOCKED_S) is not None


def test_the_cookies_that_the_door_keeps_are_not_those_that_it_gave():
    door = Door("right")
    value = door.log_in("right", 0.0)
    assert value not in repr(door)
