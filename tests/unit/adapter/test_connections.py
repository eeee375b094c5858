"""Connections in the catalog, and the ways that they give into systems outside."""

from __future__ import annotations

import asyncssh
import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.adapter.calls import calls_of
from tests.support.adapter.coordination import Place

from slackwater.adapter.catalog.details import ConnectionDetails, ConnectionSetting
from slackwater.adapter.ddl.connections import altered_details
from slackwater.adapter.external.aws import RENEWED_MS, ROLE_S
from slackwater.adapter.external.tunnels import Tunnels
from slackwater.adapter.sources.connections import Connections
from slackwater.adapter.sources.secrets import Secrets
from slackwater.adapter.sources.tunnel_keys import TunnelKeys
from slackwater.persist.tables import secrets as secret_values
from slackwater.planner.parser.canonical import to_sql
from slackwater.planner.parser.connection_options import FORMS, KINDS, WORDS, Form
from slackwater.planner.parser.connection_statements import ConnectionOption, CreateConnection
from slackwater.planner.parser.names import QualifiedName
from slackwater.planner.parser.parse import parse
from slackwater.repr.errors import FatalError, SlackwaterError, user_error
from slackwater.repr.ids import user_id

PLAIN = "CREATE CONNECTION {} TO KAFKA (BROKER 'h:9092', SECURITY PROTOCOL PLAINTEXT) WITH {}"
UNTRIED = "(VALIDATE = false)"


class Trials:
    """Tries connections for the coordinator: notes them, and fails where it is told to."""

    def __init__(self) -> None:
        self.tried: list[str] = []
        self.failing: SlackwaterError | None = None
        self.meanwhile = lambda: None

    def validate(self, name, access):
        self.tried.append(f"{name} {type(access).__name__}")
        self.meanwhile()
        if self.failing is not None:
            raise self.failing


@pytest.fixture
def trials():
    return Trials()


@pytest.fixture
def place(env, trials):
    opened = Place(env, validate=trials.validate)
    yield opened
    opened.close()


def connections(place, clock_ms=lambda: 0):
    transactions = place.env.persist.transactions
    secrets, keys = Secrets(transactions), TunnelKeys(transactions)
    return Connections(lambda: place.env.state, secrets, keys, Tunnels(), clock_ms)


def refused(place, statement):
    with pytest.raises(SlackwaterError) as caught:
        place.sql(statement)
    assert "hunter2" not in str(caught.value)
    return caught.value


def created(place, name="c"):
    return place.sql(f"SHOW CREATE CONNECTION {name}")[0]["create_sql"]


def scram(place):
    """A connection whose password, user and key are secrets."""
    place.sql("CREATE SECRET pw AS 'hunter2'")
    place.sql("CREATE SECRET who AS 'bob'")
    place.sql(
        "CREATE CONNECTION c TO KAFKA (BROKERS ('h:1', 'i:2'), SASL MECHANISMS 'SCRAM-SHA-256',"
        " SASL USERNAME SECRET who, SASL PASSWORD SECRET pw, SSL CERTIFICATE AUTHORITY 'pem')"
        f" WITH {UNTRIED}"
    )
    return place.item("c").id


def test_kafka_has_the_settings_of_librdkafka(place):
    access = connections(place).kafka(scram(place))
    assert dict(access.settings) == {
        "bootstrap.servers": "h:1,i:2",
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "SCRAM-SHA-256",
        "sasl.username": "bob",
        "sasl.password": "hunter2",
        "ssl.ca.pem": "pem",
    }
    assert "hunter2" not in repr(access)
    assert access.scrubbed("bob has hunter2") == "<redacted> has <redacted>"


def test_each_change_is_another_version(place):
    connection, opened = scram(place), connections(place)
    seen = [opened.kafka(connection).version]
    for statement in (
        "ALTER SECRET pw AS 'other'",
        f"ALTER CONNECTION c SET (BROKER = 'j:3') WITH {UNTRIED}",
        "ALTER SECRET who AS 'eve'",
        f"ALTER CONNECTION c SET (BROKER = 'h:1') WITH {UNTRIED}",
    ):
        place.sql(statement)
        seen.append(opened.kafka(connection).version)
        assert seen[-1] == opened.version(connection)
    assert len(set(seen)) == len(seen)
    place.sql("COMMENT ON CONNECTION c IS 'the shop'")
    place.sql("ALTER CONNECTION c RENAME TO d")
    place.restart()
    access = connections(place).kafka(connection)
    assert access.version == seen[-1]
    found = dict(access.settings)
    assert (found["sasl.username"], found["sasl.password"]) == ("eve", "other")
    assert access.secrets == ("eve", "other")


