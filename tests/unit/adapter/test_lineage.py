"""Lineage: what each change of the catalog says, and that sending it delays nobody."""

import json
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from openlineage.client.serde import Serde
from tests.support.adapter.coordination import NoSpark, Place
from tests.support.waiting import PATIENCE, wait_until

from slackwater.adapter.catalog.details import (
    ConnectionDetails,
    ConnectionSetting,
    KafkaDetails,
    KafkaSettings,
    MaterializedViewDetails,
    PostgresDetails,
    PostgresSettings,
    SinkDetails,
    SourceTableDetails,
    TableDetails,
    from_json,
    to_json,
)
from slackwater.adapter.catalog.lineage import (
    LineageColumn,
    LineageDataset,
    LineageRead,
    lineage_of,
)
from slackwater.adapter.catalog.model import CatalogItem, CatalogState, ItemKind, SchemaEntry
from slackwater.adapter.catalog.ops import Altered, CatalogDiff
from slackwater.adapter.external import libraries, lineage
from slackwater.adapter.external.lineage import LineageSender, is_asked_for
from slackwater.adapter.system.relations import system_items, system_schemas
from slackwater.planner.plan.column_lineage import ColumnLineage, ColumnRead
from slackwater.repr.frontier import Timestamp
from slackwater.repr.ids import user_id
from slackwater.repr.relation import RelationDesc
from slackwater.storage.kafka.sink_messages import KafkaSinkConfig
from slackwater.storage.lake.config import DeltaPlace, IcebergPlace, LakeSinkConfig
from slackwater.storage.postgres.tables import PostgresTable
from slackwater.storage.sink_files import SinkConfig

HERE = "s3://bucket/environment"
NAME = '<b>"' + "x" * 200
COLUMNS = (LineageColumn("k", "INT"), LineageColumn("v", "STRING"))


def entry(number, name, kind, *uses, details, **rest):
    desc = RelationDesc.of(k="integer", v="string") if kind.is_relation else None
    uses = tuple(map(user_id, uses))
    sql = f"CREATE {name} AS SELECT 'a secret', 42"
    return CatalogItem(
        user_id(number), kind, "default", name, sql, desc, None, uses, details=details, **rest
    )


def connection(number, kind, **texts):
    settings = tuple(ConnectionSetting(name, values) for name, values in texts.items())
    details = ConnectionDetails(kind, settings)
    return entry(number, f"c{number}", ItemKind.CONNECTION, details=details)


def state(*items):
    schemas = [SchemaEntry(user_id(1), "default", ""), *system_schemas()]
    return CatalogState.of(schemas, [*items, *system_items()])


T = entry(10, NAME, ItemKind.TABLE, details=TableDetails())
VIEW = MaterializedViewDetails("SELECT 1", "slackwater", ("default",))
V = entry(11, "v", ItemKind.MATERIALIZED_VIEW, 10, details=VIEW)
KAFKA = connection(20, "KAFKA", BROKERS=("h", "i:1"))
SERVER = connection(21, "POSTGRES", HOST=("db",), DATABASE=("shop",))
TABLE = PostgresTable("t", "public", "orders", 9, ())


def of(item, *others):
    (event,) = lineage_of(CatalogDiff(created=(item,)), state(), state(item, *others), HERE)
    return event


def test_a_view_reads_relations_with_their_columns():
    event = of(V, T)
    assert (event.change, event.name, event.kind) == (
        "CREATE",
        "slackwater.default.v",
        "materialized-view",
    )
    assert event.inputs == (LineageDataset(HERE, f"slackwater.default.{NAME}", COLUMNS),)
    assert event.outputs == (LineageDataset(HERE, "slackwater.default.v", COLUMNS),)
    assert "a secret" not in event.sql
    assert "42" not in event.sql


OF_T = f"slackwater.default.{NAME}"
MADE = ColumnLineage(
    ((ColumnRead("u10", "k", "IDENTITY"),), (ColumnRead("u10", "v", "AGGREGATION"),)),
    (ColumnRead("u10", "k", "GROUP_BY"), ColumnRead("u99", "gone", "FILTER")),
)


def test_a_view_says_of_which_columns_its_own_are_made():
    view = replace(V, details=replace(VIEW, lineage=MADE))
    (output,) = of(view, T).outputs
    assert output.made_of == (
        (LineageRead(HERE, OF_T, "k", "IDENTITY"),),
        (LineageRead(HERE, OF_T, "v", "AGGREGATION"),),
    )
    assert output.rows == (LineageRead(HERE, OF_T, "k", "GROUP_BY"),)
    sent = Serde.to_dict(lineage.job_event(libraries.openlineage(), of(view, T), 0))
    facet = sent["outputs"][0]["facets"]["columnLineage"]
    column = {"namespace": HERE, "name": OF_T}
    assert facet["fields"]["v"]["inputFields"] == [
        {
            **column,
            "field": "v",
            "transformations": [{"type": "DIRECT", "subtype": "AGGREGATION"}],
        }
    ]
    assert facet["dataset"] == [
        {
            **column,
            "field": "k",
            "transformations": [{"type": "INDIRECT", "subtype": "GROUP_BY"}],
        }
    ]
    assert facet["_schemaURL"].endswith("#/$defs/ColumnLineageDatasetFacet")
    # One that says nothing, and one that goes.
    assert of(V, T).outputs[0].made_of == ()
    (gone,) = lineage_of(CatalogDiff(dropped=(view,)), state(T, view), state(T), HERE)
    sent = Serde.to_dict(lineage.job_event(libraries.openlineage(), gone, 0))
    assert "columnLineage" not in sent["outputs"][0]["facets"]


