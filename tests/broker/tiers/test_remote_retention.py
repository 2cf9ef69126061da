"""A segment of a lineage that an unclean election has ended leaves the store once the log starts in a later epoch; what the
topic's table does not have yet stays for a time.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.tiers.own_copies import OwnCopies
from ottla.broker.tiers.remote_retention import expiry_of
from ottla.broker.tiers.remote_segments import RemoteSegments
from ottla.storage.log_config import LogConfig
from tests.broker.tiers.test_remote_segments import put, segment

#: Beyond the end of the log, where they cannot be read.
LOST, LOST_AND_FAR = segment(1, 40, 49, (1, 40)), segment(2, 900, 990, (1, 900))
OWN = segment(3, 40, 60, (3, 40))


def gone(log_start: int, *epochs: tuple[int, int]) -> list[int]:
    segments = RemoteSegments()
    put(segments, LOST, LOST_AND_FAR, OWN)
    log = SimpleNamespace(
        config=LogConfig(retention_ms=-1, retention_bytes=-1),
        log_start_offset=log_start,
        log_end_offset=80,
        high_watermark=80,
        remote_end=60,
        segments=(),
        epochs=SimpleNamespace(entries=list(epochs)),
    )
    return [each.id[0] for each in expiry_of(cast(Any, log), segments, 5, OwnCopies()).gone]


def test_while_the_log_has_records_of_the_epoch_its_lost_segments_stay() -> None:
    assert gone(0, (1, 0), (3, 40)) == []
    assert gone(39, (1, 39), (3, 40)) == []


def test_once_the_log_starts_in_a_later_epoch_they_go_wherever_they_lie() -> None:
    assert gone(40, (3, 40)) == [1, 2]
    assert gone(40, (1, 0), (3, 40)) == [1, 2]  # its epochs are not cut yet


def test_a_deposed_leader_deletes_nothing_of_a_later_epoch() -> None:
    assert gone(60, (2, 60)) == [1, 2]
    assert gone(40, (0, 40)) == []


@pytest.mark.parametrize(
    ("table_offset", "waited_ms", "start"), [(None, 99, 0), (40, 99, 40), (61, 99, 61), (None, 100, 61)]
)
def test_the_log_keeps_what_its_table_does_not_have_but_not_for_ever(
    table_offset: int | None, waited_ms: int, start: int
) -> None:
    segments = RemoteSegments()
    put(segments, segment(1, 0, 39), segment(2, 40, 60))
    copied_ms = next(iter(segments.by_id.values())).event_ms
    log = SimpleNamespace(
        config=LogConfig(retention_ms=-1, retention_bytes=0, ottla_table_format="delta", ottla_table_hold_ms_max=100),
        log_start_offset=0,
        log_end_offset=80,
        high_watermark=80,
        remote_end=60,
        segments=(),
        epochs=SimpleNamespace(entries=[(0, 0)]),
        table_offset=table_offset,
    )
    expiry = expiry_of(cast(Any, log), segments, copied_ms + waited_ms, OwnCopies())
    assert expiry.log_start == start
