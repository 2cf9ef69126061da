"""The command `ottla-pipeline`: it runs the stages, makes events, checks the results, and shows them.

`spark-submit pipeline/main.py run all` does the same.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # spark-submit puts this file's folder first on the path, not the folder that contains the package `ottla`.
    sys.path[0] = next(str(at) for at in Path(__file__).resolve().parents if (at / "ottla/pipeline").is_dir())

from ottla.pipeline import config as configuration
from ottla.pipeline.config import Config
from ottla.pipeline.errors import PipelineError
from ottla.server.installation import install


def main(argv: list[str] | None = None) -> None:
    args = parser().parse_args(argv)
    try:
        overrides = [f"{name}={value}" for name, value in shortcuts(args) if value] + args.overrides
        config, properties = configuration.files(args.config, os.environ)
        sys.exit(args.action(configuration.load(config, tuple(overrides), properties), args))
    except PipelineError as error:
        print(f"ottla-pipeline: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # `ottla-pipeline config | head`
        sys.stderr.close()
        sys.exit(0)
    except ModuleNotFoundError as error:
        print(
            f"ottla-pipeline: the Python package {error.name} is missing; install it: {install('pipeline')}",
            file=sys.stderr,
        )
        sys.exit(1)


def shortcuts(args: argparse.Namespace) -> list[tuple[str, str | None]]:
    """Return the settings that have their own options, because they are often given."""
    return [
        ("kafka.bootstrap_servers", args.bootstrap),
        ("source.connector", getattr(args, "source", None)),
        ("pipeline.output", args.output),
        ("spark.master", getattr(args, "master", None)),
    ]


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="ottla-pipeline", description="A PySpark pipeline on Spark's stock Kafka source."
    )
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, action: Callable[[Config, argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        found = commands.add_parser(name, help=text, description=text)
        found.set_defaults(action=action)
        found.add_argument("--config", **configuration.FILES)
        found.add_argument("--bootstrap", metavar="HOST:PORT", help="kafka.bootstrap_servers")
        found.add_argument("--output", metavar="DIR", help="pipeline.output")
        found.add_argument(
            "--set",
            metavar="SECTION.NAME=VALUE",
            action="append",
            default=[],
            dest="overrides",
            help="any other setting",
        )
        return found

    stages = command("run", run, "Run stages until Ctrl-C.")
    stages.add_argument("stage", choices=("bronze", "silver", "gold", "all"))
    stages.add_argument("--once", action="store_true", help="process what is there, then end")
    stages.add_argument("--master", metavar="URL", help="spark.master: an existing cluster")
    stages.add_argument(
        "--source", choices=configuration.CONNECTORS, help="source.connector: what events are read with"
    )
    history = command("backfill", backfill, "Run all stages as one batch over a range of offsets or times.")
    history.add_argument(
        "--from", metavar="PLACE", dest="start", default="earliest", help="earliest, JSON offsets, epoch ms or ISO time"
    )
    history.add_argument(
        "--to", metavar="PLACE", dest="end", default="latest", help="latest, JSON offsets, epoch ms or ISO time"
    )
    history.add_argument("--master", metavar="URL", help="spark.master: an existing cluster")
    history.add_argument("--source", choices=configuration.CONNECTORS, help="source.connector")
    events = command("generate", generate, "Send clickstream-like events and write down what was sent.")
    events.add_argument("--rate", type=int, default=1000, metavar="N", help="events a second (default 1000)")
    events.add_argument("--seconds", type=float, default=10, metavar="S", help="for so long (default 10)")
    for name, text in (("bad", "spoilt, for the dead letters"), ("duplicates", "sent again"), ("late", "out of order")):
        events.add_argument(f"--{name}", type=float, default=0, metavar="PERCENT", help=text)
    events.add_argument("--truth", metavar="FILE", help="appended to (default <output>/truth.jsonl)")
    events.add_argument("--seed", type=int, default=1)
    check = command("verify", verify, "Compare every stage with the truth file.")
    check.add_argument("--truth", metavar="FILE", help="default <output>/truth.jsonl")
    command("report", report, "Draw charts and an HTML page of the results.")
    command("config", show_config, "Print every setting, its meaning and its value.")
    return top


def run(config: Config, args: argparse.Namespace) -> int:
    from ottla.pipeline import broker_table, bronze, gold, session, silver
    from ottla.pipeline import run as stages

    if args.once:
        config = configuration.changed(config, "pipeline", "trigger", "once", "--once")
    try:
        every = (bronze.STAGE, silver.STAGE, gold.STAGE)
        wanted = [stage for stage in every if args.stage in (stage.name, "all")]
        if broker_table.is_read(config):
            wanted = [stage for stage in wanted if stage is not bronze.STAGE]
        if not wanted:
            raise PipelineError("with source.connector = table brokers write bronze", remedy="run silver, gold or all")
        stages.run(config, wanted)
    finally:
        session.stop()
    return 0


def backfill(config: Config, args: argparse.Namespace) -> int:
    from ottla.pipeline import backfill as history

    print(json.dumps(history.run(history.ranged(config, args.start, args.end))))
    return 0


def generate(config: Config, args: argparse.Namespace) -> int:
    from ottla.pipeline import generate as generator

    late_by_ms = min(generator.LATE_BY_MS_MAX, config.pipeline.max_lateness_ms - config.pipeline.max_ahead_ms)
    mix = generator.Mix(args.bad, args.duplicates, args.late, late_by_ms)
    if (
        args.rate < 1
        or args.seconds <= 0
        or min(mix.bad, mix.duplicates, mix.late) < 0
        or mix.bad + mix.duplicates + mix.late > 100
    ):
        raise PipelineError(
            "rate and seconds must be more than 0, the percentages 0 to 100 together", remedy="correct them"
        )

    def show(found: dict[str, Any]) -> None:
        text = ", ".join(f"{name} {value}" for name, value in found.items())
        print(text if sys.stdout.isatty() else json.dumps(found), flush=True)

    counts = generator.run(
        config,
        rate=args.rate,
        seconds=args.seconds,
        mix=mix,
        truth_path=truth_path(config, args),
        seed=args.seed,
        show=show,
    )
    return 1 if counts["unacknowledged"] else 0


def verify(config: Config, args: argparse.Namespace) -> int:
    from ottla.pipeline import verify as verifier

    try:
        checks = verifier.verify(config, truth_path(config, args))
    except FileNotFoundError as error:
        raise PipelineError(
            f"{error.filename} is not there", remedy="ottla-pipeline generate writes it; give --truth"
        ) from None
    for check in checks:
        if sys.stdout.isatty():
            print(f"{'ok   ' if check.holds else 'WRONG'} {check.what}: expected {check.expected}, found {check.found}")
        else:
            print(json.dumps(check._asdict()))
    return 0 if all(check.holds for check in checks) else 1


def truth_path(config: Config, args: argparse.Namespace) -> str:
    return str(args.truth or config.path("truth.jsonl"))


def report(config: Config, args: argparse.Namespace) -> int:
    from ottla.pipeline.report import write

    print(write(config))
    return 0


def show_config(config: Config, args: argparse.Namespace) -> int:
    print("\n".join(configuration.documented(config)), flush=True)
    return 0


if __name__ == "__main__":
    main()
