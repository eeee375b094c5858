"""The JVM of a driver, and what is known of it: its bridges, replicas and running calls."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from slackwater.compute.engine import Interruption
from slackwater.repr.frontier import Timestamp
from slackwater.spark.given_back import give_back_elsewhere
from slackwater.spark.given_parts import GivenParts

if TYPE_CHECKING:
    from slackwater.spark.bridge import SparkBridge, SparkProgram


class Driver:
    """The driver's JVM, and the bridges to it by their settings. Thread-safe."""

    def __init__(self, environment: str = "", jvm: Any = None) -> None:
        """`environment` names the environment that the coordinator leads.

        `jvm` None: the JVM is the one that the process's variables name.
        """
        self.environment = environment
        # Part ids are unique in one environment only, and a driver may serve several.
        self.origin = uuid.uuid4().hex
        self._lock = threading.Lock()
        self._jvm = jvm
        self._classes: dict[str, Any] = {}
        self._bridges: dict[tuple[str, str], SparkBridge] = {}
        self.statement = threading.local()
        """The interruption that ends the calls of each thread, with whatever settings."""
        self.groups: dict[Interruption, str] = {}
        """For each interruption, the job group of the call that it would end."""
        self._advances: dict[SparkProgram, Timestamp] = {}
        self.weights: dict[str, int] = {}
        """The weights of the replicas of this coordinator, by their names."""
        self.parts = GivenParts()

    def jvm(self) -> Any:
        """The driver's JVM. Attaches to it on first use."""
        with self._lock:
            if self._jvm is None:
                # Importing pyspark takes longer than the coordinator may take to answer.
                from pyspark.java_gateway import launch_gateway

                gateway = launch_gateway()
                give_back_elsewhere(gateway._gateway_client)
                self._jvm = gateway.jvm
            return self._jvm

    def class_of(self, name: str) -> Any:
        """The JVM's class of that full name. It is looked for once: each part of its name that is
        no class by itself is looked for in all jars."""
        if name not in self._classes:
            found = self.jvm()
            for part in name.split("."):
                found = getattr(found, part)
            self._classes[name] = found
        return self._classes[name]

    def advanced(self, program: SparkProgram, upper: Timestamp) -> None:
        """Nothing changes for the program before `upper`, which the JVM is told when it matters."""
        with self._lock:
            self._advances[program] = upper

    def forget(self, program: SparkProgram) -> None:
        """The program is closed."""
        with self._lock:
            self._advances.pop(program, None)

    def advances(self) -> Mapping[SparkProgram, Timestamp]:
        """Up to where nothing changes for programs, as far as the last call has not said so."""
        with self._lock:
            found, self._advances = self._advances, {}
        return found

    def known(self, settings: str, replica: str, make: Callable[[], SparkBridge]) -> SparkBridge:
        """The one bridge of the replica with these settings; `make` makes it when first asked."""
        with self._lock:
            if (settings, replica) not in self._bridges:
                self._bridges[settings, replica] = make()
            return self._bridges[settings, replica]

    @property
    def is_attached(self) -> bool:
        """Whether the driver has been reached."""
        return self._jvm is not None

    def forget_replica(self, replica: str) -> None:
        """The replica has ended, and its bridges with it."""
        with self._lock:
            self.weights.pop(replica, None)
            for known in [each for each in self._bridges if each[1] == replica]:
                del self._bridges[known]
