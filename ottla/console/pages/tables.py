"""Topics as tables: how far each is behind its log, its contents, and the records that it rejects."""

from __future__ import annotations

from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ottla.console.site import Site, chosen
from ottla.console.table_process import TableView


class TableRow(NamedTuple):
    """A table beside its topic. `lag` is in records. It is None if the topic is not in this cluster, or its end is not known."""

    view: TableView
    lag: int | None
    #: The partition, the next offset of the table, and the end of the log.
    positions: list[tuple[int, int, int | None]]
    is_foreign: bool


def row_of(site: Site, view: TableView) -> TableRow:
    snapshot = site.sampler.snapshot
    seen = view.seen
    if seen is None or snapshot is None:
        return TableRow(view, None, [], is_foreign=False)
    is_foreign = bool(seen.cluster_id) and seen.cluster_id != snapshot.cluster_id
    known = {} if is_foreign else site.sampler.ends
    partitions = {*seen.positions, *(index for index in range(len(snapshot.topics.get(view.topic, ()))))}
    positions = [(each, seen.positions.get(each, 0), known.get((view.topic, each))) for each in sorted(partitions)]
    ends = [end for _, _, end in positions]
    lag = sum(max(0, end - next_) for _, next_, end in positions if end is not None)
    return TableRow(view, None if None in ends or not ends else lag, positions, is_foreign)


async def page(request: Request) -> Response:
    site: Site = request.app.state.site
    browser = site.tables
    shown = None if browser is None else await site.panels.show("tables", browser.tables)
    found = None if shown is None else shown.value
    rows = [row_of(site, view) for view in (found.rows if found is not None else ())]
    topic = request.query_params.get("topic")
    return site.render(
        request,
        "tables.html",
        shown=shown,
        location="" if browser is None else browser.location,
        rows=rows,
        topics=0 if found is None else found.topics,
        known={} if site.sampler.snapshot is None else site.sampler.snapshot.topics,
        chosen=chosen(shown, topic and f"table of topic {topic}", (row for row in rows if row.view.topic == topic)),
    )


ROUTES = [Route("/tables", page)]
