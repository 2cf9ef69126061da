"""The file of recorded traffic: everything written is read, up to the place where it was cut off, and damaged bytes are never
accepted.
"""

from __future__ import annotations

import io

import pytest

from ottla.traffic.entries import (
    ENTRY_BYTES_MAX,
    MAGIC,
    Entry,
    EntryKind,
    EntryReader,
    Opened,
    TrafficFileError,
    encode_entry,
    encode_header,
    read_opened,
)

ENTRIES = [
    Entry(EntryKind.OPENED, 1, 0, frame=Opened("10.0.0.1:4000", "kafka-1:9092", 1).encode()),
    Entry(EntryKind.REQUEST, 1, 1500, 3, 13, -7, b"\0\3\0\x0d request", 1),
    Entry(EntryKind.RESPONSE, 1, 2**40, 3, 13, -7, b""),
    Entry(EntryKind.LOST, 0, 2**40, frame=b"12"),
    Entry(EntryKind.CLOSED, 1, 2**40),
]


def recording(entries: list[Entry] = ENTRIES) -> bytes:
    return encode_header(1_700_000_000_000) + b"".join(map(encode_entry, entries))


def reader(data: bytes) -> EntryReader:
    return EntryReader(io.BytesIO(data).read, "f")


def test_entries_are_read_as_they_were_written() -> None:
    found = reader(recording())
    assert found.begun_ms == 1_700_000_000_000
    assert [entry._replace(frame=bytes(entry.frame)) for entry in found] == ENTRIES
    assert found.torn_at is None
    assert read_opened(ENTRIES[0].frame) == Opened("10.0.0.1:4000", "kafka-1:9092", 1)


def test_a_file_that_is_cut_off_anywhere_has_the_entries_before_and_says_where_it_ends() -> None:
    whole = recording()
    ends = [len(recording(ENTRIES[:count])) for count in range(len(ENTRIES) + 1)]
    for end in range(ends[0], len(whole) + 1):
        found = reader(whole[:end])
        count = max(i for i, each in enumerate(ends) if each <= end)
        assert len(list(found)) == count
        assert found.torn_at == (None if end in ends else ends[count])


def test_a_byte_that_has_changed_is_found() -> None:
    whole = bytearray(recording())
    begin = len(recording([]))
    # All except the length of the last entry, which then ends the file like an entry that is cut off.
    for at in range(begin, len(recording(ENTRIES[:-1]))):
        changed = bytes(whole[:at]) + bytes([whole[at] ^ 1]) + bytes(whole[at + 1 :])
        found = reader(changed)
        try:
            read = [entry._replace(frame=bytes(entry.frame)) for entry in found]
        except TrafficFileError as wrong:
            assert "damaged at byte" in wrong.cause
        else:
            assert found.torn_at is not None
            assert read == ENTRIES[: len(read)]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "is empty"),
        (b"PK\3\4 an archive", "is no recording"),
        (MAGIC, "ends in its header"),
        (MAGIC.replace(b"\r\n", b"\n") + bytes(30), "is no recording"),
        (encode_header(1)[:-1] + b"\0", "checksum of its header"),
    ],
)
def test_another_file_is_no_recording(data: bytes, says: str) -> None:
    with pytest.raises(TrafficFileError, match=says):
        reader(data)


def test_a_newer_version_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.traffic.entries.VERSION", 2)
    newer = encode_header(1)
    monkeypatch.undo()
    with pytest.raises(TrafficFileError, match="has version 2, and this Ottla reads 1"):
        reader(newer)


def test_an_entry_of_an_impossible_length_costs_no_memory() -> None:
    data = recording() + (ENTRY_BYTES_MAX + 1).to_bytes(4, "big") + bytes(4)
    with pytest.raises(TrafficFileError, match="damaged at byte"):
        list(reader(data))
