"""`make compat`: runs the allowed tests of each suite against one fresh node and against three, with one line for each test; it
fails when one of them does not pass. Then tests run over TLS and with logins, against one node; `--apache-kafka` shows their
results at Apache Kafka.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from confluent_kafka import KafkaException

from tests import kdc
from tests.broker.groups.sequences.compare import Difference
from tests.broker.groups.sequences.generators import GENERATORS
from tests.chaos import network
from tests.compat import (
    authorization,
    client_lines,
    command_line,
    composed,
    cut_off,
    debian,
    emulated_clients,
    faults,
    go_clients,
    group_logs,
    images,
    kafka_python,
    librdkafka,
    librdkafka_secured,
    logins,
    mirror,
    random_groups,
    tools,
    traffic,
    upgrade,
    versions,
    workflows,
)
from tests.compat.ecosystem import suite as ecosystem
from tests.compat.ecosystem.results import Result, write_results
from tests.compat.lakehouse import jars as lakehouse
from tests.compat.librdkafka import Case, Outcome, Server
from tests.compat.logins import Failed
from tests.compat.mixed.nodes import NotSo
from tests.compat.mixed.steps import NEEDS, STEPS
from tests.compat.node import running_cluster, running_node
from tests.compat.registry import java
from tests.compat.secured import LISTENERS, SecuredNode, secured_cluster, secured_node
from tests.compat.spark import connector, delta_tables, newer, submitted, table_catalog
from tests.pipeline.conftest import why_not
from tests.ports import free_base_port
from tools import apache_kafka

HERE = Path(__file__).parent
PORT = 27092
#: The number of random worlds of ACLs. In each of them each principal requests each API once.
WORLDS = 150
#: The allow-list by the number of nodes, because some tests want three replicas, and some want one super user less.
ALLOWED = {1: "librdkafka_allow.txt", 3: "librdkafka_three_nodes_allow.txt"}
#: Tests of kafka-python that are about the set-up of a single node: one moves a replica of the first broker, which has one of
#: three partitions, one assigns a replica to broker 0, one wants to see advertised.listeners in its properties, and one wants a
#: single poll to return the records of three brokers: three nodes of Apache Kafka 4.3.1 fail it in three of four runs.
FOR_ONE_NODE = {
    "test_admin_integration::test_alter_replica_log_dirs",
    "test_admin_integration::test_create_partitions",
    "test_admin_integration::test_delete_records",
    "test_admin_integration::test_describe_configs_broker_resource_returns_configs",
}


def report(outcome: Outcome) -> Outcome:
    print(f"{outcome.name} {outcome.result} {outcome.seconds:.1f} {outcome.reason}".rstrip(), flush=True)
    return outcome


def serving(nodes: int, logs: Path, name: str, **properties: str) -> AbstractContextManager[str]:
    """Run new nodes for one suite; yield their bootstrap address."""
    if nodes == 1:
        return running_node(PORT, logs / f"node-{name}.log", **properties)
    return running_cluster(nodes, logs / name, **properties)


def run_librdkafka(logs: Path, names: list[str], nodes: int) -> list[Outcome]:
    """Run each allowed test, or the named ones, with new nodes for each scenario."""
    if reason := librdkafka.missing():
        print(f"librdkafka is left out: {reason}")
        return []
    librdkafka.build()
    cases = [c for c in librdkafka.read_allow_list(HERE / ALLOWED[nodes]) if not names or c.number in names]
    return list(_by_scenario(cases, logs, nodes))


def run_librdkafka_consumer(logs: Path, names: list[str], nodes: int) -> list[Outcome]:
    """Run its tests of groups, whose members speak the consumer protocol (KIP-848), on one node as in Apache Kafka's
    baseline.
    """
    if nodes > 1 or (reason := librdkafka.missing()):
        print(f"librdkafka by the consumer protocol is left out: {reason if nodes == 1 else 'for one node'}")
        return []
    librdkafka.build()
    allowed = librdkafka.read_allow_list(HERE / "librdkafka_consumer_allow.txt")
    cases = [case for case in allowed if not names or case.number in names]
    with serving(nodes, logs, "consumer") as bootstrap:
        return [report(librdkafka.run(case, Server(bootstrap), logs, "consumer")) for case in cases]


def run_group_logs(logs: Path, names: list[str], nodes: int) -> list[Outcome]:
    """Let Apache Kafka and a node go on with the groups of each other's `__consumer_offsets`."""
    if nodes > 1 or (reason := apache_kafka.missing()):
        print(f"the handover of groups is left out: {reason if nodes == 1 else 'for one node'}")
        return []
    begin = time.monotonic()
    result, why = "PASS", ""
    try:
        group_logs.hand_over()
    except (AssertionError, OSError, apache_kafka.OracleUnavailable) as error:
        result, why = "FAIL", str(error)[:200]
    return [report(Outcome("group-logs", result, time.monotonic() - begin, why))]


