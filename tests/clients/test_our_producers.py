"""librdkafka reads batches that Ottla's own producers have compressed: `ottla produce`, and the tasks of the Spark sink.

The node stores batches as they came, so that librdkafka's codecs decompress the output of Ottla's.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence

import pytest

from tests.clients.test_confluent_kafka import ensure_topic
from tests.needs import needs_packages, skip_because

CODECS = ("gzip", "snappy", "lz4", "zstd")
SECONDS_MAX = 60
#: Takes the address, the topic, the codec and the values.
Write = Callable[[str, str, str, Sequence[str]], None]


def lines() -> list[str]:
    """Return texts that compress and texts that do not, from empty ones to more than a block of any codec (lz4: 64 KB, zstd:
    128 KB).
    """
    chance = random.Random(1)
    sizes = (0, 1, 100, 70_000, 200_000)
    return [*("ottla" * (size // 5) for size in sizes), *(chance.randbytes(size // 2).hex() for size in sizes), "end"]


def read_by_kcat(bootstrap: str, topic: str) -> list[str]:
    skip_because(None if shutil.which("kcat") else "kcat is not installed")
    command = ["kcat", "-b", bootstrap, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-X", "check.crcs=true"]
    done = subprocess.run([*command, "-J"], check=True, capture_output=True, text=True, timeout=SECONDS_MAX)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return [row["payload"] or "" for row in sorted(rows, key=lambda row: (row["partition"], row["offset"]))]


def by_ottla_produce(bootstrap: str, topic: str, codec: str, values: Sequence[str]) -> None:
    command = [sys.executable, "-m", "ottla", "produce", topic, "-b", bootstrap, "-z", codec, "-p", "0"]
    subprocess.run(command, input="\n".join(values) + "\n", check=True, text=True, timeout=SECONDS_MAX)


def by_the_spark_sink(bootstrap: str, topic: str, codec: str, values: Sequence[str]) -> None:
    needs_packages("pyspark", "pyarrow")
    import pyarrow as pa
    from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

    from ottla.spark.sink.options import SinkOptions
    from ottla.spark.sink.task import Place, write

    schema = StructType([StructField("value", BinaryType()), StructField("partition", IntegerType())])
    given = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "kafka.compression.type": codec}
    options = SinkOptions(given | {"exactlyOnce": "false"}, schema, is_stream=False)
    columns = {"value": pa.array([each.encode() for each in values], pa.binary())}
    columns["partition"] = pa.array([0] * len(values), pa.int32())
    write(options, [pa.record_batch(columns)], Place(-1, topic, "run", 0, 0))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("produce", [by_ottla_produce, by_the_spark_sink])
def test_librdkafka_reads_what_was_compressed(bootstrap: str, topic: str, codec: str, produce: Write) -> None:
    ensure_topic(bootstrap, topic, partitions=1)
    produce(bootstrap, topic, codec, lines())
    assert read_by_kcat(bootstrap, topic) == lines()
