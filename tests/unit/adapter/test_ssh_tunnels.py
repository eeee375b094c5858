"""Connections through SSH, over a server in the process: logins, host keys, ports, their end."""

from __future__ import annotations

import socket
import sys
import threading

import asyncssh
import psycopg
import pytest
from tests.support.adapter.listeners import context, listening, saying, silent
from tests.support.adapter.ssh_server import USER, SshServer, plain, running_ssh_server
from tests.support.kafka.certificates import Certificates
from tests.support.persist.postgres import running_server
from tests.support.server.ingress import held_port
from tests.support.waiting import wait_until

from slackwater.adapter.external import libraries
from slackwater.adapter.external.postgres import connection_options
from slackwater.adapter.external.registry import SchemaRegistry
from slackwater.adapter.external.trials import postgres, reaching, registry, ssh
from slackwater.adapter.external.trials.reaching import reached
from slackwater.adapter.external.trials.steps import Deadline, StepFailed, Target
from slackwater.adapter.external.trials.validation import validate
from slackwater.adapter.external.tunnels import Tunnels
from slackwater.repr.errors import SlackwaterError
from slackwater.storage.access import PostgresAccess, RegistryAccess, SshAccess, Tls

# From when the file is read on: a run on a slow machine takes more than an hour.
LONG = Deadline.after(30 * 86_400)
FIRST, SECOND = ssh.new_pair("first"), ssh.new_pair("second")


class Kept:
    """The key that was seen first."""

    def __init__(self):
        self.key = None

    def keep(self, shown):
        self.key = self.key or shown
        return self.key


@pytest.fixture
def server():
    with running_ssh_server([FIRST[1]]) as running:
        yield running


@pytest.fixture
def tunnels():
    before = threading.active_count()
    made = Tunnels()
    yield made
    made.close()
    assert not any(each.name == "ssh-tunnels" for each in threading.enumerate())
    # Those that look up names may end a little later.
    wait_until(lambda: threading.active_count() <= before + 1)


def echoing(connection):
    """Answers whatever one says."""
    while data := connection.recv(65536):
        connection.sendall(data)


@pytest.fixture
def echo():
    with listening(echoing) as port:
        yield port


def way_to(server, keys=(FIRST, SECOND), **more):
    given = {
        "connection": "u1",
        "name": "slackwater.default.t",
        "host": "127.0.0.1",
        "port": server if isinstance(server, int) else server.port,
        "user": USER,
        "host_key": None,
        "is_pinned": False,
        "keys": tuple(private for private, _ in keys),
        "keep": lambda shown: shown,
        **more,
    }
    return SshAccess(**given)


def failure(action, *arguments):
    with pytest.raises(StepFailed) as caught:
        action(*arguments)
    return caught.value.step, caught.value.address, caught.value.reason


def answered(tunnels, access, port, said=b"hello"):
    """What comes back from a port behind the tunnel."""
    tunnel = tunnels.through(access)
    with reached(Target("127.0.0.1", port), None, LONG, tunnel=tunnel) as connection:
        connection.sendall(said)
        found = b""
        while len(found) < len(said):
            found += connection.recv(65536)
        return found


def listens(port):
    with socket.socket() as found:
        return found.connect_ex(("127.0.0.1", port)) == 0


def test_a_missing_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "asyncssh", None)
    for action in (libraries.asyncssh, lambda: ssh.new_pair("c")):
        with pytest.raises(SlackwaterError) as missing:
            action()
        assert missing.value.condition == "SLACKWATER_CONNECTOR_MISSING"
        assert "pip install 'slackwater[ssh]'" in missing.value.message


def test_either_key_is_enough(server):
    for keys in ((FIRST, SECOND), (SECOND, FIRST)):
        ssh.validate(way_to(server, keys), LONG)
    assert server.logins == 2
    assert plain(SECOND[1]) in server.offered
    step, address, reason = failure(ssh.validate, way_to(server, (SECOND,)), LONG)
    assert (step, address) == ("login", f"127.0.0.1:{server.port}")
    assert "authorized_keys" in reason
    assert failure(ssh.validate, way_to(server, user="root"), LONG)[0] == "login"
    wait_until(lambda: server.connections == 0)