def test_the_lineage_of_a_view_is_kept_in_the_catalog():
    details = replace(VIEW, lineage=MADE)
    assert from_json("materialized-view", json.loads(json.dumps(to_json(details)))) == details


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        (SinkConfig("/out", "JSON"), LineageDataset("file", "/out")),
        (
            KafkaSinkConfig("topic", "TEXT", "JSON", "UPSERT", ("k",)),
            LineageDataset("kafka://h:9092", "topic"),
        ),
        (
            LakeSinkConfig(DeltaPlace("s3://lake/a/b"), "APPEND"),
            LineageDataset("s3://lake", "a/b"),
        ),
        (LakeSinkConfig(DeltaPlace("/lake"), "APPEND"), LineageDataset("file", "/lake")),
        (
            LakeSinkConfig(IcebergPlace("n", "t"), "APPEND"),
            LineageDataset(f"{HERE}/slackwater.default.c20", "n.t"),
        ),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_sink_fills_what_is_elsewhere(config, wanted):
    details = SinkDetails(config, Timestamp(0), connection=user_id(20))
    event = of(entry(12, "out", ItemKind.SINK, 11, 20, details=details), V, T, KAFKA)
    assert [each.name for each in event.inputs] == ["slackwater.default.v"]
    assert event.outputs == (wanted,)


def test_a_source_reads_what_is_elsewhere():
    topic = KafkaDetails(KafkaSettings("orders", "cluster", "id"), user_id(20))
    assert of(entry(13, "s", ItemKind.SOURCE, 20, details=topic), KAFKA).inputs == (
        LineageDataset("kafka://h:9092", "orders"),
    )
    published = PostgresDetails(PostgresSettings("p", "slot", "7", 2, (TABLE,)), user_id(21))
    source = entry(14, "p", ItemKind.SOURCE, 21, details=published)
    orders = LineageDataset("postgres://db:5432", "shop.public.orders")
    assert of(source, SERVER).inputs == (orders,)
    later = SourceTableDetails(user_id(14), "u15", ("public", "orders"), upstream=TABLE)
    table = entry(15, "later", ItemKind.TABLE, 14, details=later)
    assert of(table, source, SERVER).inputs == (orders,)


def test_what_says_nothing_new_is_not_told():
    before, after = state(T, V), state(T, V)
    diff = CatalogDiff(altered=(Altered(V, V),))
    assert lineage_of(diff, before, after, HERE) == ()
    secret = CatalogDiff(created=(connection(22, "KAFKA", BROKERS=("h",)),))
    assert lineage_of(secret, before, after, HERE) == ()


def test_dropped_objects_are_told_of_as_they_were():
    diff = CatalogDiff(dropped=(V, T))
    events = lineage_of(diff, state(T, V), state(), HERE)
    assert [(each.change, each.name) for each in events] == [
        ("DROP", "slackwater.default.v"),
        ("DROP", f"slackwater.default.{NAME}"),
    ]
    assert [each.name for each in events[0].inputs] == [f"slackwater.default.{NAME}"]


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({}, False),
        ({"OPENLINEAGE_URL": ""}, False),
        ({"OPENLINEAGE_URL": "http://x"}, True),
        ({"OPENLINEAGE_CONFIG": "/etc/openlineage.yml"}, True),
        ({"OPENLINEAGE__TRANSPORT__TYPE": "file"}, True),
        ({"OPENLINEAGE_NAMESPACE": "x"}, False),
        ({"OPENLINEAGE_URL": "http://x", "OPENLINEAGE_DISABLED": "True"}, False),
    ],
)
def test_only_its_own_variables_ask_for_it(variables, wanted):
    assert is_asked_for(variables) is wanted


# Over HTTP


class Endpoint:
    """A server of lineage. `answers` unset: it takes requests, and says nothing."""

    def __init__(self):
        self.events, self.answers, self.began = [], threading.Event(), threading.Event()
        self.answers.set()
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                endpoint.began.set()
                endpoint.answers.wait(PATIENCE)
                endpoint.events.append(json.loads(body))
                self.send_response(201)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self):
        self.answers.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def endpoint(monkeypatch):
    endpoint = Endpoint()
    # The library copies what it finds there into more variables, which go with these.
    monkeypatch.setattr("os.environ", {**__import__("os").environ})
    monkeypatch.setenv("OPENLINEAGE_URL", endpoint.url)
    yield endpoint
    endpoint.close()