def test_the_other_kinds(place):
    place.sql("CREATE SECRET pw AS 'hunter2'")
    place.sql(
        f"CREATE CONNECTION r TO CONFLUENT SCHEMA REGISTRY (URL 'http://r:81') WITH {UNTRIED}"
    )
    place.sql(
        "CREATE CONNECTION p TO POSTGRES (HOST 'h', DATABASE 'd', USER 'u', PASSWORD SECRET pw,"
        f" SSL MODE verify_ca, SSL CERTIFICATE AUTHORITY 'pem') WITH {UNTRIED}"
    )
    place.sql("CREATE CONNECTION a TO AWS (ACCESS KEY ID 'k', SECRET ACCESS KEY SECRET pw)")
    opened = connections(place)
    registry = opened.registry(place.item("r").id)
    assert (registry.url, registry.tls, registry.username) == ("http://r:81", None, None)
    postgres = opened.postgres(place.item("p").id)
    assert (postgres.host, postgres.port, postgres.password) == ("h", 5432, "hunter2")
    assert (postgres.tls.authority, postgres.tls.is_verified) == ("pem", True)
    assert not postgres.tls.names_host
    aws = opened.aws(place.item("a").id)
    assert (aws.access_key_id, aws.secret_access_key, aws.region) == ("k", "hunter2", None)
    assert "hunter2" not in f"{registry} {postgres} {aws}"
    with pytest.raises(FatalError):
        opened.kafka(place.item("p").id)


def test_a_secret_that_is_no_text(place):
    place.sql("CREATE SECRET raw AS X'ff'")
    place.sql(
        "CREATE CONNECTION c TO KAFKA (BROKER 'h', SSL CERTIFICATE AUTHORITY SECRET raw)"
        f" WITH {UNTRIED}"
    )
    with pytest.raises(SlackwaterError, match="SLACKWATER_SECRET_NOT_TEXT"):
        connections(place).kafka(place.item("c").id)


def test_the_statement_has_names_of_secrets_as_they_are_now(place):
    scram(place)
    assert "hunter2" not in created(place)
    place.sql("ALTER SECRET pw RENAME TO `p.w`")
    assert created(place) == (
        "CREATE CONNECTION `slackwater`.`default`.`c` TO KAFKA (BROKERS ('h:1', 'i:2'),"
        " SASL MECHANISMS 'SCRAM-SHA-256', SASL USERNAME SECRET `slackwater`.`default`.`who`,"
        " SASL PASSWORD SECRET `slackwater`.`default`.`p.w`, SSL CERTIFICATE AUTHORITY 'pem')"
    )
    text = created(place)
    place.sql("DROP CONNECTION c")
    place.sql(f"{text} WITH {UNTRIED}")
    assert created(place) == text


def test_secrets_go_with_their_connections(place):
    scram(place)
    error = refused(place, "DROP SECRET pw")
    assert error.condition == "SLACKWATER_DEPENDENT_OBJECTS"
    assert "connection slackwater.default.c" in error.message
    place.sql(
        "ALTER CONNECTION c SET (SECURITY PROTOCOL = SSL),"
        f" RESET (SASL MECHANISMS, SASL USERNAME, SASL PASSWORD) WITH {UNTRIED}"
    )
    place.sql("DROP SECRET pw")
    assert [row["name"] for row in place.sql("SHOW CONNECTIONS")] == ["c"]
    place.sql(f"ALTER CONNECTION c SET (SSL CERTIFICATE AUTHORITY = SECRET who) WITH {UNTRIED}")
    place.sql("DROP SECRET who CASCADE")
    assert place.sql("SHOW CONNECTIONS") == []


