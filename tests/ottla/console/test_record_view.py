"""A record as a page and a download show it: forms of bytes, control characters, formulas of spreadsheets."""

from __future__ import annotations

import csv
import io
import json

import pytest

from ottla.console.record_view import SHOWN_BYTES_MAX, csv_line, hex_dump, pretty_json, quoted, show, view_of, visible
from ottla.protocol.records.record import Record


@pytest.mark.parametrize(
    ("data", "form"),
    [
        (None, "null"),
        (b"", "empty"),
        (b'{"a":1}', "json"),
        (b"[1", "text"),
        (b"17", "text"),
        (b"\xff\x00", "hex"),
        (b"abc", "text"),
    ],
)
def test_bytes_are_shown_in_the_form_that_they_have(data: bytes | None, form: str) -> None:
    assert show(data, "auto", {}).form == form


def test_json_keeps_its_digits_and_names() -> None:
    text = '{"big":12345678901234567890.10,"a":{},"a":[1, {"b":"x\\"y, {"}]}'
    pretty = pretty_json(text)
    assert pretty is not None and "12345678901234567890.10" in pretty and pretty.count('"a"') == 2
    assert json.loads(pretty) == json.loads(text)
    assert pretty_json("[" * 100_000 + "]" * 100_000) is None, "too deep is text"
    digits = "9" * 100_000
    assert (pretty_json(f"[{digits}]") or "").startswith(f"[\n  {digits}"), "a number is not computed"


def test_control_characters_are_seen() -> None:
    shown = show(b"a\x1b[31mred\r\nx \xe2\x80\xae y", "auto", {})
    assert "\\x1b[31mred\\r\nx \\u202e y" in shown.text and "\x1b" not in shown.line


def test_a_large_value_is_cut_and_says_so() -> None:
    shown = show(b"x" * (SHOWN_BYTES_MAX + 1), "auto", {})
    assert shown.cut and len(shown.text) == SHOWN_BYTES_MAX and shown.bytes == SHOWN_BYTES_MAX + 1
    assert show(bytes(5_000), "hex", {}).cut
    assert hex_dump(b"abc\x00") == "00000000  61 62 63 00                                       abc."


def test_what_a_registry_has_decoded_is_shown_with_its_schema() -> None:
    data = b"\x00\x00\x00\x00\x07abc"
    record = Record(1, 2, None, data, (("h\x00", None),))
    view = view_of("t", 0, record, "auto", {data: ("avro schema 7", '{"a": 1}')})
    assert (view.value.form, view.value.text) == ("avro schema 7", '{\n  "a": 1\n}')
    assert view.headers == [("h\\x00", show(None, "auto", {}))]
    assert view_of("t", 0, record, "hex", {data: ("x", "y")}).value.form == "hex"


def test_no_cell_of_csv_is_a_formula_or_breaks_its_row() -> None:
    record = Record(3, 4, b'=HYPERLINK("x")', b'a,"b"\nc', (("h", b"\xff"),))
    (row,) = csv.reader(io.StringIO(csv_line("t", 0, record), newline=""))
    assert row == ["t", "0", "3", "4", '\'=HYPERLINK("x")', 'a,"b"\nc', '{"h": "0xff"}']
    assert [quoted(cell) for cell in ("-5.5", "-5+1", "@a", "+1", "")] == ["-5.5", "'-5+1", "'@a", "'+1", ""]
    assert visible("tab\tand\nline") == "tab\tand\nline"


def test_of_deep_json_only_what_is_shown_is_indented() -> None:
    deep = "[" * 800 + ",".join("1" * 100_000) + "]" * 800
    shown = show(deep.encode(), "auto", {})
    assert shown.form == "json" and shown.cut
    assert len(pretty_json(deep) or "") < 2 * SHOWN_BYTES_MAX


def test_what_cannot_be_decoded_says_why_and_shows_its_bytes() -> None:
    data = b"\x00\x00\x00\x00\x07abc"
    shown = show(data, "auto", {data: ("not decoded: it takes more than 1 s", None)})
    assert shown.form == "not decoded: it takes more than 1 s" and shown.text == r"\x00\x00\x00\x00\x07abc"
