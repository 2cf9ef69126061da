"""The report of a check: rows of what was found, and sentences about what a start changes."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.node.adoption.check import Checked
from ottla.protocol.features import METADATA_VERSION, metadata_version_name

Facts = dict[str, object]
#: So many names of a list are shown.
NAMES_SHOWN = 5


def facts(checked: Checked) -> Facts:
    """Returns what was found by name."""
    owner, metadata, logs, coordinators = checked.ownership, checked.metadata, checked.logs, checked.coordinators
    image, snapshot = metadata.image, metadata.latest_snapshot
    levels = metadata.levels()
    return {
        "cluster_id": owner.cluster_id,
        "node_id": owner.node_id,
        "roles": list(checked.roles),
        "directories": owner.paths,
        "metadata_directory": owner.metadata_directory,
        "clean_shutdown": not owner.unclean,
        METADATA_VERSION: metadata_version_name(levels.pop(METADATA_VERSION, 0)),
        "features": {name: level for name, level in levels.items() if level},
        "voters": sorted(metadata.voter_ids),
        "quorum_epoch": metadata.leader_epoch,
        "metadata_log": [metadata.log_start_offset, metadata.log_end_offset],
        "last_snapshot": None if snapshot is None else f"{snapshot.offset}-{snapshot.epoch}",
        "brokers": sorted(image.cluster.brokers),
        "topics": sum(1 for _ in image.topics),
        "partitions_here": len(logs),
        "bytes_here": logs.bytes,
        "codecs": dict(sorted(logs.codecs.items())),
        "producers": logs.producers,
        "partitions_in_transaction": logs.open_transactions,
        "transactions": dict(sorted(coordinators.transactions.items())),
        "transactions_open": coordinators.open_transactions,
        "groups": dict(sorted(coordinators.groups.items())),
        "committed_offsets": coordinators.committed_offsets,
        "unknown_coordinator_records": coordinators.unknown_records,
        "access_control_entries": len(image.acls.entries),
        "scram_credentials": sum(1 for _ in image.scram.to_records()),
        "delegation_tokens": len(image.delegation_tokens.tokens),
        "client_quotas": len(image.client_quotas.entities),
    }


def changes(checked: Checked) -> Iterator[str]:
    """Yields what the first start changes, in sentences."""
    owner, logs = checked.ownership, checked.logs
    yield "no file is converted: the formats are the same"
    for path, meta in owner.identities.items():
        if meta.directory_id is None:
            yield f"{path} gets a directory.id (KIP-858), as at a start of Kafka 3.7"
    if owner.unclean:
        yield f"the last stop was not clean in {', '.join(owner.unclean)}: the ends of all logs are read and checked"
    yield from (f"recovery: {line}" for line in logs.recovery)
    if logs.strays:
        yield f"the metadata does not know {_some(logs.strays)} any more: set aside as -stray"
    if logs.without_files:
        yield f"{_some(logs.without_files)} have no files here and begin empty; as followers they fetch from their leaders"
    version = metadata_version_name(checked.metadata.image.features.metadata_version)
    yield f"metadata.version stays {version}; `ottla feature upgrade` raises it when every node can follow"


def _some(names: list[str]) -> str:
    more = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
