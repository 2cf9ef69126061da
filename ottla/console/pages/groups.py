"""Groups of all four kinds: members, assignment, lag now and over time, and a reset of offsets with a preview."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ottla.client import group_offsets, groups, topics
from ottla.client.cluster import ClusterClient
from ottla.client.errors import check
from ottla.client.failures import Failure, Kind, counted
from ottla.client.group_offsets import reset_targets
from ottla.client.groups import SHARE, STREAMS, GroupDescription, describe_any_group, kind_of
from ottla.client.partitions import TopicPartition
from ottla.client.values import INT32_MAX, INT64_MAX
from ottla.console.pages.stories import of_group
from ottla.console.site import Site, named, number, query
from ottla.protocol.messages.list_groups import ListedGroup

ROWS_A_PAGE = 100
#: The table of one group has at most this many partitions; the sum of the lag counts all.
PARTITIONS_SHOWN = 500
#: One reset has at most this many partitions.
RESET_MAX = 2_000


class OffsetPlace(NamedTuple):
    """A partition that a group consumes: the committed offset, the end, the lag, and the member that has it.

    None means not known.
    """

    topic: str
    partition: int
    committed: int | None
    end: int | None
    lag: int | None
    member: str | None


class DescribedGroupPage(NamedTuple):
    """A group, and its position in each partition."""

    group: GroupDescription
    places: list[OffsetPlace]

    @property
    def lag(self) -> int:
        return sum(place.lag or 0 for place in self.places)

    @property
    def uncommitted(self) -> int:
        """Return how many partitions have no committed offset. As in Kafka's tools, their records do not count as lag."""
        return sum(place.committed is None for place in self.places)


