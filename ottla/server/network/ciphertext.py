"""Ciphertext on its way from a socket to OpenSSL, which takes it in portions.

One call of OpenSSL works on all that it has until there is data. A key update (TLS 1.3) brings none and costs 7 to 20 us for 27 bytes,
so that 256 KB of them, one read, were 100 ms in one call; and libuv makes up to 32 reads in a row.
"""

from __future__ import annotations

import ssl as tls
from collections.abc import Callable

#: The size of a portion: the longest record, which is one of TLS 1.2, with its header and what encryption adds.
PORTION_BYTES = 5 + 16 * 1024 + 2048
#: Ciphertext in a row that may bring no data: a record that has not come whole, and some key updates.
DATALESS_BYTES_MAX = 2 * PORTION_BYTES
NOTHING = memoryview(b"")


class Ciphertext:
    """What has come and has not been decrypted. `bio` is OpenSSL's end."""

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
        """Give OpenSSL the next portion. Returns how many bytes are left; 0 also if it is too late for more."""
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
