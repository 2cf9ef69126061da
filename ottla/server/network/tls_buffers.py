"""The buffers on both sides of OpenSSL: ciphertext that has arrived, and plaintext that is to be sent.

OpenSSL gets ciphertext in limited chunks. One call works on everything that it has until there is data. A key update (TLS 1.3)
has no data and takes 7 to 20 us for 27 bytes, so 256 KB of key updates, one read, took 100 ms in one call; and libuv makes up
to 32 reads in a row.
"""

from __future__ import annotations

import ssl as tls
from collections import deque
from collections.abc import Callable

#: The size of a chunk: the longest record, which is one of TLS 1.2, with its header and the overhead of encryption.
PORTION_BYTES = 5 + 16 * 1024 + 2048
#: The most consecutive ciphertext without data: a partial record, and some key updates.
DATALESS_BYTES_MAX = 2 * PORTION_BYTES
#: Large pieces are encrypted in steps of this size: large enough for few system calls, small enough for the processor's cache.
ENCRYPTED_BYTES = 256 * 1024
#: TLS records have 16 KiB at most; smaller pieces of a response are joined up to that.
RECORD_BYTES = 16 * 1024
NOTHING = memoryview(b"")

Piece = bytes | bytearray | memoryview


class Ciphertext:
    """The bytes that have arrived and are not decrypted yet. `bio` is OpenSSL's end."""

    __slots__ = ("_fed", "_mono_ns", "_unfed", "bio")

    def __init__(self, mono_ns: Callable[[], int]) -> None:
        self.bio = tls.MemoryBIO()
        self._mono_ns = mono_ns
        self._unfed = NOTHING
        self._fed = 0  # how much of it OpenSSL has got

    @property
    def unfed(self) -> int:
        """The bytes that OpenSSL has not got yet."""
        return len(self._unfed) - self._fed

    def arrive(self, view: memoryview) -> None:
        """Take the bytes of a read, and give OpenSSL the first chunk. `view` is used until `keep`."""
        if self._unfed:
            view = memoryview(b"".join((self._unfed[self._fed :], view)))
        elif len(view) <= PORTION_BYTES:
            self.bio.write(view)
            return
        self._unfed, self._fed = view, 0
        self.feed()

    def feed(self, until_ns: int | None = None) -> int:
        """Give OpenSSL the next chunk. Return the number of remaining bytes; 0 also if there is no time for more."""
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
        """Copy the remaining bytes of the last read, because the next connection reads into the same buffer."""
        if self._unfed:
            self._unfed, self._fed = memoryview(bytes(self._unfed[self._fed :])), 0

    def drop(self) -> None:
        self._unfed, self._fed = NOTHING, 0


class Backlog:
    """The pieces that have been written and are not encrypted yet. Until then they stay views of a file."""

    __slots__ = ("_pieces", "nbytes")

    def __init__(self) -> None:
        self._pieces: deque[Piece] = deque()
        self.nbytes = 0

    def add(self, piece: Piece) -> None:
        self._pieces.append(piece)
        self.nbytes += len(piece)

    def next_piece(self) -> Piece:
        """Return the next bytes to encrypt: a part of a large piece, or as many small pieces as fit into one record."""
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
