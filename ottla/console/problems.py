"""The present problems of the cluster and their remedies. They come from the newest sample, without a request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ottla.client.cluster import NoConnection
from ottla.client.cluster_state import FULL_BYTES
from ottla.client.failures import Failure, counted
from ottla.console.sampler import Sampler
from ottla.console.snapshot import ConsoleSnapshot
from ottla.protocol.errors import ErrorCode

#: One finding names this many; the rest is counted.
NAMES_SHOWN = 5
#: A disk with a smaller share of free bytes is a warning.
LOW_PART = 0.1
#: A voter is a problem if its last fetch is longer ago: voters fetch each second or two.
VOTER_SILENT_MS_MAX = 10_000
#: A broker that leads more than this many times its even share is a warning, if the cluster has enough leaders.
UNEVEN_PART, UNEVEN_LEADERS_MIN = 1.5, 12

ERROR, WARNING = "error", "warning"


class Finding(NamedTuple):
    """A problem: its severity, a sentence about it, and the remedy."""

    level: str
    text: str
    remedy: str


def findings(sampler: Sampler) -> list[Finding]:
    """Return the problems, errors first."""
    if sampler.snapshot is None:
        return []
    found = [*_brokers(sampler.snapshot), *_partitions(sampler.snapshot), *_quorum(sampler.snapshot), *_disks(sampler)]
    return sorted(found, key=lambda each: each.level != ERROR)


def _brokers(snapshot: ConsoleSnapshot) -> Iterator[Finding]:
    if fenced := [str(node) for node, broker in snapshot.brokers.items() if broker.fenced]:
        yield Finding(
            ERROR,
            f"broker {_names(fenced)} is fenced: it leads nothing, and no client reaches it",
            "It has stopped or cannot reach the controllers. Start it again, or look at the end of its log.",
        )
    leaders = {node: 0 for node, broker in snapshot.brokers.items() if not broker.fenced}
    for _, _, part in snapshot.partitions():
        if part.leader in leaders and len(part.replicas) > 1:
            leaders[part.leader] += 1
    even = sum(leaders.values()) / max(1, len(leaders))
    if len(leaders) > 1 and sum(leaders.values()) >= UNEVEN_LEADERS_MIN:
        for node, count in leaders.items():
            if count > even * UNEVEN_PART:
                text = f"broker {node} leads {counted(count, 'partition')}, and {even:.0f} would be its even share"
                yield Finding(
                    WARNING, text, "`ottla partition elect` gives partitions back to their preferred leaders."
                )


def _partitions(snapshot: ConsoleSnapshot) -> Iterator[Finding]:
    offline, under, bare = [], [], []
    for name, index, part in snapshot.partitions():
        if part.is_offline:
            offline.append(f"{name}-{index}")
        elif part.is_under_replicated:
            under.append(f"{name}-{index}")
        if len(part.original_replicas) == 1 and len(snapshot.brokers) > 1:
            bare.append(name)
    if offline:
        yield Finding(
            ERROR,
            f"{counted(len(offline), 'partition')} without a leader: {_names(offline)}",
            "Nothing can be read or written there. Start the brokers that have their replicas.",
        )
    if under:
        yield Finding(
            WARNING,
            f"{counted(len(under), 'partition')} with missing replicas: {_names(under)}",
            "Producers with acks=all fail below min.insync.replicas. Start the missing brokers, or wait until they have caught up.",
        )
    if bare := sorted(set(bare)):
        yield Finding(
            WARNING,
            f"{counted(len(bare), 'topic')} with one replica only: {_names(bare)}",
            "One lost disk loses their records. `ottla move run TOPIC --to 1,2,3` adds replicas.",
        )


def _quorum(snapshot: ConsoleSnapshot) -> Iterator[Finding]:
    if snapshot.quorum is None:
        return
    if snapshot.quorum.leader < 0:
        yield Finding(
            ERROR, "the metadata quorum has no leader", "Start controllers until a majority of the voters runs."
        )
        return
    silent = [str(row.id) for row in snapshot.quorum.replicas if row.is_voter and row.silent_ms > VOTER_SILENT_MS_MAX]
    if silent:
        voters = sum(row.is_voter for row in snapshot.quorum.replicas)
        spare = voters - len(silent) - (voters // 2 + 1)
        left = "No other one may fail" if spare <= 0 else f"{spare} more may fail"
        yield Finding(
            ERROR, f"controller {_names(silent)} does not fetch", f"Start it again. {left}, or nothing can change."
        )


def _disks(sampler: Sampler) -> Iterator[Finding]:
    for node, rows in sorted(sampler.directories.items()):
        for path, error, total, usable in rows:
            if error:
                yield Finding(
                    ERROR,
                    f"broker {node}: log directory {path} is offline",
                    "Replace the disk, then restart the broker.",
                )
            elif 0 <= usable < FULL_BYTES:
                remedy = "Free some bytes: shorter retention, or delete records. Writes go on by themselves."
                yield Finding(ERROR, f"broker {node}: no space left in {path}", remedy)
            elif total > 0 and 0 <= usable < total * LOW_PART:
                text = f"broker {node}: {usable * 100 // total} % of the disk of {path} is left"
                yield Finding(WARNING, text, "Shorten the retention of large topics, or add a broker.")


def _names(names: list[str]) -> str:
    more = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


#: Remedies on a page, by the broker's error code.
_OF_CODES: dict[int, str] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "it may have been deleted: the page Topics has those that there are",
    ErrorCode.TOPIC_ALREADY_EXISTS: "choose another name",
    ErrorCode.INVALID_REPLICATION_FACTOR: "there are fewer brokers: the page Overview has them",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "names have 1 to 249 letters, digits, dots, underscores and dashes",
    ErrorCode.NON_EMPTY_GROUP: "stop its consumers first: the group's page has them",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has members: stop its consumers first",
    ErrorCode.SECURITY_DISABLED: "the brokers have no authorizer (authorizer.class.name)",
    **dict.fromkeys(
        (
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            ErrorCode.GROUP_AUTHORIZATION_FAILED,
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
        "the user of this console has no access control entry for that",
    ),
}


def remedy_of(failure: Failure) -> str | None:
    """Return the remedy in words of the console."""
    if isinstance(failure, NoConnection):
        return "this console asks again by itself"
    return failure.remedy or (_OF_CODES.get(failure.code) if failure.code else None)
