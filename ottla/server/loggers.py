"""The loggers of a node as a BROKER_LOGGER resource: their levels, described and changed while the node runs (KIP-412).

A level lives as long as the process, as in Kafka. Kafka's own logger names are accepted for the part of this node that does the same;
a class of Kafka that has no counterpart here is a logger that logs nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from ottla.protocol.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

ROOT = "root"
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3

#: Kafka's level names, and those of Python.
LEVELS = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
_NAMES = {number: name for name, number in LEVELS.items() if name != "TRACE"}

#: The loggers that are always described, by the name in requests.
LOGGERS = {
    ROOT: None,
    "ottla": "ottla",
    "ottla.broker": "ottla.broker",
    "ottla.broker.groups": "ottla.broker.groups",
    "ottla.broker.replication": "ottla.broker.replication",
    "ottla.broker.transactions": "ottla.broker.transactions",
    "ottla.controller": "ottla.controller",
    "ottla.protocol": "ottla.protocol",
    "ottla.server": "ottla.server",
    "ottla.storage": "ottla.storage",
    "kafka": "ottla",
    "kafka.authorizer.logger": "kafka.authorizer.logger",
    "kafka.cluster": "ottla.broker.replication",
    "kafka.controller": "ottla.controller",
    "kafka.coordinator.transaction": "ottla.broker.transactions",
    "kafka.log": "ottla.storage",
    "kafka.network": "ottla.server.network",
    "kafka.server": "ottla.server",
    "kafka.server.ControllerServer": "ottla.controller",
    "kafka.server.KafkaApis": "ottla.broker.api",
    "kafka.server.ReplicaManager": "ottla.broker.replication",
    "org.apache.kafka": "ottla",
    "org.apache.kafka.controller": "ottla.controller",
    "org.apache.kafka.coordinator.group": "ottla.broker.groups",
    "org.apache.kafka.raft": "ottla.controller.raft",
    "org.apache.kafka.storage.internals.log": "ottla.storage",
    "org.apache.kafka.storage.internals.log.LogCleaner": "ottla.broker.log_cleaner",
    "state.change.logger": "ottla.broker.cluster",
}
_OF_KAFKA = ("kafka.", "org.apache.kafka.")


def levels() -> Iterator[tuple[str, str]]:
    """Returns the loggers with their effective levels, in Kafka's names of levels."""
    for name in LOGGERS | dict.fromkeys(sorted(_set)):
        number = _logger(name).getEffectiveLevel()
        yield name, _NAMES.get(number, logging.getLevelName(number))


def change_level(name: str, operation: int, level: str | None, *, validate_only: bool) -> None:
    """Sets a logger's level, or removes it, so that the logger has that of its parent.

    Raises KafkaError: INVALID_CONFIG for an unknown logger or level, INVALID_REQUEST for an operation that levels do not have.
    """
    if operation not in (SET, DELETE):
        verb = {APPEND: "APPEND", SUBTRACT: "SUBTRACT"}.get(operation, f"Unknown operation type {operation}")
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{verb} operation is not allowed for the BROKER_LOGGER resource")
    if name not in LOGGERS and not name.startswith(_OF_KAFKA) and name not in logging.Logger.manager.loggerDict:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
    if operation == SET and level not in LEVELS:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {name} to {level} as it is not a supported log level. Valid log levels are "
            + ", ".join(sorted(LEVELS)),
        )
    if operation == DELETE and name == ROOT:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed")
    if validate_only:
        return
    _set.add(name)
    _logger(name).setLevel(LEVELS[level] if operation == SET and level else logging.NOTSET)
    log.warning("The log level of %s is now %s", name, level if operation == SET else "that of its parent")


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(LOGGERS.get(name, name))


#: The loggers whose levels were changed, which are described, too.
_set: set[str] = set()
