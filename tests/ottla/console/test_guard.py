"""The guard before each page: host names, logins, other sites, tokens of forms, and headers for browsers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from ottla.client.failures import Failure
from ottla.console.guard import POLICY
from ottla.console.options import ConsoleLogin, ConsoleOptions, UserLogin, read_login
from ottla.console.roles import Role
from ottla.console.site import FORM_BYTES_MAX
from tests.ottla.conftest import Cli
from tests.ottla.console.conftest import Open, csrf_of


async def test_a_page_by_another_name_is_refused(open_console: Open) -> None:
    client = await open_console(allowed_hosts=("kafka.example",))
    for host, status in {
        "127.0.0.1:9490": 200,
        "localhost": 200,
        "[::1]:9490": 200,
        "KAFKA.example": 200,
        "evil.example": 400,
        "127.0.0.1.evil.example": 400,
        "": 400,
    }.items():
        assert (await client.get("/", headers={"host": host})).status_code == status, host


async def test_each_answer_has_the_headers_that_keep_a_browser_safe(open_console: Open) -> None:
    client = await open_console()
    for page in ("/", "/topics", "/nowhere", "/static/console.js", "/chart?what=nothing"):
        headers = (await client.get(page)).headers
        assert headers["content-security-policy"] == POLICY and "unsafe" not in POLICY, page
        assert headers["x-frame-options"] == "DENY" and headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin", "with no-referrer a form's Origin is null in a browser"
    cookie = (await httpx.AsyncClient(transport=client._transport, base_url=client.base_url).get("/")).headers[
        "set-cookie"
    ]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie


async def test_other_sites_may_link_to_a_page_and_nothing_else(open_console: Open) -> None:
    client = await open_console(allow_changes=True)
    fetched = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"}
    linked = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert (await client.get("/chart?what=records", headers=fetched)).status_code == 403
    assert (await client.get("/topics", headers=linked)).status_code == 200
    fields = {"csrf": await csrf_of(client, "/topic-create"), "confirm": "from-elsewhere"}
    assert (await client.post("/topic-create", data=fields, headers=linked)).status_code == 403
    assert (
        await client.post("/topic-create", data=fields, headers={"origin": "http://evil.example"})
    ).status_code == 403
    assert (await client.post("/topic-create", data=fields, headers={"origin": "null"})).status_code == 403


async def test_a_login_is_asked_for_and_a_token_is_one(open_console: Open) -> None:
    client = await open_console(
        login=ConsoleLogin({"ann": UserLogin("secret", Role.VIEWER)}, token="t0ken"), wait=False
    )
    refused = await client.get("/")
    assert refused.status_code == 401 and refused.headers["www-authenticate"].startswith("Basic")
    assert (await client.get("/static/console.css")).status_code == 401
    for auth in (("ann", "wrong"), ("", ""), ("bob", "secret")):
        assert (await client.get("/", auth=auth)).status_code == 401
    for good in (("ann", "secret"), ("anyone", "t0ken")):
        assert (await client.get("/", auth=good)).status_code == 200
    for value, status in {"Bearer t0ken": 200, "Bearer x": 401, "Basic !!!": 401, "Digest a": 401}.items():
        assert (await client.get("/", headers={"authorization": value})).status_code == status


async def test_nothing_changes_without_permission_token_and_the_things_name(open_console: Open, cli: Cli) -> None:
    name = cli.topic()
    looking = await open_console()
    assert (await looking.post(f"/topics/{name}/delete", data={"confirm": name})).status_code == 403
    client = await open_console(allow_changes=True)
    page = f"/topics/{name}"
    token = await csrf_of(client, page)
    assert (await client.post(f"{page}/delete", data={"confirm": name})).status_code == 403
    assert (await client.post(f"{page}/delete", data={"confirm": name, "csrf": "0" * 64})).status_code == 403
    wrong = await client.post(f"{page}/delete", data={"confirm": "other", "csrf": token})
    assert wrong.status_code == 422 and "nothing was changed" in wrong.text
    assert (await client.post(f"{page}/delete", content=b"x" * (FORM_BYTES_MAX + 1))).status_code == 422
    assert name in await asyncio.to_thread(cli.ok, "topic", "list")
    done = await client.post(f"{page}/delete", data={"confirm": name, "csrf": token})
    assert done.status_code == 303 and name not in await asyncio.to_thread(cli.ok, "topic", "list")


def test_other_machines_need_a_login_unless_a_proxy_asks_for_one() -> None:
    with pytest.raises(Failure, match="there is no login"):
        ConsoleOptions("b", host="0.0.0.0").check(no_login=False)
    ConsoleOptions("b", host="0.0.0.0").check(no_login=True)
    ConsoleOptions("b", host="0.0.0.0", login=ConsoleLogin(token="t")).check(no_login=False)
    ConsoleOptions("b", host="::1").check(no_login=False)


def test_a_file_of_logins_is_read_and_a_wrong_line_is_named(tmp_path: Path) -> None:
    users, token = tmp_path / "users", tmp_path / "token"
    users.write_text("# who\nann:Operator:s:ecret\n")
    token.write_text("abc\n")
    assert read_login(str(users), str(token)) == ConsoleLogin({"ann": UserLogin("s:ecret", Role.OPERATOR)}, "abc")
    for wrong in ("ann", "ann:secret", "ann:root:secret", "ann:viewer:", ":viewer:secret"):
        users.write_text(f"{wrong}\n")
        with pytest.raises(Failure, match=":1 is not USER:ROLE:PASSWORD"):
            read_login(str(users), None)
    with pytest.raises(Failure, match="cannot be read"):
        read_login(None, str(tmp_path / "none"))
