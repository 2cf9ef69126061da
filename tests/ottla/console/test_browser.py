"""The pages in headless Chromium, on three nodes, one of which is killed while the browser shows a page."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient

from ottla.local.console import CHANGES, running_console, running_registry
from ottla.registry.client import RegistryClient, Schema
from ottla.server.extras import lacking
from ottla.testing import Cluster
from tests.cluster.shared import STEADY
from tests.needs import skip_because

try:
    from playwright.sync_api import Page, sync_playwright

    MISSING = None if shutil.which("chromium") else "needs Chromium: apt install chromium"
except ImportError:
    MISSING = "needs Playwright: pip install playwright"

PAGES = (
    "/", "/topics", "/topics/orders", "/topics/orders/records", "/topics/orders/settings", "/topics/orders/groups", "/groups",
    "/group?id=readers", "/transactions", "/reassignments", "/reassignments/plan?brokers=1,2", "/access", "/access/users", "/access/tokens",
    "/quotas", "/timeline", "/topics/orders/produce", "/schemas", "/schema?subject=orders-value", "/schema/diff?subject=orders-value&old=1&new=2",
    "/tables", "/tables?topic=orders",
)  # fmt: skip
MARKUP = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
#: Two versions; the second one has one line that differs.
SCHEMAS = (
    '{"title": "Order", "type": "object"}',
    '{"title": "Order", "type": "object", "description": "<script>document.title=\'owned\'</script>"}',
)
#: Links within a text that only their colour shows to be links.
PLAIN_LINKS = """() => [...document.querySelectorAll('p.muted > a, dd > a')].filter(
    (a) => getComputedStyle(a).textDecorationLine === 'none').map((a) => a.textContent)"""
#: The colours of text and background of each element with text of its own, as the browser has computed them after all
#: transitions.
COLOURS = """() => (document.getAnimations().forEach((each) => each.finish()), [...document.querySelectorAll('body *')].filter((e) => e.checkVisibility()
    && [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())).map((e) => {
  let back = e, layers = [];
  while (back) { layers.push(getComputedStyle(back).backgroundColor); back = back.parentElement; }
  const style = getComputedStyle(e);
  return [e.textContent.trim().slice(0, 30), style.color, layers.filter((c) => !c.endsWith(', 0)')), parseFloat(style.fontSize)];
}))"""


#: All tests here share one cluster and one browser; the first test waits until both have started.
pytestmark = pytest.mark.timeout(300)
#: The time limit of one wait of the browser, on a busy machine.
WAIT_MS = 60_000


class Served(NamedTuple):
    """The cluster, the address of its console, and the browser that opens it."""

    cluster: Cluster
    url: str
    chromium: Any


@dataclass
class Looked:
    """A page, and the errors in the browser's console."""

    page: Any
    base: str
    complaints: list[str] = field(default_factory=list)

    def at(self, path: str) -> Any:
        self.page.goto(self.base + path.lstrip("/"))
        return self.page


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    skip_because(MISSING)
    tables = str(tmp_path_factory.mktemp("tables"))
    if lacking("tables") is None:
        from tests.ottla.tables.lakes import Lake

        Lake(tables).add("orders", [MARKUP.encode(), b"\xff"])
    with Cluster(3, **STEADY) as cluster:
        cluster.topic("orders", partitions=3)
        producer = cluster.producer()
        for number in range(100):
            producer.produce("orders", f'{{"n": {number}}}', f"k{number}")
        producer.produce("orders", MARKUP, MARKUP, headers={MARKUP: MARKUP})
        producer.flush()
        consumer = cluster.consumer("orders", group_id="readers", enable_auto_commit=False)
        consumer.commit(message=consumer.consume(1, 30)[0], asynchronous=False)
        consumer.close()
        nodes = list(cluster.nodes.values())
        with (
            running_registry(nodes, 0, None) as registry,
            running_console(nodes, 0, CHANGES, None, registry, tables) as url,
            sync_playwright() as playwright,
        ):
            for text in SCHEMAS:
                RegistryClient(registry, timeout_s=60).register("orders-value", Schema(text, "JSON"))
            arguments = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
            chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=arguments)
            yield Served(cluster, url, chromium)
            chromium.close()


@contextmanager
def browser(served: Served, **context: Any) -> Iterator[Looked]:
    opened = served.chromium.new_context(**context)
    opened.set_default_timeout(WAIT_MS)
    page: Page = opened.new_page()
    looked = Looked(page, served.url)
    page.on("console", lambda message: looked.complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: looked.complaints.append(str(error)))
    try:
        yield looked
    finally:
        opened.close()


