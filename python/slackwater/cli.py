"""The command line: `slackwater sql`, `thriftserver`, `serve`, `demo`, `doctor` and others."""

from __future__ import annotations

import getpass
import os
import sys
import tempfile
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, NoReturn

import typer

from slackwater.repr.version import VERSION
from slackwater.spark import session as spark_session

app = typer.Typer(
    no_args_is_help=True,
    help="Consistent, incrementally maintained views for Apache Spark.",
)

LOOPBACK = "127.0.0.1"
ERRORS_ALONE = {"spark.log.level": "ERROR"}
SUBMIT_OPTIONS = "SPARK_SUBMIT_OPTS"
"""The variable with options for the JVM that Spark's scripts start."""

Location = Annotated[
    str | None,
    typer.Option(
        help="Where the environment lives: a folder or s3://bucket/prefix."
        " Default: ./slackwater-environment"
    ),
]
Metastore = Annotated[
    str | None, typer.Option(help="SQLAlchemy URL. Default: SQLite inside the location.")
]
Conf = Annotated[
    list[str] | None, typer.Option("--conf", help="A setting key=value for Spark. Repeatable.")
]
Master = Annotated[
    str | None,
    typer.Option(help="Spark's master URL. Default: the variable MASTER, or local[*]."),
]
Host = Annotated[
    str,
    typer.Option(
        help="The address to listen on. Others than loopback have no encryption by default."
    ),
]


def _tell_version(asked: bool) -> None:
    if asked:
        typer.echo(f"slackwater {VERSION}, Spark {spark_session.spark_version()}")
        raise typer.Exit


@app.callback()
def _every_command(
    _: Annotated[
        bool,
        typer.Option("--version", callback=_tell_version, is_eager=True, help="Print versions."),
    ] = False,
) -> None:
    pass


