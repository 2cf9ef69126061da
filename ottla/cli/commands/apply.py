"""The command `ottla apply -f cluster.yml`: shows what has to change so that a cluster has what a file declares, and makes it so."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from functools import partial
from typing import Annotated

from ottla.cli import declared as declarations
from ottla.cli.app import App, Parameter
from ottla.cli.application import CONNECTION, ConnectionOptions, Output, Yes, connect, run
from ottla.cli.apply_plan import Present, Setting, Shape, plan
from ottla.cli.declared import DeclaredCluster, DeclaredUser, Entity, read_declared
from ottla.cli.errors import USAGE, CommandFailed
from ottla.cli.output import confirm, note, print_rows
from ottla.client.access import AclFilter, describe_acls, describe_quotas, describe_scram_users, text_of
from ottla.client.cluster import ClusterClient
from ottla.client.configs import OWN_PREFIX, describe_configs, takes_own_configs
from ottla.client.failures import Failure, counted
from ottla.client.topics import adding_replicas, replication_factor

app = App(
    "apply",
    "Bring a cluster to what a file declares: topics, settings, users, ACLs and quotas. `ottla apply --example` prints a file.\n\n"
    f"{(declarations.__doc__ or '').partition(chr(10))[2].strip()}",
)

COLUMNS = ("kind", "name", "change")
#: The sources of a setting that is set on the resource itself: topic, broker, cluster default, client metrics, group.
OWN_SOURCES = {"topic": (1,), "broker": (2, 3), "client-metrics": (7,), "group": (8,)}

main = partial(run, app)


@app.default
async def apply(
    *,
    file: Annotated[
        str | None,
        Parameter(name=("--file", "-f"), help="The file, - for standard input."),
    ] = None,
    example: Annotated[bool, Parameter(help="Print a whole file to begin with, and end.")] = False,
    dry_run: Annotated[bool, Parameter(help="Only show the plan.")] = False,
    yes: Yes = False,
    output: Output = "table",
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Show the plan, ask at a terminal, and make the changes in its order. A second time there is nothing to change.

    If a change is rejected, those before it stay: mend the file, and apply it again.
    """
    if example:
        print(declarations.EXAMPLE, end="")
        return
    if file is None:
        raise CommandFailed(
            "there is no --file", "`ottla apply --example > cluster.yml` writes one to begin with", USAGE
        )
    wanted = read_declared(_text(file), file)
    async with connect(connection, limited=False) as cluster:
        async with cluster.limit():
            wanted = await _without_own_configs(cluster, wanted)
            changes = plan(wanted, await _present(cluster, wanted), _password, text_of)
        if not changes:
            note("nothing to change")
            return
        print_rows([{"kind": each.kind, "name": each.name, "change": each.change} for each in changes], COLUMNS, output)
        if dry_run:
            note("nothing was changed (--dry-run)")
            return
        confirm(f"make {counted(len(changes), 'change')}?", yes)
        for number, change in enumerate(changes):
            try:
                async with cluster.limit():
                    await change.make(cluster)
            except Failure as failure:
                note(f"made {number} of {counted(len(changes), 'change')}")
                raise failure
    note(f"made {counted(len(changes), 'change')}")


async def _without_own_configs(cluster: ClusterClient, wanted: DeclaredCluster) -> DeclaredCluster:
    """Leave Ottla's own configurations of topics out where the brokers are Apache Kafka's, so that one file serves both."""
    own = {
        name: sorted(each for each in topic.config if each.startswith(OWN_PREFIX))
        for name, topic in wanted.topics.items()
    }
    if not any(own.values()) or await takes_own_configs(cluster):
        return wanted
    topics = {}
    for name, topic in wanted.topics.items():
        if own[name]:
            note(f"topic {name}: {', '.join(own[name])} left out, which these brokers do not have")
        config = {each: value for each, value in topic.config.items() if each not in own[name]}
        topics[name] = replace(topic, config=config)
    return replace(wanted, topics=topics)


async def _present(cluster: ClusterClient, wanted: DeclaredCluster) -> Present:
    """Read the cluster's state of what is declared. Sections that are not declared are not read, and need no permission."""
    present = Present()
    if wanted.topics:
        topics = (await cluster.metadata(None)).topics
        adding = await adding_replicas(cluster, topics)
        for topic in topics:
            present.topics[topic.name or ""] = Shape(len(topic.partitions), replication_factor(topic, adding))
    resources = {
        ("topic", name): topic.config
        for name, topic in wanted.topics.items()
        if topic.config and name in present.topics
    }
    for (kind, name), settings in (resources | wanted.config).items():
        resource = "" if (kind, name) == ("broker", "all") else name
        entries = await describe_configs(cluster, kind, resource, sorted(settings))
        present.settings[kind, name] = {
            entry.name: Setting(entry.value, entry.config_source in OWN_SOURCES[kind]) for entry in entries
        }
    if wanted.users:
        present.users = {name: set(found) for name, found in (await describe_scram_users(cluster)).items()}
    if wanted.acls:
        present.acls = set(await describe_acls(cluster, AclFilter()))
    if wanted.quotas:
        present.quotas = await _quotas(cluster, wanted)
    return present


async def _quotas(cluster: ClusterClient, wanted: DeclaredCluster) -> dict[Entity, dict[str, float]]:
    by_parts = {
        frozenset((part.entity_type, part.entity_name) for part in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in await describe_quotas(cluster, {})
    }
    return {entity: by_parts.get(frozenset(entity), {}) for entity in wanted.quotas}


def _text(path: str) -> str:
    if path == "-":
        return sys.stdin.read()
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as fault:
        raise CommandFailed(
            f"{path} cannot be read: {getattr(fault, 'strerror', None) or fault}", None, USAGE
        ) from None


def _password(name: str, user: DeclaredUser) -> str:
    """Return the password of a user that is to be created, from the environment or a file."""
    if user.password_env is not None:
        password = os.environ.get(user.password_env, "")
        place = f"${user.password_env}"
    else:
        assert user.password_file is not None
        password, place = _text(user.password_file).rstrip("\r\n"), user.password_file
    if not password:
        raise CommandFailed(f"there is no password for user {name} in {place}", None, USAGE)
    return password
