"""Produces to one node, even if it does not lead: its responses are those for a client that knows only this node."""

from __future__ import annotations

from contextlib import suppress

from ottla.protocol.api import APIS, ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.records import batch
from tests.broker.wire import Wire
from tests.chaos.history import Record, encode

VERSION = 9  # the last of the versions that name topics
ALL, LEADER = -1, 1


class DirectProducer:
    """A connection to one node. Its records carry a producer number of their own, so that they can be distinguished in
    the log.
    """

    def __init__(self, port: int, topic: str, number: int, host: str = "127.0.0.1") -> None:
        self.number = number
        self.sent = 0
        self._topic = topic
        self._wire = Wire(port, host)

    def send(self, acks: int, count: int = 1, timeout_ms: int = 5_000, padding: int = 0) -> None:
        """Send one batch to partition 0. `answer` returns the result."""
        records = batch([encode(Record(self.number, self.sent + i)) + bytes(padding) for i in range(count)])
        self.sent += count
        data = TopicProduceData(name=self._topic, partition_data=[PartitionProduceData(index=0, records=records)])
        with suppress(ConnectionError):
            self._wire.send(ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[data]), VERSION)

    def answer(self, seconds: float = 10) -> ErrorCode | None:
        """Return the response; None if nothing came in that time or the connection was closed."""
        self._wire.sock.settimeout(seconds)
        try:
            answer = self._wire.receive(APIS[ApiKey.PRODUCE].key, VERSION)
        except (TimeoutError, ConnectionError):
            return None
        return ErrorCode(answer.responses[0].partition_responses[0].error_code)

    def produce(self, acks: int, count: int = 1, padding: int = 0) -> ErrorCode | None:
        self.send(acks, count, padding=padding)
        return self.answer()

    def close(self) -> None:
        self._wire.sock.close()