def run_random_groups(logs: Path, names: list[str], nodes: int) -> list[Outcome]:
    """Compare the answers to 2,000 random sequences of each kind of group (or the named number and kinds) with those of Apache
    Kafka.
    """
    if nodes > 1 or (reason := apache_kafka.missing()):
        print(f"random sequences of groups are left out: {reason if nodes == 1 else 'for one node'}")
        return []

    def show(difference: Difference) -> None:
        print(*difference.lines(), sep="\n", flush=True)

    found = []
    count = next((int(name) for name in names if name.isdigit()), random_groups.SEQUENCES)
    for kind in sorted(GENERATORS.keys() & set(names)) or GENERATORS:
        begin = time.monotonic()
        differing = sum(random_groups.compared(kind, show, count))
        why = f"{differing} of {count} differ" if differing else ""
        found.append(report(Outcome(f"groups-{kind}", "FAIL" if why else "PASS", time.monotonic() - begin, why)))
    return found


def run_client_lines(logs: Path, names: list[str], nodes: int) -> list[Outcome]:
    """Compare the lines that stock clients print beside a node with those beside Apache Kafka; the names are those of clients."""
    if nodes > 1 or (reason := apache_kafka.missing()):
        print(f"the comparison of clients' lines is left out: {reason if nodes == 1 else 'for one node'}")
        return []
    found = []
    clients = [each for each in client_lines.CLIENTS if not names or each in names]
    beside_kafka = {day.client: day for day in client_lines.at_apache_kafka(clients)}
    for day in client_lines.at_ottla(clients):
        lines = client_lines.unexpected(day, beside_kafka[day.client].shapes)
        for line in lines:
            print(line)
        why = f"{len(lines)} lines" if lines else "" if day.returncode == 0 else f"exit code {day.returncode}"
        found.append(report(Outcome(f"client-lines-{day.client}", "FAIL" if why else "PASS", day.seconds, why)))
    return found


def run_authorization(logs: Path, names: list[str], nodes: int) -> list[Outcome]:
    """Compare the permissions of principals with those at Apache Kafka, request by request; a name is a seed."""
    if nodes > 1 or (reason := apache_kafka.missing()):
        print(f"the comparison of authorization is left out: {reason if nodes == 1 else 'for one node'}")
        return []
    begin = time.monotonic()
    (logs / "authorization").mkdir()
    made = authorization.compare(logs / "authorization", int(names[0]) if names else 1, WORLDS)
    for difference in made.differences:
        print(difference)
    print(f"# {made.summary}")
    result = "FAIL" if made.differences else "PASS"
    return [report(Outcome("authorization", result, time.monotonic() - begin, f"{len(made.differences)} differences"))]


def run_versions(logs: Path, names: list[str], nodes: int) -> list[Outcome]:
    """Compare emulated releases with the live brokers, and run clients in Go at them; the names are releases, such as 2.8."""
    if nodes > 1:
        print("emulated releases are left out: for one node")
        return []
    found = []
    if reason := go_clients.missing():
        print(f"clients in Go at emulated releases are left out: {reason}")
    else:
        found += go_clients.outcomes(names, report)
    if reason := apache_kafka.missing():
        print(f"the comparison of versions is left out: {reason}")
    else:
        found += versions.outcomes(names, report)
    return found


def run_versions_clients(logs: Path, names: list[str], nodes: int) -> list[Outcome]:
    """Clients' own suites at emulated releases; the names are releases, clients, and numbers of librdkafka's tests."""
    if nodes > 1:
        print("suites at emulated releases are left out: for one node")
        return []
    return emulated_clients.outcomes(names, logs, report)


