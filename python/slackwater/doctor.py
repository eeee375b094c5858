"""Checks of an installation, with advice, which `slackwater doctor` prints.

Checks run in order. A check that needs an earlier one which failed is reported as not checked.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.console import Console
from sqlalchemy import inspect
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import SQLAlchemyError

from slackwater.findings import Finding, line
from slackwater.persist.locations import (
    PASSWORD,
    PASSWORD_FILE,
    Location,
    parse_location,
    without_password,
)
from slackwater.repr.errors import LOG_FILE, SlackwaterError, first_line
from slackwater.spark import session as spark_session
from slackwater.spark.interrupts import interruptible

DEFAULT_LOCATION = "slackwater-environment"
SUPPORTED_JAVA = (17, 21, 25)
# Spark's documentation tells of the defect: JDK-8377811, of the usual garbage collector.
_UNSAFE_JAVA, _SAFE_JAVA = (25,), (25, 0, 3)
SUPPORTED_SPARK = "4.2"
LEAST_FREE_BYTES = 100 * 2**20
ADVISED_FREE_BYTES = 2**30
S3_ADVICE = "check the bucket, and AWS_ENDPOINT_URL, AWS_REGION and the credentials"
S3_VARIABLES = {
    "spark.hadoop.fs.s3a.endpoint": "AWS_ENDPOINT_URL_S3",
    "spark.hadoop.fs.s3a.endpoint.region": "AWS_REGION",
    "spark.hadoop.fs.s3a.access.key": "AWS_ACCESS_KEY_ID",
    "spark.hadoop.fs.s3a.secret.key": "AWS_SECRET_ACCESS_KEY",
    "spark.hadoop.fs.s3a.session.token": "AWS_SESSION_TOKEN",
}
JAVA_TIMEOUT_S = 20
WAIT_MS = 2_000


@dataclass(frozen=True, slots=True)
class Installation:
    """The installation that is examined. `url` is the metastore's."""

    location: str
    url: str | URL
    metastore: str | None
    conf: Mapping[str, str]


def examine(location: str | None, metastore: str | None, conf: Mapping[str, str]) -> int:
    """Prints every check and returns the exit status: 1 if one failed, else 0.

    Nothing is made at a location that does not exist yet: the session is then tried in a
    temporary folder. `conf` are settings for Spark.
    """
    console = Console(highlight=False, soft_wrap=True)
    findings: list[Finding] = []
    for finding in _findings(location, metastore, conf):
        findings.append(finding)
        console.print(line(finding))
    failed = sum(finding.outcome == "FAIL" for finding in findings)
    console.print("everything is in order" if failed == 0 else f"{failed} checks failed")
    return 1 if failed else 0


def _findings(
    location: str | None, metastore: str | None, conf: Mapping[str, str]
) -> Iterator[Finding]:
    text = location or conf.get("spark.slackwater.location") or DEFAULT_LOCATION
    store = metastore or conf.get("spark.slackwater.metastore")
    bare, variables = _metastore_setting(metastore, conf)
    first = [_python(), *_account(), _java(), _spark(), _jar()]
    yield from first
    try:
        scratch = tempfile.TemporaryDirectory(
            prefix="slackwater-doctor-", ignore_cleanup_errors=True
        )
    except OSError as error:
        yield Finding("temporary", "FAIL", error.strerror or str(error), "make /tmp writable")
        return
    with scratch as tmp:
        try:
            place = parse_location(text, os.environ)
        except SlackwaterError as error:
            yield Finding("location", "FAIL", error.message, "see docs/user/settings.md")
            return
        try:
            place.metastore(bare, variables)
        except SlackwaterError as error:
            yield Finding(
                "metastore", "FAIL", error.message, "see docs/user/tasks/use_postgresql.md"
            )
            return
        found, exists = _place(place, conf)
        yield from found
        first += found
        used = place if exists else parse_location(f"{tmp}/environment", os.environ)
        shown = str(used.local) if used.is_local else used.uri
        installation = Installation(shown, used.metastore(bare, variables), store, conf)
        metastore_findings = list(_metastore(installation))
        yield from metastore_findings
        if any(finding.outcome == "FAIL" for finding in [*first, *metastore_findings]):
            yield Finding("session", "skip", "not checked: correct what failed above first")
            return
        yield from _session(installation)


def _metastore_setting(
    metastore: str | None, conf: Mapping[str, str]
) -> tuple[str | None, Mapping[str, str]]:
    """The metastore's URL, and the variables that have its password, as a session has them."""
    secrets = {
        PASSWORD: conf.get("spark.slackwater.metastore.password"),
        PASSWORD_FILE: conf.get("spark.slackwater.metastore.passwordFile"),
    }
    url = conf.get("spark.slackwater.metastore")
    if metastore is not None:
        url, given = without_password(metastore)
        secrets[PASSWORD] = given or secrets[PASSWORD]
    return url, {**os.environ, **{name: text for name, text in secrets.items() if text}}


def _python() -> Finding:
    version = ".".join(str(part) for part in sys.version_info[:3])
    return Finding("python", "ok", f"{version} ({sys.executable})")


