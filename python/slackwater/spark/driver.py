"""The JVM of a driver, and what is known of it: its bridges, replicas and running calls."""

from __future__ import annotations

import os
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from py4j.java_gateway import GatewayParameters, JavaGateway

from slackwater.compute.engine import Interruption
from slackwater.repr.frontier import Timestamp
from slackwater.spark.given_back import give_back_elsewhere
from slackwater.spark.given_parts import GivenParts

if TYPE_CHECKING:
    from slackwater.spark.bridge import SparkBridge, SparkProgram


def _attached() -> Any:
    """The JVM at the gateway that the variables name.

    As `launch_gateway` of pyspark does it, without importing pyspark, which is an eighth of the
    time that a coordinator takes to start.
    """
    parameters = GatewayParameters(
        port=int(os.environ["PYSPARK_GATEWAY_PORT"]),
        auth_token=os.environ["PYSPARK_GATEWAY_SECRET"],
        auto_convert=True,
    )
    gateway = JavaGateway(gateway_parameters=parameters)
    give_back_elsewhere(gateway._gateway_client)
    return gateway.jvm


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
        self._loaded: Counter[str] = Counter()
        """The number of programs that each replica has loaded."""
        self._united: Counter[str] = Counter()
        """The number of them after which no two arrangements of the replica had the same rows."""
        self.weights: dict[str, int] = {}
        """The weights of the replicas of this coordinator, by their names."""
        self.parts = GivenParts()

    def jvm(self) -> Any:
        """The driver's JVM. Attaches to it on first use."""
        with self._lock:
            if self._jvm is None:
                self._jvm = _attached()
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

    def loaded(self, replica: str) -> None:
        """The replica has loaded a program, which may keep what another one keeps, too."""
        with self._lock:
            self._loaded[replica] += 1

    def programs_loaded(self, replica: str) -> int:
        with self._lock:
            return self._loaded[replica]

    def united(self, replica: str, loaded: int) -> None:
        """No two arrangements had the same rows after so many programs of it were loaded."""
        with self._lock:
            self._united[replica] = loaded

    def is_united(self, replica: str) -> bool:
        """Whether no program was loaded since."""
        with self._lock:
            return self._united[replica] == self._loaded[replica]

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
            del self._loaded[replica], self._united[replica]
            for known in [each for each in self._bridges if each[1] == replica]:
                del self._bridges[known]
