"""The rights of each role on the pages: one table has all routes, and the log distinguishes two users."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import httpx
import pytest

from ottla.console.options import ConsoleLogin, UserLogin
from ottla.console.roles import PERMISSIONS, Role, role_for
from ottla.console.server import MENU, ROUTES
from ottla.console.site import FOLDER
from tests.ottla.conftest import Cli
from tests.ottla.console.conftest import Open, csrf_of

LOGIN = ConsoleLogin(
    {
        "vera": UserLogin("v", Role.VIEWER),
        "otto": UserLogin("o", Role.OPERATOR),
        "ada": UserLogin("a", Role.ADMINISTRATOR),
    },
    token="t0ken",
)
#: Forms that change nothing: they are posted because of their size.
QUESTIONS = {"/schema/check"}


def test_each_form_has_a_role_and_each_row_a_form() -> None:
    assert {route.path for route in ROUTES if "POST" in (route.methods or ())} == PERMISSIONS.keys()
    for path, role in PERMISSIONS.items():
        assert (role > Role.VIEWER) == (path not in QUESTIONS), path


def test_a_viewer_may_look_at_each_page() -> None:
    pages = [route.path for route in ROUTES if "GET" in (route.methods or ())]
    assert {role_for(method, path) for path in pages for method in ("GET", "HEAD")} == {Role.VIEWER}
    assert {path for path, _ in MENU} <= set(pages)


def test_a_form_without_a_row_is_not_served() -> None:
    with pytest.raises(KeyError):
        role_for("POST", "/new")


def test_each_form_that_a_template_posts_is_behind_a_role_that_it_asks_for() -> None:
    """A page shows a form only to users who may send it: `may` names a row of the table, and a misspelt name is no row."""
    asked = set()
    for file in Path(FOLDER / "templates").glob("*.html"):
        text = file.read_text()
        names = set(re.findall(r'may\("([^"]+)"\)', text))
        assert names <= PERMISSIONS.keys(), file.name
        posts = text.count('method="post"') + text.count("parts.confirm(")
        assert names or not posts or file.name == "parts.html", f"{file.name} has a form that it shows to all"
        asked |= names
    assert asked


async def test_a_role_limits_what_is_shown_and_what_is_done(
    open_console: Open, cli: Cli, caplog: pytest.LogCaptureFixture
) -> None:
    name, gone = cli.topic(), cli.topic()
    client = await open_console(login=LOGIN, allow_changes=True, wait=False)
    page = f"/topics/{name}/produce"

    async def post(user: str, path: str, fields: dict[str, str]) -> httpx.Response:
        client.auth = httpx.BasicAuth(user, LOGIN.users[user].password if user in LOGIN.users else "t0ken")
        token = await csrf_of(client, page) or await csrf_of(client, "/schema?subject=s")
        return await client.post(path, data={"csrf": token, **fields})

    record = {"key_as": "text", "value_as": "text", "value": "v"}
    client.auth = httpx.BasicAuth("vera", "v")
    shown = (await client.get(page)).text
    assert "The role of vera is viewer" in shown and "<textarea" not in shown and "read-only" in shown
    with caplog.at_level(logging.INFO, "ottla.console"):
        refused = await post("vera", page, record)
        assert refused.status_code == 403 and "takes the role operator, and vera is viewer" in refused.text
        assert (await post("otto", page, record)).status_code == 303
        assert (await post("ada", page, record)).status_code == 303
        assert (await post("otto", f"/topics/{gone}/delete", {"confirm": gone})).status_code == 403
        assert "Delete the topic" not in (await client.get(f"/topics/{name}")).text
        assert (await post("ada", f"/topics/{gone}/delete", {"confirm": gone})).status_code == 303
        assert (await post("eve\nada (administrator)", page, record)).status_code == 303
    lines = [each.getMessage() for each in caplog.records if each.name == "ottla.console.site"]
    assert lines[0] == f"vera (viewer) may not POST {page}"
    assert [line.partition(":")[0] for line in lines[1:]] == [
        "otto (operator)",
        "ada (administrator)",
        f"otto (operator) may not POST /topics/{gone}/delete",
        "ada (administrator)",
        "eve\\nada (administrator) (token) (administrator)",
    ]
    assert f"topic {gone} was deleted" in lines[4]
    timeline = (await client.get("/timeline?kind=change")).text
    assert "otto" in timeline and f"topic {gone} was deleted" in timeline


async def test_without_changes_an_administrator_looks(open_console: Open, cli: Cli) -> None:
    client = await open_console(login=LOGIN, wait=False)
    client.auth = httpx.BasicAuth("ada", "a")
    page = f"/topics/{cli.topic()}/produce"
    assert "This console only looks" in (await client.get(page)).text
    assert (await client.post(page, data={})).status_code == 403
