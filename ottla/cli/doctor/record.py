"""A record's way through the cluster, for `ottla doctor`: the permissions of a topic, a record that is written and read back,
and the clocks.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.cli.doctor.findings import DoctorFinding
from ottla.cli.errors import CommandFailed
from ottla.client import topics
from ottla.client.cluster import ClusterClient
from ottla.client.consumer import Consumer
from ottla.client.errors import check
from ottla.client.failures import Failure
from ottla.client.producer import ClusterProducer
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.records.record import NewRecord

PREFIX = "ottla-doctor-"
#: Bits of the authorized operations (KIP-430).
READ, WRITE = 3, 4
OPERATIONS_UNKNOWN = -0x8000_0000
CLOCK_MS_MAX = 1_000
#: The longest time for each step of a record: the doctor shall answer while a user waits.
RECORD_MS_MAX = 10_000

Passed = Callable[[str], None]


async def check_permissions(cluster: ClusterClient, name: str, passed: Passed) -> list[DoctorFinding]:
    """Check what this user may do with a topic."""
    cluster.doing = f"asking for the permissions of topic {name}"
    request = MetadataRequest(
        [MetadataRequestTopic(name=name)], allow_auto_topic_creation=False, include_topic_authorized_operations=True
    )
    topic = (await cluster.request(request)).topics[0]
    place = f"topic {name}"
    if topic.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED):
        return [DoctorFinding("no-such-topic", place, ErrorCode(topic.error_code).message)]
    check(place, topic.error_code)
    bits = topic.topic_authorized_operations
    if bits == OPERATIONS_UNKNOWN:
        return []
    found = []
    if not bits & 1 << READ:
        found.append(DoctorFinding("topic-not-readable", place, "Read is not among the operations that are allowed"))
    if not bits & 1 << WRITE:
        found.append(DoctorFinding("topic-not-writable", place, "Write is not among the operations that are allowed"))
    if not found:
        passed(f"{place} may be read and written")
    return found


async def check_record(cluster: ClusterClient, passed: Passed) -> list[DoctorFinding]:
    """Write a record to a topic that is made for it, read it back, and compare the clocks by its timestamp."""
    try:
        async with cluster.limit():
            name = await topics.create_own_topic(cluster, PREFIX, 1, -1, {"message.timestamp.type": "LogAppendTime"})
    except Failure as failure:
        refused = failure.code in (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return [DoctorFinding("no-test-topic" if refused else "record-not-written", f"topic {PREFIX}*", failure.cause)]
    try:
        return await _round_trip(cluster, name, passed)
    finally:
        async with cluster.limit():
            await topics.delete_topics(cluster, [name])


async def _round_trip(cluster: ClusterClient, name: str, passed: Passed) -> list[DoctorFinding]:
    clock, place = cluster.world.clock, f"topic {name}"
    less_ms = min(0, RECORD_MS_MAX - cluster.timeout_ms)
    producer = ClusterProducer(cluster, name)
    try:
        async with cluster.limit(less_ms):
            await producer.start()
            began_ns, began_ms = clock.mono_ns(), clock.wall_ms()
            await producer.send(NewRecord(b"ottla", b"doctor", began_ms))
            await producer.flush()
            written_ns, written_ms = clock.mono_ns(), clock.wall_ms()
    except (Failure, TimeoutError) as failure:
        cause = failure.cause if isinstance(failure, CommandFailed) else f"no acknowledgement while {cluster.doing}"
        return [DoctorFinding("record-not-written", place, cause)]
    consumer = Consumer(cluster, {(name, 0): 0})
    try:
        async with cluster.limit(less_ms):
            while not (consumed := await consumer.poll()):
                pass
    except (Failure, TimeoutError) as failure:
        cause = failure.cause if isinstance(failure, CommandFailed) else f"no record while {cluster.doing}"
        return [DoctorFinding("record-not-read", place, cause)]
    passed(
        f"a record was written in {(written_ns - began_ns) / 1e6:.1f} ms (acks=all) "
        f"and read after {(clock.mono_ns() - written_ns) / 1e6:.1f} ms"
    )
    return clock_difference(consumed[0].records[0].timestamp, began_ms, written_ms)


def clock_difference(appended_ms: int, began_ms: int, acknowledged_ms: int) -> list[DoctorFinding]:
    """Return the finding about a broker's clock. `appended_ms` is its time between two times of this machine."""
    difference = appended_ms - began_ms if appended_ms < began_ms else max(0, appended_ms - acknowledged_ms)
    if abs(difference) <= CLOCK_MS_MAX:
        return []
    word = "ahead of" if difference > 0 else "behind"
    return [
        DoctorFinding("clock-differs", "the leader's broker", f"{abs(difference) / 1000:.1f} s {word} this machine")
    ]
