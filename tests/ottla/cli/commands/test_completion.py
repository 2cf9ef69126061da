"""The completion of command lines: commands, options and their values, and names of the cluster."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from ottla.cli import completed_names
from ottla.cli.app import App
from ottla.cli.command_table import COMMANDS
from ottla.cli.commands.completion import SCRIPTS, candidates
from ottla.cli.completed_names import LISTED, OPTION_VALUES, PLACES, WITHOUT_CLUSTER
from ottla.cli.errors import OK, USAGE
from tests.needs import skip_because
from tests.ottla.cli.commands.conftest import Run
from tests.ottla.conftest import Cli

#: A busy machine may need longer than the second after which the completion offers nothing.
PATIENCE_S = 60.0
#: The command `ottla` with this time limit.
PATIENT = f"import sys; from ottla.cli import completed_names; completed_names.TIMEOUT_S = {PATIENCE_S}; from ottla.__main__ import main; sys.exit(main())"


@pytest.fixture(autouse=True)
def bootstrap(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(completed_names, "TIMEOUT_S", PATIENCE_S)
    monkeypatch.setenv("OTTLA_BOOTSTRAP", cli.bootstrap)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


@pytest.fixture(scope="module")
def topic(cli: Cli) -> Iterator[str]:
    """Yield a topic of two partitions. A group and a user have the same name."""
    name = cli.topic(partitions=2)
    cli.ok("group", "reset", name, "--topic", name, "--to", "earliest")
    cli.ok("user", "create", name, "--generate")
    yield name
    cli.ok("user", "delete", name, "--yes")


def test_words_are_completed_with_commands_options_and_names_of_the_cluster(here: Run, topic: str) -> None:
    assert candidates(["con"]) == ["config", "console", "consume", "container", "context"]
    assert candidates(["topic", "de"]) == ["delete", "delete-records", "describe"]
    assert "--partitions" in candidates(["topic", "create", "x", "--p"])
    assert candidates(["topic", "describe", topic]) == [topic]
    assert candidates(["consume", topic[:-1]]) != []
    assert candidates(["topic", "describe", "-b", "localhost:1", "cli-"]) == []
    assert candidates(["nothing", "x"]) == []
    assert candidates(["produce", "-"]) != []
    shown = here("complete", "--", "topic", "describe", topic)
    assert (shown.code, shown.out, shown.err) == (OK, f"{topic}\n", "")


@pytest.mark.parametrize(
    "words",
    [
        "topic copy NAME N", "topic diff NAME N", "doctor --topic N", "perf latency N", "move run --even N", "move plan N", "partition elect N",
        "registry --topic N", "registry --group N", "group lag N", "user passwd N", "token create --owner N", "token list --owner N",
        "token create --renewer N", "quota set user N", "acl add N", "acl list --user N", "acl why a read topic:N", "acl remove a read group:N",
        "acl list user:N", "config get topic N", "config diff group NAME N", "consume NAME --group N", "move cancel NAME N",
    ],
)  # fmt: skip
def test_a_name_of_the_cluster_is_offered_where_the_command_takes_it(topic: str, words: str) -> None:
    *before, last = words.replace("NAME", topic).split()
    prefix = last.removesuffix("N")
    assert candidates([*before, prefix + topic[:-1]]).count(prefix + topic) == 1


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("broker remove ", ["1"]), ("broker log-dirs 1 ", ["1"]), ("broker remove 1 ", []), ("move run --drain ", ["1"]),
        ("move plan NAME --among ", ["1"]), ("move plan NAME --among 1,", []), ("move run NAME --to ", ["1"]),
        ("move run NAME:", ["NAME:0", "NAME:1"]), ("cluster may-stop ", ["1"]), ("top --output ", ["json", "table", "yaml"]),
        ("console --listen ", []), ("top --admin-port ", []), ("topic describe NAME ", []), ("topic list -o j", ["json"]),
        ("topic copy NAME a --compression z", ["zstd"]), ("registry --compatibility full", ["full", "full_transitive"]),
        ("user passwd NAME --mechanism ", ["SCRAM-SHA-256", "SCRAM-SHA-512"]), ("completion ", ["bash", "fish", "zsh"]),
        ("config get ", ["broker", "client-metrics", "group", "topic"]), ("config get broker ", ["1"]),
        ("config get topic NAME retention.b", ["retention.bytes"]), ("config set topic NAME retention.b", ["retention.bytes="]),
        ("config unset topic NAME min.i", ["min.insync.replicas"]), ("feature upgrade group.v", ["group.version="]),
        ("quota set user a producer", ["producer_byte_rate="]), ("quota unset user a producer", ["producer_byte_rate"]),
        ("acl add a des", ["describe", "describe-configs", "describe-tokens"]), ("acl add a read clu", ["cluster"]),
        ("acl add a read to", ["topic:"]), ("top --admin-p", ["--admin-port"]), ("doctor --read", ["--read-only"]),
        ("token ", ["create", "expire", "list", "renew"]), ("token renew ", []), ("context delete ", []), ("start ", []),
    ],
)  # fmt: skip
def test_what_else_can_stand_there(topic: str, words: str, expected: list[str]) -> None:
    assert candidates(words.replace("NAME", topic).split(" ")) == [each.replace("NAME", topic) for each in expected]


def test_contexts_and_transactions_are_names_too(cli: Cli, here: Run) -> None:
    from confluent_kafka import Producer

    assert here("context", "set", "prod", "-b", cli.bootstrap).code == OK
    assert candidates(["context", "use", ""]) == candidates(["top", "--context", ""]) == ["prod"]
    producer = Producer({"bootstrap.servers": cli.bootstrap, "transactional.id": "completed"})
    producer.init_transactions(30)
    assert candidates(["txn", "describe", "compl"]) == ["completed"]


def test_a_name_that_would_steer_a_terminal_is_not_offered(cli: Cli, topic: str) -> None:
    cli.ok("group", "reset", "evil\x1b[2J", "--topic", topic, "--to", "earliest")
    assert candidates(["group", "describe", "evil"]) == []


def test_each_place_is_one_of_a_command_and_each_kind_has_names() -> None:
    for command, verb in PLACES:
        app = import_module(COMMANDS[command].module).app
        assert isinstance(app, App)
        assert (app.default_command is not None) if verb is None else verb in app.verbs
    kinds = {kind for places in PLACES.values() for kind in places} | set(OPTION_VALUES.values())
    assert kinds - {""} == LISTED.keys() | WITHOUT_CLUSTER.keys()


def test_bash_completes_names_with_its_own_word_breaks_and_quotes_them(cli: Cli, topic: str) -> None:
    cli.ok("group", "reset", "a b;*", "--topic", topic, "--to", "earliest")
    lines = [f"ottla acl add a read topic:{topic[:-1]}", "ottla group lag a"]
    calls = "".join(
        f"COMP_LINE='{line}' COMP_POINT={len(line)}; _ottla; printf '%s|' \"${{COMPREPLY[@]}}\"; echo\n"
        for line in lines
    )
    script = f"ottla() {{ '{sys.executable}' -c '{PATIENT}' \"$@\"; }}\n{SCRIPTS['bash']}\n{calls}"
    done = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, text=True, env=os.environ)
    assert (done.returncode, done.stderr) == (0, "")
    resources, groups = (line.split("|") for line in done.stdout.splitlines())
    assert topic in resources and "a\\ b\\;\\*" in groups


def test_fish_completes_verbs_and_names(topic: str) -> None:
    skip_because(None if shutil.which("fish") else "fish is not installed")
    asked = f'complete -C "ottla topic cre"; complete -C "ottla topic describe {topic[:-1]}"'
    script = f"function ottla; '{sys.executable}' -c '{PATIENT}' $argv; end\n{SCRIPTS['fish']}\n{asked}"
    done = subprocess.run(["fish", "--no-config", "-c", script], capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0 and {"create", topic} <= set(done.stdout.splitlines()), done.stderr


def test_each_shell_has_a_script(here: Run) -> None:
    for shell in ("bash", "zsh", "fish"):
        assert "ottla complete --" in here("completion", shell).out
    assert here("completion", "tcsh").code == USAGE
