"""Makes Apache Kafka write data/golden_messages.txt.xz and data/protocol_facts.txt (needs a JDK and Maven).

    python -m tests.protocol.tools.make_golden

The wire comes from kafka-clients 4.4.0, the newest; records and feature levels from the jars of 4.3.1, the newest
release of which every jar can be had.
"""

from __future__ import annotations

import hashlib
import lzma
import shutil
import subprocess
from pathlib import Path

from tests.protocol.catalog import DATA, JAVA, java_names
from tools.apache_kafka import jars
from tools.apache_kafka.programs import java_command

CLIENTS_VERSION = "4.4.0"
CLIENTS = jars.CACHE / f"kafka-clients-{CLIENTS_VERSION}"
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"


def missing() -> str | None:
    """Return the reason why Java cannot be used here, or None."""
    if not _jar().exists() and shutil.which("mvn") is None:
        return "no Maven on PATH, and kafka-clients is not in the cache"
    return jars.missing()


def messages() -> str:
    return _run("GoldenMessages", *java_names())


def facts() -> str:
    return _run("ProtocolFacts")


def _jar() -> Path:
    return CLIENTS / f"kafka-clients-{CLIENTS_VERSION}.jar"


def _run(name: str, *args: str) -> str:
    if not _jar().exists():
        artifact = f"-Dartifact=org.apache.kafka:kafka-clients:{CLIENTS_VERSION}"
        _call(["mvn", "-q", "-B", COPY, artifact, f"-DoutputDirectory={CLIENTS}"], seconds=300)
    source = JAVA / f"{name}.java"
    classes = CLIENTS / "classes" / hashlib.sha256(source.read_bytes()).hexdigest()[:16]
    if not (classes / f"{name}.class").exists():
        classes.mkdir(parents=True, exist_ok=True)
        _call(["javac", "-nowarn", "-cp", f"{_jar()}:{jars.classpath()}", "-d", str(classes), str(source)], seconds=120)
    return _call(java_command(name, *args, extra_classpath=f"{classes}:{_jar()}"), seconds=120)


def _call(command: list[str], seconds: float) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, done.stderr[-2000:] or done.stdout[-2000:]
    return done.stdout


if __name__ == "__main__":
    (DATA / "golden_messages.txt.xz").write_bytes(lzma.compress(messages().encode(), preset=9 | lzma.PRESET_EXTREME))
    (DATA / "protocol_facts.txt").write_text(facts())
