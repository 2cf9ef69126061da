"""The fast path of a connection: it serves requests that repeat an earlier one in all but a few fields.

A client in its steady state sends the same bytes again and again: only the correlation id, the partition and the records of a
Produce differ, or the session epoch and the positions of a Fetch. Once one such request has been decoded and served, the next that
begins with the same bytes needs no decoding, because equal bytes have equal meaning. The dispatcher asks the connection's fast path
first. It either serves the request exactly as its handler would, or leaves it to the handler, which begins again:
the fast path has changed nothing.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from ottla.server.network.frames import Buffer

ConnectionT = TypeVar("ConnectionT", contravariant=True)

#: A connection that writes to several topics in turn repeats no request. After so many requests of its API that were left to
#: the handler a fast path is dropped, and one is made for the next request: that costs as much as three requests.
MISSES_MAX = 32


class FastPath(Protocol[ConnectionT]):
    def serve(self, connection: ConnectionT, buf: Buffer, pos: int, end: int) -> bool:
        """Serve the frame buf[pos:end]; False: nothing has changed, and the handler serves it."""
