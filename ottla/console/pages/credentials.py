"""Credentials that the cluster keeps: SCRAM users and delegation tokens.

A secret is shown only once, in the response to the form that made it.
"""

from __future__ import annotations

import secrets
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ottla.client import access
from ottla.client.cluster import ClusterClient
from ottla.client.failures import Failure, Kind
from ottla.console.site import Site, chosen
from ottla.console.texts import moment
from ottla.server.sasl.scram import HASHES, ITERATIONS_MAX, ITERATIONS_MIN

#: The most rows of one table.
SHOWN_MAX = 500
USERS, TOKENS = "/access/users", "/access/tokens"
PASSWORD_BYTES = 18
HOUR_MS = 3_600_000
#: A thousand years. More hours would not fit into the request.
HOURS_MAX = 8_766_000
#: The word that confirms a token of the console's own user.
OWN = "own"


async def user_list(request: Request) -> Response:
    site: Site = request.app.state.site

    async def load() -> dict[str, dict[str, int]]:
        return await access.describe_scram_users(site.access.panels)

    shown = await site.panels.show("scram", load)
    wanted = request.query_params.get("q", "").strip()
    rows = [row for row in sorted((shown.value or {}).items()) if wanted in row[0]]
    user, mechanism = (request.query_params.get(name, "") for name in ("id", "mechanism"))
    known = [(user, mechanism)] if mechanism in (shown.value or {}).get(user, ()) else []
    return site.render(
        request,
        "users.html",
        tab="users",
        shown=shown,
        rows=rows[:SHOWN_MAX],
        found=len(rows),
        wanted=wanted,
        chosen=chosen(shown, f"user {user} with {mechanism or 'no mechanism'}" if user else None, known),
        mechanisms=sorted(HASHES, reverse=True),
        iterations=(ITERATIONS_MIN, ITERATIONS_MAX),
    )


async def token_list(request: Request) -> Response:
    site: Site = request.app.state.site

    async def load() -> list[Any]:
        return sorted(await access.describe_tokens(site.access.panels), key=lambda row: row.issue_timestamp)

    shown = await site.panels.show("tokens", load)
    rows = shown.value or []
    token = request.query_params.get("id")
    return site.render(
        request,
        "tokens.html",
        tab="tokens",
        shown=shown,
        rows=rows[:SHOWN_MAX],
        found=len(rows),
        own=OWN,
        chosen=chosen(shown, token and f"token {token}", (row for row in rows if row.token_id == token)),
    )


# -- Changes of users ----------------------------------------------------------------------------------------------------


async def set_password(request: Request) -> Response:
    site: Site = request.app.state.site

    async def make(cluster: ClusterClient, fields: Mapping[str, str]) -> str | Response:
        name, mechanism = fields.get("name", "").strip(), fields.get("mechanism", "")
        if mechanism not in HASHES:
            raise Failure(f"there is no mechanism {mechanism!r}", f"it is one of {', '.join(HASHES)}", Kind.WRONG)
        text = fields.get("iterations", "").strip() or str(ITERATIONS_MIN)
        # Check this before the password is hashed: each iteration takes the console a microsecond.
        if not text.isdecimal() or len(text) > 9 or not ITERATIONS_MIN <= int(text) <= ITERATIONS_MAX:
            raise Failure(f"{text!r} iterations are not from {ITERATIONS_MIN} to {ITERATIONS_MAX}", None, Kind.WRONG)
        given = fields.get("password", "")
        password = given or secrets.token_urlsafe(PASSWORD_BYTES)
        await access.alter_scram_user(cluster, name, {mechanism: access.NewPassword(password, int(text))})
        done = f"{name} can log in by {mechanism}"
        rows = {"User": name, "Mechanism": mechanism, "Password": password}
        return done if given else secret_page(site, request, done, rows, USERS)

    return await site.change(request, lambda fields: fields.get("name", "").strip(), make, USERS)


