"""The command line: `slackwater sql | thriftserver | connect | demo | doctor | jar-path`."""

from __future__ import annotations

import os
import sys
from importlib import resources
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from slackwater.spark import session as spark_session

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Consistent, incrementally maintained views for Apache Spark.",
)

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


@app.command()
def sql(
    execute: Annotated[str | None, typer.Option("-e", help="Statements to run.")] = None,
    file: Annotated[str | None, typer.Option("-f", help="A file of statements to run.")] = None,
    location: Location = None,
    metastore: Metastore = None,
    conf: Conf = None,
) -> None:
    """The spark-sql shell, with the current catalog slackwater."""
    if execute is not None and file is not None:
        raise typer.BadParameter("-e and -f exclude each other")
    arguments = _submit_arguments(location, metastore, conf)
    arguments += ["--conf", "spark.ui.showConsoleProgress=false"]
    if execute is not None:
        arguments += ["-e", execute]
    if file is not None:
        arguments += ["-f", file]
    _become("spark-sql", arguments)


@app.command()
def thriftserver(
    port: Annotated[int, typer.Option(help="The port on loopback.")] = 10000,
    location: Location = None,
    metastore: Metastore = None,
    conf: Conf = None,
) -> None:
    """HiveThriftServer2 in the foreground, for JDBC clients on this machine."""
    arguments = _submit_arguments(location, metastore, conf)
    arguments += ["--class", "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2"]
    arguments += ["spark-internal"]
    arguments += ["--hiveconf", f"hive.server2.thrift.port={port}"]
    arguments += ["--hiveconf", "hive.server2.thrift.bind.host=127.0.0.1"]
    _become("spark-submit", arguments)


@app.command()
def connect(
    port: Annotated[int, typer.Option(help="The port on loopback.")] = 15002,
    location: Location = None,
    metastore: Metastore = None,
    conf: Conf = None,
) -> None:
    """A Spark Connect server in the foreground, for clients on this machine."""
    arguments = _submit_arguments(location, metastore, conf)
    arguments += ["--conf", f"spark.connect.grpc.binding.port={port}"]
    arguments += ["--conf", "spark.connect.grpc.binding.address=127.0.0.1"]
    arguments += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    arguments += ["spark-internal"]
    _become("spark-submit", arguments)


@app.command("jar-path")
def jar_path() -> None:
    """Prints the path of the jar for the installed Spark."""
    try:
        typer.echo(str(spark_session.jar_path()))
    except FileNotFoundError as error:
        _fail(str(error))


@app.command()
def doctor(location: Location = None, metastore: Metastore = None, conf: Conf = None) -> None:
    """Checks this installation and says what to do; exit status 1 if a check fails."""
    from slackwater.doctor import examine

    raise typer.Exit(examine(location, metastore, _pairs(conf)))


@app.command()
def demo(
    location: Location = None,
    metastore: Metastore = None,
    conf: Conf = None,
    days: Annotated[int, typer.Option(help="How many days of flights to feed.")] = 365,
) -> None:
    """A tour on real data: all flights that left New York in 2013. Checks what it shows."""
    from slackwater.demo import run

    raise typer.Exit(run(location, metastore, _pairs(conf), days))


def _pairs(conf: list[str] | None) -> dict[str, str]:
    pairs = {}
    for entry in conf or ():
        key, separator, value = entry.partition("=")
        if not separator:
            raise typer.BadParameter(f"--conf takes key=value, not {entry}")
        pairs[key] = value
    return pairs


def _submit_arguments(
    location: str | None, metastore: str | None, conf: list[str] | None
) -> list[str]:
    """The arguments of spark-submit for a session with the jar; the user's settings win."""
    try:
        jar = str(spark_session.jar_path())
    except FileNotFoundError as error:
        _fail(str(error))
    settings = {
        "spark.master": os.environ.get("MASTER", "local[*]"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.catalog.slackwater": "io.slackwater.SlackwaterCatalog",
        "spark.sql.defaultCatalog": "slackwater",
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        **spark_session.settings(location, metastore),
        **_pairs(conf),
    }
    jars = [jar for jar in settings.pop("spark.jars", "").split(",") if jar]
    arguments = ["--jars", ",".join([*jars, jar])]
    # The threads of the Thrift server that open a session do not see --jars.
    path = [entry for entry in (settings.pop("spark.driver.extraClassPath", ""), jar) if entry]
    arguments += ["--driver-class-path", os.pathsep.join(path)]
    for key, value in settings.items():
        arguments += ["--conf", f"{key}={value}"]
    return arguments


def _become(program: str, arguments: list[str]) -> NoReturn:
    """Replaces this process by a program of the installed pyspark."""
    home = Path(str(resources.files("pyspark")))
    environment = {**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
    binary = home / "bin" / program
    os.execvpe("bash", ["bash", str(binary), *arguments], environment)


def _fail(message: str) -> NoReturn:
    typer.echo(message, err=True)
    raise typer.Exit(1)


if __name__ == "__main__":
    app()