async def group_list(request: Request) -> Response:
    site: Site = request.app.state.site

    async def load() -> list[ListedGroup]:
        return await groups.list_groups(site.access.panels)

    shown = await site.panels.show("groups", load)
    wanted = request.query_params.get("q", "").strip()
    rows = [row for row in shown.value or () if wanted in row.group_id]
    if request.query_params.get("sort") == "-lag":
        rows.sort(key=lambda row: -site.sampler.lags.get(row.group_id, -1))
    page = number(request, "page", 1, 1, 1_000_000)
    return site.render(
        request,
        "groups.html",
        shown=shown,
        rows=rows[(page - 1) * ROWS_A_PAGE : page * ROWS_A_PAGE],
        found=len(rows),
        page=page,
        last_page=max(1, -(-len(rows) // ROWS_A_PAGE)),
        wanted=wanted,
        sort=request.query_params.get("sort", ""),
    )


async def topic_groups(request: Request) -> Response:
    """Return the groups that have committed offsets of a topic."""
    site: Site = request.app.state.site
    name = request.path_params["name"]
    await site.snapshot_with(name)
    rows = sorted((group, lags[name]) for group, lags in site.sampler.topic_lags.items() if name in lags)
    return site.render(request, "topic_groups.html", name=name, tab="groups", rows=rows[:PARTITIONS_SHOWN])


async def describe(cluster: ClusterClient, name: str) -> DescribedGroupPage:
    """Return a group with its partitions: those that are assigned, and those with an offset.

    Raises:
        Failure: there is no such group.
    """
    group = await describe_any_group(cluster, name)
    owners = {place: member.member_id for member in group.members for place in member.assigned}
    if group.type == SHARE:
        positions = await groups.share_positions(cluster, name)
        ends = await topics.end_offsets(cluster, positions)
        rows = [
            # -1 as long as nothing of the partition was fetched
            OffsetPlace(*place, known(found.start_offset), ends.get(place), known(found.lag), owners.get(place))
            for place, found in sorted(positions.items())
        ]
        return DescribedGroupPage(group, rows)
    committed = await group_offsets.committed_offsets(cluster, name)
    # A task of a streams group is not one partition: the table of members shows the tasks.
    places = committed.keys() | (owners.keys() if group.type != STREAMS else set())
    ends = await topics.end_offsets(cluster, places)
    return DescribedGroupPage(group, [_place(place, committed, ends, owners) for place in sorted(places)])


def known(number: int) -> int | None:
    """Return a number of a response, or None for -1, which means not known."""
    return None if number < 0 else number


def _place(
    place: TopicPartition,
    committed: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    owners: Mapping[TopicPartition, str],
) -> OffsetPlace:
    offset, end = committed.get(place), ends.get(place)
    lag = None if offset is None or end is None else max(0, end - offset)
    return OffsetPlace(*place, offset, end, lag, owners.get(place))


async def group_page(request: Request) -> Response:
    site: Site = request.app.state.site
    name = named(request, "id", "group")

    async def load() -> DescribedGroupPage:
        return await describe(site.access.panels, name)

    shown, story = await asyncio.gather(site.panels.show(("group", name), load), of_group(site, name))
    return site.render(request, "group.html", name=name, shown=shown, shown_max=PARTITIONS_SHOWN, story=story)


# -- Changes -------------------------------------------------------------------------------------------------------------


async def reset(request: Request) -> Response:
    """Reset offsets.

    GET shows the preview: the offset that each partition would get. POST sets exactly the offsets of the preview.
    """
    site: Site = request.app.state.site
    name = named(request, "id", "group")
    if request.method == "POST":
        return await site.change(request, name, _setter(name), query("/group", id=name))

    async def kind() -> str:
        return await kind_of(site.access.panels, name)

    await site.panels.show(("kind", name), kind)
    topic, to = request.query_params.get("topic", ""), request.query_params.get("to", "").strip()
    if topic:
        await site.snapshot_with(topic)

    async def load() -> list[dict[str, Any]]:
        return await plan(site, name, topic, to)

    shown = await site.panels.show(("reset", name, topic, to), load) if to else None
    rows = shown.value if shown is not None and shown.value else []
    return site.render(
        request,
        "group_reset.html",
        name=name,
        topic=topic,
        to=to,
        shown=shown,
        rows=rows,
        offsets=json.dumps([[row["topic"], row["partition"], row["new"]] for row in rows]),
    )


async def plan(site: Site, name: str, topic: str, to: str) -> list[dict[str, Any]]:
    """Return a row for each partition with its committed and its new offset.

    Raises:
        Failure: `to` stands for no offset, or there is no such group or topic.
    """
    cluster = site.access.panels
    kind = await kind_of(cluster, name)
    if kind == SHARE:
        positions = await groups.share_positions(cluster, name)
        committed = {place: found.start_offset for place, found in positions.items() if found.start_offset >= 0}
    else:
        committed = await group_offsets.committed_offsets(cluster, name)
    places = [place for place in sorted(committed) if not topic or place[0] == topic]
    if topic and not places:
        places = [(topic, index) for index in await cluster.partitions(topic)]
    if not places:
        raise Failure(f"group {name} has no offsets yet", "name a topic", Kind.WRONG)
    new = await reset_targets(cluster, places[:RESET_MAX], to, committed)
    return [
        {
            "topic": place[0],
            "partition": place[1],
            "committed": committed.get(place),
            "new": offset,
            "skipped": None if place not in committed else offset - committed[place],
        }
        for place, offset in sorted(new.items())
    ]


def _setter(name: str) -> Any:
    async def make(cluster: ClusterClient, fields: Mapping[str, str]) -> str:
        offsets = read_offsets(fields.get("offsets", ""))
        if await kind_of(cluster, name) == SHARE:
            for place, (code, message) in (await groups.set_share_positions(cluster, name, offsets)).items():
                check(f"partition {place[0]}-{place[1]}", code, message)
        else:
            await group_offsets.commit_offsets(cluster, name, offsets)
        return f"group {name} goes on at new offsets in {counted(len(offsets), 'partition')}"

    return make


def read_offsets(text: str) -> dict[TopicPartition, int]:
    """Return the offsets of a preview's form.

    Raises:
        Failure: the text does not come from a preview.
    """
    try:
        rows = json.loads(text)
        found = {(str(topic), int(index)): int(offset) for topic, index, offset in rows}
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise Failure("these are no offsets of a preview", "go back to the preview", Kind.WRONG) from None
    if (
        not found
        or len(found) > RESET_MAX
        or not all(0 <= offset <= INT64_MAX for offset in found.values())
        or not all(0 <= index <= INT32_MAX for _, index in found)
    ):
        raise Failure("these are no offsets of a preview", "go back to the preview", Kind.WRONG)
    return found


async def delete(request: Request) -> Response:
    site: Site = request.app.state.site
    name = request.query_params.get("id", "")

    async def make(cluster: ClusterClient, fields: Mapping[str, str]) -> str:
        await groups.delete_groups(cluster, [name])
        return f"group {name} was deleted"

    return await site.change(request, name, make, "/groups")


ROUTES = [
    Route("/groups", group_list),
    Route("/group", group_page),
    Route("/group/reset", reset, methods=["GET", "POST"]),
    Route("/group/delete", delete, methods=["POST"]),
    Route("/topics/{name}/groups", topic_groups),
]
