"""The smallest server that can send fetched gigabytes: `python -m benchmarks.null_fetch` prints the CPU seconds of a gigabyte.

It answers Fetch v16 by fixed positions with 1 MB slices of a mapped file, the header and the slice in one write: no log, no
index, no other request. The client is that of the row "20 consumers of one partition". No broker in Python can cost less.
"""

from __future__ import annotations

import argparse
import asyncio
import mmap
import os
import socket
import tempfile
from struct import Struct

import uvloop

from benchmarks import raw
from benchmarks.servers import NullServer
from benchmarks.usage import cpu_seconds
from ottla.server.transport import NEAR_SEND_BUFFER_BYTES

SLICE_BYTES = 1 << 20
#: 256 MB: more than the processor's caches hold, as a log is.
SLICES = 256
CONNECTIONS = (1, 20)
READ_BYTES = 64 << 10
TOPIC_ID = bytes(16)
HEADER = Struct(">ihhih").unpack_from  # size, API key, version, correlation id, length of the client id
# tags; max wait, min bytes, max bytes, isolation, session, its epoch; topics, the topic's id; partitions, index, leader epoch
BEFORE_OFFSET = Struct(">BiiibiiB16sBii").size
OFFSET = Struct(">q").unpack_from
#: `raw.FETCHED`, then the preferred replica and the length of the records in four bytes
ANSWER = Struct(raw.FETCHED.format + "iBBBB")
LENGTH = [(SLICE_BYTES + 1) >> 7 * n & 127 | (128 if n < 3 else 0) for n in range(4)]
#: The tags of partition, topic and response.
TAIL = bytes(3)
#: base offset, length, epoch, magic, CRC, attributes, last offset delta
BATCH = Struct(">qiibIhi")


def write_slices(directory: str) -> mmap.mmap:
    """Write and map the file. Slice n is one batch, of one record at offset n."""
    body = os.urandom(SLICE_BYTES - BATCH.size)
    with tempfile.TemporaryFile(dir=directory) as file:
        for number in range(SLICES):
            file.write(BATCH.pack(number, SLICE_BYTES - 12, 0, 2, 0, 0, 0) + body)
        file.flush()
        return mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ)


class Client(asyncio.BufferedProtocol):
    def __init__(self, log: memoryview) -> None:
        self.log = log
        self.buffer = bytearray(READ_BYTES)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "writelines")
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, NEAR_SEND_BUFFER_BYTES)
        self.writelines = transport.writelines

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Read the request: the client has one in flight, so that each read is one frame."""
        size, _, _, correlation_id, client_id_bytes = HEADER(self.buffer)
        assert size + 4 == nbytes, "half a frame"
        (offset,) = OFFSET(self.buffer, 14 + client_id_bytes + BEFORE_OFFSET)
        at = offset % SLICES * SLICE_BYTES
        head = ANSWER.pack(
            ANSWER.size - 4 + SLICE_BYTES + len(TAIL), correlation_id, 0, 0, 0, 0, 2, TOPIC_ID, 2, 0, 0, SLICES, SLICES, 0, 0, -1, *LENGTH
        )  # fmt: skip
        self.writelines((head, self.log[at : at + SLICE_BYTES], TAIL))


async def serve(port: int) -> None:
    log = memoryview(write_slices(tempfile.gettempdir()))
    server = await asyncio.get_running_loop().create_server(lambda: Client(log), "127.0.0.1", port)
    await server.serve_forever()


def measure(port: int, pid: int, connections: int, seconds: float) -> dict[str, float]:
    """Return the MB/s, and as `cpu` the server's CPU seconds of a GB."""
    raw.fan_out(("127.0.0.1", port), TOPIC_ID, 1, 0.3)  # takes the page faults of the first access
    before = cpu_seconds([pid])
    result = raw.fan_out(("127.0.0.1", port), TOPIC_ID, connections, seconds)
    return result | {"cpu": (cpu_seconds([pid]) - before) / result["bytes"] * 1e9}


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.null_fetch", description=__doc__)
    parser.add_argument("port", type=int, nargs="?", help="be the server there, until killed")
    parser.add_argument("--seconds", type=float, default=3.0)
    args = parser.parse_args()
    if args.port:
        uvloop.run(serve(args.port))
        return
    with NullServer.of("null_fetch") as null:
        for connections in CONNECTIONS:
            found = measure(null.port, null.pid, connections, args.seconds)
            print(f"{connections} connections: {found['cpu']:.3f} s/GB at {found['mb_per_s']:,.0f} MB/s")


if __name__ == "__main__":
    main()