def test_options_that_do_not_go_together_are_refused_after_a_change(place):
    scram(place)
    before = created(place)
    for statement, condition in (
        ("SET (HOST = 'h')", "SLACKWATER_UNKNOWN_OPTION"),
        ("RESET (HOST)", "SLACKWATER_UNKNOWN_OPTION"),
        ("RESET (BROKER)", "SLACKWATER_SYNTAX_ERROR"),
        ("SET (SECURITY PROTOCOL = PLAINTEXT)", "SLACKWATER_INVALID_OPTION"),
        ("RESET (SASL USERNAME)", "SLACKWATER_SYNTAX_ERROR"),
        ("SET (SASL PASSWORD = SECRET nowhere)", "SLACKWATER_UNKNOWN_OBJECT"),
        ("SET (SASL PASSWORD = SECRET c)", "SLACKWATER_WRONG_KIND"),
        ("SET (SASL PASSWORD = 'hunter2')", "SLACKWATER_INVALID_OPTION"),
    ):
        error = refused(place, f"ALTER CONNECTION c {statement} WITH {UNTRIED}")
        assert error.condition == condition, statement
    assert created(place) == before


POSTGRES = "TO POSTGRES (HOST 'h', DATABASE 'd', USER 'u')"


def test_connections_are_tried(place, trials):
    place.sql("CREATE CONNECTION k TO KAFKA (BROKER 'h')")
    place.sql("CREATE CONNECTION r TO CONFLUENT SCHEMA REGISTRY (URL 'http://h')")
    place.sql(f"CREATE CONNECTION p {POSTGRES} WITH (VALIDATE = true)")
    place.sql("CREATE CONNECTION a TO AWS")
    place.sql("CREATE CONNECTION b TO AWS WITH (VALIDATE)")
    place.sql("ALTER CONNECTION k SET (BROKER = 'i')")
    place.sql("ALTER CONNECTION a SET (REGION = 'i')")
    place.sql("VALIDATE CONNECTION a")
    assert trials.tried == [
        "slackwater.default.k KafkaAccess",
        "slackwater.default.r RegistryAccess",
        "slackwater.default.p PostgresAccess",
        "slackwater.default.b AwsAccess",
        "slackwater.default.k KafkaAccess",
        "slackwater.default.a AwsAccess",
    ]
    trials.tried.clear()
    place.sql(f"CREATE CONNECTION q {POSTGRES} WITH {UNTRIED}")
    place.sql(f"ALTER CONNECTION q SET (PORT = 1) WITH {UNTRIED}")
    assert trials.tried == []


def test_nothing_is_tried_in_vain(place, trials):
    place.sql(f"CREATE CONNECTION c {POSTGRES} WITH {UNTRIED}")
    place.sql(f"CREATE CONNECTION IF NOT EXISTS c {POSTGRES}")
    place.sql("ALTER CONNECTION IF EXISTS nowhere SET (PORT = 1)")
    for statement, state in (
        (f"CREATE CONNECTION c {POSTGRES}", "42710"),
        (f"CREATE CONNECTION nowhere.c {POSTGRES}", "3F000"),
        ("CREATE CONNECTION d TO KAFKA (BROKER 'h', SSL CERTIFICATE AUTHORITY SECRET s)", "42704"),
        ("ALTER CONNECTION c SET (BROKER = 'h')", "42601"),
        ("ALTER CONNECTION nowhere SET (PORT = 1)", "42704"),
        ("VALIDATE CONNECTION nowhere", "42704"),
    ):
        assert refused(place, statement).sqlstate == state, statement
    assert trials.tried == []


def test_a_connection_that_does_not_work_changes_nothing(place, trials):
    place.sql(f"CREATE CONNECTION c {POSTGRES}")
    before = created(place)
    trials.failing = user_error(
        "SLACKWATER_CONNECTION_FAILED", objectName="c", step="TCP", address="h:1", reason="r"
    )
    for statement in (
        f"CREATE CONNECTION d {POSTGRES}",
        "ALTER CONNECTION c SET (PORT = 1)",
        "VALIDATE CONNECTION c",
    ):
        assert refused(place, statement).sqlstate == "08001"
    assert [row["name"] for row in place.sql("SHOW CONNECTIONS")] == ["c"]
    assert created(place) == before


