"""Access control entries, the reason why a request is denied, and quotas, at a node with an authorizer."""

from __future__ import annotations

import html
from collections.abc import Iterator

import pytest

from ottla.server.authorization.authorizer import STANDARD_AUTHORIZER
from tests.broker.conftest import start_node, stop_node
from tests.ottla.console.conftest import Open, csrf_of


@pytest.fixture(scope="module")
def authorizing() -> Iterator[str]:
    node = start_node(authorizer_class_name=STANDARD_AUTHORIZER, super_users="User:ANONYMOUS")
    yield node.bootstrap
    stop_node(node)


async def test_entries_are_added_explain_a_denial_and_are_removed(open_console: Open, authorizing: str) -> None:
    client = await open_console(bootstrap=authorizing, allow_changes=True)
    ask = {"who": "ann", "operation": "read", "what": "topic:orders"}
    denied = (await client.get("/access", params=ask)).text
    assert "<b>Denied</b>" in denied and "ottla acl add ann read topic:orders" in denied
    fields = {"csrf": await csrf_of(client, "/access")} | ask
    assert (await client.post("/access/add", data=fields | {"confirm": "x"})).status_code == 422
    assert (await client.post("/access/add", data=fields | {"confirm": "ann"})).status_code == 303
    allowed = (await client.get("/access", params=ask)).text
    assert "<b>Allowed</b>" in allowed and "allow User:ann read on topic:orders from *" in allowed
    link = html.unescape(allowed.partition('href="/access?type=')[2].partition('"')[0])
    chosen = (await client.get(f"/access?type={link}")).text
    link = html.unescape(chosen.partition('action="/access/remove')[2].partition('"')[0])
    assert (await client.post(f"/access/remove{link}", data=fields | {"confirm": "User:ann"})).status_code == 303
    assert "<b>Denied</b>" in (await client.get("/access", params=ask)).text
    assert (await client.post("/access/remove?type=x", data=fields)).status_code == 422
    wrong = (await client.get("/access", params=ask | {"what": "table:t"})).text
    assert "is no resource" in wrong


async def test_a_quota_is_set_and_shown(open_console: Open, authorizing: str) -> None:
    client = await open_console(bootstrap=authorizing, allow_changes=True)
    fields = {
        "csrf": await csrf_of(client, "/quotas"),
        "kind": "user",
        "name": "<ann>",
        "key": "producer_byte_rate",
        "value": "1000000",
        "confirm": "<ann>",
    }
    assert (await client.post("/quotas/set", data=fields)).status_code == 303
    page = (await client.get("/quotas")).text
    assert "&lt;ann&gt;" in page and "1,000,000" in page
    for wrong in ({"value": "much"}, {"kind": "planet"}, {"confirm": ""}):
        assert (await client.post("/quotas/set", data=fields | wrong)).status_code == 422


async def test_a_broker_without_an_authorizer_says_what_to_set(open_console: Open) -> None:
    client = await open_console()
    page = (await client.get("/access")).text
    assert "SECURITY_DISABLED" in page and "authorizer.class.name" in page
