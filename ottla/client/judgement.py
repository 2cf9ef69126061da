"""Why a principal may do something or not, by the entries of a cluster and the rules of a broker's file.

It uses the broker's own authorizer. The import of its properties takes 0.1 s, so commands that only read or write entries do
not import this module.
"""

from __future__ import annotations

from ottla.client.access import applying_to, describe_acls, text_of
from ottla.client.cluster import ClusterClient
from ottla.client.configs import describe_configs
from ottla.client.errors import ClusterError
from ottla.server.authorization.acl import AclIndex, Decision
from ottla.server.authorization.authorizer import FileRules, Judgement, file_rules
from ottla.server.config.broker import ALLOW_EVERYONE, AUTHORIZER_CONFIGS, SUPER_USERS


async def described_rules(cluster: ClusterClient) -> FileRules | None:
    """Return the rules in a broker's file, which count beside the entries; None if the broker does not show them, or not to
    this user.
    """
    broker = min(found.node_id for found in (await cluster.metadata([])).brokers)
    try:
        rows = await describe_configs(cluster, "broker", str(broker), sorted(AUTHORIZER_CONFIGS))
    except ClusterError:
        return None
    if any(row.is_sensitive for row in rows):
        return None
    return file_rules({row.name: row.value or "" for row in rows})


async def judge(
    cluster: ClusterClient, principal: str, operation: int, kind: int, name: str, host: str
) -> tuple[Judgement, bool]:
    """Return whether the principal may do the operation, which entry decides, and whether the rules of the broker's file are
    known.
    """
    index = AclIndex()
    for entry in await describe_acls(cluster, applying_to(kind, name)):
        index.add(entry)
    rules = await described_rules(cluster)
    return (rules or FileRules()).judge(index, principal, host, operation, kind, name), rules is not None


def reason_of(found: Judgement) -> str:
    if found.verdict is None:
        return f"{SUPER_USERS} of the node's file"
    if found.verdict.entry is not None:
        return text_of(found.verdict.entry)
    if found.allowed:
        return f"no entry is about it, and the node's file has {ALLOW_EVERYONE}=true"
    return "no entry is about it" if found.verdict.decision is Decision.NO_ACL else "none of its entries matches"
