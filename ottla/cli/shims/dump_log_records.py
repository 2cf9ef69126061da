"""The contents of records as kafka-dump-log prints them: the decoders of internal topics, and control records."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ottla.cli.dump import record_types
from ottla.cli.shims.tool import Unusable
from ottla.protocol.compile import decode
from ottla.protocol.errors import KafkaError, ProtocolError
from ottla.protocol.internal_topics import control_messages
from ottla.protocol.internal_topics.coordinator_records import decode_key, decode_value
from ottla.protocol.json_form import to_json
from ottla.protocol.records.control import ControlType, control_type
from ottla.protocol.records.record import Record


class Contents(NamedTuple):
    """The texts of a record's key and value. None means that nothing is printed."""

    key: str | None
    value: str | None


Decode = Callable[[Record], Contents]

GROUP_METADATA = 2
#: The fields of a classic member that are encoded messages.
_EMBEDDED = {
    "subscription": control_messages.ConsumerProtocolSubscription,
    "assignment": control_messages.ConsumerProtocolAssignment,
}
_CONTROL = {
    ControlType.LEADER_CHANGE: (" LeaderChange: ", control_messages.LeaderChangeMessage),
    ControlType.SNAPSHOT_HEADER: (" SnapshotHeader ", control_messages.SnapshotHeaderRecord),
    ControlType.SNAPSHOT_FOOTER: (" SnapshotFooter ", control_messages.SnapshotFooterRecord),
    ControlType.KRAFT_VERSION: (" KRaftVersion ", control_messages.KRaftVersionRecord),
    ControlType.KRAFT_VOTERS: (" KRaftVoters ", control_messages.VotersRecord),
}
_NUMBERS = {"Long": ">q", "Integer": ">i"}


def json_text(value: object) -> str:
    """Return JSON without spaces, as Jackson writes it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


# -- Control records --------------------------------------------------------------------------------------------------


def control_text(record: Record) -> str:
    kind = control_type(record)
    value = record.value or b""
    if kind in (ControlType.ABORT, ControlType.COMMIT):
        marker, _ = control_messages.decode_versioned(control_messages.EndTxnMarker, value)
        return f" endTxnMarker: {kind.name} coordinatorEpoch: {marker.coordinator_epoch}"
    if kind is None:
        return f" controlType: UNKNOWN({int.from_bytes((record.key or b'')[2:4], 'big', signed=True)})"
    head, cls = _CONTROL[kind]
    version = int.from_bytes(value[:2], "big")  # the version is their first field
    return head + json_text(to_json(decode(cls, value, version), version))


# -- Decoders ---------------------------------------------------------------------------------------------------------


def decoder_of_classes(key_class: str | None, value_class: str | None) -> Decode:
    """Return the decoder that uses Kafka's Decoder classes. Without a class name it is StringDecoder."""
    of_key, of_value = _class_decoder(key_class), _class_decoder(value_class)

    def contents(record: Record) -> Contents:
        key, value = record.key, record.value
        return Contents(None if key is None else of_key(key), None if value is None else of_value(value))

    return contents


def _class_decoder(name: str | None) -> Callable[[bytes], str]:
    short = (name or "StringDecoder").rpartition(".")[2].removesuffix("Decoder")
    if short == "String":
        return lambda data: data.decode(errors="replace")
    if short in _NUMBERS:
        form = struct.Struct(_NUMBERS[short])
        return lambda data: str(form.unpack_from(data)[0])
    if short == "Default":
        return lambda data: "0x" + data.hex()
    raise Unusable(f"Failed to load decoder class: java.lang.ClassNotFoundException: {name}")


def _coordinator_decoder(topic: str) -> Decode:
    def contents(record: Record) -> Contents:
        if record.key is None:
            raise Unusable(
                f"Failed to decode message at offset {record.offset} using the specified decoder"
                " (message had a missing key)"
            )
        types = record_types(topic)
        assert types is not None
        number = int.from_bytes(record.key[:2], "big", signed=True)
        if number not in types:
            return Contents(f"Unknown record type {number} at offset {record.offset}, skipping.", None)
        version, part = number, "key"
        try:
            key: Any = decode_key(types, record.key)
            shown = json_text({"type": str(number), "data": to_json(key, 0)})
            if record.value is None:
                return Contents(shown, "<DELETE>")
            version, part = int.from_bytes(record.value[:2], "big", signed=True), "value"
            value = to_json(decode_value(types, key, record.value), version)
        except (ProtocolError, KafkaError) as wrong:
            unread = f"Could not read record with version {version} from {part}'s buffer due to: {wrong}."
            return Contents(f"Error at offset {record.offset}, skipping. {unread}", None)
        if topic == "__consumer_offsets" and number == GROUP_METADATA and value["protocolType"] == "consumer":
            value = dict(_with_messages(value, decode_value(types, key, record.value)))
        return Contents(shown, json_text({"version": str(version), "data": value}))

    return contents


def _with_messages(shown: dict[str, object], group: Any) -> Iterator[tuple[str, object]]:
    """Yield the fields of a classic consumer group, with the members' subscriptions and assignments decoded."""
    for name, value in shown.items():
        if name == "members":
            assert isinstance(value, list)
            value = [dict(_member(row, member)) for row, member in zip(value, group.members, strict=True)]
        yield name, value


def _member(shown: dict[str, object], member: Any) -> Iterator[tuple[str, object]]:
    for name, value in shown.items():
        if name in _EMBEDDED:
            try:
                message: Any
                message, version = control_messages.decode_versioned(_EMBEDDED[name], getattr(member, name))
                value = to_json(message, version)
            except ProtocolError:
                pass  # another kind of client has written it, so its bytes are shown
        yield name, value


def _metadata(record: Record) -> Contents:
    from ottla.protocol.internal_topics.metadata_records import decode_record

    try:
        message, version = decode_record(record.value or b"")
        kind = re.sub(r"(?<!^)([A-Z])", r"_\1", type(message).__name__).upper()
        return Contents(None, json_text({"type": kind, "version": version, "data": to_json(message, version)}))
    except (ProtocolError, KafkaError) as wrong:
        return Contents(None, f"Error at {record.offset}, skipping. {wrong}")


def _remote_metadata(record: Record) -> Contents:
    from ottla.protocol.internal_topics.remote_log_records import decode_remote_log_record

    try:
        message = decode_remote_log_record(record.value or b"")
        return Contents(None, json_text({"type": type(message).__name__, "version": 0, "data": to_json(message, 0)}))
    except (ProtocolError, KafkaError) as wrong:
        return Contents(None, f"Error at offset {record.offset}, skipping. {wrong}")


#: The decoder that each option chooses. If several options are given, the first one here wins.
DECODERS: dict[str, Decode] = {
    "offsets-decoder": _coordinator_decoder("__consumer_offsets"),
    "transaction-log-decoder": _coordinator_decoder("__transaction_state"),
    "cluster-metadata-decoder": _metadata,
    "remote-log-metadata-decoder": _remote_metadata,
    "share-group-state-decoder": _coordinator_decoder("__share_group_state"),
}
