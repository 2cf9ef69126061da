"""Jars of Maven Central, fetched once into the user's cache: Iceberg's REST server, and the runtimes of Iceberg and Delta for Spark 4.0."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from ottla.server.extras import lacking
from tools.apache_kafka import jars

PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1"
SERVER = jars.CACHE / "iceberg-rest-server-1.10.1"
RUNTIMES = jars.CACHE / "spark-runtimes-4.0"
#: Iceberg's runtime, and those of Delta.
ARTIFACTS = (
    "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.1",
    "io.delta:delta-spark_2.13:4.0.0",
    "io.delta:delta-storage:4.0.0",
)
FETCH_SECONDS_MAX = 600


class NoJars(Exception):
    """The jars cannot be had here, for the reason in the message."""


def missing() -> str | None:
    """Return the reason why the jars, or the libraries of tables, cannot be used here."""
    if (package := lacking("tables")) is not None:
        return f"the package {package} is not installed"
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            return f"there is no {program} on PATH"
    return None


def server_classpath() -> str:
    """Return the class path of Iceberg's REST server. Raises NoJars."""
    if not any(SERVER.glob("iceberg-core-*.jar")):
        pom = Path(__file__).with_name("pom.xml")
        _maven("-f", str(pom), f"{PLUGIN}:copy-dependencies", f"-DoutputDirectory={SERVER}", "-DincludeScope=runtime")
    return f"{SERVER}/*"


def runtimes() -> list[Path]:
    """Return the jars with which Spark reads Iceberg and Delta. Raises NoJars."""
    for artifact in ARTIFACTS:
        _, name, version = artifact.split(":")
        if not (RUNTIMES / f"{name}-{version}.jar").exists():
            _maven(f"{PLUGIN}:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={RUNTIMES}")
    return sorted(RUNTIMES.glob("*.jar"))


def _maven(*arguments: str) -> None:
    done = subprocess.run(["mvn", "-q", "-B", *arguments], capture_output=True, text=True, timeout=FETCH_SECONDS_MAX)
    if done.returncode != 0:
        raise NoJars(f"Maven could not fetch them: {done.stdout[-500:]}")
