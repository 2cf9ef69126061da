"""faust-streaming: an agent with a table, whose worker is killed and restores the table from its changelog."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

RUN_NAME = "FAUST_RUN"
ACCOUNTS = 10


def application() -> Any:
    """The application that a worker runs, by the environment of this program."""
    import faust

    run = os.environ[RUN_NAME]
    app = faust.App(
        f"faust-{run}", broker=f"kafka://{os.environ['FAUST_BROKER']}", topic_partitions=4, store="memory://"
    )
    amounts = app.topic(f"amounts-{run}", key_type=str, value_type=int)
    sums = app.topic(f"sums-{run}", key_type=str, value_type=int)
    table = app.Table("sums", default=int, partitions=4)

    @app.agent(amounts)
    async def add(stream: Any) -> None:
        async for key, amount in stream.items():
            table[key] += amount
            await sums.send(key=key, value=table[key])

    return app


def main() -> None:
    import asyncio

    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.admin import AIOKafkaAdminClient, NewTopic
    from checks import BOOTSTRAP, RUN, check, equal

    environment = {**os.environ, RUN_NAME: RUN, "FAUST_BROKER": BOOTSTRAP}
    folder = Path(tempfile.mkdtemp())
    wanted: Counter[str] = Counter()
    last: dict[str, int] = {}

    def worker() -> subprocess.Popen[bytes]:
        command = [
            str(Path(sys.executable).parent / "faust"),
            "-A",
            "faust_app:app",
            "--datadir",
            str(folder),
            "worker",
        ]
        place = Path(__file__).parent
        with open(folder / "worker.log", "ab") as log:
            return subprocess.Popen(
                [*command, "--without-web", "-l", "info"], env=environment, cwd=place, stdout=log, stderr=log
            )

    async def create() -> None:
        # The topics are created first: Faust gives up a source topic that does not exist when it starts.
        admin = AIOKafkaAdminClient(bootstrap_servers=BOOTSTRAP)
        await admin.start()
        await admin.create_topics([NewTopic(f"{name}-{RUN}", 4, 1) for name in ("amounts", "sums")])
        await admin.close()

    def are_there(exact: bool) -> bool:
        # Counts are at least once: records that were not committed when the worker was killed are added to the restored table
        # again.
        return last == dict(wanted) if exact else all(last.get(key, 0) >= value for key, value in wanted.items())

    async def send_and_read(exact: bool) -> None:
        async with AIOKafkaProducer(bootstrap_servers=BOOTSTRAP) as producer:
            for number in range(100):
                key = str(number % ACCOUNTS)
                wanted[key] += number
                await producer.send_and_wait(f"amounts-{RUN}", str(number).encode(), f'"{key}"'.encode())
        consumer = AIOKafkaConsumer(f"sums-{RUN}", bootstrap_servers=BOOTSTRAP, auto_offset_reset="earliest")
        async with consumer:
            end = time.monotonic() + 90
            while not are_there(exact) and time.monotonic() < end:
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    last.update((record.key.decode().strip('"'), int(record.value)) for record in records)
        equal(are_there(exact), True)

    process = None
    try:
        asyncio.run(create())
        with check("an agent sums 100 messages in a table"):
            process = worker()
            asyncio.run(send_and_read(exact=True))
        with check("a worker that was killed restores its table from the changelog, at least once"):
            process.send_signal(signal.SIGKILL)
            process.wait()
            process = worker()
            asyncio.run(send_and_read(exact=False))
    finally:
        if process is not None:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    import checks

    checks.run(main)
else:
    app = application()
