"""Where the console listens and who may look: what its options allow."""

from __future__ import annotations

import socket
import sys

import pytest
from typer.testing import CliRunner

from slackwater.cli import app
from slackwater.console.leader import AbsentError, LeaderClient
from slackwater.console.serve import ConsoleOptions, RefusedError, bound, check, metastore_url
from slackwater.console.watch import Asked
from slackwater.server.identity import this_process


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "console.example", ""])
def test_other_machines_are_let_in_by_a_password_over_tls_or_a_proxy_alone(host):
    with pytest.raises(RefusedError) as refused:
        check(ConsoleOptions(host=host))
    for option in ("--tls-certificate", "--tls-key", "--password-file", "--behind-proxy"):
        assert option in str(refused.value)
    check(ConsoleOptions(host=host, is_behind_proxy=True))


def test_a_password_without_tls_lets_nobody_in_from_elsewhere(tmp_path):
    with pytest.raises(RefusedError, match="--tls-certificate"):
        check(ConsoleOptions(host="0.0.0.0", password_file=tmp_path / "p"))


@pytest.mark.parametrize("given", [{"certificate"}, {"key"}, {"certificate", "key"}])
def test_certificate_and_key_have_to_be_usable(tmp_path, given):
    (tmp_path / "x.pem").write_text("no certificate")
    options = ConsoleOptions(**dict.fromkeys(given, tmp_path / "x.pem"))
    with pytest.raises(RefusedError, match=r"belong together|cannot be used"):
        check(options)


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe", None])
def test_a_password_file_has_to_have_one(tmp_path, content):
    file = tmp_path / "password"
    if content is not None:
        file.write_bytes(content)
    options = ["console", "--location", str(tmp_path), "--password-file", str(file)]
    ended = CliRunner().invoke(app, options)
    assert ended.exit_code == 1
    assert str(file) in ended.output


def test_a_port_that_is_taken_is_named():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(RefusedError, match=rf"127\.0\.0\.1:{port}.*--port"):
            bound("127.0.0.1", port)


def test_where_there_is_no_environment_none_is_made(tmp_path):
    place = tmp_path / "nothing"
    client = LeaderClient(metastore_url(str(place), None), this_process())
    with pytest.raises(AbsentError, match="Nobody has led"):
        client.ask(Asked((), {}))
    assert not place.exists()


def test_a_metastore_that_is_away_is_told_without_its_password(tmp_path):
    url = metastore_url(str(tmp_path), "postgresql://me:s3cr3t@127.0.0.1:1/db")
    assert "s3cr3t" in url
    with pytest.raises(AbsentError) as absent:
        LeaderClient(url, this_process()).ask(Asked((), {}))
    assert "metastore" in str(absent.value)
    assert "s3cr3t" not in str(absent.value)


def test_without_its_libraries_the_command_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "starlette", None)
    for name in [name for name in sys.modules if name.startswith(("slackwater.console.app",))]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.startswith("starlette.")]:
        monkeypatch.delitem(sys.modules, name)
    ended = CliRunner().invoke(app, ["console", "--location", str(tmp_path)])
    assert ended.exit_code == 1
    assert "pip install 'slackwater[console]'" in ended.output
