"""A Metadata response whose topics are bytes already (broker/all_topics.py), put between the fields before and behind them.

throttle_time_ms, brokers, cluster_id, controller_id | count of topics | topics | authorized operations, error_code, tags
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from struct import Struct
from typing import TypeAlias

from ottla.broker.all_topics import Rows
from ottla.protocol.compile import encode, encoder
from ottla.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from ottla.protocol.primitives import Pieces, uvarint
from ottla.protocol.schema import info_of

_COUNT = Struct(">i").pack


class EncodedMetadata:
    """An encoded Metadata response; `head` is the part before its topics."""

    __slots__ = ("head", "rows")

    def __init__(self, head: MetadataResponse, rows: Rows) -> None:
        self.head = head
        self.rows = rows

    @property
    def throttle_time_ms(self) -> int:
        return self.head.throttle_time_ms

    @throttle_time_ms.setter
    def throttle_time_ms(self, wait_ms: int) -> None:
        self.head = copy.copy(self.head)
        self.head.throttle_time_ms = wait_ms

    def only(self, is_visible: Callable[[str], bool]) -> EncodedMetadata:
        """Return a copy without the topics that the caller may not describe."""
        topics = [row for row in self.rows.topics if is_visible(row[0])]
        return EncodedMetadata(self.head, Rows(topics, b"".join([encoded for _, encoded in topics])))

    def plus(self, topics: list[MetadataResponseTopic], version: int) -> EncodedMetadata:
        """Return a copy with these topics appended."""
        more = [(topic.name or "", encode_topic(topic, version)) for topic in topics]
        joined = b"".join([self.rows.joined, *(encoded for _, encoded in more)])
        return EncodedMetadata(self.head, Rows([*self.rows.topics, *more], joined))


#: The response to Metadata, with topics as objects or as bytes.
Metadata: TypeAlias = MetadataResponse | EncodedMetadata


def encode_topic(topic: MetadataResponseTopic, version: int) -> bytes:
    behind = _bytes_behind(version)
    before = len(encode(MetadataResponse(), version)) - behind
    whole = encode(MetadataResponse(topics=[topic]), version)
    return whole[before : len(whole) - behind]


def encode_in_pieces(
    topic: MetadataResponseTopic, count: int, pieces: Iterable[list[MetadataResponsePartition]], version: int
) -> Iterator[bytes]:
    """The bytes of `encode_topic`, of a topic whose `count` partitions are made piece by piece. `topic` has none of them.

    error_code, name, id, internal | count of partitions | partitions | authorized operations, tags
    """
    flexible = version in info_of(MetadataResponse).flexible
    behind = (4 if version >= 8 else 0) + (1 if flexible else 0)
    empty = encode_topic(topic, version)
    before = len(empty) - behind - (1 if flexible else 4)
    yield empty[:before] + (uvarint(count + 1) if flexible else _COUNT(count))
    for partitions in pieces:
        topic.partitions = partitions
        encoded = encode_topic(topic, version)
        count_bytes = len(uvarint(len(partitions) + 1)) if flexible else 4
        yield encoded[before + count_bytes : len(encoded) - behind]
    yield empty[len(empty) - behind :]


def metadata_encoder(version: int) -> Callable[[Metadata, Pieces], None]:
    """Encodes a MetadataResponse, or an EncodedMetadata."""
    plain = encoder(MetadataResponse, version)
    behind = _bytes_behind(version)
    flexible = version in info_of(MetadataResponse).flexible
    count_bytes = 1 if flexible else 4

    def encode_either(answer: Metadata, parts: Pieces) -> None:
        if not isinstance(answer, EncodedMetadata):
            plain(answer, parts)
            return
        around: Pieces = []
        plain(answer.head, around)
        frame = b"".join(around)
        cut = len(frame) - behind
        topics = len(answer.rows.topics)
        count = uvarint(topics + 1) if flexible else _COUNT(topics)
        parts += (frame[: cut - count_bytes], count, answer.rows.joined, frame[cut:])

    return encode_either


def _bytes_behind(version: int) -> int:
    """Return the number of bytes of the fields that follow the topics."""
    return (4 if 8 <= version <= 10 else 0) + (2 if version >= 13 else 0) + (1 if version >= 9 else 0)
