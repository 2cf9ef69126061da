"""A librdkafka consumer reads a backlog without its pauses of a second, and no client is slower than without pacing.

The consumer of these tests is a queue that an application empties at a steady rate, by librdkafka's rules (rd_kafka_toppar_fetch_decide).
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.fetch.pacing import PAUSE_BYTES_MIN, PAUSE_MS_MAX, PAUSE_MS_MIN, FetchPacing, Pacings
from ottla.broker.fetch.session import FetchPartition

QUEUE_BYTES_MAX, QUEUE_RECORDS_MAX, BACKOFF_MS = 65_536 * 1024, 100_000, 1_000
BACKLOG_BYTES = 1_200_000_000
#: A broker's limits: the bytes of a response, and the bytes a millisecond of its connection.
RESPONSE_BYTES, LINK = 6 << 20, 1_000_000
#: The timer wheel's tick.
TICK_MS = 5


def alone() -> float:
    """The share of a broker that leads all partitions."""
    return 1.0


@dataclass
class Broker:
    position: FetchPartition
    left: int
    at_ms: int = 0
    arriving: int = 0


@dataclass
class Read:
    ms: int
    pauses: int
    seen: int


def read(taken: int, record_bytes: int, *, paced: bool, brokers: int = 1, idle_ms: int = 0) -> Read:
    """Read the backlog with an application that takes `taken` bytes a millisecond, and does not begin for `idle_ms`."""
    counts, pauses, queue, now_ms = Pacings(), 0, 0, 0
    pacings = [FetchPacing(counts, lambda: 1 / brokers) for _ in range(brokers)]
    places = [Broker(FetchPartition("t", b"", 0, 0, 1), BACKLOG_BYTES // brokers) for _ in range(brokers)]
    while queue > 0 or any(place.left for place in places):
        now_ms += 1
        if now_ms > idle_ms:
            queue = max(0, queue - taken)
        for place, pacing in zip(places, pacings, strict=True):
            if place.at_ms > now_ms:
                continue
            queue += place.arriving
            place.arriving = 0
            if not place.left:
                continue
            if queue >= QUEUE_BYTES_MAX or queue >= QUEUE_RECORDS_MAX * record_bytes:
                pauses += 1
                place.at_ms = now_ms + BACKOFF_MS
                continue
            wait_ms = pacing.arrived(now_ms, [place.position]) if paced else 0
            sent_ms = (now_ms + wait_ms) // TICK_MS * TICK_MS + TICK_MS if wait_ms else now_ms
            place.arriving = min(RESPONSE_BYTES // brokers, place.left)
            pacing.sent(sent_ms, place.arriving)
            place.left -= place.arriving
            place.position.fetch_offset += place.arriving // record_bytes
            place.at_ms = sent_ms + max(1, place.arriving * brokers // LINK)
    return Read(now_ms, pauses, counts.pauses)


@pytest.mark.parametrize("taken, faster", [(200_000, 1.8), (400_000, 2.5)])
def test_a_backlog_of_1_kb_records_is_read_with_two_pauses_at_most(taken: int, faster: float) -> None:
    now, paced = read(taken, 1_000, paced=False), read(taken, 1_000, paced=True)
    assert now.pauses >= 9 and paced.pauses <= 2
    assert now.ms / paced.ms > faster


def test_small_records_fill_the_queue_by_their_number_and_gain_most() -> None:
    now, paced = read(200_000, 100, paced=False), read(200_000, 100, paced=True)
    assert now.pauses > 50 and paced.pauses < 8
    assert now.ms / paced.ms > 6


@pytest.mark.parametrize("taken", [30_000, 60_000, 100_000, 200_000, 400_000, 900_000, 3_000_000])
@pytest.mark.parametrize("record_bytes", [100, 1_000, 10_000])
@pytest.mark.parametrize("brokers", [1, 3])
def test_no_application_reads_later_than_without_pacing(taken: int, record_bytes: int, brokers: int) -> None:
    now = read(taken, record_bytes, paced=False, brokers=brokers)
    paced = read(taken, record_bytes, paced=True, brokers=brokers)
    assert paced.ms <= now.ms * 1.03


def test_three_brokers_that_feed_one_queue_find_their_rate_too() -> None:
    now, paced = read(200_000, 1_000, paced=False, brokers=3), read(200_000, 1_000, paced=True, brokers=3)
    assert now.ms / paced.ms > 1.5


def test_an_application_that_begins_late_has_its_backlog_soon_all_the_same() -> None:
    now, paced = (read(400_000, 1_000, paced=each, idle_ms=3_000) for each in (False, True))
    assert paced.ms < now.ms


# -- What is no pause ------------------------------------------------------------------------------------------------


def sent(pacing: FetchPacing, position: FetchPartition, nbytes: int, after_ms: int) -> int:
    """Send `nbytes` bytes; return the wait of the next request, which comes `after_ms` later."""
    pacing.arrived(0, [position])
    pacing.sent(10, nbytes)
    return pacing.arrived(10 + after_ms, [position])


@pytest.mark.parametrize("after_ms", [0, 500, PAUSE_MS_MIN - 1, PAUSE_MS_MAX + 1, 5_000])
def test_a_client_that_fetches_sooner_or_later_than_after_a_second_is_not_paced(after_ms: int) -> None:
    counts = Pacings()
    assert sent(FetchPacing(counts, alone), FetchPartition("t", b"", 0, 0, 1), 10 * PAUSE_BYTES_MIN, after_ms) == 0
    assert counts.pauses == counts.paced == 0


def test_a_second_after_little_was_sent_is_no_pause() -> None:
    counts = Pacings()
    sent(FetchPacing(counts, alone), FetchPartition("t", b"", 0, 0, 1), PAUSE_BYTES_MIN - 1, 1_000)
    assert counts.pauses == 0


def test_at_the_end_of_its_partitions_a_client_is_measured_again_and_not_paced() -> None:
    counts, position = Pacings(), FetchPartition("t", b"", 0, 0, 1)
    pacing = FetchPacing(counts, alone)
    sent(pacing, position, 10 * PAUSE_BYTES_MIN, 1_000)
    pacing.sent(1_012, 100 * PAUSE_BYTES_MIN)
    assert counts.pauses == 1 and pacing.arrived(1_013, [position]) > 0
    pacing.caught_up()
    assert pacing.arrived(1_014, [position]) == 0


@pytest.mark.parametrize(
    "name, is_paced",
    [("librdkafka", True), ("confluent-kafka-python", True), ("apache-kafka-java", False), ("unknown", False)],
)
def test_only_clients_with_librdkafkas_queue_are_paced(name: str, is_paced: bool) -> None:
    context: Any = SimpleNamespace(connection=SimpleNamespace(client_software_name=name))
    assert (Pacings().of(context, alone) is not None) == is_paced
    assert Pacings(enabled=False).of(context, alone) is None
