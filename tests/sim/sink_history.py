"""Histories of Spark's exactly-once sink: its tasks and drivers as Spark runs them, with faults; and what must hold.

A query runs its batches one after the other. Its tasks may run twice, side by side or one after the other; a driver is killed or left
behind at any of its requests, and the next run of the query does the batch again with other tasks, as Spark does where its commit log
has no entry. Processes that were left behind go on at any time. Transactions end by their timeouts. A second query may run on the same
checkpoint: it begins at the batch after the last entry of the commit log, and both go on with further batches, turn by turn.

Each value is seen at most once by a reader of committed records, at any time, and those of a batch exactly once as soon as Spark takes it
for committed. At the end nothing is left open that would hold back such a reader.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Generator, Iterator

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from ottla.protocol.records.batch import iter_batches
from ottla.protocol.records.control import end_txn_marker
from ottla.spark.errors import ConnectorError
from ottla.spark.sink import commit as driver
from ottla.spark.sink import task
from ottla.spark.sink.options import SinkOptions
from ottla.spark.sink.task import Place, PreparedTask
from tests.sim.mirror_model import Log
from tests.sim.sink_model import ONGOING, TURN_S, ModelConnection, SinkBroken, SinkCluster, SparkProcess, clock_of

SCHEMA = StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])
TOPIC, SINK = "t", "q"
TIMEOUT_S = 60.0
BATCHES, RUNS_MAX = 6, 60
#: How often, in each turn, a task and a driver have a fault, and how often a whole transaction timeout passes.
TASK_STRUCK, DRIVER_STRUCK, TIMED_OUT = 0.006, 0.012, 0.003
#: How often, in each turn of one query, a second one begins on its checkpoint, in the histories that have it; and the share of these.
SECOND_BEGUN, WITH_SECOND = 0.03, 0.5
#: How often, in each turn of a task and of a driver, it is left to chance which query goes on: so seldom that one falls a batch behind.
OVERTAKEN = ({"task": 0.2, "driver": 0.2}, {"task": 0.02, "driver": 0.02}, {"task": 0.03, "driver": 0.0})


class RunEnded(Exception):
    """This run of the query is over: its driver was killed, or has failed."""


class History:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.cluster = SinkCluster(self.rng)
        self.cluster.lost = self.rng.choice((0.0, 0.0, 0.05))
        self.cluster.create(TOPIC, 2)
        given = {
            "kafka.bootstrap.servers": "kafka:1",
            "topic": TOPIC,
            "transactionTimeoutMs": str(int(TIMEOUT_S * 1000)),
        }
        self.options = SinkOptions(given, SCHEMA, is_stream=True)
        self.runs = 0
        #: The running queries, and the entries of the commit log in their checkpoint: batches with an entry are not repeated.
        self.queries: list[Iterator[str]] = []
        self.logged = 0
        self.second_begun = SECOND_BEGUN if self.rng.random() < WITH_SECOND else 0.0
        #: For each batch, the number of rows of each Spark partition: it is the same in each run.
        self.rows = [[self.rng.choice((0, 2, 5)) for _ in range(self.rng.randint(1, 3))] for _ in range(BATCHES)]
        self.left_behind: list[SparkProcess] = []
        self.struck: Counter[str] = Counter()
        self.faults = True
        self._counted: tuple[int, Counter[bytes]] = (0, Counter())

    def play(self) -> None:
        query: Iterator[str] | None = None
        step, overtaken = "task", self.rng.choice(OVERTAKEN)
        while self.queries or self.logged < BATCHES:
            if not self.queries or (
                len(self.queries) == 1 and self.logged < BATCHES and self.strikes("second query", self.second_begun)
            ):
                self.begin()
            if query not in self.queries or self.rng.random() < overtaken[step]:
                query = self.rng.choice(self.queries)
            try:
                step = next(query)
            except (StopIteration, RunEnded):
                self.queries.remove(query)
        for process in self.left_behind:
            process.kill()
        self.cluster.advance(2 * TIMEOUT_S)
        if left := [name for name, row in self.cluster.transactions.items() if row.state == ONGOING]:
            raise SinkBroken(f"{left} are open")
        for batch in range(BATCHES):
            self.check_batch(batch)

    def strikes(self, fault: str, chance: float) -> bool:
        found = self.faults and self.rng.random() < chance
        self.struck[fault] += found
        return found

    # -- What Spark does: a query yields before each turn of a task or a driver --------------------------------------

    def begin(self) -> None:
        self.runs += 1
        if self.runs > RUNS_MAX:
            raise SinkBroken(f"batch {self.logged} is not committed in {RUNS_MAX} runs")
        self.faults = self.runs < RUNS_MAX // 2
        self.queries.append(self.query(f"run{self.runs}"))

    def query(self, run: str) -> Iterator[str]:
        """Run batches, beginning after the end of the commit log."""
        for batch in range(self.logged, BATCHES):
            yield from self.play_batch(run, batch)
            self.check_batch(batch)
            if self.strikes("commit log", 0.2):
                return  # Spark has no entry of this batch in its log, and repeats the batch
            self.logged = max(self.logged, batch + 1)

    def play_batch(self, run: str, batch: int) -> Iterator[str]:
        """Run the tasks of a batch, and its driver."""
        messages = yield from self.play_tasks(run, batch)
        committing = SparkProcess(f"commit {batch}", lambda: driver.commit(self.options, messages, batch))
        yield from self.play_driver(committing)
        if committing.fault is None:
            return
        aborting = SparkProcess(f"abort {batch}", lambda: driver.abort(self.options, messages, batch))
        yield from self.play_driver(aborting)
        raise RunEnded

    def play_driver(self, process: SparkProcess) -> Iterator[str]:
        while not process.is_over:
            yield "driver"
            self.others()
            process.turn()
            self.after_turn()
            if self.strikes("driver killed", DRIVER_STRUCK):
                process.kill()
                raise RunEnded
            if not process.is_over and self.strikes("driver left behind", DRIVER_STRUCK):
                self.left_behind.append(process)
                raise RunEnded
        self.judge(process)

    def play_tasks(self, run: str, batch: int) -> Generator[str, None, list[PreparedTask | None]]:
        count = len(self.rows[batch])
        attempts = [0] * count
        running: list[tuple[int, SparkProcess]] = []
        done: list[PreparedTask | None] = [None] * count

        def begin(partition: int) -> None:
            place = Place(batch, SINK, run, partition, attempts[partition])
            attempts[partition] += 1
            running.append((partition, SparkProcess(str(place), lambda: self.task(place))))

        for partition in range(count):
            begin(partition)
        while None in done:
            yield "task"
            self.others()
            partition, process = self.rng.choice(running)
            process.turn()
            self.after_turn()
            if process.is_over:
                self.judge(process)
                running.remove((partition, process))
                if process.fault is None and done[partition] is None:
                    done[partition] = process.result
                    for each in [each for each in running if each[0] == partition]:
                        running.remove(each)
                        self.give_up(each[1])
            elif self.strikes("task killed", TASK_STRUCK):
                running.remove((partition, process))
                self.give_up(process)
            elif self.strikes("task twice", TASK_STRUCK):
                begin(partition)
            if done[partition] is None and partition not in {each for each, _ in running}:
                begin(partition)
        return done

    def task(self, place: Place) -> PreparedTask:
        values = self.values(place.batch, place.partition)
        data = pa.record_batch({"key": pa.array(values, pa.binary()), "value": pa.array(values, pa.binary())})
        return task.write(self.options, [data] if values else [], place)

    def values(self, batch: int, partition: int) -> list[bytes]:
        return [b"%d-%d-%d" % (batch, partition, number) for number in range(self.rows[batch][partition])]

    def give_up(self, process: SparkProcess) -> None:
        """Spark stops a task that it no longer needs: the task ends at once, or goes on for a while."""
        if self.rng.random() < 0.5:
            process.kill()
        else:
            self.left_behind.append(process)

    def others(self) -> None:
        """Let what was left behind go on, now and then."""
        while self.left_behind and self.rng.random() < 0.3:
            process = self.rng.choice(self.left_behind)
            process.turn()
            self.after_turn()
            if process.is_over:
                self.judge(process)
                self.left_behind.remove(process)

    def after_turn(self) -> None:
        self.cluster.advance(self.rng.random() * TURN_S)
        if self.strikes("timed out", TIMED_OUT):
            self.cluster.advance(TIMEOUT_S)
        if twice := [value for value, count in self.committed().items() if count > 1]:
            raise SinkBroken(f"{twice[:9]} are seen twice")

    # -- What must hold ----------------------------------------------------------------------------------------------------

    def judge(self, process: SparkProcess) -> None:
        if process.fault is not None and not isinstance(process.fault, ConnectorError):
            raise SinkBroken(f"{process.name} has ended: {process.fault!r}")

    def committed(self) -> Counter[bytes]:
        """Return the values that a reader of committed records will see, no matter how many open transactions are before them."""
        size = sum(len(log.entries) for log in self.cluster.topics[TOPIC].logs)
        if size != self._counted[0]:
            values = [value for log in self.cluster.topics[TOPIC].logs for value in committed_values(log)]
            self._counted = size, Counter(values)
        return self._counted[1]

    def check_batch(self, batch: int) -> None:
        found = self.committed()
        for partition in range(len(self.rows[batch])):
            if missing := [value for value in self.values(batch, partition) if found[value] != 1]:
                raise SinkBroken(f"batch {batch} is committed, and {missing} are not seen once")

    def end(self) -> None:
        for process in self.left_behind:
            process.kill()


def committed_values(log: Log) -> list[bytes]:
    """Return the values of committed transactions."""
    found: list[bytes] = []
    waiting: dict[int, list[bytes]] = {}
    for entry in log.entries:
        (batch,) = iter_batches(entry.data)
        if entry.is_control:
            marker = end_txn_marker(batch)
            values = waiting.pop(entry.pid, [])
            found += values if marker is not None and marker.committed else []
        else:
            waiting.setdefault(entry.pid, []).extend(row.value or b"" for row in batch.records())
    return found


def play(seed: int) -> History:
    """Play the history of a seed.

    Raises: SinkBroken: a check failed.

    Raises:
        SinkBroken: something does not hold that must.
    """
    history = History(seed)
    with pytest.MonkeyPatch.context() as patch:
        connection = type("Connection", (ModelConnection,), {"cluster": history.cluster})
        patch.setattr("ottla.spark.client.cluster.SparkConnection", connection)
        for module in ("client.cluster", "client.fetch", "sink.commit", "sink.task"):
            patch.setattr(f"ottla.spark.{module}.time", clock_of(history.cluster))
        try:
            history.play()
        finally:
            history.end()
    return history
