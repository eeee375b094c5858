"""The ingress survives those who lead: what was answered with 200 is there, whoever led then."""

import contextlib
import http.client
import itertools
import json
import os
import socket
import subprocess
import sys
import threading

import pytest
from tests.support.applications.application import (
    ROOT,
    Application,
    coordinators,
    kill,
    only_coordinator,
)
from tests.support.applications.served import conf, served
from tests.support.server.ingress import request
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.spark

PATH = "/api/webhook/slackwater/default/w"


class Sender:
    """Sends numbers, each again until it is answered with 200."""

    def __init__(self, port):
        self.url = f"http://127.0.0.1:{port}{PATH}"
        self.answered = {}
        self.statuses = []
        self.retries = set()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        for number in itertools.count(1):
            if self._ending.is_set():
                return
            attempts = 0
            status = None
            while status != 200 and not self._ending.wait(0.02 if attempts else 0):
                attempts += 1
                status = self._send(number)
                self.statuses.append(status)
            if status == 200:
                self.answered[str(number)] = attempts

    def _send(self, number):
        try:
            answer = request(self.url, str(number).encode(), timeout_s=15)
            if answer.status == 503:
                self.retries.add(answer.headers.get("retry-after"))
            return answer.status
        except (OSError, http.client.HTTPException):
            return None

    def goes_on(self):
        """Returns when some more have been answered."""
        enough = len(self.answered) + 20
        wait_until(lambda: len(self.answered) >= enough, what="requests pass")

    def end(self):
        self._ending.set()
        self._thread.join()


def check(sender, rows):
    """Everything that was answered is there, once if it was sent once."""
    found = dict(rows)
    for number, attempts in sender.answered.items():
        times = found.get(number, 0)
        assert 1 <= times <= attempts, (number, attempts, times)
    assert set(sender.statuses) <= {200, 503, None}


@pytest.mark.nightly
def test_what_was_answered_survives_the_death_of_leaders(tmp_path, port):
    with (
        served(tmp_path, "first", conf(port)) as first,
        served(tmp_path, "second", conf(port)) as second,
    ):
        wait_until(
            lambda: "leading" in first.log.read_text() or "leading" in second.log.read_text(),
            what="one of them leads",
        )
        leader, other = (first, second) if "leading" in first.log.read_text() else (second, first)
        other.says("standing by")
        with Application(first.location, folder=tmp_path / "user") as user:
            user.sql(
                "CREATE SOURCE slackwater.default.w FROM WEBHOOK (BODY FORMAT TEXT,"
                " CHECK (WITH (BODY) CAST(body AS INT) > 0))"
            )
            sender = Sender(port)
            sender.goes_on()
            leader.kill()
            # Whichever application sees it first leads, also one of a user.
            sender.goes_on()
            # The process of the coordinator alone: any application starts one again.
            for _ in range(2):
                kill(only_coordinator(first.location))
                sender.goes_on()
            sender.end()
            assert sender.retries <= {"1"}
            check(sender, user.rows("SELECT body, count(*) FROM slackwater.default.w GROUP BY 1"))
        assert other.end() == 0
    wait_until(lambda: not coordinators(first.location), what="the end of all coordinators")


def test_the_ingress_outlives_the_session_that_set_it_up(tmp_path, port):
    location = tmp_path / "environment"
    with Application(location, conf=conf(port), folder=tmp_path / "user") as user:
        user.sql("CREATE SOURCE slackwater.default.w FROM WEBHOOK (BODY FORMAT TEXT)")
        with served(tmp_path, "service") as service:
            service.says("standing by")
            sender = Sender(port)
            sender.goes_on()
            user.close()
            service.says("leading")
            sender.goes_on()
            sender.end()
            with Application(location, folder=tmp_path / "reader") as reader:
                check(
                    sender,
                    reader.rows("SELECT body, count(*) FROM slackwater.default.w GROUP BY 1"),
                )
            assert service.end() == 0


def test_who_takes_the_lead_listens_first_and_asks_to_come_again_until_it_is_ready(tmp_path, port):
    """It stands where it tells its driver that it leads: that does not read what it says."""
    url = f"http://127.0.0.1:{port}"
    reading, writing = os.pipe()
    with full(writing):
        leader = led(tmp_path / "environment", port, writing)
    try:
        wait_until(lambda: status(url + "/_/healthz", "GET") == 503, what="it listens")
        log = tmp_path / "environment" / "log" / "coordinator.jsonl"
        wait_until(lambda: '"leading"' in log.read_text(), what="the environment is open")
        for _ in range(3):
            answer = request(url + PATH, b"1")
            assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert leader.poll() is None
        drained = threading.Thread(target=drain, args=(reading,))
        drained.start()
        wait_until(lambda: status(url + "/_/healthz", "GET") == 200, what="it is ready")
        assert status(url + PATH, "POST") == 404
        leader.stdin.close()
        assert leader.wait(PATIENCE) == 0
        drained.join()
    finally:
        leader.kill()
        leader.wait()
        os.close(reading)


@contextlib.contextmanager
def full(pipe):
    """Who inherits the pipe in the block cannot write to it until it is read. Closes it here."""
    os.set_blocking(pipe, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(pipe, b" " * 1024)
    os.set_blocking(pipe, True)
    yield
    os.close(pipe)


def led(location, port, answers):
    """The process of a coordinator that leads an environment; no driver is behind it."""
    variables = {
        "PYTHONPATH": str(ROOT / "python"),
        "SLACKWATER_LOCATION": str(location),
        "SLACKWATER_INGRESS": json.dumps({"address": f"127.0.0.1:{port}"}),
        # Nobody listens there.
        "PYSPARK_GATEWAY_PORT": "1",
        "PYSPARK_GATEWAY_SECRET": "none",
    }
    return subprocess.Popen(
        [sys.executable, "-m", "slackwater.server"],
        stdin=subprocess.PIPE,
        stdout=answers,
        env={**os.environ, **variables},
    )


def drain(pipe):
    while os.read(pipe, 65536):
        pass


def status(url, method):
    """The status of an answer; None: nobody listens."""
    try:
        return request(url, method=method).status
    except ConnectionError:
        return None


def test_an_address_that_is_taken_is_told_and_tried_again(tmp_path, port):
    location = tmp_path / "environment"
    with socket.create_server(("127.0.0.1", port)):
        user = Application(location, conf=conf(port))
        user.sql("CREATE SOURCE slackwater.default.w FROM WEBHOOK (BODY FORMAT TEXT)")
        ((_, _, _, status, error, _),) = user.rows("SHOW SOURCES FROM slackwater.default")
        assert status == "stalled"
        assert f"127.0.0.1:{port}" in error
    with user:
        wait_until(
            lambda: user.rows("SHOW SOURCES FROM slackwater.default")[0][3] == "running",
            what="it listens",
        )
        assert request(f"http://127.0.0.1:{port}{PATH}", b"1").status == 200
