"""Logging: one line per event in Kafka's form, written by a thread, so that a slow terminal or pipe never blocks the event loop.

[2026-11-21 09:00:00,123] INFO [PLAINTEXT] Awaiting socket connections on 0.0.0.0:9092. (ottla.server.network.listener)
"""

from __future__ import annotations

import atexit
import logging
import logging.handlers
import queue
import sys
import threading
import traceback
from contextlib import suppress
from typing import Protocol

#: The limit of events in the queue. Further ones are counted and dropped: logging must not block requests.
QUEUED_MAX = 10_000
#: What a line has of a longer message without a traceback: clients choose names, and the queue is bounded in lines.
LINE_LENGTH_MAX = 8_192
#: Lines of one write; a slow stream gets no larger pieces.
WRITTEN_AT_ONCE = 250
#: A line appears after this time at the latest.
REST_S = 0.02
#: The size at which a log file is renamed to FILE.1, and how many such files are kept: 1.1 GB in all.
FILE_BYTES = 100 << 20
FILES_KEPT = 10
FORMAT = "[%(asctime)s,%(msecs)03d] %(levelname)s %(message)s (%(name)s)"
DATE_FORMAT = "%Y-%m-%d %H:%M:%S"
#: Names from clients (client ids, topics) must not look like further lines.
UNPRINTABLE = {code: f"\\x{code:02x}" for code in (*range(32), 127) if chr(code) != "\t"} | {10: "\\n", 13: "\\r"}


class Stream(Protocol):
    """Takes the text of whole lines."""

    def write(self, text: str, /) -> object: ...
    def flush(self) -> object: ...


class LogFile(logging.handlers.RotatingFileHandler):
    """A log file that is replaced by a new one when it is full. Raises OSError if it cannot be written."""

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
    """Queues events for the writing thread, and counts those that are dropped because the queue is full."""

    def __init__(self, events: queue.SimpleQueue[logging.LogRecord | None]) -> None:
        super().__init__(events)
        self._events = events
        self.dropped = 0

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        # The arguments may change before the thread formats them.
        record.msg, record.args = record.getMessage(), None
        return record

    def enqueue(self, record: logging.LogRecord) -> None:
        if self._events.qsize() >= QUEUED_MAX:
            self.dropped += 1
            return
        if len(record.msg) > LINE_LENGTH_MAX and record.exc_info is None:
            record.msg = f"{record.msg[:LINE_LENGTH_MAX]}... ({len(record.msg)} characters)"
        self._events.put(record)
        if self.dropped and self._events.qsize() < QUEUED_MAX // 2:
            dropped, self.dropped = self.dropped, 0
            logging.getLogger(__name__).warning(
                "%d events were not logged: they came faster than they can be written", dropped
            )


class BatchWriter(logging.handlers.QueueListener):
    """The thread that writes: what has gathered at once, and then it rests.

    A thread that wakes up for each of 10,000 lines takes the interpreter from the one that makes them 10,000 times, and that one has
    to wait to get it back.
    """

    def __init__(self, events: queue.SimpleQueue[logging.LogRecord | None], stream: Stream) -> None:
        super().__init__(events)
        self._events = events
        self._stream = stream
        self._formatter = OneLine(FORMAT, DATE_FORMAT)
        self._stopping = threading.Event()

    def stop(self) -> None:
        self._stopping.set()
        super().stop()

    def _monitor(self) -> None:
        """Replaces the loop of `QueueListener`, whose `stop` queues None."""
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
        try:
            self._stream.write("".join(f"{self._formatter.format(event)}\n" for event in events))
            self._stream.flush()
        except Exception:
            # A closed pipe, a full disk: these lines are lost, and the node goes on.
            if logging.raiseExceptions and sys.stderr is not None:
                traceback.print_exc()


class LogWriter:
    """The result of `set_up`; `close` writes the remaining events."""

    def __init__(self, enqueue: Enqueue, listener: BatchWriter) -> None:
        self._enqueue = enqueue
        self._listener = listener
        self._closed = False

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            logging.getLogger().removeHandler(self._enqueue)
            self._listener.stop()


def set_up(level: str = "INFO", stream: Stream | None = None) -> LogWriter:
    """Starts logging to `stream`, by default to standard output."""
    events: queue.SimpleQueue[logging.LogRecord | None] = queue.SimpleQueue()
    enqueue = Enqueue(events)
    listener = BatchWriter(events, stream if stream is not None else sys.stdout)
    root = logging.getLogger()
    root.setLevel(level.upper())
    root.addHandler(enqueue)
    listener.start()
    opened = LogWriter(enqueue, listener)
    atexit.register(opened.close)
    return opened
