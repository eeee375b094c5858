"""The console in a real browser, over a real environment: what it names, and how it survives."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request

import pytest
from tests.support.applications.application import (
    Application,
    SqlError,
    kill,
    only_coordinator,
)
from tests.support.console.browser import chromium, console, visit
from tests.support.server.ingress import certificate
from tests.support.waiting import wait_until

pytestmark = pytest.mark.spark

LONG = "l" * 200
MARKUP = '<img src=x onerror="alert(1)">'
SECRET = "s3cr3t-of-the-test"
STALLED = "SELECT * FROM mz_internal.mz_source_statuses WHERE status = 'stalled' AND name = 'feed'"
REFRESHES = 8
"""Three seconds are three refreshes; while a look at a leader on a busy machine takes long, there
are some more, of what was told before."""
PATHS = ("/", "/activity", "/storage", "/notices", "/log?q=elected", "/bundle")


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def feed(tmp_path_factory):
    """The folder of a source."""
    folder = tmp_path_factory.mktemp("console") / "feed"
    folder.mkdir()
    (folder / "1.csv").write_text("1,a\n")
    return folder


@pytest.fixture(scope="module")
def environment(feed):
    with Application(feed.parent / "environment", master="local[2]") as application:
        application.sql("CREATE SCHEMA slackwater.shop")
        application.sql("USE slackwater.shop")
        application.sql("CREATE TABLE orders (k INT, v INT) COMMENT '<b>bold</b>'")
        application.sql(f"CREATE TABLE `{MARKUP}` (`</script>` INT)")
        application.sql(f"CREATE TABLE {LONG} (k INT)")
        application.sql("CREATE VIEW `a/b` AS SELECT k FROM orders")
        application.sql(f"CREATE SECRET key AS '{SECRET}'")
        application.sql(
            f"CREATE SOURCE feed (k INT, w STRING) FROM FILES (PATH '{feed}', FORMAT CSV)"
        )
        application.sql("CREATE MATERIALIZED VIEW shares AS SELECT k, 10 / v AS share FROM orders")
        application.sql("INSERT INTO orders VALUES (1, 2), (2, 5)")
        yield application


def drop_in(folder, content):
    """A file that appears as a whole."""
    (folder / ".hidden").write_text(content)
    (folder / ".hidden").rename(folder / "2.csv")


def test_what_needs_attention_is_named(environment, feed, browser, tmp_path):
    with (
        console(environment.location, tmp_path) as made,
        visit(browser, made.address, tmp_path) as seen,
    ):
        page = seen.open().page
        seen.sees("Nothing needs attention.")
        for name in ("shop.orders", f"shop.{MARKUP}", f"shop.{LONG}", "shop.a/b"):
            assert page.locator(".objects").get_by_role("link", name=name, exact=True).count() == 1
        page.locator("#dataflow svg").wait_for()
        assert page.locator("#dataflow g").count() >= 5
        page.locator("#freshness canvas").wait_for()

        # What is typed stays while the page is refreshed.
        page.locator("#q").press_sequentially("FEED")
        page.locator(".objects tbody tr", has_text="orders").wait_for(state="detached")
        assert seen.refreshed().page.locator("#q").input_value() == "FEED"
        assert page.locator(".objects tbody tr").first.is_visible()
        page.locator("#q").fill("")
        page.locator(".objects tbody tr", has_text="orders").first.wait_for()

        drop_in(feed, "2,b\nx,c\n")
        wait_until(lambda: environment.rows(STALLED), what="the leader knows it")
        with seen.within_refreshes(REFRESHES):
            assert "2.csv, line 2" in seen.needs_attention("shop.feed")
        assert page.locator(".attention li").count() == 1, "its progress relation is as it is"
        environment.sql("INSERT INTO orders VALUES (3, 0)")
        with pytest.raises(SqlError, match="k = 3"):
            environment.rows("SELECT * FROM shares")
        with seen.within_refreshes(REFRESHES):
            told = seen.needs_attention("shop.shares")
        assert "SLACKWATER_DATA_ERROR" in told
        assert "k = 3, v = 0" in told

        epoch = seen.epoch()
        kill(only_coordinator(environment.location))
        with seen.within_refreshes(REFRESHES):
            seen.sees("Nobody leads since", within="[role=status]")
        assert page.locator("#live.old").count() == 1
        assert page.locator(".objects tbody tr").count() >= 5
        environment.rows("SELECT count(*) FROM orders")
        seen.sees(f"epoch {epoch + 1}")
        page.locator("#live:not(.old)").wait_for()
        assert "k = 3, v = 0" in seen.needs_attention("shop.shares")

        environment.sql("DELETE FROM orders WHERE k = 3")
        drop_in(feed, "2,b\n")
        seen.sees("Nothing needs attention.")
        assert made.end() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_is_accessible_and_takes_names_for_text(environment, browser, tmp_path, scheme):
    environment.sql("INSERT INTO orders VALUES (3, 0)")
    with (
        console(environment.location, tmp_path) as made,
        visit(browser, made.address, tmp_path, scheme=scheme) as seen,
    ):
        seen.open().needs_attention("shop.shares")
        links = seen.page.locator(".objects a")
        found = [links.nth(i).get_attribute("href") for i in range(links.count())]
        assert len(found) >= 6
        # In the dark only colors differ, of which these pages have all.
        for path in (*PATHS, *found) if scheme == "light" else ("/", "/objects/shop.shares"):
            seen.open(path).sees("is led since")
            assert seen.is_accessible() == [], path
            assert SECRET not in seen.page.content()
        seen.open("/objects/shop.shares").page.locator(".ticks tbody tr").first.wait_for()
    environment.sql("DELETE FROM orders WHERE k = 3")


def test_pages_are_whole_without_script(environment, browser, tmp_path):
    with (
        console(environment.location, tmp_path) as made,
        visit(browser, made.address, tmp_path, script=False) as seen,
    ):
        seen.open("/?q=feed").sees("shop.feed", within=".objects")
        assert seen.page.locator(".objects tbody tr").count() == 2
        seen.page.get_by_text("The same as a list").click()
        seen.sees("shop.shares (materialized-view)")


def test_over_tls_the_password_opens_the_door(environment, tmp_path):
    file, key = certificate(tmp_path)
    (tmp_path / "password").write_text("open sesame\n")
    options = ["--tls-certificate", file, "--tls-key", key]
    options += ["--password-file", tmp_path / "password", "--name", "console.example"]
    cookies = urllib.request.HTTPCookieProcessor()
    trusting = urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=file))
    opener = urllib.request.build_opener(cookies, trusting)
    with console(environment.location, tmp_path, *map(str, options)) as made:
        assert made.address.startswith("https://")

        def got(path, data=None):
            with opener.open(made.address + path, data) as answer:
                return answer.read().decode()

        assert "Password of the console" in got("/")
        with pytest.raises(urllib.error.HTTPError, match="403"):
            got("/login", b"password=open")
        assert "is led since" in got("/login", b"password=open+sesame")
        (cookie,) = cookies.cookiejar
        assert cookie.secure
        assert SECRET not in got("/objects/shop.orders")
