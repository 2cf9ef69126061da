"""Record batches v2 (KIP-98): view, validate, patch in place, build, iterate; the codecs. Older formats are not read."""

from ottla.protocol.records.batch import HEADER_BYTES, BatchView, check_batch, iter_batches, patch_timestamp
from ottla.protocol.records.builder import build_batch, rebuild_batch
from ottla.protocol.records.record import NewRecord, Record
from ottla.protocol.records.validate import RecordError, RecordRules, RecordsRejected, validate_header, validate_records

__all__ = [
    "HEADER_BYTES",
    "BatchView",
    "NewRecord",
    "Record",
    "RecordError",
    "RecordRules",
    "RecordsRejected",
    "build_batch",
    "check_batch",
    "iter_batches",
    "patch_timestamp",
    "rebuild_batch",
    "validate_header",
    "validate_records",
]
