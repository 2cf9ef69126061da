"""The values of a registry on a page: those that were decoded, why the others were not, and that a slow registry does not delay
a page.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from typing import Any, cast

import pytest

from ottla.client.failures import Failure
from ottla.console import decoding
from ottla.console.decoding import RegistryValues, registry_client
from ottla.protocol.records.record import Record
from ottla.registry.decoder import Decoder, Encoded
from ottla.registry.values import DecodedValue, DecodeFailed

ONE, TWO, THREE = (b"\0\0\0\0\1" + value for value in (b"one", b"two", b"three"))


class Answers:
    """A decoder that gives these results, in parts, and then does what `then` says."""

    def __init__(self, *parts: list[object], then: Any = None) -> None:
        self.parts, self.then = parts, then
        self.asked: list[Encoded] = []
        self.is_closed = False

    async def decode_all(self, encoded: Iterable[Encoded]) -> AsyncGenerator[list[object], None]:
        self.asked = list(encoded)
        try:
            for part in self.parts:
                yield part
            if self.then is not None:
                await self.then()
        finally:
            self.is_closed = True


def values_of(answers: Answers) -> RegistryValues:
    return RegistryValues(cast(Decoder, answers))


def record(key: bytes | None, value: bytes | None, *headers: tuple[str, bytes | None]) -> Record:
    return Record(0, 0, key, value, headers)


async def test_keys_and_values_are_found_by_their_bytes() -> None:
    answers = Answers([DecodedValue('"one"', "AVRO", 1), DecodeFailed("no field x")], [None])
    found = await values_of(answers).decode([record(ONE, TWO), record(None, THREE)])
    assert found == {ONE: ("avro schema 1", '"one"'), TWO: ("not decoded: no field x", None)}
    assert answers.is_closed


async def test_what_no_registry_has_encoded_is_not_asked_for() -> None:
    answers = Answers()
    await values_of(answers).decode([record(b"plain", b""), record(None, None), record(b"\1id", b"\0\0")])
    assert answers.asked == []


@pytest.mark.parametrize("name", ["__value_schema_id", "__key_schema_id"])
@pytest.mark.parametrize("number", [b"\0\0\0\0\7", b"\1" + bytes(range(16))], ids=["id", "GUID"])
async def test_a_schema_may_be_named_by_a_header_and_the_bytes_have_no_mark_then(name: str, number: bytes) -> None:
    answers = Answers()
    written = record(b"key", b"value", (name, number))
    found = await values_of(answers).decode_for_filter([written])
    data = b"key" if "key" in name else b"value"
    assert answers.asked == [Encoded(data, written.headers, data == b"key")]
    assert found == {data: ("not decoded", None)}


@pytest.mark.parametrize("then", ["hang", "fail"])
async def test_a_page_has_what_was_decoded_before_a_registry_fails_or_hangs(
    then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "LIMIT_S", 0.01)

    async def hang() -> None:
        await asyncio.Event().wait()

    async def fail() -> None:
        raise ConnectionError("the registry is away")

    answers = Answers([DecodedValue("1", "JSON", 7)], then={"hang": hang, "fail": fail}[then])
    found = await values_of(answers).decode([record(ONE, TWO)])
    assert found == {ONE: ("json schema 7", "1")} and answers.is_closed


async def test_a_filter_knows_of_each_value_that_was_not_decoded() -> None:
    """A filter without the reason compares the undecoded bytes, and leaves out a value that would match."""
    answers = Answers([DecodedValue("1", "JSON", 7)])
    found = await values_of(answers).decode_for_filter([record(ONE, TWO), record(b"plain", b"\0\0\0\0")])
    assert found == {ONE: ("json schema 7", "1"), TWO: ("not decoded", None)}


@pytest.mark.parametrize(
    ("url", "config", "cause"),
    [
        (None, "login.properties", "--registry-config needs --registry"),
        ("localhost:8081", None, "is no URL"),
        ("http://localhost:8081", "/no/such/file", "--registry-config"),
    ],
)
def test_a_registry_that_cannot_be_meant_is_refused(url: str | None, config: str | None, cause: str) -> None:
    with pytest.raises(Failure, match=cause):
        registry_client(url, config)


def test_without_a_registry_there_is_no_client() -> None:
    assert registry_client(None, None) is None
