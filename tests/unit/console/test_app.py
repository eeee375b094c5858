"""The console over HTTP: what it answers, to whom, and what it says to browsers."""

from __future__ import annotations

import io
import json
import zipfile

import pytest
from tests.support.console.asgi import request
from tests.support.console.environments import AT_MS, LEADER, every_state
from tests.support.waiting import wait_until

from slackwater.console import bundle
from slackwater.console import relations as r
from slackwater.console.app import MENU, Access, application
from slackwater.console.leader import AbsentError
from slackwater.console.looking import Looking
from slackwater.console.security import COOKIE, FAILURES, Door, Hosts
from slackwater.console.watch import Answer

NAMES = ["/", "/objects/shop.totals", "/activity", "/storage", "/notices", "/log", "/bundle"]


class Leading:
    """A leader with an environment in which there is everything, once; it may be away."""

    def __init__(self, log=None):
        self.log = log
        self.asked = []
        self.is_away = False

    def ask(self, asked):
        self.asked.append(asked)
        if self.is_away:
            raise AbsentError("local-1 does not answer.")
        known = every_state().tables
        tables = {name: known[name] for name in asked.relations if name in known}
        return Answer(AT_MS, LEADER, tables, failures=every_state().failures)

    def metrics(self):
        return "slackwater_x 1"


@pytest.fixture
def leading(tmp_path):
    log = tmp_path / "coordinator.jsonl"
    log.write_text('{"event": "elected", "level": "info", "epoch": 7}\n{"event": "<b>"}\n')
    return Leading(log)


@pytest.fixture
def looking(leading):
    made = Looking(leading)
    made.start()
    yield made
    made.stop()


def app_of(looking, door=None, names=(), is_secure=False):
    return application(looking, Access(Hosts.of("127.0.0.1", names), door, is_secure))


@pytest.fixture
def app(looking):
    return app_of(looking)


@pytest.mark.parametrize("path", NAMES)
def test_each_page_is_whole_and_says_what_a_browser_may_do(app, path):
    got = request(app, path)
    assert got.status == 200
    assert "/data/env is led since" in got.text
    policy = got.headers["content-security-policy"]
    assert policy.startswith("default-src 'self';")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert got.headers["x-content-type-options"] == "nosniff"
    assert got.headers["cache-control"] == "no-store"
    assert "set-cookie" not in got.headers
    assert "http:" not in got.text.replace("http-equiv", "")
    assert "https:" not in got.text


@pytest.mark.parametrize("path", NAMES[:-1])
def test_a_refresh_gets_the_fragment_alone(app, path):
    whole, part = request(app, path), request(app, path, headers={"HX-Request": "true"})
    assert part.text.lstrip().startswith('<div id="live"')
    assert "<html" not in part.text
    assert 'id="q"' not in part.text, "what is typed is outside of what is replaced"
    assert 'id="live"' in whole.text
    assert part.headers["vary"] == "HX-Request"


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example:8070", "", "localhost.evil", "10.0.0.1:8070"]
)
def test_a_name_that_leads_here_by_chance_is_refused(app, host):
    for path in ("/", "/static/console.js", "/login"):
        got = request(app, path, host=host)
        assert got.status == 421
        assert "totals" not in got.text


def test_a_name_that_was_given_is_known(looking):
    app = app_of(looking, names=["console.example"])
    assert request(app, "/notices", host="Console.Example").status == 200
    assert request(app, "/notices", host="other.example").status == 421


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
@pytest.mark.parametrize("path", NAMES)
def test_nothing_can_be_changed(app, method, path):
    assert request(app, path, method=method).status == 405


def test_an_object_is_found_by_a_path_with_odd_characters(app):
    got = request(app, "/objects/%3Ci%3E%22.%3Cb%3E%22%26%27")
    assert got.status == 200
    assert "<b>" not in got.text
    assert request(app, "/objects/shop.a%2Fb%3Fc%23d").status == 200
    missing = request(app, "/objects/%3Cscript%3Ealert(1)%3C%2Fscript%3E")
    assert missing.status == 404
    assert "<script>alert" not in missing.text


def test_files_come_from_the_package_alone(app):
    assert request(app, "/static/htmx.min.js").status == 200
    for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py"):
        assert request(app, path).status == 404


