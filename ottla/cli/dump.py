"""Rows from the files of a partition's directory, for `ottla inspect`. It only reads, and needs no broker.

It goes on after errors: what cannot be read becomes a row with a "problem".
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator

from ottla.protocol.errors import KafkaError, ProtocolError
from ottla.protocol.internal_topics.coordinator_records import RecordTypes, decode_key, decode_value
from ottla.protocol.json_form import to_json
from ottla.protocol.records.batch import BatchView, check_batch
from ottla.protocol.records.compression import CODECS
from ottla.protocol.records.control import control_type
from ottla.protocol.records.record import Record
from ottla.storage.errors import CorruptFile
from ottla.storage.files import Files
from ottla.storage.log_files import aborted_txns, base_offset, is_space_ahead, mapped_file, offset_entries, time_entries
from ottla.storage.producers import producer_snapshots

Row = dict[str, object]

_TEXT_BYTES_MAX = 80
HIDDEN = "[hidden]"


def dump_log(files: Files, path: str, *, records: bool) -> Iterator[Row]:
    """Yield the batches in order, or their records. At the first bytes that are no batch it ends, with a problem row."""
    with mapped_file(files, path) as view:
        yield from _dump_batches(view, path, records)


def _dump_batches(view: memoryview, path: str, records: bool) -> Iterator[Row]:
    decode = _decoder_for(path)
    pos, end = 0, len(view)
    next_offset = 0
    while pos < end:
        try:
            check_batch(view, pos, end)
            batch = BatchView(view, pos)
        except KafkaError as fault:
            if is_space_ahead(view, pos):
                yield {"position": pos, "note": f"{end - pos} bytes of space ahead"}
            else:
                yield {"position": pos, "problem": fault.message}
            return
        # The CRC does not cover the base offset, so this is its only check.
        if batch.base_offset < next_offset:
            yield {"position": pos, "problem": f"base offset {batch.base_offset} where {next_offset} or more is due"}
        next_offset = batch.next_offset
        if records:
            yield from _record_rows(batch, decode)
        else:
            yield _batch_row(batch, pos)
        pos += batch.size


def _batch_row(batch: BatchView, pos: int) -> Row:
    flags = [
        name
        for name, there in (
            ("transactional", batch.is_transactional),
            ("control", batch.is_control),
            ("log-append-time", batch.timestamp_type == 1),
            ("delete-horizon", batch.delete_horizon is not None),
        )
        if there
    ]
    return {
        "position": pos,
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "count": batch.count,
        "size": batch.size,
        "codec": codec_name(batch),
        "leader_epoch": batch.partition_leader_epoch,
        "max_timestamp": batch.max_timestamp,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "flags": flags,
    }


def codec_name(batch: BatchView) -> str:
    return CODECS[batch.compression].name if batch.compression < len(CODECS) else str(batch.compression)


def _record_rows(batch: BatchView, decode: Callable[[Record], Row] | None) -> Iterator[Row]:
    try:
        rows = batch.records()
    except KafkaError as fault:
        yield {"offset": batch.base_offset, "problem": fault.message}
        return
    for record in rows:
        row: Row = {"offset": record.offset, "timestamp": record.timestamp}
        try:
            if batch.is_control:
                kind = control_type(record)
                row["control"] = kind.name.lower() if kind is not None else "unknown"
                row["producer_id"] = batch.producer_id
            elif decode is not None:
                row |= decode(record)
            else:
                row |= _plain(record)
        except (ProtocolError, KafkaError) as fault:
            row |= {**_plain(record), "problem": str(fault)}
        yield row


def _plain(record: Record) -> Row:
    row: Row = {"key": _text(record.key), "value": _text(record.value)}
    if record.headers:
        row["headers"] = {name: _text(value) for name, value in record.headers}
    return row


def _text(data: bytes | None) -> str | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "0x" + data[:_TEXT_BYTES_MAX].hex() + ("..." if len(data) > _TEXT_BYTES_MAX else "")


def _decoder_for(path: str) -> Callable[[Record], Row] | None:
    """Return the decoder of an internal topic's records, by the name of the directory."""
    topic = os.path.basename(os.path.dirname(os.path.abspath(path))).rpartition("-")[0]
    if topic == "__cluster_metadata":
        return _decode_metadata
    types = record_types(topic)
    if types is None:
        return None

    def decode(record: Record) -> Row:
        key = decode_key(types, record.key or b"")
        row: Row = {"type": type(key).__name__.removesuffix("Key"), "key": to_json(key, 0), "value": None}
        if record.value is not None:
            value = decode_value(types, key, record.value)
            row["value"] = to_json(value, int.from_bytes(record.value[:2], "big"))
        return row

    return decode


def record_types(topic: str) -> RecordTypes | None:
    """Return the records of a coordinator's topic; None for any other topic."""
    if topic == "__consumer_offsets":
        from ottla.protocol.internal_topics.group_records import GROUP_RECORDS as types
    elif topic == "__transaction_state":
        from ottla.protocol.internal_topics.coordinator_records import TRANSACTION_RECORDS as types
    elif topic == "__share_group_state":
        from ottla.protocol.internal_topics.coordinator_records import SHARE_RECORDS as types
    else:
        return None
    return types


def _decode_metadata(record: Record) -> Row:
    from ottla.protocol.internal_topics.metadata_records import decode_record

    value, version = decode_record(record.value or b"")
    kind, shown = type(value).__name__, to_json(value, version)
    assert isinstance(shown, dict)
    shown |= dict.fromkeys(_secrets(kind, shown), HIDDEN)
    return {"type": kind, "version": version, "value": shown}


def _secrets(kind: str, shown: dict[str, object]) -> Iterable[str]:
    """Return the fields that are passwords, or that help to guess one: people show dumps to others."""
    if kind == "UserScramCredentialRecord":
        return ("salt", "storedKey", "serverKey")
    if kind == "ConfigRecord" and shown["value"] is not None:
        from ottla.controller.metadata.configs import ResourceType
        from ottla.server.config.broker import is_secret

        if shown["resourceType"] == ResourceType.BROKER and is_secret(str(shown["name"])):
            return ("value",)
    return ()


def dump_offset_index(files: Files, path: str) -> Iterator[Row]:
    for offset, position in offset_entries(files.read(path) or b"", base_offset(path) or 0):
        yield {"offset": offset, "position": position}


def dump_time_index(files: Files, path: str) -> Iterator[Row]:
    for timestamp, offset in time_entries(files.read(path) or b"", base_offset(path) or 0):
        yield {"timestamp": timestamp, "offset": offset}


def dump_txn_index(files: Files, path: str) -> Iterator[Row]:
    try:
        for entry in aborted_txns(path, files.read(path) or b""):
            yield entry._asdict()
    except CorruptFile as fault:
        yield {"problem": str(fault)}


def dump_producer_snapshot(files: Files, path: str) -> Iterator[Row]:
    try:
        states = producer_snapshots.decode(path, files.read(path) or b"")
    except CorruptFile as fault:
        yield {"problem": str(fault)}
        return
    for state in states:
        yield {
            "producer_id": state.producer_id,
            "epoch": state.epoch,
            "last_sequence": state.last_sequence,
            "last_offset": state.last_offset,
            "last_timestamp": state.last_timestamp,
            "coordinator_epoch": state.coordinator_epoch,
            "txn_first_offset": state.current_txn_first_offset,
        }


DUMPS: dict[str, Callable[[Files, str], Iterator[Row]]] = {
    ".index": dump_offset_index,
    ".timeindex": dump_time_index,
    ".txnindex": dump_txn_index,
    ".snapshot": dump_producer_snapshot,
}
