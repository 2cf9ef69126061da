"""The smallest server that can take a one-record Produce: `python -m benchmarks.null_server PORT`. No broker in Python can cost
less.

It parses Produce v7 by fixed positions, checks the CRC, copies the batch into a mapped file and answers: no errors, no other
request, no metadata, and nothing is kept. The rows of `make bench` have its microseconds of the same minute beside them: they
show how slow the machine was then.
"""

from __future__ import annotations

import asyncio
import mmap
import sys
from struct import Struct

import crc32c
import uvloop

FILE_BYTES = 64 << 20
BUFFER_BYTES = 256 << 10
HEADER = Struct(">ihhih").unpack_from  # size, API key, version, correlation id, length of the client id
BATCH = Struct(">qiibIhiqqqhii").unpack_from
STAMP = Struct(">qii").pack_into
ANSWER = Struct(">iiihsiihqqqi")
TOPIC_BYTES = 1
#: The positions in a Produce with an empty client id: the header, then transactional id, acks, timeout, one topic of one letter.
BEFORE_TOPIC = 14 + 2 + 2 + 4 + 4 + 2
#: From the topic's name to the records: one partition, its index and the length of the records.
BEFORE_BATCH = TOPIC_BYTES + 4 + 8


class Appender:
    """One mapped file, written from its beginning again when it is full."""

    def __init__(self) -> None:
        self.map = mmap.mmap(-1, FILE_BYTES)
        self.position = self.next_offset = 0

    def append(self, batch: memoryview) -> int:
        _, length, _, magic, crc, _, delta, *_ = BATCH(batch)
        size = length + 12
        if magic != 2 or size != len(batch) or crc32c.crc32c(batch[21:]) != crc:
            raise ValueError("not a batch")
        if self.position + size > FILE_BYTES:
            self.position = 0
        self.map[self.position : self.position + size] = batch
        offset = self.next_offset
        STAMP(self.map, self.position, offset, length, 0)
        self.position += size
        self.next_offset = offset + delta + 1
        return offset


class OneInFlight(asyncio.BufferedProtocol):
    """A connection whose client has one request in flight, of less than BUFFER_BYTES, so that each read is one frame."""

    def __init__(self, buffer: bytearray) -> None:
        self.buffer, self.view = buffer, memoryview(buffer)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self.write = transport.write

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.view


class Client(OneInFlight):
    def __init__(self, appender: Appender, buffer: bytearray) -> None:
        super().__init__(buffer)
        self.appender = appender

    def buffer_updated(self, nbytes: int) -> None:
        size, _, _, correlation_id, client_id_bytes = HEADER(self.view)
        assert size + 4 == nbytes, "half a frame"
        at = client_id_bytes + BEFORE_TOPIC
        topic = self.buffer[at : at + TOPIC_BYTES]
        at += BEFORE_BATCH
        offset = self.appender.append(self.view[at:nbytes])
        self.write(ANSWER.pack(ANSWER.size - 4, correlation_id, 1, 1, topic, 1, 0, 0, offset, -1, 0, 0))


async def serve(port: int) -> None:
    appender, buffer = Appender(), bytearray(BUFFER_BYTES)
    server = await asyncio.get_running_loop().create_server(lambda: Client(appender, buffer), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
