"""Commands in variables, and mounted scripts: other images run them before the node starts."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable

from ottla.container.bitnami import ALIASES, PREFIX
from ottla.container.settings import ContainerError, Environment

#: Variables of bitnami's images that hold a command. Its output becomes the value of the other variable.
COMMANDS = {
    "KAFKA_NODE_ID_COMMAND": "KAFKA_CFG_NODE_ID",
    "KAFKA_CONTROLLER_QUORUM_VOTERS_COMMAND": "KAFKA_CFG_CONTROLLER_QUORUM_VOTERS",
    "KAFKA_BROKER_ID_COMMAND": "KAFKA_CFG_BROKER_ID",
}
#: Variables of wurstmeister's image that hold a command. The output replaces _{HOSTNAME_COMMAND} in others; or it becomes the
#: other variable's value if that is not set.
PLACEHOLDERS = {
    "HOSTNAME_COMMAND": "KAFKA_ADVERTISED_HOST_NAME",
    "PORT_COMMAND": "KAFKA_ADVERTISED_PORT",
    "BROKER_ID_COMMAND": "KAFKA_BROKER_ID",
}
SCRIPTS = "/docker-entrypoint-initdb.d"
#: The mark that the scripts have run is on the volume, because they run at the volume's first start only.
DONE = "/bitnami/kafka/.user_scripts_initialized"
COMMAND_S_MAX = 60


def with_commands_run(environment: Environment) -> dict[str, str]:
    """Return the environment with the output of commands as values.

    Raises:
        ContainerError: a command fails, or prints nothing.
    """
    found = dict(environment)
    for variable, target in COMMANDS.items():
        if not (command := environment.get(variable, "").strip()):
            continue
        value = _output(command, variable, found)
        for alias, name in ALIASES.items():
            if PREFIX + name == target:
                found.pop(alias, None)
        found[target] = value
    return found


def with_placeholders_filled(environment: Environment) -> dict[str, str]:
    """Return the environment with the output of wurstmeister's commands. A command is run only if its output is needed.

    Raises:
        ContainerError: a command fails, or prints nothing.
    """
    found = dict(environment)
    for variable, target in PLACEHOLDERS.items():
        mark = f"_{{{variable}}}"
        uses = [name for name, value in found.items() if name.startswith("KAFKA_") and mark in value]
        given = target in found or (target != "KAFKA_BROKER_ID" and "KAFKA_ADVERTISED_LISTENERS" in found)
        if not (command := environment.get(variable, "").strip()) or (given and not uses):
            continue
        value = _output(command, variable, found)
        found |= {name: found[name].replace(mark, value) for name in uses} if uses else {target: value}
    return found


def run_scripts(root: str, environment: Environment, say: Callable[[str], None]) -> None:
    """Run every *.sh in the order of names, before the volume's first start only.

    Raises:
        ContainerError: a script fails.
    """
    folder = root + SCRIPTS
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    if not names or os.path.exists(root + DONE):
        return
    for name in names:
        if not name.endswith(".sh"):
            say(f"===> Note: {SCRIPTS}/{name} is not run: only *.sh is")
            continue
        say(f"===> Running {SCRIPTS}/{name}")
        path = os.path.join(folder, name)
        # Their image sources a script that is not executable. The result is the same: there, too, its variables do not reach
        # the node.
        _run([path] if os.access(path, os.X_OK) else ["bash", path], f"{SCRIPTS}/{name}", environment, capture=False)
    os.makedirs(os.path.dirname(root + DONE), exist_ok=True)
    with open(root + DONE, "w", encoding="ascii"):
        pass


def _output(command: str, variable: str, environment: Environment) -> str:
    value = _run(["bash", "-c", command], variable, environment, capture=True).strip()
    if not value:
        raise ContainerError(f"`{command}` prints nothing", variable, "let it print the value, or take it out")
    return value


def _run(words: list[str], where: str, environment: Environment, *, capture: bool) -> str:
    seconds = COMMAND_S_MAX if capture else None
    try:
        done = subprocess.run(
            words, env=dict(environment), stdout=subprocess.PIPE if capture else None, text=True, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        raise ContainerError(f"`{words[-1]}` does not end", where, f"it has {COMMAND_S_MAX} s") from None
    except OSError as failure:
        raise ContainerError(f"cannot run {words[0]}: {failure.strerror}", where, "begin it with #!/bin/bash") from None
    if done.returncode:
        raise ContainerError(f"`{words[-1]}` ended with {done.returncode}", where, "mend it, or take it out")
    return done.stdout or ""
