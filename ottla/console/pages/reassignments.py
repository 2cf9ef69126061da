"""Reassignments: a plan with the bytes that it moves, the progress of moves, their cancellation, and the throttles that they
leave behind.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ottla.client.cluster import ClusterClient
from ottla.client.errors import code_of
from ottla.client.failures import Failure, Kind, counted
from ottla.client.move_plans import moves_to, parse_moves, plan_moves, read_brokers, write_moves
from ottla.client.moves import (
    PlannedMove,
    cancel_moves,
    check_throttle,
    left_to_move,
    start_moves,
    take_throttle_off,
    throttled_brokers,
    throttled_topics,
)
from ottla.client.partitions import TopicPartition
from ottla.client.topics import PREFERRED, elect_leaders, list_reassignments, places_of
from ottla.client.values import INT32_MAX, INT64_MAX, number_in
from ottla.console.site import Site, index_in
from ottla.protocol.errors import ErrorCode

PAGE = "/reassignments"
#: The most partitions of one plan, because a plan is a field of a form.
PLAN_MAX = 500
#: The table has at most this many moves; the sums count all.
MOVES_SHOWN = 200
#: The word that confirms a change of all partitions.
ALL, THROTTLES, LEADERS = "all", "throttles", "leaders"


class Going(NamedTuple):
    """A move that goes on: the bytes that its new replicas have, and those that they need."""

    topic: str
    partition: int
    replicas: list[int]
    adding: list[int]
    removing: list[int]
    moved: int
    bytes: int


class Look(NamedTuple):
    """All moves that go on, and the throttled brokers with their bytes a second.

    `rate` is in bytes a second; None means not known.
    """

    moves: list[Going]
    throttles: dict[int, int]
    rate: float | None

    @property
    def moved(self) -> int:
        return sum(min(move.moved, move.bytes) for move in self.moves)

    @property
    def bytes(self) -> int:
        return sum(move.bytes for move in self.moves)

    @property
    def left_s(self) -> float | None:
        """The seconds until all moves are done, or None if that is not known."""
        return (self.bytes - self.moved) / self.rate if self.rate else None


async def moves_page(request: Request) -> Response:
    site: Site = request.app.state.site

    async def load() -> Look:
        cluster = site.access.panels
        await cluster.metadata([])  # the brokers that exist now
        ongoing = await list_reassignments(cluster)
        left = await left_to_move(cluster, ongoing) if ongoing else {}
        moves = [
            Going(*place, part.replicas, part.adding_replicas, part.removing_replicas, *left[place])
            for place, part in sorted(ongoing.items())
        ]
        rate = site.move_rates.update(time.monotonic(), {(row.topic, row.partition): row.moved for row in moves})
        return Look(moves, await throttled_brokers(cluster, cluster.brokers), rate)

    shown = await site.panels.show("reassignments", load)
    topic, partition = request.query_params.get("topic"), index_in(request.query_params, "partition", "partition")
    if topic is not None:
        await site.snapshot_with(topic, partition)
    moves = [] if shown.value is None else shown.value.moves
    # One that is done, too, is a partition that there is.
    chosen = next((row for row in moves if (row.topic, row.partition) == (topic, partition)), None)
    return site.render(
        request, "reassignments.html", shown=shown, look=shown.value, chosen=chosen, shown_max=MOVES_SHOWN
    )


async def plan_page(request: Request) -> Response:
    """Plan moves and begin them. GET shows the preview of a plan. POST begins exactly the moves of the preview."""
    site: Site = request.app.state.site
    if request.method == "POST":
        return await site.change(request, lambda fields: name_of(target_of(fields)), start, PAGE)
    topics, brokers = (request.query_params.get(name, "").strip() for name in ("topics", "brokers"))
    places = re.split(r"[\s,]+", topics) if topics else None
    for place in places or ():
        await site.snapshot_with(place.partition(":")[0])

    async def load() -> list[PlannedMove]:
        return await plan(site.access.panels, places, brokers)

    shown = await site.panels.show(("plan", topics, brokers), load)
    moves = shown.value or []
    target = {move.place: move.after for move in moves}
    return site.render(
        request,
        "reassignment_plan.html",
        shown=shown,
        topics=topics,
        brokers=brokers,
        moves=moves,
        bytes=sum(move.bytes for move in moves),
        name=name_of(target),
        plan=write_moves(target, indent=None).decode(),
    )


async def plan(cluster: ClusterClient, names: Sequence[str] | None, brokers: str) -> list[PlannedMove]:
    """Return the moves that spread topics evenly over brokers. None means all topics, no brokers all brokers.

    Raises:
        Failure: there is no such topic or broker, something moves already, or the plan is too long for a form.
    """
    wanted = read_brokers("Brokers", brokers) if brokers else None
    places = None if names is None else await places_of(cluster, names)
    if await list_reassignments(cluster):
        raise Failure("partitions are moving", "wait until they have moved, or cancel their moves")
    moves = await plan_moves(cluster, places, wanted)
    if len(moves) > PLAN_MAX:
        cause = f"{counted(len(moves), 'partition')} would move, and a form takes {PLAN_MAX}"
        raise Failure(cause, "name some topics, or use `ottla move run`", Kind.WRONG)
    return moves


# -- Changes -------------------------------------------------------------------------------------------------------------


def target_of(fields: Mapping[str, str]) -> dict[TopicPartition, list[int]]:
    """Return the replicas in the form of a preview."""
    return parse_moves(fields.get("plan", "").encode(), "the plan of this form")


def name_of(places: Iterable[TopicPartition]) -> str:
    """Return the word that confirms a plan: the name of its topic, or the number of its topics."""
    topics = sorted({name for name, _ in places})
    return topics[0] if len(topics) == 1 else counted(len(topics), "topic")


async def start(cluster: ClusterClient, fields: Mapping[str, str]) -> str:
    text = fields.get("throttle", "").strip()
    throttle = number_in(text, 0, INT64_MAX)
    if text and throttle is None:
        raise Failure(f"{text[:80]!r} is no number of bytes a second", "leave it empty for no throttle", Kind.WRONG)
    check_throttle(throttle)
    moves = await moves_to(cluster, target_of(fields))
    if not moves:
        raise Failure("there is nothing to move", "all partitions are where the plan has them")
    await start_moves(cluster, moves, throttle)
    return f"began to move {counted(len(moves), 'partition')}"


async def cancel(request: Request) -> Response:
    """Cancel the move of the partition that the link names, or all moves."""
    site: Site = request.app.state.site
    topic, partition = (request.query_params.get(name, "") for name in ("topic", "partition"))
    index = number_in(partition, 0, INT32_MAX)
    if topic and index is None:
        raise Failure("this link names no partition", "load the page again", Kind.WRONG)

    async def make(cluster: ClusterClient, fields: Mapping[str, str]) -> str:
        ongoing = await list_reassignments(cluster, [(topic, index)] if topic and index is not None else None)
        if not ongoing:
            raise Failure("nothing moves there any more", "it has moved, or was cancelled")
        await cancel_moves(cluster, ongoing)
        return f"cancelled the move of {counted(len(ongoing), 'partition')}"

    return await site.change(request, f"{topic}-{partition}" if topic else ALL, make, PAGE)


async def unthrottle(request: Request) -> Response:
    site: Site = request.app.state.site

    async def make(cluster: ClusterClient, fields: Mapping[str, str]) -> str:
        await take_throttle_off(cluster, await throttled_topics(cluster))
        return "no broker is throttled"

    return await site.change(request, THROTTLES, make, PAGE)


async def elect(request: Request) -> Response:
    site: Site = request.app.state.site

    async def make(cluster: ClusterClient, fields: Mapping[str, str]) -> str:
        results = await elect_leaders(cluster, None, PREFERRED)
        codes = {place: row.error_code for place, row in results.items()}
        failed = {place: code for place, code in codes.items() if code not in (0, ErrorCode.ELECTION_NOT_NEEDED)}
        if failed:
            (name, index), code = min(failed.items())
            cause = f"could not elect {counted(len(failed), 'leader')}, such as that of {name}-{index}"
            raise Failure(f"{cause}: {code_of(code).message}")
        return f"elected {counted(sum(not code for code in codes.values()), 'leader')}"

    return await site.change(request, LEADERS, make, PAGE)


ROUTES = [
    Route(PAGE, moves_page),
    Route(f"{PAGE}/plan", plan_page, methods=["GET", "POST"]),
    Route(f"{PAGE}/cancel", cancel, methods=["POST"]),
    Route(f"{PAGE}/unthrottle", unthrottle, methods=["POST"]),
    Route(f"{PAGE}/elect", elect, methods=["POST"]),
]
