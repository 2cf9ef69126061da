"""The page of permissions: access control entries, why a request is denied, and client quotas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ottla.client.access import (
    NO_HOST,
    AclFilter,
    alter_quotas,
    applying_to,
    create_acl,
    delete_acls,
    describe_acls,
    describe_quotas,
    new_entry,
    read_operation,
    read_principal,
    read_resource,
    text_of,
)
from ottla.client.cluster import ClusterClient
from ottla.client.failures import Failure, Kind
from ottla.client.judgement import judge, reason_of
from ottla.client.values import INT8_MAX, number_in
from ottla.console.site import Site, chosen
from ottla.server.authorization.acl import AccessControlEntry
from ottla.server.authorization.operations import ANY, OPERATIONS

#: The most rows of one table.
SHOWN_MAX = 500
#: The fields of a link to an entry, in the order of an AccessControlEntry.
LINK = ("type", "name", "pattern", "principal", "host", "op", "permission")
KINDS = ("user", "client-id", "ip")
QUOTA_KEYS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)


async def access(request: Request) -> Response:
    site: Site = request.app.state.site
    cluster = site.access.panels
    fields = request.query_params
    resource, user = fields.get("resource", "").strip(), fields.get("user", "").strip()

    async def load_entries() -> list[tuple[str, AccessControlEntry]]:
        wanted = AclFilter() if not resource else applying_to(*read_resource(resource))
        if user:
            wanted = wanted._replace(principal=read_principal(user))
        return [(text_of(entry), entry) for entry in await describe_acls(cluster, wanted)]

    entries = await site.panels.show(("acls", resource, user), load_entries)
    found = (row for row in entries.value or () if link_of(row[1]).items() <= fields.items())
    return site.render(
        request,
        "access.html",
        tab="entries",
        entries=entries,
        why=await why(site, fields),
        resource=resource,
        user=user,
        fields=fields,
        link_of=link_of,
        chosen=chosen(entries, "such entry" if "principal" in fields else None, found),
        operations=[name.lower() for code, name in OPERATIONS.items() if code > ANY],
        shown_max=SHOWN_MAX,
    )


def link_of(entry: AccessControlEntry) -> dict[str, str]:
    """Return the fields of a link to an entry. Entries have no ids, so the link has all fields."""
    return {name: str(value) for name, value in zip(LINK, entry, strict=True)}


async def why(site: Site, fields: Mapping[str, str]) -> dict[str, Any] | None:
    """Return whether a user may do something, and which entry decides or is missing; None if the fields of the question are
    empty.
    """
    who, operation, what = (fields.get(name, "").strip() for name in ("who", "operation", "what"))
    if not who or not operation or not what:
        return None
    host = fields.get("host", "").strip() or NO_HOST

    async def load() -> dict[str, Any]:
        kind, name = read_resource(what)
        principal, code = read_principal(who), read_operation(operation)
        found, known = await judge(site.access.panels, principal, code, kind, name, host)
        missing = found.verdict is not None and found.verdict.entry is None and not found.allowed
        return {
            "allowed": found.allowed,
            "text": f"{principal} {OPERATIONS[code].lower()} on {what}",
            "reason": reason_of(found),
            "missing": f"ottla acl add {who} {operation} {what}" if missing else None,
            "known": known or found.verdict is None or found.verdict.entry is not None,
        }

    shown = await site.panels.show(("why", who, operation, what, host), load)
    return {"shown": shown, "value": shown.value}


async def quota_list(request: Request) -> Response:
    site: Site = request.app.state.site

    async def load() -> list[dict[str, Any]]:
        return [
            {
                "entity": {part.entity_type: part.entity_name for part in row.entity},
                "values": {value.key: value.value for value in row.values},
            }
            for row in await describe_quotas(site.access.panels, {})
        ]

    shown = await site.panels.show("quotas", load)
    rows = sorted(shown.value or [], key=lambda row: str(row["entity"]))
    return site.render(request, "quotas.html", shown=shown, rows=rows[:SHOWN_MAX], kinds=KINDS, keys=QUOTA_KEYS)


# -- Changes -------------------------------------------------------------------------------------------------------------


def entry_of(fields: Mapping[str, str]) -> AccessControlEntry:
    """Return the entry of a form.

    Raises:
        Failure: a field has no valid user, operation or resource.
    """
    return new_entry(
        fields.get("who", "").strip(),
        fields.get("operation", ""),
        fields.get("what", "").strip(),
        prefixed=bool(fields.get("prefixed")),
        host=fields.get("host") or "*",
        deny=bool(fields.get("deny")),
    )


async def add_entry(request: Request) -> Response:
    site: Site = request.app.state.site

    async def make(cluster: ClusterClient, fields: Mapping[str, str]) -> str:
        entry = entry_of(fields)
        await create_acl(cluster, entry)
        return f"added: {text_of(entry)}"

    return await site.change(request, lambda fields: fields.get("who", ""), make, "/access")


async def remove_entry(request: Request) -> Response:
    site: Site = request.app.state.site
    try:
        kind, name, pattern, principal, host, operation, permission = (request.query_params[field] for field in LINK)
        numbers = [number_in(each, 0, INT8_MAX) for each in (kind, pattern, operation, permission)]
        codes = [each for each in numbers if each is not None]
        entry = AccessControlEntry(codes[0], name, codes[1], principal, host, codes[2], codes[3])
    except (KeyError, IndexError):
        raise Failure("this link names no entry", "load the page again", Kind.WRONG) from None

    async def make(cluster: ClusterClient, fields: Mapping[str, str]) -> str:
        if not await delete_acls(cluster, AclFilter(*entry)):
            raise Failure("there is no such entry any more")
        return f"removed: {text_of(entry)}"

    return await site.change(request, entry.principal, make, "/access")


async def set_quota(request: Request) -> Response:
    site: Site = request.app.state.site

    async def make(cluster: ClusterClient, fields: Mapping[str, str]) -> str:
        kind, name, key = (fields.get(field, "").strip() for field in ("kind", "name", "key"))
        if kind not in KINDS or key not in QUOTA_KEYS:
            raise Failure(f"there is no quota {key!r} of {kind!r}", None, Kind.WRONG)
        text = fields.get("value", "").strip()
        try:
            value = float(text) if text else None
        except ValueError:
            raise Failure(f"{text!r} is no number", None, Kind.WRONG) from None
        await alter_quotas(cluster, {kind: name or None}, {key: value})
        return f"{key} of {kind} {name or '(default)'} is {'not limited' if value is None else text}"

    return await site.change(request, lambda fields: fields.get("name", "").strip() or "default", make, "/quotas")


ROUTES = [
    Route("/access", access),
    Route("/access/add", add_entry, methods=["POST"]),
    Route("/access/remove", remove_entry, methods=["POST"]),
    Route("/quotas", quota_list),
    Route("/quotas/set", set_quota, methods=["POST"]),
]