def test_the_catalog_is_free_while_a_connection_is_tried(place, trials):
    place.sql("CREATE SECRET s AS 'x'")
    statement = f"ALTER CONNECTION c SET (HOST = 'other') WITH {UNTRIED}"
    place.sql(f"CREATE CONNECTION c {POSTGRES}")
    trials.meanwhile = lambda: place.sql("ALTER CONNECTION c RENAME TO d", session="app/2")
    place.sql("ALTER CONNECTION c SET (PORT = 1)")
    assert "PORT 1" in created(place, "d")
    trials.meanwhile = lambda: place.sql(statement.replace("c SET", "d SET"), session="app/2")
    error = refused(place, "ALTER CONNECTION d SET (PORT = 2)")
    assert error.condition == "SLACKWATER_CONCURRENT_CHANGE"
    assert "PORT 1" in created(place, "d")
    trials.meanwhile = lambda: place.sql("DROP SECRET s", session="app/2")
    error = refused(place, "ALTER CONNECTION d SET (PASSWORD = SECRET s)")
    assert error.condition == "SLACKWATER_DEPENDENCY_DROPPED"


def test_changes_are_in_the_audit(place):
    place.sql(f"CREATE CONNECTION c {POSTGRES}")
    place.sql("ALTER CONNECTION c SET (PORT = 1)")
    place.sql("DROP CONNECTION c")
    events = [e for e in place.env.catalog.audit_events() if e.object_type == "connection"]
    assert [event.event_type for event in events] == ["create", "alter", "drop"]


HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAgWLJu0RC8eIxvsEtwcMmb0UQ6g6HNXDmQw2XTPjqMd"
TEXTS = {
    "BROKERS": ("h:1", "i"),
    "PORT": ("1",),
    "ENDPOINT": ("https://h",),
    "WAREHOUSE": ("s3://b",),
    "PROGRESS TOPIC REPLICATION FACTOR": ("3",),
    "HOST KEY": (HOST_KEY,),
}
CHOICES = {option: [(word,) for word in words] for option, words in WORDS.items()} | {
    "URL": [("http://h",), ("postgresql://u@h/d",), ("sqlite:////f",), ("thrift://h",)]
}
SECRET_ID = user_id(9)
values = {
    option: st.just(ConnectionSetting(option, secret=SECRET_ID))
    if form is Form.SECRET
    else st.just(ConnectionSetting(option, connection=SECRET_ID))
    if form is Form.CONNECTION
    else st.sampled_from(
        [
            ConnectionSetting(option, texts)
            for texts in CHOICES.get(option) or [TEXTS.get(option, ("x",))]
        ]
    )
    for option, form in FORMS.items()
}


BEGUN = {
    "KAFKA": ("BROKERS", "SASL MECHANISMS", "SASL USERNAME", "SASL PASSWORD"),
    "CONFLUENT SCHEMA REGISTRY": ("URL", "USERNAME"),
    "POSTGRES": ("HOST", "DATABASE", "USER", "SSL CERTIFICATE AUTHORITY", "SSL MODE"),
    "AWS": ("REGION",),
    "ICEBERG CATALOG": ("CATALOG TYPE", "URL", "WAREHOUSE"),
    "SSH TUNNEL": ("HOST", "USER"),
}


def options_of(kind, most=3):
    return st.lists(st.sampled_from(KINDS[kind]), unique=True, max_size=most)


@settings(deadline=None, max_examples=400)
@given(st.sampled_from(sorted(KINDS)), st.data())
def test_what_a_change_leaves_could_have_been_created(kind, data):
    """ALTER takes options in exactly the cases in which CREATE would take what comes out."""
    begun = [data.draw(values[option]) for option in BEGUN[kind]]
    given = [data.draw(values[option]) for option in data.draw(options_of(kind))]
    named = {each.name for each in given}
    reset = [option for option in data.draw(options_of(kind)) if option not in named]
    try:
        found = altered_details(ConnectionDetails(kind, tuple(begun)), given, reset)
    except SlackwaterError:
        found = None
    kept = {each.name: each for each in (*begun, *given) if each.name not in reset}
    name, secret = QualifiedName(("c",)), QualifiedName(("s",))
    options = tuple(ConnectionOption(each.name, each.texts or secret) for each in kept.values())
    try:
        created = parse(to_sql(CreateConnection(name, kind, options)))
    except SlackwaterError:
        created = None
    assert (found is None) == (created is None)
    if found is not None:
        assert created == CreateConnection(name, kind, options)
        assert [each.name for each in found.settings] == list(kept)
        assert found.version == 1


