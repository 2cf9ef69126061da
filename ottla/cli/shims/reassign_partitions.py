"""kafka-reassign-partitions: move replicas between brokers and log directories, by plans in JSON files.

The plans are read in `move_plans.py`, and throttles are in `move_throttles.py`.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterable

from ottla.cli.shims import move_throttles
from ottla.cli.shims.exceptions import exception, message, rejected
from ottla.cli.shims.json_files import shown
from ottla.cli.shims.move_plans import (
    MovePlan,
    PlannedReplica,
    plan_json,
    proposed,
    read_brokers,
    read_plan,
    read_topics,
)
from ottla.cli.shims.tool import ToolParser, Unusable, given, with_cluster
from ottla.client.cluster import ClusterClient
from ottla.client.cluster_state import alter_replica_log_dirs, describe_cluster, describe_log_dirs
from ottla.client.failures import Failure
from ottla.client.partitions import TopicPartition
from ottla.client.topics import alter_reassignments, list_reassignments
from ottla.protocol.errors import ErrorCode

#: The options that each action needs, and those that it allows.
REQUIRED = {
    "generate": ("topics-to-move-json-file", "broker-list"),
    "execute": ("reassignment-json-file",),
    "verify": ("reassignment-json-file",),
    "cancel": ("reassignment-json-file",),
    "list": (),
}
PERMITTED = {
    "generate": ("disable-rack-aware",),
    "execute": ("additional", "throttle", "replica-alter-log-dirs-throttle", "timeout"),
    "verify": ("preserve-throttles",),
    "cancel": ("preserve-throttles", "timeout"),
    "list": (),
}
OPTIONS = (
    "reassignment-json-file", "topics-to-move-json-file", "broker-list", "throttle", "replica-alter-log-dirs-throttle",
    "timeout", "disable-rack-aware", "additional", "preserve-throttles",
)  # fmt: skip
EXISTING = (
    "Cannot execute because there is an existing partition assignment.  Use --additional to override this and create a "
    "new partition assignment in addition to the existing one. The --additional flag can also be used to change the "
    "throttle by resubmitting the current reassignment."
)
TIMEOUT_MS = 10_000
RETRY_S = 0.1


class Terse(Exception):
    """A failure that is printed without "Error: " in front."""


def main(arguments: list[str]) -> int:
    parser = ToolParser("kafka-reassign-partitions", "This tool helps to move topic partitions between replicas.")
    parser.missing_bootstrap = "Please specify either --bootstrap-server or --bootstrap-controller"
    parser.add_argument("--bootstrap-server")
    parser.texts("bootstrap-controller", "command-config")
    parser.flags(*REQUIRED, "disable-rack-aware", "additional", "preserve-throttles")
    parser.texts("reassignment-json-file", "topics-to-move-json-file", "broker-list")
    parser.numbers("throttle", "replica-alter-log-dirs-throttle", "timeout")
    options = parser.parse(arguments, bootstrap=False)
    actions = [action for action in REQUIRED if getattr(options, action)]
    if len(actions) != 1:
        parser.usage_error(f"Command must include exactly one action: {', '.join(f'--{name}' for name in REQUIRED)}")
    parser.connect(options)
    parser.require(options, *REQUIRED[actions[0]])
    for name in OPTIONS:
        if given(options, name) and name not in (*REQUIRED[actions[0]], *PERMITTED[actions[0]]):
            parser.usage_error(f'Option "[{name}]" can\'t be used with action "[{actions[0]}]"')
    try:
        return with_cluster(options, lambda cluster: RUN[actions[0]](cluster, options))
    except Terse as failed:
        print(failed)
    except Unusable as wrong:
        print(f"Error: {wrong}")
    except Failure as failure:
        print(f"Error: {exception(failure)}")
    return 1


async def current_replicas(cluster: ClusterClient, names: Iterable[str]) -> dict[TopicPartition, list[int]]:
    """Return the replicas of all partitions of the topics; topics that do not exist are left out."""
    topics = (await cluster.metadata(sorted(set(names)))).topics
    return {
        (topic.name or "", part.partition_index): list(part.replica_nodes)
        for topic in topics
        for part in topic.partitions
    }


async def directories(cluster: ClusterClient, brokers: Iterable[int]) -> dict[PlannedReplica, tuple[str, bool]]:
    """Return the log directory of each replica of the brokers. True beside it means that the replica is being moved there."""
    found: dict[PlannedReplica, tuple[str, bool]] = {}
    for broker in sorted(set(brokers)):
        for row in await describe_log_dirs(cluster, broker):
            for topic in row.topics:
                for part in topic.partitions:
                    replica = PlannedReplica(topic.name, part.partition_index, broker)
                    if part.is_future_key or replica not in found:
                        found[replica] = (row.log_dir, part.is_future_key)
    return found


async def _current(cluster: ClusterClient, wanted: MovePlan | list[str]) -> MovePlan:
    """Return the present replicas of the partitions in a plan, or of all partitions of topics."""
    names = wanted if isinstance(wanted, list) else [name for name, _ in wanted.replicas]
    found = await current_replicas(cluster, names)
    for name in names:
        if (name, 0) not in found:
            raise rejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {name} not found.")
    if isinstance(wanted, MovePlan):
        if missing := wanted.replicas.keys() - found.keys():
            what = f"Unable to find partition: {', '.join(shown(missing))}"
            raise rejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what)
        found = {place: found[place] for place in wanted.replicas}
    known = await directories(cluster, {broker for brokers in found.values() for broker in brokers})
    places = {
        replica: known[replica][0]
        for place, brokers in found.items()
        for replica in (PlannedReplica(*place, broker) for broker in brokers)
        if replica in known
    }
    return MovePlan(found, places)


# -- Actions ----------------------------------------------------------------------------------------------------------


async def _generate(cluster: ClusterClient, options: argparse.Namespace) -> int:
    brokers, names = read_brokers(options.broker_list), read_topics(options.topics_to_move_json_file)
    current = await _current(cluster, names)
    rows = [row for row in (await describe_cluster(cluster)).brokers if row.broker_id in brokers]
    racks = {row.broker_id: None if options.disable_rack_aware else row.rack for row in rows}
    replicas = proposed(current.replicas, racks, cluster.world.rng)
    print(f"Current partition replica assignment\n{plan_json(current)}\n")
    print(f"Proposed partition reassignment configuration\n{plan_json(MovePlan(replicas, {}))}")
    return 0


async def _execute(cluster: ClusterClient, options: argparse.Namespace) -> int:
    plan = read_plan(options.reassignment_json_file)
    plan.check()
    ongoing = await list_reassignments(cluster)
    if ongoing and not options.additional:
        raise Terse(EXISTING)
    known = {row.broker_id for row in (await describe_cluster(cluster)).brokers}
    for broker in sorted({broker for brokers in plan.replicas.values() for broker in brokers} - known):
        raise Unusable(f"Unknown broker id {broker}")
    current = await _current(cluster, plan)
    print(
        f"Current partition replica assignment\n\n{plan_json(current)}\n\n"
        "Save this to use as the --reassignment-json-file option during rollback"
    )
    await move_throttles.begin(cluster, options, plan, current.replicas, ongoing)
    results = await alter_reassignments(cluster, plan.replicas)
    if failed := {place: row for place, row in results.items() if row[0]}:
        lines = [f"{name}-{index}: {text or message(code)}" for (name, index), (code, text) in sorted(failed.items())]
        raise Terse("Error reassigning partition(s):\n" + "\n".join(lines))
    print(f"Successfully started partition reassignment{_s(plan.replicas)} for {','.join(shown(plan.replicas))}")
    if plan.directories:
        await _move_directories(cluster, plan, (options.timeout or TIMEOUT_MS) / 1000)
    return 0


def _s(items: Iterable[object]) -> str:
    return "" if len(list(items)) == 1 else "s"


async def _move_directories(cluster: ClusterClient, plan: MovePlan, seconds: float) -> None:
    """Ask each broker to move its replicas. If a broker does not have a replica yet, ask again."""
    todo, loop = dict(plan.directories), asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while True:
        for broker in sorted({replica.broker for replica in todo}):
            moves = {(row.topic, row.partition): path for row, path in todo.items() if row.broker == broker}
            for place, code in (await alter_replica_log_dirs(cluster, broker, moves)).items():
                if code == ErrorCode.REPLICA_NOT_AVAILABLE:
                    continue
                path = todo.pop(PlannedReplica(*place, broker))
                if code:
                    raise Terse(f"Failed to alter dir for {place[0]}-{place[1]}-{broker}: {message(code)}")
                print(
                    f"Successfully started moving log directory to {path} for replica {place[0]}-{place[1]} with broker {broker} "
                )
        if not todo:
            return
        if loop.time() > deadline:
            names = ",".join(f"{row.topic}-{row.partition}-{row.broker}" for row in sorted(todo))
            raise Terse(f"Timed out before log directory move{_s(todo)} could be started for: {names}")
        await asyncio.sleep(RETRY_S)


async def _verify(cluster: ClusterClient, options: argparse.Namespace) -> int:
    plan = read_plan(options.reassignment_json_file, once=False)
    ongoing = await list_reassignments(cluster)
    replicas = await current_replicas(cluster, (name for name, _ in plan.replicas))
    print("Status of partition reassignment:")
    for place, target in sorted(plan.replicas.items()):
        name = f"{place[0]}-{place[1]}"
        now = replicas.get(place, [])
        if place in ongoing:
            print(f"Reassignment of partition {name} is still in progress.")
        elif now == target:
            print(f"Reassignment of partition {name} is completed.")
        else:
            wanted, found = (",".join(map(str, brokers)) for brokers in (target, now))
            print(
                f"There is no active reassignment of partition {name}, but replica set is {found} rather than {wanted}."
            )
    lines, is_moving = await _directory_states(cluster, plan)
    print("\n".join(lines))
    if not ongoing and not is_moving and not options.preserve_throttles:
        await move_throttles.clear(cluster, plan)
    return 0


async def _directory_states(cluster: ClusterClient, plan: MovePlan) -> tuple[list[str], bool]:
    found = await directories(cluster, {replica.broker for replica in plan.directories})
    lines, is_moving = [], False
    for replica, target in sorted(plan.directories.items(), key=lambda item: (item[0].broker, item[0])):
        name, broker = f"{replica.topic}-{replica.partition}", replica.broker
        path, is_future = found.get(replica, (None, False))
        is_moving |= is_future
        if path is None:
            lines.append(f"Partition {name} cannot be found in any live log directory on broker {broker}.")
        elif is_future and path == target:
            lines.append(f"Reassignment of replica {name}-{broker} is still in progress.")
        elif is_future:
            lines.append(f"Partition {name} on broker {broker} is being moved to log dir {path} instead of {target}.")
        elif path == target:
            lines.append(f"Reassignment of replica {name}-{broker} completed successfully.")
        else:
            lines.append(f"Partition {name} on broker {broker} is not being moved from log dir {path} to {target}.")
    return lines, is_moving


async def _cancel(cluster: ClusterClient, options: argparse.Namespace) -> int:
    plan = read_plan(options.reassignment_json_file, once=False)
    plan.check()
    moving = sorted((await list_reassignments(cluster)).keys() & plan.replicas.keys())
    if moving:
        results = await alter_reassignments(cluster, dict.fromkeys(moving))
        if failed := {place: row for place, row in results.items() if row[0]}:
            lines = [f"{name}-{index}: {text or message(code)}" for (name, index), (code, text) in failed.items()]
            raise Terse(f"Error cancelling partition reassignment{_s(lines)} for:\n" + "\n".join(lines))
        print(f"Successfully cancelled partition reassignment{_s(moving)} for: {','.join(shown(moving))}")
    else:
        print("None of the specified partition reassignments are active.")
    found = await directories(cluster, {replica.broker for replica in plan.directories})
    staying = {row: path for row, path in plan.directories.items() if found.get(row) == (path, True)}
    if staying:
        await _move_directories(cluster, MovePlan({}, staying), (options.timeout or TIMEOUT_MS) / 1000)
    else:
        print("None of the specified partition moves are active.", end="")  # Kafka prints no line end here
    if not options.preserve_throttles:
        await move_throttles.clear(cluster, plan)
    return 0


async def _list(cluster: ClusterClient, options: argparse.Namespace) -> int:
    ongoing = await list_reassignments(cluster)
    if not ongoing:
        print("No partition reassignments found.")
        return 0
    print("Current partition reassignments:")
    for (name, index), row in sorted(ongoing.items()):
        lists = {"adding": row.adding_replicas, "removing": row.removing_replicas}
        changes = "".join(f" {what}: {','.join(map(str, nodes))}." for what, nodes in lists.items() if nodes)
        print(f"{name}-{index}: replicas: {','.join(map(str, row.replicas))}.{changes}")
    return 0


RUN = {"generate": _generate, "execute": _execute, "verify": _verify, "cancel": _cancel, "list": _list}
