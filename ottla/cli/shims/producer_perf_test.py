"""kafka-producer-perf-test: how many records a second are acknowledged, and their latency.

The client is written in Python, and is slower than the broker.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from random import Random

from ottla.cli.load.measured import Measured, MeasuredRun, Taken
from ottla.cli.load.writing import Workload, produce
from ottla.cli.shims.exceptions import reason
from ottla.cli.shims.perf_texts import MIB
from ottla.cli.shims.tool import TreeParser, Unusable, client_properties, int64, with_cluster
from ottla.client.cluster import ClusterClient
from ottla.client.failures import Failure
from ottla.protocol.records.compression import CODEC_IDS
from ottla.protocol.records.record import NewRecord

REPORT_MS = 5000


WITHOUT_EFFECT = {"print-metrics": "The client has no metrics of Kafka's names."}


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    if options.producer_props:
        print(
            "Option --producer-props has been deprecated and will be removed in a future version. Use --command-property instead."
        )
    try:
        own = client_properties(options.command_config) | _pairs([*options.producer_props, *options.command_property])
        options.bootstrap_server = options.bootstrap_server or own.get("bootstrap.servers")
        if options.bootstrap_server is None:
            raise Unusable(
                "At least one of --bootstrap-server, --command-property, --producer-props or --command-config must be specified."
            )
        if options.transactional_id or options.transaction_duration_ms:
            raise Unusable("transactions are not supported by this stand-in of the tool")
        if options.warmup_records >= options.num_records:
            fewer = "strictly fewer than the number of records in the test, --num-records."
            raise Unusable(f"The value for --warmup-records must be {fewer}")
        payload = _payload(options)
        codec = own.get("compression.type", "none")
        if codec not in CODEC_IDS:
            raise Unusable(f"Unknown compression name: {codec}")
        options.client_properties = {
            name: value for name, value in own.items() if name.startswith(("security.", "ssl.", "sasl."))
        }
        return with_cluster(options, lambda cluster: _run(cluster, options, payload, CODEC_IDS[codec]), limited=False)
    except Unusable as wrong:
        print(wrong, file=sys.stderr)
    except Failure as failure:
        print(reason(failure), file=sys.stderr)
    return 1


def _parser() -> TreeParser:
    parser = TreeParser("kafka-producer-perf-test", "This tool is used to verify the producer performance.")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--num-records", type=int64, required=True)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--record-size", type=int64)
    what.add_argument("--payload-file")
    what.add_argument("--payload-monotonic", action="store_true")
    parser.add_argument("--payload-delimiter", default="\\n")
    parser.add_argument("--throughput", type=float, required=True)
    parser.add_argument("--bootstrap-server")
    parser.add_argument("--producer-props", nargs="+", action="extend", default=[])
    parser.add_argument("--command-property", nargs="+", action="extend", default=[])
    parser.add_argument("--producer.config", "--command-config", dest="command_config")
    parser.add_argument("--print-metrics", action="store_true")
    parser.add_argument("--transactional-id")
    parser.add_argument("--transaction-duration-ms", type=int64)
    parser.add_argument("--warmup-records", type=int64, default=0)
    parser.add_argument("--reporting-interval", type=int64, default=REPORT_MS)
    return parser


def _pairs(texts: list[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise Unusable(f"Invalid property: {text}")
        found[name] = value
    return found


def _payload(options: argparse.Namespace) -> Callable[[Random, int], bytes]:
    """Return the function that makes the value of a record from its number."""
    if options.record_size is not None:
        if options.record_size <= 0:
            raise Unusable("--record-size should be greater than zero.")
        return lambda rng, number: bytes(rng.choices(range(65, 91), k=options.record_size))
    if options.payload_monotonic:
        return lambda rng, number: str(number).encode()
    try:
        with open(options.payload_file, "rb") as file:
            rows = file.read().split(options.payload_delimiter.replace("\\n", "\n").encode())
    except OSError as failure:
        raise Unusable(f"File {options.payload_file} cannot be read: {failure.strerror}") from None
    rows = [row for row in rows if row]
    if not rows:
        raise Unusable(f"File does not exist or empty file provided. {options.payload_file}")
    print(f"Reading payloads from: {options.payload_file}")
    print(f"Number of records read: {len(rows)}")
    return lambda rng, number: rng.choice(rows)


def rate(measured: Measured, now_ns: int, which: str = "") -> str:
    """Return a text with the count and the rates. `which` follows the count, such as " steady state"."""
    seconds, count = measured.seconds(now_ns), measured.records
    mib = measured.bytes / seconds / MIB
    return f"{count}{which} records sent, {count / seconds:.1f} records/sec ({mib:.2f} MB/sec)"


def window(measured: Measured, now_ns: int) -> str:
    """Return the line about an interval."""
    took = measured.durations
    return f"{rate(measured, now_ns)}, {took.mean_ms:.1f} ms avg latency, {took.max_ms:.1f} ms max latency."


def total(measured: Measured, now_ns: int, which: str = "") -> str:
    """Return the last line."""
    took = measured.durations
    shown = ", ".join(
        f"{int(took.percentile_ms(part))} ms {name}"
        for part, name in ((0.5, "50th"), (0.95, "95th"), (0.99, "99th"), (0.999, "99.9th"))
    )
    means = f"{took.mean_ms:.2f} ms avg latency, {took.max_ms:.2f} ms max latency"
    return f"{rate(measured, now_ns, which)}, {means}, {shown}."


async def _run(
    cluster: ClusterClient, options: argparse.Namespace, payload: Callable[[Random, int], bytes], codec: int
) -> int:
    clock, rng = cluster.world.clock, Random(0)
    run = MeasuredRun(clock.mono_ns(), options.reporting_interval)
    steady: MeasuredRun | None = None

    def make(number: int, wall_ms: int) -> NewRecord:
        nonlocal steady
        if 0 < options.warmup_records == number:
            steady = MeasuredRun(clock.mono_ns(), options.reporting_interval)
        return NewRecord(None, payload(rng, number), wall_ms)

    def seen(taken: Taken) -> None:
        run.add(taken)
        shown = run
        if steady is not None:
            if taken.number < options.warmup_records:
                return
            shown = steady
            steady.add(taken)
        if ended := shown.ended_window(taken.at_ns):
            if steady is not None and steady.every.records == ended.records:
                print("In steady state.")
            print(window(ended, taken.at_ns), flush=True)

    load = Workload(options.num_records, make, max(0.0, options.throughput), codec)
    run.every.begin_ns = await produce(cluster, options.topic, load, seen)
    now_ns = clock.mono_ns()
    print(total(run.every, now_ns))
    if steady is not None:
        print(total(steady.every, now_ns, " steady state"))
    return 0
