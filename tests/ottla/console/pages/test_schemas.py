"""Schemas of a registry in the console: subjects, versions, differences, compatibility, and the topics that use a schema."""

from __future__ import annotations

import json

from tests.ottla.conftest import Cli
from tests.ottla.console.conftest import Open, csrf_of
from tests.ottla.registry.instances import Instance
from tests.ottla.registry.stand_in import registry_of

MARKUP = "<img src=x onerror=alert(1)>"


def order(*fields: str) -> str:
    rows = [{"name": name, "type": ["null", "string"], "default": None} for name in fields]
    return json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": rows})


async def test_a_subject_shows_its_versions_what_differs_its_topic_and_what_needs_it(
    open_console: Open, cli: Cli, registry: Instance
) -> None:
    topic = cli.topic()
    subject, other = f"{topic}-value", f"{topic}-other"
    for fields in (("who",), ("who", "what")):
        registry.ask("POST", f"/subjects/{subject}/versions", {"schema": order(*fields)})
    needs = {"type": "record", "name": "Basket", "fields": [{"name": "order", "type": "shop.Order"}]}
    reference = {"name": "shop.Order", "subject": subject, "version": 2}
    registry.ask("POST", f"/subjects/{other}/versions", {"schema": json.dumps(needs), "references": [reference]})
    client = await open_console(registry=registry.url)
    listed = (await client.get("/schemas", params={"topic": topic})).text
    assert subject in listed and other in listed and f'href="/topics/{topic}"' in listed
    assert subject in (await client.get("/schemas", params={"q": subject.upper()})).text
    assert "Schemas</a>" in (await client.get(f"/topics/{topic}")).text
    page = (await client.get("/schema", params={"subject": subject})).text
    assert "shop.Order" in page and f"{other} 1</a>" in page and f'href="/topics/{topic}"' in page
    assert "what version 2 has changed" in page and "BACKWARD" in page and "of the registry" in page
    first = (await client.get("/schema", params={"subject": subject, "version": 1})).text
    assert "&#34;who&#34;" in first and "&#34;what&#34;" not in first.partition("Check a new text")[0]
    compared = (await client.get("/schema/diff", params={"subject": subject, "old": 1, "new": 2})).text
    assert '<div class="added"><span class="mark">+</span>      &#34;name&#34;: &#34;what&#34;' in compared
    missing = await client.get("/schema", params={"subject": f"{topic}-none"})
    assert missing.status_code == 404 and "not found" in missing.text


async def test_a_new_text_is_checked_and_registered_once_the_subject_was_typed(
    open_console: Open, cli: Cli, registry: Instance
) -> None:
    subject = f"{cli.topic()}-value"
    registry.ask("POST", f"/subjects/{subject}/versions", {"schema": order("who")})
    looking = await open_console(registry=registry.url)
    page = f"/schema?subject={subject}"
    fields = {"csrf": await csrf_of(looking, page), "subject": subject, "type": "AVRO", "against": "level"}
    wrong = {"type": "record", "name": "Order", "namespace": "shop", "fields": [{"name": "id", "type": "long"}]}
    refused = (await looking.post("/schema/check", data=fields | {"text": json.dumps(wrong)})).text
    assert "is not compatible" in refused and "READER_FIELD_MISSING_DEFAULT_VALUE" in refused
    fine = (await looking.post("/schema/check", data=fields | {"text": order("who", "why")})).text
    assert "The new schema is compatible" in fine and "Register</button>" not in fine
    assert (await looking.post("/schema/check", data=fields | {"csrf": "0"})).status_code == 403
    assert (await looking.post(f"/schema/register?subject={subject}", data=fields)).status_code == 403

    client = await open_console(registry=registry.url, allow_changes=True)
    fields |= {"csrf": await csrf_of(client, page), "text": order("who", "why"), "confirm": subject}
    assert "Register</button>" in (await client.post("/schema/check", data=fields)).text
    assert (await client.post(f"/schema/register?subject={subject}", data=fields)).status_code == 303
    assert registry.ask("GET", f"/subjects/{subject}/versions") == [1, 2]
    done = await client.post(f"/schema/level?subject={subject}", data=fields | {"level": "NONE"})
    assert done.status_code == 303
    text = (await client.get(page)).text
    assert '<span class="mono">NONE</span>: nothing is checked' in text
    assert (await client.post(f"/schema/level?subject={subject}", data=fields | {"level": "x"})).status_code == 422


async def test_what_a_registry_names_is_text_on_every_page(open_console: Open) -> None:
    row = {"subject": MARKUP, "version": 1, "id": 1, "schema": MARKUP, "schemaType": MARKUP}
    row["references"] = [{"name": MARKUP, "subject": MARKUP, "version": 1}]
    path = "/subjects/%3Cimg%20src%3Dx%20onerror%3Dalert%281%29%3E/versions"
    rows = {
        "/subjects": [MARKUP],
        path: [1, 2],
        f"{path}/latest": row,
        f"{path}/1": row,
        f"{path}/2": row | {"schema": MARKUP + "\n" + MARKUP},
        f"{path}/1/referencedby": [1],
        "/schemas/ids/1/versions": [{"subject": MARKUP, "version": 1}],
        "/config": {"compatibilityLevel": MARKUP},
    }
    with registry_of(rows) as (url, _):
        client = await open_console(registry=url, wait=False)
        for page in ("/schemas", "/schema", "/schema/diff?old=1&new=2"):
            text = (await client.get(page, params={"subject": MARKUP} if page == "/schema" else None)).text
            if page.startswith("/schema/diff"):
                text = (await client.get("/schema/diff", params={"subject": MARKUP, "old": 1, "new": 2})).text
            assert "&lt;img src=x" in text and "<img src=x" not in text, page


async def test_a_console_without_a_registry_says_how_to_give_it_one(open_console: Open) -> None:
    client = await open_console(wait=False)
    assert "--registry http://localhost:8081" in (await client.get("/schemas")).text
    assert (await client.get("/schema?subject=s")).status_code == 422
    lost = await open_console(registry="http://127.0.0.1:1", wait=False)
    assert "cannot be reached" in (await lost.get("/schemas")).text
