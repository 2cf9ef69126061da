"""The buffers that large frames share."""

from __future__ import annotations

from ottla.server.network.frames import POOLED_BYTES, POOLED_COUNT, ReceiveBuffer


def test_a_loop_keeps_a_bounded_number_of_buffers_for_large_frames() -> None:
    inbox = ReceiveBuffer()
    borrowed = [buffer for _ in range(3 * POOLED_COUNT) if (buffer := inbox.borrow(POOLED_BYTES)) is not None]
    assert [len(buffer) for buffer in borrowed] == [POOLED_BYTES] * POOLED_COUNT
    inbox.give_back(borrowed[0])
    assert inbox.borrow(1) is borrowed[0]
    assert inbox.borrow(1) is None


def test_a_frame_larger_than_a_pooled_buffer_borrows_none() -> None:
    inbox = ReceiveBuffer()
    assert inbox.borrow(POOLED_BYTES + 1) is None
