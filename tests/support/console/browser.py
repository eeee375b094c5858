"""The console in a process of its own, and browsers that look at it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright
from tests.support.applications.application import ROOT
from tests.support.waiting import PATIENCE, wait_until

CHROMIUM = "/usr/bin/chromium"
SERIOUS = ("serious", "critical")
WIDTH, HEIGHT = 920, 640


class ConsoleProcess:
    """`slackwater console`, on a port that is free."""

    def __init__(self, location, folder, *options):
        self._log = folder / "console.log"
        command = [sys.executable, "-m", "slackwater.cli", "console", "--port", "0"]
        command += ["--location", str(location), *options]
        with open(self._log, "w") as log:
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(ROOT / "python"), "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )
        self.address = wait_until(self._announced, what="the console has said where it is")

    def _announced(self):
        said = self._log.read_text()
        assert self._process.poll() is None, said
        found = re.search(r"at (https?://\S+)/$", said, re.MULTILINE)
        return found and found[1]

    @property
    def pid(self):
        return self._process.pid

    def end(self):
        """As Ctrl-C does; gives the exit status."""
        self._process.send_signal(signal.SIGINT)
        return self._process.wait(PATIENCE)

    def kill(self):
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def console(location, folder, *options):
    made = ConsoleProcess(location, folder, *options)
    try:
        yield made
    finally:
        made.kill()


@contextlib.contextmanager
def chromium():
    """Debian's browser, which `make browser` installs."""
    assert Path(CHROMIUM).exists(), "there is no browser: make browser"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Visit:
    """A page of the console in a browser, and everything that it should not do."""

    def __init__(self, browser, address, *, scheme="light", script=True):
        self.complaints = []
        self.refreshes = 0
        self._address = address
        self._context = browser.new_context(
            color_scheme=scheme,
            viewport={"width": WIDTH, "height": HEIGHT},
            java_script_enabled=script,
        )
        self.page = self._context.new_page()
        self.page.set_default_timeout(PATIENCE * 1000)
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        self.page.on("dialog", self._asked)
        self.page.on("request", self._requested)
        self.page.on("response", self._answered)

    def open(self, path="/"):
        self.page.goto(self._address + path)
        return self

    def sees(self, text, within="#live"):
        """Waits until the page has a text."""
        self.page.locator(within).get_by_text(text).first.wait_for()
        return self

    def needs_attention(self, name):
        """Waits until *needs attention* names an object; gives what it says of it."""
        found = self.page.locator(".attention li", has=self.page.get_by_role("link", name=name))
        found.first.wait_for()
        return found.first.inner_text()

    def epoch(self):
        """The epoch of the leader, as the page says it."""
        return int(re.search(r"epoch (\d+)", self.page.locator(".leader").inner_text())[1])

    def is_accessible(self):
        """What axe-core finds that is serious."""
        found = Axe().run(self.page).response["violations"]
        return [
            (each["id"], each["nodes"][0]["html"]) for each in found if each["impact"] in SERIOUS
        ]

    @contextlib.contextmanager
    def within_refreshes(self, most):
        """What is waited for in here is there after at most so many refreshes of the page."""
        before = self.refreshes
        yield
        assert self.refreshes - before <= most

    def refreshed(self):
        """Waits until the page has been refreshed."""
        with self.page.expect_response(lambda answer: "hx-request" in answer.request.headers):
            pass
        return self

    def keep(self, folder):
        """Keeps a screenshot of what a test has failed over."""
        self.page.screenshot(path=folder / "failed.png", full_page=True)

    def close(self):
        self._context.close()

    def _said(self, message):
        if message.type in ("error", "warning"):
            self.complaints.append(f"console: {message.text}")

    def _asked(self, dialog):
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _requested(self, request):
        if urlsplit(request.url).netloc != urlsplit(self._address).netloc:
            self.complaints.append(f"request to another host: {request.url}")

    def _answered(self, response):
        self.refreshes += "hx-request" in response.request.headers
        if response.status >= 400:
            self.complaints.append(f"status {response.status}: {response.url}")


@contextlib.contextmanager
def visit(browser, address, kept, **options):
    """A visit that has no complaint at its end; one that fails leaves a screenshot in `kept`."""
    made = Visit(browser, address, **options)
    try:
        yield made
        assert made.complaints == []
    except BaseException:
        made.keep(kept)
        raise
    finally:
        made.close()
