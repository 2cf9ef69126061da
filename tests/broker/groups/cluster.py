"""The topics that groups see, made of names and numbers of partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from immutables import Map

from ottla.broker.groups.config import ConsumerGroupSettings
from ottla.broker.groups.shard import ClusterView
from ottla.controller.metadata.partitions import PartitionRegistration
from ottla.controller.metadata.topics import TopicImage, TopicsImage

PARTITION = PartitionRegistration((1,), (1,))


def id_of(name: str) -> bytes:
    return name.encode().rjust(16, b"\0")


def topics_image(counts: Mapping[str, int], other_ids: Iterable[bytes] = ()) -> TopicsImage:
    """`other_ids` are topics of which only the id matters."""
    topics = [TopicImage(name, id_of(name), Map(dict.fromkeys(range(n), PARTITION))) for name, n in counts.items()]
    topics += [TopicImage(topic_id.hex(), topic_id, Map()) for topic_id in other_ids]
    return TopicsImage(Map({topic.id: topic for topic in topics}), Map({topic.name: topic.id for topic in topics}))


def cluster_of(
    topics: Callable[[], TopicsImage] = TopicsImage, settings: ConsumerGroupSettings | None = None
) -> ClusterView:
    return ClusterView(
        topics, lambda group_id: settings or ConsumerGroupSettings(), lambda group_id: ConsumerGroupSettings()
    )
