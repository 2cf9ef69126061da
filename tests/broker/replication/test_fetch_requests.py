"""The requests and responses that a fetcher packs and reads without a codec are the same as with the codec, byte for byte."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.replication.fetch_requests import FetcherSettings, FetchRequests, one_answer
from ottla.broker.replication.follower_session import FollowerSession
from ottla.broker.replication.partition import Partition
from ottla.protocol.compile import decoder, encode
from ottla.protocol.errors import ErrorCode, MalformedMessage
from ottla.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from ottla.protocol.messages.shared_structs import LeaderIdAndEpoch, NodeEndpoint
from ottla.server.network.channel_protocol import ChannelProtocol
from ottla.server.world import World
from ottla.storage.files import OsFiles
from tests.broker.records import batch
from tests.broker.replication.test_fetcher import SELF, TOPIC_ID, following
from tests.broker.replication.test_partition import NOW_MS
from tests.fuzz.wire import SentBytes
from tests.manual_clock import ManualClock

OTHER_ID, COUNT = bytes(range(1, 17)), 3
SETTINGS = FetcherSettings(SELF, 1, 500, 1 << 20, 10 << 20, 1_000, 30_000)
CORRELATION_ID = 7
SEEDS, STEPS, RESPONSES = 20, 60, 2_000


@pytest.fixture
def partitions(tmp_path: Path) -> Iterator[list[Partition]]:
    yield from following(tmp_path, COUNT)


class Follower:
    """A session and its requests. `by_codec` uses the codec for every request."""

    def __init__(self, partitions: list[Partition], by_codec: bool) -> None:
        world = World(ManualClock(), random.Random(0), OsFiles(), None, None, None)
        self.session = FollowerSession(1 << 20)
        self.epoch = 4
        self.requests = FetchRequests(SETTINGS, "fetcher", self.session, lambda: self.epoch)
        self.protocol, self.sent = ChannelProtocol(world, "leader"), SentBytes()
        self.protocol.connection_made(self.sent)
        self.by_codec = by_codec
        for partition in partitions:
            self.session.add(partition)

    def send(self) -> tuple[bytes, Any]:
        if self.by_codec:
            self.requests._form_of = (0, 0, 0)
        count = len(self.sent.sent)
        has_sent = self.requests.send(self.protocol, 17, lambda *_: None)
        assert has_sent == (len(self.sent.sent) > count)
        return b"".join(self.sent.sent[count:]), replace(self.session)


def test_random_changes_make_the_requests_of_the_codec(partitions: list[Partition]) -> None:
    repeated = 0
    for seed in range(SEEDS):
        rng = random.Random(seed)
        followers = Follower(partitions, by_codec=False), Follower(partitions, by_codec=True)
        for step in range(STEPS):
            partition = rng.choice(partitions)
            key = (TOPIC_ID, partition.index)
            chosen, log = rng.randrange(20), partition.log
            assert log is not None
            if chosen < 14:
                log.append(batch([b"x"]), leader_epoch=1, now_ms=NOW_MS)
            for each in followers:
                session = each.session
                if chosen < 15:
                    session.changed(key)
                elif chosen == 15:
                    session.delay(key, 10)
                elif chosen == 16:
                    session.resume(20)
                elif chosen == 17:
                    session.remove(partition)
                    session.add(partition)
                elif chosen == 18:
                    session.reset()
                else:
                    each.epoch += 1
            (found, state), (expected, expected_state) = (each.send() for each in followers)
            assert found == expected, f"seed {seed}, step {step}"
            assert state == expected_state, f"seed {seed}, step {step}"
            for each in followers:
                if not each.session.is_open and each.session.next_epoch == 0:
                    each.session.answered(70 + step)
        repeated += sum(sent.waiter.read is not None for sent in followers[0].protocol._in_flight)
    assert repeated > SEEDS * STEPS // 4


def test_a_response_that_has_the_usual_form_is_read_as_its_decoder_reads_it() -> None:
    rng, usual = random.Random(1), 0
    for number in range(RESPONSES):
        body = encode(response(rng), 17)
        frame = struct.pack(">ib", rng.choice((CORRELATION_ID,) * 9 + (8,)), rng.random() < 0.02) + body
        if rng.random() < 0.1:
            frame = frame[: rng.randrange(len(frame))]
        elif rng.random() < 0.05:
            at = rng.randrange(5, len(frame))
            frame = frame[:at] + rng.randbytes(1) + frame[at + 1 :]
        found = one_answer(CORRELATION_ID, frame, 0, len(frame))
        if found is None:
            continue
        usual += 1
        try:
            decoded, end = decoder(FetchResponse, 17)(frame, 5, len(frame))
        except MalformedMessage as error:
            raise AssertionError(f"response {number}: {error}") from error
        [(of_topic, data)] = [(each, data) for each in decoded.responses for data in each.partitions]
        key = of_topic.topic_id, data.partition_index
        assert found == (decoded.session_id, key, data.high_watermark, data.log_start_offset, data.records), (
            f"response {number}"
        )
        nothing_else = decoded.error_code, data.error_code, data.diverging_epoch.epoch, end
        assert nothing_else == (ErrorCode.NONE, ErrorCode.NONE, -1, len(frame)), f"response {number}"
    assert RESPONSES // 4 < usual < RESPONSES


def response(rng: random.Random) -> FetchResponse:
    """Return a response: mostly one partition with records, now and then anything else that a leader may say."""
    topics = [topic(each, [data(rng) for _ in range(rng.choice((1,) * 9 + (0, 2)))]) for each in (TOPIC_ID, OTHER_ID)]
    made = FetchResponse(session_id=rng.choice((0, 5)), responses=topics[: rng.choice((1,) * 9 + (0, 2))])
    if rng.random() < 0.05:
        made.error_code = 71
    if rng.random() < 0.05:
        made.node_endpoints = [NodeEndpoint(node_id=1, host="h", port=9)]
    return made


def topic(topic_id: bytes, rows: list[PartitionData]) -> FetchableTopicResponse:
    return FetchableTopicResponse(topic_id=topic_id, partitions=rows)


def data(rng: random.Random) -> PartitionData:
    made = PartitionData(
        partition_index=rng.randrange(3),
        high_watermark=rng.randrange(1 << 40),
        last_stable_offset=rng.randrange(1 << 40),
        log_start_offset=rng.randrange(9),
        aborted_transactions=rng.choice((None, None, None, [])),
        records=rng.randbytes(rng.choice((0, 1, 100, 126, 127, 128, 20_000))),
    )
    chosen = rng.randrange(20)
    if chosen == 0:
        made.error_code = 6
    elif chosen == 1:
        made.diverging_epoch = EpochEndOffset(epoch=1, end_offset=2)
    elif chosen == 2:
        made.current_leader = LeaderIdAndEpoch(leader_id=1, leader_epoch=2)
    elif chosen == 3:
        made.aborted_transactions = [AbortedTransaction(producer_id=1, first_offset=2)]
    elif chosen == 4:
        made.records = None
    elif chosen == 5:
        made.preferred_read_replica = 3
    return made
