"""Dead letters whose topic is led by another broker: the requests, the number of retries, and the reads for copies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.configs import BrokerConfigs
from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.replication.committed_write import CommittedWrites
from ottla.broker.replication.partition import Partition
from ottla.broker.share.dead_letter_queue import ATTEMPTS_MAX, COPY_BYTES_MAX, READ_BYTES, DeadLetterQueue
from ottla.broker.share.group_settings import ShareGroupSettings
from ottla.broker.share.in_flight import AcquiredBatch, RecordState, Run
from ottla.broker.share.share_partition import ShareSettings
from ottla.controller.metadata.image import MetadataDelta
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.metadata_records import ConfigRecord, PartitionRecord, TopicRecord
from ottla.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.protocol.records.batch import iter_batches
from ottla.protocol.records.record import Record
from ottla.server.clock import TimerWheel
from ottla.server.config.node_config import NodeConfig
from ottla.server.world import World
from ottla.storage.log.log import Log
from ottla.storage.log.truncate import truncate_to
from tests.broker.cluster.test_topic_creation import NODE
from tests.broker.groups.inline_work import InlineWorkers
from tests.broker.share.test_led_partition import Broker as Led

NONE = ErrorCode.NONE
QUEUE, QUEUE_ID = "dlq.t", b"queue".ljust(16, b"-")
#: The id of the broker that leads all partitions of the dead-letter topic.
ELSEWHERE = 2
TOPIC = 2


class Hurried:
    """A clock whose timers expire in the next turn. It keeps their delays."""

    def __init__(self) -> None:
        self.pauses_ms: list[float] = []

    def call_later(self, delay_ms: float, callback: Callable[[], object]) -> Any:
        self.pauses_ms.append(delay_ms)
        return asyncio.get_running_loop().call_soon(callback)

    def wall_ms(self) -> int:
        return 1_000

    def mono_ms(self) -> int:
        return 0


class Brokers:
    """The brokers of a test: this one with the records, the leader of the dead-letter topic, and the controller."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.clock = Hurried()
        self.metadata = MetadataCache(1, "cluster")
        #: The answers of the leader, in this order; after them it answers NONE.
        self.answers: list[ErrorCode] = []
        self.produced: list[tuple[int, ProduceRequest]] = []
        self.creations: list[CreateTopicsRequest] = []
        self.creation_error = NONE
        self.done = 0
        self.copies_records = False
        properties = NODE | {"errors.deadletterqueue.auto.create.topics.enable": "true"}
        self.tasks: list[Coroutine[Any, Any, Any]] = []
        world = World(self.clock, None, None, None, InlineWorkers(), lambda task, name: self.tasks.append(task))
        self.queue = DeadLetterQueue(
            world,
            BrokerConfigs(NodeConfig(properties)),
            self.metadata,
            Controller(self),
            CommittedWrites(world, self.metadata, None, self, TimerWheel(self.clock)),
        )

    def create_queue(self, partitions: int = 2) -> None:
        delta = MetadataDelta(self.metadata.image)
        delta.replay(TopicRecord(name=QUEUE, topic_id=QUEUE_ID))
        for index in range(partitions):
            delta.replay(
                PartitionRecord(
                    partition_id=index, topic_id=QUEUE_ID, replicas=[ELSEWHERE], isr=[ELSEWHERE], leader=ELSEWHERE
                )
            )
        for name, value in (("errors.deadletterqueue.group.enable", "true"), ("max.message.bytes", str(1 << 24))):
            delta.replay(ConfigRecord(resource_type=TOPIC, resource_name=QUEUE, name=name, value=value))
        self.metadata.image = delta.apply(1, 1)

    async def request(self, node_id: int, request: ProduceRequest) -> ProduceResponse:
        self.produced.append((node_id, request))
        code = self.answers.pop(0) if self.answers else NONE
        if code == ErrorCode.NETWORK_EXCEPTION:
            raise KafkaError(code)
        return ProduceResponse(
            responses=[TopicProduceResponse(partition_responses=[PartitionProduceResponse(error_code=code)])]
        )

    def settings(self) -> ShareGroupSettings:
        return ShareGroupSettings(ShareSettings(), False, "earliest", QUEUE, self.copies_records)

    def bury(self, first: int, last: int) -> None:
        """Write the dead letters of these offsets; return once all are done."""
        run = Run(first, last, RecordState.ARCHIVING, 1, AcquiredBatch(last - first + 1))
        self.queue.write("g", self.partition, [run], self.settings, self.count)
        (task,) = self.tasks
        asyncio.run(task)
        assert self.done == 1

    def count(self) -> None:
        self.done += 1

    def letters(self) -> list[list[Record]]:
        """Return the dead letters of each request."""
        return [
            [record for batch in iter_batches(bytes(request.topic_data[0].partition_data[0].records)) for record in batch.records()]
            for _, request in self.produced
        ]  # fmt: skip


class Controller:
    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    async def request(self, request: CreateTopicsRequest, timeout_ms: int) -> CreateTopicsResponse:
        self._brokers.creations.append(request)
        if not self._brokers.creation_error:
            self._brokers.create_queue()
        return CreateTopicsResponse(topics=[CreatableTopicResult(name=QUEUE, error_code=self._brokers.creation_error)])


@pytest.fixture
def led(tmp_path: Path) -> Iterator[Led]:
    made = Led(tmp_path)
    yield made
    made.log.close()


@pytest.fixture
def brokers(led: Led) -> Brokers:
    return Brokers(led.partition)


