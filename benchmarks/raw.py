"""One-record Produces, and Fetches, over plain sockets, so that the client costs less than the server that is measured."""

from __future__ import annotations

import selectors
import socket
import struct
import time

import crc32c

from benchmarks.usage import ClientTime


def _varint(n: int) -> bytes:
    n = (n << 1) ^ (n >> 63)
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def one_record_batch(value: bytes) -> bytes:
    """Return a v2 batch of one record without a key, uncompressed."""
    record = b"\0" + _varint(0) + _varint(0) + _varint(-1) + _varint(len(value)) + value + _varint(0)
    record = _varint(len(record)) + record
    now_ms = int(time.time() * 1000)
    tail = struct.pack(">hiqqqhii", 0, 0, now_ms, now_ms, -1, -1, -1, 1) + record
    return struct.pack(">qiib", 0, len(tail) + 9, -1, 2) + struct.pack(">I", crc32c.crc32c(tail)) + tail


def produce_frame(topic: str, partition: int, batch: bytes, acks: int = -1) -> bytes:
    """Return a complete Produce v7 frame for one partition."""
    name = topic.encode()
    body = struct.pack(">hhi", -1, acks, 30_000) + struct.pack(">ih", 1, len(name)) + name
    body += struct.pack(">iii", 1, partition, len(batch)) + batch
    head = struct.pack(">hhih", 0, 7, 1, 5) + b"bench"
    return struct.pack(">i", len(head) + len(body)) + head + body


def produce_error(reply: bytes, topic: str) -> int:
    """Return the error code in a complete Produce v7 response for one partition."""
    return int(struct.unpack_from(">h", reply, 4 + 4 + 4 + 2 + len(topic) + 4 + 4)[0])


def first_ack(addresses: list[tuple[str, int]], topic: str, deadline: float) -> float:
    """Send Produce to servers that may not be up yet; return time.monotonic() of the first acknowledgement.

    A Metadata request creates the topic; only its leader acknowledges, so the nodes are tried in turn.
    """
    frame = produce_frame(topic, 0, one_record_batch(b"first"))
    metadata = struct.pack(">hhih", 3, 4, 1, 5) + b"bench" + struct.pack(">ih", 1, len(topic)) + topic.encode() + b"\1"
    metadata = struct.pack(">i", len(metadata)) + metadata  # v4, which allows auto-creation
    while time.monotonic() < deadline:
        for address in addresses:
            try:
                with socket.create_connection(address, timeout=5) as conn:
                    conn.sendall(metadata)
                    _read_frame(conn)
                    conn.sendall(frame)
                    if produce_error(_read_frame(conn), topic) == 0:
                        return time.monotonic()
            except OSError:
                pass
        time.sleep(0.005)
    raise TimeoutError("the server acknowledged nothing in time")


def _read_frame(conn: socket.socket) -> bytes:
    data = b""
    while len(data) < 4 or len(data) < 4 + struct.unpack_from(">i", data)[0]:
        piece = conn.recv(65536)
        if not piece:
            raise ConnectionError("closed")
        data += piece
    return data


