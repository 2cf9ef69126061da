"""Runs Apache Kafka's command-line tools and our own small Java programs on its jars."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

from tools.apache_kafka.jars import CACHE, HERE, VERSION, classpath, shell_classpath

# The names of the distribution's scripts (without .sh) and the classes behind them.
TOOLS = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-share-consumer": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-jmx": "org.apache.kafka.tools.JmxTool",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-metadata-shell": "org.apache.kafka.shell.MetadataShell",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-replica-verification": "org.apache.kafka.tools.ReplicaVerificationTool",
    "kafka-server-start": "kafka.Kafka",
    "kafka-share-consumer-perf-test": "org.apache.kafka.tools.ShareConsumerPerformance",
    "kafka-share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-streams-application-reset": "org.apache.kafka.tools.StreamsResetter",
    "kafka-streams-groups": "org.apache.kafka.tools.streams.StreamsGroupCommand",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
    "kafka-verifiable-share-consumer": "org.apache.kafka.tools.VerifiableShareConsumer",
}


#: Options of programs that run for seconds beside others.
SMALL_JVM = "-Xmx512M -XX:+UseSerialGC"
#: The options that kafka-server-start.sh and kafka-run-class.sh give to a server.
START_SCRIPT_JVM = (
    "-server -Xms1G -Xmx1G -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35"
    " -XX:+ExplicitGCInvokesConcurrent -XX:MaxInlineLevel=15 -Djava.awt.headless=true"
)


def java_command(
    main_class: str,
    *args: str,
    extra_classpath: str = "",
    jvm: str = SMALL_JVM,
    quick: bool = True,
    version: str = VERSION,
) -> list[str]:
    """The command line for one class of the jars of a release; `quick` starts short programs faster (C1 compiler only)."""
    path = f"{extra_classpath}:{classpath(version)}" if extra_classpath else classpath(version)
    tier = ["-XX:TieredStopAtLevel=1"] if quick else []
    log = f"-Dlog4j2.configurationFile={HERE / 'log4j2.xml'}"
    return ["java", *jvm.split(), *tier, log, "-cp", path, main_class, *args]


def run_tool(
    name: str, *args: str, stdin: str | None = None, timeout_s: float = 60, version: str = VERSION
) -> subprocess.CompletedProcess[str]:
    """Runs a tool by its script name (`kafka-topics`) and returns its output; the exit code is the caller's to judge."""
    jars = shell_classpath() if name == "kafka-metadata-shell" else ""
    return subprocess.run(
        java_command(TOOLS[name], *args, extra_classpath=jars, version=version),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )


def run_java(source: Path, *args: str, timeout_s: float = 120) -> str:
    """Compiles one Java file against the jars (cached by its content) and returns what it prints.

    Raises:
        subprocess.CalledProcessError: it did not compile, or ended with an error.
    """
    command = java_command(source.stem, *args, extra_classpath=str(compiled(source)))
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=timeout_s).stdout


def compiled(source: Path, more_jars: str = "", version: str = VERSION) -> Path:
    """The folder with the classes of one Java file, compiled against the jars of a release."""
    digest = hashlib.sha256(source.read_bytes() + version.encode()).hexdigest()[:16]
    classes = CACHE / "java" / f"{source.stem}-{digest}"
    if not (classes / f"{source.stem}.class").exists():
        classes.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            ["javac", "-nowarn", "-cp", f"{classpath(version)}:{more_jars}", "-d", str(classes), str(source)],
            check=True,
            capture_output=True,
            text=True,
        )
    return classes
