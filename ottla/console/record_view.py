"""A record as a page shows it: key, value and headers as JSON, text or hex. Markup is escaped by the templates, control characters here."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import NamedTuple

from ottla.client.values import to_line
from ottla.protocol.records.record import Record

FORMS = ("auto", "json", "text", "hex")
#: The page shows this many bytes of a key, a value or a header; a download has all of it.
SHOWN_BYTES_MAX = 16 * 1024
LINE_CHARACTERS_MAX = 220
#: A larger value is not parsed as JSON.
JSON_BYTES_MAX = 256 * 1024
HEX_BYTES_MAX = 4 * 1024
HEADERS_SHOWN_MAX = 100
INDENT = "  "
INDENTED_MAX = 40
#: This many characters of a decoded value are requested, because no more are shown.
DECODED_CHARS_MAX = 2 * SHOWN_BYTES_MAX
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
#: Control characters, and those that change the writing direction or end a line: with them a value could look like another one.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]")
#: If a cell begins with one of these, a spreadsheet takes it for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class ShownRecord(NamedTuple):
    """Bytes as a page shows them: one line, and a text that may be cut."""

    form: str
    line: str
    text: str
    bytes: int
    cut: bool = False


class RecordView(NamedTuple):
    """A record with the texts that are shown for it."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: ShownRecord
    value: ShownRecord
    headers: list[tuple[str, ShownRecord]]
    more_headers: int


#: The result of a schema registry for a key or value, by its bytes: the name of the schema's type and the beginning of the
#: decoded JSON, or the reason why there is none.
Decoded = dict[bytes, tuple[str, str | None]]


def view_of(topic: str, partition: int, record: Record, form: str, decoded: Decoded) -> RecordView:
    return RecordView(
        topic,
        partition,
        record.offset,
        record.timestamp,
        show(record.key, form, decoded),
        show(record.value, form, decoded),
        [
            (visible(name)[:SHOWN_BYTES_MAX], show(value, form, {}))
            for name, value in record.headers[:HEADERS_SHOWN_MAX]
        ],
        max(0, len(record.headers) - HEADERS_SHOWN_MAX),
    )


def show(data: bytes | None, form: str, decoded: Decoded) -> ShownRecord:
    """Return the view of bytes in a form. `auto` is JSON if it is an object or a list, else text if it is UTF-8, else hex."""
    if data is None:
        return ShownRecord("null", "null", "null", 0)
    if form == "auto" and data in decoded:
        kind, decoded_text = decoded[data]
        if decoded_text is not None:
            return _text(kind, _indented(decoded_text), len(data), line=decoded_text)
        return show(data, "auto", {})._replace(form=visible(kind))
    plain = _utf8(data)
    if form == "hex" or plain is None:
        dump = hex_dump(data[:HEX_BYTES_MAX])
        return ShownRecord("hex", data[:64].hex(" "), dump, len(data), len(data) > HEX_BYTES_MAX)
    pretty = pretty_json(plain) if form in ("auto", "json") and len(data) <= JSON_BYTES_MAX else None
    if pretty is not None:
        return _text("json", pretty, len(data), line=plain)
    return _text("text" if data else "empty", plain, len(data))


def _text(form: str, text: str, size: int, line: str | None = None) -> ShownRecord:
    first = visible(" ".join((text if line is None else line)[: 2 * LINE_CHARACTERS_MAX].split()))
    cut = text[:SHOWN_BYTES_MAX]
    return ShownRecord(form, first[:LINE_CHARACTERS_MAX], visible(cut), size, len(cut) < len(text))


def _utf8(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def pretty_json(text: str, shown_max: int = SHOWN_BYTES_MAX) -> str | None:
    """Return JSON with a line for each value, cut soon after `shown_max` characters; None if it is no object or list.

    Its tokens stay as they are: a number keeps its digits, and a name that occurs twice stays twice.
    """
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        json.loads(text, parse_int=len, parse_float=len)  # numbers stay texts, which keeps their digits
    except (ValueError, RecursionError):
        return None
    return _indented(text, shown_max)


def _indented(text: str, shown_max: int = SHOWN_BYTES_MAX) -> str:
    """Yield a line for each value of JSON, as far as a page shows it: an object that is deeply nested would have very long
    lines.
    """
    parts: list[str] = []
    depth, before, size = 0, "", 0
    for found in _TOKEN.finditer(text):
        token = found[0]
        if token in "}]":
            depth -= 1
            parts.append("" if before in ("{", "[") else "\n" + INDENT * min(depth, INDENTED_MAX))
        elif before in ("{", "[", ","):
            parts.append("\n" + INDENT * min(depth, INDENTED_MAX))
        parts.append(token)
        size += len(parts[-1]) + len(parts[-2] if len(parts) > 1 else "")
        if size > shown_max:
            break
        if token in ("{", "["):
            depth += 1
        elif token == ":":
            parts.append(" ")
        before = token
    return "".join(parts)


def visible(text: str) -> str:
    """Return text with visible control characters: "\\x1b[31m" instead of red letters in a terminal."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


def hex_dump(data: bytes) -> str:
    """Return lines of offset, 16 bytes, and their ASCII."""
    lines = []
    for start in range(0, len(data), 16):
        row = data[start : start + 16]
        ascii_ = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{start:08x}  {row[:8].hex(' '):<23}  {row[8:].hex(' '):<23}  {ascii_}")
    return "\n".join(lines)


# -- Downloads -----------------------------------------------------------------------------------------------------------

CSV_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")


def json_line(topic: str, partition: int, record: Record) -> str:
    return to_line(topic, partition, record) + "\n"


def csv_line(topic: str, partition: int, record: Record) -> str:
    """Return a row of CSV (RFC 4180). Bytes that are no UTF-8 are hex with 0x before it."""
    headers = json.dumps({name: _cell(value) for name, value in record.headers}) if record.headers else ""
    cells: Sequence[object] = (
        topic,
        partition,
        record.offset,
        record.timestamp,
        _cell(record.key),
        _cell(record.value),
        headers,
    )
    return ",".join(quoted(str(cell)) for cell in cells) + "\r\n"


def quoted(cell: str) -> str:
    """Return a cell of CSV that no spreadsheet takes for a formula: such a text gets a ' in front."""
    if cell.startswith(_FORMULA) and not re.fullmatch(r"-?\d+(\.\d+)?", cell):
        cell = f"'{cell}"
    if any(char in cell for char in '",\r\n'):
        return '"' + cell.replace('"', '""') + '"'
    return cell


def _cell(data: bytes | None) -> str:
    if data is None:
        return ""
    text = _utf8(data)
    return f"0x{data.hex()}" if text is None else text
