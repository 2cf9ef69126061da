"""The verbs with which a test is a client of a cluster: it creates topics, writes records and reads them.

These need no client library.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from ottla.client.cluster import ClusterClient
from ottla.client.connection import TimeUp, open_cluster, read_client_properties
from ottla.client.consumer import READ_COMMITTED, Consumer, places_of
from ottla.client.errors import NO_SUCH_TOPIC, ClusterError
from ottla.client.producer import ClusterProducer
from ottla.client.topics import BROKER_DEFAULT, EARLIEST, LATEST, create_topic, list_offsets
from ottla.client.values import Incoming, from_line
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition
from ottla.protocol.records.record import NewRecord
from ottla.server.installation import install
from ottla.testing.connection import CLIENT_ID
from ottla.testing.errors import ClientMissing, TooFewNodes

if TYPE_CHECKING:
    import confluent_kafka

T = TypeVar("T")
#: A value; or a key and a value; or a row as `ottla consume -o json` prints it.
Row: TypeAlias = bytes | str | tuple[bytes | str | None, bytes | str | None] | Mapping[str, object]
#: Rows, or a file with a row of JSON in each line.
Seed: TypeAlias = str | PathLike[str] | Iterable[Row]

TIMEOUT_SECONDS = 30.0
POLL_SECONDS = 0.02
REPLAY_SECONDS = 300.0


class SeenRecord(NamedTuple):
    """A record that was read back."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Replayed(NamedTuple):
    """The result of a replayed recording: the first difference of each API, a row for each API, and a sentence about the whole."""

    differences: tuple[str, ...]
    rows: list[dict[str, object]]
    summary: str


