"""The benchmark of many brokers in racks: the cable between racks, and what counts as available."""

from __future__ import annotations

from random import Random

from benchmarks.racks.cable import HEADER_BYTES, OURS, Cable
from benchmarks.racks.figures import Stretch, availability, near_share, row


def frame(source: int, target: int, content: bytes = b"") -> bytes:
    """An Ethernet frame from one rack's network card to another's, behind the kernel's header."""
    cards = b"".join(bytes([OURS, 0, 0, 0, 0, rack]) for rack in (target, source))
    return bytes(HEADER_BYTES) + cards + b"\x08\x00" + content


def test_frames_arrive_in_their_order_after_the_delay() -> None:
    cable = Cable(0.25, 0.0, Random(1))
    cable.take(frame(1, 2, b"first"), 1.0)
    cable.take(frame(1, 3, b"second"), 1.125)
    assert cable.wait_s(1.125) == 0.125
    assert list(cable.arrived(1.2)) == []
    assert list(cable.arrived(1.25)) == [(2, frame(1, 2, b"first"))]
    assert list(cable.arrived(2.0)) == [(3, frame(1, 3, b"second"))]
    assert cable.wait_s(2.0) is None


def test_a_rack_that_is_cut_off_neither_sends_nor_gets_what_was_under_way() -> None:
    cable = Cable(0.25, 0.0, Random(1))
    cable.take(frame(1, 2), 1.0)
    cable.cut = frozenset({2})
    cable.take(frame(2, 3), 1.0)
    cable.take(frame(3, 2), 1.0)
    cable.take(frame(1, 3), 1.0)
    assert list(cable.arrived(9.0)) == [(3, frame(1, 3))]
    cable.cut = frozenset()
    cable.take(frame(2, 3), 9.0)
    assert list(cable.arrived(10.0)) == [(3, frame(2, 3))]


def test_the_share_that_is_lost_is_the_one_that_was_asked_for() -> None:
    cable = Cable(0.0, 0.1, Random(1))
    for _ in range(10_000):
        cable.take(frame(1, 2), 0.0)
    assert cable.carried + cable.lost == 10_000
    assert 900 < cable.lost < 1_100


def test_frames_to_a_group_of_cards_and_torn_ones_go_nowhere() -> None:
    cable = Cable(0.0, 0.0, Random(1))
    cable.take(bytes(HEADER_BYTES) + b"\x33\x33\0\0\0\x02" + bytes([OURS, 0, 0, 0, 0, 1]) + b"\x86\xdd", 0.0)
    cable.take(b"torn", 0.0)
    assert list(cable.arrived(1.0)) == []


def test_a_produce_is_available_if_it_is_acknowledged_within_a_second_of_the_time_at_which_it_was_due() -> None:
    found = {"sent_ns": [10, 20, 30, 40, 50], "delays_ms": [1.0, 1_000.0, 1_000.5, None, 7.0]}
    seen = availability(found, 10, 50)
    assert seen is not None
    assert (seen.due, seen.in_time, seen.never, seen.share) == (4, 2, 1, 0.5)
    assert seen.longest_ms == float("inf")
    assert availability(found, 51, 90) is None


def test_the_share_read_nearby_is_that_of_the_last_look_that_has_partitions() -> None:
    looks = [(1, 0, {"1": 4}), (2, 9, {"1": 1, "2": 2, "5": 1}), (3, 9, {})]
    assert near_share(looks, [2, 5]) == 0.75
    assert near_share([], [2, 5]) is None


def test_a_row_keeps_brokers_and_controllers_apart() -> None:
    stretch = Stretch("quiet", 0, 2_000_000_000, {1: 0.25, 2: 0.75, 901: 0.1}, turns={1: 20.0, 2: 9.0, 901: 5.0})
    cells = row(stretch, None, [1, 2], [901]).split(" | ")
    assert cells[:2] == ["| quiet", "2"]
    assert cells[4:6] == ["50 / 75", "10 / 10"]
    assert cells[8] == "5; 20"
