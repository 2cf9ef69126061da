"""Metrics of partitions and their disks: the bound of series, and how long records have been unflushed."""

from __future__ import annotations

from types import SimpleNamespace

from ottla.broker.metrics.replicas import UnflushedAges, partition_metrics
from tests.manual_clock import ManualClock


class Logs:
    """Two log directories with one log each."""

    def __init__(self) -> None:
        self.directories = [SimpleNamespace(path="/a"), SimpleNamespace(path="/b")]
        self.of = {path: Log() for path in ("/a", "/b")}

    def in_directory(self, directory: SimpleNamespace) -> list[Log]:
        return [self.of[directory.path]]


class Log:
    recovery_point = log_end_offset = 0


def test_the_age_of_an_unflushed_record_begins_with_the_scrape_that_finds_it_and_ends_with_its_flush() -> None:
    clock, logs = ManualClock(), Logs()
    source = UnflushedAges(clock, logs)

    def ages() -> list[float]:
        [family] = source()
        return [sample.value for sample in family.samples]

    assert ages() == [0, 0]
    logs.of["/b"].log_end_offset = 5
    assert ages() == [0, 0]
    clock.advance(15_000)
    logs.of["/b"].log_end_offset = 9
    assert ages() == [0, 15]
    logs.of["/b"].recovery_point = 5
    assert ages() == [0, 0], "what was appended later is younger"
    clock.advance(15_000)
    assert ages() == [0, 15]
    logs.of["/b"].recovery_point = 9
    assert ages() == [0, 0]


def test_partitions_above_the_bound_have_no_series_and_are_counted() -> None:
    log = SimpleNamespace(high_watermark=1, log_start_offset=0, segments=SimpleNamespace(size=10), log_end_offset=1)
    isr = SimpleNamespace(members={1}, min_size=1)
    partitions = [
        SimpleNamespace(
            topic="orders", index=index, log=log, is_leader=True, isr=isr, replicas=[1], adding_replicas=(), leader_id=1
        )
        for index in range(250)
    ]
    for bound, shown in ((1_000, 250), (150, 150), (0, 0)):
        counts: dict[str, int] = {}
        for family in partition_metrics(partitions, bound):
            counts[family.name] = counts.get(family.name, 0) + len(family.samples)
            if family.name == "ottla_metrics_partitions_left_out":
                assert family.samples[0].value == 250 - shown
        assert counts.get("kafka_topic_partition_current_offset", 0) == counts.get("kafka_log_log_size", 0) == shown
