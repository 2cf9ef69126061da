"""The overview: brokers, controller, quorum, rates, present problems with remedies, and the timeline of changes."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ottla.console.problems import findings
from ottla.console.sampler import Sampler
from ottla.console.site import Site
from ottla.console.window import Chart

EVENTS_SHOWN = 200
SERIES_SHOWN_MAX = 12
KINDS = ("election", "isr", "fencing", "controller", "broker", "topic", "setting", "change")


async def overview(request: Request) -> Response:
    site: Site = request.app.state.site
    return site.render(
        request,
        "overview.html",
        findings=findings(site.sampler),
        brokers=broker_rows(site.sampler),
        totals=totals(site.sampler),
    )


async def timeline(request: Request) -> Response:
    site: Site = request.app.state.site
    kind, place = request.query_params.get("kind", ""), request.query_params.get("place", "").strip()
    found = [
        event
        for event in reversed(site.sampler.window.events)
        if (not kind or event.kind == kind) and place in event.place
    ]
    return site.render(
        request,
        "timeline.html",
        events=found[:EVENTS_SHOWN],
        more=len(found) > EVENTS_SHOWN,
        kind=kind,
        place=place,
        kinds=KINDS,
    )


async def chart(request: Request) -> Response:
    """Return series as JSON. `what` is the name of a chart, `of` a topic or group."""
    site: Site = request.app.state.site
    found = chart_of(site.sampler, request.query_params.get("what", ""), request.query_params.get("of", ""))
    if found is None:
        return JSONResponse({"times": [], "series": {}}, 404)
    return JSONResponse({"times": found.times, "series": found.series})


def chart_of(sampler: Sampler, what: str, of: str) -> Chart | None:
    """Return the chart with a name, or None if there is no such chart."""
    window = sampler.window
    match what:
        case "records":
            return window.chart({"records/s": "cluster/records"})
        case "replicas":
            return window.chart({"under-replicated": "cluster/under_replicated", "offline": "cluster/offline"})
        case "in" | "delay":
            nodes = sorted({int(name.split("/")[1]) for name in window.names("broker/")})
            return window.chart({f"broker {node}": f"broker/{node}/{what}" for node in nodes[:SERIES_SHOWN_MAX]})
        case "topic":
            return window.chart({"records/s": f"topic/{of}/records"})
        case "lag":
            return window.chart({"lag": f"group/{of}/lag"})
    return None


def broker_rows(sampler: Sampler) -> list[dict[str, Any]]:
    """Return a row for each broker, from the metadata and from its admin listener."""
    snapshot = sampler.snapshot
    if snapshot is None:
        return []
    leads = dict.fromkeys(snapshot.brokers, 0)
    has = dict.fromkeys(snapshot.brokers, 0)
    lacks = dict.fromkeys(snapshot.brokers, 0)
    for _, _, part in snapshot.partitions():
        if part.leader in leads:
            leads[part.leader] += 1
        for node in part.replicas:
            if node in has:
                has[node] += 1
                lacks[node] += node in part.original_replicas and node not in part.isr
    sizes: dict[int, int] = {}
    for (node, _, _), size in sampler.sizes.items():
        sizes[node] = sizes.get(node, 0) + size
    return [
        {
            "broker": broker,
            "leads": leads[node],
            "replicas": has[node],
            "behind": lacks[node],
            "bytes": sizes.get(node),
            "free": min((row[3] for row in sampler.directories.get(node, ())), default=None),
            "numbers": sampler.numbers.get(node),
            "cpu": sampler.window.latest(f"broker/{node}/cpu"),
            "in": sampler.window.latest(f"broker/{node}/in"),
            "out": sampler.window.latest(f"broker/{node}/out"),
        }
        for node, broker in sorted(snapshot.brokers.items())
    ]


def totals(sampler: Sampler) -> dict[str, Any]:
    """Return the numbers at the top of the overview."""
    snapshot = sampler.snapshot
    if snapshot is None:
        return {}
    parts = [part for _, _, part in snapshot.partitions()]
    lag = max(sampler.lags.items(), key=lambda each: each[1], default=None)
    return {
        "up": sum(not broker.fenced for broker in snapshot.brokers.values()),
        "brokers": len(snapshot.brokers),
        "topics": len(snapshot.topics) - len(snapshot.internal),
        "partitions": len(parts),
        "under": sum(part.is_under_replicated for part in parts),
        "offline": sum(part.is_offline for part in parts),
        "records": sampler.window.latest("cluster/records"),
        "bytes": sum(sampler.sizes.values()),
        "groups": len(sampler.lags),
        "lag": lag,
    }


ROUTES = [Route("/", overview), Route("/timeline", timeline), Route("/chart", chart)]