async def remove_user(request: Request) -> Response:
    site: Site = request.app.state.site
    name, mechanism = request.query_params.get("id", ""), request.query_params.get("mechanism", "")

    async def make(cluster: ClusterClient, fields: Mapping[str, str]) -> str:
        present = (await access.describe_scram_users(cluster, [name])).get(name, {})
        if mechanism not in present:
            raise Failure(f"user {name} has no credentials of {mechanism!r}")
        await access.alter_scram_user(cluster, name, {}, [mechanism])
        return f"{name} cannot log in by {mechanism} any more"

    return await site.change(request, name, make, USERS)


# -- Changes of tokens ---------------------------------------------------------------------------------------------------


async def create_token(request: Request) -> Response:
    site: Site = request.app.state.site

    async def make(cluster: ClusterClient, fields: Mapping[str, str]) -> Response:
        renewers = fields.get("renewers", "").replace(",", " ").split()
        made = await access.create_token(cluster, fields.get("owner", "").strip() or None, renewers, period_of(fields))
        rows = {
            "Token": made.token_id,
            "HMAC": b64encode(made.hmac).decode(),
            "Owner": f"{made.principal_type}:{made.principal_name}",
            "Expires": moment(made.expiry_timestamp_ms),
            "At most until": moment(made.max_timestamp_ms),
        }
        done = "a token was created: clients log in by SCRAM with its id, its HMAC as the password, and tokenauth=true"
        return secret_page(site, request, done, rows, TOKENS)

    return await site.change(request, lambda fields: fields.get("owner", "").strip() or OWN, make, TOKENS)


async def renew_token(request: Request) -> Response:
    site: Site = request.app.state.site
    token = request.query_params.get("id", "")

    async def make(cluster: ClusterClient, fields: Mapping[str, str]) -> str:
        expires = await access.renew_token(cluster, await hmac_of(cluster, token), period_of(fields))
        return f"token {token} expires at {moment(expires)}"

    return await site.change(request, token, make, TOKENS)


async def expire_token(request: Request) -> Response:
    site: Site = request.app.state.site
    token = request.query_params.get("id", "")

    async def make(cluster: ClusterClient, fields: Mapping[str, str]) -> str:
        await access.expire_token(cluster, await hmac_of(cluster, token))
        return f"token {token} has ended"

    return await site.change(request, token, make, TOKENS)


async def hmac_of(cluster: ClusterClient, token: str) -> bytes:
    """Return the HMAC of a token. Its owner and its renewers may read it, and no page shows it.

    Raises:
        Failure: there is no such token, or the console's user may not see it.
    """
    for row in await access.describe_tokens(cluster):
        if row.token_id == token:
            return bytes(row.hmac)
    raise Failure("there is no such token any more, or this console's user may not see it")


def period_of(fields: Mapping[str, str]) -> int:
    """Return the hours in a form as milliseconds. An empty field means the broker's setting.

    Raises:
        Failure: the text is no number above 0.
    """
    text = fields.get("hours", "").strip()
    try:
        hours = float(text) if text else None
    except ValueError:
        hours = 0.0
    if hours is None:
        return access.BROKER_DEFAULT_MS
    if not 0 < hours <= HOURS_MAX:
        raise Failure(f"{text!r} is no number of hours above 0", None, Kind.WRONG)
    return max(1, int(hours * HOUR_MS))


def secret_page(site: Site, request: Request, done: str, rows: Mapping[str, str], back: str) -> Response:
    """Return the page with a new secret. No link leads to it, and no cache keeps it."""
    return site.render(request, "secret.html", done=done, rows=rows, back=back)


ROUTES = [
    Route(USERS, user_list),
    Route(f"{USERS}/set", set_password, methods=["POST"]),
    Route(f"{USERS}/remove", remove_user, methods=["POST"]),
    Route(TOKENS, token_list),
    Route(f"{TOKENS}/create", create_token, methods=["POST"]),
    Route(f"{TOKENS}/renew", renew_token, methods=["POST"]),
    Route(f"{TOKENS}/expire", expire_token, methods=["POST"]),
]
