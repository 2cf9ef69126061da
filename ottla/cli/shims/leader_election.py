"""kafka-leader-election: elect the preferred replicas, or any that are alive, as leaders (KIP-460)."""

from __future__ import annotations

import argparse
import sys

from ottla.cli.shims.exceptions import exception_name, message, reason
from ottla.cli.shims.json_files import place_of, read_object, repeated, rows_of, shown
from ottla.cli.shims.tool import ToolParser, Unusable, given, with_cluster
from ottla.client.cluster import ClusterClient
from ottla.client.failures import Failure
from ottla.client.partitions import TopicPartition
from ottla.client.topics import PREFERRED, UNCLEAN, elect_leaders
from ottla.protocol.errors import ErrorCode

TYPES = {"PREFERRED": PREFERRED, "UNCLEAN": UNCLEAN}
WHICH = ("topic", "all-topic-partitions", "path-to-json-file")
TIMEOUT_MS = 30_000


def main(arguments: list[str]) -> int:
    parser = ToolParser("kafka-leader-election", "Attempt to elect a new leader for a set of topic partitions.")
    parser.add_bootstrap(old_names=("--admin.config",))
    parser.flags("all-topic-partitions")
    parser.texts("path-to-json-file", "topic", "election-type")
    parser.numbers("partition")
    options = parser.parse(arguments, bootstrap=False)
    try:
        check_options(options)
        parser.connect(options)
        election = options.election_type.upper()
        if election not in TYPES:
            raise Unusable(f"Cannot parse argument '{options.election_type}' of option election-type")
        places = places_of(options)
        return with_cluster(options, lambda cluster: elect(cluster, election, places), TIMEOUT_MS)
    except Unusable as wrong:
        print(wrong, file=sys.stderr)
    except Failure as failure:
        print(reason(failure), file=sys.stderr)
    return 1


def check_options(options: argparse.Namespace) -> None:
    missing = [name for name in ("bootstrap-server", "election-type") if not given(options, name)]
    if missing:
        raise Unusable(f"Missing required option(s): {', '.join(missing)}")
    which = [name for name in WHICH if given(options, name)]
    if len(which) != 1:
        raise Unusable(f"One and only one of the following options is required: {', '.join(WHICH)}")
    if options.topic and options.partition is None:
        raise Unusable("Missing required option(s): partition")
    if options.partition is not None and not options.topic:
        raise Unusable("Option partition is only allowed if topic is used")


def places_of(options: argparse.Namespace) -> list[TopicPartition] | None:
    """Return the partitions. None means all of them."""
    if options.all_topic_partitions:
        return None
    if options.topic:
        return [(options.topic, options.partition)]
    found = read_object(options.path_to_json_file, "Replica election data is empty")
    if "partitions" not in found:
        raise Unusable('Replica election data is missing "partitions" field')
    places = [place_of(row) for row in rows_of(found, "partitions", "topic", "partition")]
    if twice := repeated(places):
        raise Unusable(f"Replica election data contains duplicate partitions: [{', '.join(twice)}]")
    return places


async def elect(cluster: ClusterClient, election: str, places: list[TopicPartition] | None) -> int:
    results = await elect_leaders(cluster, places, TYPES[election])
    done = shown(place for place, row in results.items() if not row.error_code)
    needless = shown(place for place, row in results.items() if row.error_code == ErrorCode.ELECTION_NOT_NEEDED)
    failed = {
        place: row
        for place, row in results.items()
        if row.error_code not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
    }
    if done:
        print(f"Successfully completed leader election ({election}) for partitions {', '.join(done)}")
    if needless:
        print(f"Valid replica already elected for partitions {', '.join(needless)}")
    for (name, index), row in sorted(failed.items()):
        said = f"{exception_name(row.error_code)}: {row.error_message or message(row.error_code)}"
        print(f"Error completing leader election ({election}) for partition: {name}-{index}: {said}")
    if failed:
        raise Unusable(f"{len(failed)} replica(s) could not be elected")
    return 0
