"""Golden transcripts of a transaction coordinator and its producers (docs/dev/TESTS.md describes the language).

    config NAME=VALUE                          a new coordinator
    init a [id=x] [timeout=60000] [resume]     a producer called a asks for its id; `resume` names the one it has
    add a t-0 t-1 [v0]                         partitions join its transaction; without v0 as a broker adds them
    verify a t-0 t-1
    end a commit|abort [v0] [epoch=-1]         v0: a client before version 2; epoch: added to the one it has
    wait 10000 · restart · hold · release      milliseconds; a new coordinator; commits of the log
    refuse NOT_ENOUGH_REPLICAS · accept        the log's next appends
    marker t-0 NOT_LEADER_OR_FOLLOWER|later|NONE    how the partition takes markers from now on
    leader t-0 2 · leader t-0 -1 · gone t-0    another broker leads, none does, the partition is deleted
    exhaust x                                  the producer has one epoch left
    describe x · list [state=Ongoing]

The output: the answer, the markers that were sent, the records that were written.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.broker.transactions.transaction import TransactionRecordCodec, TransactionState, from_record
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.list_transactions import ListTransactionsRequest
from ottla.server.network.context import Reply
from tests import transcripts
from tests.broker.transactions.harness import (
    TP,
    TransactionalProducer,
    TransactionCoordinatorHarness,
    parse,
    said,
    text,
)

TRANSCRIPTS = transcripts.beside(__file__)


class TransactionTranscript:
    """A harness, and its producers by name."""

    def __init__(self) -> None:
        self.harness = TransactionCoordinatorHarness()
        self.producers: dict[str, TransactionalProducer] = {}
        self._seen = 0
        self.commands: dict[str, transcripts.Command] = {
            "config": self.config,
            "init": self.init,
            "add": self.add,
            "verify": self.verify,
            "end": self.end,
            "wait": self.wait,
            "restart": self.restart,
            "hold": self.hold,
            "release": self.release,
            "refuse": self.refuse,
            "accept": self.accept,
            "marker": self.marker,
            "leader": self.leader,
            "gone": self.gone,
            "exhaust": self.exhaust,
            "describe": self.describe,
            "list": self.list,
        }

    def drain(self) -> list[str]:
        printed = [*self.harness.printed, *self._new_records()]
        self.harness.printed.clear()
        return printed

    def _new_records(self) -> list[str]:
        lines = []
        for offset, key, value in self.harness.records(self._seen):
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

    def config(self, **config: str) -> None:
        self.harness = TransactionCoordinatorHarness(**{name: int(value) for name, value in config.items()})

    def init(self, name: str, *flags: str, id: str = "x", timeout: str = "60000") -> list[str]:
        producer = self.producers.setdefault(name, TransactionalProducer(self.harness, id))
        return [said(producer.init(timeout=int(timeout), resume="resume" in flags))]

    def add(self, name: str, *words: str) -> list[str]:
        partitions = [word for word in words if word != "v0"]
        return [said(self.producers[name].add(*partitions, version=0 if "v0" in words else 2))]

    def verify(self, name: str, *partitions: str) -> list[str]:
        return [said(self.producers[name].verify(*partitions))]

    def end(self, name: str, outcome: str, *flags: str, epoch: str = "0") -> list[str]:
        version = 0 if "v0" in flags else 2
        return [said(self.producers[name].end(outcome == "commit", version=version, epoch=int(epoch)))]

    def wait(self, ms: str) -> None:
        self.harness.clock.advance(int(ms))

    def restart(self) -> None:
        self.harness.restart()

    def hold(self) -> None:
        self.harness.log.hold = True

    def release(self) -> None:
        self.harness.log.hold = False
        self.harness.log.release(TP)

    def refuse(self, error: str) -> None:
        self.harness.log.refuse = KafkaError(ErrorCode[error])

    def accept(self) -> None:
        self.harness.log.refuse = None

    def marker(self, partition: str, behaviour: str) -> None:
        self.harness.marker_behaviour(partition, behaviour)

    def leader(self, partition: str, node_id: str) -> None:
        self.harness.leaders[parse(partition)] = int(node_id)

    def gone(self, partition: str) -> None:
        self.harness.gone.add(parse(partition))

    def exhaust(self, transactional_id: str) -> None:
        """Set the epoch of a producer to the last but one, as if it had ended many transactions."""
        shard = self.harness.shard
        transaction = shard.transactions[transactional_id].to(
            TransactionState.EMPTY, self.harness.clock.wall_ms(), producer_epoch=32_765
        )
        key, value = transaction.record()
        _, encoded = TransactionRecordCodec(lambda: 2).encode(key, value)
        assert encoded is not None
        for batch, _ in TransactionRecordCodec(lambda: 2).batches([(key, value)], self.harness.clock.wall_ms(), None):
            self.harness.log.append(TP, batch)
        self.harness.restart()

    def describe(self, transactional_id: str) -> list[str]:
        (found,) = self.harness.coordinator.describe([transactional_id])
        if found.error_code:
            return [ErrorCode(found.error_code).name]
        partitions = " ".join(f"{topic.topic}-{index}" for topic in found.topics for index in topic.partitions)
        return [f"{found.transaction_state} {found.producer_id}/{found.producer_epoch} [{partitions}]"]

    def list(self, state: str = "") -> list[str]:
        request = ListTransactionsRequest(state_filters=[state] if state else [])
        listed = self.harness.coordinator.list(request)
        assert not isinstance(listed, Reply)
        if listed.error_code:
            return [ErrorCode(listed.error_code).name]
        return [" ".join(f"{t.transactional_id}={t.transaction_state}" for t in listed.transaction_states) or "none"]


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    transcript = TransactionTranscript()
    transcripts.check(path, transcripts.Interpreter(transcript.commands, transcript.drain))


def test_there_are_transcripts() -> None:
    assert len(TRANSCRIPTS) >= 15
