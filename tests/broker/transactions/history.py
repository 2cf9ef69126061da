"""Random histories of transactional ids on a coordinator whose log is in memory, checked against the invariants by their
numbers.

Several producers fight for one id; another one is alone with its own, knows transaction version 2, and does what clients do.
Markers are late or refused, the log refuses or does not commit, the coordinator moves with the whole log or without its
uncommitted tail, epochs run out. 21 stands for memory that differs from the log.
"""

from __future__ import annotations

import random
from typing import Any

from ottla.broker.transactions.transaction import (
    COMPLETION,
    IDLE,
    PREPARED,
    Transaction,
    TransactionRecordCodec,
    TransactionState,
    from_record,
)
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.broker.transactions.harness import TP, TransactionalProducer, TransactionCoordinatorHarness, parse
from tests.broker.transactions.replayed import compacted, replayed
from tests.histories import Violation, draw

PARTITIONS = ("t-0", "t-1", "u-0")
TIMEOUT_MS = 60_000
#: The errors after which a client of version 2 retries.
RETRIABLE = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
#: The errors after a time-out of its transaction: the coordinator has raised the epoch of the id.
FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})


class Lone:
    """A producer that is alone with its id: it must be able to go on after each response that it gets (34).

    It has one request at a time, which it retries until the response is final.
    """

    def __init__(self, history: History) -> None:
        self.history = history
        self.harness, self.rng = history.harness, history.rng
        self.producer = TransactionalProducer(self.harness, "lone")
        self.is_waiting = False
        self.attempt: tuple[str, Any] | None = None
        # The begin of the transaction: the coordinator may abort it after its time-out.
        self.began_ms = 0
        self.partitions: set[str] = set()

    def step(self) -> None:
        if self.is_waiting:
            return
        if self.attempt is None:
            self.attempt = self._next()
        what, detail = self.attempt
        self.is_waiting = True
        producer = self.producer
        before = (producer.producer_id, producer.epoch)
        producer.then = lambda response: self._answered(what, detail, before, response)
        if what == "init":
            producer.init(timeout=TIMEOUT_MS)
        elif what == "add":
            producer.add(detail)
        else:
            producer.end(detail)

    def _next(self) -> tuple[str, Any]:
        if self.producer.producer_id < 0:
            return "init", None
        if not self.partitions:
            self.began_ms = self.harness.clock.now_ms
            if self.rng.random() < 0.15:
                return "end", False  # like clients that were rejected before they could add a partition
            return "add", self.rng.choice(PARTITIONS)
        if self.rng.random() < 0.5:
            return "end", self.rng.random() < 0.7
        return "add", self.rng.choice(PARTITIONS)

    def _answered(self, what: str, detail: Any, before: tuple[int, int], response: Any) -> None:
        self.is_waiting = False
        code = ErrorCode(response if isinstance(response, int) else response.error_code)
        if code in RETRIABLE:
            return
        self.attempt = None
        if code is ErrorCode.NONE:
            if what == "add":
                self.partitions.add(detail)
            elif what == "end":
                self.history.ended(before, detail, {parse(partition) for partition in self.partitions})
                self.partitions.clear()
            else:
                self.partitions.clear()
            return
        has_run_out = self.harness.clock.now_ms - self.began_ms >= TIMEOUT_MS
        if code not in FENCED or what == "init" or not has_run_out:
            raise Violation("34", f"a producer that is alone is answered {code.name} to {what} {detail}")
        self.producer.producer_id = -1
        self.partitions.clear()