def test_the_key_of_the_server(server):
    other = plain(SECOND[1])
    kept = Kept()
    ssh.validate(way_to(server, keep=kept.keep), LONG)
    assert kept.key == server.host_key
    ssh.validate(way_to(server, host_key=f"{server.host_key} comment", is_pinned=True), LONG)
    for pinned, words in ((True, "HOST KEY says"), (False, "was seen first")):
        access = way_to(server, host_key=other, is_pinned=pinned)
        step, _, reason = failure(ssh.validate, access, LONG)
        assert step == "host key"
        for word in (words, other, server.host_key, "ALTER CONNECTION slackwater.default.t"):
            assert word in reason
    # Somebody else kept another one meanwhile.
    step, _, reason = failure(ssh.validate, way_to(server, keep=lambda _: other), LONG)
    assert (step, "was seen first" in reason) == ("host key", True)
    assert server.logins == 3
    # A server that showed another key has not seen ours.
    server.offered.clear()
    failure(ssh.validate, way_to(server, host_key=other), LONG)
    assert server.offered == []


def test_the_kind_of_key_that_is_known_is_asked_for():
    """A server of several keys shows the one that was kept, not the one that it likes best."""
    rsa = SshServer([FIRST[1]], "ssh-rsa")
    rsa.host_keys.append(asyncssh.generate_private_key("ssh-ed25519"))
    rsa.start()
    try:
        ssh.validate(way_to(rsa, host_key=rsa.host_key), LONG)
        unknown = "ecdsa-sha2-nistp256 AAAA"
        assert failure(ssh.validate, way_to(rsa, host_key=unknown), LONG)[0] == "host key"
    finally:
        rsa.close()


@pytest.mark.parametrize(
    ("serve", "step"),
    [(silent, "host key"), (saying(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "host key")],
)
def test_what_is_no_server_of_ssh(serve, step):
    with listening(serve) as port:
        found = failure(ssh.validate, way_to(port), Deadline.after(1))
    assert found[:2] == (step, f"127.0.0.1:{port}")


def test_a_server_that_does_not_answer_a_tunnel(tunnels):
    with listening(silent) as port:
        tunnel = tunnels.through(way_to(port))
        found = failure(reached, Target("h", 1), None, Deadline.after(1), None, tunnel)
    assert found == ("host key", f"the SSH tunnel 127.0.0.1:{port}", reaching.SILENT)


def test_a_closed_port(port, tunnels):
    assert failure(ssh.validate, way_to(port), LONG)[0] == "TCP"
    tunnel = tunnels.through(way_to(port))
    found = failure(reached, Target("h", 1), None, LONG, None, tunnel)
    assert found == ("TCP", f"the SSH tunnel 127.0.0.1:{port}", "Connection refused")


def test_the_error_names_the_step_and_shows_no_key(server):
    access = way_to(server, (SECOND,), secrets=(SECOND[0],))
    with pytest.raises(SlackwaterError) as failed:
        validate("slackwater.default.t", access)
    assert failed.value.condition == "SLACKWATER_CONNECTION_FAILED"
    assert "the step login failed at 127.0.0.1:" in failed.value.message
    line = SECOND[0].splitlines()[1]
    assert line not in f"{failed.value.message} {access}"


def test_bytes_go_through(server, tunnels, echo):
    access = way_to(server)
    large = bytes(range(256)) * 20_000
    assert answered(tunnels, access, echo, large) == large
    assert answered(tunnels, access, echo) == b"hello"
    # Both went over one connection, and the port is gone.
    assert (server.logins, server.connections) == (1, 1)
    with tunnels.forwarded(access, Target("127.0.0.1", echo), 60) as way:
        port = way.port
        assert way.failure is None
    wait_until(lambda: not listens(port))


def test_what_is_behind_the_tunnel_cannot_be_reached(server, tunnels, port):
    access = way_to(server)
    at = f"127.0.0.1:{port} through the SSH tunnel 127.0.0.1:{server.port}"
    step, address, reason = failure(
        reached, Target("127.0.0.1", port), None, LONG, None, tunnels.through(access)
    )
    assert (step, address) == ("TCP", at)
    assert str(port) in reason


def test_a_connection_that_breaks_is_made_again(server, tunnels, echo):
    access = way_to(server)
    tunnel = tunnels.through(access)
    with reached(Target("127.0.0.1", echo), None, LONG, tunnel=tunnel) as connection:
        server.stop()
        assert connection.recv(1) == b""
    gone = ("TCP", f"the SSH tunnel 127.0.0.1:{server.port}", "Connection refused")
    again = (reached, Target("127.0.0.1", echo), None, LONG, None, tunnel)
    wait_until(lambda: failure(*again) == gone)
    server.start()
    assert answered(tunnels, access, echo) == b"hello"


def test_another_version_has_a_connection_of_its_own(server, tunnels, echo):
    """What goes over the old one goes on, and ends it."""
    before, after = way_to(server, version="1"), way_to(server, (SECOND,), version="2")
    with reached(
        Target("127.0.0.1", echo), None, LONG, tunnel=tunnels.through(before)
    ) as connection:
        assert failure(answered, tunnels, after, echo)[0] == "login"
        server.authorized = [SECOND[1]]
        with listening(echoing) as other:
            assert answered(tunnels, after, other) == b"hello"
        connection.sendall(b"x")
        assert connection.recv(1) == b"x"
        # That of the login that was refused may end a little later.
        wait_until(lambda: server.connections == 2)
    wait_until(lambda: server.connections == 1)


def test_the_end_of_all(server, echo):
    tunnels = Tunnels()
    tunnel, target = tunnels.through(way_to(server)), Target("127.0.0.1", echo)
    with (
        reached(target, None, LONG, tunnel=tunnel) as connection,
        tunnel.forwarded(target.host, target.port, 60) as way,
    ):
        tunnels.close()
        assert connection.recv(1) == b""
        assert not listens(way.port)
    tunnels.close()
    assert failure(reached, Target("127.0.0.1", echo), None, LONG, None, tunnel)[0] == "login"
    wait_until(lambda: server.connections == 0)
    Tunnels().close()


@pytest.fixture(scope="module")
def certificates():
    return Certificates.new()


def test_a_registry_behind_a_tunnel_is_who_it_says(tmp_path, certificates, server, tunnels):
    server.resolve["elsewhere"] = "127.0.0.1"
    body = b'{"schema": "\\"string\\""}'
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body)
    tls, tunnel = Tls(certificates.authority), tunnels.through(way_to(server))
    with listening(saying(head + body), context(tmp_path, certificates)) as port:

        def access(host):
            return RegistryAccess(f"https://{host}:{port}", tls, tunnel=tunnel)

        registry.validate(access("localhost"), LONG)
        assert SchemaRegistry("r", lambda: access("localhost")).schema(1) == '"string"'
        step, _, reason = failure(registry.validate, access("elsewhere"), LONG)
        assert (step, "not valid for 'elsewhere'" in reason) == ("TLS", True)
        with pytest.raises(SlackwaterError, match="not valid for 'elsewhere'"):
            SchemaRegistry("r", lambda: access("elsewhere")).schema(1)
        server.stop()
        gone = ("TCP", f"the SSH tunnel 127.0.0.1:{server.port}", "Connection refused")
        wait_until(lambda: failure(registry.validate, access("localhost"), LONG) == gone)
        with pytest.raises(SlackwaterError, match="TCP at the SSH tunnel"):
            SchemaRegistry("r", lambda: access("localhost")).schema(1)
    assert {host for host, _ in server.reached} == {"localhost", "elsewhere"}


