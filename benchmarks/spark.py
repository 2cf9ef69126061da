"""`python -m benchmarks.spark`: Spark's batch read of the same records from Ottla and from Apache Kafka in turns, and the cost
of its ListOffsets.

The stock reader asks ListOffsets twice after every poll (of 500 records unless kafka.max.poll.records says otherwise). How
often is read from our metrics; what one costs each server is measured by asking for nothing else. CPU seconds are the
server's own; rows a second depend on Spark, which does most of the work and shares the machine with the server.
"""

from __future__ import annotations

import argparse
import json
import re
import socket
import statistics
import struct
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import loads
from benchmarks.usage import cpu_seconds
from ottla.pipeline import config as configuration
from ottla.pipeline import session
from tools.apache_kafka import ApacheKafka
from tools.apache_kafka import missing as kafka_missing

PARTITIONS, SIZE = 4, 200
#: Kafka's default of kafka.max.poll.records, and a value that spreads the cost.
POLLS = (500, 5000)
ASKED = 20_000


@dataclass
class Server:
    name: str
    bootstrap: str
    pids: list[int]
    admin: str = ""  # the address of Ottla's metrics
    rows: dict[int, list[dict[str, float]]] = field(default_factory=dict)


def requests(server: Server) -> dict[str, float]:
    """Return the number of answered requests by API, from Ottla's metrics."""
    with urllib.request.urlopen(f"http://{server.admin}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found = re.findall(r'^kafka_network_requestmetrics_requests_total\{request="(\w+)"\} (\S+)', text, re.MULTILINE)
    return {name: float(count) for name, count in found}


def read_all(spark: Any, server: Server, poll: int, count: int) -> dict[str, float]:
    """Read everything in one batch; the aggregate makes Spark look at each value."""
    before, used = requests(server) if server.admin else {}, cpu_seconds(server.pids)
    begin = time.perf_counter()
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", server.bootstrap).option("subscribe", "spark")
    frame = reader.option("kafka.max.poll.records", poll).load()
    row = frame.selectExpr("count(*) AS n", "sum(length(value)) AS size").collect()[0]
    took = time.perf_counter() - begin
    assert (row.n, row.size) == (count, count * SIZE), f"{server.name} gave {row}"
    found = {"rows_per_s": count / took, "cpu_s": cpu_seconds(server.pids) - used}
    if server.admin:
        after = requests(server)
        found |= {name: after[name] - before.get(name, 0) for name in ("ListOffsets", "Fetch")}
    return found


def list_offsets_us(server: Server) -> float:
    """Return the server's CPU for one ListOffsets of one partition (version 7, the latest offset), sent one by one on a
    connection.
    """
    host, port = server.bootstrap.split(",")[0].rsplit(":", 1)
    name = b"spark"
    topic = bytes([len(name) + 1]) + name + b"\x02" + struct.pack(">iiq", 0, -1, -1) + b"\0\0"
    body = struct.pack(">ib", -1, 0) + b"\x02" + topic + b"\0"
    frame = struct.pack(">hhih", 2, 7, 1, 5) + b"bench" + b"\0" + body
    frame = struct.pack(">i", len(frame)) + frame
    with socket.create_connection((host, int(port))) as conn:
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        used = 0.0
        for asked in (ASKED // 4, ASKED):  # the first part warms up
            used = cpu_seconds(server.pids)
            for _ in range(asked):
                conn.sendall(frame)
                reply = conn.recv(4096)
            error, _, offset = struct.unpack_from(">hqq", reply, 4 + 4 + 1 + 4 + 2 + len(name) + 1 + 4)
            assert error == 0 and offset > 0, (error, offset)
    return (cpu_seconds(server.pids) - used) / ASKED * 1e6


def table(servers: list[Server], cost_us: dict[str, float]) -> list[str]:
    lines = [
        "| batch read | server | rows/s | server CPU s | ListOffsets | CPU us each | their share of server CPU |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for poll in POLLS:
        asked = 0.0
        for server in servers:
            medians = {key: statistics.median(r[key] for r in server.rows[poll]) for key in server.rows[poll][0]}
            # The same Spark sends the same requests to both; only Ottla reports their number.
            asked = medians.get("ListOffsets", asked)
            share = asked * cost_us[server.name] / 1e6 / medians["cpu_s"]
            lines.append(
                f"| max.poll.records {poll} | {server.name} | {medians['rows_per_s']:,.0f} | {medians['cpu_s']:.2f} | "
                f"{asked:,.0f} | {cost_us[server.name]:.1f} | {share:.0%} |"
            )
        if len(servers) == 2:
            ours, theirs = (
                {key: statistics.median(r[key] for r in s.rows[poll]) for key in ("rows_per_s", "cpu_s")}
                for s in servers
            )
            speed, cpu = ours["rows_per_s"] / theirs["rows_per_s"], ours["cpu_s"] / theirs["cpu_s"]
            missed = "" if speed >= 1 else ", MISSED"
            lines.append(f"| | ratio | {speed:.2f}x (goal >= 1.0x{missed}) | {cpu:.2f}x | | | |")
    return lines


def run(servers: list[Server], count: int, runs: int) -> list[str]:
    for server in servers:
        shape = {"bootstrap": server.bootstrap, "topic": "spark", "partitions": PARTITIONS, "size": SIZE}
        loads.create(shape)
        made = loads.produce({**shape, "count": count})
        assert not made["errors"], made
        print(f"  {server.name}: {count:,} records of {SIZE} B at {made['records_per_s']:,.0f}/s", file=sys.stderr)
    cost_us = {server.name: list_offsets_us(server) for server in servers}
    spark = session.start(configuration.load(None, ("spark.driver_memory=2g", "pipeline.output=.bench/spark")))
    try:
        for round_ in range(runs + 1):  # round 0 warms Spark and both servers up and is not counted
            for poll in POLLS:
                for server in servers:
                    found = read_all(spark, server, poll, count)
                    if round_:
                        server.rows.setdefault(poll, []).append(found)
                    figures = "  ".join(f"{name}={value:,.2f}" for name, value in found.items())
                    print(f"  [{round_}] poll {poll} | {server.name}: {figures}", file=sys.stderr, flush=True)
    finally:
        spark.stop()
    return table(servers, cost_us)


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.spark", description=__doc__)
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--no-kafka", action="store_true")
    parser.add_argument("--base-port", type=int, default=31600)
    parser.add_argument("--out", type=Path, default=Path(".bench/spark.md"))
    args = parser.parse_args()
    problem = session.missing()
    if problem:
        print(f"Spark is left out: {problem}", file=sys.stderr)
        return 0
    reason = "left out by --no-kafka" if args.no_kafka else kafka_missing()
    if reason:
        print(f"Apache Kafka is left out: {reason}", file=sys.stderr)
    dev = [sys.executable, "-m", "ottla", "dev", "--nodes", "1", "--base-port", "0", "--json"]
    with subprocess.Popen(dev, stdout=subprocess.PIPE, text=True) as process:
        kafka = ApacheKafka(args.base_port)
        try:
            assert process.stdout is not None
            started = json.loads(process.stdout.readline())
            (node,) = started["nodes"]
            servers = [Server("Ottla", started["bootstrap"], [node["pid"]], f"127.0.0.1:{node['admin']}")]
            if reason is None:
                kafka.start()
                servers.append(Server("Kafka 4.3.1", kafka.bootstrap, kafka.pids))
            text = "\n".join(run(servers, args.records, args.runs))
        finally:
            kafka.stop()
            process.terminate()
    print(text)
    args.out.parent.mkdir(exist_ok=True)
    args.out.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
