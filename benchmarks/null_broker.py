"""A broker that keeps nothing, for clients of librdkafka: `python -m benchmarks.null_broker PORT`. It is the client's ceiling.

A Produce is acknowledged as soon as its last byte was received, into one buffer, without a copy, a CRC or a file. A Fetch waits for
the next Produce and gets its batch, so that a message can go from end to end. With no server can a client be faster: where a
row of `make bench` is close to its figure, the row measures the client.
"""

from __future__ import annotations

import asyncio
import sys
from struct import Struct, pack, pack_into
from typing import cast

import uvloop

from ottla.protocol.api import ApiKey
from ottla.protocol.compile import decode, encode
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

#: One version of each API, so that requests can be read by fixed positions. librdkafka accepts zstd in a Fetch from v10 on.
VERSIONS = {ApiKey.PRODUCE: 7, ApiKey.FETCH: 10, ApiKey.LIST_OFFSETS: 1, ApiKey.METADATA: 4, ApiKey.API_VERSIONS: 0}
UNSUPPORTED_VERSION = 35
PARTITIONS = 6
BUFFER_BYTES = 8 << 20
HEADER = Struct(">ihhih")  # size, API key, version, correlation id, length of the client id
INT16, INT32 = Struct(">h").unpack_from, Struct(">i").unpack_from


class Waiting:
    """The Fetch of the only consumer, and the batches that came while no Fetch waited."""

    def __init__(self) -> None:
        self.next_offset = 0
        self.wanted: tuple[Client, int, int, bytes, int] | None = None
        self.batches: list[bytes] | None = None  # None until the first Fetch

    def produced(self, batch: memoryview) -> None:
        if self.batches is None:
            return
        pack_into(">q", batch, 0, self.next_offset)
        self.next_offset += INT32(batch, 23)[0] + 1
        self.batches.append(bytes(batch))
        self.answer()

    def answer(self) -> None:
        if self.wanted is None or not self.batches:
            return
        (client, version, correlation_id, topic, partition), self.wanted = self.wanted, None
        records, self.batches = b"".join(self.batches), []
        # throttle time; error and session; one topic; one partition: index, error, watermarks; log start; no aborted ones
        body = pack(">ii", correlation_id, 0) + (bytes(6) if version >= 7 else b"") + pack(">ih", 1, len(topic)) + topic
        body += pack(">iihqq", 1, partition, 0, self.next_offset, self.next_offset) + (
            bytes(8) if version >= 5 else b""
        )
        body += pack(">ii", -1, len(records)) + records
        client.write(pack(">i", len(body)) + body)


class Client(asyncio.BufferedProtocol):
    def __init__(self, port: int, waiting: Waiting) -> None:
        self.port, self.waiting = port, waiting
        self.view, self.have = memoryview(bytearray(BUFFER_BYTES)), 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.write = cast(asyncio.Transport, transport).write
        self.writelines = cast(asyncio.Transport, transport).writelines

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.view[self.have :]

    def buffer_updated(self, nbytes: int) -> None:
        """Read all complete requests in the buffer: a client may have several in flight."""
        self.have += nbytes
        begin = 0
        while self.have - begin >= 4 and self.have - begin >= (size := INT32(self.view, begin)[0] + 4):
            self.handle(self.view[begin : begin + size])
            begin += size
        left = self.have - begin
        if begin and left:
            self.view[:left] = bytes(self.view[begin : self.have])
        self.have = left

    def handle(self, frame: memoryview) -> None:
        _, key, version, correlation_id, client_id_bytes = HEADER.unpack_from(frame)
        at = HEADER.size + max(0, client_id_bytes)
        match key:
            case ApiKey.PRODUCE:
                at += 2 + 2 + 4 + 4  # transactional id (none), acks, timeout, one topic
                size = INT16(frame, at)[0]
                topic, at = bytes(frame[at : at + 2 + size]), at + 2 + size + 4
                partition = bytes(frame[at : at + 4])
                self.waiting.produced(frame[at + 8 :])
                body = b"\0\0\0\1" + topic + b"\0\0\0\1" + partition + b"\0\0" + bytes(8) + b"\xff" * 8 + bytes(12)
            case ApiKey.FETCH:
                # replica id, wait, minimum, maximum, isolation level; session; one topic
                at += 17 + (8 if version >= 7 else 0) + 4
                size = INT16(frame, at)[0]
                name, at = bytes(frame[at + 2 : at + 2 + size]), at + 2 + size + 4
                self.waiting.wanted = self, version, correlation_id, name, INT32(frame, at)[0]
                self.waiting.batches = self.waiting.batches or []
                self.waiting.answer()
                return
            case ApiKey.LIST_OFFSETS:
                body = encode(self.offsets(decode(ListOffsetsRequest, bytes(frame[at:]), version)), version)
            case ApiKey.METADATA:
                body = encode(self.metadata(decode(MetadataRequest, bytes(frame[at:]), version)), version)
            case ApiKey.API_VERSIONS:
                keys = [ApiVersion(api_key=key, min_version=v, max_version=v) for key, v in VERSIONS.items()]
                body = encode(ApiVersionsResponse(UNSUPPORTED_VERSION if version else 0, keys), 0)
            case _:
                raise ValueError(f"API {key} is not advertised")
        self.write(pack(">ii", 4 + len(body), correlation_id) + body)

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        """Return each requested topic as one that exists, with PARTITIONS partitions."""
        own = {"leader_id": 1, "replica_nodes": [1], "isr_nodes": [1]}
        partitions = [MetadataResponsePartition(partition_index=i, **own) for i in range(PARTITIONS)]
        topics = [MetadataResponseTopic(name=topic.name, partitions=partitions) for topic in request.topics or []]
        broker = MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port)
        return MetadataResponse(brokers=[broker], cluster_id="null", controller_id=1, topics=topics)

    def offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        """Return the end of the only log."""
        [topic] = request.topics
        index, end = topic.partitions[0].partition_index, self.waiting.next_offset
        partition = ListOffsetsPartitionResponse(partition_index=index, offset=end)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=topic.name, partitions=[partition])])


async def serve(port: int) -> None:
    waiting = Waiting()
    server = await asyncio.get_running_loop().create_server(lambda: Client(port, waiting), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