def run_images(logs: Path, names: list[str], nodes: int) -> list[Outcome]:
    """Compare the images of 5,000 random metadata logs (or the named number) with those of Apache Kafka's own classes."""
    if nodes > 1 or (reason := apache_kafka.missing()):
        print(f"the comparison of metadata images is left out: {reason if nodes == 1 else 'it needs no node'}")
        return []
    begin, result, why = time.monotonic(), "PASS", ""
    try:
        images.compare(int(names[0]) if names else images.LOGS)
    except AssertionError as error:
        result, why = "FAIL", "\n".join([str(error), *getattr(error, "__notes__", [])])
    return [report(Outcome("images", result, time.monotonic() - begin, why))]


def run_mixed(logs: Path, names: list[str], nodes: int) -> list[Outcome]:
    """Run nodes of Apache Kafka and of Ottla in one cluster (mixed/steps.py); the names are those of steps."""
    if nodes > 1 or (reason := apache_kafka.missing()):
        print(f"mixed clusters are left out: {reason if nodes == 1 else 'they bring their own nodes'}")
        return []
    steps = {name: step for name, step in STEPS.items() if name in names} or dict(STEPS)
    for name in steps.keys() & NEEDS.keys():
        if reason := NEEDS[name]():
            print(f"mixed-{name} is left out: {reason}")
            del steps[name]
    return _steps(logs, [], "mixed", steps)


def _steps(logs: Path, names: list[str], suite: str, steps: Mapping[str, Callable[[Path], None]]) -> list[Outcome]:
    """Take the named steps of a suite, or all, one after the other."""
    found = []
    for name in [name for name in steps if name in names] or steps:
        begin, result, why = time.monotonic(), "PASS", ""
        try:
            steps[name](logs / f"{suite}-{name}")
        except (AssertionError, Failed, NotSo, OSError, KafkaException) as error:
            result, why = "FAIL", f"{type(error).__name__}: {error}"
        found.append(report(Outcome(f"{suite}-{name}", result, time.monotonic() - begin, why)))
    return found


def run_mirror(logs: Path, names: list[str], nodes: int) -> list[Outcome]:
    """Run `ottla mirror` between Apache Kafka and a node, beside MirrorMaker (mirror.py); the names are those of steps."""
    if nodes > 1 or (reason := apache_kafka.missing()):
        print(f"mirrors are left out: {reason if nodes == 1 else 'for one node'}")
        return []
    return _steps(logs, names, "mirror", mirror.STEPS)


def run_tools(logs: Path, names: list[str], nodes: int) -> list[Outcome]:
    """Play the recorded sessions at a node with Kafka's own tools and with Ottla's; the names are those of sessions."""
    if nodes > 1 or (reason := apache_kafka.missing()):
        print(f"Kafka's tools are left out: {reason if nodes == 1 else 'for one node'}")
        return []
    return [report(outcome) for outcome in tools.outcomes(names)]


def run_command_line(logs: Path, names: list[str], nodes: int) -> list[Outcome]:
    """Run the tests of `ottla`'s commands at one node of Apache Kafka, and at three; the names are `one` and `three`."""
    if nodes > 1 or (reason := apache_kafka.missing()):
        print(f"the command line is left out: {reason if nodes == 1 else 'it brings its own nodes'}")
        return []
    return [report(outcome) for outcome in command_line.outcomes(names, logs)]


def run_upgrade(logs: Path, names: list[str], nodes: int) -> list[Outcome]:
    """Let the wheel of this tree go on with what an older one has written; a name that is no step is a commit."""
    commit = next((name for name in names if name not in upgrade.STEPS), upgrade.COMMIT)
    if nodes > 1 or (reason := upgrade.missing(commit)):
        print(f"the upgrade is left out: {reason if nodes == 1 else 'it brings its own nodes'}")
        return []
    return [report(outcome) for outcome in upgrade.outcomes(commit, names, logs)]


