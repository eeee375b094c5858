"""Builds the shim's jar with the Scala compiler that Spark carries, and nothing else.

Run with a Python in which pyspark is installed: ``python jvm_shim/build.py [java]``. The jar is
compiled against the Spark that it will run in, and lies in ``python/slackwater/jars`` afterwards.
SPARK_JARS names another folder of Spark's jars.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

SHIM = Path(__file__).resolve().parent
SOURCES = SHIM / "src/main/scala"
SHIMS = SHIM / "src/main/shims"
RESOURCES = SHIM / "src/main/resources"
PACKAGE = SHIM.parent / "python/slackwater"
CONDITIONS = PACKAGE / "repr/slackwater-error-conditions.json"
VERSION = re.compile(r'^version = "(.+)"$', re.MULTILINE)
CORE = re.compile(r"spark-core_(\d+\.\d+)-(\d+\.\d+)\..*\.jar")
# A compilation is over before the second compiler of a JVM pays off: it takes half as long so. With
# one compiler a JVM keeps 48 MB for its code, and stops compiling when that is full.
JVM = [
    "-Xmx1g",
    "-Xms512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:ReservedCodeCacheSize=240m",
]


def jars_of_spark() -> Path:
    named = os.environ.get("SPARK_JARS")
    if named:
        return Path(named)
    pyspark = find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        sys.exit("pyspark is not installed for this Python; run `make setup`")
    return Path(pyspark.origin).parent / "jars"


def versions(jars: Path) -> tuple[str, str]:
    """The minor versions of Scala and Spark in `jars`."""
    for jar in jars.iterdir():
        found = CORE.fullmatch(jar.name)
        if found:
            return found[1], found[2]
    sys.exit(f"there is no Spark in {jars}")


def shims_of(spark: str) -> Path:
    """The sources for this minor version of Spark alone."""
    folder = SHIMS / f"spark-{spark}"
    if not folder.is_dir():
        known = " and ".join(sorted(path.name.removeprefix("spark-") for path in SHIMS.iterdir()))
        sys.exit(
            f"the shim is written for Spark {known}, and Spark {spark} is installed; install a "
            f"pyspark of a known version, or write {folder.relative_to(SHIM.parent)}"
        )
    return folder


def compile_into(folder: Path, java: str, jars: Path, sources: list[Path]) -> None:
    arguments = folder.with_suffix(".sources")
    arguments.write_text("\n".join(f'"{source}"' for source in sources))
    options = (SHIM / "scalac.options").read_text().split()
    compiler = [java, *JVM, "-cp", f"{jars}/*", "scala.tools.nsc.Main", "-usejavacp", *options]
    done = subprocess.run([*compiler, "-d", str(folder), f"@{arguments}"], check=False)
    if done.returncode:
        sys.exit("the shim did not compile")


def pack(classes: Path, target: Path) -> None:
    """Makes the jar `target`, which is there as a whole or not at all."""
    target.parent.mkdir(exist_ok=True)
    unfinished = target.with_suffix(".unfinished")
    with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as jar:
        for root in (classes, RESOURCES):
            for path in sorted(path for path in root.rglob("*") if path.is_file()):
                jar.write(path, path.relative_to(root))
        jar.write(CONDITIONS, f"error/{CONDITIONS.name}")
    unfinished.replace(target)


def version_of_project() -> str:
    stated = VERSION.search((SHIM.parent / "pyproject.toml").read_text())
    return stated[1] if stated else sys.exit("pyproject.toml states no version")


def main(java: str) -> None:
    jars = jars_of_spark()
    scala, spark = versions(jars)
    sources = sorted(
        path for folder in (SOURCES, shims_of(spark)) for path in folder.rglob("*.scala")
    )
    target = PACKAGE / f"jars/slackwater-spark_{spark}_{scala}-{version_of_project()}.jar"
    with tempfile.TemporaryDirectory() as scratch:
        classes = Path(scratch) / "classes"
        classes.mkdir()
        compile_into(classes, java, jars, sources)
        pack(classes, target)
    for jar in target.parent.glob(f"slackwater-spark_{spark}_*.jar"):
        if jar != target:
            jar.unlink()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "java")
