"""The buffers on both sides of OpenSSL: ciphertext that has come, and plaintext that is to go.

OpenSSL takes ciphertext in portions. One call works on all that it has until there is data. A key update (TLS 1.3) brings none and costs
7 to 20 us for 27 bytes, so that 256 KB of them, one read, were 100 ms in one call; and libuv makes up to 32 reads in a row.
"""

from __future__ import annotations

import ssl as tls
from collections import deque
from collections.abc import Callable

#: The size of a portion: the longest record, which is one of TLS 1.2, with its header and what encryption adds.
PORTION_BYTES = 5 + 16 * 1024 + 2048
#: Ciphertext in a row that may bring no data: a record that has not come whole, and some key updates.
DATALESS_BYTES_MAX = 2 * PORTION_BYTES
#: Pieces are encrypted in steps of this size: large enough for few system calls, small enough for the processor's cache.
ENCRYPTED_BYTES = 256 * 1024
#: TLS records have 16 KiB at most; smaller pieces of a response are joined up to that.
RECORD_BYTES = 16 * 1024
NOTHING = memoryview(b"")

Piece = bytes | bytearray | memoryview


class Ciphertext:
    """The bytes that have come and have not been decrypted. `bio` is OpenSSL's end."""

    __slots__ = ("_fed", "_mono_ns", "_unfed", "bio")

    def __init__(self, mono_ns: Callable[[], int]) -> None:
        self.bio = tls.MemoryBIO()
        self._mono_ns = mono_ns
        self._unfed = NOTHING
        self._fed = 0  # how much of it OpenSSL has been given

    @property
    def unfed(self) -> int:
        """The bytes that OpenSSL has not been given."""
        return len(self._unfed) - self._fed

    def arrive(self, view: memoryview) -> None:
        """Take what was read, and give OpenSSL the first portion. `view` is used until `keep`."""
        if self._unfed:
            view = memoryview(b"".join((self._unfed[self._fed :], view)))
        elif len(view) <= PORTION_BYTES:
            self.bio.write(view)
            return
        self._unfed, self._fed = view, 0
        self.feed()

    def feed(self, until_ns: int | None = None) -> int:
        """Give OpenSSL the next portion. Return how many bytes are left; 0 also if it is too late for more."""
        if until_ns is not None and self._mono_ns() > until_ns:
            return 0
        self.bio.write(self._unfed[self._fed : self._fed + PORTION_BYTES])
        self._fed += PORTION_BYTES
        left = len(self._unfed) - self._fed
        if left > 0:
            return left
        self.drop()
        return 0

    def keep(self) -> None:
        """Copy what is left of the last read: the buffer is the next connection's."""
        if self._unfed:
            self._unfed, self._fed = memoryview(bytes(self._unfed[self._fed :])), 0

    def drop(self) -> None:
        self._unfed, self._fed = NOTHING, 0


class Backlog:
    """The pieces that have been written and have not been encrypted. They stay views of a file until then."""

    __slots__ = ("_pieces", "nbytes")

    def __init__(self) -> None:
        self._pieces: deque[Piece] = deque()
        self.nbytes = 0

    def add(self, piece: Piece) -> None:
        self._pieces.append(piece)
        self.nbytes += len(piece)

    def next_piece(self) -> Piece:
        """Take what is to be encrypted next: a part of a large piece, or as many small ones as are one record."""
        pieces = self._pieces
        piece = pieces.popleft()
        if len(piece) > ENCRYPTED_BYTES:
            view = memoryview(piece)
            pieces.appendleft(view[ENCRYPTED_BYTES:])
            piece = view[:ENCRYPTED_BYTES]
        elif pieces and len(piece) + len(pieces[0]) <= RECORD_BYTES:
            joined, size = [piece], len(piece)
            while pieces and size + len(pieces[0]) <= RECORD_BYTES:
                size += len(pieces[0])
                joined.append(pieces.popleft())
            piece = b"".join(joined)
        self.nbytes -= len(piece)
        return piece

    def clear(self) -> None:
        self._pieces.clear()
        self.nbytes = 0
