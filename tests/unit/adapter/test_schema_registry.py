"""What is asked of a schema registry, and what its answers mean."""

from __future__ import annotations

import ssl

import pytest
from tests.support.kafka.certificates import Certificates
from tests.support.kafka.registry import Registry, served
from tests.support.server.ingress import held_port

from slackwater.adapter.external.registry import SchemaRegistry
from slackwater.repr.errors import SlackwaterError
from slackwater.storage.access import RegistryAccess, Tls


def client(url, **access):
    found = RegistryAccess(url, None, **access)
    return SchemaRegistry("r", lambda: found)


def test_schemas_by_id_and_of_subjects(registry):
    first = registry.register("a/b c-value", "int")
    last = registry.register("a/b c-value", "long")
    asked = client(f"{registry.address}/")
    assert asked.schema(first) == '"int"'
    assert asked.schema(last) == asked.latest("a/b c-value") == '"long"'
    assert asked.schema(99) is asked.latest("a") is None
    assert registry.asked[2] == "/subjects/a%2Fb%20c-value/versions/latest"


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


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"schema": "message M {}", "schemaType": "PROTOBUF"}, "of the kind PROTOBUF"),
        ({"schema": '"T"', "references": [{"name": "T"}]}, "refers to others of the registry"),
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
