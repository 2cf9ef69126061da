"""A query into the exactly-once sink that stops at a step of its commit, so that something can be killed just there.

`tests.pipeline.sink_chaos` runs it as a program, by its path: executors need no module of the tests, as the classes of a program are
pickled whole. `format("ottla-stepped")` is `format("ottla")` with one more option, `folder`. A file `wanted` in it names a step and what
then happens: `wait` until the file `stopped` is removed, which has the process id, or `die` at once. It happens once.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import WriterCommitMessage

from ottla.pipeline import config as configuration
from ottla.pipeline import session
from ottla.spark.client.producer import end
from ottla.spark.sink import commit as driver
from ottla.spark.sink.options import SinkOptions
from ottla.spark.sink.writer import StreamWriter
from ottla.spark.source import OttlaDataSource

#: In a task whose rows are sent, and in the driver's commit.
TASK_DONE = "task done"
BEFORE_DECISION, DECIDED, HALF_COMMITTED, COMMITTED = "before the decision", "decided", "half committed", "committed"
WAIT_SECONDS_MAX = 300
POLL_SECONDS = 0.02
#: Executors have nothing to compile twice, and this Java process ends soon.
SETTINGS = ("spark.shuffle_partitions=1", "spark.options.spark.sql.codegen.wholeStage=false")


class SteppedWriter(StreamWriter):
    """The sink's own writer, with a stop between its steps."""

    def __init__(self, options: SinkOptions, folder: str) -> None:
        super().__init__(options)
        self._folder = Path(folder)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        done = super().write(iterator)
        if done.written is not None:
            self._reach(TASK_DONE)
        return done

    def commit(self, messages: list[Any], batchId: int) -> None:
        if not any(each is not None and each.written is not None for each in messages):
            super().commit(messages, batchId)
            return
        self._reach(BEFORE_DECISION)
        own = driver._commit_all

        def commit_all(cluster: Any, decided: Any) -> None:
            self._reach(DECIDED)
            if self._is_wanted(HALF_COMMITTED):
                end(cluster, min(decided.prepared.items())[1].transaction, commit=True)
                self._reach(HALF_COMMITTED)
            own(cluster, decided)

        driver._commit_all = commit_all
        try:
            super().commit(messages, batchId)
        finally:
            driver._commit_all = own
        self._reach(COMMITTED)

    def _is_wanted(self, step: str) -> bool:
        with contextlib.suppress(OSError):
            return bool(json.loads((self._folder / "wanted").read_text())["step"] == step)
        return False

    def _reach(self, step: str) -> None:
        if not self._is_wanted(step):
            return
        taken = self._folder / f"taken-{os.getpid()}"
        try:
            (self._folder / "wanted").rename(taken)
        except FileNotFoundError:
            return  # another task came first
        then = json.loads(taken.read_text())["then"]
        taken.unlink()
        if then == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        # When its Java process is killed, the daemon of Python's processes closes all connections. A network partition would
        # not.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        stopped = self._folder / "stopped"
        draft = self._folder / f"stopped-{os.getpid()}"
        draft.write_text(str(os.getpid()))
        draft.rename(stopped)
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while stopped.exists() and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)


class SteppedSource(OttlaDataSource):
    """format("ottla-stepped")"""

    @classmethod
    def name(cls) -> str:
        return "ottla-stepped"

    def streamWriter(self, schema: Any, overwrite: bool) -> StreamWriter:
        return SteppedWriter(SinkOptions(self.options, schema, is_stream=True), self.options["folder"])


def want(folder: Path, step: str, then: str) -> None:
    """Make the next process that reaches the step stop there."""
    draft = folder / "wanted.draft"
    draft.write_text(json.dumps({"step": step, "then": then}))
    draft.rename(folder / "wanted")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--bootstrap", "--from", "--to", "--format", "--folder"):
        parser.add_argument(name, required=True)
    parser.add_argument("--timeout-ms", required=True)
    parser.add_argument("--set", action="append", default=[])
    args = parser.parse_args()
    folder = Path(args.folder)
    settings = ("source.connector=ottla", f"pipeline.output={folder}", *SETTINGS, *args.set)
    spark = session.start(configuration.load(None, settings))
    spark.dataSource.register(SteppedSource)
    reader = spark.readStream.format(args.format).option("kafka.bootstrap.servers", args.bootstrap)
    reader = reader.options(subscribe=getattr(args, "from"), startingOffsets="earliest", maxOffsetsPerTrigger="2000")
    writer = reader.load().select("key", "value").writeStream.format("ottla-stepped")
    writer = writer.option("kafka.bootstrap.servers", args.bootstrap).option("topic", args.to)
    writer = writer.options(folder=args.folder, transactionTimeoutMs=args.timeout_ms)
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
    print(f"query {query.id} runs", flush=True)
    query.awaitTermination()


if __name__ == "__main__":
    sys.exit(main())
