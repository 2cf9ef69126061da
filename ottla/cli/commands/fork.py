"""The command `ottla fork`: a cluster of its own on the data of a snapshot, in the foreground as `ottla dev` runs it."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile

from ottla.cli.commands import dev
from ottla.local import nodes as local_nodes
from ottla.local.snapshots import layout
from ottla.local.snapshots.placing import place_fork
from ottla.local.snapshots.stored_objects import has_objects
from ottla.local.snapshots.taking import SECURE, cluster_at, make
from ottla.processes.command_parser import CommandParser
from ottla.processes.start import override

PROGRAM = "ottla fork"
BASE_PORT_DEFAULT = 19092
NOW = "now"


def parser() -> CommandParser:
    parser = CommandParser(
        PROGRAM,
        "Run a cluster of its own on the data of a snapshot, in the foreground. It has another cluster id.",
    )
    parser.add_argument(
        "snapshot", nargs="?", metavar="SNAPSHOT", help="Its name. [default: a new one of the cluster as it is now]"
    )
    parser.add_argument(
        "--dir", required=not os.environ.get("OTTLA_DIR"), default=os.environ.get("OTTLA_DIR"), metavar="D",
        help="The directory of the cluster that is forked, as of `ottla dev --dir`. [$OTTLA_DIR]",
    )  # fmt: skip
    parser.add_argument(
        "--into",
        metavar="D",
        help="Keep the fork here: `ottla dev --dir D` starts it again. [default: removed at the end]",
    )
    parser.add_argument(
        "--base-port", type=int, default=BASE_PORT_DEFAULT, metavar="P",
        help=f"Port of its first broker; controllers are 100 above, admin listeners 200. 0 takes free ones. [default: {BASE_PORT_DEFAULT}]",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="Print one line of JSON once a client can produce.")
    parser.add_argument(
        "--override", type=override, action="append", default=[], metavar="KEY=VALUE", help="A property for every node."
    )
    return parser


def main(argv: list[str] | None = None) -> int:
    given = parser().parse_args(argv)
    # Options that only `ottla dev` has keep their defaults.
    arguments = argparse.Namespace(**(vars(dev.parser().parse_args([])) | vars(given)))
    dev.check(arguments)
    common = dict(arguments.override)
    source = os.path.abspath(arguments.dir)
    if arguments.snapshot is not None:
        layout.check_name(arguments.snapshot)
        layout.read(layout.path_of(source, arguments.snapshot))
    kept = cluster_at(source)
    dev.check_ports(local_nodes.plan(kept.nodes, arguments.base_port, source))
    folder = os.path.join(source, layout.FOLDER)
    os.makedirs(folder, exist_ok=True)
    place = os.path.abspath(arguments.into) if arguments.into else tempfile.mkdtemp(prefix=".fork-", dir=folder)
    try:
        if arguments.snapshot is not None:
            place_fork(layout.path_of(source, arguments.snapshot), place)
        else:
            with tempfile.TemporaryDirectory(prefix=".now-", dir=folder) as temporary:
                taken = os.path.join(temporary, NOW)
                make(source, kept, NOW, taken + layout.PART, taken, durable=False)
                place_fork(taken, place)
        arguments.secure = os.path.isdir(os.path.join(place, SECURE))
        arguments.tiers = "" if has_objects(place) else None
        return dev.run(arguments, place, common)
    finally:
        if not arguments.into:
            shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
