"""`ottla inspect` on files, without a broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ottla.__main__ import main
from ottla.cli.errors import OK, UNHEALTHY, USAGE
from ottla.protocol.internal_topics.coordinator_records import encode_key, encode_value
from ottla.protocol.internal_topics.group_records import GROUP_RECORDS
from ottla.protocol.internal_topics.metadata_records import (
    ConfigRecord,
    FeatureLevelRecord,
    UserScramCredentialRecord,
    encode_record,
)
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.control import end_txn_batch

NOW = 1_700_000_000_000
SEGMENT = "00000000000000000000.log"


def partition(folder: Path, name: str, *batches: bytes) -> Path:
    (folder / name).mkdir()
    (folder / name / SEGMENT).write_bytes(b"".join(batches))
    return folder / name


def inspected(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[dict[str, object]], str]:
    code = main(["inspect", *arguments])
    printed = capsys.readouterr()
    return code, [json.loads(line) for line in printed.out.splitlines()], printed.err


def test_batches_with_their_flags(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = partition(
        tmp_path,
        "t-0",
        build_batch([(b"k", b"v", NOW), (b"l", b"w", NOW)], compression=4),
        build_batch(
            [(b"k", b"v", NOW)], base_offset=2, producer_id=9, producer_epoch=0, base_sequence=0, transactional=True
        ),
        end_txn_batch(
            committed=True, producer_id=9, producer_epoch=0, coordinator_epoch=0, timestamp=NOW, base_offset=3
        ),
    )
    code, rows, _ = inspected(capsys, str(folder), "-o", "json")
    assert code == OK
    assert [(row["base_offset"], row["last_offset"], row["codec"], row["flags"]) for row in rows] == [
        (0, 1, "zstd", []),
        (2, 2, "none", ["transactional"]),
        (3, 3, "none", ["transactional", "control"]),
    ]
    _, rows, _ = inspected(capsys, str(folder), "--records")
    assert [row.get("control", row.get("value")) for row in rows] == ["v", "w", "v", "commit"]


def test_records_of_internal_topics_are_decoded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    level = encode_record(FeatureLevelRecord(name="metadata.version", feature_level=30), 0)
    metadata = partition(tmp_path, "__cluster_metadata-0", build_batch([(None, level, NOW)]))
    _, (row,), _ = inspected(capsys, str(metadata), "-r")
    assert (row["type"], row["value"]) == ("FeatureLevelRecord", {"name": "metadata.version", "featureLevel": 30})
    key_class, value_class = GROUP_RECORDS[1]
    key = encode_key(key_class(group="g", topic="t", partition=3))
    value = encode_value(value_class(offset=17), 3)
    offsets = partition(
        tmp_path,
        "__consumer_offsets-7",
        build_batch([(key, value, NOW), (key, None, NOW), (b"\x7f\xff", b"?", NOW)]),
    )
    code, rows, _ = inspected(capsys, str(offsets), "-r")
    assert rows[0]["key"] == {"group": "g", "topic": "t", "partition": 3}
    assert isinstance(rows[0]["value"], dict) and rows[0]["value"]["offset"] == 17
    assert rows[1]["value"] is None
    assert "problem" in rows[2] and code == UNHEALTHY


def test_a_dump_of_the_metadata_has_no_passwords_and_nothing_to_guess_them_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [
        UserScramCredentialRecord("alice", 1, b"salt", b"stored", b"server", 4096),
        ConfigRecord(4, "1", "listener.name.clients.plain.sasl.jaas.config", 'user_a="planted"'),
        ConfigRecord(4, "", "unknown.to.this.version", "planted"),
        ConfigRecord(4, "1", "ssl.key.password", None),
        ConfigRecord(4, "1", "num.io.threads", "3"),
        ConfigRecord(2, "t", "retention.ms", "60000"),
    ]
    batch = build_batch([(None, encode_record(record, 0), NOW) for record in records])
    _, rows, _ = inspected(capsys, str(partition(tmp_path, "__cluster_metadata-0", batch)), "-r")
    shown: list[Any] = [row["value"] for row in rows]
    hidden = "[hidden]"
    assert shown[0] == {
        "name": "alice", "mechanism": 1, "salt": hidden, "storedKey": hidden, "serverKey": hidden, "iterations": 4096,
    }  # fmt: skip
    assert [each["value"] for each in shown[1:]] == [hidden, hidden, None, "3", "60000"]


def test_space_ahead_is_no_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = partition(tmp_path, "t-0", build_batch([(b"k", b"v", NOW)]), bytes(10_000))
    code, rows, said = inspected(capsys, str(folder), "-o", "json")
    assert code == OK and "10000 bytes of space ahead" in said
    assert len(rows) == 2


@pytest.mark.parametrize("damage", ["crc", "cut", "offset"])
def test_a_broken_segment_is_shown_up_to_the_break(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    good = build_batch([(b"k", b"v", NOW)])
    bad = bytearray(build_batch([(b"k", b"v", NOW)], base_offset=0 if damage == "offset" else 1))
    if damage == "crc":
        bad[-1] ^= 1
    elif damage == "cut":
        del bad[-1]
    folder = partition(tmp_path, "t-0", good, bytes(bad))
    code, rows, said = inspected(capsys, str(folder), "-o", "json")
    assert code == UNHEALTHY
    assert rows[0]["base_offset"] == 0
    assert str(len(good)) in str(rows[1]["position"]) and "problem" in rows[1]
    assert SEGMENT in said


def test_an_empty_segment_has_no_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert inspected(capsys, str(partition(tmp_path, "t-0"))) == (OK, [], "")


def test_indexes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index = tmp_path / "00000000000000000100.index"
    index.write_bytes(b"".join(n.to_bytes(4, "big") for n in (5, 4096, 9, 8192, 0, 0)))
    times = tmp_path / "00000000000000000100.timeindex"
    times.write_bytes(NOW.to_bytes(8, "big") + (7).to_bytes(4, "big") + bytes(12))
    _, rows, _ = inspected(capsys, str(index), str(times), "-o", "json")
    assert [(row["offset"], row.get("position"), row.get("timestamp")) for row in rows] == [
        (105, 4096, None),
        (109, 8192, None),
        (107, None, NOW),
    ]


def test_what_is_no_log_is_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.md").write_text("hello")
    (tmp_path / "t-0").mkdir()
    assert main(["inspect", str(tmp_path / "notes.md")]) == USAGE
    assert main(["inspect", str(tmp_path)]) == USAGE
    assert "t-0" in capsys.readouterr().err
