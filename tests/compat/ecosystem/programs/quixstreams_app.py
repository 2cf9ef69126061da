"""quixstreams: a stateful count, exactly once, by a process that is killed and started again."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

from checks import BOOTSTRAP, RUN, check, equal, run

SOURCE, TARGET = f"quix-in-{RUN}", f"quix-out-{RUN}"
COUNT = 600
KEYS = 3


def application(run_name: str, folder: str) -> None:
    from quixstreams import Application

    app = Application(
        broker_address=BOOTSTRAP, consumer_group=f"quix-{run_name}", auto_offset_reset="earliest",
        processing_guarantee="exactly-once", state_dir=folder, commit_interval=0.5,
    )  # fmt: skip

    def count(value: dict[str, int], state: Any) -> dict[str, int]:
        total = state.get("count", 0) + 1
        state.set("count", total)
        time.sleep(0.002)
        return {"count": total}

    source, target = app.topic(f"quix-in-{run_name}"), app.topic(f"quix-out-{run_name}")
    app.dataframe(source).apply(count, stateful=True).to_topic(target)
    app.run()


def main() -> None:
    from confluent_kafka import Consumer, Producer

    producer = Producer({"bootstrap.servers": BOOTSTRAP})
    for number in range(COUNT):
        producer.produce(SOURCE, json.dumps({"n": number}), f"key-{number % KEYS}")
    producer.flush(30)
    counts: dict[bytes, list[int]] = {}
    process = None
    with (
        tempfile.TemporaryDirectory() as folder,
        check("counts, none missing or twice, with a kill -9 in between: 600"),
    ):
        settings = {"bootstrap.servers": BOOTSTRAP, "group.id": f"check-{RUN}", "isolation.level": "read_committed"}
        consumer = Consumer({**settings, "auto.offset.reset": "earliest", "topic.metadata.refresh.interval.ms": 1000})
        consumer.subscribe([TARGET])
        command = [sys.executable, __file__, BOOTSTRAP, RUN, folder]
        try:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            killed, end = False, time.monotonic() + 120
            while sum(map(len, counts.values())) < COUNT and time.monotonic() < end:
                for message in consumer.consume(100, 0.5):
                    if message.error() is None:
                        counts.setdefault(message.key(), []).append(json.loads(message.value())["count"])
                if not killed and sum(map(len, counts.values())) > COUNT // 4:
                    killed = True
                    process.send_signal(signal.SIGKILL)
                    process.wait()
                    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            equal(killed, True)
            wanted = list(range(1, COUNT // KEYS + 1))
            equal({key: numbers == wanted for key, numbers in counts.items()}, dict.fromkeys(counts, True))
            equal(len(counts), KEYS)
        finally:
            consumer.close()
            if process is not None:
                process.kill()
                process.wait()


if len(sys.argv) > 2:
    application(sys.argv[2], sys.argv[3])
    os._exit(0)
run(main)
