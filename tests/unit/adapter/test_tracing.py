"""Spans: what they are of, and that nobody waits for whoever takes them."""

import sys
import threading

import pytest
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from tests.support.adapter.coordination import Place, calls_of
from tests.support.otlp import receiver
from tests.support.waiting import PATIENCE, wait_until

from slackwater.adapter.external import tracing
from slackwater.adapter.external.tracing import is_asked_for, open_tracing
from slackwater.repr.errors import SlackwaterError
from slackwater.repr.spans import Awaited, Moves, NoSpans, PastSpan


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
    written = next(each for each in of("write") if "a statement" in each.to_json())
    assert dict(written.attributes) == {
        "slackwater.session": "app/1",
        "slackwater.statement": "a statement",
    }
    assert written.status.status_code is StatusCode.UNSET
    dropped = next(each for each in of("execute") if each.status.description)
    assert dropped.status.status_code is StatusCode.ERROR
    assert dropped.status.description.startswith("SLACKWATER_")
    assert "a_secret_name" not in dropped.to_json()
    step, written = of("source step")[0].attributes, of("sink range")[0].attributes
    assert (step["slackwater.source"], step["slackwater.step"]) == (source, 1)
    assert written["slackwater.sink"] == sink
    assert written["slackwater.lower"] < written["slackwater.upper"]
    place.close()
    traced.close()


def test_a_statement_is_a_trace_with_links_to_what_it_waited_for(env, monkeypatch):
    with receiver() as received:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.address)
        traced = open_tracing()
        place = Place(env, spans=traced)
        place.sql("CREATE SOURCE c FROM LOAD GENERATOR COUNTER (TICK INTERVAL '100 ms')")
        source = place.item("c").id
        calls, own = calls_of(place.coordinator), {"session": "app/1", "execution": "7"}
        late = {"at_least": place.env.persist.reads.tables_upper() + 500}
        reads = {"relations": [{"id": source, "as_of": late}], "sql": "SELECT 'a secret' FROM c"}
        bound = calls["/v1/bind"]({**own, **reads, "context": {"user": "me"}})
        end = {"hold": bound["hold"], "took_ms": 3, "rows": 4, "condition": "DIVIDE_BY_ZERO"}
        calls["/v1/release"]({"holds": [bound["hold"]], "ended": [end]})
        read = {"session": "app/1", "timestamp": 5, "began_ago_ms": 40, "took_us": 2, "ago_ms": 9}
        told = {"application": "a", "sql": "SELECT 1", "execution": "8", "rows": 1}
        calls["/v1/reads"]({"reads": [{**read, **told}]})
        place.close()
        traced.provider.force_flush()
        (whole,) = received.spans("select", statement="7")
        assert not whole.parent
        assert whole.error == "DIVIDE_BY_ZERO"
        assert whole.attributes == {
            "session": "app/1",
            "statement": "7",
            "spark_execution_id": 7,
            "status": "error",
            "timestamp": bound["timestamp"],
            "rows_returned": 4,
        }
        bind, spark = received.below(whole)
        assert (bind.name, spark.name) == ("bind", "spark execution")
        assert spark.attributes == {"spark_execution_id": 7, "rows_returned": 4}
        assert spark.ended_ns - spark.began_ns == 3_000_000
        (wait,) = received.below(bind)
        assert wait.name == "wait"
        as_of = bound["relations"][0]["as_of"]
        assert wait.attributes == {"object": source, "timestamp": as_of}
        assert whole.began_ns <= bind.began_ns <= wait.began_ns <= wait.ended_ns <= bind.ended_ns
        steps = received.linked(wait)
        assert len(steps) == len(wait.links) > 0
        assert {(each.name, each.attributes["source"]) for each in steps} == {
            ("source step", source)
        }
        (unbound,) = received.spans("select", statement="8")
        assert unbound.ended_ns - unbound.began_ns == 31_000_000
        assert [each.name for each in received.below(unbound)] == ["spark execution"]
        assert not any("secret" in str(each) for each in received.spans())
        traced.close()


def test_of_too_many_open_statements_the_oldest_ends(monkeypatch):
    monkeypatch.setattr(tracing, "OPEN_AT_MOST", 2)
    memory = InMemorySpanExporter()
    traced = open_tracing(lambda _: memory)
    for number in range(4):
        with traced.call(number, "plan", {}):
            pass
    traced.ended(3, PastSpan("select", 1, 1), ())
    assert traced.provider.force_flush()
    names = [each.name for each in memory.get_finished_spans()]
    assert sorted(names) == ["plan"] * 4 + ["select"] + ["statement"] * 2
    traced.close()


def test_what_is_not_in_the_sample_is_not_sent(monkeypatch):
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    memory = InMemorySpanExporter()
    traced = open_tracing(lambda _: memory)
    tick, awaited = Moves("u1", 1, 2), Awaited("u1", lambda: ["u1"], 1)
    with traced.span("tick", {}, tick), traced.call(1, "bind", {}), traced.wait("wait", awaited):
        pass
    traced.ended(1, PastSpan("select", 1, 1), [PastSpan("spark execution", 1, 1)])
    assert traced.provider.force_flush()
    assert memory.get_finished_spans() == ()
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
