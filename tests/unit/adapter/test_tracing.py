"""Spans: what they are of, and that nobody waits for whoever takes them."""

import sys
import threading

import pytest
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from tests.support.adapter.coordination import Place
from tests.support.waiting import PATIENCE, wait_until

from slackwater.adapter.external import tracing
from slackwater.adapter.external.tracing import is_asked_for, open_tracing
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.spans import NoSpans


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "x"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x/v1/traces"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "TRUE"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_TRACES_EXPORTER": "none"}, False),
    ],
)
def test_only_its_own_variables_ask_for_it(variables, wanted):
    assert is_asked_for(variables) is wanted


def test_statements_steps_and_ranges_are_spans(env, tmp_path):
    memory = InMemorySpanExporter()
    traced = open_tracing(lambda _: memory)
    place = Place(env, spans=traced)
    place.table("t", k="integer")
    place.sql("CREATE SOURCE c FROM LOAD GENERATOR COUNTER")
    place.sql(f"CREATE SINK s FROM t INTO FILES (PATH '{tmp_path / 'out'}', FORMAT JSON)")
    place.write("t", {"k": 1}, execution="a statement", sql="INSERT INTO t VALUES (1)")
    with pytest.raises(SlackwaterError):
        place.sql("DROP VIEW a_secret_name")
    source, sink = place.item("c").id, place.item("s").id

    def of(name):
        assert traced.provider.force_flush()
        return [span for span in memory.get_finished_spans() if span.name == name]

    wait_until(lambda: of("source step") and of("sink range"), what="both have gone on")
    (written,) = of("insert")
    assert dict(written.attributes) == {
        "slackwater.session": "app/1",
        "slackwater.statement": "a statement",
    }
    assert written.status.status_code is StatusCode.UNSET
    (dropped,) = of("drop_view")
    assert dropped.status.status_code is StatusCode.ERROR
    assert dropped.status.description.startswith("SLACKWATER_")
    assert "a_secret_name" not in dropped.to_json()
    step, written = of("source step")[0].attributes, of("sink range")[0].attributes
    assert (step["slackwater.source"], step["slackwater.step"]) == (source, 1)
    assert written["slackwater.sink"] == sink
    assert written["slackwater.lower"] < written["slackwater.upper"]
    place.close()
    traced.close()


def test_a_place_for_spans_that_hangs_delays_nobody(env, monkeypatch):
    monkeypatch.setattr(tracing, "CLOSING_S", 0.01)
    begun, answers = threading.Event(), threading.Event()

    class Hanging:
        def export(self, spans):
            begun.set()
            answers.wait(PATIENCE)
            return SpanExportResult.SUCCESS

        def shutdown(self):
            pass

    traced = open_tracing(lambda _: Hanging())
    place = Place(env, spans=traced)
    place.table("t", k="integer")
    threading.Thread(target=traced.provider.force_flush, daemon=True).start()
    assert begun.wait(PATIENCE)
    place.write("t", {"k": 1})
    assert place.rows("t") == [{"k": 1}]
    place.close()
    traced.close()
    answers.set()


def test_without_the_extra_the_log_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    said = []
    monkeypatch.setattr(tracing._log, "warning", lambda event, **rest: said.append((event, rest)))
    assert open_tracing() is None
    ((event, rest),) = said
    assert event == "not traced"
    assert "slackwater[otel]" in rest["reason"]


def test_the_usual_exporter_is_there(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    traced = open_tracing()
    assert traced is not None
    traced.close()


def test_nobody_wants_spans_by_default():
    with NoSpans().span("x", {}) as fail:
        assert fail("X") is None