def test_postgres_behind_a_tunnel_is_who_it_says(certificates, server, tunnels):
    server.resolve["elsewhere"] = "127.0.0.1"
    tunnel, tls = tunnels.through(way_to(server)), Tls(certificates.authority)
    hosts = ("hostssl all all all trust",)
    files = {"s.pem": certificates.server_certificate, "k.pem": certificates.server_key}
    settings = ("listen_addresses=localhost", "ssl=on", "ssl_cert_file=s.pem", "ssl_key_file=k.pem")
    with held_port() as port:

        def access(host, at=port):
            return PostgresAccess(host, at, "postgres", "bob", "verify_full", tls, tunnel=tunnel)

        step, address, _ = failure(postgres.validate, access("localhost"), LONG)
        assert (step, "through the SSH tunnel" in address) == ("TCP", True)
        with running_server(port=port, settings=settings, hosts=hosts, files=files) as running:
            running.execute("CREATE ROLE bob LOGIN")
            postgres.validate(access("localhost"), LONG)
            with connection_options(access("localhost")) as options:
                opened = psycopg.connect(**options)
            assert opened.execute("SELECT 1").fetchone() == (1,)
            step, _, reason = failure(postgres.validate, access("elsewhere"), LONG)
            assert (step, "not valid for 'elsewhere'" in reason) == ("TLS", True)
            with (
                pytest.raises(psycopg.Error, match="elsewhere"),
                connection_options(access("elsewhere")) as options,
            ):
                psycopg.connect(**options)
            opened.close()
        server.stop()
        gone = ("TCP", f"the SSH tunnel 127.0.0.1:{server.port}", "Connection refused")
        wait_until(lambda: failure(postgres.validate, access("localhost"), LONG) == gone)


def test_a_server_that_nobody_uses_is_left(server, echo):
    tunnels, access = Tunnels(idle_s=0), way_to(server)
    with reached(Target("127.0.0.1", echo), None, LONG, tunnel=tunnels.through(access)) as used:
        used.sendall(b"x")
        assert used.recv(1) == b"x"
        assert server.connections == 1
    wait_until(lambda: server.connections == 0)
    assert answered(tunnels, access, echo) == b"hello"
    assert server.logins == 2
    tunnels.close()
