"""The smallest three servers that can acknowledge a one-record Produce with acks=all: `python -m benchmarks.null_cluster`.

It prints the CPU time of a Produce, of all three processes together, and the rate: with one connection no cluster in Python whose
followers ask for records, as Kafka's protocol has it, can be faster. The leader is `null_server`, which answers when both followers have
asked for the offset behind the record. Frames have fixed positions: there is no log, no session, no epoch, no partition, and each follower has
one connection. Each Produce is one batch of one record, so that batches are found by their offsets.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from struct import Struct

import uvloop

from benchmarks import raw
from benchmarks.null_server import (
    ANSWER,
    BEFORE_BATCH,
    BEFORE_TOPIC,
    BUFFER_BYTES,
    HEADER,
    TOPIC_BYTES,
    Appender,
    OneInFlight,
)
from benchmarks.servers import START_SECONDS_MAX, NullServer
from benchmarks.usage import cpu_seconds
from ottla.protocol.api import ApiKey

FOLLOWERS = 2
CONNECTIONS = (1, 32)
WARM_SECONDS = 1.0
#: size, API key, version, correlation id, no client id; the offset, and as many other bytes as a follower's Fetch in a session has
FETCH = Struct(">ihhihq60x")
#: size, correlation id, high watermark, and as many other bytes as its response has before the records
FETCHED = Struct(">iiq50x")
LENGTH = Struct(">i").unpack_from


class Leader:
    """The records that a follower still has to ask for, and the Produces that wait for them."""

    def __init__(self) -> None:
        self.appender = Appender()
        self.first, self.batches = 0, deque[bytes]()
        self.followers: list[Connection] = []
        self.producers = deque[tuple[int, Callable[[bytes], None], bytes]]()
        self.is_scheduled = False

    def produced(self, connection: Connection, correlation_id: int, topic: bytes, batch: memoryview) -> None:
        offset = self.appender.append(batch)
        self.batches.append(bytes(batch))
        answer = ANSWER.pack(ANSWER.size - 4, correlation_id, 1, 1, topic, 1, 0, 0, offset, -1, 0, 0)
        self.producers.append((offset, connection.write, answer))
        if not self.is_scheduled:  # the Produces of one turn of the loop are fetched together
            self.is_scheduled = True
            asyncio.get_running_loop().call_soon(self.wake)

    def wake(self) -> None:
        self.is_scheduled = False
        for follower in self.followers:
            self.send(follower)

    def asked(self, follower: Connection, correlation_id: int, offset: int) -> None:
        if follower.offset < 0:
            self.followers.append(follower)
        follower.offset, follower.waits = offset, correlation_id
        if len(self.followers) == FOLLOWERS:
            high_watermark = min(each.offset for each in self.followers)
            while self.first < high_watermark:
                self.batches.popleft()
                self.first += 1
                _, write, answer = self.producers.popleft()
                write(answer)
        self.send(follower)

    def send(self, follower: Connection) -> None:
        if follower.waits < 0 or follower.offset == self.appender.next_offset:
            return
        records = b"".join(list(self.batches)[follower.offset - self.first :])
        head = FETCHED.pack(FETCHED.size - 4 + len(records), follower.waits, self.first)
        follower.waits = -1
        follower.write(head + records)


class Connection(OneInFlight):
    """A connection of a producer or of a follower at the leader."""

    def __init__(self, leader: Leader) -> None:
        super().__init__(bytearray(BUFFER_BYTES))
        self.leader = leader
        self.offset = self.waits = -1

    def buffer_updated(self, nbytes: int) -> None:
        size, key, _, correlation_id, client_id_bytes = HEADER(self.view)
        assert size + 4 == nbytes, "half a frame"
        if key == ApiKey.FETCH:
            self.leader.asked(self, correlation_id, FETCH.unpack_from(self.view)[-1])
            return
        at = client_id_bytes + BEFORE_TOPIC
        topic = bytes(self.buffer[at : at + TOPIC_BYTES])
        self.leader.produced(self, correlation_id, topic, self.view[at + BEFORE_BATCH : nbytes])


class Follower(asyncio.BufferedProtocol):
    def __init__(self) -> None:
        self.appender = Appender()
        self.view, self.have, self.asked = memoryview(bytearray(BUFFER_BYTES)), 0, 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self.write = transport.write
        self.ask()

    def ask(self) -> None:
        self.asked += 1
        self.write(FETCH.pack(FETCH.size - 4, ApiKey.FETCH, 17, self.asked, 0, self.appender.next_offset))

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.view[self.have :]

    def buffer_updated(self, nbytes: int) -> None:
        self.have += nbytes
        if self.have < 4 or self.have < (end := LENGTH(self.view)[0] + 4):
            return
        at, self.have = FETCHED.size, 0
        while at < end:
            size = 12 + LENGTH(self.view, at + 8)[0]
            self.appender.append(self.view[at : at + size])
            at += size
        self.ask()


async def serve(port: int, *, is_follower: bool) -> None:
    loop = asyncio.get_running_loop()
    if is_follower:
        await loop.create_connection(Follower, "127.0.0.1", port)
        await loop.create_future()
    leader = Leader()
    server = await loop.create_server(lambda: Connection(leader), "127.0.0.1", port)
    await server.serve_forever()


def measure(port: int, pids: list[int], seconds: float) -> None:
    for connections in CONNECTIONS:
        raw.one_in_flight([("127.0.0.1", port)], "t", connections, WARM_SECONDS)
        used = cpu_seconds(pids)
        found = raw.one_in_flight([("127.0.0.1", port)], "t", connections, seconds)
        used = (cpu_seconds(pids) - used) / found["requests"] * 1e6
        print(f"{connections} connections: {used:.1f} us of CPU a Produce, {found['per_s']:,.0f} Produces/s")


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.null_cluster", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("port", type=int, nargs="?", help="be the leader there, until killed")
    parser.add_argument("--follower", action="store_true", help="be a follower of the leader there, until killed")
    parser.add_argument("--seconds", type=float, default=5.0)
    args = parser.parse_args()
    if args.port:
        uvloop.run(serve(args.port, is_follower=args.follower))
        return
    with NullServer.of("null_cluster") as leader:
        command = [sys.executable, "-m", "benchmarks.null_cluster", str(leader.port), "--follower"]
        followers = [subprocess.Popen(command) for _ in range(FOLLOWERS)]
        try:
            with socket.create_connection(("127.0.0.1", leader.port), timeout=START_SECONDS_MAX) as first:
                first.sendall(raw.produce_frame("t", 0, raw.one_record_batch(b"")))
                assert first.recv(BUFFER_BYTES), "the leader has gone"
            measure(leader.port, [leader.pid, *(each.pid for each in followers)], args.seconds)
        finally:
            for each in followers:
                each.terminate()
                each.wait()


if __name__ == "__main__":
    main()
