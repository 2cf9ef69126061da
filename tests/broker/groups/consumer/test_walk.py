"""docs/dev/CONSUMER_GROUPS.md is true: a heartbeat goes through the files that it names, and through no others of `broker/groups/`."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import cast

from ottla.broker import routes
from ottla.broker.components import BrokerComponents
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.server.authorization.authorizer import AllowAll
from ottla.server.network.context import RequestContext
from tests.broker.groups.consumer.member import ConsumerMember
from tests.broker.groups.harness import GroupCoordinatorHarness
from tests.rules.sources import ROOT
from tests.sim import hops

PAGE = (ROOT / "docs/dev/CONSUMER_GROUPS.md").read_text()
WALK = hops.walks(PAGE)["A heartbeat"]
LOOKED_UP = tuple(re.findall(r"^\| `([^`]+)` \| [^|`]+ \|$", PAGE, flags=re.MULTILINE))
FILES_MAX = 4


def a_heartbeat_with_another_subscription() -> list[hops.Call]:
    harness = GroupCoordinatorHarness()
    harness.topics = {"t": 3, "u": 5}
    member = ConsumerMember(harness, "m")
    member.beat()
    request = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id=member.member_id, member_epoch=member.epoch, subscribed_topic_names=["u"]
    )
    features = SimpleNamespace(level=lambda feature: 1)
    broker = SimpleNamespace(
        groups=harness.coordinator,
        authorizer=AllowAll(),
        configs={"group.coordinator.rebalance.protocols": ["consumer"]},
        metadata=SimpleNamespace(image=SimpleNamespace(features=features)),
    )
    context = SimpleNamespace(api_version=1, client_id="c", connection=SimpleNamespace(peer_host="127.0.0.1"))
    served = cast(BrokerComponents, broker), request, cast(RequestContext, context)
    return hops.traced(lambda: routes._consumer_heartbeat(*served))


def test_a_heartbeat_is_read_in_four_files_of_which_the_page_names_each_step() -> None:
    calls = a_heartbeat_with_another_subscription()
    assert hops.missing(WALK, calls) is None
    named = {row.file for row in WALK}
    assert len(named) <= FILES_MAX
    through = hops.passed_through(hops.visits(calls, lambda file: file.startswith(LOOKED_UP)))
    assert {file for file in through if file.startswith("broker/groups/")} <= named


def test_what_is_looked_up_is_there() -> None:
    assert LOOKED_UP
    assert all((ROOT / file).exists() for file in LOOKED_UP)
