"""The producer epochs of records that stand twice in a log: whether the broker or the client wrote them again.

A broker recognises a batch that comes again by its producer id, epoch and sequence number. librdkafka may send the next batch to a new
leader before one that the former leader did not answer; it is rejected with OUT_OF_ORDER_SEQUENCE_NUMBER, as it has to be. librdkafka
then raises its producer epoch and writes again what was under way, although the new leader may have it (its issue 4953): no
broker can recognise it as the same. With one request in flight it happens too, but rarely.
"""

from __future__ import annotations

from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.records.batch import iter_batches
from tests.broker.wire import Wire

METADATA_VERSION, FETCH_VERSION = 9, 12  # versions that name topics


def producer_epoch(bootstrap: str, topic: str, partition: int, offset: int) -> int:
    """Return the producer epoch of the batch that has this offset."""
    host, _, port = bootstrap.split(",")[0].rpartition(":")
    with Wire(int(port), host) as wire:
        metadata = wire.request(MetadataRequest([MetadataRequestTopic(name=topic)]), METADATA_VERSION)
    leader = {part.partition_index: part.leader_id for part in metadata.topics[0].partitions}[partition]
    ((host, port),) = ((broker.host, broker.port) for broker in metadata.brokers if broker.node_id == leader)
    # At least one complete batch is returned.
    asked = FetchPartition(partition, fetch_offset=offset, partition_max_bytes=1)
    with Wire(int(port), host) as wire:
        answer = wire.request(FetchRequest(topics=[FetchTopic(topic, partitions=[asked])]), FETCH_VERSION)
    (found,) = answer.responses[0].partitions
    assert not found.error_code, found
    return next(iter_batches(found.records)).producer_epoch
