"""A right that was revoked has no effect after a second, in virtual time, from the acknowledgement of the change to the last
success at any of three brokers.

Nodes decide by their metadata: an ACL at each request, a SCRAM credential and a delegation token at each login.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.server.authorization.authorizer import STANDARD_AUTHORIZER
from ottla.server.authorization.operations import DENY, DESCRIBE, LITERAL
from ottla.server.authorization.operations import TOPIC as TOPIC_RESOURCE
from ottla.server.network.client import Channel
from tests.sim.cluster import BROKER_PORT, SimNode
from tests.sim.harness import APART, TOPIC, SimClusterHarness
from tests.sim.loop import run

SETTINGS = {"authorizer.class.name": STANDARD_AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
LIMIT_SECONDS = 1.0
LOOK_SECONDS = 0.005
SCRAM_SHA_256 = 1
Succeeds = Callable[[SimNode], Awaitable[bool]]


async def last_success(
    harness: SimClusterHarness,
    succeeds: Succeeds,
    change: Awaitable[object],
    *,
    seconds: float = 3,
    look_seconds: float = LOOK_SECONDS,
) -> float:
    """Return the seconds from the change's acknowledgement to the last success at any broker; all requests before succeed."""
    loop, brokers = asyncio.get_running_loop(), harness.cluster.brokers
    last, ended = dict.fromkeys(brokers, 0.0), False

    async def use(node: SimNode) -> None:
        while not ended:
            if await succeeds(node):
                last[node] = loop.time()
            await asyncio.sleep(look_seconds)

    users = [asyncio.ensure_future(use(node)) for node in brokers]
    await asyncio.sleep(1)
    assert all(at > 0 for at in last.values())
    await change
    acknowledged = loop.time()
    await asyncio.sleep(seconds)
    ended = True
    await asyncio.gather(*users)
    return max(last.values()) - acknowledged


def measured(succeeds: Callable[[SimClusterHarness], Succeeds], before: object, change: object) -> float:
    async def main() -> float:
        harness = SimClusterHarness(APART, SETTINGS)
        await harness.begin()
        if before is not None:
            await harness.admin.ask_any(before)
            await asyncio.sleep(1)
        return await last_success(harness, succeeds(harness), harness.admin.ask_any(change))

    return run(main())


def test_a_denied_topic_is_not_shown_any_more() -> None:
    def shown(harness: SimClusterHarness) -> Succeeds:
        channels = {
            node: Channel(harness.admin.world, node.host.name, BROKER_PORT, "user") for node in harness.cluster.brokers
        }

        async def succeeds(node: SimNode) -> bool:
            answer = await channels[node].request(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 12)
            return bool(answer.topics[0].error_code == ErrorCode.NONE)

        return succeeds

    entry = AclCreation(TOPIC_RESOURCE, TOPIC, LITERAL, "User:ANONYMOUS", "*", DESCRIBE, DENY)
    assert measured(shown, None, CreateAclsRequest([entry])) < LIMIT_SECONDS


def test_a_credential_that_is_removed_is_gone_at_all_brokers() -> None:
    def known(harness: SimClusterHarness) -> Succeeds:
        async def succeeds(node: SimNode) -> bool:
            return node.server._users.for_scram.credential("SCRAM-SHA-256", "carol") is not None

        return succeeds

    added = ScramCredentialUpsertion("carol", SCRAM_SHA_256, 4096, bytes(16), bytes(32))
    before = AlterUserScramCredentialsRequest(upsertions=[added])
    change = AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion("carol", SCRAM_SHA_256)])
    assert measured(known, before, change) < LIMIT_SECONDS
