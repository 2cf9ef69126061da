"""The structure of the manifests and the service unit: references between them are right, and a node would start with them."""

from __future__ import annotations

import configparser
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from ottla.container.checks import check_properties
from ottla.container.resolve import resolve
from tests.deploy.nodes import ROOT

KUBERNETES = ROOT / "deploy" / "kubernetes"
SYSTEMD = ROOT / "deploy" / "systemd"
API_VERSIONS = {
    "Service": "v1",
    "StatefulSet": "apps/v1",
    "PodDisruptionBudget": "policy/v1",
    "NetworkPolicy": "networking.k8s.io/v1",
}


def documents() -> list[dict[str, Any]]:
    return [document for path in sorted(KUBERNETES.glob("*.yml")) for document in yaml.safe_load_all(path.read_text())]


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [document for document in documents() if document["kind"] == kind]


@pytest.fixture
def stateful_set() -> dict[str, Any]:
    (found,) = of_kind("StatefulSet")
    return found


@pytest.fixture
def container(stateful_set: dict[str, Any]) -> dict[str, Any]:
    (found,) = stateful_set["spec"]["template"]["spec"]["containers"]
    return dict(found)


def test_every_document_is_of_a_known_kind_with_a_name_of_its_own() -> None:
    names = []
    for document in documents():
        assert document["apiVersion"] == API_VERSIONS[document["kind"]]
        names.append((document["kind"], document["metadata"]["name"]))
    assert len(set(names)) == len(names)


def test_selectors_find_the_pods(stateful_set: dict[str, Any]) -> None:
    labels = stateful_set["spec"]["template"]["metadata"]["labels"]
    assert stateful_set["spec"]["selector"]["matchLabels"].items() <= labels.items()
    (budget,) = of_kind("PodDisruptionBudget")
    assert budget["spec"]["selector"]["matchLabels"] == labels
    assert budget["spec"]["maxUnavailable"] == 1
    headless = next(s for s in of_kind("Service") if s["metadata"]["name"] == stateful_set["spec"]["serviceName"])
    assert headless["spec"]["clusterIP"] == "None"
    assert headless["spec"]["publishNotReadyAddresses"] is True
    rule = stateful_set["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"]
    assert rule.keys() == {"preferredDuringSchedulingIgnoredDuringExecution"}, (
        "else two of three pods of one machine wait"
    )
    for preferred in rule["preferredDuringSchedulingIgnoredDuringExecution"]:
        assert preferred["podAffinityTerm"]["labelSelector"]["matchLabels"] == labels


def test_pods_have_no_account_and_only_nodes_reach_their_controllers(
    stateful_set: dict[str, Any], container: dict[str, Any]
) -> None:
    pod = stateful_set["spec"]["template"]
    assert pod["spec"]["automountServiceAccountToken"] is pod["spec"]["enableServiceLinks"] is False
    (policy,) = of_kind("NetworkPolicy")
    assert policy["spec"]["podSelector"]["matchLabels"] == pod["metadata"]["labels"]
    sources = {port["port"]: rule.get("from") for rule in policy["spec"]["ingress"] for port in rule["ports"]}
    assert sources.keys() == {port["name"] for port in container["ports"]}
    assert sources["controller"] == [{"podSelector": {"matchLabels": pod["metadata"]["labels"]}}]
    assert sources["admin"]


def test_probes_ask_the_admin_port_and_stopping_has_time(
    stateful_set: dict[str, Any], container: dict[str, Any]
) -> None:
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    for probe, path in (("livenessProbe", "/healthz"), ("startupProbe", "/healthz"), ("readinessProbe", "/readyz")):
        assert container[probe]["httpGet"] == {"path": path, "port": "admin"}
    environment = {row["name"]: row.get("value") for row in container["env"]}
    assert environment["OTTLA_ADMIN_LISTENER"].endswith(f":{ports['admin']}")
    assert "ottla cluster may-stop" in container["lifecycle"]["preStop"]["exec"]["command"][2]
    assert stateful_set["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] >= 30


def test_storage_is_claimed_and_mounted_where_the_logs_are(
    stateful_set: dict[str, Any], container: dict[str, Any]
) -> None:
    claims = {claim["metadata"]["name"] for claim in stateful_set["spec"]["volumeClaimTemplates"]}
    volumes = {volume["name"] for volume in stateful_set["spec"]["template"]["spec"]["volumes"]}
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts.keys() <= claims | volumes
    environment = {row["name"]: row.get("value") for row in container["env"]}
    assert environment["KAFKA_LOG_DIRS"].startswith(mounts["data"] + "/")


@pytest.mark.parametrize("ordinal", [0, 1, 2])
def test_each_pod_gets_its_own_id_and_addresses(ordinal: int, container: dict[str, Any]) -> None:
    script = container["command"][2].replace("exec /etc/kafka/docker/run", "env")
    given = {row["name"]: row["value"] for row in container["env"] if "value" in row}
    given |= {"HOSTNAME": f"kafka-{ordinal}", "NAMESPACE": "data", "NODE_IP": "192.0.2.7", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(["sh", "-c", script], env=given, capture_output=True, text=True, check=True)
    environment = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    config = check_properties(resolve(environment, lambda _: None))
    assert config.node_id == ordinal + 1
    external = next(e for e in config.broker_endpoints if e.name == "EXTERNAL")
    service = next(s for s in of_kind("Service") if s["metadata"]["name"] == f"kafka-{ordinal}-external")
    (port,) = service["spec"]["ports"]
    assert (external.advertised_host, external.advertised_port) == ("192.0.2.7", port["nodePort"])
    assert service["spec"]["selector"] == {"statefulset.kubernetes.io/pod-name": f"kafka-{ordinal}"}
    internal = next(e for e in config.broker_endpoints if e.name == "INTERNAL")
    assert internal.advertised_host == f"kafka-{ordinal}.kafka-headless.data.svc.cluster.local"


def read_unit(path: Path) -> configparser.ConfigParser:
    unit = configparser.ConfigParser(strict=False)
    unit.optionxform = str
    unit.read_string(path.read_text())
    return unit


def test_the_service_unit_starts_a_node_and_gives_it_time_to_stop() -> None:
    service = read_unit(SYSTEMD / "ottla.service")["Service"]
    assert " -P -m ottla start /" in service["ExecStart"]
    assert service["Type"] == "notify"
    words = service["ExecStop"].split()
    assert words[-2] == "--wait" and "may-stop" in words
    assert int(service["TimeoutStopSec"]) >= int(words[-1]) + 60, (
        "a connection that is not answered, and the stop itself"
    )
    assert service["KillSignal"] == "SIGTERM"
    assert int(service["LimitNOFILE"]) >= 100_000


def test_the_service_unit_keeps_records_and_keys_from_other_users() -> None:
    service = read_unit(SYSTEMD / "ottla.service")["Service"]
    assert (service["UMask"], service["StateDirectoryMode"], service["LimitCORE"]) == ("0077", "0700", "0")


def test_kernel_settings_are_numbers_with_reasons() -> None:
    lines = (SYSTEMD / "99-ottla.conf").read_text().splitlines()
    for before, line in pairwise(lines):
        if line and not line.startswith("#"):
            name, _, value = line.partition(" = ")
            assert value.isdecimal(), line
            assert "." in name
            assert before.startswith("#") or before.split(".")[0] == name.split(".")[0]
