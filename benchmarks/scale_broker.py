"""The broker's side of `benchmarks.scale`: one of 50 brokers takes over its share of the metadata, and answers clients from it.

The broker is a real one on the simulator's disk and network, where making a file costs no system call.
"""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable, Iterator
from random import Random

from benchmarks.scale_turns import BROKERS, Figures, due, topics
from ottla.broker.api.metadata import encoder_of_topics
from ottla.broker.broker_node import BrokerNode
from ottla.broker.encoded_metadata import AllTopics, EncodedMetadata, Rows, View, metadata_encoder
from ottla.controller.metadata.image import MetadataDelta, MetadataImage
from ottla.controller.metadata.loader import new_turn
from ottla.protocol.messages.metadata import MetadataResponse
from ottla.protocol.primitives import Pieces
from ottla.protocol.work import Work
from tests.controller.harness import DecisionHarness
from tests.manual_clock import ManualClock
from tests.sim.cluster import SimCluster
from tests.sim.loop import run

VIEW = View(13, "PLAINTEXT")


def measure_broker(figures: Figures, partitions: int, of_a_topic: int) -> None:
    async def measured(broker: BrokerNode) -> None:
        image = image_of(broker.metadata.image, partitions, of_a_topic)
        gc.collect()
        figures.heap("(heap of the image on the broker, and of the simulator, MB)")
        figures.turns("a broker's publisher: the delta of the image", introduced(broker, image))
        gc.collect()
        figures.number("partitions of which this broker has a replica", sum(1 for _ in broker.replicas))
        figures.heap("heap of their replicas and logs, without files, MB")
        every_topic(figures, broker)

    on_a_broker(measured)


def on_a_broker(story: Callable[[BrokerNode], Awaitable[None]]) -> None:
    async def main() -> None:
        cluster = SimCluster(Random(1), {1: "broker,controller"}, {})
        cluster.start()
        assert await cluster.all_serve(10)
        server = cluster.nodes[0].server
        assert server is not None and server.broker is not None
        await story(server.broker)

    run(main())


def image_of(image: MetadataImage, partitions: int, of_a_topic: int) -> MetadataImage:
    """Return the image of this broker with 49 others and the topics."""
    (own,) = image.cluster.brokers.values()
    delta = MetadataDelta(image)
    others = DecisionHarness(BROKERS).image.cluster.brokers
    delta.replay_all(others[broker_id].to_record() for broker_id in range(2, BROKERS + 1))
    delta.replay_all(topics(partitions, of_a_topic, directory_of_1=own.directories[0]))
    return delta.apply(image.offset + partitions, image.epoch)


def introduced(broker: BrokerNode, image: MetadataImage) -> Iterator[None]:
    delta = yield from MetadataDelta.of_everything(image, new_turn())
    work: Work[None] = broker.publisher.on_metadata_update(delta, image)
    yield from work


def every_topic(figures: Figures, broker: BrokerNode) -> None:
    clock, found = ManualClock(), []
    components = broker.components
    every = AllTopics(broker.metadata, clock, lambda view: encoder_of_topics(components, view))

    def asked() -> Iterator[None]:
        every.when_encoded(VIEW, found.append)
        yield
        yield from due(clock)

    figures.turns("Metadata of all topics: encoded for the first client", asked())
    rows = found.pop()
    assert isinstance(rows, Rows)
    frame: Pieces = []

    def answered() -> Iterator[None]:
        metadata_encoder(VIEW.version)(EncodedMetadata(MetadataResponse(), rows), frame)
        b"".join(frame)
        yield

    figures.turns("Metadata of all topics: each further client", answered())
    figures.number("Metadata of all topics: MB of a response", sum(map(len, frame)) / 1e6)

    def filtered() -> Iterator[None]:
        EncodedMetadata(MetadataResponse(), rows).only(lambda name: name.endswith("0"))
        yield

    figures.turns("Metadata of all topics: for a client that may see a tenth of them", filtered())