def test_names_of_connections(place):
    calls_of(place.coordinator)["/v1/catalog/create_namespace"](
        {"session": "app/1", "namespace": ["s"]}
    )
    for name in ("Kafka", "s.`a.b`", "`größe ü`", "`back``tick`"):
        place.sql(PLAIN.format(name, UNTRIED))
    place.sql(PLAIN.format("IF NOT EXISTS KAFKA", UNTRIED))
    assert refused(place, PLAIN.format("kafka", UNTRIED)).sqlstate == "42710"
    assert "`back``tick`" in created(place, "`BACK``TICK`")
    place.sql("ALTER CONNECTION s.`A.B` RENAME TO s.`x.y`")
    assert [row["name"] for row in place.sql("SHOW CONNECTIONS FROM s")] == ["x.y"]
    place.sql("DROP CONNECTION IF EXISTS nowhere, s.`x.y`")
    assert place.sql("SHOW CONNECTIONS FROM s") == []


THROUGH = "TO POSTGRES (HOST 'h', DATABASE 'd', USER 'u', SSH TUNNEL t)"
TUNNEL = "TO SSH TUNNEL (HOST 'bastion', USER 'bob')"


def kept_values(place):
    return place.env.persist.transactions.query(
        lambda conn: conn.execute(sa.select(secret_values)).all()
    )


def public_keys(place, name="t"):
    details = place.item(name).of(ConnectionDetails)
    return details.public_keys


def test_a_tunnel_has_two_pairs_of_keys_that_nothing_shows(place, trials):
    place.sql(f"CREATE CONNECTION t {TUNNEL}")
    assert trials.tried == []
    access = connections(place).ssh(place.item("t").id)
    assert (access.host, access.port, access.user, access.host_key) == ("bastion", 22, "bob", None)
    for private, public in zip(access.keys, public_keys(place), strict=True):
        pair = asyncssh.import_private_key(private)
        assert pair.export_public_key().decode().split()[:2] == public.split()[:2]
        assert public.startswith("ssh-ed25519 ")
    assert len(set(access.keys)) == 2
    shown = [*place.sql("SHOW CONNECTIONS"), *place.sql("SHOW CREATE CONNECTION t")]
    for private in access.keys:
        line = private.splitlines()[1]
        assert line not in f"{access} {shown} {place.item('t')}"
        assert line not in str(place.env.catalog.audit_events())
        assert line not in access.scrubbed(f"say {private}")
    assert created(place, "t") == (
        "CREATE CONNECTION `slackwater`.`default`.`t` TO SSH TUNNEL (HOST 'bastion', USER 'bob')"
    )
    place.restart()
    assert connections(place).ssh(place.item("t").id).keys == access.keys


def test_keys_are_rotated(place, trials):
    place.sql(f"CREATE CONNECTION t {TUNNEL}")
    place.sql(f"CREATE CONNECTION p {THROUGH} WITH {UNTRIED}")
    opened, tunnel, through = connections(place), place.item("t").id, place.item("p").id
    versions, keys, public = [opened.version(through)], opened.ssh(tunnel).keys, public_keys(place)
    place.sql("ALTER CONNECTION t ROTATE KEYS")
    rotated = opened.ssh(tunnel).keys
    assert (rotated[0], public_keys(place)[0]) == (keys[1], public[1])
    assert len({*rotated, *keys}) == 3
    versions.append(opened.version(through))
    place.sql("ALTER CONNECTION t SET (PORT = 23)")
    versions.append(opened.version(through))
    assert opened.postgres(through).version == versions[-1]
    assert len(set(versions)) == 3
    place.sql("ALTER CONNECTION IF EXISTS nowhere ROTATE KEYS")
    error = refused(place, "ALTER CONNECTION p ROTATE KEYS")
    assert error.condition == "SLACKWATER_UNSUPPORTED"
    assert trials.tried == []


