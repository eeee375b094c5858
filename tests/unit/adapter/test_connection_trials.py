"""The steps in which connections are tried, against small servers and a real PostgreSQL."""

from __future__ import annotations

import os
import socket
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.adapter.listeners import context, listening, saying, silent
from tests.support.kafka.certificates import Certificates
from tests.support.persist.postgres import running_server
from tests.support.server.ingress import held_port
from tests.support.waiting import wait_until

from slackwater.adapter.external import libraries
from slackwater.adapter.external.aws import RoleRefused, in_role
from slackwater.adapter.external.files import certificate_files
from slackwater.adapter.external.trials import aws, iceberg, kafka, postgres, reaching, registry
from slackwater.adapter.external.trials.kafka import ClientError
from slackwater.adapter.external.trials.reaching import reach_one, reached
from slackwater.adapter.external.trials.steps import Deadline, StepFailed, Target
from slackwater.adapter.external.trials.validation import validate
from slackwater.repr.errors import SlackwaterError
from slackwater.storage.access import (
    AwsAccess,
    IcebergAccess,
    PostgresAccess,
    RegistryAccess,
    Tls,
    scrubbed,
)
from slackwater.storage.kafka.access import KafkaAccess

# From when the file is read on: a run on a slow machine takes more than an hour.
LONG = Deadline.after(30 * 86_400)


@pytest.fixture(scope="module")
def certificates():
    return Certificates.new()


def failure(action, *arguments):
    """The step that fails, and why; no thread is left."""
    with pytest.raises(StepFailed) as caught:
        action(*arguments)
    wait_until(lambda: not any(t.name == "resolver" for t in threading.enumerate()))
    return caught.value.step, caught.value.reason


@pytest.mark.parametrize(
    ("load", "module", "extra"),
    [
        (libraries.confluent_kafka, "confluent_kafka", "kafka"),
        (libraries.deltalake, "deltalake", "delta"),
        (libraries.psycopg, "psycopg", "postgres"),
        (libraries.boto, "boto3", "aws"),
        (libraries.pyiceberg, "pyiceberg", "iceberg"),
    ],
)
def test_a_library_that_is_missing(monkeypatch, load, module, extra):
    load()
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SlackwaterError) as missing:
        load()
    assert missing.value.condition == "SLACKWATER_CONNECTOR_MISSING"
    assert missing.value.sqlstate == "0A000"
    assert f"pip install 'slackwater[{extra}]'" in missing.value.message


@pytest.mark.parametrize(
    ("text", "target", "address"),
    [
        ("h", Target("h", 7), "h:7"),
        ("h:9", Target("h", 9), "h:9"),
        ("[::1]", Target("::1", 7), "[::1]:7"),
        ("[::1]:9", Target("::1", 9), "[::1]:9"),
    ],
)
def test_targets(text, target, address):
    assert Target.of(text, 7) == target
    assert target.address == address


def test_shares_of_a_deadline():
    now = [100.0]
    deadline = Deadline(110.0, lambda: now[0])
    assert (deadline.left, deadline.share(4).left, deadline.earlier(3).left) == (10.0, 2.5, 7.0)
    now[0] = 111.0
    assert (deadline.left, deadline.share(4).left) == (0.0, 0.0)


def test_secrets_are_scrubbed():
    key = "-----BEGIN-----\nMIIB+long\nab\n-----END-----\n"
    assert scrubbed("x pw y pwpw", ["pw"]) == "x <redacted> y <redacted><redacted>"
    assert scrubbed("pw and pw2", ["pw", "pw2"]) == "<redacted> and <redacted>"
    assert "MIIB" not in scrubbed("bad line MIIB+long in ab", [key])
    assert scrubbed("as it is", ["", "other"]) == "as it is"


def test_a_host_that_has_no_address(monkeypatch):
    def unknown(*_, **__):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    found = failure(reached, Target("h", 1), None, LONG)
    assert found == ("name", "Name or service not known")


def test_a_name_that_is_none():
    assert failure(reached, Target("a" * 70, 1), None, LONG)[0] == "name"


def test_a_resolver_that_does_not_answer(monkeypatch):
    answers = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answers.wait() and [])
    with pytest.raises(StepFailed) as caught:
        reached(Target("h", 1), None, Deadline.after(0))
    assert (caught.value.step, caught.value.address) == ("name", "h")
    assert caught.value.reason == "the resolver does not answer"
    answers.set()


def test_a_closed_port(port):
    assert failure(reached, Target("127.0.0.1", port), None, LONG) == ("TCP", "Connection refused")


