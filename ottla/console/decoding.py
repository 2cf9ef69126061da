"""Keys and values of schema registries (`--registry URL`), decoded for a page.

A registry that is slow or away leaves the bytes undecoded: the page shows them as hex, and goes on.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable
from importlib import import_module
from typing import Protocol

from ottla.cli.errors import USAGE, CommandFailed
from ottla.console.record_view import Decoded
from ottla.protocol.records.record import Record

log = logging.getLogger(__name__)

#: All records of one screen are decoded within this time, or are shown undecoded.
LIMIT_S = 3.0
#: What begins the wire format of registries: a magic byte, and the id or GUID of a schema.
_MAGIC = (b"\x00", b"\x01")


class DecodedValue(Protocol):
    """A value that has been decoded: plain JSON, and the format it had."""

    value: object
    kind: str
    schema_id: int


class Decode(Protocol):
    """The decoder of `ottla.registry.values`."""

    async def decode(self, data: bytes | None, headers: object = (), *, is_key: bool = False) -> DecodedValue | None:
        """Return the value, None if it has no schema's format. Raises for bytes that are not of their schema."""


class RegistryValues:
    """Decodes the keys and values of records by the schemas of one registry."""

    def __init__(self, decoder: Decode) -> None:
        self._decoder = decoder

    async def decode(self, records: Iterable[Record]) -> Decoded:
        """Return the decoded text of what has a schema, by its bytes."""
        found: Decoded = {}
        try:
            async with asyncio.timeout(LIMIT_S):
                for record in records:
                    for data, is_key in ((record.key, True), (record.value, False)):
                        if data is not None and data[:1] in _MAGIC and data not in found:
                            await self._one(data, record, is_key, found)
        except TimeoutError:
            log.warning("the schema registry did not answer within %g s", LIMIT_S)
        return found

    async def _one(self, data: bytes, record: Record, is_key: bool, found: Decoded) -> None:
        try:
            decoded = await self._decoder.decode(data, record.headers, is_key=is_key)
        except Exception as fault:  # bytes of any producer, and a registry of any kind
            log.debug("not decoded: %s", fault)
            return
        if decoded is not None:
            text = json.dumps(decoded.value, ensure_ascii=False, indent=2)
            found[data] = f"{decoded.kind.lower()} schema {decoded.schema_id}", text


def registry_values(url: str | None, config: str | None) -> RegistryValues | None:
    """Return the decoder for the registry at a URL, None without one.

    Raises:
        CommandFailed: the URL is none, the file of its login cannot be read, or this build has no client of registries.
    """
    if url is None:
        if config is not None:
            raise CommandFailed("--registry-config needs --registry", None, USAGE)
        return None
    if not url.startswith(("http://", "https://")):
        raise CommandFailed(f"--registry {url!r} is no URL", "for example http://localhost:8081", USAGE)
    try:
        client = import_module("ottla.registry.client").RegistryClient.of(url, config)
        return RegistryValues(import_module("ottla.registry.values").Decoder(client))
    except ImportError as missing:
        raise CommandFailed(f"--registry needs a package: {missing.name}", "pip install 'ottla[registry]'") from None
    except (OSError, ValueError) as fault:
        raise CommandFailed(f"--registry-config: {fault}", None, USAGE) from None