def test_each_page_fits_a_phone_can_be_read_and_runs_no_markup(served: Served) -> None:
    with browser(served, viewport={"width": 400, "height": 800}) as looked:
        for path in PAGES:
            page = looked.at(path)
            page.wait_for_selector("h1")
            assert page.title() != "owned", path
            assert page.evaluate("document.documentElement.scrollWidth") <= 400, path
            plain = page.evaluate(PLAIN_LINKS)
            assert not plain, (path, plain)
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme)
                poor = [row for row in page.evaluate(COLOURS) if contrast(row[1], row[2]) < 4.5]
                assert not poor, (path, scheme, poor)
        assert not looked.complaints


def test_records_are_opened_by_keyboard_filtered_and_followed(served: Served) -> None:
    with browser(served, permissions=["clipboard-read", "clipboard-write"]) as looked:
        page = looked.at("/topics?internal=1")
        page.wait_for_selector("tr:has-text('_schemas')")
        page.keyboard.press("/")
        page.keyboard.type("ord")
        page.wait_for_selector("tr:has-text('_schemas')", state="detached")
        assert page.url.endswith("/topics?q=ord&internal=1"), "the list follows what is typed, and its link too"
        page.keyboard.press("Enter")
        page.click("th a:has-text('orders')")
        page.click("nav.tabs >> text=Records")
        page.focus("details.record >> nth=0 >> summary")
        page.keyboard.press("Enter")
        page.wait_for_selector("details.record[open] pre")
        looked.at("/topics/orders/records?path=$.n = 7")
        page.wait_for_selector("text=Done: 1 of 101 records match")
        page.focus("details.record >> summary")
        page.keyboard.press("Enter")
        page.focus("details.record[open] .fold")
        page.keyboard.press("Enter")
        page.wait_for_selector(".fold[aria-expanded=false]")
        assert page.locator("pre .line:visible").count() == 2, "the beginning and the end of the object"
        page.click("button.copy")
        page.wait_for_selector("text=Copied")
        assert page.evaluate("navigator.clipboard.readText()") == '{\n  "n": 7\n}'
        looked.at('/topics/orders/records?value="n": 7')
        page.wait_for_selector("text=Done: 11 of 101 records match")
        assert page.locator("details.record").count() == 11
        looked.at("/topics/orders/records?from=live")
        page.wait_for_selector("text=Live: 0 records")
        producer = served.cluster.producer()
        producer.produce("orders", "just now")
        producer.flush()
        page.wait_for_selector("details.record >> text=just now")
        page.click("#stream-stop")
        page.wait_for_selector("text=Stopped.")
        assert not looked.complaints


def test_a_change_is_made_once_its_name_was_typed_and_a_password_is_shown_once(served: Served) -> None:
    with browser(served) as looked:
        page = looked.at("/access/users")
        page.click("text=Set a password")
        page.fill("input[name=name]", MARKUP)
        page.fill("input[name=confirm]", MARKUP)
        page.click("form[action='/access/users/set'] button")
        page.wait_for_selector("text=it is shown this once")
        assert page.title() != "owned" and page.locator("dd").first.inner_text() == MARKUP
        page.click("text=Go on")
        page.click("text=Remove …")
        button = page.locator("button.danger >> nth=0")
        page.fill("input[name=confirm] >> nth=0", MARKUP[:-1])
        assert button.is_disabled()
        page.keyboard.type(MARKUP[-1])
        button.click()
        page.wait_for_selector("text=cannot log in by SCRAM-SHA-512 any more")
        assert not looked.complaints


def test_a_page_says_when_what_it_shows_was_deleted(served: Served) -> None:
    served.cluster.topic("leaving", partitions=1)
    with browser(served) as looked:
        page = looked.at("topics/leaving")
        page.wait_for_selector(".cell.leader")
        admin = AdminClient({"bootstrap.servers": served.cluster.bootstrap})
        admin.delete_topics(["leaving"])["leaving"].result(30)
        page.wait_for_selector("text=there is no topic leaving")


def test_pages_go_on_when_a_broker_is_killed_while_they_are_looked_at(served: Served) -> None:
    with browser(served) as looked:
        page = looked.at("/")
        page.wait_for_selector("text=Nothing is wrong")
        served.cluster.kill(3)
        page.wait_for_selector("text=broker 3 is fenced")
        for path in PAGES:
            assert page.request.get(served.url + path.lstrip("/")).status == 200, path
        looked.at("/topics/orders").wait_for_selector(".cell.offline small")
        looked.at("/timeline").wait_for_selector("li:has-text('fencing')")
        assert not looked.complaints


def contrast(text: str, layers: list[str]) -> float:
    """The contrast of WCAG 2: the ratio of luminances, of the text over its background."""
    back = layers[0] if layers else "rgb(255, 255, 255)"
    bright, dark = sorted((luminance(text), luminance(back)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    channels = [float(found) / 255 for found in re.findall(r"[\d.]+", colour)[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