def run_cut_off(logs: Path, names: list[str], nodes: int) -> list[Outcome]:
    """Cut a leader off while clients still reach it, at Ottla and at Apache Kafka; the names are what it loses."""
    reason = apache_kafka.missing() or (None if network.available() else network.SKIP_REASON)
    if nodes > 1 or reason:
        print(f"cut-off leaders are left out: {reason or 'they bring their own nodes'}")
        return []
    return cut_off.outcomes(logs / "cut-off", names, report)


def run_workflows(logs: Path, names: list[str], nodes: int) -> list[Outcome]:
    """Run the commands of a forge's workflows that can be run here; the names are beginnings, such as `release-build`."""
    if nodes > 1 or (reason := workflows.missing()):
        print(f"the workflows are left out: {reason if nodes == 1 else 'they need no node'}")
        return []
    return [report(outcome) for outcome in workflows.outcomes(names, logs)]


def run_compose(logs: Path, names: list[str], nodes: int) -> list[Outcome]:
    """The compose files of docker/, each with the images that it builds; the names: nodes, roles, tls, sasl, ui, spark."""
    if nodes > 1 or (reason := composed.missing()):
        print(f"the compose files are left out: {reason if nodes == 1 else 'they bring their own nodes'}")
        return []
    return _steps(logs, names, "compose", composed.STEPS)


def run_deb(logs: Path, names: list[str], nodes: int) -> list[Outcome]:
    """Build the Debian package, then install, upgrade and remove it in a copy of this machine that is thrown away."""
    if nodes > 1 or (reason := debian.missing()):
        print(f"the Debian package is left out: {reason if nodes == 1 else 'it brings its own node'}")
        return []
    return list(debian.outcomes(logs, report))


def run_ecosystem(logs: Path, names: list[str], nodes: int) -> list[Outcome]:
    """Run programs of third-party clients; a client that cannot be installed is left out. RECORD=1 keeps the results for the
    page.
    """
    if nodes > 1:
        print("the ecosystem is left out: for one node")
        return []
    found: list[Outcome] = []
    results: dict[str, Result] = {}
    with serving(nodes, logs, "ecosystem", **ecosystem.NODE) as bootstrap:
        for outcome, result in ecosystem.outcomes(names, bootstrap, logs):
            report(outcome)
            if result is not None:
                found.append(outcome)
                results[outcome.name] = result
    if os.environ.get("RECORD"):
        write_results(results)
    return found


def run_registry(logs: Path, names: list[str], nodes: int) -> list[Outcome]:
    """Run Java's clients of a schema registry at `ottla registry`."""
    if nodes > 1 or (reason := apache_kafka.missing()):
        print(f"Java's clients of the registry are left out: {reason if nodes == 1 else 'for one node'}")
        return []
    with serving(nodes, logs, "registry") as bootstrap:
        return java.outcomes(bootstrap, report)


def run_traffic(logs: Path, names: list[str], nodes: int) -> list[Outcome]:
    """Replay a recording of kafka-python's suite, or of its tests with these names, to a node and to Apache Kafka."""
    if nodes > 1 or (reason := apache_kafka.missing()):
        print(f"recorded traffic is left out: {reason if nodes == 1 else 'for one node'}")
        return []
    folder = logs / "traffic"
    folder.mkdir()
    return traffic.outcomes(names, folder, report)


def run_faults(logs: Path, names: list[str], nodes: int) -> list[Outcome]:
    """Run the examples of the control port in other languages, at `ottla dev --faults`."""
    if nodes > 1:
        print("the examples of faults are left out: they bring their own node")
        return []
    folder = logs / "faults"
    folder.mkdir()
    return faults.outcomes(folder, report)