def _account() -> Sequence[Finding]:
    """Hadoop, which Spark uses, asks the system for the name of the user."""
    user = os.geteuid()
    try:
        pwd.getpwuid(user)
    except KeyError:
        text = f"user {user} has no name, without which Spark does not start"
        return [Finding("account", "FAIL", text, "add the user to /etc/passwd")]
    return []


def _java() -> Finding:
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    advice = "install a JDK 17, 21 or 25 and let JAVA_HOME or PATH name it"
    if program is None or not Path(program).exists():
        return Finding("java", "FAIL", f"no java at {program or 'PATH'}", advice)
    try:
        answer = subprocess.run(
            [program, "-version"],
            capture_output=True,
            text=True,
            timeout=JAVA_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return Finding("java", "FAIL", f"{program} does not run: {error}", advice)
    version = java_version(answer.stderr + answer.stdout)
    if version is None or version[0] not in SUPPORTED_JAVA:
        known = ".".join(map(str, version)) if version else "unknown"
        return Finding("java", "FAIL", f"version {known} ({program})", advice)
    text = f"{version[0]} ({program})"
    if _UNSAFE_JAVA <= version < _SAFE_JAVA:
        safe = ".".join(map(str, _SAFE_JAVA))
        return Finding("java", "warn", text, f"install Java {safe}: those before it may lose data")
    return Finding("java", "ok", text)


def java_version(text: str) -> tuple[int, ...] | None:
    """The version in the output of ``java -version``, as (17, 0, 15); None when it names none."""
    quoted = re.search(r'version "(?:1\.)?(\d+(?:\.\d+)*)', text)
    return tuple(int(part) for part in quoted[1].split(".")) if quoted else None


def _spark() -> Finding:
    try:
        version = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return Finding(
            "spark", "FAIL", "pyspark is not installed", f"install pyspark {SUPPORTED_SPARK}"
        )
    if not version.startswith(f"{SUPPORTED_SPARK}."):
        return Finding(
            "spark",
            "FAIL",
            f"pyspark {version} is not supported",
            f"install pyspark {SUPPORTED_SPARK}",
        )
    return Finding("spark", "ok", f"pyspark {version}")


def _jar() -> Finding:
    try:
        jar = spark_session.jar_path()
    except (FileNotFoundError, metadata.PackageNotFoundError) as error:
        return Finding("shim", "FAIL", "no jar for this Spark", str(error))
    return Finding("shim", "ok", f"{jar.name}, built for Spark {spark_session.spark_minor()}")


def _place(place: Location, conf: Mapping[str, str]) -> tuple[Sequence[Finding], bool]:
    """The findings about the location, and whether an environment may exist there already."""
    if place.is_local:
        return _location(place.local), place.local.exists()
    given = {name: conf[key] for key, name in S3_VARIABLES.items() if key in conf}
    try:
        blobs = place.blobs({**os.environ, **given})
        exists = next(blobs.list(blobs.uri()), None) is not None
        tried = blobs.put(blobs.uri("doctor"), "", lambda file: file.write(b"slackwater"))
        blobs.open(tried.uri).close()
        blobs.delete(tried.uri)
    except SlackwaterError as error:
        return [Finding("location", "FAIL", first_line(error.message), S3_ADVICE)], False
    except OSError:
        text = f"{place.uri}: cannot read what was written"
        return [Finding("location", "FAIL", text, S3_ADVICE)], False
    suffix = "" if exists else ", is empty"
    return [Finding("location", "ok", f"{place.uri}{suffix}")], exists


def _location(place: Path) -> Sequence[Finding]:
    nearest = place
    while not nearest.exists():
        nearest = nearest.parent
    suffix = "" if place.exists() else ", does not exist yet"
    try:
        with tempfile.NamedTemporaryFile(dir=nearest, prefix=".slackwater-doctor-") as file:
            file.write(b"slackwater")
            file.flush()
    except OSError as error:
        text = f"{place}: cannot write in {nearest}: {error.strerror}"
        return [Finding("location", "FAIL", text, "give a folder you may write: --location")]
    free = shutil.disk_usage(nearest).free
    return [Finding("location", "ok", f"{place}{suffix}"), _space(free, nearest)]


def _space(free: int, folder: Path) -> Finding:
    text = f"{free / 2**30:.1f} GiB free at {folder}"
    if free < LEAST_FREE_BYTES:
        return Finding("space", "FAIL", text, "free some space, or use another location")
    if free < ADVISED_FREE_BYTES:
        return Finding("space", "warn", text, "writes fail cleanly when it ends")
    return Finding("space", "ok", text)


def _metastore(installation: Installation) -> Iterator[Finding]:
    try:
        url = make_url(installation.url)
    except SQLAlchemyError:
        yield Finding("metastore", "FAIL", "the URL is not one", "give an SQLAlchemy URL")
        return
    shown = url.render_as_string(hide_password=True)
    embedded = url.get_backend_name() == "sqlite"
    if embedded and not Path(url.database or "").exists():
        yield Finding("metastore", "ok", f"{shown}, made on first use")
        return
    advice = "remove what holds the file" if embedded else "check that the server runs"
    try:
        leader = _probe(installation.url, embedded)
    except (SlackwaterError, SQLAlchemyError, sqlite3.Error) as error:
        reason = error.message if isinstance(error, SlackwaterError) else type(error).__name__
        if isinstance(error, SlackwaterError) and error.condition == "SLACKWATER_CONNECTOR_MISSING":
            advice = reason.partition("\n")[2]
        yield Finding("metastore", "FAIL", f"{shown}: {first_line(reason)}", advice)
        return
    yield Finding("metastore", "ok", shown)
    if leader is not None:
        yield Finding("leader", "ok", leader)


def _probe(url: str | URL, embedded: bool) -> str | None:
    """Reads the metastore and, if it is a file, takes its write lock.

    Returns a text on the leader; None: nobody leads.
    """
    from slackwater.persist.leadership import current_leader
    from slackwater.persist.metastore import RetryPolicy, connect

    engine = connect(url)
    try:
        if embedded:
            _take_write_lock(engine)
        if not inspect(engine).has_table("environment"):
            return None
        leader = current_leader(engine, retry_policy=RetryPolicy(wait_ms=WAIT_MS))
    finally:
        engine.dispose()
    if leader is None or (leader.lease is None and leader.is_leased):
        return None
    text = f"epoch {leader.epoch}, application {leader.application}, {leader.address}"
    if leader.lease is not None:
        owner = leader.lease.owner
        text += f", of {owner.user} on {owner.host}, process {owner.pid}"
    return text


def _take_write_lock(engine: Any) -> None:
    connection = engine.raw_connection()
    try:
        connection.execute(f"PRAGMA busy_timeout = {WAIT_MS}")
        connection.rollback()
        connection.execute("BEGIN IMMEDIATE")
        connection.rollback()
    finally:
        connection.close()


def _session(installation: Installation) -> Iterator[Finding]:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").appName("slackwater doctor")
    settings = {"spark.ui.enabled": "false", "spark.log.level": "ERROR", **installation.conf}
    for key, value in settings.items():
        builder = builder.config(key, value)
    builder = spark_session.configure(
        builder, location=installation.location, metastore=installation.metastore
    )
    try:
        spark = interruptible(builder.getOrCreate)
    except Exception as error:
        yield Finding("session", "FAIL", first_line(str(error)), "see Spark's output above")
        return
    try:
        for name, check, advice in _SESSION_CHECKS:
            try:
                yield Finding(name, "ok", check(spark))
            except _WrongError as wrong:
                yield Finding(name, "FAIL", str(wrong), advice)
            except PySparkException as error:
                yield Finding(name, "FAIL", first_line(str(error)), advice)
    finally:
        spark.stop()


class _WrongError(Exception):
    """A check of the session did not find what must be there; the text says what it found."""


def _extension(spark: Any) -> str:
    """Walks the chain of parsers: each wraps the next in a field named `delegate`."""
    found = []
    parser = spark._jsparkSession.sessionState().sqlParser()
    while parser is not None:
        found.append(parser.getClass().getSimpleName())
        parser = _delegate(parser)
    ours = [name for name in found if name.startswith("Slackwater")]
    if len(ours) != 1:
        raise _WrongError(f"the parsers are {', '.join(found)}: ours {len(ours)} times")
    place = "outermost parser" if found[0] == ours[0] else f"behind {found[0]}"
    return f"active, applied once, {place}"


def _delegate(parser: Any) -> Any:
    for declared in parser.getClass().getDeclaredFields():
        if declared.getName() == "delegate":
            declared.setAccessible(True)
            return declared.get(parser)
    return None


def _parameters(spark: Any) -> str:
    rows = spark.sql("SELECT :a AS b", args={"a": 41}).collect()
    if [row["b"] for row in rows] != [41]:
        raise _WrongError(f"SELECT :a gave {rows}")
    return "SELECT :a bound through all parsers"


def _catalog(spark: Any) -> str:
    schemas = [row[0] for row in spark.sql("SHOW SCHEMAS IN slackwater").collect()]
    if "default" not in schemas:
        raise _WrongError(f"the schemas are {', '.join(schemas)}: default is missing")
    count = spark.sql("SELECT count(*) FROM slackwater.mz_catalog.mz_objects").collect()[0][0]
    return f"slackwater loaded, {len(schemas)} schemas, {count} objects"


def _coordinator(spark: Any) -> str:
    began = time.monotonic()
    spark.sql("SELECT name FROM slackwater.mz_catalog.mz_databases").collect()
    return f"answers a query in {(time.monotonic() - began) * 1000:.0f} ms"


_SESSION_CHECKS: Sequence[tuple[str, Callable[[Any], str], str]] = (
    ("extension", _extension, "start the session with slackwater.configure, or with the jar"),
    ("parameters", _parameters, "another parser extension of this session drops parameters"),
    ("catalog", _catalog, "leave spark.sql.catalog.slackwater unset"),
    ("coordinator", _coordinator, f"see {LOG_FILE} below the location"),
)
