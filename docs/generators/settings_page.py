"""The reference page of all settings: ``python -m docs.generators.settings_page``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slackwater.adapter.coordinator import HOUSEKEEPING_INTERVAL_S
from slackwater.planner.parser.parameters import PARAMETERS
from slackwater.planner.parser.variables import VARIABLES
from slackwater.server.ingress.settings import PREFIX, IngressSettings, read

HEAD = """# Settings

This page is generated from the code by `python -m docs.generators.settings_page`.
"""

APPLICATION_HEAD = """
## Settings of an application

They are Spark settings. Give them with `--conf key=value` to the `slackwater` command, with
`slackwater.configure(builder, location=..., metastore=..., **{"key": value})`, or wherever Spark
reads its configuration.

They count when the application starts. What a session sets by `SET` does not, but for `enabled`:
else whoever may run SQL over JDBC could name a program to run.

| below `spark.slackwater.` | meaning | default |
|---|---|---|
"""

INGRESS_HEAD = f"""
## The ingress

How an application that leads listens for [webhooks](tasks/receive_webhooks.md) and
[changefeeds](tasks/follow_a_database.md). The environment remembers the last ones that a leader was
given, so that the next leader listens in the same way, also if its application has none.

| below `{PREFIX}` | meaning | default |
|---|---|---|
"""

PARAMETERS_HEAD = """
## Parameters of the system

[ALTER SYSTEM](statements/alter_system.md) changes them while the environment runs; `SHOW`,
`SHOW ALL` and `mz_internal.mz_system_parameters` show them. Those that are variables of a session
as well are what new sessions begin with.

| parameter | meaning | default | values |
|---|---|---|---|
"""

FILE_HEAD = f"""
### The file of parameters

`spark.slackwater.parameters.file` names a file with more of them, for an environment that is set up
by a program. The leader reads it before it begins, and looks every {HOUSEKEEPING_INTERVAL_S:.0f}
seconds whether it has changed.

```ini
# a parameter in each line
persist_blob_target_size = 64MB
statement_timeout = '5 min'
```

What the file says goes before the defaults; what ALTER SYSTEM has set goes before the file. The
file of the application that leads counts, so give all applications of an environment the same one.

A file that cannot be read, names what is no parameter, or has one value that is none, is ignored as
a whole: what held before stays, and the log and a notice to every session say why. A leader that
begins with such a file begins without it.
"""

VARIABLES_HEAD = """
## Variables of a session

[SET](statements/set.md) changes them, `SHOW` and `SHOW ALL` show them.

| variable | meaning | default |
|---|---|---|
"""

SPARK_HEAD = """
## Settings of Spark

| setting | meaning | default |
|---|---|---|
"""

SPARK: Mapping[str, str] = {
    "spark.jars": "the jar; `slackwater.configure` and the `slackwater` command add it",
    "spark.scheduler.mode": (
        "`slackwater.configure` and the `slackwater` command set `FAIR`, with the pools"
        " `slackwater` and `default`, unless it is set: see"
        " [clusters](tasks/run_on_a_cluster.md#let-queries-and-views-share-the-executors)"
    ),
    "spark.sql.extensions": (
        "the jar activates itself; `io.slackwater.SlackwaterExtensions` is accepted as well"
    ),
    "spark.sql.catalog.slackwater": (
        "the same, with `io.slackwater.SlackwaterCatalog`; under another name it is refused"
    ),
    "spark.local.dir": (
        "where [arrangements](tasks/give_views_memory.md) go that do not fit into memory"
    ),
}


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting below ``spark.slackwater.`` as readers see it."""

    meaning: str
    default: str = ""


