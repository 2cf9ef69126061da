"""A transaction coordinator on a log in memory, partitions that take markers, and producers; time passes only when told to.

`Lab` is for tests in Python. `play` runs a script of commands and gives the transcript: commands as they were, and below
each, indented, what came of it. The files in transcripts/ are such scripts together with what they print.

    init a [id=x] [timeout=60000] [resume]     a producer called a asks for its id; `resume` names the one it has
    add a t-0 t-1 [v0]                         partitions join its transaction; without v0 as a broker adds them
    verify a t-0 t-1
    end a commit|abort [v0] [epoch=-1]         v0: a client before version 2; epoch: added to the one it has
    wait 10000 · restart · hold · release      milliseconds; a new coordinator; commits of the log
    refuse NOT_ENOUGH_REPLICAS · accept        the log's next appends
    marker t-0 NOT_LEADER_OR_FOLLOWER|later|NONE    how the partition takes markers from now on; later: until told otherwise
    leader t-0 2 · leader t-0 -1 · gone t-0    another broker leads, nobody does, the partition is deleted
    describe x · list [state=Ongoing]
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ottla.broker.coordinator.partition_log import TopicPartition
from ottla.broker.transactions.config import TransactionConfig
from ottla.broker.transactions.markers import MarkerRoutes
from ottla.broker.transactions.records import TransactionRecordCodec
from ottla.broker.transactions.service import TOPIC, TransactionCoordinator
from ottla.broker.transactions.shard import TransactionShard
from ottla.broker.transactions.state import State
from ottla.broker.transactions.transaction import from_record
from ottla.broker.transactions.write_markers import Results
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.list_transactions import ListTransactionsRequest
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.protocol.records.batch import BatchView
from ottla.server.network.reply import Reply
from tests.broker.coordinator.memory_log import ManualClock, MemoryLog

TP = (TOPIC, 0)
HERE = 1
PARKED = "parked"


def parse(partition: str) -> TopicPartition:
    topic, _, index = partition.rpartition("-")
    return topic, int(index)


def text(tp: TopicPartition) -> str:
    return f"{tp[0]}-{tp[1]}"


class ProducerIds:
    """From 100 on, at once unless `hold` is set."""

    def __init__(self) -> None:
        self.next = 100
        self.hold = False
        self.waiting: list[Callable[[int, ErrorCode], None]] = []

    def take(self, receive: Callable[[int, ErrorCode], None]) -> None:
        if self.hold:
            self.waiting.append(receive)
            return
        self.next += 1
        receive(self.next - 1, ErrorCode.NONE)


class Lab:
    """One partition of `__transaction_state`, led by broker 1."""

    def __init__(self, *, transaction_version: int = 2, **config: Any) -> None:
        self.clock = ManualClock()
        self.log = MemoryLog()
        self.config = TransactionConfig(**config)
        self.transaction_version = transaction_version
        self.producer_ids = ProducerIds()
        self.epoch = 0
        self.printed: list[str] = []
        # Where markers went: (partition, producer id, epoch, commit?)
        self.markers: list[tuple[TopicPartition, int, int, bool]] = []
        self.leaders: dict[TopicPartition, int] = {}
        self.gone: set[TopicPartition] = set()
        self.takes: dict[TopicPartition, str] = {}
        self._late: list[tuple[TopicPartition, Callable[[], None]]] = []
        self.coordinator = self._coordinator()
        self.elect()

    def _coordinator(self) -> TransactionCoordinator:
        routes = MarkerRoutes(HERE, self._leader_of, self._write_here, self._send, self._spawn, self.clock)
        return TransactionCoordinator(
            self.config, self.log, routes, self.producer_ids, lambda: 1, lambda: self.transaction_version
        )

    def elect(self) -> None:
        self.epoch += 1
        self.coordinator.on_elected(0, self.epoch)

    def restart(self) -> None:
        """Another broker takes over: everything but the log is gone."""
        self.coordinator.close()
        self.coordinator = self._coordinator()
        self.elect()

    @property
    def shard(self) -> TransactionShard:
        return self.coordinator.runtime.shard(0)

    def records(self, start: int = 0) -> list[tuple[int, Any, Any]]:
        """(offset, key, value) of everything in the log."""
        codec = TransactionRecordCodec(lambda: self.transaction_version)
        found = []
        for batch in self.log.batches.get(TP, ()):
            for record in BatchView(memoryview(batch)).records():
                if record.offset >= start:
                    decoded = codec.decode(record.key or b"", record.value)
                    assert decoded is not None
                    found.append((record.offset, *decoded))
        return found

    # ---- the way of markers

    def _leader_of(self, tp: TopicPartition) -> int | None:
        return None if tp in self.gone else self.leaders.get(tp, HERE)

    def _write_here(self, marker: WritableTxnMarker, done: Callable[[Results], None]) -> None:
        partitions = [(topic.name, index) for topic in marker.topics for index in topic.partition_indexes]
        late = [tp for tp in partitions if self.takes.get(tp) == "later"]
        if late:  # looked at again then: another partition of the request may be late, too
            self._late.append((late[0], lambda: self._write_here(marker, done)))
        else:
            done({tp: self._take(tp, marker) for tp in partitions})

    def _take(self, tp: TopicPartition, marker: WritableTxnMarker) -> ErrorCode:
        error = ErrorCode[self.takes.get(tp, "NONE")]
        result = "commit" if marker.transaction_result else "abort"
        self.printed.append(
            f"marker {text(tp)} {result} {marker.producer_id}/{marker.producer_epoch} by {marker.coordinator_epoch}"
            f" v{marker.transaction_version}" + (f" {error.name}" if error else "")
        )
        if not error:
            self.markers.append((tp, marker.producer_id, marker.producer_epoch, marker.transaction_result))
        return error

    async def _send(self, node_id: int, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        (marker,) = request.markers
        self.printed.append(f"to broker {node_id}:")
        if node_id == 9:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "unreachable")
        topics = [
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    WritableTxnMarkerPartitionResult(index, self._take((topic.name, index), marker))
                    for index in topic.partition_indexes
                ],
            )
            for topic in marker.topics
        ]
        return WriteTxnMarkersResponse(markers=[WritableTxnMarkerResult(marker.producer_id, topics)])

    def _spawn(self, coroutine: Any, name: str) -> None:
        # Nothing in it waits: the other broker answers at once.
        asyncio.run(coroutine)

    def marker_behaviour(self, partition: str, behaviour: str) -> None:
        tp = parse(partition)
        self.takes[tp] = behaviour
        if behaviour != "later":
            due = [answer for late, answer in self._late if late == tp]
            self._late = [entry for entry in self._late if entry[0] != tp]
            for answer in due:
                answer()


class LabProducer:
    """Remembers what a producer remembers: its id and epoch."""

    def __init__(self, lab: Lab, transactional_id: str = "x") -> None:
        self.lab = lab
        self.transactional_id = transactional_id
        self.producer_id = -1
        self.epoch = -1
        # Receives the answer to the next request, now or later.
        self.then: Callable[[Any], None] | None = None

    def init(self, *, timeout: int = 60_000, resume: bool = False) -> Any:
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=timeout)
        if resume:
            request.producer_id, request.producer_epoch = self.producer_id, self.epoch
        return self._receive(self.lab.coordinator.init_producer_id(request), self._learn)

    def add(self, *partitions: str, version: int = 2) -> Any:
        added = frozenset(map(parse, partitions))
        return self._receive(
            self.lab.coordinator.add_partitions(self.transactional_id, self.producer_id, self.epoch, added, version)
        )

    def verify(self, *partitions: str) -> Any:
        asked = frozenset(map(parse, partitions))
        return self._receive(
            self.lab.coordinator.verify_partitions(self.transactional_id, self.producer_id, self.epoch, asked)
        )

    def end(self, commit: bool, *, version: int = 2, epoch: int = 0) -> Any:
        request = EndTxnRequest(self.transactional_id, self.producer_id, self.epoch + epoch, commit)
        return self._receive(self.lab.coordinator.end(request, 5 if version == 2 else 4), self._learn)

    def _learn(self, response: Any) -> None:
        if not response.error_code and response.producer_id >= 0:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch

    def _receive(self, answer: Any, learn: Callable[[Any], None] | None = None) -> Any:
        """The answer, or PARKED: then it is printed when it comes."""
        arrived: list[Any] = []
        then, self.then = self.then, None

        def receive(response: Any) -> None:
            if learn is not None:
                learn(response)
            if arrived:
                self.lab.printed.append(f"then: {said(response)}")
            arrived.append(response)
            if then is not None:
                then(response)

        if type(answer) is not Reply:
            receive(answer)
            return answer
        if answer.done:
            answer.when_done(receive)
            return arrived[0]
        arrived.append(PARKED)
        answer.when_done(receive)
        return PARKED


def said(response: Any) -> str:
    if isinstance(response, str):
        return response
    if isinstance(response, ErrorCode):
        return response.name
    if isinstance(response, dict):
        return " ".join(f"{text(tp)}={error.name}" for tp, error in sorted(response.items()))
    code = ErrorCode(response.error_code).name
    return f"{code} {response.producer_id}/{response.producer_epoch}" if response.producer_id >= 0 else code


# ---- transcripts


class Player:
    """The commands of a script."""

    def __init__(self, **config: Any) -> None:
        self.lab = Lab(**config)
        self.producers: dict[str, LabProducer] = {}
        self._seen = 0

    def run(self, line: str) -> list[str]:
        words = line.split()
        plain = [word for word in words[1:] if "=" not in word]
        options = dict(word.split("=", 1) for word in words[1:] if "=" in word)
        self.lab.printed.clear()
        answer = getattr(self, f"do_{words[0]}")(*plain, **options)
        lines = [] if answer is None else [said(answer)]
        return lines + self.lab.printed + self._new_records()

    def _new_records(self) -> list[str]:
        lines = []
        for offset, key, value in self.lab.records(self._seen):
            self._seen = offset + 1
            if value is None:
                lines.append(f"log {key.transactional_id} tombstone")
                continue
            t = from_record(key, value)
            producer = f"{t.producer_id}/{t.producer_epoch}"
            more = f" next {t.next_producer_id}" if t.next_producer_id >= 0 else ""
            partitions = " ".join(map(text, sorted(t.partitions)))
            lines.append(f"log {t.transactional_id} {t.state.kafka_name} {producer}{more} [{partitions}]")
        return lines

    def do_init(self, name: str, *flags: str, id: str = "x", timeout: str = "60000") -> Any:
        producer = self.producers.setdefault(name, LabProducer(self.lab, id))
        return producer.init(timeout=int(timeout), resume="resume" in flags)

    def do_add(self, name: str, *words: str) -> Any:
        return self.producers[name].add(*[w for w in words if w != "v0"], version=0 if "v0" in words else 2)

    def do_verify(self, name: str, *partitions: str) -> Any:
        return self.producers[name].verify(*partitions)

    def do_end(self, name: str, outcome: str, *flags: str, epoch: str = "0") -> Any:
        return self.producers[name].end(outcome == "commit", version=0 if "v0" in flags else 2, epoch=int(epoch))

    def do_wait(self, ms: str) -> None:
        self.lab.clock.advance(int(ms))

    def do_restart(self) -> None:
        self.lab.restart()

    def do_hold(self) -> None:
        self.lab.log.hold = True

    def do_release(self) -> None:
        self.lab.log.hold = False
        self.lab.log.release(TP)

    def do_refuse(self, error: str) -> None:
        self.lab.log.refuse = KafkaError(ErrorCode[error])

    def do_accept(self) -> None:
        self.lab.log.refuse = None

    def do_marker(self, partition: str, behaviour: str) -> None:
        self.lab.marker_behaviour(partition, behaviour)

    def do_leader(self, partition: str, node_id: str) -> None:
        self.lab.leaders[parse(partition)] = int(node_id)

    def do_gone(self, partition: str) -> None:
        self.lab.gone.add(parse(partition))

    def do_exhaust(self, transactional_id: str) -> None:
        """As if the producer had ended transactions until one epoch is left."""
        shard = self.lab.shard
        transaction = shard.transactions[transactional_id].to(
            State.EMPTY, self.lab.clock.wall_ms(), producer_epoch=32_765
        )
        key, value = transaction.record()
        _, encoded = TransactionRecordCodec(lambda: 2).encode(key, value)
        assert encoded is not None
        from ottla.broker.coordinator import batches

        for batch, _ in batches.build(
            TransactionRecordCodec(lambda: 2), [(key, value)], self.lab.clock.wall_ms(), None
        ):
            self.lab.log.append(TP, batch)
        self.lab.restart()

    def do_describe(self, transactional_id: str) -> str:
        (found,) = self.lab.coordinator.describe([transactional_id])
        if found.error_code:
            return ErrorCode(found.error_code).name
        partitions = " ".join(f"{topic.topic}-{index}" for topic in found.topics for index in topic.partitions)
        return f"{found.transaction_state} {found.producer_id}/{found.producer_epoch} [{partitions}]"

    def do_list(self, **options: str) -> str:
        request = ListTransactionsRequest(state_filters=[options["state"]] if "state" in options else [])
        listed = self.lab.coordinator.list(request)
        assert not isinstance(listed, Reply)
        if listed.error_code:
            return ErrorCode(listed.error_code).name
        return " ".join(f"{t.transactional_id}={t.transaction_state}" for t in listed.transaction_states) or "none"


def play(script: str) -> str:
    """The script with what it prints; lines that start with # or are empty stay, indented ones are made anew."""
    lines = script.splitlines()
    config: dict[str, Any] = {}
    out = []
    player: Player | None = None
    for line in lines:
        if line.startswith(" "):
            continue
        out.append(line)
        if not line or line.startswith("#"):
            continue
        if line.startswith("config "):
            config.update((name, int(value)) for name, value in (word.split("=") for word in line.split()[1:]))
            continue
        if player is None:
            player = Player(**config)
        out.extend(f"    {printed}" for printed in player.run(line))
    return "\n".join(out) + "\n"
