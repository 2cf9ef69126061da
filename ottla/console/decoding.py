"""Keys and values of schema registries (`--registry URL`), decoded for a page.

If a registry is slow or cannot be reached, the bytes stay undecoded: the page shows them as hex.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import aclosing
from typing import TYPE_CHECKING

from ottla.client.failures import Failure, Kind
from ottla.client.values import check_registry
from ottla.console.record_view import DECODED_CHARS_MAX, Decoded
from ottla.protocol.records.record import Record

if TYPE_CHECKING:
    from ottla.registry.client import RegistryClient
    from ottla.registry.decoder import Decoder, Encoded

log = logging.getLogger(__name__)

#: All records of one screen are decoded within this time; those that are not are shown undecoded.
LIMIT_S = 3.0
#: A value that takes longer is shown undecoded.
VALUE_S = 1.0


class RegistryValues:
    """Decodes the keys and values of records by the schemas of one registry, in separate processes."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder

    async def decode(self, records: Iterable[Record]) -> Decoded:
        """Return by its bytes the decoded text of each key and value that has a schema, or the reason why there is none."""
        found: Decoded = {}
        parts = _encoded(records)
        try:
            async with asyncio.timeout(LIMIT_S), aclosing(self._decoder.decode_all(row for _, row in parts)) as answers:
                places = iter(parts)
                async for some in answers:
                    for answer, (data, _) in zip(some, places, strict=False):
                        if isinstance(answer, Exception):
                            found[data] = f"not decoded: {answer}", None
                        elif answer is not None:
                            found[data] = f"{answer.kind.lower()} schema {answer.schema_id}", answer.text
        except TimeoutError:
            log.warning("not all values of a page could be decoded within %g s", LIMIT_S)
        except Exception as fault:  # any kind of error, because a registry may send anything
            log.debug("not decoded: %s", fault)
        return found

    async def decode_for_filter(self, records: Iterable[Record]) -> Decoded:
        """Return the same as `decode`, with a reason for each value that has the format and was not decoded in time."""
        rows = list(records)
        found = await self.decode(rows)
        for data, _ in _encoded(rows):
            found.setdefault(data, ("not decoded", None))
        return found

    async def close(self) -> None:
        await self._decoder.close()


def _encoded(records: Iterable[Record]) -> list[tuple[bytes, Encoded]]:
    """Return the keys and values that name a schema in their first bytes, or by a header of the record."""
    from ottla.registry.decoder import Encoded, names_schema  # already imported by `registry_values`

    found = (
        Encoded(data, record.headers, is_key)
        for record in records
        for data, is_key in ((record.key, True), (record.value, False))
    )
    return [(each.data, each) for each in found if each.data is not None and names_schema(each)]


def registry_client(url: str | None, config: str | None) -> RegistryClient | None:
    """Return the client of the registry at a URL, or None if there is no URL.

    Raises:
        Failure: the text is no URL, or the file of the login cannot be read.
    """
    if url is None:
        if config is not None:
            raise Failure("--registry-config needs --registry", None, Kind.WRONG)
        return None
    check_registry(url)
    # Imported late: only a console with --registry needs HTTP and TLS.
    from ottla.registry.client import RegistryClient

    try:
        return RegistryClient.of(url, config)
    except (OSError, ValueError) as fault:
        raise Failure(f"--registry-config: {fault}", None, Kind.WRONG) from None


def registry_values(client: RegistryClient, chars_max: int = DECODED_CHARS_MAX, *, cut: bool = True) -> RegistryValues:
    """Return a decoder of a registry's values. A longer JSON is cut, or with `cut` False not decoded."""
    from ottla.registry.decoder import Decoder

    return RegistryValues(Decoder(client, value_s=VALUE_S, chars_max=chars_max, cut=cut))
