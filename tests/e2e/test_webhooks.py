"""Sources FROM WEBHOOK over HTTP, in an application of the whole product."""

import base64
import hmac
import json
import re
import subprocess
import threading
import time
from pathlib import Path

import pytest
from tests.support.applications.application import Application, SqlError
from tests.support.applications.fixtures import Workplace
from tests.support.applications.odd_columns import NAMES, quoted
from tests.support.server.ingress import Signer, certificate, held_port, request
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.spark

SECRET = "hidden-zJ4"


@pytest.fixture(scope="module")
def application(tmp_path_factory):
    folder = tmp_path_factory.mktemp("webhooks")
    with held_port() as port:
        conf = {
            "spark.slackwater.ingress.address": f"127.0.0.1:{port}",
            "spark.slackwater.ingress.body.limit": "64kB",
        }
        with Application(folder / "environment", conf=conf, master="local[2]") as running:
            yield running
    told = "".join(path.read_text() for path in (folder / "environment" / "log").iterdir())
    assert SECRET not in told
    assert SECRET not in running.log.read_text()


@pytest.fixture
def place(application, request):
    schema = request.node.originalname[:40]
    made = Workplace(application, schema, None)
    yield made
    application.sql(f"DROP SCHEMA slackwater.{schema} CASCADE")


def url(place, name):
    found = place.value(
        "SELECT url FROM mz_internal.mz_webhook_sources"
        f" WHERE name = '{name}' AND url LIKE '%/{place.schema}/%'"
    )
    assert found.startswith("http://127.0.0.1:")
    return found


def post(place, name, body=b"", headers=()):
    return request(url(place, name), body, headers).status


def signed(body, algorithm="sha256", key=SECRET):
    return hmac.new(key.encode(), body, algorithm)


def test_what_was_answered_is_read(place):
    place.sql("CREATE SOURCE w FROM WEBHOOK (BODY FORMAT JSON)")
    at = url(place, "w")
    for number in range(5):
        assert request(at, json.dumps({"n": number}).encode()).status == 200
        assert place.value("SELECT count(*) FROM w") == number + 1
    assert post(place, "w", b'{"n": 5}\n{"n": 6}') == 200
    assert place.value("SELECT max(get_json_object(body, '$.n')) FROM w") == "6"


def test_the_rows_of_a_request_are_at_one_time(place):
    place.sql("CREATE SOURCE w FROM WEBHOOK (BODY FORMAT JSON ARRAY)")
    place.sql("CREATE MATERIALIZED VIEW v AS SELECT count(*) AS n FROM w")
    place.sql("DECLARE c CURSOR FOR SUBSCRIBE TO w")
    for size in (3, 0, 500):
        assert post(place, "w", json.dumps(list(range(size))).encode()) == 200
    times = {}
    while sum(map(len, times.values())) < 503:
        for mz_timestamp, _, body in place.rows("FETCH ALL c WITH (timeout = '5s')"):
            times.setdefault(mz_timestamp, []).append(int(body))
    place.sql("CLOSE c")
    assert sorted(map(len, times.values())) == [3, 500]
    assert place.value("SELECT n FROM v") == 503


def test_formats(place):
    place.sql("CREATE SOURCE t FROM WEBHOOK (BODY FORMAT TEXT)")
    place.sql("CREATE SOURCE b FROM WEBHOOK (BODY FORMAT BYTES)")
    place.sql("CREATE SOURCE j FROM WEBHOOK (BODY FORMAT JSON)")
    assert post(place, "t", "grün\n".encode()) == 200
    assert post(place, "t", b"\xff") == 400
    assert post(place, "b", b"\xff\x00") == 200
    assert post(place, "j", b"{") == 400
    assert post(place, "j", b"[1, 2]") == 200
    assert place.rows("SELECT body FROM t") == [["grün\n"]]
    assert place.rows("SELECT hex(body) FROM b") == [["FF00"]]
    assert place.rows("SELECT body FROM j") == [["[1, 2]"]]


def test_headers(place):
    place.sql(
        "CREATE SOURCE w FROM WEBHOOK (BODY FORMAT TEXT, INCLUDE HEADER 'X-Id' AS id,"
        " INCLUDE HEADER 'X-Raw' AS raw BYTES, INCLUDE HEADERS (NOT 'X-Raw', 'x-id', 'x-raw'))"
    )
    assert post(place, "w", b"1", {"X-ID": "7", "x-raw": "r", "x-other": "o"}) == 200
    assert post(place, "w", b"2") == 200
    assert post(place, "w", b"3", [("X-Id", "1"), ("x-id", "2")]) == 401
    assert place.rows(
        "SELECT body, id, hex(raw), map_keys(headers), headers['x-id'] FROM w ORDER BY 1"
    ) == [["1", "7", "72", ["x-id"], "7"], ["2", None, None, [], None]]


