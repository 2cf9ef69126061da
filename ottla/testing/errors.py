"""The errors of a test that asks a cluster for something impossible. Each has the cause and the remedy."""

from __future__ import annotations

import math

#: Where a test that breaks nodes gets its own cluster, in the same words for all errors.
TO_BREAK = "take the fixture kafka_to_break, which is a cluster of the test's own, or one of factories.kafka_cluster(scope='function')"


class WrongUse(RuntimeError):
    """A test asks a cluster for something impossible. `cause` says what, `remedy` what to do."""

    def __init__(self, cause: str, remedy: str) -> None:
        super().__init__(cause, remedy)
        self.cause = cause
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.cause}: {self.remedy}"


class SharedWithOthers(WrongUse):
    """A fault was requested in a cluster that other tests use at the same time, or that this process has not started."""


class NoSuchNode(WrongUse):
    """The cluster has no node with that id."""


class NotRunning(WrongUse):
    """The node's process has ended, or was never started."""


class MadeOtherwise(WrongUse):
    """The cluster was made without an option that this needs: secure=True, cuttable=True, or nodes that can be spoiled."""


class InvalidFault(WrongUse, ValueError):
    """A name that Kafka does not have, or a number out of its range."""


class TooFewNodes(WrongUse):
    """A topic is to have more replicas than the cluster has brokers."""


class ClientMissing(WrongUse, ModuleNotFoundError):
    """The client library is not installed."""


def in_range(name: str, number: float, low: float, high: float) -> float:
    """Return the number, which is the value of the argument `name`.

    Raises:
        InvalidFault: it is no number, or not between the two bounds.
    """
    if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
        raise InvalidFault(f"{name}={number!r} is no number", f"it is one from {low:g} to {high:g}")
    if not low <= number <= high:
        raise InvalidFault(f"{name}={number:g} is out of range", f"it is a number from {low:g} to {high:g}")
    return number
