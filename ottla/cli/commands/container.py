"""`ottla container`: the entry point of the image. Environment in, a running node out, or one line that says why not.

run         all of it; arguments VAR=value count as environment
configure   write the properties to a file, for images whose users put a step between this and the next
launch      start the node that was configured
"""

from __future__ import annotations

import argparse
import os
import sys

from ottla.cli.errors import FAILED

PROGRAM = "ottla container"
VARIABLES_OF_JVM = ("KAFKA_HEAP_OPTS", "KAFKA_JVM_PERFORMANCE_OPTS", "KAFKA_GC_LOG_OPTS", "KAFKA_JMX_OPTS")


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=PROGRAM, description="Entry point of the container image.")
    parser.add_argument("step", nargs="?", default="run", choices=("run", "configure", "launch"))
    parser.add_argument("variables", nargs="*", metavar="VAR=VALUE", help="as if it were set in the environment")
    parser.add_argument(
        "--dialect", choices=("apache", "confluent", "bitnami"), help="do not guess whose variables they are"
    )
    parser.add_argument("--properties", metavar="FILE", help="where `configure` writes to and `launch` reads from")
    parser.add_argument(
        "--root",
        default=os.environ.get("OTTLA_CONTAINER_ROOT", ""),
        metavar="DIR",
        help="look for all paths below this one",
    )
    parser.add_argument("--check", action="store_true", help="stop before the node would start")
    return parser


def main(argv: list[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    # Imported late, so that a wrong argument is answered at once.
    from ottla.container.settings import ContainerError

    try:
        properties, log_level = _prepare(arguments)
    except ContainerError as refusal:
        print(f"{PROGRAM}: {refusal}", file=sys.stderr)
        return FAILED
    if arguments.check or arguments.step == "configure":
        return 0
    if log_level:
        os.environ["OTTLA_LOG_LEVEL"] = log_level
    print("===> Launching", flush=True)
    from ottla.process import run

    return run(properties)


def _prepare(arguments: argparse.Namespace) -> tuple[dict[str, str], str | None]:
    from ottla.container import places
    from ottla.container.bitnami_steps import run_scripts
    from ottla.container.entry import configure, launch_properties

    environment = dict(os.environ)
    for variable in arguments.variables:
        name, equals, value = variable.partition("=")
        if not equals:
            raise SystemExit(f"{PROGRAM}: {variable!r} is not VAR=value")
        environment[name] = value
    path = arguments.properties or arguments.root + places.CONFIGURED
    if arguments.step == "launch":
        return launch_properties(path), environment.get("OTTLA_LOG_LEVEL")
    prepared = configure(environment, arguments.dialect, arguments.root, _say)
    if arguments.step == "configure":
        prepared.write(path)
    elif not arguments.check and prepared.scripts_environment is not None:
        run_scripts(arguments.root, prepared.scripts_environment, _say)
    return prepared.properties, prepared.log_level


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
