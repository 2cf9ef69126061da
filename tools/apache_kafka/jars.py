"""Fetches the jars of Apache Kafka, 4.3.1 or an older release, through Maven, once, into the user's cache."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

VERSION = "4.3.1"
#: The oldest release whose directories `ottla adopt` takes.
OLDEST = "3.7.2"
HERE = Path(__file__).parent
CACHE = Path(os.environ.get("OTTLA_CACHE", Path.home() / ".cache" / "ottla"))
#: Kafka Streams and RocksDB, 70 MB that most tests do not need.
STREAMS = CACHE / f"apache-kafka-{VERSION}" / "streams"
#: The metadata shell and its reader of lines.
SHELL = CACHE / f"apache-kafka-{VERSION}" / "shell"
#: MirrorMaker and its client library.
MIRROR = CACHE / f"apache-kafka-{VERSION}" / "mirror"
#: Tests of Kafka's storage, with LocalTieredStorage.
TIERS = CACHE / f"apache-kafka-{VERSION}" / "tiers"
#: Flink's Avro serializers for Confluent's registry, with Confluent's Java client inside: its own jars are in no public registry.
FLINK = CACHE / f"apache-kafka-{VERSION}" / "flink-registry"
#: The pom of each folder that is not `libs`, and a jar that is there once the folder is complete.
FOLDERS = {
    STREAMS: ("pom-streams.xml", f"kafka-streams-{VERSION}.jar"),
    SHELL: ("pom-shell.xml", f"kafka-shell-{VERSION}.jar"),
    MIRROR: ("pom-mirror.xml", f"connect-mirror-{VERSION}.jar"),
    TIERS: ("pom-tiers.xml", f"kafka-storage-{VERSION}-test.jar"),
    FLINK: ("pom-flink.xml", "flink-core-1.20.0.jar"),
}
FETCH_SECONDS_MAX = 600
#: Kafka before 2.4 was not built for Scala 2.13.
SCALA = {"2.1.1": "2.12"}


class OracleUnavailable(Exception):
    """Apache Kafka cannot be had here; the message says what is missing."""


def missing() -> str | None:
    """The reason why Apache Kafka cannot be run here, or None."""
    if shutil.which("java") is None or shutil.which("javac") is None:
        return "no JDK on PATH (install a JDK 17 or newer)"
    if not _fetched(libs_of(VERSION)) and shutil.which("mvn") is None:
        return "no Maven on PATH, and the jars of Apache Kafka are not in the cache"
    return None


def require(folder: Path) -> Path:
    """A folder of jars, fetched now if need be.

    Raises:
        OracleUnavailable: no JDK, no Maven, or Maven could not fetch them.
    """
    if reason := missing():
        raise OracleUnavailable(reason)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.parent / "lock", "w") as lock:  # two pytest workers must not fetch into one folder
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _fetched(folder):
            _fetch(folder)
    return folder


def libs_of(version: str) -> Path:
    """Return the folder of a release's jars. An older release is for tests that go on with its data."""
    return CACHE / f"apache-kafka-{version}" / "libs"


def classpath(version: str = VERSION) -> str:
    """The Java class path of all jars of a release."""
    return f"{require(libs_of(version))}/*"


def streams_classpath() -> str:
    """The other jars that Kafka Streams needs."""
    return f"{require(STREAMS)}/*"


def shell_classpath() -> str:
    """The other jars that the metadata shell needs."""
    return f"{require(SHELL)}/*"


def mirror_classpath() -> str:
    """The other jars that MirrorMaker and RemoteClusterUtils need."""
    return f"{require(MIRROR)}/*"


def tiers_classpath() -> str:
    """The other jars that Kafka's LocalTieredStorage needs."""
    return f"{require(TIERS)}/*"


def flink_classpath() -> str:
    """Flink's serializers for a registry, with the jars that they need."""
    return f"{require(FLINK)}/*"


def _release(folder: Path) -> str:
    return folder.parent.name.removeprefix("apache-kafka-")


def _contents(folder: Path) -> tuple[str, str]:
    release = _release(folder)
    return FOLDERS.get(folder, ("pom.xml", f"kafka_{_scala(release)}-{release}.jar"))


def _scala(release: str) -> str:
    return SCALA.get(release, "2.13")


def _fetched(folder: Path) -> bool:
    return (folder / _contents(folder)[1]).exists()


def _fetch(folder: Path) -> None:
    part = folder.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    goal = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
    command = [
        "mvn",
        "-q",
        "-B",
        "-f",
        str(HERE / _contents(folder)[0]),
        goal,
        f"-DoutputDirectory={part}",
        "-DincludeScope=runtime",
        f"-Dkafka.version={_release(folder)}",
        f"-Dscala.version={_scala(_release(folder))}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS_MAX)
    if done.returncode != 0:
        raise OracleUnavailable(f"Maven could not fetch Apache Kafka {_release(folder)}: {done.stdout[-500:]}")
    shutil.rmtree(folder, ignore_errors=True)
    part.rename(folder)
