"""What is asked of a schema registry, and what its answers mean."""

from __future__ import annotations

import ssl

import pytest
from tests.support.kafka.certificates import Certificates
from tests.support.kafka.registry import Registry, served
from tests.support.server.ingress import held_port

from slackwater.adapter.external.registry import RegisteredSchema, SchemaRegistry
from slackwater.repr.errors import SlackwaterError
from slackwater.storage.access import RegistryAccess, Tls


def client(url, **access):
    found = RegistryAccess(url, None, **access)
    return SchemaRegistry("r", lambda: found)


def avro(text):
    return RegisteredSchema("AVRO", text)


def test_schemas_by_id_and_of_subjects(registry):
    first = registry.register("a/b c-value", "int")
    last = registry.register("a/b c-value", "long")
    asked = client(f"{registry.address}/")
    assert asked.schema(first) == '"int"'
    assert asked.schema(last) == asked.latest("a/b c-value") == '"long"'
    assert asked.schema(99) is asked.latest("a") is None
    assert registry.asked[2] == "/subjects/a%2Fb%20c-value/versions/latest"


def test_a_schema_that_is_given(registry):
    """Once, however often; with the level of its subject, if that has none."""
    asked = client(registry.address)
    text = '{"type": "string"}'
    number = asked.registered("a/b-value", avro(text), "NONE")
    for subject, level in (("a/b-value", "FULL"), ("c", None)):
        assert asked.registered(subject, avro(text), level) == number
    assert (registry.schemas, registry.levels) == ([text], {"a/b-value": "NONE"})
    assert registry.asked[:3] == [
        "/config/a%2Fb-value",
        "/config/a%2Fb-value",
        "/subjects/a%2Fb-value/versions",
    ]
    assert registry.subjects == {"a/b-value": [number], "c": [number]}


@pytest.mark.parametrize(
    ("answer", "condition", "reason"),
    [
        ((409, {"message": "not\n compatible. "}), "SCHEMA_REFUSED", "of x: not compatible."),
        ((422, b"<html>"), "SCHEMA_REFUSED", "HTTP 422"),
        ((422, {"message": "hunter2 is none"}), "SCHEMA_REFUSED", "<redacted> is none"),
        ((401, {"message": "hunter2"}), "REGISTRY_UNREACHABLE", "it refuses the user (HTTP 401)"),
        ((404, {"message": "not here"}), "REGISTRY_UNREACHABLE", "HTTP 404"),
        ((500, b""), "REGISTRY_UNREACHABLE", "HTTP 500"),
        ((200, b"<html>"), "REGISTRY_UNREACHABLE", "it does not answer as a schema registry does"),
        ((200, {"id": "1"}), "REGISTRY_UNREACHABLE", "it does not answer as a schema registry"),
        ((200, {"id": 2**32}), "REGISTRY_UNREACHABLE", "it does not answer as a schema registry"),
    ],
)
def test_schemas_that_are_not_taken(registry, answer, condition, reason):
    registry.answers["/subjects/x/versions"] = answer
    asked = client(registry.address, username="u", password="hunter2", secrets=("hunter2",))
    with pytest.raises(SlackwaterError) as caught:
        asked.registered("x", avro('"int"'), None)
    assert caught.value.condition == f"SLACKWATER_{condition}"
    assert reason in caught.value.message
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "condition"),
    [
        ((404, b""), "REGISTRY_UNREACHABLE"),
        ((500, b""), "REGISTRY_UNREACHABLE"),
        ((422, {"message": "no level"}), "SCHEMA_REFUSED"),
    ],
)
def test_levels_that_are_not_taken(registry, answer, condition):
    """Then the schema is not given."""
    registry.answers["/config/x"] = answer
    with pytest.raises(SlackwaterError) as caught:
        client(registry.address).registered("x", avro('"int"'), "FULL")
    assert caught.value.condition == f"SLACKWATER_{condition}"
    assert registry.schemas == []


def test_a_path_and_a_login(registry):
    registry.answers["/a/b/schemas/ids/1"] = 200, {"schema": '"int"', "schemaType": "AVRO"}
    url = f"{registry.address}/a/b"
    assert client(url, username="u", password="p").schema(1) == '"int"'
    assert registry.logins == ["Basic dTpw"]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((401, b""), "it refuses the user (HTTP 401)"),
        ((403, b""), "HTTP 403"),
        ((500, {"error_code": 50001}), "HTTP 500"),
        ((200, b"<html>"), "it does not answer as a schema registry does"),
        ((200, [1]), "it does not answer as a schema registry does"),
        ((200, {"id": 1}), "it does not answer as a schema registry does"),
    ],
)
def test_answers_that_are_none(registry, answer, reason):
    registry.answers["/schemas/ids/1"] = answer
    with pytest.raises(SlackwaterError, match="SLACKWATER_REGISTRY_UNREACHABLE") as caught:
        client(registry.address).schema(1)
    assert reason in str(caught.value)


REFERENCE = {"name": "T", "subject": "s", "version": 1}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"schema": "message M {}", "schemaType": "PROTOBUF"}, "of the kind PROTOBUF"),
        ({"schema": '"T"', "references": [REFERENCE]}, "refers to others of the registry"),
    ],
)
def test_schemas_that_are_not_avro_alone(registry, answer, reason):
    registry.answers["/schemas/ids/1"] = 200, answer
    with pytest.raises(ValueError, match=reason):
        client(registry.address).schema(1)


def test_a_registry_that_is_not_there_shows_no_secret():
    with held_port() as port, pytest.raises(SlackwaterError) as caught:
        client(f"http://127.0.0.1:{port}", secrets=("refused",)).schema(1)
    assert caught.value.condition == "SLACKWATER_REGISTRY_UNREACHABLE"
    assert "TCP at 127.0.0.1" in str(caught.value)
    assert "refused" not in str(caught.value)


def test_each_question_takes_the_connection_as_it_is_then():
    with served(Registry()) as one, served(Registry()) as other:
        one.register("s", "int")
        other.register("s", "long")
        urls = iter((one.address, other.address))
        asked = SchemaRegistry("r", lambda: RegistryAccess(next(urls), None))
        assert [asked.latest("s"), asked.latest("s")] == ['"int"', '"long"']


def test_over_tls_with_an_authority_of_its_own(tmp_path):
    certificates = Certificates.new()
    pem = tmp_path / "server.pem"
    pem.write_text(certificates.server_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    with served(Registry(), context=context) as registry:
        number = registry.register("s", "x" * 10_000)
        trusting = RegistryAccess(registry.address, Tls(certificates.authority))
        assert len(SchemaRegistry("r", lambda: trusting).schema(number)) == 10_002
        strange = RegistryAccess(registry.address, Tls(Certificates.new().authority))
        with pytest.raises(SlackwaterError, match="certificate is refused"):
            SchemaRegistry("r", lambda: strange).schema(number)
