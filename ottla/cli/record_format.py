r"""The format strings of `ottla consume --format`, in the spellings of kcat and rpk: `%t %p %o %k %v\n`.

    %t topic   %p partition   %o offset   %k key   %v or %s value   %h headers   %T or %d timestamp, in milliseconds
    %K, %V or %S: the size of the key, of the value in bytes (-1: there is none)   %H number of headers   %% a percent sign
    %k{hex}, %v{base64}: the bytes in another form   %d{%Y-%m-%d}, %T{...}: the timestamp by strftime, in UTC
    \n \t \r \0 \\ and \xHH

A key or value that is null has no bytes. Headers are NAME=VALUE with commas between them, as kcat prints them. On a terminal
the bytes of records are escaped (`terminal_bytes`), so that they cannot control it. The format's own bytes are not escaped.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial

from ottla.cli.errors import USAGE, CommandFailed
from ottla.cli.output import printable
from ottla.protocol.records.record import Record

#: Returns the bytes of a record for the output. It is called with topic, partition and record.
Write = Callable[[str, int, Record], bytes]

#: Returns bytes of a record, escaped if the output needs that.
Plain = Callable[[bytes], bytes]

ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
FORMS: dict[str, Plain] = {
    "hex": lambda data: data.hex().encode(),
    "base64": b64encode,
}


def _headers(record: Record) -> bytes:
    return b",".join(
        name.encode("utf-8", "surrogateescape") + b"=" + (b"NULL" if value is None else value)
        for name, value in record.headers
    )


def _size(data: bytes | None) -> bytes:
    return b"-1" if data is None else b"%d" % len(data)


#: The fields that have no form in braces.
FIELDS: dict[str, Write] = {
    "t": lambda topic, partition, record: topic.encode(),
    "p": lambda topic, partition, record: b"%d" % partition,
    "o": lambda topic, partition, record: b"%d" % record.offset,
    "H": lambda topic, partition, record: b"%d" % len(record.headers),
    "K": lambda topic, partition, record: _size(record.key),
    "V": lambda topic, partition, record: _size(record.value),
    "S": lambda topic, partition, record: _size(record.value),
    "%": lambda topic, partition, record: b"%",
}
DATA: dict[str, Callable[[Record], bytes | None]] = {
    "k": lambda record: record.key,
    "v": lambda record: record.value,
    "s": lambda record: record.value,
}
TIMES = "dT"


def terminal_bytes(data: bytes) -> bytes:
    """Return the bytes with escapes such as `\\x1b` for all that is not printable. Line ends and tabs stay."""
    return printable(data.decode("utf-8", "backslashreplace"), keep="\n\t").encode()


def compile_format(text: str, plain: Plain = bytes) -> Write:
    """Return the function that writes a record in this format. `plain` is applied to keys, values and headers without a form.

    Raises:
        CommandFailed: the format has a letter or a form that is not known.
    """
    parts = list(_parts(text, plain))

    def write(topic: str, partition: int, record: Record) -> bytes:
        return b"".join(part if isinstance(part, bytes) else part(topic, partition, record) for part in parts)

    return write


def _parts(text: str, plain: Plain) -> Iterator[bytes | Write]:
    position = 0
    while position < len(text):
        char = text[position]
        if char not in "%\\":
            yield char.encode("utf-8", "surrogateescape")
            position += 1
            continue
        letter = text[position + 1 : position + 2]
        position += 2
        if char == "\\" and letter == "x":
            yield _byte(text[position : position + 2])
            position += 2
        elif char == "\\":
            if letter not in ESCAPES:
                raise _wrong(f"\\{letter}", f"one of {' '.join(chr(92) + known for known in (*ESCAPES, 'xHH'))}")
            yield ESCAPES[letter]
        else:
            form = ""
            if text[position : position + 1] == "{" and "}" in text[position:]:
                form, _, _ = text[position + 1 :].partition("}")
                position += len(form) + 2
            yield _field(letter, form, plain)


def _byte(digits: str) -> bytes:
    try:
        return bytes.fromhex(digits.zfill(2))
    except ValueError:
        raise _wrong(f"\\x{digits}", "two hexadecimal digits follow \\x") from None


def _field(letter: str, form: str, plain: Plain) -> Write:
    if letter in FIELDS and not form:
        return FIELDS[letter]
    if letter == "h" and not form:
        return lambda topic, partition, record: plain(_headers(record))
    if letter in DATA and (not form or form in FORMS):
        return partial(_data, DATA[letter], FORMS[form] if form else plain)
    if letter and letter in TIMES:
        return partial(_time, form)
    spelled = f"%{letter}{{{form}}}" if form else f"%{letter}"
    letters = " ".join(f"%{known}" for known in (*FIELDS, "h", *DATA, *TIMES))
    raise _wrong(spelled, f"one of {letters}; key and value also as %k{{hex}} or %k{{base64}}, times as %d{{%H:%M:%S}}")


def _data(
    get: Callable[[Record], bytes | None], form: Callable[[bytes], bytes], topic: str, partition: int, record: Record
) -> bytes:
    return form(get(record) or b"")


def _time(form: str, topic: str, partition: int, record: Record) -> bytes:
    if not form:
        return b"%d" % record.timestamp
    try:
        moment = datetime.fromtimestamp(record.timestamp / 1000, UTC)
    except (ValueError, OverflowError, OSError):  # a producer may have written any timestamp
        return b"%d" % record.timestamp
    return moment.strftime(form).encode("utf-8", "surrogateescape")


def _wrong(part: str, hint: str) -> CommandFailed:
    return CommandFailed(f"--format does not know {part!r}", hint, USAGE)
