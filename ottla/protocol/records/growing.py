"""Decompression into a buffer that grows up to a limit, by cramjam: what frames of lz4 and zstd take whose size is not stated."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO

import cramjam

# The initial size of a growing output buffer: a typical batch fits without growing.
_GROWTH_START_BYTES = 64 * 1024
_GROWTH_FACTOR = 4


class OverLimitError(Exception):
    """The output is larger than the caller allows."""


def grow(decompress_into: Callable[[memoryview, memoryview], int], data: memoryview, max_bytes: int) -> bytes:
    """Decompresses into a buffer of growing size. Starting over costs at most a third more and bounds memory exactly.

    The memory of a BytesIO is neither zeroed byte by byte nor copied at the end. For 256 MiB, each of these would hold
    the GIL, and with it block the event loop, for 100 ms. OverLimitError if `max_bytes` are not enough, ValueError if
    the data are damaged.
    """
    size = min(max(_GROWTH_START_BYTES, _GROWTH_FACTOR * len(data)), max_bytes)
    while True:
        output = BytesIO(bytes(size))
        try:
            with output.getbuffer() as room:
                written = decompress_into(data, room)
        except cramjam.DecompressionError as fault:
            if "whole buffer" not in str(fault):
                raise ValueError(str(fault)) from None
            if size == max_bytes:
                raise OverLimitError from None
            size = min(_GROWTH_FACTOR * size, max_bytes)
        else:
            output.truncate(written)
            return output.getvalue()
