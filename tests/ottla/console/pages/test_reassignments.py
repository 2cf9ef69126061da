"""Reassignments between two nodes: a plan is shown, begun as it was shown, followed, cancelled and carried out, or rejected.

OTTLA_TEST_BOOTSTRAP_OF_THREE names another cluster to use, for example one of Apache Kafka.
"""

from __future__ import annotations

import asyncio
import html
import itertools
import json
import os
from collections.abc import Iterator
from urllib.parse import urlencode

import pytest

from ottla.console.sampler import MoveRates
from ottla.testing import Cluster
from tests.broker import conftest as known
from tests.cluster.shared import STEADY
from tests.ottla.conftest import Cli
from tests.ottla.console.conftest import PATIENCE_S, Open, csrf_of, eventually

PAGE, PLAN = "/reassignments", "/reassignments/plan"


@pytest.fixture(scope="module")
def two() -> Iterator[Cli]:
    if given := os.environ.get("OTTLA_TEST_BOOTSTRAP_OF_THREE"):
        yield Cli(given)
        return
    with Cluster(2, **STEADY) as cluster:
        yield Cli(cluster.bootstrap)


def filled_topic(cli: Cli) -> tuple[str, int, int]:
    """A topic whose one partition has 5 MB on a broker. Also that broker and another one."""
    one, two, *_ = (int(str(row["broker"])) for row in cli.rows("broker", "list"))
    name = cli.topic()
    # Each command asks any broker, and a change reaches the brokers at slightly different times.
    known.eventually(lambda: cli("move", "run", name, "--to", f"{one}").code == 0, f"{name} to be known")
    known.eventually(lambda: replicas(cli, name) == [one], f"{name} at broker {one}")
    cli.ok("produce", name, stdin=("x" * 100_000 + "\n") * 50)
    return name, one, two


def replicas(cli: Cli, topic: str) -> object:
    """Return the replicas of the partition, by the metadata of any one of the brokers."""
    return json.loads(cli.ok("topic", "describe", topic, "-o", "json"))["replicas"]


async def has_replicas(cli: Cli, topic: str, broker: int) -> None:
    await asyncio.to_thread(known.eventually, lambda: replicas(cli, topic) == [broker], f"{topic} at {broker}")


async def test_a_plan_begins_as_it_was_shown_is_followed_and_cancelled(open_console: Open, two: Cli) -> None:
    name, source, target = await asyncio.to_thread(filled_topic, two)
    client = await open_console(bootstrap=two.bootstrap, allow_changes=True)
    assert "Nothing moves." in (await client.get(PAGE)).text
    link = {"topics": name, "brokers": str(target)}
    shown = await eventually(client, f"{PLAN}?{urlencode(link)}", "1 partition to change")
    assert f"<td>{source}</td><td>{target}</td>" in shown
    text = html.unescape(shown.partition('name="plan" value="')[2].partition('"')[0])
    fields = {"csrf": await csrf_of(client, PAGE), "plan": text, "throttle": "10000", "confirm": name}
    unknown = [
        {"plan": text.replace(f"[{target}]", "[9999]")},
        {"plan": text.replace(name, f"{name}-none"), "confirm": f"{name}-none"},
    ]
    for wrong in (
        *unknown,
        {"confirm": "1 topic"},
        {"plan": ""},
        {"plan": "[" * 9000},
        {"throttle": "1"},
        {"throttle": "fast"},
    ):
        assert (await client.post(PLAN, data=fields | wrong)).status_code == (404 if wrong in unknown else 422), wrong
    assert "Nothing moves." in (await client.get(PAGE)).text
    assert (await client.post(PLAN, data=fields)).status_code == 303
    page = await eventually(client, PAGE, f'aria-label="{name}-0"')
    assert f"broker {source} to 9.8 KB a second" in page and "4.8 MB" in page
    assert "partitions are moving" in (await client.get(PLAN, params=link)).text
    assert "adding" in await eventually(client, f"/topics/{name}", f"broker {target}: adding")
    overview = (await client.get("/")).text
    assert "missing replicas:" not in overview and "behind)" not in overview, "a planned move is no alarm"
    cancel = {"topic": name, "partition": "0"}
    assert f'action="{PAGE}/cancel?topic={name}' in (await client.get(PAGE, params=cancel)).text
    for wrong in ({"partition": "x"}, {"partition": "1"}, {"topic": f"{name}-none"}):
        named = {"confirm": "-".join((cancel | wrong).values())}
        assert (await client.post(f"{PAGE}/cancel", params=cancel | wrong, data=fields | named)).status_code == 422
    assert (await client.post(f"{PAGE}/cancel", params=cancel, data=fields)).status_code == 422, "not its name"
    done = await client.post(f"{PAGE}/cancel", params=cancel, data=fields | {"confirm": f"{name}-0"})
    assert done.status_code == 303
    await eventually(client, PAGE, "Nothing moves.")
    await eventually(client, PAGE, "Throttled", there=False)
    await has_replicas(two, name, source)


