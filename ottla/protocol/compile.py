"""Compiles (message class, version) into an encoder or a decoder on first use, and caches the function.

The source is registered in linecache, so that tracebacks and debuggers show it. It is not stored on disk.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any, TypeVar

from ottla.protocol.decoding import Decoding
from ottla.protocol.encoding import Encoding
from ottla.protocol.errors import MalformedMessage
from ottla.protocol.primitives import Buffer, Pieces
from ottla.protocol.schema import check_version

T = TypeVar("T")

_encoders: dict[tuple[type[object], int], Callable[[Any, Pieces], None]] = {}
_decoders: dict[tuple[type[object], int], Callable[[Buffer, int, int], tuple[Any, int]]] = {}


def encoder(cls: type[T], version: int) -> Callable[[T, Pieces], None]:
    """Return a function (object, pieces) that appends the object's bytes to the list of pieces."""
    known = _encoders.get((cls, version))
    if known is None:
        known = _encoders[cls, version] = _compile("encode", Encoding, cls, version)
    return known


def decoder(cls: type[T], version: int) -> Callable[[Buffer, int, int], tuple[T, int]]:
    """Return a function (buffer, position, end) that returns the object and the position after it."""
    known = _decoders.get((cls, version))
    if known is None:
        known = _decoders[cls, version] = _compile("decode", Decoding, cls, version)
    return known


def encode(obj: Any, version: int) -> bytes:
    """Return the object's bytes in one piece."""
    pieces: Pieces = []
    encoder(obj.__plain__, version)(obj, pieces)
    return b"".join(pieces)


def decode(cls: type[T], data: Buffer, version: int, start: int = 0) -> T:
    """Decode an object that must fill all of `data` from `start` on."""
    obj, position = decoder(cls, version)(data, start, len(data))
    if position != len(data):
        raise MalformedMessage(f"{cls.__name__} v{version}: {len(data) - position} bytes left over")
    return obj


def _compile(what: str, kind: type[Encoding | Decoding], cls: type[Any], version: int) -> Any:
    writer = kind(cls, version, version in check_version(cls, version).flexible)
    source, scope = writer.whole(), writer.scope
    filename = f"<{what} {cls.__module__}.{cls.__name__} v{version}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    exec(compile(source, filename, "exec"), scope)
    function: Any = scope[what]
    function.__qualname__ = f"{what}_{cls.__name__}_v{version}"
    return function
