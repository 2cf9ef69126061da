"""Metadata answers whose topics are bytes: all topics are encoded once for many clients, and put between the fields before and
after them.

    throttle_time_ms, brokers, cluster_id, controller_id | count of topics | topics | authorized operations, error_code, tags

A cluster of 5,000 partitions took 25 ms for each such response, and 20 clients that asked together held the loop for 0.7 s. So topics are
encoded one by one, a bounded number of partitions in a turn of the loop, and kept. A topic's bytes depend on its own image and, by the
brokers' addresses and fences, on the cluster's; on the version and on the listener. They are kept for each `View` (version and
listener) until either image changes, and a change of one partition costs one topic.
All clients that ask meanwhile share one pass. A pass is made of one image: who asks after a newer one arrived gets the next pass.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from struct import Struct
from typing import NamedTuple, TypeAlias

from ottla.broker.metadata_cache import MetadataCache
from ottla.controller.metadata.cluster import ClusterImage
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.metadata.topics import TopicImage
from ottla.protocol.compile import encode, encoder
from ottla.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from ottla.protocol.primitives import Pieces, uvarint
from ottla.protocol.schema import info_of
from ottla.protocol.work import Turn, Work
from ottla.server.clock import Clock, begin_in_turns
from ottla.server.tasks import isolated

log = logging.getLogger(__name__)

#: The limit of partitions in one turn. Encoding them takes about 3 ms.
PARTITIONS_PER_TURN = 500
#: Looking up this many kept topics takes as long as encoding one partition.
KEPT_PER_PARTITION = 10
#: Versions and listeners in use at the same time. A view of 5,000 partitions takes half a megabyte.
VIEWS_MAX = 8


class View(NamedTuple):
    """The fields of a topic that differ between clients."""

    version: int
    listener: str


class Rows(NamedTuple):
    """The topics of one image, encoded: name and bytes of each, and all bytes in one piece."""

    topics: list[tuple[str, bytes]]
    joined: bytes


def rows_of(topics: list[tuple[str, bytes]]) -> Rows:
    return Rows(topics, b"".join([encoded for _, encoded in topics]))


#: Encodes a topic for a view, in pieces of PARTITIONS_PER_TURN at most; one is created for each cluster image.
EncodeTopic = Callable[[TopicImage], Iterator[bytes]]
#: Takes the rows, or None when encoding them has failed.
Done = Callable[[Rows | None], None]


@dataclass(slots=True, eq=False)
class _Pass:
    """The encoded topics of one view, and the pass that encodes them."""

    cluster: ClusterImage | None = None
    encode: EncodeTopic | None = None
    kept: dict[bytes, tuple[TopicImage, bytes]] = field(default_factory=dict)
    rows: Rows | None = None
    #: The image that `rows` encode, or will encode.
    image: MetadataImage | None = None
    is_running: bool = False
    waiting: list[Done] = field(default_factory=list)
    waiting_for_next: list[Done] = field(default_factory=list)


class AllTopics:
    """The encoded topics of a broker, and the turns in which they are encoded."""

    def __init__(self, metadata: MetadataCache, clock: Clock, encode_for: Callable[[View], EncodeTopic]) -> None:
        self._metadata = metadata
        self._clock = clock
        self._encode_for = encode_for
        self._passes: dict[View, _Pass] = {}

    def when_encoded(self, view: View, done: Done) -> None:
        """Call back with the topics of the newest image: at once if they are kept, or few enough for one turn."""
        image = self._metadata.image
        made = self._passes.get(view)
        if made is None:
            self._make_room()
            made = self._passes[view] = _Pass()
        if made.is_running:
            (made.waiting if _is_same(made.image, image) else made.waiting_for_next).append(done)
        elif made.rows is not None and _is_same(made.image, image):
            done(made.rows)
        else:
            made.waiting.append(done)
            self._begin(view, made)

    def _make_room(self) -> None:
        if len(self._passes) >= VIEWS_MAX:
            idle = next((view for view, made in self._passes.items() if not made.is_running), None)
            if idle is not None:
                del self._passes[idle]

    def _begin(self, view: View, made: _Pass) -> None:
        image = self._metadata.image
        if made.encode is None or made.cluster is not image.cluster:
            made.cluster, made.encode = image.cluster, self._encode_for(view)
            made.kept.clear()
        made.image, made.rows, made.is_running = image, None, True
        begin_in_turns(self._clock, self._encode(view, made))

    def _encode(self, view: View, made: _Pass) -> Work[None]:
        try:
            yield from self._encode_topics(made)
        except Exception:
            log.exception("Topics could not be encoded for %s", view)
            del self._passes[view]
            for done in [*made.waiting, *made.waiting_for_next]:
                isolated(done, None)
            return
        self._end(view, made)

    @staticmethod
    def _encode_topics(made: _Pass) -> Work[None]:
        assert made.image is not None and made.encode is not None
        turn = Turn(PARTITIONS_PER_TURN * KEPT_PER_PARTITION)
        for topic in made.image.topics:
            known = made.kept.get(topic.id)
            if known is None or known[0] is not topic:
                pieces = []
                for piece in made.encode(topic):
                    pieces.append(piece)
                    if turn.spend(min(len(topic.partitions), PARTITIONS_PER_TURN) * KEPT_PER_PARTITION):
                        yield None
                made.kept[topic.id] = (topic, b"".join(pieces))
            if turn.spend(1):
                yield None

    def _end(self, view: View, made: _Pass) -> None:
        assert made.image is not None
        made.kept = {topic.id: made.kept[topic.id] for topic in made.image.topics}
        made.rows = rows = rows_of([(topic.name, encoded) for topic, encoded in made.kept.values()])
        made.is_running = False
        waiting, made.waiting, made.waiting_for_next = made.waiting, made.waiting_for_next, []
        for done in waiting:
            isolated(done, rows)
        if made.waiting and not made.is_running:
            self._begin(view, made)


def _is_same(image: MetadataImage | None, other: MetadataImage) -> bool:
    return image is not None and image.topics is other.topics and image.cluster is other.cluster


_COUNT = Struct(">i").pack


@dataclass(slots=True)
class EncodedMetadata:
    """An encoded Metadata response; `head` is the part before its topics."""

    head: MetadataResponse
    rows: Rows

    @property
    def throttle_time_ms(self) -> int:
        return self.head.throttle_time_ms

    @throttle_time_ms.setter
    def throttle_time_ms(self, wait_ms: int) -> None:
        self.head = copy.copy(self.head)
        self.head.throttle_time_ms = wait_ms

    def only(self, is_visible: Callable[[str], bool]) -> EncodedMetadata:
        """Return a copy without the topics that the caller may not describe."""
        return EncodedMetadata(self.head, rows_of([row for row in self.rows.topics if is_visible(row[0])]))

    def plus(self, topics: list[MetadataResponseTopic], version: int) -> EncodedMetadata:
        """Return a copy with these topics appended."""
        more = [(topic.name or "", encode_topic(topic, version)) for topic in topics]
        return EncodedMetadata(self.head, rows_of([*self.rows.topics, *more]))


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
    """Yield the same bytes as `encode_topic`, for `topic`, which has no partitions yet, with the `count` partitions that
    `pieces` yields.

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
    """Encode a MetadataResponse, or an EncodedMetadata."""
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
