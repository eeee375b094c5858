"""Connections to a real Kafka cluster, tried by the statements that make and change them."""

from __future__ import annotations

import pytest
from tests.support.adapter.coordination import Place
from tests.support.kafka.broker import PASSWORD, USER

from slackwater.repr.errors import SlackwaterError
from slackwater.repr.relation import quote_string


@pytest.fixture
def place(env, kafka):
    opened = Place(env)
    opened.sql(f"CREATE SECRET pw AS {quote_string(PASSWORD)}")
    opened.sql("CREATE SECRET wrong AS 'hunter2'")
    opened.sql(f"CREATE SECRET ca AS {quote_string(kafka.certificates.authority)}")
    yield opened
    opened.close()


def secure(kafka, **more):
    """A connection to the listener with TLS and SCRAM, with other values of some options."""
    options = {
        "BROKER": quote_string(kafka.secure_address),
        "SASL MECHANISMS": "'SCRAM-SHA-256'",
        "SASL USERNAME": quote_string(USER),
        "SASL PASSWORD": "SECRET pw",
        "SSL CERTIFICATE AUTHORITY": "SECRET ca",
        **{name.replace("_", " "): value for name, value in more.items()},
    }
    given = ", ".join(f"{name} {value}" for name, value in options.items() if value is not None)
    return f"CREATE CONNECTION c TO KAFKA ({given})"


def failed(place, statement):
    """The step that failed, and why; nothing was made."""
    with pytest.raises(SlackwaterError) as caught:
        place.sql(statement)
    error = caught.value
    assert error.condition == "SLACKWATER_CONNECTION_FAILED"
    assert "hunter2" not in str(error)
    assert PASSWORD not in str(error)
    assert place.env.state.find("default", "c") is None
    return error.parameters["step"], error.parameters["reason"]


def test_each_step_that_can_fail_is_named(place, kafka):
    plain, encrypted = quote_string(kafka.address), quote_string(kafka.secure_address)
    for statement, step, reason in (
        (secure(kafka, SASL_PASSWORD="SECRET wrong"), "login", "invalid credentials"),
        (secure(kafka, SASL_USERNAME="SECRET wrong"), "login", "invalid credentials"),
        (secure(kafka, SASL_MECHANISMS="'PLAIN'"), "login", "supported mechanisms: SCRAM-SHA-256"),
        (secure(kafka, SSL_CERTIFICATE_AUTHORITY=None), "TLS", "certificate is refused"),
        (secure(kafka, SSL_CERTIFICATE_AUTHORITY="SECRET pw"), "TLS", "no certificate in PEM"),
        (secure(kafka, BROKER=plain), "TLS", "closed the connection"),
        (secure(kafka, BROKER="'127.0.0.1:1'"), "TCP", "refused"),
        (
            f"CREATE CONNECTION c TO KAFKA (BROKER {encrypted}, SECURITY PROTOCOL PLAINTEXT)",
            "login",
            "SECURITY PROTOCOL",
        ),
    ):
        found = failed(place, statement)
        assert (found[0], reason in found[1]) == (step, True), (statement, found)


def test_connections_that_work(place, kafka):
    place.sql(secure(kafka))
    place.sql("VALIDATE CONNECTION c")
    both = f"('127.0.0.1:1', {quote_string(kafka.address)})"
    place.sql(f"CREATE CONNECTION p TO KAFKA (BROKERS {both}, SECURITY PROTOCOL PLAINTEXT)")
    place.sql(
        f"ALTER CONNECTION p SET (BROKER = {quote_string(kafka.secure_address)},"
        " SASL MECHANISMS = 'SCRAM-SHA-256', SASL USERNAME = SECRET wrong,"
        " SASL PASSWORD = SECRET pw, SSL CERTIFICATE AUTHORITY = SECRET ca),"
        " RESET (SECURITY PROTOCOL) WITH (VALIDATE = false)"
    )
    with pytest.raises(SlackwaterError, match="invalid credentials"):
        place.sql("VALIDATE CONNECTION p")
    place.sql(f"ALTER SECRET wrong AS {quote_string(USER)}")
    place.sql("VALIDATE CONNECTION p")
    place.sql(f"ALTER CONNECTION p SET (SASL USERNAME = {quote_string(USER)})")
