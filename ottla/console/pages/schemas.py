"""Schemas of a registry: subjects, versions, differences between two versions, compatibility, and the topics that use a schema."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ottla.client.cluster import ClusterClient
from ottla.client.failures import Failure, Kind
from ottla.console.schema_texts import KINDS, LEVEL_TEXTS, DiffLine, SchemaVersion, is_of_topic, topics_of
from ottla.console.schemas import SchemaBrowser, SchemaVerdict, SubjectView
from ottla.console.site import Site, form, index_in, named, number, query

#: One page has this many subjects. The latest version of each is requested.
ROWS_A_PAGE = 50


async def subject_list(request: Request) -> Response:
    site: Site = request.app.state.site
    if site.schemas is None:
        return site.render(request, "schemas.html", shown=None)
    browser = site.schemas
    wanted, topic = (request.query_params.get(name, "").strip() for name in ("q", "topic"))
    subjects, level = await asyncio.gather(
        site.panels.show("subjects", browser.subjects), site.panels.show("level", browser.global_level)
    )
    names = [
        name
        for name in subjects.value or ()
        if wanted.lower() in name.lower() and (not topic or is_of_topic(name, topic))
    ]
    page = number(request, "page", 1, 1, 1_000_000)
    rows = names[(page - 1) * ROWS_A_PAGE : page * ROWS_A_PAGE]

    async def load() -> dict[str, SchemaVersion]:
        return await browser.latest(rows)

    latest = await site.panels.show(("latest", *rows), load)
    return site.render(
        request,
        "schemas.html",
        shown=subjects,
        rows=rows,
        latest=latest,
        found=len(names),
        level=level.value,
        levels=LEVEL_TEXTS,
        wanted=wanted,
        topic=topic,
        topics={name: topics_of(name, None, _topics(site)) for name in rows},
        page=page,
        last_page=max(1, -(-len(names) // ROWS_A_PAGE)),
    )


async def subject_page(request: Request) -> Response:
    named(request, "subject", "subject")
    return await _page(request, request.query_params)


async def _page(
    request: Request,
    fields: Mapping[str, str],
    verdict: SchemaVerdict | None = None,
    checked: Mapping[str, str] | None = None,
) -> Response:
    """Return the page of a subject, with the result for a new text if there is one."""
    site: Site = request.app.state.site
    browser = _browser(site)
    subject, version = fields.get("subject", ""), index_in(fields, "version", "version", 1)

    async def load() -> SubjectView:
        return await browser.view(subject, version)

    shown = await site.panels.show(("subject", subject, version), load)
    view = shown.value
    return site.render(
        request,
        "schema.html",
        subject=subject,
        shown=shown,
        before=_before(view) if view is not None else None,
        topics=topics_of(subject, view.record, _topics(site)) if view is not None else [],
        levels=LEVEL_TEXTS,
        kinds=KINDS,
        verdict=verdict,
        checked=checked or {},
    )


def _before(view: SubjectView) -> int | None:
    """Return the version before the shown one."""
    return max((each for each in view.versions if each < view.shown.version), default=None)


def _topics(site: Site) -> frozenset[str]:
    return frozenset() if site.sampler.snapshot is None else frozenset(site.sampler.snapshot.topics)


def _browser(site: Site) -> SchemaBrowser:
    if site.schemas is None:
        raise Failure("this console has no schema registry", "start it with --registry URL", Kind.WRONG)
    return site.schemas


async def diff(request: Request) -> Response:
    site: Site = request.app.state.site
    browser, subject = _browser(site), named(request, "subject", "subject")
    old, new = (index_in(request.query_params, name, "version", 1) or 1 for name in ("old", "new"))

    async def load() -> list[DiffLine]:
        return await browser.compare(subject, old, new)

    shown = await site.panels.show(("schema diff", subject, old, new), load)
    return site.render(request, "schema_diff.html", subject=subject, old=old, new=new, shown=shown)


async def check(request: Request) -> Response:
    """Check whether a new text is compatible. It is posted as a form because of its size, and changes nothing."""
    site: Site = request.app.state.site
    browser, fields = _browser(site), await form(request)
    site.check_token(request, fields)
    versions = "" if fields.get("against") == "level" else "latest"
    found = await browser.check(fields.get("subject", ""), fields.get("type", ""), fields.get("text", ""), versions)
    return await _page(request, fields, found, fields)


# -- Changes -------------------------------------------------------------------------------------------------------------


async def register(request: Request) -> Response:
    site: Site = request.app.state.site
    subject = request.query_params.get("subject", "")

    async def make(cluster: ClusterClient, fields: Mapping[str, str]) -> str:
        found = await _browser(site).register(subject, fields.get("type", ""), fields.get("text", ""))
        return f"the schema of {subject} has the id {found}"

    return await site.change(request, subject, make, query("/schema", subject=subject))


async def set_level(request: Request) -> Response:
    site: Site = request.app.state.site
    subject = request.query_params.get("subject", "")

    async def make(cluster: ClusterClient, fields: Mapping[str, str]) -> str:
        level = fields.get("level", "")
        await _browser(site).set_level(subject, level)
        return f"the compatibility of {subject} is {level}"

    return await site.change(request, subject, make, query("/schema", subject=subject))


ROUTES: list[Any] = [
    Route("/schemas", subject_list),
    Route("/schema", subject_page),
    Route("/schema/diff", diff),
    Route("/schema/check", check, methods=["POST"]),
    Route("/schema/register", register, methods=["POST"]),
    Route("/schema/level", set_level, methods=["POST"]),
]