def test_letters_go_to_the_leader_of_their_partition_and_again_after_a_lost_connection(brokers: Brokers) -> None:
    brokers.create_queue()
    brokers.partition.index = 3
    brokers.answers = [ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_LEADER_OR_FOLLOWER]
    brokers.bury(5, 6)
    assert [node_id for node_id, _ in brokers.produced] == [ELSEWHERE] * 3
    request = brokers.produced[-1][1]
    (topic,) = request.topic_data
    assert (request.acks, topic.name, topic.topic_id, topic.partition_data[0].index) == (-1, QUEUE, QUEUE_ID, 1)
    assert [len(letters) for letters in brokers.letters()] == [2, 2, 2]
    assert brokers.queue.counts.dead_letters["g"] == 2
    assert brokers.queue.counts.dead_letter_requests["g"] == 3
    assert brokers.queue.counts.dead_letter_failures["g"] == 0


def test_letters_are_given_up_after_half_a_minute_of_attempts(brokers: Brokers) -> None:
    brokers.create_queue()
    brokers.answers = [ErrorCode.NOT_ENOUGH_REPLICAS] * 100
    brokers.bury(5, 5)
    assert len(brokers.produced) == ATTEMPTS_MAX
    assert 15_000 < sum(brokers.clock.pauses_ms) < 60_000
    assert brokers.queue.counts.dead_letter_failures["g"] == 1


def test_an_error_that_does_not_pass_ends_the_attempts(brokers: Brokers) -> None:
    brokers.create_queue()
    brokers.answers = [ErrorCode.MESSAGE_TOO_LARGE]
    brokers.bury(5, 5)
    assert len(brokers.produced) == 1
    assert brokers.queue.counts.dead_letter_failures["g"] == 1


def test_a_missing_topic_is_created_as_kafka_creates_it(brokers: Brokers) -> None:
    brokers.bury(5, 5)
    (request,) = brokers.creations
    (topic,) = request.topics
    assert (topic.name, topic.num_partitions, topic.replication_factor) == (QUEUE, -1, -1)
    assert {config.name: config.value for config in topic.configs} == {
        "errors.deadletterqueue.group.enable": "true",
        "message.timestamp.type": "CreateTime",
    }
    assert len(brokers.produced) == 1


def test_a_topic_that_the_controller_refuses_is_not_asked_for_again(brokers: Brokers) -> None:
    brokers.creation_error = ErrorCode.POLICY_VIOLATION
    brokers.bury(5, 5)
    assert len(brokers.creations) == 1 and not brokers.produced
    assert brokers.queue.counts.dead_letter_failures["g"] == 1


def test_what_is_read_for_the_copies_of_one_batch_is_bounded(led: Led, brokers: Brokers) -> None:
    brokers.create_queue()
    brokers.copies_records = True
    size = 4 * READ_BYTES
    count = 3 * COPY_BYTES_MAX // size
    for _ in range(count):
        led.produce(b"v" * size)
    brokers.bury(0, count)  # the last of these offsets is not in the log
    letters = brokers.letters()
    copied = [sum(len(letter.value or b"") for letter in each) for each in letters]
    assert len(letters) >= 3 and max(copied) <= COPY_BYTES_MAX
    values = [letter.value for each in letters for letter in each]
    assert [len(value or b"") for value in values] == [size] * count + [0]


class StoredReads:
    """Remote storage that has all that the log had; its first read finds the quota used up."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.asked: list[int] = []
        self.fault: KafkaError | None = None

    async def read(self, partition: Partition, own: Log, offset: int, max_bytes: int, *, read_committed: bool) -> Any:
        self.asked.append(offset)
        if self.fault is not None:
            raise self.fault
        return SimpleNamespace(records=self.data if len(self.asked) > 1 else b"", aborted=[])


@pytest.mark.parametrize("is_away", [False, True])
def test_a_record_that_is_in_remote_storage_alone_has_a_copy_if_the_store_answers(
    led: Led, brokers: Brokers, is_away: bool
) -> None:
    brokers.create_queue()
    brokers.copies_records = True
    for value in (b"old", b"new"):
        led.produce(value)
    stored = StoredReads(bytes(led.log.read(0, max_bytes=1 << 20).records))
    if is_away:
        stored.fault = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    brokers.queue.remote_reads = cast(Any, stored)
    led.log.local_start_offset = 1
    brokers.bury(0, 1)
    (letters,) = brokers.letters()
    assert [letter.value for letter in letters] == [None if is_away else b"old", b"new"]
    assert stored.asked == ([0] if is_away else [0, 0])


def test_letters_that_are_written_in_a_later_leader_epoch_have_no_copies_of_what_the_log_has_by_then(
    led: Led, brokers: Brokers
) -> None:
    """Before the fix an unclean election had put another record at the offset, and its value was written under the headers of
    the rejected record.
    """
    brokers.create_queue()
    brokers.copies_records = True
    led.produce(b"rejected")
    run = Run(0, 0, RecordState.ARCHIVING, 1, AcquiredBatch(1))
    brokers.queue.write("g", brokers.partition, [run], brokers.settings, brokers.count)
    truncate_to(led.log, 0)
    led.lead(led.partition.leader_epoch + 1)
    led.produce(b"another")
    (task,) = brokers.tasks
    asyncio.run(task)
    ((letter,),) = brokers.letters()
    assert letter.value is None and dict(letter.headers)["__dlq.errors.offset"] == b"0"