def run_spark(logs: Path, names: list[str], nodes: int) -> list[Outcome]:
    """Run the connector for Spark by spark-submit, at a node and at Apache Kafka, by each login and with newer pyspark; and the
    pipeline with Delta, and topics that are tables. The names: submitted, logins, newer, delta, tables.
    """
    reason = why_not() or apache_kafka.missing()
    if nodes > 1 or reason:
        print(f"the connector for Spark is left out: {reason or 'for one node'}")
        return []
    found = []
    if not names or "submitted" in names:
        with serving(nodes, logs, "spark") as bootstrap:
            found += submitted.outcomes(logs / "submitted-node", bootstrap, report, "node")
        with apache_kafka.ApacheKafka(free_base_port()) as kafka:
            found += submitted.outcomes(logs / "submitted-apache-kafka", kafka.bootstrap, report, "apache-kafka")
    if not names or "logins" in names:
        strict = {"allow.everyone.if.no.acl.found": "false"}
        with secured_node(free_base_port(), logs, "spark-logins", apache_kafka=True, **strict) as node:
            found += connector.by_each_login(node, logs, report, " at Apache Kafka")
    if not names or "newer" in names:
        with serving(nodes, logs, "newer-spark") as bootstrap:
            found += newer.outcomes(logs / "newer", bootstrap, report)
    if reason := table_catalog.missing():
        print(f"PySpark by ottla table serve is left out: {reason}")
    elif not names or "tables" in names:
        found += table_catalog.outcomes(logs / "tables", report)
    if reason := delta_tables.missing():
        print(reason)
    elif not names or "delta" in names:
        with serving(nodes, logs, "delta") as bootstrap:
            found += delta_tables.outcomes(logs / "delta", bootstrap, report)
    return found


def run_readers(logs: Path, names: list[str], nodes: int) -> list[Outcome]:
    """Compare the rows of topics' tables that each engine reads; the names: python, spark."""
    return _lakehouse(logs, names, nodes, "readers", "matrix")


def run_iceberg_rest(logs: Path, names: list[str], nodes: int) -> list[Outcome]:
    """Put topics' tables into Apache Iceberg's own REST catalog; the names are those of steps."""
    return _lakehouse(logs, names, nodes, "iceberg-rest", "rest_catalog")


def _lakehouse(logs: Path, names: list[str], nodes: int, suite: str, module: str) -> list[Outcome]:
    reason = lakehouse.missing()
    if nodes > 1 or reason:
        print(f"{suite} is left out: {reason or 'it needs one node at most'}")
        return []
    return _steps(logs, names, suite, import_module(f"tests.compat.lakehouse.{module}").STEPS)


def _by_scenario(cases: list[Case], logs: Path, nodes: int) -> Iterable[Outcome]:
    for scenario, properties in librdkafka.SCENARIOS.items():
        chosen = [case for case in cases if case.scenario == scenario]
        if chosen:
            with serving(nodes, logs, scenario, **properties) as bootstrap:
                for case in chosen:
                    yield report(librdkafka.run(case, Server(bootstrap), logs))


def run_kafka_python(logs: Path, names: list[str], nodes: int) -> list[Outcome]:
    """Run the whole suite; tests that are not in the allow-list are shown but do not count."""
    kafka_python.build()
    allowed = {line.partition("#")[0].strip() for line in (HERE / "kafka_python_allow.txt").read_text().splitlines()}
    if nodes > 1:
        allowed -= FOR_ONE_NODE
    with serving(nodes, logs, "kafka-python") as bootstrap:
        outcomes = [report(outcome) for outcome in kafka_python.run(bootstrap, logs, " or ".join(names))]
    return [outcome for outcome in outcomes if outcome.name in allowed]


def run_librdkafka_secured(logs: Path, names: list[str], node: SecuredNode) -> list[Outcome]:
    """Run each allowed test in each of its variants; names are those of tests, of variants, or both."""
    if reason := librdkafka.missing():
        print(f"librdkafka is left out: {reason}")
        return []
    librdkafka.build()
    cases = list(librdkafka.read_allow_list(HERE / "librdkafka_secured_allow.txt"))
    numbers = {name for name in names if name[:4].isdigit()}
    found = []
    for variant in sorted(librdkafka_secured.VARIANTS.keys() & set(names)) or librdkafka_secured.VARIANTS:
        server = librdkafka_secured.server(node, variant)
        (logs / variant).mkdir(exist_ok=True)
        for case in cases:
            if (not case.variants or variant in case.variants) and (not numbers or case.number in numbers):
                done = librdkafka.run(case, server, logs / variant)
                found.append(report(replace(done, name=f"{variant}/{done.name}")))
    return found


def run_kafka_python_secured(logs: Path, names: list[str], node: SecuredNode) -> list[Outcome]:
    kafka_python.build()
    ports = {protocol: node.listener_port(name) for name, (protocol, _) in LISTENERS.items()}
    return [report(outcome) for outcome in kafka_python.run_secured(ports, node.files.ca, logs)]


