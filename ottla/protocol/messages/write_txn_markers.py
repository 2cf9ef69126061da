"""WriteTxnMarkers: the transaction coordinator has markers written to partitions.

v2 adds the transaction version (KIP-1228).
"""

from __future__ import annotations

from ottla.protocol.messages.shared_structs import TopicPartitionErrors, TopicPartitionIndexes
from ottla.protocol.schema import api_message, int8, int16, int32, int64, struct, v


@struct
class WritableTxnMarker:
    producer_id: int64 = 0
    producer_epoch: int16 = 0
    transaction_result: bool = False
    topics: list[TopicPartitionIndexes] = v(default=[])
    coordinator_epoch: int32 = 0
    transaction_version: int8 = v("2+", default=0, ignorable=True)


@api_message(27)
class WriteTxnMarkersRequest:
    markers: list[WritableTxnMarker] = v(default=[])


@struct
class WritableTxnMarkerResult:
    producer_id: int64 = 0
    topics: list[TopicPartitionErrors] = v(default=[])


@api_message(27)
class WriteTxnMarkersResponse:
    markers: list[WritableTxnMarkerResult] = v(default=[])