class Columns(NoSpark):
    """Plans no query."""

    place = None


def told(endpoint):
    return [
        (
            each["job"]["name"],
            {
                output["facets"]["lifecycleStateChange"]["lifecycleStateChange"]
                for output in each["outputs"]
            },
        )
        for each in endpoint.events
    ]


def test_definitions_are_told_to_a_real_endpoint(endpoint, env, monkeypatch):
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "shop")
    place = Place(env)
    place.table("t", k="integer", v="string")
    place.sql("CREATE SOURCE c FROM LOAD GENERATOR COUNTER")
    place.sql("ALTER TABLE t RENAME TO u")
    place.drop("u")
    place.close()
    assert told(endpoint) == [
        ("slackwater.default.t", {"CREATE"}),
        ("slackwater.default.c", {"CREATE"}),
        ("slackwater.default.u", {"RENAME"}),
        ("slackwater.default.u", {"DROP"}),
    ]
    first, source, renamed, _ = endpoint.events
    assert first["job"]["namespace"] == "shop"
    assert first["producer"].startswith("urn:slackwater:")
    fields = first["outputs"][0]["facets"]["schema"]["fields"]
    assert [(each["name"], each["type"]) for each in fields] == [("k", "INT"), ("v", "STRING")]
    assert {each["name"] for each in source["outputs"]} == {
        "slackwater.default.c",
        "slackwater.default.c_progress",
    }
    earlier = renamed["outputs"][0]["facets"]["lifecycleStateChange"]["previousIdentifier"]
    assert (earlier["namespace"], earlier["name"]) == ("shop", "slackwater.default.t")


def test_an_endpoint_that_hangs_delays_nobody(endpoint, env):
    endpoint.answers.clear()
    place = Place(env)
    place.table("t", k="integer")
    assert endpoint.began.wait(PATIENCE)
    # The first event is on its way, and has no answer.
    for number in range(5):
        place.table(f"t{number}", k="integer")
    place.write("t", {"k": 1})
    assert place.rows("t") == [{"k": 1}]
    assert endpoint.events == []
    endpoint.answers.set()
    wait_until(lambda: len(endpoint.events) == 6, what="the rest is told")
    place.close()


def test_an_endpoint_that_is_away_fails_nothing(endpoint, env):
    endpoint.close()
    place = Place(env)
    place.table("t", k="integer")
    place.drop("t")
    place.close()


def test_without_its_variables_nothing_is_imported_or_sent(endpoint, env, monkeypatch):
    monkeypatch.delenv("OPENLINEAGE_URL")
    monkeypatch.setattr(lineage, "openlineage", None)
    place = Place(env)
    place.table("t", k="integer")
    assert place.coordinator.parts.lineage is None
    place.close()
    assert endpoint.events == []


def test_without_the_extra_the_log_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "openlineage.client", None)
    said = []
    monkeypatch.setattr(lineage._log, "warning", lambda event, **rest: said.append((event, rest)))
    sender = LineageSender(lineage.emitter, lambda: 0)
    sender.start()
    ((event, rest),) = said
    assert event == "not sent"
    assert "slackwater[lineage]" in rest["reason"]
    sender.tell((of(T),))
    sender.close()


def test_a_configuration_that_is_none_is_told_without_its_values(monkeypatch):
    monkeypatch.setattr("os.environ", {"OPENLINEAGE__TRANSPORT__TYPE": "a password"})
    said = []
    monkeypatch.setattr(lineage._log, "warning", lambda event, **rest: said.append((event, rest)))
    sender = LineageSender(lineage.emitter, lambda: 0)
    sender.start()
    ((event, rest),) = said
    assert event == "not sent"
    assert "OpenLineage cannot be configured so" in rest["reason"]
    assert "a password" not in rest["reason"]
    sender.close()


def test_what_finds_no_room_is_left_out(monkeypatch):
    monkeypatch.setattr(lineage, "ROOM", 2)
    begun, goes_on, sent = threading.Event(), threading.Event(), []

    def emit(event, at_ms):
        begun.set()
        assert goes_on.wait(PATIENCE)
        sent.append((event.name, at_ms))

    sender = LineageSender(lambda: emit, lambda: 7)
    sender.start()
    sender.tell((of(V, T),))
    assert begun.wait(PATIENCE)
    sender.tell(tuple(of(T) for _ in range(5)))
    goes_on.set()
    wait_until(lambda: len(sent) == 3, what="those that had room")
    sender.close()
    assert sent == [("slackwater.default.v", 7), *[(f"slackwater.default.{NAME}", 7)] * 2]


def test_the_library_is_there():
    assert libraries.openlineage().client.event_v2.JobEvent
