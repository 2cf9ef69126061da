"""One log of several processes: complete lines, each with the name of its process, and in the order in which the process wrote
them.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress

#: A longer line is split. The longest lines of a node are lists of partitions.
LINE_BYTES_MAX = 1 << 20
READ_BYTES = 1 << 16


class Lines:
    """Divides the output of one process into lines with a prefix."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix.encode()
        self._rest = b""

    def feed(self, chunk: bytes) -> bytes:
        """Return the lines that are complete with this chunk."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > LINE_BYTES_MAX:
            lines.append(self._rest)
            self._rest = b""
        return b"".join(b"%b%b\n" % (self._prefix, line) for line in lines)

    def end(self) -> bytes:
        """Return the beginning of a line that the process had written when it died."""
        return self.feed(b"\n") if self._rest else b""


class OneLog:
    """A writer of the output of several pipes to one file descriptor.

    A thread per pipe waits: neither a slow terminal nor a full disk stops the supervisor's event loop, and the nodes drop lines
    instead of waiting (server/log_setup.py).
    """

    def __init__(self, to_fd: int) -> None:
        self._to_fd = to_fd
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    def pipe(self, name: str) -> int:
        """Return the write end of a new pipe, which the caller closes.

        The other end is read until no process has the pipe open.
        """
        read_fd, write_fd = os.pipe()
        thread = threading.Thread(
            target=self._copy, args=(read_fd, Lines(f"[{name}] ")), name=f"log of {name}", daemon=True
        )
        thread.start()
        self._threads = [each for each in self._threads if each.is_alive()] + [thread]
        return write_fd

    def join(self, timeout_s: float) -> None:
        """Wait until all pipes are closed and their lines written."""
        for thread in self._threads:
            thread.join(timeout_s)

    def _copy(self, read_fd: int, lines: Lines) -> None:
        while chunk := os.read(read_fd, READ_BYTES):
            self._write(lines.feed(chunk))
        self._write(lines.end())
        os.close(read_fd)

    def _write(self, text: bytes) -> None:
        # If the reader has gone (`| head`), lines are lost, but the processes go on.
        with self._lock, suppress(OSError):
            while text:
                text = text[os.write(self._to_fd, text) :]