def test_signatures(place):
    """Each as senders make them: of hexadecimal digits, in base64, with a time."""
    place.sql(f"CREATE SECRET s AS '{SECRET}'")
    raw = SECRET.encode().hex()
    place.sql(f"CREATE SECRET b AS X'{raw}'")
    place.sql(
        "CREATE SOURCE hexed FROM WEBHOOK (BODY FORMAT JSON, CHECK (WITH (HEADERS, BODY, SECRET s)"
        " headers['x-hub-signature'] = concat('sha256=', lower(hex(hmac(body, s, 'sha256'))))))"
    )
    place.sql(
        "CREATE SOURCE based FROM WEBHOOK (BODY FORMAT TEXT, CHECK (WITH (HEADERS AS h, BODY BYTES,"
        " SECRET b AS k BYTES) constant_time_eq(unbase64(h['sig']), hmac(body, k, 'MD5'))))"
    )
    place.sql(
        "CREATE SOURCE timed FROM WEBHOOK (BODY FORMAT TEXT, CHECK (WITH (HEADERS, BODY, SECRET s)"
        " constant_time_eq(unbase64(headers['sig']), hmac(concat(headers['at'], '.', body), s,"
        " 'sha512')) AND abs(unix_timestamp(now()) - CAST(headers['at'] AS BIGINT)) < 300))"
    )
    body = '{"ü": 1}'.encode()
    good = {"X-Hub-Signature": f"sha256={signed(body).hexdigest()}"}
    assert post(place, "hexed", body, good) == 200
    assert post(place, "hexed", body + b" ", good) == 400
    assert post(place, "hexed", body) == 400
    wrong = signed(body, key="other").hexdigest()
    assert post(place, "hexed", body, {"X-Hub-Signature": f"sha256={wrong}"}) == 400

    digest = base64.b64encode(signed(b"\xff", "md5").digest()).decode()
    assert post(place, "based", b"\xff", {"sig": digest}) == 400
    digest = base64.b64encode(signed(b"a", "md5").digest()).decode()
    assert post(place, "based", b"a", {"sig": digest}) == 200
    assert post(place, "based", b"a", {"sig": "no base64 at all"}) == 400

    for age_s, status in ((0, 200), (200, 200), (400, 400), (-400, 400)):
        at = str(int(time.time()) - age_s)
        text = f"{at}.x".encode()
        digest = base64.b64encode(signed(text, "sha512").digest()).decode()
        assert post(place, "timed", b"x", {"sig": digest, "at": at}) == status
    assert place.rows("SELECT count(*) FROM hexed") == [[1]]
    assert place.rows("SELECT count(*) FROM timed") == [[2]]


@pytest.mark.parametrize(
    ("check", "status"),
    [
        ("true", 200),
        ("false", 400),
        ("CAST(NULL AS BOOLEAN)", 400),
        ("1 / 0 > 1", 400),
        ("WITH (BODY) CAST(body AS INT) = 7", 400),
        ("WITH (BODY BYTES) body = X'78'", 200),
        ("WITH (HEADERS BYTES) headers['x-a'] = X'31'", 200),
        ("WITH (HEADERS) headers['x-a'] BETWEEN '0' AND '2'", 200),
        ("WITH (HEADERS) nullif(headers['x-a'], '1') IS NULL", 200),
        ("current_date() > DATE'2020-01-01' AND localtimestamp() > TIMESTAMP_NTZ'2020-01-01'", 200),
        ("current_timestamp() = now()", 200),
        ("WITH (BODY) body RLIKE '^x$' AND length(body) = 1", 200),
    ],
)
def test_conditions(place, check, status):
    place.sql(f"CREATE SOURCE w FROM WEBHOOK (BODY FORMAT TEXT, CHECK ({check}))")
    assert post(place, "w", b"x", {"x-a": "1"}) == status


