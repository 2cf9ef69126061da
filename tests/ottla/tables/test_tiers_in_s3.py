"""Remote segments in S3: they are copied, read and deleted, and what is wrong with the bucket is said and harms nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from ottla.broker.tiers.local_layout import LocalLayout
from ottla.broker.tiers.objects import OWNER, SegmentLayout
from ottla.broker.tiers.rsm_layout import RsmLayout
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import iter_batches
from ottla.server.config.rsm_settings import RsmSettings
from tests.broker.tiers.harness import TierHarness
from tests.broker.tiers.test_orphans import AGE_MS, KEPT, LEFT, Sweeps
from tests.broker.tiers.test_remote_segments import PLACE
from tests.needs import needs_packages
from tests.ottla.tables.conftest import BUCKET, S3Server
from tests.storage.logs_for_tests import SMALL

needs_packages("obstore", "moto", "flask")

LAYOUTS = [LocalLayout(), RsmLayout(RsmSettings(1_500, True))]
#: Two sealed segments: each call takes the server 0.1 s.
CONFIG = replace(SMALL, segment_bytes=6_000)


def opened(server: S3Server, bucket: str = BUCKET, prefix: str = "") -> Callable[[], Any]:
    from ottla.tables.object_store import ObjectStore

    url = f"s3://{bucket}/{prefix or uuid4().hex}"
    store = ObjectStore(url, server.options)
    return lambda: store


def objects_of(harness: TierHarness) -> list[str]:
    """The names of all objects but the one that says whose they are."""
    store: Any = harness.driver._open_store()
    return [each.name for each in store.list("") if each.name != OWNER]


async def consumed(harness: TierHarness) -> bytes:
    """All that is in the store alone."""
    reads, offset, there = harness.reads(), 0, b""
    while offset < harness.log.local_start_offset:
        found = await reads.read(harness.partition, harness.log, offset, 5_000, read_committed=True)
        there, offset = there + bytes(found.records), [*iter_batches(found.records)][-1].next_offset
        await harness.tasks_end()
    return there


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda each: type(each).__name__)
async def test_segments_are_copied_read_and_deleted(tmp_path: Path, s3_server: S3Server, layout: SegmentLayout) -> None:
    harness = TierHarness(tmp_path, CONFIG, layout=layout, open_store=opened(s3_server))
    own, end = harness.log, harness.log.segments.active.base_offset
    there = b"".join(
        bytes(own.segments[at].file.view()[: own.segments[at].file.size]) for at in range(len(own.segments) - 1)
    )
    await harness.round()
    assert harness.state["waits"] is None and harness.state["lag_segments"] == 0
    own.local_start_offset = end
    assert await consumed(harness) == there
    own.log_start_offset = own.local_start_offset
    await harness.round()
    assert harness.state["remote_segments"] == 0 and not objects_of(harness)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda each: type(each).__name__)
async def test_objects_without_records_are_swept_and_what_looks_like_them_is_not(
    s3_server: S3Server, layout: SegmentLayout
) -> None:
    sweeps = Sweeps(layout, opened(s3_server)())
    sweeps.write(KEPT, LEFT)
    log = sweeps.name_of(LEFT, ".log")
    foreign = [
        sweeps.name_of(LEFT, ".log", PLACE._replace(partition=10 * PLACE.partition)),
        log.replace(f"{LEFT.start:020d}", f"below/{LEFT.start:020d}"),
        f"{log}.bak",
    ]
    for name in foreign:
        sweeps.store.put(name, b"-")
    assert await sweeps.sweep() == {1, 2}  # S3 says that they are young
    sweeps.clock.advance(AGE_MS)
    assert await sweeps.sweep() == {1}
    names = {each.name for each in sweeps.store.list("")}
    assert names == {*foreign, *(sweeps.name_of(KEPT, suffix) for suffix in layout.suffixes)}


async def test_wrong_credentials_are_named_and_the_copies_go_on_when_they_are_right(
    tmp_path: Path, s3_server: S3Server
) -> None:
    harness = TierHarness(tmp_path, CONFIG, open_store=opened(s3_server))
    with s3_server.moods.refusing():
        await harness.round()
    assert "AccessDenied" in harness.state["waits"]
    assert harness.state["failing"] and harness.state["remote_segments"] == 0
    await harness.round()
    assert harness.state["waits"] is None and harness.state["lag_segments"] == 0
    harness.log.local_start_offset = harness.log.segments.active.base_offset
    with s3_server.moods.refusing(), pytest.raises(KafkaError) as fault:
        await consumed(harness)
    assert fault.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert await consumed(harness)


async def test_a_missing_bucket_is_named_and_nothing_is_taken_for_copied(tmp_path: Path, s3_server: S3Server) -> None:
    harness = TierHarness(tmp_path, CONFIG, open_store=opened(s3_server, bucket="is-not-there"))
    await harness.round()
    assert "NoSuchBucket" in harness.state["waits"]
    assert harness.state["remote_segments"] == 0 and harness.log.remote_end == -1


async def test_the_bucket_of_another_cluster_is_left_as_it_is(tmp_path: Path, s3_server: S3Server) -> None:
    open_store = opened(s3_server)
    theirs: Any = open_store()
    theirs.put(OWNER, b"another-cluster")
    theirs.put("kafka-tiered-storage/theirs.log", b"x")
    harness = TierHarness(tmp_path, CONFIG, open_store=open_store)
    await harness.round()
    assert "the location is of cluster another-cluster" in harness.state["waits"]
    assert objects_of(harness) == ["kafka-tiered-storage/theirs.log"]
    assert theirs.get(OWNER) == b"another-cluster"
