"""Lines of a file, a pipe or a terminal, without stopping the event loop.

A daemon thread reads, at most one chunk ahead. It is no thread of asyncio: asyncio waits for its threads at the end, so a
command could not end by Ctrl-C while a terminal has no input. For the same reason the thread reads the bare descriptor: the
interpreter's exit waits for the lock of a buffered file.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import suppress

CHUNK_BYTES = 256 * 1024


async def read_lines(descriptor: int) -> AsyncIterator[list[bytes]]:
    """Yield the lines of each chunk as it arrives, without line ends. Raise OSError if reading fails."""
    loop = asyncio.get_running_loop()
    wanted = threading.Semaphore(1)
    chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue()

    def read() -> None:
        data: bytes | OSError = b"?"
        while data and not isinstance(data, OSError):
            wanted.acquire()
            try:
                data = os.read(descriptor, CHUNK_BYTES)
            except OSError as fault:
                data = fault
            with suppress(RuntimeError):  # the loop is closed: no task waits any more
                loop.call_soon_threadsafe(chunks.put_nowait, data)

    threading.Thread(target=read, name="input", daemon=True).start()
    parts: list[bytes] = []  # the parts of an incomplete line
    while True:
        chunk = await chunks.get()
        wanted.release()
        if isinstance(chunk, OSError):
            raise chunk
        if not chunk:
            break
        *lines, rest = chunk.split(b"\n")
        if lines:
            lines[0] = b"".join((*parts, lines[0]))
            parts = [rest] if rest else []
            yield [line.removesuffix(b"\r") for line in lines]
        else:
            parts.append(rest)
    if parts:
        yield [b"".join(parts).removesuffix(b"\r")]
