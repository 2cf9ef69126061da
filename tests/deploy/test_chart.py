"""The Helm chart, by its recorded output for one node, for three, and for separate controllers and brokers.

The output was checked against the schemas of Kubernetes 1.30. It is made again for NAME by
`helm template kafka deploy/helm/ottla -f VALUES --set clusterId=AAAAAAAAAAAAAAAAAAAAAA > deploy/helm/rendered/NAME.yml`.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from ottla import __version__
from ottla.client.security import peer_security
from ottla.container.checks import check_properties
from ottla.container.resolve import resolve
from ottla.local.certificates import Authority
from ottla.server.world import RealWorld
from tests.deploy.nodes import ROOT

CHART = ROOT / "deploy/helm/ottla"
RENDERED = ROOT / "deploy/helm/rendered"
VALUES = {"one": "values.yaml", "three": "values/three.yaml", "split": "values/split.yaml"}
CLUSTER_ID = "A" * 22


def documents(name: str) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all((RENDERED / f"{name}.yml").read_text()) if document]


def sets(name: str) -> list[dict[str, Any]]:
    return [document for document in documents(name) if document["kind"] == "StatefulSet"]


def environment_of(stateful_set: dict[str, Any], ordinal: int) -> dict[str, str]:
    """Return the variables with which the entry point runs in a pod. Variables from Secrets have made-up values."""
    (container,) = stateful_set["spec"]["template"]["spec"]["containers"]
    made_up = {"CLUSTER_ID": CLUSTER_ID, "NAMESPACE": "data", "OTTLA_SCRAM_USERS": "admin:pw\nalice:pw2\n"}
    given = {row["name"]: row.get("value", made_up.get(row["name"], "")) for row in container["env"]}
    script = container["command"][2].replace("exec /etc/kafka/docker/run", "env -0")
    host = {"HOSTNAME": f"{stateful_set['metadata']['name']}-{ordinal}", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(["sh", "-c", script], env=given | host, capture_output=True, text=True, check=True)
    return dict(line.split("=", 1) for line in done.stdout.split("\0") if "=" in line)


@pytest.mark.parametrize("name", VALUES)
def test_every_pod_is_a_node_of_its_own_that_would_start(name: str) -> None:
    authority = Authority.create("test CA")
    node = authority.issue("node", ["kafka"])
    pem = {"tls.key": node.key_pem, "tls.crt": node.chain_pem, "ca.crt": authority.pem}
    files = {f"/etc/kafka/secrets/{file}": text.encode() for file, text in pem.items()}
    found: dict[int, set[str]] = {}
    for stateful_set in sets(name):
        for ordinal in range(stateful_set["spec"]["replicas"]):
            resolution = resolve(environment_of(stateful_set, ordinal), files.get)
            config = check_properties(resolution)
            assert not config.unknown
            assert resolution.cluster_id is not None and resolution.cluster_id.value == CLUSTER_ID
            if resolution.get("ssl.keystore.key") is not None:
                assert resolution.get("ssl.keystore.certificate.chain") == node.chain_pem.strip()
                assert [user.name for user in resolution.users] == ["admin", "alice"]
            found[config.node_id] = set((resolution.get("process.roles") or "").split(","))
            voters = {node_id for node_id, _, _ in config.voters}
    assert voters == {node_id for node_id, roles in found.items() if "controller" in roles}
    assert sum("broker" in roles for roles in found.values()) == (1 if name == "one" else 3)


@pytest.mark.parametrize("name", VALUES)
def test_pods_are_hardened_and_know_nothing_of_services(name: str) -> None:
    for stateful_set in sets(name):
        pod = stateful_set["spec"]["template"]["spec"]
        assert pod["automountServiceAccountToken"] is pod["enableServiceLinks"] is False
        assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsGroup"] != 0
        assert "requiredDuringSchedulingIgnoredDuringExecution" not in pod["affinity"]["podAntiAffinity"]
        (container,) = pod["containers"]
        rules = container["securityContext"]
        assert rules["readOnlyRootFilesystem"] and rules["capabilities"] == {"drop": ["ALL"]}
        mounts = {mount["name"] for mount in container["volumeMounts"]}
        claims = {claim["metadata"]["name"] for claim in stateful_set["spec"]["volumeClaimTemplates"]}
        assert mounts == claims | {volume["name"] for volume in pod["volumes"]}


def test_a_stop_of_a_broker_waits_until_nothing_becomes_unavailable() -> None:
    (stateful_set,) = sets("three")
    pod = stateful_set["spec"]["template"]["spec"]
    said = pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][2]
    assert "ottla cluster may-stop" in said and "--wait 80" in said
    assert pod["terminationGracePeriodSeconds"] > 80 + 5 + 10


def test_a_stop_of_a_broker_with_tls_asks_with_the_certificate_of_the_node(tmp_path: Path) -> None:
    (brokers,) = (each for each in sets("split") if each["metadata"]["name"] == "kafka-broker")
    (container,) = brokers["spec"]["template"]["spec"]["containers"]
    script = container["lifecycle"]["preStop"]["exec"]["command"][2]
    authority = Authority.create("test CA")
    node = authority.issue("node", ["kafka"])
    for name, text in {"tls.key": node.key_pem, "tls.crt": node.chain_pem, "ca.crt": authority.pem}.items():
        (tmp_path / name).write_text(text)
    for name, text in {"ottla": 'echo "$@"; cat node.properties node.pem', "sleep": "echo slept"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    script = script.replace("/etc/kafka/secrets", str(tmp_path)).replace("/tmp && ", f"{tmp_path} && ")
    script = script.replace("/tmp/node.pem", f"{tmp_path}/node.pem")
    given = {"HOSTNAME": "kafka-broker-2", "NAMESPACE": "data", "PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(["sh", "-c", script], env=given, capture_output=True, text=True, check=True)
    asked, *said = done.stdout.splitlines()
    address = "kafka-broker-2.kafka-headless.data.svc.cluster.local:9091"
    assert asked == f"cluster may-stop 103 -b {address} --config node.properties --wait 80"
    assert said[-1] == "slept" and not (tmp_path / "node.pem").exists()
    (tmp_path / "node.pem").write_text(node.key_pem + node.chain_pem)
    properties = dict(line.split("=", 1) for line in said if "=" in line and line.startswith(("s", "ssl")))
    assert asyncio.run(is_tls(properties))


async def is_tls(properties: Mapping[str, str]) -> bool:
    """Return whether a command with these properties would connect by TLS, with the certificates that they name."""
    real = RealWorld(asyncio.get_running_loop())
    try:
        return peer_security(real.world, properties, "node.properties").tls is not None
    finally:
        await real.close()


def test_only_nodes_reach_controllers_and_only_brokers_are_found_by_clients() -> None:
    found = {(document["kind"], document["metadata"]["name"]): document for document in documents("split")}
    policy = found["NetworkPolicy", "kafka"]["spec"]["ingress"]
    sources = {port["port"]: rule.get("from") for rule in policy for port in rule["ports"]}
    assert sources["clients"] is None and sources["controller"] and sources["internal"] and sources["admin"]
    selector = found["Service", "kafka"]["spec"]["selector"]
    by_name = {s["metadata"]["name"]: s["spec"]["template"]["metadata"]["labels"] for s in sets("split")}
    assert selector.items() <= by_name["kafka-broker"].items()
    assert not selector.items() <= by_name["kafka-controller"].items()
    assert ("PodMonitor", "kafka") in found


def test_the_chart_is_of_the_version_of_the_project() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__
