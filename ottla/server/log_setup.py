"""Logging: one line per event in Kafka's form.

A thread writes the lines, so that a slow terminal or pipe never blocks the event loop.

[2026-11-21 09:00:00,123] INFO [PLAINTEXT] Awaiting socket connections on 0.0.0.0:9092. (ottla.server.network.listener)

The levels of a node's loggers are a BROKER_LOGGER resource, described and changed while the node runs (KIP-412). As in Kafka, a
level ends with the process. Kafka's own logger names are accepted for the part of this node that does the same. For a class of
Kafka without a counterpart here there is a logger that logs nothing.
"""

from __future__ import annotations

import atexit
import logging
import logging.handlers
import queue
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import suppress
from typing import Protocol

from ottla.protocol.errors import ErrorCode, KafkaError

log = logging.getLogger(__name__)

#: The most events in the queue. Further ones are counted and dropped, because logging must not block requests.
QUEUED_MAX = 10_000
#: Longer messages without a traceback are cut to this length: clients choose the names in them, and the queue is bounded in lines.
LINE_LENGTH_MAX = 8_192
#: The most lines of one write: a slow stream gets no larger chunks.
WRITTEN_AT_ONCE = 250
#: A line appears at the latest after this time.
REST_S = 0.02
#: The size at which a log file is renamed to FILE.1, and how many such files are kept: 1.1 GB in all.
FILE_BYTES = 100 << 20
FILES_KEPT = 10
FORMAT = "[%(asctime)s,%(msecs)03d] %(levelname)s %(message)s (%(name)s)"
DATE_FORMAT = "%Y-%m-%d %H:%M:%S"
#: Names from clients (client ids, topics) must not look like further lines.
UNPRINTABLE = (
    {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) != "\t"}
    | {10: "\\n", 13: "\\r"}
    # Characters that end a line, or change its direction, for a reader.
    | {
        code: f"\\u{code:04x}"
        for code in (0x061C, *range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2060, 0x2070), 0xFEFF)
    }
)


class Stream(Protocol):
    """Writes the text of complete lines."""

    def write(self, text: str, /) -> object: ...
    def flush(self) -> object: ...


class LogFile(logging.handlers.RotatingFileHandler):
    """A log file. When it is full, a new one replaces it. Raises OSError if it cannot be written."""

    def __init__(self, path: str, bytes_max: int = FILE_BYTES, kept: int = FILES_KEPT) -> None:
        super().__init__(path, maxBytes=bytes_max, backupCount=kept, encoding="utf-8")

    def write(self, text: str) -> None:
        if self.stream is not None and self.stream.tell() >= self.maxBytes:
            self.doRollover()
        if self.stream is None:  # a rename has failed
            self.stream = self._open()
        self.stream.write(text)


class OneLine(logging.Formatter):
    """Formats the message in one line; a traceback follows unchanged."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = record.message.translate(UNPRINTABLE)
        return super().formatMessage(record)


class Enqueue(logging.handlers.QueueHandler):
    """Queues events for the writing thread, and counts events that are dropped because the queue is full."""

    def __init__(self) -> None:
        self.events: queue.SimpleQueue[logging.LogRecord | None] = queue.SimpleQueue()
        super().__init__(self.events)
        self.dropped = 0

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        # The arguments may change before the thread formats them.
        record.msg, record.args = record.getMessage(), None
        return record

    def enqueue(self, record: logging.LogRecord) -> None:
        if self.events.qsize() >= QUEUED_MAX:
            self.dropped += 1
            return
        if len(record.msg) > LINE_LENGTH_MAX and record.exc_info is None:
            record.msg = f"{record.msg[:LINE_LENGTH_MAX]}... ({len(record.msg)} characters)"
        self.events.put(record)
        if self.dropped and self.events.qsize() < QUEUED_MAX // 2:
            dropped, self.dropped = self.dropped, 0
            log.warning("%d events were not logged: they came faster than they can be written", dropped)


class BatchWriter(logging.handlers.QueueListener):
    """The thread that writes. It writes all lines that have gathered, and then rests.

    If it woke up for each of 10,000 lines, it would take the interpreter's lock 10,000 times from the thread that logs, which
    would have to wait to get it back.
    """

    def __init__(self, enqueue: Enqueue, stream: Stream) -> None:
        super().__init__(enqueue.events)
        self._enqueue = enqueue
        self._events = enqueue.events
        self._stream = stream
        self._formatter = OneLine(FORMAT, DATE_FORMAT)
        self._stopping = threading.Event()
        self._missing = 0
        self._why = ""

    def close(self) -> None:
        """Write the remaining events, and take no more."""
        if not self._stopping.is_set():
            self._stopping.set()
            logging.getLogger().removeHandler(self._enqueue)
            self.stop()

    def _monitor(self) -> None:
        """Replace the loop of `QueueListener`, whose `stop` queues None."""
        while True:
            events = [self._events.get()]
            with suppress(queue.Empty):
                while len(events) < WRITTEN_AT_ONCE:
                    events.append(self._events.get_nowait())
            self._write([event for event in events if event is not None])
            if None in events:
                return
            if len(events) < WRITTEN_AT_ONCE:
                self._stopping.wait(REST_S)

    def _write(self, events: list[logging.LogRecord]) -> None:
        """Write lines.

        If a pipe is closed or a disk full, they are lost. That is reported once on standard error, and in the log as soon as it
        can be written.
        """
        if not events:
            return
        try:
            self._stream.write("".join(f"{self._formatter.format(event)}\n" for event in events))
            self._stream.flush()
        except Exception as failure:
            is_first, self._missing, self._why = not self._missing, self._missing + len(events), str(failure)
            # Standard error may be the same file. This thread must not end, because then nothing would be written until the
            # next start.
            with suppress(Exception):
                if is_first and logging.raiseExceptions and sys.stderr is not None:
                    traceback.print_exc()
            return
        if self._missing:
            missing, self._missing = self._missing, 0
            # A buffered stream may still have some of them.
            log.warning(
                "At most %d events are missing before the last ones: they could not be written (%s)", missing, self._why
            )


def set_up(level: str = "INFO", stream: Stream | None = None) -> BatchWriter:
    """Start logging to `stream`, by default to standard output."""
    enqueue = Enqueue()
    writer = BatchWriter(enqueue, stream if stream is not None else sys.stdout)
    root = logging.getLogger()
    root.setLevel(level.upper())
    root.addHandler(enqueue)
    writer.start()
    atexit.register(writer.close)
    return writer


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

#: The loggers that are always described, by their names in requests.
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
    """Return the loggers with their effective levels, as Kafka names the levels."""
    for name in LOGGERS | dict.fromkeys(sorted(_set)):
        number = _logger(name).getEffectiveLevel()
        yield name, _NAMES.get(number, logging.getLevelName(number))


def change_level(name: str, operation: int, level: str | None, *, validate_only: bool) -> None:
    """Set a logger's level, or remove it, so that the level of its parent counts.

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