def test_the_first_of_several_that_works(port, monkeypatch):
    with listening(silent) as open_port:
        targets = [Target("127.0.0.1", port), Target("127.0.0.1", open_port)]
        assert reach_one(targets, None, LONG) == targets[1]
    with pytest.raises(StepFailed) as caught:
        reach_one([Target("127.0.0.1", port), Target("::1", port)], None, LONG)
    assert caught.value.address == f"127.0.0.1:{port}"


def test_tls(tmp_path, certificates):
    other, target = Certificates.new(), lambda port: Target("127.0.0.1", port)
    with listening(silent, context(tmp_path, certificates)) as port:
        reached(Target("localhost", port), Tls(certificates.authority), LONG).close()
        reached(target(port), Tls(is_verified=False), LONG).close()
        own = Tls(certificates.authority, certificates.server_certificate, certificates.server_key)
        reached(target(port), own, LONG).close()
        for tls, reason in (
            (Tls(), "its certificate is refused: "),
            (Tls(other.authority), "its certificate is refused: "),
            (Tls("none"), "SSL CERTIFICATE AUTHORITY is no certificate in PEM"),
            (
                Tls(certificates.authority, certificates.server_certificate, other.server_key),
                "SSL CERTIFICATE and SSL KEY are no pair in PEM, without a passphrase",
            ),
            (Tls(None, "none", "none"), "SSL CERTIFICATE and SSL KEY are no pair in PEM"),
        ):
            step, said = failure(reached, target(port), tls, LONG)
            assert (step, said.startswith(reason)) == ("TLS", True), said


def test_the_host_of_a_certificate(tmp_path, certificates, monkeypatch):
    found = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda _, *a, **k: found("127.0.0.1", *a, **k))
    with listening(silent, context(tmp_path, certificates)) as port:
        other = Target("elsewhere", port)
        reached(other, Tls(certificates.authority, names_host=False), LONG).close()
        step, said = failure(reached, other, Tls(certificates.authority), LONG)
    assert step == "TLS"
    assert "not valid for 'elsewhere'" in said


