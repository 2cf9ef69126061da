"""Compiles (message class, version) into an encoder or a decoder on first use, and caches the function.

The source is registered in linecache, so that tracebacks and debuggers show it. It is not stored on disk.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any, TypeVar

from ottla.protocol.decoding import decoder_source
from ottla.protocol.encoding import encoder_source
from ottla.protocol.errors import MalformedMessage, UnsupportedVersion
from ottla.protocol.primitives import Buffer, Pieces
from ottla.protocol.schema import info_of

T = TypeVar("T")

_encoders: dict[tuple[type[object], int], Callable[[Any, Pieces], None]] = {}
_decoders: dict[tuple[type[object], int], Callable[[Buffer, int, int], tuple[Any, int]]] = {}


def encoder(cls: type[T], version: int) -> Callable[[T, Pieces], None]:
    """Returns a function (object, pieces) that appends the object's bytes to the list of pieces."""
    known = _encoders.get((cls, version))
    if known is None:
        known = _encoders[cls, version] = _compile("encode", encoder_source, cls, version)
    return known


def decoder(cls: type[T], version: int) -> Callable[[Buffer, int, int], tuple[T, int]]:
    """Returns a function (buffer, position, end) that returns the object and the position after it."""
    known = _decoders.get((cls, version))
    if known is None:
        known = _decoders[cls, version] = _compile("decode", decoder_source, cls, version)
    return known


def encode(obj: Any, version: int) -> bytes:
    """Returns the object's bytes in one piece."""
    pieces: Pieces = []
    encoder(obj.__plain__, version)(obj, pieces)
    return b"".join(pieces)


def decode(cls: type[T], data: Buffer, version: int) -> T:
    """Decodes an object that must fill all of `data`."""
    obj, position = decoder(cls, version)(data, 0, len(data))
    if position != len(data):
        raise MalformedMessage(f"{cls.__name__} v{version}: {len(data) - position} bytes left over")
    return obj


def _compile(what: str, generate: Callable[..., tuple[str, dict[str, object]]], cls: type[object], version: int) -> Any:
    info = info_of(cls)
    if version not in info.versions:
        raise UnsupportedVersion(f"{cls.__name__} has versions {info.versions}, not {version}")
    source, scope = generate(cls, version, version in info.flexible)
    filename = f"<{what} {cls.__module__}.{cls.__name__} v{version}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    exec(compile(source, filename, "exec"), scope)
    function: Any = scope[what]
    function.__qualname__ = f"{what}_{cls.__name__}_v{version}"
    return function
