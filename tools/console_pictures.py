"""Makes the pictures of docs/CONSOLE.md: a cluster of three under a small load, of which partitions move and then a broker is killed; and a
cluster of one with a schema registry.

python -m tools.console_pictures            # Chromium and Playwright; two minutes
python -m tools.console_pictures schemas    # those of the registry alone; some seconds
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import threading
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from ottla.local.console import CHANGES, LOOK, running_console, running_registry
from ottla.registry.client import RegistryClient, Schema
from ottla.testing import Cluster

TARGET = Path(__file__).parent.parent / "docs" / "pictures"
FIRST_RECORDS = 400_000
CHART_S = 75.0
MOVE_S = 25.0
ITEMS = ("apples", "pears", "plums", "figs", "quinces")
WIDE, PHONE = {"width": 1200, "height": 700}, {"width": 400, "height": 700}


def order(number: int) -> tuple[bytes, bytes, dict[str, Any]]:
    """Return the value, the key and the headers of an order."""
    chance = random.Random(number)
    customer, item = f"c-{chance.randrange(500)}", chance.choice(ITEMS)
    row = {"order": number, "customer": customer, "item": item, "amount": round(chance.uniform(1, 90), 2)}
    headers = {"trace": f"{chance.getrandbits(64):016x}", "source": chance.choice(("web", "shop", "phone"))}
    return json.dumps(row).encode(), customer.encode(), headers


def load(cluster: Cluster, over: threading.Event) -> None:
    """Write orders until `over` is set: some hundred a second, more in each fourth second."""
    producer, number = cluster.producer(acks="1"), FIRST_RECORDS
    while not over.wait(0.25):
        for _ in range(30 + 40 * (int(time.monotonic()) % 4 == 0)):
            value, key, headers = order(number)
            producer.produce("orders", value, key, headers=headers)
            number += 1
        producer.poll(0)


def fill(cluster: Cluster) -> Any:
    """Make topics and a group that lags. Return its member, which must stay."""
    for name, partitions in (("orders", 6), ("payments", 4)):
        cluster.topic(name, partitions=partitions, replicas=3)
    cluster.topic("archive", partitions=6, replicas=2)
    producer = cluster.producer(linger_ms=50)
    for number in range(FIRST_RECORDS):
        value, key, headers = order(number)
        producer.produce("orders", value, key, headers=headers)
        if number % 20 == 0:
            producer.produce("archive", value * 10, key)
        if number % 5_000 == 0:
            producer.flush()
    producer.flush()
    member = cluster.consumer("orders", group_id="billing", client_id="billing-1", enable_auto_commit=False)
    for _ in range(20):
        member.commit(message=member.consume(1_000, 30)[-1], asynchronous=False)
    return member


def begin_moves(page: Page, url: str) -> None:
    page.goto(f"{url}reassignments/plan?topics=archive&brokers=1,2")
    page.fill("input[name=throttle]", "60000")
    page.fill("input[name=confirm]", "archive")
    page.click("button.danger")
    page.wait_for_selector("progress")


def take(page: Page, name: str, *, height: int | None = None) -> None:
    if height is not None:
        page.set_viewport_size({"width": WIDE["width"], "height": height})
    page.wait_for_timeout(6_000)  # until there are charts, and rates between two looks
    page.screenshot(path=TARGET / f"console-{name}.png")


def schema(*fields: str) -> Schema:
    """Return a version of the orders' schema."""
    rows: list[dict[str, Any]] = [{"name": "order", "type": "long"}, {"name": "item", "type": "string"}]
    rows += ({"name": name, "type": ["null", "string"], "default": None} for name in fields)
    return Schema(json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": rows}))


def take_schemas(browser: Browser) -> None:
    """Take the pages of a registry, of a record that is produced, and of settings."""
    with Cluster(1) as cluster:
        cluster.topic("orders", partitions=3)
        nodes = list(cluster.nodes.values())
        with running_registry(nodes, 0, None) as registry, running_console(nodes, 0, CHANGES, None, registry) as url:
            client = RegistryClient(registry, timeout_s=60)
            for fields in ((), ("customer",), ("customer", "note")):
                client.register("orders-value", schema(*fields))
            page = browser.new_page(viewport=WIDE, color_scheme="light")
            page.goto(f"{url}schema/diff?subject=orders-value&old=1&new=3")
            page.set_viewport_size({"width": WIDE["width"], "height": 510})
            page.screenshot(path=TARGET / "console-schema.png")
            page.goto(f"{url}topics/orders/produce?key=c-17&value=%7B%22order%22%3A+7%2C+%22item%22%3A+%22figs%22%7D")
            page.set_viewport_size({"width": WIDE["width"], "height": 760})
            page.screenshot(path=TARGET / "console-produce.png")
            page.goto(f"{url}topics/orders/settings?edit=retention.ms#min.insync.replicas")
            page.set_viewport_size({"width": WIDE["width"], "height": 620})
            page.screenshot(path=TARGET / "console-settings.png")


def take_tables(browser: Browser) -> None:
    """Take the page of tables that the brokers write: one table is up to date, one has rejected records, one has just fallen
    behind.
    """
    slow = {"ottla.table.commit.interval.ms": "3600000"}
    topics = {"orders": {}, "payments": {"ottla.table.value": "string"}, "archive": slow}
    with Cluster(1) as cluster:
        for name, settings in topics.items():
            fast = {"ottla.table.format": "iceberg", "ottla.table.commit.interval.ms": "500"}
            cluster.topic(name, partitions=3, configs=fast | settings)
        producer = cluster.producer(linger_ms=50)
        for number in range(30_000):
            value, key, headers = order(number)
            name = list(topics)[number % 3]
            producer.produce(name, b"\xff" + value if number % 1_001 == 1 else value, key, headers=headers)
        producer.flush()
        nodes, place = list(cluster.nodes.values()), f"{cluster.directory}/tables"
        with running_console(nodes, 0, LOOK, None, None, place) as url:
            page = browser.new_page(viewport=WIDE, color_scheme="light")
            page.goto(f"{url}tables")
            for name in topics:  # each is there after its first commit
                page.wait_for_selector(f"th:has-text('{name}')", timeout=120_000)
            page.wait_for_selector("text=9,990", timeout=120_000)
            for number in range(500):
                producer.produce("archive", order(number)[0])
            producer.flush()
            page.goto(f"{url}tables?topic=payments")
            take(page, "tables", height=640)


def main() -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        take_schemas(browser)
        take_tables(browser)
        if "schemas" not in sys.argv[1:]:
            take_cluster(browser)
        browser.close()


def take_cluster(browser: Browser) -> None:
    over = threading.Event()
    with Cluster(3) as cluster:
        member = fill(cluster)
        threading.Thread(target=load, args=(cluster, over), daemon=True).start()
        nodes = list(cluster.nodes.values())
        time.sleep(10)  # after some seconds the load is even
        with running_console(nodes, 0, CHANGES, None) as url:
            page = browser.new_page(viewport=WIDE, color_scheme="light")
            page.goto(url)
            page.wait_for_timeout(CHART_S * 1000)
            begin_moves(page, url)
            page.goto(f"{url}reassignments")
            page.wait_for_timeout(MOVE_S * 1000)
            take(page, "reassignments", height=640)
            cluster.kill(3)
            page.goto(url)
            page.wait_for_selector("text=broker 3 is fenced")
            take(page, "overview", height=760)
            page.goto(f"{url}topics/orders")
            take(page, "topic", height=640)
        with running_console(nodes[:2], 0, LOOK, None) as url:
            page = browser.new_page(viewport=WIDE, color_scheme="dark")
            page.goto(f"{url}topics/orders/records?value=figs&header=source%3Dweb")
            page.click("details.record >> nth=2 >> summary")
            take(page, "records")
            phone = browser.new_page(viewport=PHONE, color_scheme="dark")
            phone.goto(f"{url}group?id=billing")
            take(phone, "phone")
        over.set()
        member.close()


if __name__ == "__main__":
    main()
