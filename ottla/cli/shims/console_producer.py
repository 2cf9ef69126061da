"""kafka-console-producer: lines of standard input become records."""

from __future__ import annotations

import sys

from ottla.cli.client.cluster import ClusterClient
from ottla.cli.client.producer import Producer
from ottla.cli.errors import CommandFailed
from ottla.cli.lines import read_lines
from ottla.cli.shims.exceptions import reason
from ottla.cli.shims.tool import Parser, pairs, with_cluster
from ottla.protocol.records import NewRecord
from ottla.protocol.records.compression import CODEC_IDS


class Reader:
    """A line to a record, as the reader's properties say."""

    def __init__(self, properties: dict[str, str]) -> None:
        self.parse_key = properties.get("parse.key", "false").lower() == "true"
        self.parse_headers = properties.get("parse.headers", "false").lower() == "true"
        self.ignore_error = properties.get("ignore.error", "false").lower() == "true"
        self.key_separator = properties.get("key.separator", "\t").encode()
        self.headers_delimiter = properties.get("headers.delimiter", "\t").encode()
        self.headers_separator = properties.get("headers.separator", ",").encode()
        self.headers_key_separator = properties.get("headers.key.separator", ":").encode()
        marker = properties.get("null.marker")
        self.null_marker = None if marker is None else marker.encode()

    def read(self, line: bytes, number: int, now_ms: int) -> NewRecord:
        headers: list[tuple[str, bytes | None]] = []
        rest = line
        if self.parse_headers:
            text, rest = self._cut(rest, self.headers_delimiter, "headers delimiter", number)
            for part in text.split(self.headers_separator) if text else []:
                name, value = self._cut(part, self.headers_key_separator, "header key separator", number)
                headers.append((name.decode(), self._value(value)))
        key: bytes | None = None
        if self.parse_key:
            text, rest = self._cut(rest, self.key_separator, "key separator", number)
            key = self._value(text)
        return NewRecord(key, self._value(rest), now_ms, tuple(headers))

    def _cut(self, text: bytes, separator: bytes, what: str, number: int) -> tuple[bytes, bytes]:
        before, found, after = text.partition(separator)
        if not found:
            if self.ignore_error:
                return b"", text
            raise CommandFailed(f"No {what} found on line number {number}: '{text.decode(errors='replace')}'")
        return before, after

    def _value(self, text: bytes) -> bytes | None:
        return None if text == self.null_marker else text


def main(arguments: list[str]) -> int:
    parser = Parser("kafka-console-producer", "Read data from standard input and publish it to Kafka.")
    parser.add_bootstrap(old_names=("--producer.config",))
    parser.add_argument("--topic")
    parser.add_argument("--property", "--reader-property", action="append", dest="properties")
    parser.add_argument("--producer-property", "--command-property", action="append", dest="producer_properties")
    parser.add_argument("--compression-codec", nargs="?", const="gzip", default="none", choices=sorted(CODEC_IDS))
    # These options have no effect, because acks=all and a wait after each chunk of lines are always used.
    parser.add_argument("--sync", action="store_true")
    for name in ("request-required-acks", "batch-size", "timeout", "max-block-ms", "max-memory-bytes", "line-reader"):
        parser.add_argument(f"--{name}")
    for name in ("message-send-max-retries", "request-timeout-ms", "retry-backoff-ms", "socket-buffer-size"):
        parser.add_argument(f"--{name}")
    options = parser.parse(arguments)
    parser.require(options, "topic")
    reader = Reader(pairs(options.properties))

    async def produce(cluster: ClusterClient) -> int:
        producer = Producer(cluster, options.topic, compression=CODEC_IDS[options.compression_codec])
        async with cluster.limit():
            await producer.start()
        number = 0
        async for lines in read_lines(sys.stdin.fileno()):
            for line in lines:
                number += 1
                await producer.send(reader.read(line, number, cluster.world.clock.wall_ms()))
            async with cluster.limit():
                await producer.flush()
        return 0

    try:
        return with_cluster(options, produce, limited=False)
    except CommandFailed as failure:
        print(reason(failure), file=sys.stderr)
        return 1