class Clients:
    """The verbs of a client, which do not disturb other tests.

    A cluster of this process has them, and so has a cluster that runs elsewhere (`attached`).
    """

    @property
    def bootstrap(self) -> str:
        raise NotImplementedError

    @property
    def client_settings(self) -> dict[str, str]:
        """Settings of confluent-kafka: bootstrap.servers, and those that a secure cluster needs."""
        raise NotImplementedError

    @property
    def log_files(self) -> list[str]:
        """The logs of the nodes, if they are on this machine."""
        return []

    @property
    def _properties_file(self) -> str | None:
        """The file of client properties, if the cluster needs one."""
        raise NotImplementedError

    @property
    def time_ms(self) -> int:
        """The time by the nodes' clocks, which `advance` moves in a test's own cluster. It is for timestamps of records."""
        return time.time_ns() // 1_000_000

    def topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replicas: int = BROKER_DEFAULT,
        configs: Mapping[str, str] | None = None,
        seed: Seed = (),
    ) -> str:
        """Create a topic, write the seed into it, and return its name.

        Raises:
            Failure: the cluster rejects it, with a reason.
            TooFewNodes: it has fewer brokers than the topic is to have replicas.
            ValueError: a row of the seed is malformed.
        """
        rows = list(read_seed(seed))

        async def create(cluster: ClusterClient) -> None:
            try:
                await create_topic(cluster, name, partitions, replicas, configs or {})
            except ClusterError as refused:
                count = len((await cluster.metadata([])).brokers)
                if refused.code != ErrorCode.INVALID_REPLICATION_FACTOR or replicas <= count:
                    raise
                raise TooFewNodes(
                    f"topic {name} cannot have {replicas} replicas, because {count} of the cluster's brokers run",
                    "take a cluster of more nodes, such as kafka_cluster or factories.kafka_cluster(3), or fewer replicas",
                ) from None
            await _write(cluster, name, rows)

        self._do(create, TIMEOUT_SECONDS)
        return name

    def write(self, topic: str, seed: Seed) -> None:
        """Write rows to an existing topic. Return when all in-sync replicas have them."""
        rows = list(read_seed(seed))
        self._do(lambda cluster: _write(cluster, topic, rows), TIMEOUT_SECONDS)

    def records(self, topic: str, n: int | None = None, seconds: float = TIMEOUT_SECONDS) -> list[SeenRecord]:
        """Return the topic's first `n` records once they exist, or all present records: by partition, in the order of offsets.

        Records of open and of aborted transactions are left out. With `n` the topic need not exist yet.

        Raises:
            ClusterError: without `n`, there is no such topic.
            TimeoutError: there are fewer than `n` after that many seconds.
        """
        seen: list[SeenRecord] = []
        exists = False

        async def begin(cluster: ClusterClient) -> dict[int, int]:
            while True:
                try:
                    return await list_offsets(cluster, topic, EARLIEST)
                except ClusterError as missing:
                    if n is None or missing.code not in NO_SUCH_TOPIC:
                        raise
                await asyncio.sleep(POLL_SECONDS)

        async def read(cluster: ClusterClient) -> None:
            nonlocal exists
            begins = await begin(cluster)
            exists = True
            ends = None
            if n is None:
                ends = places_of(topic, await list_offsets(cluster, topic, LATEST, None, READ_COMMITTED))
            consumer = Consumer(cluster, places_of(topic, begins), ends, isolation_level=READ_COMMITTED)
            async for fetched in consumer.fetch():
                seen.extend(
                    SeenRecord(fetched.partition, row.offset, row.timestamp, row.key, row.value, tuple(row.headers))
                    for row in fetched.records
                )
                if n is not None and len(seen) >= n:
                    return

        try:
            self._do(read, seconds)
        except TimeoutError:
            has = f"has {len(seen)} records" if exists else "is no topic, and so has no records,"
            raise TimeoutError(f"{topic} {has} after {seconds} s, not {n}") from None
        seen.sort()
        return seen if n is None else seen[:n]

    def add_user(self, name: str, *allowed: str) -> dict[str, str]:
        """Make a user of a secure cluster, who may do only what is allowed: `add_user("alice", "write topic:orders", "read group:g")`.

        Return settings of confluent-kafka.

        Raises:
            Failure: `ottla acl add` would reject these words too.
            MadeOtherwise: the cluster is not secure.
        """
        raise NotImplementedError

    # -- What the cluster says ---------------------------------------------------------------------------------------

    def metadata(self, topics: Sequence[str] | None = None) -> MetadataResponse:
        return self._do(lambda cluster: cluster.metadata(topics), TIMEOUT_SECONDS)

    def leaders(self, topic: str) -> dict[int, int]:
        """Return the leader of each partition; -1 means none."""
        return {each.partition_index: each.leader_id for each in self.metadata([topic]).topics[0].partitions}

    def isr(self, topic: str) -> dict[int, list[int]]:
        """Return the in-sync replicas of each partition."""
        found = self.metadata([topic]).topics[0]
        return {each.partition_index: sorted(each.isr_nodes) for each in found.partitions}

    def wait_isr(self, topic: str, size: int | None = None, seconds: float = TIMEOUT_SECONDS) -> float:
        """Wait until every partition has `size` replicas in sync (all of them by default). Return the seconds it took.

        Raises:
            TimeoutError: it has the replicas that are in sync.
        """
        began = time.monotonic()
        while True:
            partitions = self._partitions(topic)
            if partitions and all(
                len(each.isr_nodes) >= (len(each.replica_nodes) if size is None else size) for each in partitions
            ):
                return time.monotonic() - began
            if time.monotonic() - began > seconds:
                seen = {each.partition_index: each.isr_nodes for each in partitions}
                raise TimeoutError(f"not all replicas of {topic} are in sync after {seconds} s: {seen}")
            time.sleep(POLL_SECONDS)

    def _partitions(self, topic: str) -> list[MetadataResponsePartition]:
        try:
            return list(self.metadata([topic]).topics[0].partitions)
        except ConnectionError:
            return []

    # -- Client libraries --------------------------------------------------------------------------------------------

    def producer(self, **settings: Any) -> confluent_kafka.Producer:
        """Return a producer of confluent-kafka. Its settings have underscores in place of dots: `linger_ms=5`."""
        return _confluent_kafka().Producer(self.client_settings | _dotted(settings))

    def consumer(self, *topics: str, **settings: Any) -> confluent_kafka.Consumer:
        """Return a consumer of confluent-kafka that has subscribed.

        It has its own group unless `group_id` is given, and reads from the beginning.
        """
        own = {"group.id": f"test-{uuid.uuid4().hex[:8]}", "auto.offset.reset": "earliest"}
        consumer = _confluent_kafka().Consumer(self.client_settings | own | _dotted(settings))
        if topics:
            consumer.subscribe(list(topics))
        return consumer

    def replay(
        self, recording: str | PathLike[str], *, speed: float = 0.0, seconds: float = REPLAY_SECONDS
    ) -> Replayed:
        """Send the requests of a recording of `ottla record` again, and compare the responses.

        Speed 0 means as fast as the responses come.

        Raises:
            TrafficFileError: the file is no recording, or is damaged.
            TimeoutError: it takes longer than the time limit.
        """
        # imported late: few tests replay a recording
        from ottla.traffic.entries import EntryReader
        from ottla.traffic.replay_report import ReplayReport
        from ottla.traffic.replay_target import replay_file

        said: list[str] = []
        report = ReplayReport(said.append)
        with open(recording, "rb") as file:
            reader = EntryReader(file.read, str(recording))
            self._do(lambda cluster: replay_file(cluster, reader, report, speed), seconds)
        return Replayed(tuple(said) if report.has_differences else (), report.rows(), report.summary())

    def _do(self, work: Callable[[ClusterClient], Awaitable[T]], seconds: float) -> T:
        """Run the coroutine on a thread, because a test may have its own event loop."""
        path = self._properties_file
        properties = {} if path is None else read_client_properties(path)
        timeout_ms = round(seconds * 1000)

        async def done() -> T:
            connection = open_cluster(self.bootstrap, properties, path, timeout_ms, limited=True, client_id=CLIENT_ID)
            async with connection as cluster:
                return await work(cluster)

        with ThreadPoolExecutor(1) as thread:
            try:
                return thread.submit(lambda: asyncio.run(done())).result()
            except TimeUp as up:
                raise TimeoutError(f"after {seconds} s: {up.doing}") from None