def test_a_tunnel_that_is_used_is_not_dropped(place):
    place.sql(f"CREATE CONNECTION t {TUNNEL}")
    place.sql("CREATE CONNECTION other TO AWS")
    place.sql(f"CREATE CONNECTION p {THROUGH} WITH {UNTRIED}")
    registry = "TO CONFLUENT SCHEMA REGISTRY (URL 'https://r', SSH TUNNEL t)"
    place.sql(f"CREATE CONNECTION r {registry} WITH {UNTRIED}")
    opened = connections(place)
    for way in (opened.postgres(place.item("p").id), opened.registry(place.item("r").id)):
        assert (way.tunnel.access.host, way.tunnel.access.name) == (
            "bastion",
            "slackwater.default.t",
        )
    assert refused(place, "DROP CONNECTION t").condition == "SLACKWATER_DEPENDENT_OBJECTS"
    error = refused(place, "ALTER CONNECTION p SET (SSH TUNNEL = other)")
    assert (error.condition, "one to AWS" in error.message) == ("SLACKWATER_INVALID_OPTION", True)
    place.sql("ALTER CONNECTION t RENAME TO u")
    assert created(place, "p").endswith("SSH TUNNEL `slackwater`.`default`.`u`)")
    place.sql(f"ALTER CONNECTION r RESET (SSH TUNNEL) WITH {UNTRIED}")
    assert opened.registry(place.item("r").id).tunnel is None
    place.sql("DROP CONNECTION u CASCADE")
    assert [row["name"] for row in place.sql("SHOW CONNECTIONS")] == ["other", "r"]
    assert kept_values(place) == []


def test_the_first_key_of_a_server_is_kept(place):
    place.sql(f"CREATE CONNECTION t {TUNNEL}")
    opened, tunnel = connections(place), place.item("t").id
    first = opened.ssh(tunnel)
    assert first.keep("ssh-ed25519 a") == "ssh-ed25519 a"
    assert first.keep("ssh-ed25519 b") == "ssh-ed25519 a"
    place.restart()
    opened = connections(place)
    assert (opened.ssh(tunnel).host_key, opened.ssh(tunnel).is_pinned) == ("ssh-ed25519 a", False)
    place.sql(f"ALTER CONNECTION t SET (HOST KEY = '{HOST_KEY}')")
    assert (opened.ssh(tunnel).host_key, opened.ssh(tunnel).is_pinned) == (HOST_KEY, True)
    place.sql("ALTER CONNECTION t RESET (HOST KEY)")
    assert opened.ssh(tunnel).host_key is None
    opened.ssh(tunnel).keep("ssh-ed25519 b")
    place.sql("ALTER CONNECTION t SET (USER = 'eve')")
    assert opened.ssh(tunnel).host_key == "ssh-ed25519 b"
    place.sql("ALTER CONNECTION t SET (HOST = 'other')")
    assert opened.ssh(tunnel).host_key is None
    before = opened.ssh(tunnel)
    place.sql("DROP CONNECTION t")
    assert before.keep("ssh-ed25519 c") == "ssh-ed25519 c"
    assert kept_values(place) == []


def test_an_access_with_a_role_has_another_version_before_its_keys_expire(place):
    now = [1_000 * RENEWED_MS]
    opened = connections(place, lambda: now[0])
    role = "ASSUME ROLE ARN 'arn:aws:iam::123456789012:role/r'"
    place.sql(f"CREATE CONNECTION r TO AWS ({role}, ASSUME ROLE SESSION NAME 's')")
    place.sql("CREATE CONNECTION a TO AWS")
    named, plain = place.item("r").id, place.item("a").id
    first = opened.version(named)
    assert (opened.aws(named).role_session, opened.aws(named).version) == ("s", first)
    now[0] += RENEWED_MS - 1
    assert opened.version(named) == first
    now[0] += 1
    assert opened.version(named) != first
    assert opened.version(plain) == "0"
    assert 2 * RENEWED_MS <= 1000 * ROLE_S
