"""The work of operators while both kinds are in one cluster: logins, moves of replicas between nodes and disks, many partitions."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from tests.chaos.history import TOPIC, Load, create_topic, judge, read_everything
from tests.compat.mixed import clients
from tests.compat.mixed.contents import LOGINS, MECHANISM, PASSWORD, SCRAM, logged_in, with_logins
from tests.compat.mixed.nodes import KAFKA, OTTLA, Mixed, Node, NotSo, until
from tests.ottla.conftest import Cli

IDS = (1, 2, 3)
KINDS = (KAFKA, OTTLA, OTTLA)
INTERNAL = {"offsets_topic_replication_factor": 3, "transaction_state_log_replication_factor": 3}
PARTITIONS = 1_000
MOVED_PARTITIONS = 4
RECORDS = 5_000


def three(mixed: Mixed) -> list[Node]:
    return [mixed.add(kind, node, "broker,controller") for node, kind in zip(IDS, KINDS, strict=True)]


def log_in_anywhere(directory: Path) -> None:
    """A user, a token, an ACL and a quota that were made at one node are valid at every node of either kind."""
    with Mixed(directory, IDS, **LOGINS, **INTERNAL) as mixed:
        nodes = three(mixed)
        with_logins(mixed)
        for node in nodes:
            node.start()
        mixed.wait_brokers(*IDS)
        for node in nodes:
            mixed.create(f"led-by-{node.id}", [[node.id]])
        for maker in nodes:
            cli, user = Cli(maker.bootstrap), f"user-{maker.id}"
            cli.ok("user", "create", user, "--mechanism", MECHANISM, stdin=PASSWORD)
            cli.ok("acl", "add", user, "write", "topic:led-", "--prefixed", "--deny")
            cli.ok("quota", "set", "user", user, "producer_byte_rate=12345")
            login = partial(logged_in, mixed, f'{SCRAM} username="{user}" password="{PASSWORD}";')
            until(f"{user} logs in", lambda login=login, maker=maker: login(maker, "topic", "list").code == 0)
            made = json.loads(login(maker, "token", "create", "-o", "json").out)
            token = f'{SCRAM} username="{made["token_id"]}" password="{made["hmac"]}" tokenauth="true";'
            for node in nodes:
                where = f"{user} of {maker.kind} at {node.kind} {node.id}"
                for way in (login, partial(logged_in, mixed, token)):
                    until(where, lambda way=way, node=node: way(node, "topic", "list").code == 0)
                    refused = way(node, "produce", f"led-by-{node.id}", stdin="x")
                    if refused.code == 0 or "TOPIC_AUTHORIZATION_FAILED" not in refused.err:
                        raise NotSo(f"{where} may write: {refused.err}")
                if not any(user in str(row) for row in Cli(node.bootstrap).rows("quota", "list")):
                    raise NotSo(f"{where}: no quota")


def reassign(directory: Path) -> None:
    """Partitions move from Kafka's node to Ottla's and back under load and throttled; the target is killed during a move."""
    with Mixed(directory, IDS, **INTERNAL) as mixed:
        kafka, ottla, _ = (node.start() for node in three(mixed))
        mixed.wait_brokers(*IDS)
        mixed.create(TOPIC, [[kafka.id]] * MOVED_PARTITIONS)
        mixed.wait_isr(TOPIC, [kafka.id])
        load = Load(mixed.bootstrap, per_second=300, padding=2_000)
        load.wait_for_acknowledgements(RECORDS)
        for target in (ottla, kafka):
            cli = Cli(mixed.bootstrap)
            places = [f"{TOPIC}:{index}" for index in range(MOVED_PARTITIONS)]
            cli.ok("move", "run", *places, "--to", str(target.id), "--no-wait")
            load.wait_for_acknowledgements(300)
            target.kill()
            target.start()
            mixed.wait_brokers(*IDS)
            mixed.wait_isr(TOPIC, [target.id], target.id)
            load.wait_for_acknowledgements(300)
        load.stop()
        if problems := judge([load], read_everything(mixed.bootstrap, leaders_change=True)):
            raise NotSo("; ".join(problems))


def move_between_disks(directory: Path) -> None:
    """Replicas move between the two log directories of a node of either kind, and stay in the ISR."""
    with Mixed(directory, IDS, **INTERNAL) as mixed:
        nodes = three(mixed)
        for node in nodes:
            node.own["log.dirs"] = f"{node.dir},{node.dir}-second"
            node.start()
        mixed.wait_brokers(*IDS)
        create_topic(mixed.bootstrap, 3, min_insync_replicas="2")
        mixed.wait_isr(TOPIC, IDS)
        load = Load(mixed.bootstrap, per_second=300, padding=2_000)
        load.wait_for_acknowledgements(1_000)
        for node in nodes:
            for target in (f"{node.dir}-second", str(node.dir)):
                topics = [AlterReplicaLogDirTopic(TOPIC, list(range(MOVED_PARTITIONS)))]
                request = AlterReplicaLogDirsRequest([AlterReplicaLogDir(target, topics)])
                (answer,) = mixed.request(request, ApiKey.ALTER_REPLICA_LOG_DIRS, 2, node).results
                if any(each.error_code != ErrorCode.NONE for each in answer.partitions):
                    raise NotSo(f"{node.kind} {node.id}: {answer}")
                until(f"{target} has the partitions", partial(_has_partitions, Path(target)))
                load.wait_for_acknowledgements(200)
            node.stop()
            node.start()
            mixed.wait_isr(TOPIC, IDS)
        load.stop()
        if problems := judge([load], read_everything(mixed.bootstrap, leaders_change=True)):
            raise NotSo("; ".join(problems))


def _has_partitions(directory: Path) -> bool:
    return all((directory / f"{TOPIC}-{index}").is_dir() for index in range(MOVED_PARTITIONS))


def have_many_partitions(directory: Path) -> None:
    """With 1,000 partitions of three replicas, each node leaves and comes back, then changes its kind; all replicas are in sync
    again.
    """
    with Mixed(directory, IDS, **INTERNAL) as mixed:
        nodes = three(mixed)
        for node in nodes:
            node.start()
        mixed.wait_brokers(*IDS)
        for number in range(10):
            mixed.create(f"many{number}", [IDS[i % 3 :] + IDS[: i % 3] for i in range(PARTITIONS // 10)])
        names = [f"many{number}" for number in range(10)]
        clients.produce(mixed.bootstrap, names[0], written := [f"{i}" for i in range(500)])
        for node in nodes:
            for topic in names:
                mixed.wait_isr(topic, IDS)
            node.stop()
            node.become(OTTLA if node.kind == KAFKA else KAFKA).start()
            mixed.wait_brokers(*IDS)
        for topic in names:
            mixed.wait_isr(topic, IDS)
        clients.check(mixed.bootstrap, names[0], written)


STEPS: dict[str, Callable[[Path], None]] = {
    "logins": log_in_anywhere,
    "reassign": reassign,
    "log-directories": move_between_disks,
    "many-partitions": have_many_partitions,
}