@app.command()
def sql(
    execute: Annotated[str | None, typer.Option("-e", help="Statements to run.")] = None,
    file: Annotated[str | None, typer.Option("-f", help="A file of statements to run.")] = None,
    location: Location = None,
    metastore: Metastore = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """The spark-sql shell, with the current catalog slackwater."""
    if execute is not None and file is not None:
        raise typer.BadParameter("-e and -f exclude each other")
    # A program that reads the answers has always got rows alone.
    header = "true" if sys.stdout.isatty() else "false"
    shell = {"spark.ui.showConsoleProgress": "false", "spark.sql.cli.print.header": header}
    arguments = _submit_arguments(location, metastore, master, conf, shell)
    if execute is not None:
        arguments += ["-e", execute]
    if file is not None:
        arguments += ["-f", file]
    _become("spark-sql", arguments, _quiet_log())


@app.command()
def thriftserver(
    port: Annotated[int, typer.Option(help="The port to listen on.")] = 10000,
    host: Host = LOOPBACK,
    location: Location = None,
    metastore: Metastore = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """HiveThriftServer2 in the foreground, for JDBC clients."""
    arguments = _submit_arguments(location, metastore, master, conf, ERRORS_ALONE)
    arguments += ["--class", "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2"]
    arguments += ["spark-internal"]
    arguments += ["--hiveconf", f"hive.server2.thrift.port={port}"]
    arguments += ["--hiveconf", f"hive.server2.thrift.bind.host={host}"]
    arguments += ["--hiveconf", f"hive.server2.logging.operation.log.location={_logs_of(port)}"]
    _become("spark-submit", arguments)


def _logs_of(port: int) -> Path:
    """The folder of the notices that clients ask for.

    A server that ends removes it. Hive's own is one for all servers of a user.
    """
    return Path(tempfile.gettempdir()) / getpass.getuser() / f"operation_logs_{port}"


@app.command()
def connect(
    port: Annotated[int, typer.Option(help="The port to listen on.")] = 15002,
    host: Host = LOOPBACK,
    location: Location = None,
    metastore: Metastore = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """A Spark Connect server in the foreground."""
    arguments = _submit_arguments(location, metastore, master, conf, ERRORS_ALONE)
    arguments += ["--conf", f"spark.connect.grpc.binding.port={port}"]
    arguments += ["--conf", f"spark.connect.grpc.binding.address={host}"]
    arguments += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    arguments += ["spark-internal"]
    _become("spark-submit", arguments)


@app.command()
def serve(
    location: Location = None,
    metastore: Metastore = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Leads an environment without a user's session, or stands by until it can."""
    from slackwater.spark.serve import serve as run

    raise typer.Exit(run(location, metastore, _pairs(conf, master)))


@app.command()
def console(
    location: Location = None,
    metastore: Metastore = None,
    host: Host = LOOPBACK,
    port: Annotated[int, typer.Option(help="The port to listen on; 0: a free one.")] = 8070,
    name: Annotated[
        list[str] | None,
        typer.Option(help="A name by which browsers reach it, beside the address. Repeatable."),
    ] = None,
    tls_certificate: Annotated[
        Path | None, typer.Option(help="A file with the certificate, for HTTPS.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="A file with the certificate's key.")] = None,
    password_file: Annotated[
        Path | None, typer.Option(help="A file with the password that browsers are asked for.")
    ] = None,
    behind_proxy: Annotated[
        bool, typer.Option("--behind-proxy", help="A proxy ends TLS and knows who may look.")
    ] = False,
) -> None:
    """Pages that show an environment in a browser. Needs no Spark, and changes nothing."""
    from slackwater.console.serve import ConsoleOptions, serve

    options = ConsoleOptions(
        host, port, tuple(name or ()), tls_certificate, tls_key, password_file, behind_proxy
    )
    raise typer.Exit(serve(location, metastore, options, typer.echo))


@app.command(
    context_settings={
        "allow_extra_args": True,
        "ignore_unknown_options": True,
        "help_option_names": [],
    }
)
def beeline(context: typer.Context) -> None:
    """The JDBC shell of the installed pyspark; takes beeline's own arguments, such as -u and -e."""
    _become("beeline", context.args)


@app.command("jar-path")
def jar_path() -> None:
    """Prints the path of the jar for the installed Spark."""
    try:
        typer.echo(str(spark_session.jar_path()))
    except FileNotFoundError as error:
        _fail(str(error))


@app.command()
def doctor(
    location: Location = None,
    metastore: Metastore = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Checks this installation and says what to do; exit status 1 if a check fails."""
    from slackwater.doctor import examine

    raise typer.Exit(examine(location, metastore, _pairs(conf, master)))


@app.command()
def check(
    location: Location = None,
    metastore: Metastore = None,
    deep: Annotated[bool, typer.Option("--deep", help="Read the rows of all parts, too.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the findings as JSON, for programs.")
    ] = False,
) -> None:
    """Verifies an environment and changes nothing in it; exit status 1 if a check fails."""
    from slackwater.check.run import CheckOptions, examine

    raise typer.Exit(examine(location, metastore, CheckOptions(deep, as_json)))


@app.command()
def demo(
    location: Location = None,
    metastore: Metastore = None,
    master: Master = None,
    conf: Conf = None,
    days: Annotated[int, typer.Option(help="How many days of flights to feed.")] = 365,
    kafka: Annotated[
        bool, typer.Option("--kafka", help="Send them through topics of a broker that it starts.")
    ] = False,
    console: Annotated[
        bool,
        typer.Option("--console", help="Show it in the console too, and leave it running."),
    ] = False,
) -> None:
    """A tour on real data: all flights that left New York in 2013. Checks what it shows."""
    from slackwater.demo import run

    raise typer.Exit(run(location, metastore, _pairs(conf, master), days, kafka, console))


def _pairs(conf: list[str] | None, master: str | None = None) -> dict[str, str]:
    """The user's settings; one of them wins over `master`."""
    pairs = {} if master is None else {"spark.master": master}
    for entry in conf or ():
        key, separator, value = entry.partition("=")
        if not separator:
            raise typer.BadParameter(f"--conf takes key=value, not {entry}")
        pairs[key] = value
    return pairs


def _submit_arguments(
    location: str | None,
    metastore: str | None,
    master: str | None,
    conf: list[str] | None,
    own: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    """The arguments of spark-submit for a session with the jar; the user's settings win.

    `own` are settings of this command.
    """
    try:
        jar = str(spark_session.jar_path())
    except FileNotFoundError as error:
        _fail(str(error))
    given = _pairs(conf, master)
    settings = {
        "spark.master": os.environ.get("MASTER", "local[*]"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.catalog.slackwater": "io.slackwater.SlackwaterCatalog",
        "spark.sql.defaultCatalog": "slackwater",
        "spark.ui.enabled": "false",
        **own,
        **spark_session.fair_scheduling(given),
        **spark_session.settings(location, metastore),
        **given,
    }
    jars = [jar for jar in settings.pop("spark.jars", "").split(",") if jar]
    arguments = ["--jars", ",".join([*jars, jar])]
    # The threads of the Thrift server that open a session do not see --jars.
    path = [entry for entry in (settings.pop("spark.driver.extraClassPath", ""), jar) if entry]
    arguments += ["--driver-class-path", os.pathsep.join(path)]
    for key, value in settings.items():
        arguments += ["--conf", f"{key}={value}"]
    return arguments


def _quiet_log() -> dict[str, str]:
    """The variables with which a JVM writes errors alone, if nobody says what it is to write."""
    configured = os.environ.get("SPARK_CONF_DIR")
    if configured is not None and (Path(configured) / "log4j2.properties").exists():
        return {}
    log = Path(str(resources.files("slackwater") / "spark" / "shell_log.properties"))
    options = [f"-Dlog4j2.configurationFile={log.as_uri()}", os.environ.get(SUBMIT_OPTIONS, "")]
    return {SUBMIT_OPTIONS: " ".join(option for option in options if option)}


def _become(
    program: str, arguments: list[str], variables: Mapping[str, str] = MappingProxyType({})
) -> NoReturn:
    """Replaces this process by a program of the installed pyspark."""
    home = Path(str(resources.files("pyspark")))
    own = {"SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
    environment = {**os.environ, **own, **_locale(os.environ), **variables}
    binary = home / "bin" / program
    os.execvpe("bash", ["bash", str(binary), *arguments], environment)


def _locale(environment: Mapping[str, str]) -> dict[str, str]:
    """The locale for a JVM that would take texts for ASCII: letters of statements would be lost.

    Python has taken care of all but LC_ALL, which wins over other variables.
    """
    return {"LC_ALL": "C.UTF-8"} if environment.get("LC_ALL") in ("C", "POSIX") else {}


def _fail(message: str) -> NoReturn:
    typer.echo(message, err=True)
    raise typer.Exit(1)


if __name__ == "__main__":
    app()
