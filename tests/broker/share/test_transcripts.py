"""Golden transcripts of share sessions and acknowledgements at one leader (docs/dev/TESTS.md describes the language).

    settings lock=1000 limit=5 locks=2000 committed=1 renew=0      of the group; times in milliseconds
    produce 3                           one batch of so many records; with txn=1 one of a transaction
    end commit|abort                    the transaction's marker
    fetch a [epoch= max= wait= min= strict=1 accept=0-3,7 release= reject= gap= renew=]
    ack a [epoch= accept=0-3,7 release= reject= gap= renew= unsorted=1]
    state                               the records in flight, and where the next fetch would begin
    wait MS · hold · let-go             milliseconds; writes to the share coordinator wait
    fail ERROR · heal                   they fail
    disconnect a                        the member's connection is closed
    move                                another broker leads; then this one does again, and loads what was written
    written                             the state that the share coordinator has

A member has one connection, and counts the epochs of its session; `epoch=` is what it says instead. An answer that comes later stands
below the command that brought it. `0-3x2` are records with their delivery count.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.api import share_acknowledge as acknowledge_handler
from ottla.broker.api import share_fetch as fetch_handler
from ottla.broker.configs import BrokerConfigs
from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.share.counts import ShareCounts
from ottla.broker.share.group_settings import ShareGroupSettings
from ottla.broker.share.in_flight import RecordState
from ottla.broker.share.leaders import ShareLeaders
from ottla.broker.share.share_partition import ShareSettings
from ottla.broker.share.share_session import TopicIdPartition
from ottla.broker.share.share_state import SharePartitionKey
from ottla.controller.metadata.image import EMPTY, MetadataDelta
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.features import SHARE_VERSION
from ottla.protocol.internal_topics.metadata_records import FeatureLevelRecord, PartitionRecord, TopicRecord
from ottla.protocol.messages import share_acknowledge, share_fetch
from ottla.protocol.messages.shared_structs import AcknowledgementBatch, AcknowledgePartition, AcknowledgeTopic
from ottla.protocol.records.control import end_txn_batch
from ottla.server.authorization.authorizer import AllowAll
from ottla.server.clock import TimerWheel
from ottla.server.config.node_config import NodeConfig
from ottla.server.network.context import Reply
from ottla.storage.directories.recovery import open_log
from ottla.storage.files import Mappings, OsFiles
from ottla.storage.log.log import Origin
from ottla.storage.log.partition_dir import LogSpec
from ottla.storage.log_config import LogConfig
from tests import transcripts
from tests.broker.cluster.test_topic_creation import NODE
from tests.broker.records import batch
from tests.broker.replication.made_partition import made_partition
from tests.broker.replication.test_partition import NOW_MS, TOPIC_ID, Flushes
from tests.broker.share.memory_persister import MemoryPersister
from tests.manual_clock import ManualClock

TRANSCRIPTS = transcripts.beside(__file__)
AT = TopicIdPartition(TOPIC_ID, 0)
KEY = SharePartitionKey("g", *AT)
KINDS = {"gap": 0, "accept": 1, "release": 2, "reject": 3, "renew": 4}
PRODUCER_ID = 7


class Connection:
    """A `Peer` with the fields that share sessions use."""

    def __init__(self, name: str) -> None:
        self.id = name
        self.listener_name = "PLAINTEXT"
        self.principal = SimpleNamespace(name="ANONYMOUS")
        self._callbacks: list[Callable[[], None]] = []

    def on_close(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    def disconnect(self) -> None:
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()


class ShareTranscript:
    """The handlers of a broker that leads one partition, and its members by name."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.persister = MemoryPersister(self.clock)
        self.settings = ShareGroupSettings(ShareSettings(lock_duration_ms=1000), False, "earliest")
        wheel = TimerWheel(self.clock)
        metadata = MetadataCache(1, "cluster")
        metadata.image = image()
        replicas: Any = SimpleNamespace(listeners=[], lookup=lambda topic, topic_id, index: self.partition)
        world: Any = SimpleNamespace(clock=self.clock, session_clock=self.clock)
        work: Any = None  # for searches by time, which no transcript has
        dead_letters: Any = SimpleNamespace(counts=ShareCounts())  # no group of a transcript has dead letters
        self.leaders = ShareLeaders(
            world, BrokerConfigs(NodeConfig(NODE)), metadata, replicas, self.persister, wheel, work, dead_letters
        )
        self.leaders.settings_of = lambda group_id: self.settings
        self.partition = made_partition(1, "t", 0, TOPIC_ID, self.leaders.wakeups, Flushes(), 30_000)
        self.log = open_log(
            LogSpec(OsFiles(), Mappings(), str(folder / "t-0"), "t", 0, TOPIC_ID, LogConfig()), clean=True
        )
        self._lead(1)
        self.broker: Any = SimpleNamespace(
            metadata=metadata,
            share_leaders=self.leaders,
            quotas=SimpleNamespace(active=False),
            authorizer=AllowAll(),
            wheel=wheel,
            fetch_max_bytes=1 << 20,
        )
        self.connections: dict[str, Connection] = {}
        self.epochs: dict[str, int] = {}
        self.printed: list[str] = []
        self._load()
        self.commands: dict[str, transcripts.Command] = {
            "settings": self.set,
            "produce": self.produce,
            "end": self.end,
            "fetch": self.fetch,
            "ack": self.ack,
            "state": self.state,
            "wait": lambda ms: self.clock.advance(int(ms)),
            "hold": partial(setattr, self.persister, "is_held", True),
            "let-go": self.persister.let_go,
            "fail": lambda name: setattr(self.persister, "error", KafkaError(ErrorCode[name])),
            "heal": partial(setattr, self.persister, "error", None),
            "disconnect": lambda name: self.connections.pop(name).disconnect(),
            "move": self.move,
            "written": self.written,
        }

    def drain(self) -> list[str]:
        self.clock.advance(0)
        printed, self.printed = self.printed, []
        return printed

    def _lead(self, epoch: int) -> None:
        self.partition.become_leader(self.log, epoch, epoch, [1], [1], 0)
        self.log.producers.requires_verification = False

    def _load(self) -> None:
        """Load the state, as the first fetch does. That fetch would have to wait for it."""
        context: Any = None
        self.leaders.load("g", "t", AT, context)
        self.clock.advance(0)

    def set(self, **values: str) -> None:
        names = {
            "lock": "lock_duration_ms",
            "limit": "delivery_count_limit",
            "locks": "max_record_locks",
            "renew": "renew_enabled",
        }
        changed = {names[name]: int(value) for name, value in values.items() if name in names}
        self.settings = self.settings._replace(
            partition=self.settings.partition._replace(**changed), read_committed=values.get("committed") == "1"
        )

    # -- The log -----------------------------------------------------------------------------------------------------

    def produce(self, count: str, txn: str = "") -> None:
        first = self.log.log_end_offset
        values = [b"%d" % (first + index) for index in range(int(count))]
        options = {"producer_id": PRODUCER_ID, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
        self.partition.append(memoryview(batch(values, **(options if txn else {}))), -1, NOW_MS)

    def end(self, outcome: str) -> None:
        marker = end_txn_batch(
            committed=outcome == "commit",
            producer_id=PRODUCER_ID,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp=NOW_MS,
        )
        self.partition.append(memoryview(marker), -1, NOW_MS, Origin.COORDINATOR)

    # -- Members -----------------------------------------------------------------------------------------------------

    def fetch(
        self,
        name: str,
        epoch: str = "",
        max: str = "500",
        wait: str = "0",
        min: str = "1",
        strict: str = "0",
        **kinds: str,
    ) -> None:
        batches = [AcknowledgementBatch(*each) for each in batches_of(kinds)]
        says = self._epoch(name, epoch)
        topics = [AcknowledgeTopic(TOPIC_ID, [AcknowledgePartition(0, batches)])] if batches or not says else []
        is_renew = "renew" in kinds
        request = share_fetch.ShareFetchRequest(
            group_id="g",
            member_id=name,
            share_session_epoch=says,
            max_wait_ms=0 if is_renew else int(wait),
            min_bytes=0 if is_renew else int(min),
            max_bytes=0 if is_renew else 1 << 20,
            max_records=0 if is_renew else int(max),
            batch_size=500,
            share_acquire_mode=int(strict),
            is_renew_ack=is_renew,
            topics=topics,
        )
        self._send(name, "fetch", fetch_handler.handle, request)

    def ack(self, name: str, epoch: str = "", **kinds: str) -> None:
        batches = [AcknowledgementBatch(*each) for each in batches_of(kinds)]
        partitions = [AcknowledgePartition(0, batches)]
        request = share_acknowledge.ShareAcknowledgeRequest(
            group_id="g",
            member_id=name,
            share_session_epoch=self._epoch(name, epoch),
            is_renew_ack="renew" in kinds,
            topics=[AcknowledgeTopic(TOPIC_ID, partitions)] if batches else [],
        )
        self._send(name, "ack", acknowledge_handler.share_acknowledge, request)

    def _epoch(self, name: str, said: str) -> int:
        if said:
            return int(said)
        epoch = self.epochs.get(name, 0)
        self.epochs[name] = epoch + 1
        return epoch

    def _send(self, name: str, verb: str, handle: Any, request: Any) -> None:
        connection = self.connections.setdefault(name, Connection(name))
        context: Any = SimpleNamespace(connection=connection, api_version=2, client_id=name)

        def completed(outcome: Any) -> None:
            self.printed.append(f"{name} {verb}: {described(outcome)}")

        try:
            answer = handle(self.broker, request, context)
        except KafkaError as error:
            completed(error)
            return
        if isinstance(answer, Reply):
            answer.when_done(completed)
            self.clock.advance(0)
            if not answer.done:
                self.printed.append(f"{name} {verb}: waits")
        else:
            completed(answer)

    # -- The leader --------------------------------------------------------------------------------------------------

    def state(self) -> list[str]:
        state = self.leaders.find("g", AT).state
        return [
            f"start {state.start_offset}, next {state.next_fetch_offset}, end {state.in_flight.end}",
            *(f"  {run}" for run in state.in_flight.runs),
        ]

    def move(self) -> None:
        self.leaders.on_resigned(self.partition)
        self._lead(self.partition.leader_epoch + 1)
        self._load()

    def written(self) -> list[str]:
        lines = [f"start {self.persister.starts.get(KEY, -1)}"]
        for offset, (state, count) in sorted(self.persister.batches.get(KEY, {}).items()):
            lines.append(f"  {offset} {RecordState(state).name} x{count}")
        return lines


def image() -> Any:
    delta = MetadataDelta(EMPTY)
    delta.replay(FeatureLevelRecord(name=SHARE_VERSION, feature_level=1))
    delta.replay(TopicRecord(name="t", topic_id=TOPIC_ID))
    delta.replay(
        PartitionRecord(0, TOPIC_ID, [1], [1], leader=1, leader_epoch=1, partition_epoch=0, directories=[bytes(16)])
    )
    return delta.apply(1, 1)


def batches_of(kinds: dict[str, str]) -> list[tuple[int, int, list[int]]]:
    """Return the batches that words such as `0-3` stand for, each with one type. They are in the order of offsets, unless the
    command has `unsorted=1`.
    """
    is_sorted = not kinds.pop("unsorted", "")
    batches = []
    for name, spans in kinds.items():
        for span in spans.split(","):
            first, _, last = span.partition("-")
            batches.append((int(first), int(last or first), [KINDS[name]]))
    return sorted(batches) if is_sorted else batches


def described(outcome: Any) -> str:
    if isinstance(outcome, KafkaError):
        return f"{outcome.code.name} {outcome.message}".rstrip()
    rows = [row for topic in outcome.responses for row in topic.partitions]
    if not rows:
        return "nothing"
    [row] = rows
    parts = []
    if isinstance(row, share_fetch.PartitionData):
        parts += [f"{a.first_offset}-{a.last_offset}x{a.delivery_count}" for a in row.acquired_records]
        parts += [f"acknowledged: {_error(row.acknowledge_error_code, row.acknowledge_error_message)}"]
    return " ".join([_error(row.error_code, row.error_message), *parts])


def _error(code: int, message: str | None) -> str:
    return f"{ErrorCode(code).name} {message or ''}".rstrip()


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_share_transcript(path: Path, tmp_path: Path) -> None:
    played = ShareTranscript(tmp_path)
    transcripts.check(path, transcripts.Interpreter(played.commands, played.drain))
    played.log.close()
