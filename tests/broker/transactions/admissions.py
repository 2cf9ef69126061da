"""Random histories of transactional Produce requests of a client before version 2: a transaction with an append at a leader is
ended by the coordinator.

The client adds partitions, sends to them with several requests under way, and ends its transaction whenever it likes, also
with requests under way. The coordinator answers late. Invariant 33: once a transaction has ended and all requests are answered,
no partition has it open, because no marker for it would ever come.
"""

from __future__ import annotations

import random
from collections import deque
from pathlib import Path
from typing import Any

from ottla.protocol.errors import ErrorCode
from ottla.server.network.context import Reply
from tests.broker.transactions.test_admission import ProduceHarness
from tests.histories import Violation


class Admissions:
    """The history of one seed, on two partitions of one leader."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.rng = random.Random(seed)
        self.harness = ProduceHarness(directory)
        self.added: set[int] = set()
        self.sequences = [0, 0]
        #: Requests to the coordinator, some of them with the answer that is on its way.
        self.questions: deque[tuple[Reply, Any, dict[Any, ErrorCode] | None]] = deque()

    def run(self) -> None:
        try:
            for _ in range(self.rng.randint(20, 80)):
                self.rng.choice(
                    (self._send, self._send, self._add, self._decide, self._answer, self._answer, self._end)
                )()
            while self.questions or self.harness.coordinator.asked:
                self._answer()
            self._end()
        finally:
            self.harness.close()

    def _add(self) -> None:
        self.added.add(self.rng.randrange(2))

    def _send(self) -> None:
        rows = [(index, self.sequences[index]) for index in self.rng.choice([(0,), (1,), (0, 1)])]
        for index, _ in rows:
            self.sequences[index] += 1
        self.harness.send(*rows)

    def _take_questions(self) -> None:
        asked, self.harness.coordinator.asked = self.harness.coordinator.asked, []
        self.questions.extend((pending, partitions, None) for pending, partitions in asked)

    def _decide(self) -> None:
        """Let the coordinator decide; its answer is on its way then."""
        self._take_questions()
        for position, (pending, partitions, answer) in enumerate(self.questions):
            if answer is None:
                self.questions[position] = (pending, partitions, self._verdicts(partitions))
                return

    def _verdicts(self, partitions: Any) -> dict[Any, ErrorCode]:
        return {tp: ErrorCode.NONE if tp[1] in self.added else ErrorCode.TRANSACTION_ABORTABLE for tp in partitions}

    def _answer(self) -> None:
        self._take_questions()
        if self.questions:
            pending, partitions, answer = self.questions.popleft()
            pending.complete(self._verdicts(partitions) if answer is None else answer)

    def _end(self) -> None:
        for index in self.added:
            self.harness.end(index, committed=self.rng.random() < 0.5)
        self.added.clear()
        for index in (0, 1):
            if self.harness.has_open_transaction(index):
                raise Violation("33", f"partition {index} has a transaction open that was not added to any")
            # a client that ended the transaction with requests in flight starts over from the last append
            self.sequences[index] = self.harness.next_sequence(index)
