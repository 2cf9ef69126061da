"""Logging: one line per event in Kafka's form, written by a thread, so that a slow terminal or pipe never blocks the event loop.

[2026-11-21 09:00:00,123] INFO [PLAINTEXT] Awaiting socket connections on 0.0.0.0:9092. (ottla.server.network.listener)
"""

from __future__ import annotations

import atexit
import logging
import logging.handlers
import queue
import sys
from typing import TextIO

#: The limit of events in the queue. Further ones are counted and dropped: logging must not block requests.
QUEUED_MAX = 10_000
FORMAT = "[%(asctime)s,%(msecs)03d] %(levelname)s %(message)s (%(name)s)"
DATE_FORMAT = "%Y-%m-%d %H:%M:%S"
#: Names from clients (client ids, topics) must not look like further lines.
UNPRINTABLE = {code: f"\\x{code:02x}" for code in (*range(32), 127) if chr(code) != "\t"} | {10: "\\n", 13: "\\r"}


class OneLine(logging.Formatter):
    """Formats the message in one line; a traceback follows unchanged."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = record.message.translate(UNPRINTABLE)
        return super().formatMessage(record)


class Enqueue(logging.handlers.QueueHandler):
    """Queues events for the writing thread, and counts those that are dropped because the queue is full."""

    def __init__(self, events: queue.Queue[logging.LogRecord]) -> None:
        super().__init__(events)
        self._events = events
        self.dropped = 0

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        # The arguments may change before the thread formats them.
        record.msg, record.args = record.getMessage(), None
        return record

    def enqueue(self, record: logging.LogRecord) -> None:
        try:
            self._events.put_nowait(record)
        except queue.Full:
            self.dropped += 1
            return
        if self.dropped and self._events.qsize() < QUEUED_MAX // 2:
            dropped, self.dropped = self.dropped, 0
            logging.getLogger(__name__).warning(
                "%d events were not logged: they came faster than they can be written", dropped
            )


class LogWriter:
    """The result of `set_up`; `close` writes the remaining events."""

    def __init__(self, enqueue: Enqueue, listener: logging.handlers.QueueListener) -> None:
        self._enqueue = enqueue
        self._listener = listener
        self._closed = False

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            logging.getLogger().removeHandler(self._enqueue)
            self._listener.stop()


def set_up(level: str = "INFO", stream: TextIO | None = None) -> LogWriter:
    """Starts logging to `stream` (by default to standard output, as Kafka does)."""
    writer = logging.StreamHandler(stream if stream is not None else sys.stdout)
    writer.setFormatter(OneLine(FORMAT, DATE_FORMAT))
    events: queue.Queue[logging.LogRecord] = queue.Queue(QUEUED_MAX)
    enqueue = Enqueue(events)
    listener = logging.handlers.QueueListener(events, writer)
    root = logging.getLogger()
    root.setLevel(level.upper())
    root.addHandler(enqueue)
    listener.start()
    opened = LogWriter(enqueue, listener)
    atexit.register(opened.close)
    return opened