def one_in_flight(leaders: list[tuple[str, int]], topic: str, connections: int, seconds: float) -> dict[str, float]:
    """Keep one Produce in flight on each connection, to the leader of its partition; count the responses for `seconds`."""
    selector = selectors.DefaultSelector()
    batch = one_record_batch(bytes(100))
    for i in range(connections):
        partition = i % len(leaders)
        conn = socket.create_connection(leaders[partition])
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        frame = produce_frame(topic, partition, batch)
        selector.register(conn, selectors.EVENT_READ, [conn, frame, b"", time.perf_counter()])
        conn.sendall(frame)
    done = errors = 0
    delays: list[float] = []
    client = ClientTime()
    while client.seconds < seconds:
        for key, _ in selector.select(0.5):
            state = key.data
            reply = state[2] + state[0].recv(4096)
            if len(reply) < 4 or len(reply) < 4 + struct.unpack_from(">i", reply)[0]:
                state[2] = reply
                continue
            errors += produce_error(reply, topic) != 0
            done += 1
            now = time.perf_counter()
            delays.append(now - state[3])
            state[2], state[3] = b"", now
            state[0].sendall(state[1])
    took, cores = client.seconds, client.cores
    delays.sort()
    return {
        "requests": done,
        "per_s": done / took,
        "client": cores,
        "errors": errors,
        "p50_ms": delays[len(delays) // 2] * 1e3,
        "p99_ms": delays[int(len(delays) * 0.99)] * 1e3,
    }


FETCH_BYTES = 1 << 20
#: size, correlation id, tags; throttle time, error, session; topics, the topic's id; partitions, index, error, watermarks, start, aborted
FETCHED = struct.Struct(">iiBihiB16sBihqqqB")


def topic_id(address: tuple[str, int], topic: str) -> bytes:
    """Return the topic's id, which Fetches of today's clients have in place of its name (KIP-516)."""
    from confluent_kafka import TopicCollection
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": f"{address[0]}:{address[1]}"})
    found = admin.describe_topics(TopicCollection([topic]))[topic].result(10).topic_id
    return struct.pack(">qq", found.get_most_significant_bits(), found.get_least_significant_bits())


def fetch_frame(topic_id: bytes, partition: int, offset: int, max_wait_ms: int = 500) -> bytes:
    """Return a complete Fetch v16 frame for one partition, of at most FETCH_BYTES, without a session, as librdkafka's are."""
    body = struct.pack(">iiibii", max_wait_ms, 1, FETCH_BYTES, 0, 0, -1) + b"\2" + topic_id + b"\2"
    body += struct.pack(">iiqiqi", partition, -1, offset, -1, -1, FETCH_BYTES)
    body += bytes([0, 0, 1, 1, 0])  # tags of both, no forgotten topics, no rack, tags
    head = struct.pack(">hhih", 1, 16, 1, 5) + b"bench\0"
    return struct.pack(">i", len(head) + len(body)) + head + body


def records_of(reply: bytearray | memoryview) -> tuple[int, int, int]:
    """Return the error code, and the position and end of the record batches, in a complete Fetch v16 response."""
    *_, error, _, _, _, aborted = FETCHED.unpack_from(reply)
    at = FETCHED.size + 17 * max(0, aborted - 1) + 4  # after the preferred replica
    size = shift = 0
    while reply[at] & 128:
        size |= (reply[at] & 127) << shift
        at, shift = at + 1, shift + 7
    size |= reply[at] << shift
    return error, at + 1, at + max(1, size)


def next_offset(reply: bytearray | memoryview, position: int, end: int) -> int:
    """Return the offset after the last complete batch; -1 if there is none."""
    found = -1
    while end - position >= 61:
        base, length = struct.unpack_from(">qi", reply, position)
        if position + 12 + length > end:
            break
        found = base + 1 + int(struct.unpack_from(">i", reply, position + 23)[0])
        position += 12 + length
    return found


def fan_out(leader: tuple[str, int], topic_id: bytes, connections: int, seconds: float) -> dict[str, float]:
    """Read one partition from its beginning, again and again, with `connections` consumers; only the headers of batches are
    decoded.
    """
    selector = selectors.DefaultSelector()
    for _ in range(connections):
        conn = socket.create_connection(leader)
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(conn, selectors.EVENT_READ, Reading(conn))
        conn.sendall(fetch_frame(topic_id, 0, 0, max_wait_ms=0))
    got = errors = requests = 0
    client = ClientTime()
    while client.seconds < seconds:
        for key, _ in selector.select(0.5):
            reading: Reading = key.data
            if not reading.read():
                continue
            error, position, end = records_of(reading.view)
            requests += 1
            errors += error != 0
            got += end - position
            offset = next_offset(reading.view, position, end)
            reading.have = 0
            reading.conn.sendall(fetch_frame(topic_id, 0, max(0, offset), max_wait_ms=0))
    took, cores = client.seconds, client.cores
    return {"mb_per_s": got / took / 1e6, "bytes": got, "requests": requests, "errors": errors, "client": cores}


class Reading:
    """A connection and the part of a response that has come."""

    def __init__(self, conn: socket.socket) -> None:
        self.conn = conn
        self.view = memoryview(bytearray(2 * FETCH_BYTES))
        self.have = 0

    def read(self) -> bool:
        """Receive once; return True if the response is complete."""
        self.have += self.conn.recv_into(self.view[self.have :])
        return self.have >= 4 and self.have >= 4 + int(struct.unpack_from(">i", self.view)[0])