def run_logins(logs: Path, names: list[str], node: SecuredNode) -> list[Outcome]:
    """Run each client with each login; the names are those of clients: python, java, spark, connector."""
    found = []
    logins.allow_user(node)
    if reason := kdc.missing():
        print(f"GSSAPI is left out: {reason}")
    for client, work, missing in (
        ("python", lambda: logins.in_python_all(node, report), lambda: None),
        ("java", lambda: logins.in_java_all(node, logs, report), apache_kafka.missing),
        ("spark", lambda: logins.in_spark(node, logs, report), why_not),
        ("connector", lambda: connector.by_each_login(node, logs, report), why_not),
    ):
        if names and client not in names:
            continue
        if reason := missing():
            print(f"{client} is left out: {reason}")
        else:
            found += work()
    return found


SUITES = {
    "librdkafka": run_librdkafka,
    "librdkafka-consumer": run_librdkafka_consumer,
    "group-logs": run_group_logs,
    "groups-random": run_random_groups,
    "authorization": run_authorization,
    "client-lines": run_client_lines,
    "images": run_images,
    "versions": run_versions,
    "versions-clients": run_versions_clients,
    "mixed": run_mixed,
    "mirror": run_mirror,
    "tools": run_tools,
    "command-line": run_command_line,
    "cut-off": run_cut_off,
    "upgrade": run_upgrade,
    "workflows": run_workflows,
    "deb": run_deb,
    "compose": run_compose,
    "ecosystem": run_ecosystem,
    "registry": run_registry,
    "spark": run_spark,
    "readers": run_readers,
    "iceberg-rest": run_iceberg_rest,
    "faults": run_faults,
    "traffic": run_traffic,
    "kafka-python": run_kafka_python,
}
#: The suites that run at nodes with a listener for each security protocol.
SECURED_SUITES = {
    "librdkafka-secured": run_librdkafka_secured,
    "kafka-python-secured": run_kafka_python_secured,
    "logins": run_logins,
}


def run_secured(suite: str, names: list[str], logs: Path, with_apache_kafka: bool) -> list[Outcome]:
    outcomes = []
    logs.mkdir()
    print(f"# secured, logs in {logs}", flush=True)
    for name, run in SECURED_SUITES.items():
        if suite in (name, "all"):
            if (
                name == "librdkafka-secured" and not with_apache_kafka
            ):  # some tests of the suite make topics of three replicas
                server = secured_cluster(PORT, logs, name, 3)
            else:
                strict = {"allow.everyone.if.no.acl.found": "false"} if name == "logins" else {}
                server = secured_node(PORT, logs, name, apache_kafka=with_apache_kafka, **strict)
            with server as node:
                outcomes += run(logs, names, node)
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.compat", description=__doc__)
    parser.add_argument("suite", nargs="?", choices=[*SUITES, *SECURED_SUITES, "all"], default="all")
    parser.add_argument("names", nargs="*", help="only these tests")
    parser.add_argument("--nodes", type=int, choices=ALLOWED, help="only against so many (default: one, then three)")
    parser.add_argument("--apache-kafka", action="store_true", help="the secured suites against Apache Kafka instead")
    args = parser.parse_args()
    top = Path(tempfile.mkdtemp(prefix="ottla-compat-logs-"))
    outcomes: list[Outcome] = []
    if args.suite in ("all", *SECURED_SUITES):
        outcomes += run_secured(args.suite, args.names, top / "secured", args.apache_kafka)
    plain = args.suite in ("all", *SUITES) and not args.apache_kafka
    for nodes in ([args.nodes] if args.nodes else ALLOWED) if plain else ():
        logs = top / f"nodes-{nodes}"
        logs.mkdir()
        print(f"# nodes: {nodes}, logs in {logs}", flush=True)
        for name, run in SUITES.items():
            if args.suite in (name, "all"):
                outcomes += run(logs, args.names, nodes)
    bad = [outcome.name for outcome in outcomes if outcome.result != "PASS"]
    print(f"# {len(outcomes) - len(bad)} passed, {len(bad)} failed")
    if bad:
        print(f"# not passing although allowed: {' '.join(bad)}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
