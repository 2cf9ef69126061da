"""The console with registries that are faulty, slow or hostile; and two texts shown side by side."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from ottla.client.failures import Failure
from ottla.console import schema_texts
from ottla.console.schema_texts import DiffLine, SchemaVersion, difference, record_name, shown_text, topics_of
from ottla.console.schemas import SchemaBrowser
from ottla.registry.client import RegistryClient
from tests.ottla.registry.stand_in import registry_of

AVRO = '{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"id","type":"long"}]}'


def row_of(subject: str, version: int = 1, text: str = AVRO, **more: Any) -> dict[str, Any]:
    return {"subject": subject, "version": version, "id": 7, "schema": text} | more


async def test_a_version_is_shown_with_its_level_and_with_what_needs_it() -> None:
    rows = {
        "/subjects": ["orders-value", "a", "x" * 1_001, 7],
        "/subjects/orders-value/versions": [1, 2],
        "/subjects/orders-value/versions/latest": row_of("orders-value", 2),
        "/subjects/orders-value/versions/2/referencedby": [9],
        "/schemas/ids/9/versions": [{"subject": "baskets-value", "version": 4}],
        "/config": {"compatibilityLevel": "FULL"},
    }
    with registry_of(rows) as (url, _):
        browser = SchemaBrowser(RegistryClient(url))
        assert await browser.subjects() == ["a", "orders-value"]
        view = await browser.view("orders-value", None)
    assert (view.versions, view.shown.version, view.record, view.level) == ([1, 2], 2, "shop.Order", "FULL")
    assert view.referring == [("baskets-value", 4)] and '\n  "name": "Order"' in view.pretty


@pytest.mark.parametrize(
    "answer",
    [
        [],
        {},
        None,
        {"schema": 7},
        row_of("s") | {"version": "1"},
        row_of("s", references=[7]),
        row_of("s", references={"a": 1}),
    ],
)
async def test_an_answer_of_another_shape_is_a_failure_with_a_sentence(answer: Any) -> None:
    rows = {"/subjects/s/versions": [1], "/subjects/s/versions/latest": answer}
    with registry_of(rows) as (url, _), pytest.raises(Failure, match="the registry's answer has no"):
        await SchemaBrowser(RegistryClient(url)).view("s", None)


async def test_a_message_of_a_registry_is_cut_and_its_control_characters_are_seen() -> None:
    rows = {"/subjects": {"error_code": 1, "message": "x"}}
    with registry_of(rows) as (url, _), pytest.raises(Failure, match="no list"):
        await SchemaBrowser(RegistryClient(url)).subjects()
    with pytest.raises(Failure, match="cannot be reached"):
        await SchemaBrowser(RegistryClient("http://127.0.0.1:1")).subjects()


@contextmanager
def dripping(head: bytes) -> Iterator[str]:
    """A server that sends a head, and then one byte each tenth of a second for ever."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def drip() -> None:
            with suppress(OSError):
                peer, _ = listening.accept()
                with peer:
                    peer.sendall(head)
                    while not ended.wait(0.1):
                        peer.sendall(b" ")

        thread = threading.Thread(target=drip, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        ended.set()
        thread.join()


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"HTTP/1.1 200 OK\r\nX-A: "])
async def test_an_answer_that_comes_a_byte_at_a_time_ends_in_time(head: bytes) -> None:
    with dripping(head) as url:
        began_s = time.monotonic()
        with pytest.raises(Failure, match=r"takes too long|timed out"):
            await SchemaBrowser(RegistryClient(url, timeout_s=0.5)).subjects()
        assert time.monotonic() - began_s < 5, "each byte would begin the time again"


# -- Texts ---------------------------------------------------------------------------------------------------------------


def test_a_comparison_marks_what_differs_and_leaves_out_what_is_far_from_it() -> None:
    old = [f"line {number}" for number in range(20)]
    new = [*old[:10], "more", *old[10:-1], "last"]
    lines = difference("\n".join(old), "\n".join(new))
    assert [line for line in lines if line.mark in "+-"] == [
        DiffLine("+", "more"),
        DiffLine("-", "line 19"),
        DiffLine("+", "last"),
    ]
    assert [line.mark for line in lines][:5] == ["…", " ", " ", " ", "+"]
    assert lines.count(DiffLine("…", "")) == 2
    assert difference("a\nb", "a\nb") == []
    assert [line.mark for line in difference("a", "a\nb")] == [" ", "+"]


def test_two_long_texts_are_compared_without_a_product_of_their_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    long = "\n".join("x" for _ in range(schema_texts.DIFFERENT_LINES_MAX + 1))
    other = "\n".join("y" for _ in range(100_000))
    monkeypatch.setattr(schema_texts.difflib, "SequenceMatcher", None)
    lines = difference(long, other)
    assert len(lines) == schema_texts.DIFFERENT_LINES_MAX + 1 + 100_000


def test_topics_are_found_by_the_names_of_stock_strategies() -> None:
    topics = {"orders", "orders-value", "o"}
    assert topics_of("orders-value", None, topics) == ["orders"]
    assert topics_of("orders-value-key", None, topics) == ["orders-value"]
    assert topics_of("o-shop.Order", "shop.Order", topics) == ["o"]
    assert topics_of(":.staging:orders-key", None, topics) == ["orders"]
    assert topics_of("shop.Order", "shop.Order", topics) == []


def test_the_name_of_a_record_is_that_of_its_format() -> None:
    assert record_name("AVRO", AVRO) == "shop.Order"
    assert record_name("AVRO", '{"type":"record","name":"a.B","namespace":"c","fields":[]}') == "a.B"
    assert record_name("JSON", '{"title":"Order"}') == "Order"
    assert (
        record_name("PROTOBUF", 'syntax = "proto3";\npackage shop;\nmessage Order { }\nmessage B { }') == "shop.Order"
    )
    for kind, text in (("AVRO", '"int"'), ("AVRO", "["), ("JSON", "[" * 100_000), ("JSON", "{}"), ("PROTOBUF", "")):
        assert record_name(kind, text) is None
    began_s = time.monotonic()
    for text in ("\n" * 200_000, " " * 200_000, "package " + "a" * 200_000):
        assert record_name("PROTOBUF", text) is None
    assert time.monotonic() - began_s < 2


def test_a_long_schema_is_cut_and_its_control_characters_are_seen() -> None:
    text, cut = shown_text(SchemaVersion("s", 1, 1, "PROTOBUF", "// \x1b[31m"))
    assert text == "// \\x1b[31m" and not cut
    text, cut = shown_text(SchemaVersion("s", 1, 1, "AVRO", "[" * (schema_texts.TEXT_CHARS_MAX + 1)))
    assert cut and len(text) == schema_texts.TEXT_CHARS_MAX
