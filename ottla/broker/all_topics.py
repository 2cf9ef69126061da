"""Metadata answers for all topics: encoded topic by topic, a bounded number of partitions per turn of the loop, and kept.

A cluster of 5,000 partitions took 25 ms for each such response, and 20 clients that asked together held the loop for 0.7 s. A topic's
bytes depend on its own image and, by the brokers' addresses and fences, on the cluster's; on the version and on the listener. So
they are kept for each `View` (version and listener) until either image changes, and a change of one partition costs one topic.
All clients that ask meanwhile share one pass. A pass is made of one image: who asks after a newer one arrived gets the next pass.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ottla.broker.metadata_cache import MetadataCache
from ottla.controller.metadata.cluster import ClusterImage
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.metadata.topics import TopicImage
from ottla.protocol.work import Work
from ottla.server.clock import Clock
from ottla.server.isolation import isolated
from ottla.server.turns import begin_in_turns

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


#: Encodes a topic for a view, in pieces of PARTITIONS_PER_TURN at most; one is created for each cluster image.
EncodeTopic = Callable[[TopicImage], Iterator[bytes]]
#: Takes the rows, or None when encoding them has failed.
Done = Callable[[Rows | None], None]


class _Pass:
    """The encoded topics of one view, and the pass that encodes them."""

    def __init__(self) -> None:
        self.cluster: ClusterImage | None = None
        self.encode: EncodeTopic | None = None
        self.kept: dict[bytes, tuple[TopicImage, bytes]] = {}
        self.rows: Rows | None = None
        #: The image that `rows` encode, or will encode.
        self.image: MetadataImage | None = None
        self.is_running = False
        self.waiting: list[Done] = []
        self.waiting_for_next: list[Done] = []


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
        left = PARTITIONS_PER_TURN * KEPT_PER_PARTITION
        for topic in made.image.topics:
            known = made.kept.get(topic.id)
            left -= 1
            if known is None or known[0] is not topic:
                pieces = []
                for piece in made.encode(topic):
                    pieces.append(piece)
                    left -= min(len(topic.partitions), PARTITIONS_PER_TURN) * KEPT_PER_PARTITION
                    if left <= 0:
                        yield None
                        left = PARTITIONS_PER_TURN * KEPT_PER_PARTITION
                made.kept[topic.id] = (topic, b"".join(pieces))
            if left <= 0:
                yield None
                left = PARTITIONS_PER_TURN * KEPT_PER_PARTITION

    def _end(self, view: View, made: _Pass) -> None:
        assert made.image is not None
        made.kept = {topic.id: made.kept[topic.id] for topic in made.image.topics}
        topics = [(topic.name, encoded) for topic, encoded in made.kept.values()]
        made.rows = rows = Rows(topics, b"".join([encoded for _, encoded in topics]))
        made.is_running = False
        waiting, made.waiting, made.waiting_for_next = made.waiting, made.waiting_for_next, []
        for done in waiting:
            isolated(done, rows)
        if made.waiting and not made.is_running:
            self._begin(view, made)


def _is_same(image: MetadataImage | None, other: MetadataImage) -> bool:
    return image is not None and image.topics is other.topics and image.cluster is other.cluster
