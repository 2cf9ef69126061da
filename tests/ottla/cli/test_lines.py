"""Lines come out complete, whatever the chunks are in which they arrive."""

from __future__ import annotations

import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.lines import CHUNK_BYTES, read_lines


def pipe_with(*chunks: bytes) -> int:
    readable, writable = os.pipe()

    def write() -> None:
        with os.fdopen(writable, "wb", buffering=0) as file:
            for chunk in chunks:
                file.write(chunk)

    threading.Thread(target=write).start()
    return readable


async def lines_of(descriptor: int) -> list[bytes]:
    try:
        return [line async for lines in read_lines(descriptor) for line in lines]
    finally:
        os.close(descriptor)


@given(chunks=st.lists(st.sampled_from([b"a", b"\n", b"bc\n", b"\nd\n\n", b"e\r\n"]), max_size=10))
async def test_lines_do_not_depend_on_chunks(chunks: list[bytes]) -> None:
    text = b"".join(chunks)
    expected = [line.removesuffix(b"\r") for line in text.split(b"\n")]
    if not expected[-1]:
        expected.pop()
    assert await lines_of(pipe_with(*chunks)) == expected


async def test_a_line_longer_than_a_chunk() -> None:
    long = b"x" * (3 * CHUNK_BYTES + 7)
    assert await lines_of(pipe_with(b"a\n", long, b"\nb")) == [b"a", long, b"b"]


async def test_what_cannot_be_read_is_an_os_error() -> None:
    descriptor = os.open("/", os.O_RDONLY)
    with pytest.raises(OSError):
        await lines_of(descriptor)
