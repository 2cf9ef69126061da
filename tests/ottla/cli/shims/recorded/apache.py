"""The recorded side: Apache Kafka's tools at a node of Apache Kafka 4.3.1, or at any other server."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tests.ottla.cli.shims.recorded import (
    SESSIONS,
    Run,
    Said,
    first_lines,
    node_properties,
    play,
    read_session,
    write_session,
)
from tests.ports import free_base_port
from tools.apache_kafka import TOOLS, ApacheKafka, ToolSession, java_command, run_tool

#: These tools finish their work in a shutdown hook, count in static fields or end the JVM, so each run has a JVM of its own.
OWN_JVM = {
    "kafka-cluster",
    "kafka-console-consumer",
    "kafka-console-producer",
    "kafka-console-share-consumer",
    "kafka-features",
    "kafka-metadata-quorum",
    "kafka-metadata-shell",
    "kafka-transactions",
    "kafka-producer-perf-test",
    "kafka-consumer-perf-test",
    "kafka-e2e-latency",
    "kafka-verifiable-producer",
    "kafka-verifiable-consumer",
    "kafka-verifiable-share-consumer",
    "kafka-share-consumer-perf-test",
    "kafka-replica-verification",
}


@contextmanager
def apache_tools() -> Iterator[Run]:
    """Yield a function that runs Apache Kafka's tools, as many as possible in one JVM."""
    with ToolSession() as session:

        def run(tool: str, arguments: list[str], stdin: str) -> Said:
            done: subprocess.CompletedProcess[str]
            if tool == "first":
                return first_lines(int(arguments[0]), java_command(TOOLS[arguments[1]], *arguments[2:]))
            if tool in OWN_JVM:
                done = run_tool(tool, *arguments, stdin=stdin)
            else:
                done = session.run(tool, *arguments, stdin=stdin)
            return Said(done.returncode, done.stdout, done.stderr)

        yield run


@contextmanager
def recording(with_node: bool = True) -> Iterator[tuple[Run, str]]:
    """Yield such a function, and the address of a fresh node of Apache Kafka if the sessions need one."""
    with ExitStack() as stack:
        server = "no-node:1"
        if with_node:
            port = free_base_port()
            node = ApacheKafka(base_port=port, properties=node_properties(port))
            server = stack.enter_context(node).bootstrap
        yield stack.enter_context(apache_tools()), server


def main(names: list[str]) -> None:
    sessions = {path: read_session(path) for path in SESSIONS if not names or path.stem in names}
    needs_node = any("SERVER" in step.command for steps in sessions.values() for step in steps)
    with recording(needs_node) as (run, server):
        for path, steps in sessions.items():
            for step, lines in play(steps, run, server):
                step.lines = lines
            write_session(path, steps)


if __name__ == "__main__":
    main(sys.argv[1:])