class History:
    """The history of one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.harness = TransactionCoordinatorHarness(
            transaction_version=2,
            transaction_max_timeout_ms=900_000,
            # In half of the histories no request waits for markers, so that it is decided while they are written.
            add_partitions_retry_backoff_max_ms=100 if seed % 2 else 0,
        )
        self.rivals = [TransactionalProducer(self.harness) for _ in range(rng.randint(1, 3))]
        self.lone = Lone(self)
        # Transactions whose end was acknowledged: the client's id and epoch, whether it asked for a commit, and the partitions.
        self.acknowledged: list[tuple[tuple[int, int], bool, set[Any]]] = []
        self.named: set[tuple[int, int]] = set()
        # True while no marker may be repeated: that happens only after a failure or a move.
        self.is_calm = True

    def run(self) -> None:
        for _ in range(self.rng.randint(30, 150)):
            getattr(self, f"_{draw(self.rng, ACTIONS)}")(self.rng.choice(self.rivals))
        self._end()

    # ---- requests

    def _lone(self, rival: TransactionalProducer) -> None:
        self.lone.step()

    def _init(self, rival: TransactionalProducer) -> None:
        rival.then = self._named
        rival.init(timeout=self.rng.choice([1_000, 60_000]))

    def _named(self, response: Any) -> None:
        if response.error_code != ErrorCode.NONE:
            return
        name = (response.producer_id, response.producer_epoch)
        if name in self.named:
            raise Violation("29", f"producer {name} is handed out twice")
        self.named.add(name)

    def _resume(self, rival: TransactionalProducer) -> None:
        if rival.producer_id >= 0:
            rival.init(resume=True)

    def _add(self, rival: TransactionalProducer) -> None:
        if rival.producer_id >= 0:
            rival.add(*self.rng.sample(PARTITIONS, self.rng.randint(1, 2)))

    def _verify(self, rival: TransactionalProducer) -> None:
        if rival.producer_id >= 0:
            rival.verify(self.rng.choice(PARTITIONS))

    def _end_rival(self, rival: TransactionalProducer) -> None:
        if rival.producer_id < 0:
            return
        before, commit = (rival.producer_id, rival.epoch), self.rng.random() < 0.6

        def ended(response: Any) -> None:
            if response.error_code == ErrorCode.NONE:
                self.ended(before, commit, set())

        rival.then = ended
        rival.end(commit)

    def _retry(self, rival: TransactionalProducer) -> None:
        if rival.epoch > 0:
            rival.end(self.rng.random() < 0.5, epoch=-1)

    def ended(self, producer: tuple[int, int], commit: bool, partitions: set[Any]) -> None:
        self.acknowledged.append((producer, commit, partitions))

    # ---- what happens

    def _wait(self, rival: TransactionalProducer) -> None:
        self.harness.clock.advance(self.rng.choice([1, 50, 100, 1_000, 10_000, 61_000]))

    def _move(self, rival: TransactionalProducer) -> None:
        self._release(rival)
        self.is_calm = False
        self.harness.restart()
        self._check_fold()

    def _fail_over(self, rival: TransactionalProducer) -> None:
        """Change the coordinator, and lose all that is not committed."""
        self.is_calm = False
        self.harness.log.truncate(TP)
        self.harness.log.hold, self.harness.log.refuse = False, None
        self.harness.restart()
        self._check_fold()

    def _hold(self, rival: TransactionalProducer) -> None:
        self.harness.log.hold = True

    def _release(self, rival: TransactionalProducer) -> None:
        self.harness.log.hold = False
        self.harness.log.release(TP)

    def _refuse(self, rival: TransactionalProducer) -> None:
        self.harness.log.refuse = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)

    def _accept(self, rival: TransactionalProducer) -> None:
        self.harness.log.refuse = None

    def _marker(self, rival: TransactionalProducer) -> None:
        partition, behaviour = self.rng.choice(
            [("t-0", "later"), ("t-0", "later"), ("t-1", "NOT_LEADER_OR_FOLLOWER"), ("u-0", "REQUEST_TIMED_OUT")]
        )
        self.is_calm = self.is_calm and behaviour == "later"
        self.harness.marker_behaviour(partition, behaviour)

    def _marker_is_taken(self, rival: TransactionalProducer) -> None:
        self.harness.marker_behaviour(self.rng.choice(PARTITIONS), "NONE")

    def _ids(self, rival: TransactionalProducer) -> None:
        self.harness.producer_ids.hold = not self.harness.producer_ids.hold
        if not self.harness.producer_ids.hold:
            self._give_ids()

    def _give_ids(self) -> None:
        waiting, self.harness.producer_ids.waiting = self.harness.producer_ids.waiting, []
        for receive in waiting:
            self.harness.producer_ids.take(receive)

    def _exhaust(self, rival: TransactionalProducer) -> None:
        """Set the epoch of the lone producer to the last but one, as if it had ended many transactions."""
        harness, lone = self.harness, self.lone
        if (
            harness.log.hold
            or harness.log.refuse is not None
            or lone.is_waiting
            or lone.attempt is not None
            or lone.partitions
        ):
            return
        transaction = harness.shard.transactions.get("lone")
        if transaction is None or transaction.state not in IDLE or transaction.producer_epoch > 32_000:
            return
        if (transaction.producer_id, transaction.producer_epoch) != (lone.producer.producer_id, lone.producer.epoch):
            return
        codec = TransactionRecordCodec(lambda: 2)
        after = transaction.to(TransactionState.EMPTY, harness.clock.wall_ms(), producer_epoch=32_765)
        for batch, _ in codec.batches([after.record()], harness.clock.wall_ms(), None):
            harness.log.append(TP, batch)
        lone.producer.epoch = 32_765
        self._move(rival)

    # ---- checks

    def _check_fold(self) -> None:
        memory, records = self.harness.shard.transactions, self.harness.records()
        for known in (records, compacted(records)):
            if (again := replayed(self.harness, known)) != memory:
                raise Violation("21", f"the log says {again}, memory {memory}")

    def _logged(self) -> dict[tuple[int, int], Transaction]:
        """Return the prepared outcome of every transaction, by the producer in its markers."""
        outcomes: dict[tuple[int, int], Transaction] = {}
        last: dict[str, Transaction] = {}
        for _, key, value in self.harness.records():
            if value is None:
                last.pop(key.transactional_id, None)
                continue
            transaction = from_record(key, value)
            before = last.get(key.transactional_id)
            last[key.transactional_id] = transaction
            if before is not None and before.state in PREPARED and transaction.state is not COMPLETION[before.state]:
                raise Violation("35", f"{before.state.name} is followed by {transaction.state.name}")
            if transaction.state not in PREPARED:
                continue
            named = (transaction.producer_id, transaction.producer_epoch)
            if named in outcomes:
                raise Violation("33", f"two transactions of {named} are prepared")
            outcomes[named] = transaction
        return outcomes

    def _end(self) -> None:
        """End all faults."""
        self.harness.log.refuse = None
        self._release(self.rivals[0])
        self.harness.producer_ids.hold = False
        self._give_ids()
        for partition in PARTITIONS:
            self.harness.marker_behaviour(partition, "NONE")
        for _ in range(30):
            self.harness.clock.advance(10_000)
        for name in ("x", "lone"):
            transaction = self.harness.shard.transactions.get(name)
            if transaction is not None and transaction.state not in IDLE:
                raise Violation("32", f"a transaction stays in {transaction.state.name}")
        self._check_fold()
        self._check_outcomes(self._logged())

    def _check_outcomes(self, logged: dict[tuple[int, int], Transaction]) -> None:
        marked: dict[tuple[Any, int, int], list[bool]] = {}
        for partition, producer_id, epoch, commit in self.harness.markers:
            marked.setdefault((partition, producer_id, epoch), []).append(commit)
            outcome = logged.get((producer_id, epoch))
            if outcome is None or (outcome.state is TransactionState.PREPARE_COMMIT) != commit:
                said = "nothing" if outcome is None else outcome.state.name
                raise Violation("35", f"{partition} has a marker commit={commit}, the log says {said}")
        for (partition, producer_id, epoch), times in marked.items():
            if self.is_calm and len(times) > 1:
                raise Violation("33", f"{partition} has {len(times)} markers of {producer_id}/{epoch}")
        for (producer_id, epoch), outcome in logged.items():
            for partition in outcome.partitions:
                if (partition, producer_id, epoch) not in marked:
                    raise Violation("33", f"{partition} has no marker of {producer_id}/{epoch}")
        for (producer_id, epoch), commit, partitions in self.acknowledged:
            outcome = logged.get((producer_id, epoch + 1))
            if outcome is None or (outcome.state is TransactionState.PREPARE_COMMIT) != commit:
                raise Violation("30", f"commit={commit} of {producer_id}/{epoch} was acknowledged: {outcome}")
            if not partitions <= outcome.partitions:
                raise Violation("30", f"{partitions - outcome.partitions} are not part of {producer_id}/{epoch}")


#: The weight of each action.
ACTIONS = {
    "lone": 60,
    "init": 8,
    "resume": 4,
    "add": 20,
    "verify": 3,
    "end_rival": 18,
    "retry": 5,
    "wait": 14,
    "move": 2,
    "fail_over": 3,
    "hold": 4,
    "release": 6,
    "refuse": 1,
    "accept": 3,
    "marker": 6,
    "marker_is_taken": 8,
    "ids": 1,
    "exhaust": 3,
}