def test_the_log_is_filtered_and_its_text_is_text(app):
    got = request(app, "/log?q=ELECTED")
    assert "epoch=7" in got.text
    assert "&lt;b&gt;" not in got.text
    assert "&lt;b&gt;" in request(app, "/log").text


def test_who_looks_at_nothing_asks_for_nothing(looking, leading, app):
    assert leading.asked == []
    request(app, "/notices")
    assert {name for each in leading.asked for name in each.relations} == r.NOTICES_PAGE


def test_a_leader_that_is_away_is_told_and_what_was_known_stays(leading, app):
    assert request(app, "/").status == 200
    leading.is_away = True
    told = wait_until(lambda: (got := request(app, "/")).text.count("Nobody leads since") and got)
    assert 'class="old"' in told.text
    assert "shop.totals" in told.text
    assert told.status == 200
    leading.is_away = False
    wait_until(lambda: "is led since" in request(app, "/").text)


def test_an_object_of_which_nothing_is_known_yet_is_looked_for_again(leading, app):
    leading.is_away = True
    got = request(app, "/objects/shop.totals")
    assert got.status == 200
    assert "Nothing is known of it yet." in got.text
    assert 'hx-trigger="every 1s"' in got.text
    leading.is_away = False
    wait_until(lambda: "CREATE MATERIALIZED VIEW" in request(app, "/objects/shop.totals").text)


def entering(app, password):
    body = f"password={password}".encode()
    return request(app, "/login", method="POST", body=body)


def test_without_the_password_there_is_a_door(looking, leading):
    app = app_of(looking, Door("right"), is_secure=True)
    for path in (*NAMES, "/bundle/slackwater-report.zip"):
        got = request(app, path)
        assert (got.status, got.headers["location"]) == (303, "/login")
    assert leading.asked == []
    refresh = request(app, "/", headers={"HX-Request": "true"})
    assert (refresh.status, refresh.headers["hx-redirect"]) == (200, "/login")
    assert refresh.body == b""
    assert request(app, "/login").status == 200
    assert entering(app, "wrong").status == 403
    assert request(app, "/", headers={"cookie": f"{COOKIE}=x"}).status == 303
    entered = entering(app, "right")
    cookie = entered.headers["set-cookie"].lower()
    assert "samesite=strict" in cookie
    assert "httponly" in cookie
    assert "secure" in cookie
    value = entered.headers["set-cookie"].partition(";")[0]
    assert request(app, "/", headers={"cookie": value}).status == 200


def test_guessing_ends_soon(looking):
    app = app_of(looking, Door("right"))
    for _ in range(FAILURES):
        entering(app, "wrong")
    assert "half a minute" in entering(app, "right").text


def test_a_body_of_any_size_and_form_is_no_password(looking):
    app = app_of(looking, Door("right"))
    for body in (b"", b"\xff" * 10, b"password", b"password=" + b"a" * 10**6):
        assert request(app, "/login", method="POST", body=body).status == 403


def test_the_report_has_what_helps_and_no_literal_of_a_definition(app, leading):
    got = request(app, "/bundle/slackwater-report.zip")
    archive = zipfile.ZipFile(io.BytesIO(got.body))
    names = {name.removeprefix("slackwater-report/") for name in archive.namelist()}
    assert {"about.json", "failures.jsonl", "metrics.txt", "log/coordinator.jsonl"} <= names
    assert f"relations/{r.NOTICES}.jsonl" in names
    whole = "".join(archive.read(name).decode() for name in archive.namelist())
    assert "CREATE MATERIALIZED VIEW" not in whole
    about = json.loads(archive.read("slackwater-report/about.json"))
    assert about["epoch"] == 7


@pytest.mark.parametrize("column", sorted(bundle.LEFT_OUT))
def test_columns_with_literals_are_left_out_of_the_report(column):
    snapshot = every_state()
    snapshot.tables["mz_internal.x"] = ({column: "s3cr3t", "redacted_" + column: "kept"},)
    found = bundle.files(snapshot, [], None)
    assert "s3cr3t" not in "".join(found.values())
    assert "kept" in found["relations/mz_internal.x.jsonl"]
    assert "metrics.txt" not in found


def test_the_menu_leads_to_pages(app):
    for path, name in MENU:
        assert f">{name}</a>" in request(app, path).text