@pytest.mark.parametrize(
    ("serve", "reason"),
    [
        (saying(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "it does not speak TLS there"),
        (saying(b""), "it closed the connection"),
    ],
)
def test_a_server_without_tls(serve, reason):
    with listening(serve) as port:
        assert failure(reached, Target("127.0.0.1", port), Tls(), LONG) == ("TLS", reason)


def test_a_server_that_says_nothing():
    with listening(silent) as port:
        found = failure(reached, Target("127.0.0.1", port), Tls(), Deadline.after(3))
    assert found == ("TLS", reaching.SILENT)


def test_certificates_are_files_for_a_moment(certificates):
    with certificate_files(Tls("a", "b", "c")) as files:
        paths = [files.authority, files.certificate, files.key]
        assert [Path(path).read_text() for path in paths] == ["a", "b", "c"]
        assert {os.stat(path).st_mode & 0o777 for path in paths} == {0o600}
        assert os.stat(os.path.dirname(files.key)).st_mode & 0o777 == 0o700
    assert not any(map(os.path.exists, paths))


def answered(answer, **more):
    with listening(saying(answer)) as port:
        access = RegistryAccess(f"http://127.0.0.1:{port}/api", None, **more)
        registry.validate(access, LONG)


def test_a_registry():
    answered(b"HTTP/1.1 200 OK\r\n\r\n[]")
    for answer, step in (
        (b"HTTP/1.1 401 Unauthorized\r\n\r\n", "login"),
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", "permission"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "login"),
        (b"SSH-2.0-other\r\n", "login"),
        (b"", "login"),
    ):
        assert failure(answered, answer)[0] == step


def test_what_a_registry_is_asked():
    access = RegistryAccess("http://r/a", None, "bob", "hunter2")
    text = registry.request(Target("r", 80), "/a/subjects", access).decode()
    assert text.splitlines()[:2] == ["GET /a/subjects HTTP/1.1", "Host: r:80"]
    assert "Authorization: Basic Ym9iOmh1bnRlcjI=" in text
    assert text.endswith("\r\n\r\n")


def test_a_registry_with_tls(tmp_path, certificates):
    answer = saying(b"HTTP/1.1 200 OK\r\n\r\n[]")
    with listening(answer, context(tmp_path, certificates)) as port:
        url = f"https://localhost:{port}"
        registry.validate(RegistryAccess(url, Tls(certificates.authority)), LONG)
        assert failure(registry.validate, RegistryAccess(url, Tls()), LONG)[0] == "TLS"


@pytest.mark.parametrize(
    ("errors", "found"),
    [
        ([], None),
        ([("_TRANSPORT", "a"), ("_ALL_BROKERS_DOWN", "b")], None),
        ([("_TRANSPORT", "a"), ("_AUTHENTICATION", "b")], ("login", "b")),
        ([("_SSL", "b")], ("TLS", "b")),
        ([("CLUSTER_AUTHORIZATION_FAILED", "b")], ("permission", "b")),
    ],
)
def test_what_librdkafka_says(errors, found):
    assert kafka.decisive([ClientError(*each) for each in errors]) == found


def test_a_cluster_that_is_none():
    with listening(saying(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as port:
        settings = (("bootstrap.servers", f"127.0.0.1:{port}"), ("security.protocol", "PLAINTEXT"))
        assert failure(kafka.validate, KafkaAccess(settings), Deadline.after(60))[0] == "login"


def test_reasons_of_a_cluster_that_answers_otherwise():
    assert kafka.broken([ClientError("_TIMED_OUT", "x")]) == reaching.SILENT
    closes = kafka.broken([ClientError("_TRANSPORT", "x"), ClientError("_TIMED_OUT", "y")])
    assert "SECURITY PROTOCOL" in closes
    assert kafka.broken([ClientError("_FAIL", "why"), ClientError("_TRANSPORT", "x")]) == "why"


@pytest.fixture(scope="module")
def database(certificates):
    """A server that takes logins by password over TLS alone, and its port."""
    hosts = ("hostssl all all all scram-sha-256", "host all all all reject")
    files = {"s.pem": certificates.server_certificate, "k.pem": certificates.server_key}
    settings = ("listen_addresses=localhost", "ssl=on", "ssl_cert_file=s.pem", "ssl_key_file=k.pem")
    with (
        held_port() as port,
        running_server(port=port, settings=settings, hosts=hosts, files=files) as server,
    ):
        server.execute("CREATE ROLE bob LOGIN PASSWORD 'the right one'")
        server.execute("CREATE DATABASE shop")
        server.execute("REVOKE CONNECT ON DATABASE shop FROM PUBLIC")
        yield port


def opened(port, mode, tls, **more):
    given = {"user": "bob", "password": "the right one", "database": "postgres", **more}
    return PostgresAccess("localhost", port, given.pop("database"), ssl_mode=mode, tls=tls, **given)


def test_postgres(database, certificates, monkeypatch):
    # Variables of the process say nothing about connections of users.
    monkeypatch.setenv("PGSSLMODE", "disable")
    monkeypatch.setenv("PGPASSWORD", "hunter2")
    right, verified = Tls(certificates.authority), "verify_full"
    postgres.validate(opened(database, verified, right), LONG)
    postgres.validate(opened(database, "require", Tls(is_verified=False)), LONG)
    for access, step, reason in (
        (opened(database, "verify_ca", Tls(Certificates.new().authority)), "TLS", "certificate"),
        (opened(database, "disable", None), "login", "no encryption"),
        (opened(database, verified, right, password="hunter2"), "login", "password"),
        (opened(database, verified, right, password=None), "login", "no password supplied"),
        (opened(database, verified, right, database="nowhere"), "login", "does not exist"),
        (opened(database, verified, right, database="shop"), "permission", "permission denied"),
    ):
        found = failure(postgres.validate, access, LONG)
        assert (found[0], reason in found[1]) == (step, True), found


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"N", "the server has no TLS"),
        (b"", "it closed the connection"),
        (b"HTTP", "it does not answer as PostgreSQL does"),
    ],
)
def test_a_database_without_tls(answer, reason):
    with listening(saying(answer)) as port:
        access = opened(port, "require", Tls(is_verified=False))
        assert failure(postgres.validate, access, LONG) == ("TLS", reason)


ERROR = b"<Error><Code>AccessDenied</Code><Message>not you</Message></Error>"
BODY = b"<ErrorResponse>" + ERROR + b"</ErrorResponse>"
DENIED = b"HTTP/1.1 403 Forbidden\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY


