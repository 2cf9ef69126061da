"""`kafka-dump-log --remote-log-metadata-decoder` shows the fields of a record of `__remote_log_metadata`."""

from __future__ import annotations

import json

from ottla.broker.tiers.remote_segments import RemoteState, TieredPartition, changed
from ottla.cli.shims.dump_log_records import DECODERS
from ottla.protocol.internal_topics.remote_log_records import encode_remote_log_record
from ottla.protocol.records.record import Record

DECODE = DECODERS["remote-log-metadata-decoder"]


def record(value: bytes) -> Record:
    return Record(7, 0, None, value, ())


def test_the_fields_of_a_segments_state_are_shown() -> None:
    update = changed(TieredPartition("events", bytes(16), 3), bytes(16), RemoteState.COPY_FINISHED, 2, 1_000)
    shown = json.loads(DECODE(record(encode_remote_log_record(update))).value or "")
    assert shown["type"] == "RemoteLogSegmentMetadataUpdateRecord"
    assert shown["data"]["remoteLogSegmentState"] == 1
    assert shown["data"]["remoteLogSegmentId"]["topicIdPartition"]["name"] == "events"


def test_other_bytes_are_skipped() -> None:
    assert (DECODE(record(b"\x09")).value or "").startswith("Error at offset 7, skipping.")