def test_a_secret_may_change(place):
    place.sql("CREATE SECRET s AS 'first'")
    place.sql(
        "CREATE SOURCE w FROM WEBHOOK (BODY FORMAT TEXT,"
        " CHECK (WITH (HEADERS, SECRET s) headers['key'] = s))"
    )
    assert post(place, "w", b"", {"key": "first"}) == 200
    place.sql("ALTER SECRET s AS 'second'")
    assert post(place, "w", b"", {"key": "first"}) == 400
    assert post(place, "w", b"", {"key": "second"}) == 200
    place.sql("ALTER SECRET s AS X'ff'")
    assert post(place, "w", b"", {"key": "second"}) == 400
    log = Path(place.application.location) / "log" / "coordinator.jsonl"
    assert "SLACKWATER_SECRET_NOT_TEXT" in log.read_text()
    place.sql("DROP SECRET s CASCADE")
    assert place.rows("SHOW SOURCES") == []


def test_the_url_follows_the_name(place):
    place.sql("CREATE SOURCE `a/b c` FROM WEBHOOK (BODY FORMAT TEXT)")
    before = url(place, "a/b c")
    assert before.endswith("/a%2Fb%20c")
    assert request(before, b"1").status == 200
    place.sql("ALTER SOURCE `a/b c` RENAME TO d")
    assert request(before, b"2").status == 404
    assert post(place, "d", b"3") == 200
    assert place.rows("SELECT body FROM d ORDER BY body") == [["1"], ["3"]]
    after = url(place, "d")
    assert request(after.replace("/d", "/D"), b"4").status == 404
    place.sql("DROP SOURCE d")
    assert request(after, b"5").status == 404


def test_what_is_no_webhook_is_not_found(place):
    place.sql("CREATE TABLE t (body STRING)")
    place.sql("CREATE SOURCE w FROM WEBHOOK (BODY FORMAT TEXT)")
    at = url(place, "w")
    assert request(at[:-1] + "t", b"1").status == 404
    assert request(at, method="GET").status == 405


def test_large_bodies(place):
    place.sql("CREATE SOURCE w FROM WEBHOOK (BODY FORMAT TEXT, CHECK (WITH (BODY) body >= 'a'))")
    assert post(place, "w", b"x" * 65536) == 200
    assert post(place, "w", b"x" * 65537) == 413
    assert place.rows("SELECT length(body) FROM w") == [[65536]]


