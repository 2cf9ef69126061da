"""Topics: sizes, rates, the grid of partitions and brokers, settings with the source of each value, and their changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ottla.client import configs, topics
from ottla.client.cluster import ClusterClient
from ottla.client.failures import Failure, Kind
from ottla.client.values import INT16_MAX, INT32_MAX, number_in
from ottla.console.sampler import Sampler
from ottla.console.setting_texts import COMMON, SettingRow, common, raw, read_lines, setting_rows
from ottla.console.site import ChangeDone, Site, number
from ottla.console.snapshot import ConsoleSnapshot, PartitionRow

ROWS_A_PAGE = 100
PARTITIONS_A_PAGE = 200
COLUMNS = {
    "name": "Topic",
    "partitions": "Partitions",
    "replicas": "Replicas",
    "records": "Records",
    "bytes": "On disk",
    "rate": "Records/s",
}


class TopicRow(NamedTuple):
    """A topic in the list. `records` is the sum of the end offsets, so deleted and compacted records count, too."""

    name: str
    partitions: int
    replicas: int
    records: int
    bytes: int
    rate: float
    under: int
    offline: int
    internal: bool


async def topic_list(request: Request) -> Response:
    site: Site = request.app.state.site
    snapshot = site.sampler.snapshot
    if snapshot is None:
        return site.render(request, "waiting.html")
    wanted = request.query_params.get("q", "").strip()
    internal = bool(request.query_params.get("internal"))
    rows = [
        row
        for row in rows_of(site.sampler, snapshot)
        if wanted in row.name and (internal or wanted or not row.internal)
    ]
    sort = request.query_params.get("sort", "name")
    column = sort.removeprefix("-")
    if column in COLUMNS:
        rows.sort(key=lambda row: (getattr(row, column), row.name), reverse=sort.startswith("-"))
    page = number(request, "page", 1, 1, 1_000_000)
    first = (page - 1) * ROWS_A_PAGE
    return site.render(
        request,
        "topics.html",
        rows=rows[first : first + ROWS_A_PAGE],
        found=len(rows),
        first=first,
        page=page,
        last_page=max(1, -(-len(rows) // ROWS_A_PAGE)),
        wanted=wanted,
        internal=internal,
        sort=sort,
        columns=COLUMNS,
    )


def rows_of(sampler: Sampler, snapshot: ConsoleSnapshot) -> list[TopicRow]:
    records = dict.fromkeys(snapshot.topics, 0)
    for (name, _), end in sampler.ends.items():
        if name in records:
            records[name] += end
    sizes = dict.fromkeys(snapshot.topics, 0)
    for (_, name, _), size in sampler.sizes.items():
        if name in sizes:
            sizes[name] += size
    return [
        TopicRow(
            name,
            len(parts),
            max((len(part.original_replicas) for part in parts), default=0),
            records[name],
            sizes[name],
            sampler.window.latest(f"topic/{name}/records") or 0.0,
            sum(part.is_under_replicated for part in parts),
            sum(part.is_offline for part in parts),
            name in snapshot.internal,
        )
        for name, parts in sorted(snapshot.topics.items())
    ]


class Starts(NamedTuple):
    """The log start offset of each partition, and the first offset on its leader's disk: they differ with remote storage
    (KIP-405).
    """

    first: dict[int, int]
    on_disk: dict[int, int]


class Cell(NamedTuple):
    """A partition's replica on a broker: leader, in-sync, behind, adding (a reassignment copies it) or offline; and its bytes,
    None if they are not known.
    """

    state: str
    bytes: int | None


async def topic_page(request: Request) -> Response:
    site: Site = request.app.state.site
    name = request.path_params["name"]
    snapshot = await site.snapshot_with(name)
    if snapshot is None:
        return site.render(request, "waiting.html")
    parts = snapshot.topics[name]
    page = number(request, "page", 1, 1, 1_000_000)
    first = (page - 1) * PARTITIONS_A_PAGE

    async def begin() -> Starts:
        first = await topics.list_offsets(site.access.panels, name, topics.EARLIEST)
        return Starts(first, await topics.tier_offsets(site.access.panels, name, topics.EARLIEST_LOCAL))

    begins = await site.panels.show(("begin", name), begin)
    starts = begins.value or Starts({}, {})
    picture = [
        {
            "index": index,
            "part": part,
            "cells": cells_of(site.sampler, snapshot, name, index, part),
            "begin": starts.first.get(index),
            "on_disk": starts.on_disk.get(index),
            "end": site.sampler.ends.get((name, index)),
        }
        for index, part in enumerate(parts[first : first + PARTITIONS_A_PAGE], first)
    ]
    return site.render(
        request,
        "topic.html",
        name=name,
        tab="partitions",
        picture=picture,
        nodes=sorted(snapshot.brokers.keys() | {node for part in parts for node in part.replicas}),
        begins=begins,
        is_tiered=any(starts.first.get(index) != offset for index, offset in starts.on_disk.items()),
        page=page,
        last_page=max(1, -(-len(parts) // PARTITIONS_A_PAGE)),
        row=next(row for row in rows_of(site.sampler, snapshot) if row.name == name),
    )


def cells_of(
    sampler: Sampler, snapshot: ConsoleSnapshot, name: str, index: int, part: PartitionRow
) -> Mapping[int, Cell]:
    """Return a cell for each broker that has a replica."""
    found = {}
    for node in part.replicas:
        broker = snapshot.brokers.get(node)
        if broker is None or broker.fenced:
            state = "offline"
        elif node == part.leader:
            state = "leader"
        else:
            state = "in-sync" if node in part.isr else "behind" if node in part.original_replicas else "adding"
        found[node] = Cell(state, sampler.sizes.get((node, name, index)))
    return found


async def topic_settings(request: Request) -> Response:
    site: Site = request.app.state.site
    name = request.path_params["name"]
    await site.snapshot_with(name)

    async def load() -> list[SettingRow]:
        return setting_rows(await configs.describe_configs(site.access.panels, "topic", name, None, documentation=True))

    shown = await site.panels.show(("settings", name), load)
    changed = bool(request.query_params.get("changed"))
    rows = [row for row in shown.value or () if not (changed and row.is_default)]
    return site.render(
        request,
        "topic_settings.html",
        name=name,
        tab="settings",
        shown=shown,
        changed=changed,
        edit=request.query_params.get("edit", ""),
        # A setting of tiered storage that is set has an effect, or is a mistake: it is shown among the others.
        main=[row for row in rows if row.is_own or not row.is_tiered],
        tiered=[row for row in rows if row.is_tiered and not row.is_own],
    )


# -- Changes -------------------------------------------------------------------------------------------------------------


async def set_setting(request: Request) -> Response:
    site: Site = request.app.state.site
    name = request.path_params["name"]

    async def make(cluster: ClusterClient, fields: Mapping[str, str]) -> str:
        key = fields.get("key", "").strip()
        if not key:
            raise Failure("which setting? Its name is missing", None, Kind.WRONG)
        value = None if fields.get("unset") else raw(key, fields.get("value", ""))
        await configs.alter_configs(cluster, "topic", name, {key: value})
        return f"{key} of {name} is {'the default again' if value is None else value}"

    return await site.change(request, name, make, f"/topics/{name}/settings")


async def create_topic(request: Request) -> Response:
    site: Site = request.app.state.site

    async def page(fields: Mapping[str, str], fault: Failure | None = None) -> Response:
        status = 200 if fault is None else 422
        return site.render(request, "topic_create.html", status, fields=fields, fault=fault, common=common())

    async def make(cluster: ClusterClient, fields: Mapping[str, str]) -> ChangeDone:
        name = fields.get("confirm", "")
        partitions = number_in(fields.get("partitions", "").strip() or "-1", -1, INT32_MAX)
        replicas = number_in(fields.get("replicas", "").strip() or "-1", -1, INT16_MAX)
        if partitions is None or replicas is None:
            raise Failure(
                "partitions and replicas are numbers", "leave them empty for the broker's defaults", Kind.WRONG
            )
        given = {key: raw(key, text.strip()) for key in COMMON if (text := fields.get(f"setting.{key}", "")).strip()}
        await topics.create_topic(cluster, name, partitions, replicas, given | read_lines(fields.get("settings", "")))
        return ChangeDone(f"topic {name} was created", f"/topics/{name}")

    if request.method == "GET":
        return await page(request.query_params)
    return await site.change(request, lambda fields: fields.get("confirm", ""), make, "/topics", page)


async def delete_topic(request: Request) -> Response:
    site: Site = request.app.state.site
    name = request.path_params["name"]

    async def make(cluster: ClusterClient, fields: Mapping[str, str]) -> str:
        await topics.delete_topics(cluster, [name])
        return f"topic {name} was deleted"

    return await site.change(request, name, make, "/topics")


async def empty_topic(request: Request) -> Response:
    site: Site = request.app.state.site
    name = request.path_params["name"]

    async def make(cluster: ClusterClient, fields: Mapping[str, str]) -> str:
        partitions = await cluster.partitions(name)
        await topics.delete_records(cluster, name, dict.fromkeys(partitions, topics.HIGH_WATERMARK))
        return f"all records of {name} were deleted"

    return await site.change(request, name, make, f"/topics/{name}")


ROUTES = [
    Route("/topics", topic_list),
    Route("/topic-create", create_topic, methods=["GET", "POST"]),
    Route("/topics/{name}", topic_page),
    Route("/topics/{name}/settings", topic_settings),
    Route("/topics/{name}/set", set_setting, methods=["POST"]),
    Route("/topics/{name}/delete", delete_topic, methods=["POST"]),
    Route("/topics/{name}/empty", empty_topic, methods=["POST"]),
]
