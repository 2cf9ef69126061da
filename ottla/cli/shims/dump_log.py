"""kafka-dump-log: batches and records of segments and of metadata snapshots. Indexes and producer snapshots are in `dump_log_indexes.py`.

It only reads files, also those of a running node, and needs no broker.
"""

from __future__ import annotations

import argparse
import os
import sys

from ottla.cli.dump import codec_name
from ottla.cli.shims.dump_log_indexes import DUMPS, Mismatches, offset_in_name
from ottla.cli.shims.dump_log_records import DECODERS, Contents, Decode, control_text, decoder_of_classes
from ottla.cli.shims.tool import ToolParser, Unusable, given, int64
from ottla.protocol.errors import KafkaError, ProtocolError
from ottla.protocol.records.batch import ATTRIBUTES_AT, LOG_APPEND_TIME, BatchView, crc32c
from ottla.protocol.records.record import Record
from ottla.storage.errors import CorruptFile
from ottla.storage.files import OsFiles
from ottla.storage.log_files import BATCH_SUFFIXES, is_space_ahead, mapped_file, spans

UNLIMITED = 2**31 - 1
BOOTSTRAP = "bootstrap.checkpoint"
FIXED_DECODERS = ("key-decoder-class", "value-decoder-class")


WITHOUT_EFFECT = {"max-message-size": "A batch of any size is read, because the file is mapped."}


def main(arguments: list[str]) -> int:
    parser = ToolParser(
        "kafka-dump-log",
        "This tool helps to parse a log file and dump its contents to the console, useful for debugging a seemingly "
        "corrupt log segment.",
    )
    parser.flags("print-data-log", "verify-index-only", "index-sanity-check", "deep-iteration", "skip-record-metadata")
    parser.flags(*DECODERS)
    parser.texts("files")
    for name in FIXED_DECODERS:
        parser.add_argument(f"--{name}", nargs="?", const="StringDecoder")
    parser.add_argument("--max-message-size", type=int64, default=5 * 1024 * 1024)
    parser.add_argument("--max-bytes", type=int64, default=UNLIMITED)
    options = parser.parse(arguments, bootstrap=False)
    parser.require(options, "files")
    wrong = Mismatches()
    try:
        for path in options.files.split(","):
            print(f"Dumping {path}")
            _dump(path, options, wrong)
    except (Unusable, CorruptFile, KafkaError, ProtocolError, OSError) as failure:
        sys.stdout.flush()
        print(failure, file=sys.stderr)
        return 1
    sys.stdout.flush()
    wrong.print()
    return 0


def _dump(path: str, options: argparse.Namespace, wrong: Mismatches) -> None:
    suffix = os.path.splitext(os.path.basename(path))[1]
    if suffix in BATCH_SUFFIXES:
        _dump_log(path, options, wrong)
    elif suffix in DUMPS:
        DUMPS[suffix](OsFiles(), path, options, wrong)
    else:
        print(f"Ignoring unknown file {path}", file=sys.stderr)


def _decoder(options: argparse.Namespace) -> Decode:
    for name, decode in DECODERS.items():
        if given(options, name):
            return decode
    return decoder_of_classes(options.key_decoder_class, options.value_decoder_class)


def _dump_log(path: str, options: argparse.Namespace, wrong: Mismatches) -> None:
    decode = _decoder(options)
    contents = any(given(options, name) for name in ("print-data-log", *DECODERS, *FIXED_DECODERS))
    name = os.path.basename(path)
    if name.endswith(".log"):
        print(f"Log starting offset: {offset_in_name(path)}")
    elif name == BOOTSTRAP:
        print("KRaft bootstrap snapshot")
    else:
        offset, _, epoch = name.partition(".")[0].partition("-")
        print(f"Snapshot end offset: {int(offset)}, epoch: {int(epoch)}")
    if not os.path.exists(path):
        raise Unusable(f"java.nio.file.NoSuchFileException: {path}")
    with mapped_file(OsFiles(), path) as view:
        stop, last_offset = 0, -1
        for pos, end in spans(view, end=min(len(view), options.max_bytes)):
            stop = end
            batch = BatchView(view, pos)
            print(_batch_text(batch, pos))
            if options.deep_iteration or contents:
                for record in batch.iter_records():
                    if record.offset != last_offset + 1:
                        wrong.gaps.setdefault(os.path.abspath(path), {})[last_offset] = record.offset
                    last_offset = record.offset
                    print(_record_text(batch, record, decode if contents else None, options.skip_record_metadata))
        if stop < len(view) and options.max_bytes == UNLIMITED and not is_space_ahead(view, stop):
            print(f"Found {len(view) - stop} invalid bytes at the end of {name}")


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _time_name(batch: BatchView) -> str:
    return "LogAppendTime" if batch.timestamp_type == LOG_APPEND_TIME else "CreateTime"


def _batch_text(batch: BatchView, pos: int) -> str:
    horizon = batch.delete_horizon
    is_valid = crc32c(batch.buffer[ATTRIBUTES_AT:]) == batch.crc
    return (
        f"baseOffset: {batch.base_offset} lastOffset: {batch.last_offset} count: {batch.count}"
        f" baseSequence: {batch.base_sequence} lastSequence: {batch.last_sequence} producerId: {batch.producer_id}"
        f" producerEpoch: {batch.producer_epoch} partitionLeaderEpoch: {batch.partition_leader_epoch}"
        f" isTransactional: {_flag(batch.is_transactional)} isControl: {_flag(batch.is_control)}"
        f" deleteHorizonMs: {'OptionalLong.empty' if horizon is None else f'OptionalLong[{horizon}]'}"
        f" position: {pos} {_time_name(batch)}: {batch.max_timestamp} size: {batch.size} magic: {batch.magic}"
        f" compresscodec: {codec_name(batch)} crc: {batch.crc} isvalid: {_flag(is_valid)}"
    )


def _record_text(batch: BatchView, record: Record, decode: Decode | None, skip_metadata: bool) -> str:
    text = "" if skip_metadata else _metadata_text(batch, record)
    if decode is None or batch.is_control:
        return text
    found: Contents = decode(record)
    prefix = "| " if skip_metadata else " "
    if found.key is not None:
        text += f"{prefix}key: {found.key}"
        prefix = " "
    if found.value is not None:
        text += f"{prefix}payload: {found.value}"
    return text


def _metadata_text(batch: BatchView, record: Record) -> str:
    sequence = batch.base_sequence
    if sequence >= 0:
        sequence = (sequence + record.offset - batch.base_offset) & 0x7FFF_FFFF
    sizes = [-1 if data is None else len(data) for data in (record.key, record.value)]
    text = (
        f"| offset: {record.offset} {_time_name(batch)}: {record.timestamp} keySize: {sizes[0]} valueSize: {sizes[1]}"
        f" sequence: {sequence} headerKeys: [{','.join(name for name, _ in record.headers)}]"
    )
    return text + control_text(record) if batch.is_control else text
