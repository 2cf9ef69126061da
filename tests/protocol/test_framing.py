"""Frames out of a stream that comes in pieces of any size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.framing import FRAME_BYTES_MAX, FrameReader, FrameTooLarge, frame


@given(st.lists(st.binary(max_size=40), max_size=8), st.lists(st.integers(1, 30), min_size=1, max_size=60))
def test_frames_come_out_as_they_went_in(bodies: list[bytes], steps: list[int]) -> None:
    stream = b"".join(frame(body) for body in bodies)
    reader, seen = FrameReader(), []
    at = 0
    for number in range(len(stream)):
        step = steps[number % len(steps)]
        reader.receive_data(stream[at : at + step])
        at += step
        while (body := reader.next_frame()) is not None:
            seen.append(body)
    assert seen == bodies
    assert len(reader) == 0


def test_frame_joins_its_pieces() -> None:
    assert frame(b"ab", memoryview(b"c")) == b"\0\0\0\3abc"
    assert frame() == bytes(4)


def test_needs_more() -> None:
    reader = FrameReader()
    assert reader.next_frame() is None
    reader.receive_data(b"\0\0\0\2a")
    assert reader.next_frame() is None
    assert len(reader) == 5
    reader.receive_data(b"bcc")
    assert reader.next_frame() == b"ab"
    assert len(reader) == 2


@pytest.mark.parametrize(
    "head", [b"\xff\xff\xff\xff", b"\x80\0\0\0", (FRAME_BYTES_MAX + 1).to_bytes(4, "big"), b"GET "]
)
def test_impossible_size_is_refused_at_once(head: bytes) -> None:
    reader = FrameReader()
    reader.receive_data(head)
    with pytest.raises(FrameTooLarge):
        reader.next_frame()


def test_limit_can_be_set() -> None:
    reader = FrameReader(frame_bytes_max=10)
    reader.receive_data(frame(bytes(10)) + frame(bytes(11)))
    assert reader.next_frame() == bytes(10)
    with pytest.raises(FrameTooLarge, match="frame of 11 bytes; the limit is 10"):
        reader.next_frame()