async def test_a_plan_is_carried_out_and_its_throttle_is_taken_off(open_console: Open, two: Cli) -> None:
    name, _, target = await asyncio.to_thread(filled_topic, two)
    client = await open_console(bootstrap=two.bootstrap, allow_changes=True)
    link = {"topics": f"{name}, {name}:0", "brokers": str(target)}
    shown = await eventually(client, f"{PLAN}?{urlencode(link)}", "1 partition to change")
    text = html.unescape(shown.partition('name="plan" value="')[2].partition('"')[0])
    fields = {"csrf": await csrf_of(client, PAGE), "plan": text, "throttle": "100000000", "confirm": name}
    assert (await client.post(PLAN, data=fields)).status_code == 303
    await eventually(client, PAGE, "Nothing moves.")
    await eventually(client, PAGE, "Throttled")
    await has_replicas(two, name, target)
    async with asyncio.timeout(PATIENCE_S):
        for _ in itertools.count():
            nothing = await client.post(PLAN, data=fields)
            if nothing.status_code != 303:
                break
            await asyncio.sleep(0.1)  # the broker that was asked does not know of the move yet
    assert nothing.status_code == 422 and "nothing to move" in nothing.text
    for verb, confirm in (("unthrottle", "throttles"), ("elect", "leaders"), ("cancel", "all")):
        done = await client.post(f"{PAGE}/{verb}", data=fields | {"confirm": confirm})
        assert done.status_code == (422 if verb == "cancel" else 303), done.text
    await eventually(client, PAGE, "Throttled", there=False)
    assert "Nothing moves." in (await client.get(PAGE)).text


async def test_what_is_no_plan_says_why(open_console: Open, two: Cli) -> None:
    client, name = await open_console(bootstrap=two.bootstrap), two.topic()
    for fields, says in (
        ({"topics": "<i>none</i>"}, "&lt;i&gt;none"),
        ({"topics": f"{name}:x"}, "is not TOPIC or TOPIC:PARTITION"),
        ({"brokers": "one"}, "is no list of brokers"),
        ({"brokers": "9999"}, "broker 9999 takes no part"),
    ):
        page = (await client.get(PLAN, params=fields)).text
        assert says in page.partition('<p class="note error"')[2] and "<i>none" not in page, fields


def test_the_rate_of_moves_is_their_average_since_each_was_first_seen() -> None:
    rates = MoveRates()
    assert rates.update(10.0, {("t", 0): 500}) is None
    assert rates.update(20.0, {("t", 0): 1500, ("t", 1): 7}) == 100
    assert rates.update(20.0 + 10, {("t", 0): 1500, ("t", 1): 507}) == 50 + 50, "one that waits has moved before"
    assert rates.update(40.0, {("t", 1): 1007}) == 50, "one that has ended counts no more"
    assert rates.update(50.0, {}) is None
