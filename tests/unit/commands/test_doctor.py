"""The doctor's checks that need no session."""

from __future__ import annotations

import errno
import os
import pwd
import sqlite3
import tempfile
from pathlib import Path

import pytest
from rich.text import Text
from tests.support.persist.persistence import acquired
from tests.support.persist.s3 import ACCESS_KEY, SECRET_KEY

from slackwater import doctor
from slackwater.findings import Finding, line
from slackwater.persist.leadership import Lease, Owner, give_up
from slackwater.persist.locations import PASSWORD, parse_location


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', (17, 0, 15)),
        ('openjdk version "21" 2023-09-19', (21,)),
        ('openjdk version "26-ea" 2026-03-17', (26,)),
        ('java version "1.8.0_392"', (8, 0)),
        ("no such thing", None),
    ],
)
def test_java_version(text, version):
    assert doctor.java_version(text) == version


def _java_of_version(home, version):
    program = home / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)


def test_java_of_another_version_fails_with_advice(tmp_path, monkeypatch):
    _java_of_version(tmp_path, "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    finding = doctor._java()
    assert finding.outcome == "FAIL"
    assert "11" in finding.text
    assert "17" in finding.advice


@pytest.mark.parametrize(
    ("version", "outcome"),
    [("17.0.15", "ok"), ("21.0.8", "ok"), ("25", "warn"), ("25.0.2", "warn"), ("25.0.3", "ok")],
)
def test_java_that_spark_supports(tmp_path, monkeypatch, version, outcome):
    """A Java that may lose data is told of."""
    _java_of_version(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    finding = doctor._java()
    assert (finding.outcome, "25.0.3" in finding.advice) == (outcome, outcome == "warn")


def test_an_account_without_a_name_fails(monkeypatch):
    assert not doctor._account()

    def unknown(_):
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    (finding,) = doctor._account()
    assert (finding.outcome, finding.advice) == ("FAIL", "add the user to /etc/passwd")


def test_no_folder_for_temporary_files_fails(tmp_path, monkeypatch):
    def nowhere(**_):
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "TemporaryDirectory", nowhere)
    *_, last = doctor._findings(str(tmp_path / "environment"), None, {})
    assert (last.name, last.outcome) == ("temporary", "FAIL")
    assert last.text == "No usable temporary directory found"


def test_no_java_fails(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert doctor._java().outcome == "FAIL"


def test_location_that_is_missing_is_not_made(tmp_path):
    place = tmp_path / "one" / "two"
    findings = doctor._location(place)
    assert [finding.outcome for finding in findings] == ["ok", "ok"]
    assert not place.exists()


def test_location_below_a_file_fails(tmp_path):
    (tmp_path / "file").write_text("x")
    if os.geteuid() == 0:
        place = Path("/proc/slackwater")
    else:
        tmp_path.chmod(0o500)
        place = tmp_path / "environment"
    assert doctor._location(place)[0].outcome == "FAIL"


@pytest.mark.parametrize(
    ("free", "outcome"), [(2**40, "ok"), (500 * 2**20, "warn"), (2**20, "FAIL")]
)
def test_space(free, outcome, tmp_path):
    assert doctor._space(free, tmp_path).outcome == outcome


def test_metastore_that_something_holds_fails(tmp_path):
    path = tmp_path / "metastore.sqlite"
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("CREATE TABLE x (y)")
    holder.execute("BEGIN EXCLUSIVE")
    installation = doctor.Installation(str(tmp_path), f"sqlite:///{path}", None, {})
    findings = list(doctor._metastore(installation))
    assert [finding.outcome for finding in findings] == ["FAIL"]
    holder.close()


def test_who_leads_is_named_until_the_lease_is_given_up(env):
    owner = Owner("ebb", "boot", "pid:[1]", "ada", 4711, "17")
    acquired(env.engine, None, lease=Lease(owner, 1))
    leading = "epoch 1, application app, http://a, of ada on ebb, process 4711"
    assert doctor._probe(env.url, False) == leading
    give_up(env.engine, 1)
    assert doctor._probe(env.url, False) is None


def test_password_of_the_metastore_is_hidden(tmp_path):
    url = "postgresql+psycopg://me:secret@127.0.0.1:1/nothing?connect_timeout=1"
    findings = list(doctor._metastore(doctor.Installation(str(tmp_path), url, url, {})))
    assert findings[-1].outcome == "FAIL"
    assert "secret" not in str(findings)


def test_a_password_in_the_option_is_moved_and_in_the_setting_refused(tmp_path, monkeypatch):
    monkeypatch.delenv(PASSWORD, raising=False)
    url = "postgresql+psycopg://me:opensesame@127.0.0.1:1/nothing?connect_timeout=1"
    moved = list(doctor._findings(str(tmp_path), url, {}))
    assert "metastore" in [finding.name for finding in moved]
    conf = {"spark.slackwater.metastore": url}
    refused = list(doctor._findings(str(tmp_path), None, conf))[-1]
    assert (refused.name, refused.outcome) == ("metastore", "FAIL")
    assert "spark.slackwater.metastore.passwordFile" in refused.text
    assert "opensesame" not in str([*moved, refused])


def test_a_bucket_is_tried_and_left_as_it_was(s3, tmp_path):
    place = parse_location(f"s3://{s3.new_bucket()}/x", {"XDG_STATE_HOME": str(tmp_path)})
    conf = {
        "spark.hadoop.fs.s3a.endpoint": s3.endpoint,
        "spark.hadoop.fs.s3a.access.key": ACCESS_KEY,
        "spark.hadoop.fs.s3a.secret.key": SECRET_KEY,
    }
    for _ in range(2):
        (finding,), exists = doctor._place(place, conf)
        assert (finding.outcome, exists) == ("ok", False)
    none = parse_location("s3://there-is-no-such-bucket", {"XDG_STATE_HOME": str(tmp_path)})
    (finding,), exists = doctor._place(none, conf)
    assert (finding.outcome, exists) == ("FAIL", False)
    assert SECRET_KEY not in str(finding)


def test_a_bucket_without_a_metastore_fails():
    findings = list(doctor._findings("s3://bucket/x", None, {}))
    assert findings[-1].outcome == "FAIL"
    assert "cannot hold the metastore" in findings[-1].text


@pytest.mark.parametrize(
    "location", ["hdfs://host/x", "hdfs:/x", "abfss://c@a.example/x", "gs://b/x"]
)
def test_a_location_of_another_scheme_fails_and_says_what_works(location):
    finding = list(doctor._findings(location, None, {}))[-1]
    assert (finding.name, finding.outcome) == ("location", "FAIL")
    assert f"the scheme {location.partition(':')[0]} is not supported" in finding.text
    assert "s3://bucket/prefix" in finding.text


def test_names_do_nothing_to_a_terminal():
    finding = Finding("catalog", "FAIL", "a\x1b[2J\nb [red]c[/red]", "see [x]")
    shown = line(finding)
    assert "\x1b" not in shown
    assert "\n" not in shown
    assert Text.from_markup(shown).plain.startswith("catalog      a\ufffd[2J b [red]c[/red] ")
