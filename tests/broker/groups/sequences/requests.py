"""Requests that are written out: cases that chance does not find, with all fields of the responses.

The verb of a step is an API, its member a connection and the client's id, an option a field of the request in Python:

    ConsumerGroupHeartbeat a v=1 group_id=g member_id='a' member_epoch=0 subscribed_topic_names=[t]

`g` is the group; `id(t)` the id of topic t; `subscription(t)` what a classic consumer of t sends; any other name that is unknown
is a topic. A member id that the broker has made is `a_1`, for the first one that was seen, of client a. A request whose response
does not come has "parked" for its answer, and `receive a` is the step in which it comes. The verbs of player.py are there, too.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from ottla.protocol.messages import shared_structs
from ottla.protocol.messages.list_groups import ListGroupsResponse
from tests.broker.groups.harness import subscription
from tests.broker.groups.sequences.player import NoAnswer, Player
from tests.broker.groups.sequences.step import Rendering, Step, common
from tests.broker.groups.streams.topologies import stateless

#: The time after which a response counts as parked.
PATIENCE_S = 1.5
#: Members that join within this time share one target.
INTERVAL_MS = 3_000
PROPERTIES = {
    **{f"group.{kind}.assignment.interval.ms": str(INTERVAL_MS) for kind in ("consumer", "streams")},
    "ottla.group.waiting.heartbeat.interval.ms": str(2**31 - 1),
}
#: Member ids that a broker has made, of a client or a group.instance.id with one of these names.
MADE_ID = re.compile(r"\b(one|two|a|b|c|x)-([0-9a-f]{8}-[0-9a-f-]{27})\b")


class AllFields(Rendering):
    """Shows all fields of responses, also those in which random sequences may differ. Ids that the broker has made get names,
    which later steps can use.
    """

    left_out = frozenset({"throttle_time_ms", "node_endpoints", "client_host"})

    def __init__(self, topic_names: Mapping[bytes, str], names: dict[str, Any]) -> None:
        super().__init__(topic_names)
        self._names = names
        self._made: dict[str, str] = {}

    def bytes_shown(self, value: bytes) -> str:
        return self.named(repr(value))

    def named(self, text: str) -> str:
        return MADE_ID.sub(self._number, common(text))

    def _number(self, match: re.Match[str]) -> str:
        name = self._made.setdefault(match[0], f"{match[1]}_{len(self._made) + 1}")
        self._names[name] = match[0]
        return name


class Names(dict[str, Any]):
    """The names that values of a step's options may use."""

    def __init__(self, player: Player) -> None:
        super().__init__(g=player.group, id=player.side.topic_id, subscription=subscription, stateless=stateless)
        self._player = player

    def __missing__(self, name: str) -> str:
        if name[0].isupper():
            raise KeyError(name)  # the name of a struct in the message's file
        return self._player.topic(name)


class RequestsPlayer(Player):
    protocol = "requests"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._names = Names(self)
        self._sides: dict[str, Any] = {}
        self._sent: dict[str, asyncio.Future[Any]] = {}
        self._rendering = AllFields(self.side.topic_names, self._names)

    async def play(self) -> list[str]:
        try:
            return await super().play()
        finally:
            for side in self._sides.values():
                side.channel.close()

    async def _answer(self, step: Step) -> str:
        if step.verb == "receive":
            return await self._received(step.member)
        if step.verb[0].islower():
            return await super()._answer(step)
        client_id = step.member.rstrip("'")
        if step.member not in self._sides:
            self._sides[step.member] = self.side.again(client_id)
        module = import_module(f"ottla.protocol.messages.{re.sub(r'(?<!^)(?=[A-Z])', '_', step.verb).lower()}")
        structs = vars(shared_structs) | vars(module)
        fields = {name: eval(text, structs, self._names) for name, text in step.options.items() if name != "v"}
        request = structs[f"{step.verb}Request"](**fields)
        side = self._sides[step.member]
        self._sent[step.member] = asyncio.ensure_future(side.request(request, int(step.options["v"])))
        return await self._received(step.member)

    async def _received(self, connection: str) -> str:
        sent = self._sent[connection]
        await asyncio.wait([sent], timeout=PATIENCE_S)
        if not sent.done():
            return "parked"
        try:
            answer = sent.result()
        except NoAnswer as why:
            return f"no answer: {why}"
        self._leave_out(answer)
        return self._rendering(answer)

    def _leave_out(self, answer: Any) -> None:
        """Remove from a response what belongs to other groups, or is an address."""
        if isinstance(answer, ListGroupsResponse):
            answer.groups = [group for group in answer.groups if group.group_id == self.group]
        for each in (answer, *getattr(answer, "coordinators", ())):
            if hasattr(each, "host"):
                each.host, each.port, each.node_id = "", 0, 0