def test_many_at_once_share_commits(place):
    place.sql("CREATE SOURCE w FROM WEBHOOK (BODY FORMAT TEXT, CHECK (WITH (BODY) body <> 'bad'))")
    at = url(place, "w")
    answers = []

    def send(sender):
        for number in range(25):
            answers.append(request(at, f"{sender}-{number}".encode()).status)
        answers.append(request(at, b"bad").status)

    threads = [threading.Thread(target=send, args=(sender,)) for sender in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(answers) == [200] * 200 + [400] * 8
    assert place.rows("SELECT count(*), count(DISTINCT body) FROM w") == [[200, 200]]
    statistics = place.rows(
        "SELECT s.messages_received, s.bytes_received, s.updates_staged, s.updates_committed"
        " FROM mz_internal.mz_source_statistics s JOIN mz_internal.mz_webhook_sources w"
        f" ON s.id = w.id WHERE w.url = '{at}'"
    )
    ((messages, size, staged, committed),) = statistics
    assert (messages, staged, committed) == (208, 200, 200)
    assert size == 8 * (sum(len(f"0-{n}") for n in range(25)) + 3)


def test_a_source_runs_while_the_ingress_listens(place):
    place.sql("CREATE SOURCE w FROM WEBHOOK (BODY FORMAT TEXT)")
    ((name, kind, _, status, error, _),) = place.rows("SHOW SOURCES")
    assert (name, kind, status, error) == ("w", "webhook", "running", None)
    notices = place.rows("SHOW NOTICES")
    assert any(url(place, "w") in message for _, _, message, _ in notices)


def test_a_secret_is_seen_nowhere(place):
    place.sql(f"CREATE SECRET s AS '{SECRET}'")
    place.sql(
        "CREATE SOURCE w FROM WEBHOOK (BODY FORMAT TEXT,"
        " CHECK (WITH (HEADERS, SECRET s) CAST(s AS INT) = 1))"
    )
    answer = request(url(place, "w"), b"x")
    assert (answer.status, SECRET in answer.text) == (400, False)
    for statement in (
        f"CREATE SECRET s AS '{SECRET}'",
        f"CREATE SECRET t AS '{SECRET}' || 'x'",
        f"ALTER SECRET t AS '{SECRET}'",
        f"CREATE SECRET t AS {SECRET}",
    ):
        with pytest.raises(SqlError) as caught:
            place.sql(statement)
        assert SECRET not in caught.value.message
    for relation in (
        "mz_catalog.mz_secrets",
        "mz_catalog.mz_audit_events",
        "mz_catalog.mz_sources",
        "mz_internal.mz_notices",
    ):
        assert SECRET not in str(place.rows(f"SELECT * FROM {relation}"))


def test_tls_and_tokens(tmp_path, port):
    certificate_file, key_file = certificate(tmp_path)
    signer = Signer(tmp_path)
    conf = {
        "spark.slackwater.ingress.address": f"127.0.0.1:{port}",
        "spark.slackwater.ingress.tls.certificate": str(certificate_file),
        "spark.slackwater.ingress.tls.key": str(key_file),
        "spark.slackwater.ingress.jwt.keys": str(signer.file),
    }
    with Application(tmp_path / "environment", conf=conf) as application:
        application.sql("CREATE SOURCE slackwater.default.w FROM WEBHOOK (BODY FORMAT TEXT)")
        at = application.value("SELECT url FROM slackwater.mz_internal.mz_webhook_sources")
        assert at.startswith("https://")
        token = signer.token(("slackwater", "default"))
        headers = {"Authorization": f"Bearer {token}"}
        assert request(at, b"1", trusted=str(certificate_file)).status == 401
        assert request(at, b"2", headers, trusted=str(certificate_file)).status == 200
        assert application.rows("SELECT body FROM slackwater.default.w") == [["2"]]


def test_settings_that_are_wrong_are_told_to_the_first_statement(tmp_path):
    conf = {"spark.slackwater.ingress.adress": "127.0.0.1:1"}
    with Application(tmp_path / "environment", conf=conf) as application:
        with pytest.raises(SqlError) as caught:
            application.sql("SHOW SOURCES FROM slackwater.default")
        assert caught.value.condition == "SLACKWATER_UNKNOWN_OPTION"
        assert "spark.slackwater.ingress.adress" in caught.value.message


def test_the_example_of_the_documentation(application, tmp_path):
    """The statements and the calls of docs/user/tasks/receive_webhooks.md, as they stand there."""
    page = (Path(__file__).parents[2] / "docs/user/tasks/receive_webhooks.md").read_text()
    blocks = re.findall(r"```(sql|sh)\n(.*?)```", page, re.DOTALL)
    chosen = [(kind, text) for kind, text in blocks if "orders" in text]
    port = application.python(
        "result = spark.sparkContext.getConf().get('spark.slackwater.ingress.address')"
    )
    application.sql("USE slackwater.default")
    seen = []
    for kind, text in chosen:
        if kind == "sql":
            for statement in filter(None, map(str.strip, text.split(";"))):
                seen = application.rows(statement)
        else:
            ran = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", text.replace("127.0.0.1:8090", port)],
                capture_output=True,
                text=True,
                timeout=PATIENCE,
            )
            assert ran.returncode == 0, ran.stderr
    assert seen == [["book", 2]]
    application.sql("DROP SECRET slackwater.default.orders_key CASCADE")


def test_webhooks_have_the_columns(place):
    names = list(NAMES)
    headers = ", ".join(f"INCLUDE HEADER 'x-{at}' AS {quoted(n)}" for at, n in enumerate(names))
    place.sql("CREATE SECRET hidden AS 'z'")
    place.sql(
        f"CREATE SOURCE w FROM WEBHOOK (BODY FORMAT TEXT, {headers}, CHECK (WITH"
        " (BODY AS `__time`, HEADERS AS `__diff`, SECRET hidden AS `__TIME'`)"
        " `__time` = 'hello' AND `__diff`['x-0'] = 'v0' AND `__TIME'` = 'z'))"
    )
    at = place.value(
        "SELECT url FROM mz_internal.mz_webhook_sources"
        f" WHERE name = 'w' AND url LIKE '%/{place.schema}/%'"
    )
    sent = [(f"x-{number}", f"v{number}") for number in range(len(names))]
    assert request(at, b"hello", sent).status == 200
    assert request(at, b"other", sent).status == 400
    listed = ", ".join(map(quoted, names))
    assert place.rows(f"SELECT {listed} FROM w") == [[f"v{n}" for n in range(len(names))]]
