"""`make compat ARGS=registry`: Java's stock serializer of Avro, and Confluent's own Java client, at `ottla registry`.

Confluent's serializers for Java are only in its own repository. Flink's contain Confluent's client, and are in Maven's
repository.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.compat.librdkafka import Outcome
from tests.ottla.registry.instances import Registries
from tests.ottla.registry.test_stock_serializers import AVRO
from tools.apache_kafka.jars import flink_classpath
from tools.apache_kafka.programs import compiled, java_command

SOURCE = Path(__file__).with_name("JavaClients.java")
CONTEXT = SerializationContext("orders", MessageField.VALUE)
PROGRAM_SECONDS_MAX = 300
PASS, FAIL, VALUE = "PASS", "FAIL", "VALUE"


def outcomes(bootstrap: str, report: Callable[[Outcome], Outcome]) -> list[Outcome]:
    """Yield an outcome for each of the program's checks, and for each check of its value in Python."""
    registries = Registries(bootstrap)
    registries.start()
    try:
        lines, seconds = run(registries.urls[0])
        printed = [line.partition(" ") for line in lines]
        checks = [(word, sentence) for word, _, sentence in printed if word in (PASS, FAIL)]
        found = [
            Outcome(f"registry-java-{number}", word, seconds, sentence)
            for number, (word, sentence) in enumerate(checks, 1)
        ]
        values = [bytes.fromhex(text) for word, _, text in printed if word == VALUE]
        found.append(read_by_python(registries.urls[0], values))
    finally:
        registries.stop()
    return [report(each) for each in found]


def run(url: str) -> tuple[list[str], float]:
    """Return what the program printed, and its duration in seconds. The program reads a value that confluent-kafka has
    written.
    """
    client = SchemaRegistryClient({"url": url})
    written = AvroSerializer(client, AVRO)({"id": 8, "who": "bob"}, CONTEXT)
    assert written is not None
    jars = flink_classpath()
    command = java_command(SOURCE.stem, url, AVRO, written.hex(), extra_classpath=f"{compiled(SOURCE, jars)}:{jars}")
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=PROGRAM_SECONDS_MAX)
    lines = done.stdout.splitlines()
    if done.returncode:
        lines.append(f"{FAIL} the program ended with {done.returncode}: {done.stderr[-500:]}")
    return lines, time.monotonic() - began


def read_by_python(url: str, values: list[bytes]) -> Outcome:
    """Return whether confluent-kafka's deserializer reads what Flink's serializer has written."""
    began = time.monotonic()
    deserializer = AvroDeserializer(SchemaRegistryClient({"url": url}))
    read = [deserializer(value, CONTEXT) for value in values]
    result = PASS if read == [{"id": 7, "who": "alice"}] else FAIL
    sentence = f"confluent-kafka's deserializer reads a value of Flink's serializer: {read}"
    return Outcome("registry-java-python", result, time.monotonic() - began, sentence)
