"""A gate before a store, which is open, gone, hung, slow or unavailable: `python -m benchmarks.tiers.gate PORT` is its process.

It reads requests of HTTP/1.1 one by one, because a store rejects single requests. A line on standard input sets its mode. It
costs the store half of its speed, so that figures of speed are taken without it.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import suppress
from types import TracebackType

OPEN, GONE, HUNG, SLOW, UNAVAILABLE = "open", "gone", "hung", "slow", "unavailable"
SLOW_SECONDS = 2.0
PIECE_BYTES = 1 << 20
#: The response of S3 to too many calls.
BUSY = b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\n\r\n"


class Gate:
    """The gate's process, for those who set its mode."""

    def __init__(self, target: int) -> None:
        command = [sys.executable, "-m", "benchmarks.tiers.gate", str(target)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def __enter__(self) -> Gate:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()

    def set(self, mode: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{mode}\n")
        self._process.stdin.flush()


# -- In the process ------------------------------------------------------------------------------------------------------


class Passing:
    """The connections, and the mode."""

    def __init__(self, target: int) -> None:
        self._target = target
        self.mode = OPEN
        self._requests = 0
        self._open = set[asyncio.StreamWriter]()
        #: The store is slow or open, but not hung.
        self._answers = asyncio.Event()
        self._answers.set()

    def set(self, mode: str) -> None:
        self.mode = mode
        if mode == HUNG:
            self._answers.clear()
        else:
            self._answers.set()
        for writer in self._open if mode == GONE else ():
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.mode == GONE:
            writer.transport.abort()
            return
        self._open.add(writer)
        with suppress(OSError, asyncio.IncompleteReadError):
            store, to_store = await asyncio.open_connection("127.0.0.1", self._target)
            try:
                while True:
                    await self._one(reader, writer, store, to_store)
            finally:
                to_store.close()
                writer.close()
        self._open.discard(writer)

    async def _one(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        store: asyncio.StreamReader,
        to_store: asyncio.StreamWriter,
    ) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        await self._answers.wait()
        self._requests += 1
        if self.mode == SLOW:
            await asyncio.sleep(SLOW_SECONDS)
        if self.mode == UNAVAILABLE and self._requests % 2:
            await pass_on(reader, None, length_of(head))
            writer.write(BUSY)
            await writer.drain()
            return
        to_store.write(head)
        await pass_on(reader, to_store, length_of(head))
        answer = await store.readuntil(b"\r\n\r\n")
        await self._answers.wait()
        writer.write(answer)
        is_empty = head.startswith(b"HEAD ") or answer.split(b" ", 2)[1] in (b"204", b"304")
        await pass_on(store, writer, 0 if is_empty else length_of(answer))


def length_of(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
        assert name.lower() != b"transfer-encoding", head
    return 0


async def pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter | None, length: int) -> None:
    while length:
        data = await source.read(min(length, PIECE_BYTES))
        if not data:
            raise asyncio.IncompleteReadError(b"", length)
        length -= len(data)
        if target is not None:
            target.write(data)
            await target.drain()
    if target is not None:
        await target.drain()


async def main(target: int) -> None:
    passing = Passing(target)
    server = await asyncio.start_server(passing.serve, "127.0.0.1", 0, limit=PIECE_BYTES)
    print(server.sockets[0].getsockname()[1], flush=True)
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        passing.set(line.decode().strip())


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
