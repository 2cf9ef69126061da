"""The messages that clients sent and received, in order; the trace of a run and its hash."""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import dataclass
from typing import Any

TRACE_LINES_MAX = 400

#: A partition as clients name it.
TopicPartition = tuple[str, int]


@dataclass(slots=True)
class Operation:
    """An operation with its `outcome`: ok, fail (it certainly did not take place), info (unknown)."""

    t0: float
    t1: float
    process: str
    name: str
    input: Any
    output: Any = None
    outcome: str = "info"


class History:
    def __init__(self, now: Any, *, verbose: bool = False) -> None:
        self._now = now
        self._verbose = verbose
        self.operations: list[Operation] = []
        self.trace: deque[str] = deque(maxlen=TRACE_LINES_MAX)
        self._hash = hashlib.blake2b(digest_size=8)

    def begin(self, process: str, name: str, given: Any) -> Operation:
        operation = Operation(self._now(), -1.0, process, name, given)
        self.operations.append(operation)
        return operation

    def end(self, operation: Operation, outcome: str, output: Any = None) -> None:
        operation.t1, operation.outcome, operation.output = self._now(), outcome, output
        self.note(f"{operation.process} {operation.name} {operation.input} -> {outcome} {output}")

    def note(self, text: str) -> None:
        line = f"{self._now():9.4f} {text}"
        self.trace.append(line)
        self._hash.update(line.encode())
        if self._verbose:
            print(line)

    @property
    def hash(self) -> str:
        return self._hash.hexdigest()