def test_aws(s3, port):
    access = AwsAccess("us-east-1", s3.endpoint, "k", "s")
    aws.validate(access, LONG)
    role = AwsAccess("us-east-1", s3.endpoint, "k", "s", role="arn:aws:iam::123456789012:role/r")
    aws.validate(role, LONG)
    closed = AwsAccess(None, f"http://127.0.0.1:{port}", "k", "s")
    assert failure(aws.validate, closed, LONG)[0] == "TCP"
    with listening(saying(DENIED)) as other:
        refused = AwsAccess(None, f"http://127.0.0.1:{other}", "k", "s")
        found = failure(aws.validate, refused, LONG)
        assert found == ("permission", "AccessDenied: not you")
    assert aws.step_of("InvalidClientTokenId") == "login"


ROLE = "arn:aws:iam::123456789012:role/r"


def test_keys_of_a_role(s3, port):
    own = AwsAccess("us-east-1", s3.endpoint, "k", "hunter2", secrets=("hunter2",))
    assert in_role(own) is own
    found = in_role(replace(own, role=ROLE, role_session="mine"))
    assert (found.role, found.role_session, found.endpoint) == (None, None, s3.endpoint)
    assert found.access_key_id.startswith("ASIA")
    assert found.session_token
    assert "hunter2" not in (found.secret_access_key, found.session_token)
    for hidden in ("hunter2", found.secret_access_key, found.session_token):
        assert hidden not in found.scrubbed(f"say {hidden}")
    with pytest.raises(RoleRefused, match="role/r is not given: Could not connect"):
        in_role(AwsAccess(None, f"http://127.0.0.1:{port}", "k", "s", role=ROLE))
    with listening(saying(DENIED)) as other:
        refused = AwsAccess(None, f"http://127.0.0.1:{other}", "k", "s", role=ROLE)
        with pytest.raises(RoleRefused, match="not you"):
            in_role(refused)
        assert failure(aws.validate, refused, LONG) == ("permission", "AccessDenied: not you")


def catalog(kind, url, **more):
    return IcebergAccess(kind, url, "/nowhere", **more)


@pytest.mark.parametrize(
    ("status", "step", "reason"),
    [
        ("401 Unauthorized", "login", "no such client"),
        ("403 Forbidden", "permission", "no such client"),
        ("503 Away", "login", "no such client"),
    ],
)
def test_a_catalog_that_refuses(status, step, reason):
    body = '{"error": {"message": "no such client", "type": "Refused", "code": 1}}'
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    with listening(saying((head + body).encode())) as port:
        url = f"http://127.0.0.1:{port}/api"
        found = failure(iceberg.validate, catalog("rest", url), LONG)
        assert (found[0], reason in found[1]) == (step, True), found


def test_a_catalog_that_is_none(port):
    assert failure(iceberg.validate, catalog("rest", f"http://127.0.0.1:{port}"), LONG) == (
        "TCP",
        "Connection refused",
    )
    with listening(saying(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nwelcome")) as other:
        url = f"http://127.0.0.1:{other}"
        assert failure(iceberg.validate, catalog("rest", url), LONG)[0] == "login"


def test_catalogs_in_databases(database, tmp_path):
    url = f"postgresql://bob@localhost:{database}"
    right = catalog("sql", f"{url}/postgres?sslmode=require", credential="the right one")
    iceberg.validate(right, LONG)
    file = tmp_path / "catalog.db"
    iceberg.validate(catalog("sql", f"sqlite:///{file}"), LONG)
    assert not file.exists()
    file.write_text("this is no database, but long enough to be taken for one" * 100)
    folder = tmp_path / "closed"
    for access, step, reason in (
        (catalog("sql", f"{url}/postgres", credential="hunter2"), "login", "password"),
        (catalog("sql", f"{url}/nowhere", credential="the right one"), "login", "not exist"),
        (catalog("sql", f"sqlite:///{file}"), "login", "file is not a database"),
        (catalog("sql", f"sqlite:///{folder}/c.db"), "name", "there is no such folder"),
    ):
        found = failure(iceberg.validate, access, LONG)
        assert (found[0], reason in found[1]) == (step, True), found


def test_the_error_names_the_step_and_no_secret(port):
    settings = (("bootstrap.servers", f"127.0.0.1:{port}"), ("security.protocol", "PLAINTEXT"))
    with pytest.raises(SlackwaterError) as failed:
        validate("slackwater.default.c", KafkaAccess(settings, ("refused",)))
    error = failed.value
    assert (error.condition, error.sqlstate) == ("SLACKWATER_CONNECTION_FAILED", "08001")
    assert error.message.splitlines()[0] == (
        "The connection slackwater.default.c does not work: the step TCP failed at"
        f" 127.0.0.1:{port}: Connection <redacted>."
    )
