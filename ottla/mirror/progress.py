"""The progress of a mirror: the metrics of a worker, and the lag of all partitions, read from the clusters."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.client.consumer import READ_COMMITTED
from ottla.client.failures import Failure
from ottla.client.topics import LATEST, list_offsets
from ottla.mirror.catalogue import Catalogue
from ottla.mirror.options import Clusters
from ottla.mirror.positions import Positions
from ottla.mirror.worker import Worker
from ottla.protocol.errors import ErrorCode
from ottla.server.metrics import COUNTER, GAUGE, Family, Sample

_COUNTERS = (
    (
        "ottla_mirror_records",
        "Records that this worker has committed to the target.",
        lambda worker: worker.counts.records,
    ),
    ("ottla_mirror_bytes", "Bytes of their batches, compressed as they were sent.", lambda worker: worker.counts.bytes),
    ("ottla_mirror_transactions", "Transactions that it has committed.", lambda worker: worker.counts.transactions),
    (
        "ottla_mirror_lost_offsets",
        "Offsets that the source had deleted before they were read.",
        lambda worker: worker.losses.offsets,
    ),
    (
        "ottla_mirror_recreated_partitions",
        "Partitions that began again because their topic was deleted and created again.",
        lambda worker: worker.losses.recreated,
    ),
    (
        "ottla_mirror_cut_partitions",
        "Partitions whose source has lost records that are in the target.",
        lambda worker: worker.losses.cut,
    ),
    (
        "ottla_mirror_restarted_checkpoints",
        "Checkpoints of groups that began again because their topic was deleted and created again in a cluster.",
        lambda worker: worker.scheduled.restarted_checkpoints,
    ),
    ("ottla_mirror_fenced", "How often another worker had taken a lane.", lambda worker: worker.counts.fenced),
)
_GAUGES = (
    ("ottla_mirror_lanes", "Lanes of this worker.", lambda worker: len(worker.lanes)),
    ("ottla_mirror_partitions", "Partitions in its lanes.", lambda worker: len(worker.places)),
    (
        "ottla_mirror_stopped_partitions",
        "Partitions that the target does not take.",
        lambda worker: len(worker.stopped),
    ),
)


def families(worker: Worker) -> Iterator[Family]:
    """Yield the metrics of a worker."""
    policy = worker.options.policy
    labels = {"source": policy.source, "target": policy.target}
    for kind, rows in ((COUNTER, _COUNTERS), (GAUGE, _GAUGES)):
        for name, doc, value in rows:
            yield Family(name, kind, doc, [Sample(labels, value(worker))])
    lags = [
        Sample({**labels, "topic": name, "partition": str(index)}, lag)
        for (name, index), lag in sorted(worker.lags.items())
    ]
    yield Family("ottla_mirror_lag_records", GAUGE, "Offsets of the source that are not in the target yet.", lags)


async def lag_rows(clusters: Clusters, catalogue: Catalogue, positions: Positions) -> list[dict[str, object]]:
    """Return a row for each partition that is or will be mirrored: its position in the source, and its lag.

    `recreated` is true if its topic was deleted and created again since the position was written. Then it is mirrored from its
    beginning.

    Raises:
        Failure: a cluster cannot be reached, or gives no permission.
    """
    await catalogue.look()
    try:
        found = await positions.read()
    except Failure as fault:
        if fault.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        found = {}  # no worker has run so far
    rows: list[dict[str, object]] = []
    for name in catalogue.topics:
        ends = await list_offsets(clusters.source, name, LATEST, None, READ_COMMITTED)
        for index, end in ends.items():
            row = found.get((name, index))
            recreated = row is not None and row.topic_id not in (None, catalogue.topic_ids.get(name))
            position = None if row is None or recreated else row.next_offset
            rows.append(
                {
                    "topic": name,
                    "partition": index,
                    "target_topic": catalogue.policy.remote(name),
                    "position": position,
                    "end": end,
                    "recreated": recreated,
                    "lag": None if position is None else max(0, end - position),
                }
            )
    return rows
