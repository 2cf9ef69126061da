"""Each shipped alert is silent on a healthy cluster and fires when its reason occurs; nodes export all metrics of the
dashboards.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster.shared import make_topics
from tests.deploy.nodes import ROOT, Node, eventually, three_nodes
from tests.deploy.promql import Scrapes, firing, metric_names

MONITORING = ROOT / "deploy" / "monitoring"
DASHBOARDS = [MONITORING / "dashboard.json", MONITORING / "dashboard-broker.json"]
#: The metrics of Prometheus itself.
NOT_OURS = {"up"}
OF_A_LOST_BROKER = {
    "BrokerDown", "UnderReplicatedPartitions", "UnderReplicatedPartition", "UnderMinIsrPartitionCount", "OfflinePartitions",
}  # fmt: skip
#: The alerts that fire in `test_alerts_fire_for_their_reasons_and_no_others`.
OF_ACCIDENTS = OF_A_LOST_BROKER | {
    "OfflineLogDirectoryCount", "TooLargeConsumerGroupLag", "NoMessageForTooLong", "AbnormalControllerState",
}  # fmt: skip
#: An alert, a sample, a value for which it fires, and one for which it does not. Other tests show that the metrics have these
#: values.
OF_SAMPLES = [
    ("LogDirectoryRunningFull", 'ottla_log_directory_free_bytes{logdirectory="/data"}', 8_192, 2 << 30),
    ("CertificateExpires", 'ottla_certificate_valid_seconds{of="listener SSL"}', 13 * 86_400, 15 * 86_400),
    ("TableWaits", 'ottla_table_waits{topic="orders"}', 1, 0),
    ("TableBehind", 'ottla_table_lag_seconds{topic="orders"}', 901, 899),
    ("TableNotMaintained", 'ottla_table_maintenance_failing{topic="orders"}', 1, 0),
    ("TierWaits", 'ottla_tier_waits{topic="orders"}', 1, 0),
    ("TierBehind", 'ottla_tier_copy_lag_seconds{topic="orders"}', 901, 899),
    ("WallClockJumped", "ottla_wall_clock_jump_ms", -864_000_000, 0),
]


#: An alert, and a counter that must not grow.
OF_COUNTERS = [
    ("TableLostRecords", 'ottla_table_lost_offsets_total{topic="orders"}'),
    ("TablePartedFromLog", 'ottla_table_parted_offsets_total{topic="orders"}'),
    ("TableRejectsRecords", 'ottla_table_rejected_records_total{topic="orders"}'),
]


def rules() -> dict[str, str]:
    groups = yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"]
    return {rule["alert"]: rule["expr"] for group in groups for rule in group["rules"]}


def dashboard_expressions() -> list[str]:
    panels = [panel for path in DASHBOARDS for panel in json.loads(path.read_text())["panels"]]
    return [target["expr"] for panel in panels for target in panel.get("targets", [])]


def scrape(nodes: list[Node], times: int = 1) -> Scrapes:
    scrapes = Scrapes("kafka")
    for _ in range(times):
        for node in nodes:
            scrapes.add(f"127.0.0.1:{node.admin_port}", node.scrape())
    return scrapes


def alerts(nodes: list[Node]) -> set[str]:
    scrapes = scrape(nodes)
    return {name for name, expression in rules().items() if firing(expression, scrapes)}


def write(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "1"})
    for number in range(count):
        producer.produce(topic, str(number))
    assert producer.flush(20) == 0


def test_the_names_are_those_that_strimzis_users_know() -> None:
    assert {
        "UnderReplicatedPartitions", "AbnormalControllerState", "OfflinePartitions", "UnderMinIsrPartitionCount",
        "OfflineLogDirectoryCount", "UnderReplicatedPartition", "TooLargeConsumerGroupLag", "NoMessageForTooLong",
    } <= rules().keys()  # fmt: skip


@pytest.mark.timeout(240)
def test_alerts_fire_for_their_reasons_and_no_others(tmp_path: Path) -> None:
    with three_nodes(tmp_path) as nodes:
        bootstrap = ",".join(f"127.0.0.1:{node.port}" for node in nodes)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        make_topics(
            admin,
            NewTopic("copied", 3, 3, config={"min.insync.replicas": "3"}),
            NewTopic("lone", 1, replica_assignment=[[2]]),
            NewTopic("read", 1, replica_assignment=[[1, 2, 3]]),
        )
        write(bootstrap, "read", 1200)
        write(bootstrap, "copied", 10)

        # Node 3 started with one log directory offline; everything else is in order.
        eventually(lambda: alerts(nodes) == {"OfflineLogDirectoryCount"}, "only the log directory is missed")

        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "slow"})
        consumer.commit(offsets=[TopicPartition("read", 0, 5)], asynchronous=False)
        consumer.close()
        eventually(lambda: "TooLargeConsumerGroupLag" in alerts(nodes), "a group is behind")
        # The TYPE lines are read, because a node without TLS has no sample of a certificate.
        lines = [line.split() for node in nodes for line in (node.scrape() or "").splitlines()]
        names = {words[2] for words in lines if words[:2] == ["#", "TYPE"]}
        for expression in [*rules().values(), *dashboard_expressions()]:
            assert metric_names(expression) - NOT_OURS <= names, expression
        silence = firing(rules()["NoMessageForTooLong"], scrape(nodes, 2))
        assert any(("topic", "lone") in labels for labels in silence)

        nodes[1].kill()
        expected = OF_A_LOST_BROKER | {"OfflineLogDirectoryCount"}
        # There may be no active controller for a moment, if the killed broker was it or while another is elected.
        eventually(
            lambda: expected <= (found := alerts(nodes)) and "AbnormalControllerState" not in found, "a broker is gone"
        )

        nodes[2].kill()
        eventually(lambda: "AbnormalControllerState" in alerts(nodes), "one of three is no quorum")
        assert nodes[0].get("/healthz"), "restarting it would not bring the others back"


@pytest.mark.parametrize(("alert", "sample", "fires", "silent"), OF_SAMPLES)
def test_an_alert_fires_for_its_sample(alert: str, sample: str, fires: float, silent: float) -> None:
    for value, expected in ((fires, True), (silent, False)):
        scraped = Scrapes("kafka", {"one": [f"{sample} {value}"]})
        assert bool(firing(rules()[alert], scraped)) is expected


@pytest.mark.parametrize(("alert", "sample"), OF_COUNTERS)
def test_an_alert_fires_when_its_counter_grows(alert: str, sample: str) -> None:
    for values, expected in (((7, 8), True), ((7, 7), False)):
        scraped = Scrapes("kafka", {"one": [f"{sample} {value}" for value in values]})
        assert bool(firing(rules()[alert], scraped)) is expected


def test_every_alert_fires_in_a_test() -> None:
    assert rules().keys() == OF_ACCIDENTS | {row[0] for row in [*OF_SAMPLES, *OF_COUNTERS]}


@pytest.mark.parametrize(
    ("text", "expression", "fires"),
    [
        ("a 1", "a > 0", True),
        ("a 1", "a > 1", False),
        ('a{t="x"} 1\na{t="y"} 2', 'a{t!="y"} > 1', False),
        ('a{t="x"} 1\na{t="y"} 2', "sum(a) == 3", True),
        ('a{t="x"} 1\na{t="y"} 2', 'max(a{t=~"x|z"}) == 1', True),
        ("b 1", "sum(a) != 1", False),
    ],
)
def test_the_evaluator(text: str, expression: str, fires: bool) -> None:
    scrapes = Scrapes("kafka", {"one": [text]})
    assert bool(firing(expression, scrapes)) == fires


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.name)
def test_grafana_finds_its_panels_and_every_variable_narrows_one(path: Path) -> None:
    dashboard: dict[str, Any] = json.loads(path.read_text())
    expressions = "".join(target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", []))
    variables = {each["name"]: each for each in dashboard["templating"]["list"]}
    assert {f"${name}" for name in variables.keys() - {"datasource"}} == set(re.findall(r"\$\w+", expressions))
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        assert re.fullmatch(r"row|stat|timeseries", panel["type"])
        assert panel["type"] == "row" or panel["targets"]
