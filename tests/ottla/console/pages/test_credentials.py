"""SCRAM users and delegation tokens: made, shown once, renewed and ended, by users with and without permission."""

from __future__ import annotations

import asyncio
import html
from urllib.parse import urlencode

from ottla.testing import Cluster
from tests.ottla.console.conftest import Open, csrf_of, eventually

USERS, TOKENS = "/access/users", "/access/tokens"
MARKUP = "<b>eve</b>"


def fact(page: str, name: str) -> str:
    """Return the text with this name on the page of a secret."""
    return html.unescape(page.partition(f'<dt>{name}</dt><dd class="mono">')[2].partition("</dd>")[0])


async def test_a_user_is_made_with_a_password_that_is_shown_once_and_logs_in(
    open_secured: Open, secured: Cluster
) -> None:
    client = await open_secured()
    fields = {"csrf": await csrf_of(client, USERS), "name": MARKUP, "mechanism": "SCRAM-SHA-512", "confirm": MARKUP}
    made = await client.post(f"{USERS}/set", data=fields)
    password = fact(made.text, "Password")
    assert made.status_code == 200 and len(password) > 20 and made.headers["cache-control"] == "no-store"
    listed = await eventually(client, USERS, "&lt;b&gt;eve")
    assert MARKUP not in listed + made.text and password not in listed
    login = {"sasl_username": MARKUP, "sasl_password": password}
    await asyncio.to_thread(lambda: secured.producer(**login).list_topics(timeout=30))
    for wrong in (
        {"confirm": "eve"},
        {"name": "", "confirm": ""},
        {"mechanism": "PLAIN"},
        {"iterations": "1"},
        {"iterations": "9" * 12},
        {"iterations": "many"},
    ):
        assert (await client.post(f"{USERS}/set", data=fields | wrong)).status_code == 422, wrong
    given = {"mechanism": "SCRAM-SHA-256", "password": "of mine", "iterations": "5000"}
    assert (await client.post(f"{USERS}/set", data=fields | given)).status_code == 303
    await eventually(client, f"{USERS}?q=eve", "5,000")
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        link = {"id": MARKUP, "mechanism": mechanism}
        await eventually(client, f"{USERS}?{urlencode(link)}", f"cannot log in by {mechanism} any more")
        assert (await client.post(f"{USERS}/remove", params=link, data=fields)).status_code == 303
        assert (await client.post(f"{USERS}/remove", params=link, data=fields)).status_code == 422
    await eventually(client, f"{USERS}?q=eve", "logs in by SCRAM.")


async def test_a_token_is_made_renewed_and_ended_and_its_secret_is_in_no_list(
    open_secured: Open, secured: Cluster
) -> None:
    client = await open_secured()
    fields = {"csrf": await csrf_of(client, TOKENS), "renewers": "bob, User:carol", "hours": "2", "confirm": "own"}
    made = (await client.post(f"{TOKENS}/create", data=fields)).text
    token, secret = fact(made, "Token"), fact(made, "HMAC")
    listed = await eventually(client, TOKENS, token)
    assert secret and secret not in listed and "User:bob User:carol" in listed
    assert fact(made, "At most until") in listed
    assert 'action="/access/tokens/expire' in (await client.get(TOKENS, params={"id": token})).text
    named = fields | {"confirm": token}
    for wrong in ({"hours": "0"}, {"hours": "soon"}, {"hours": "nan"}, {"hours": "9e99"}, {"confirm": "own"}):
        refused = await client.post(f"{TOKENS}/renew", params={"id": token}, data=named | wrong)
        assert refused.status_code == 422, wrong
    assert (await client.post(f"{TOKENS}/renew", params={"id": token}, data=named)).status_code == 303
    assert (await client.post(f"{TOKENS}/expire", params={"id": token}, data=named)).status_code == 303
    await eventually(client, TOKENS, token, there=False)
    gone = await client.post(f"{TOKENS}/renew", params={"id": token}, data=named)
    assert gone.status_code == 422 and "no such token" in gone.text


async def test_who_may_not_sees_why_and_changes_nothing(open_secured: Open, secured: Cluster) -> None:
    client = await open_secured(await asyncio.to_thread(secured.add_user, "alice"))
    await eventually(client, USERS, "CLUSTER_AUTHORIZATION_FAILED")
    fields = {"csrf": await csrf_of(client, USERS), "name": "eve", "mechanism": "SCRAM-SHA-512", "confirm": "eve"}
    refused = await client.post(f"{USERS}/set", data=fields)
    assert refused.status_code == 422 and "CLUSTER_AUTHORIZATION_FAILED" in refused.text
    await eventually(client, TOKENS, "no delegation token that this console")
    await eventually(client, "/reassignments", "CLUSTER_AUTHORIZATION_FAILED")


async def test_a_console_that_only_looks_has_no_forms_of_them(open_console: Open) -> None:
    client = await open_console()
    for page in (USERS, TOKENS, "/reassignments"):
        assert 'method="post"' not in (await client.get(page)).text, page
    assert "DELEGATION_TOKEN" in (await client.get(TOKENS)).text
    for link in (f"{USERS}/set", f"{TOKENS}/create", "/reassignments/unthrottle", "/reassignments/elect"):
        assert (await client.post(link, data={"confirm": "x"})).status_code == 403, link