def _confluent_kafka() -> Any:
    """Return the module confluent_kafka. Raises ClientMissing if it is not installed."""
    try:
        import confluent_kafka
    except ModuleNotFoundError:
        raise ClientMissing(
            "the package confluent-kafka is not installed, whose producers and consumers tests use",
            f"{install('testing')} installs it (`write` and `records` need no client library)",
        ) from None
    return confluent_kafka


def read_seed(seed: Seed) -> Iterable[Incoming]:
    """
    Raises:
        ValueError: says which row is none, and why.
    """
    now_ms = time.time_ns() // 1_000_000
    rows: Iterable[Any] = seed if not isinstance(seed, str | PathLike) else Path(seed).read_text("utf-8").splitlines()
    place = "the seed" if rows is seed else str(seed)
    for number, row in enumerate(rows, 1):
        try:
            yield from_line(row, now_ms) if rows is not seed else _incoming(row, now_ms)
        except (ValueError, TypeError) as fault:
            raise ValueError(f"row {number} of {place}: {fault}") from None


def _incoming(row: Row, now_ms: int) -> Incoming:
    if isinstance(row, Mapping):
        return from_line(json.dumps(row), now_ms)
    key, value = row if isinstance(row, tuple) else (None, row)
    return Incoming(NewRecord(_encoded(key), _encoded(value), now_ms), None)


def _encoded(text: object) -> bytes | None:
    if text is None or isinstance(text, bytes):
        return text
    if isinstance(text, str):
        return text.encode()
    raise TypeError(f"bytes or str is wanted, not {type(text).__name__}")


async def _write(cluster: ClusterClient, topic: str, rows: Iterable[Incoming]) -> None:
    producer = ClusterProducer(cluster, topic)
    await producer.start()
    for row in rows:
        await producer.send(row.record, row.partition)
    await producer.flush()


def _dotted(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "."): value for name, value in settings.items()}
