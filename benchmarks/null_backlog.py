"""A broker that sends what it was sent, from memory, for clients of librdkafka: `python -m benchmarks.null_backlog PORT`. It is the ceiling of
the rows that consume.

It is `null_broker`, but a Produce's batch is kept, and a Fetch gets the batches of each partition that it asks for, as many as its limits
allow. There is no log, no index and no disk, and the batches are those that the same producer made: with no server can the client be faster.
"""

from __future__ import annotations

import asyncio
import sys
from bisect import bisect_right
from collections import defaultdict
from struct import pack, pack_into

import uvloop

from benchmarks.null_broker import HEADER, INT16, INT32, Client, Waiting
from ottla.protocol.api import ApiKey
from ottla.protocol.compile import decode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest


class Kept:
    """The batches of one partition, and the offset of each."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.batches: list[bytes] = []
        self.end = 0

    def add(self, batch: memoryview) -> None:
        pack_into(">q", batch, 0, self.end)
        self.offsets.append(self.end)
        self.batches.append(bytes(batch))
        self.end += INT32(batch, 23)[0] + 1

    def read(self, offset: int, max_bytes: int) -> list[bytes]:
        found: list[bytes] = []
        size = 0
        for batch in self.batches[max(0, bisect_right(self.offsets, offset) - 1) :] if offset < self.end else ():
            size += len(batch)
            if found and size > max_bytes:
                break
            found.append(batch)
        return found


class Backlog(Client):
    def __init__(self, port: int, kept: defaultdict[int, Kept]) -> None:
        super().__init__(port, Waiting())
        self.kept = kept

    def handle(self, frame: memoryview) -> None:
        _, key, version, correlation_id, client_id_bytes = HEADER.unpack_from(frame)
        at = HEADER.size + max(0, client_id_bytes)
        if key == ApiKey.FETCH:
            self.fetch(correlation_id, decode(FetchRequest, bytes(frame[at:]), version))
            return
        if key == ApiKey.PRODUCE:
            at += 2 + 2 + 4 + 4  # as in `null_broker`
            at += 2 + INT16(frame, at)[0] + 4
            self.kept[INT32(frame, at)[0]].add(frame[at + 8 :])
        super().handle(frame)

    def fetch(self, correlation_id: int, request: FetchRequest) -> None:
        """Answer what there is. A Fetch at the end of all partitions waits for ever: the client has everything by then."""
        [topic] = request.topics
        found = [
            (asked, self.kept[asked.partition].read(asked.fetch_offset, asked.partition_max_bytes))
            for asked in topic.partitions
        ]
        if not any(batches for _, batches in found):
            return
        name = topic.topic.encode()
        # correlation id, throttle time; error, session; one topic
        pieces = [pack(">iihiih", correlation_id, 0, 0, 0, 1, len(name)) + name + pack(">i", len(found))]
        for asked, batches in found:
            pieces.append(self.row(asked, sum(map(len, batches))))
            pieces += batches
        self.writelines([pack(">i", sum(map(len, pieces))), *pieces])

    def row(self, asked: FetchPartition, size: int) -> bytes:
        """Index, error, high watermark, last stable offset, start of the log, no aborted transactions, length of the records."""
        end = self.kept[asked.partition].end
        return pack(">ihqqqii", asked.partition, 0, end, end, 0, -1, size)


async def serve(port: int) -> None:
    kept = defaultdict[int, Kept](Kept)
    server = await asyncio.get_running_loop().create_server(lambda: Backlog(port, kept), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