APPLICATION: Mapping[str, Setting] = {
    "location": Setting(
        "where the environment lives: a folder (a path or `file:/...`) or `s3://bucket/prefix`",
        "`./slackwater-environment`",
    ),
    "metastore": Setting(
        "SQLAlchemy URL of the [metastore](tasks/use_postgresql.md); needed for a location in S3",
        "SQLite inside the location",
    ),
    "metastore.password": Setting(
        "the metastore's password; also the variable `SLACKWATER_METASTORE_PASSWORD` of the driver"
    ),
    "metastore.passwordFile": Setting(
        "a file that holds it; also the variable `SLACKWATER_METASTORE_PASSWORD_FILE`"
    ),
    "python": Setting("the Python that has slackwater installed", "found by itself as a rule"),
    "lease": Setting(
        "how long the [leader](concepts/leadership.md) of an environment may be silent:"
        " `1s` to `30s`",
        "`10s`",
    ),
    "arrangements.memory": Setting(
        "how much memory of the driver, off the heap, [views](tasks/give_views_memory.md) may take"
        " for what they look changes up in, such as `4g`",
        "half of the heap's size",
    ),
    "arrangements.disk": Setting(
        "how much of it may be in files below `spark.local.dir` when that memory is full;"
        " `0`: none",
        "four times the memory",
    ),
    "parameters.file": Setting(
        "a file with [parameters of the system](#the-file-of-parameters), on the driver's machine",
    ),
    "enabled": Setting(
        "`false` when the application starts: nothing of Slackwater is there. Set later, in a"
        " session: its statements are Spark's syntax errors, and its catalog refuses every call",
        "`true`",
    ),
}

INGRESS: Mapping[str, str] = {
    "address": "`host:port` to listen on, or `off`",
    "url": "what senders see of it, behind a proxy",
    "tls.certificate": "a file in PEM; with `tls.key` the address is HTTPS and nothing else",
    "tls.key": "a file in PEM",
    "jwt.keys": "a file of public keys (RSA, elliptic curves) in PEM, for"
    " [bearer tokens](tasks/receive_webhooks.md#use-bearer-tokens)",
    "jwt.revoked": "a file with the ids (`jti`) of tokens that are revoked, one a line",
    "body.limit": "the largest body",
    "requests.limit": "how many requests may be under way at once",
    "memory.limit": "how many bytes all their bodies may have together",
    "timeout": "how long a request may take",
}


def ingress_defaults(found: IngressSettings) -> Mapping[str, str]:
    """The defaults of the settings of the ingress, as users write them."""
    return {
        "address": "`off`",
        "url": "from the address",
        "body.limit": f"`{found.body_bytes // 1024**2}MB`",
        "requests.limit": f"`{found.requests}`",
        "memory.limit": f"`{found.memory_bytes // 1024**2}MB`",
        "timeout": f"`{found.timeout_ms // 1000}s`",
    }


def page() -> str:
    """The page as Markdown, ending with a newline."""
    settings = read({"address": "localhost:1"})
    assert settings is not None, "an address is given"
    defaults = ingress_defaults(settings)
    rows = [(name, each.meaning, each.default) for name, each in APPLICATION.items()]
    listening = [(name, meaning, defaults.get(name, "")) for name, meaning in INGRESS.items()]
    variables = [
        (name, each.description, f"`{each.default}`" if each.default else "cannot be set")
        for name, each in sorted(VARIABLES.items())
    ]
    return (
        HEAD
        + APPLICATION_HEAD
        + _table(rows)
        + INGRESS_HEAD
        + _table(listening)
        + PARAMETERS_HEAD
        + "".join(
            f"| `{each.name}` | {each.description} | `{each.default}` | {each.values} |\n"
            for _, each in sorted(PARAMETERS.items())
        )
        + FILE_HEAD
        + VARIABLES_HEAD
        + _table(variables)
        + SPARK_HEAD
        + _table([(name, meaning, "") for name, meaning in SPARK.items()])
    )


def _table(rows: list[tuple[str, str, str]]) -> str:
    return "".join(f"| `{name}` | {meaning} | {default} |\n" for name, meaning, default in rows)


if __name__ == "__main__":
    print(page(), end="")
