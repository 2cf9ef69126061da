"""kafka-console-producer: lines of standard input become records."""

from __future__ import annotations

import sys

from ottla.cli.errors import CommandFailed
from ottla.cli.lines import read_lines
from ottla.cli.shims.exceptions import exception
from ottla.cli.shims.tool import ToolParser, client_properties, deprecated, key_values, with_cluster
from ottla.client.cluster import ClusterClient
from ottla.client.failures import Failure
from ottla.client.producer import ClusterProducer
from ottla.protocol.records.compression import CODEC_IDS
from ottla.protocol.records.record import NewRecord

#: Options that Kafka deprecates, and the options that it recommends.
OLD = {"property": "reader-property", "producer-property": "command-property", "producer.config": "command-config"}
#: The only line reader that is supported.
LINE_READER = "org.apache.kafka.tools.LineMessageReader"
_OWN = "The client decides about sizes and times itself."
_ALWAYS = "The tool always waits for acks=all, after each chunk of lines."
#: The values of --request-required-acks. With each of them the tool waits for all replicas.
ACKS = ("all", "-1", "0", "1")
#: Options that are accepted but have no effect, with the reason.
WITHOUT_EFFECT = {
    "sync": _ALWAYS,
    "batch-size": _OWN,
    "timeout": _OWN,
    "max-block-ms": _OWN,
    "max-memory-bytes": _OWN,
    "message-send-max-retries": _OWN,
    "request-timeout-ms": _OWN,
    "retry-backoff-ms": _OWN,
    "socket-buffer-size": _OWN,
    "metadata-expiry-ms": _OWN,
    "max-partition-memory-bytes": _OWN,
}


class LineReader:
    """A reader that makes a record of each line, as the reader's properties say."""

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
                headers.append(((name or b"").decode(), self._value(value)))
        key: bytes | None = None
        if self.parse_key:
            text, rest = self._cut(rest, self.key_separator, "key separator", number)
            key = None if text is None else self._value(text)
        return NewRecord(key, self._value(rest), now_ms, tuple(headers))

    def _cut(self, text: bytes, separator: bytes, what: str, number: int) -> tuple[bytes | None, bytes]:
        """Return the text before and after the separator.

        If there is no separator and ignore.error is set, return None and the whole text.
        """
        before, found, after = text.partition(separator)
        if not found:
            if self.ignore_error:
                return None, text
            line = text.decode(errors="replace")
            wrong = f"No {what} found on line number {number}: '{line}'"
            raise CommandFailed(f"org.apache.kafka.common.KafkaException: {wrong}")
        return before, after

    def _value(self, text: bytes) -> bytes | None:
        return None if text == self.null_marker else text


def main(arguments: list[str]) -> int:
    parser = ToolParser("kafka-console-producer", "Read data from standard input and publish it to Kafka.")
    parser.missing_bootstrap = "Error while validating the bootstrap address"
    parser.add_bootstrap(old_names=("--producer.config",))
    parser.texts("topic", "reader-config", "line-reader")
    parser.lists("property", "reader-property", "producer-property", "command-property")
    parser.add_argument("--compression-codec", nargs="?", const="gzip")
    parser.flags("sync")
    parser.texts("request-required-acks", *(name for name in WITHOUT_EFFECT if name != "sync"))
    options = parser.parse(arguments)
    deprecated(options, OLD)
    if options.line_reader not in (None, LINE_READER):
        print(options.line_reader, file=sys.stderr)  # it is the message of a ClassNotFoundException
        return 1
    parser.require(options, "topic")
    parser.check_servers(options.bootstrap_server)
    configs = client_properties(options.reader_config)
    reader = LineReader({**configs, **key_values([*options.property, *options.reader_property])})
    codec = options.compression_codec or options.client_properties.get("compression.type") or "none"
    for name, value, known in (("compression.type", codec, CODEC_IDS), ("acks", options.request_required_acks, ACKS)):
        if value is not None and value not in known:
            wrong = f"Invalid value {value} for configuration {name}: String must be one of: {', '.join(known)}"
            print(f"org.apache.kafka.common.config.ConfigException: {wrong}", file=sys.stderr)
            return 1

    async def produce(cluster: ClusterClient) -> int:
        producer = ClusterProducer(cluster, options.topic, compression=CODEC_IDS[codec])
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
    except Failure as failure:
        print(exception(failure) if failure.code is not None else failure.cause, file=sys.stderr)
        return 1
