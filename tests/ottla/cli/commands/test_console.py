"""`ottla console` and `ottla dev --console`, run as processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import httpx
import pytest

from ottla.__main__ import main
from ottla.cli.errors import FAILED, USAGE
from tests.ottla.conftest import ROOT, Cli, command


def test_a_cluster_with_a_console_serves_pages_and_both_end_together(tmp_path: Path) -> None:
    arguments = command("dev", "--nodes", "1", "--base-port", "0", "--dir", str(tmp_path), "--json", "--console")
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd=ROOT) as dev:
        assert dev.stdout is not None
        url = json.loads(dev.stdout.readline())["console"]
        assert httpx.get(f"{url}healthz", timeout=30).text == "ok\n"
        page = httpx.get(url, timeout=30).text
        assert "read-only" in page and "Ottla console" in page
        dev.send_signal(signal.SIGINT)
        assert dev.wait(60) == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(url)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("--listen", "0.0.0.0:0"), USAGE, "there is no login"),
        (("--admin", "kafka:9644"), USAGE, "is not ID@HOST:PORT"),
        (("--cert", "x.pem"), USAGE, "belong together"),
        (("--listen", "127.0.0.1:65536"), USAGE, "is not from 0 to 65535"),
        (("--registry", "localhost"), USAGE, "is no URL"),
        (("--registry-config", "login"), USAGE, "--registry-config needs --registry"),
        (("--registry", "http://localhost", "--registry-config", "/no"), USAGE, "--registry-config: "),
        (("-b", ":::"), USAGE, "is not HOST:PORT"),
        (("--login-file", "/nowhere/users"), USAGE, "cannot be read"),
        (("--admin-port", "x"), USAGE, "is no port"),
        (("--clusters", "west"), USAGE, "there is no context 'west'"),
        (("--clusters", "a/b", "--clusters", "c"), USAGE, "cannot stand in a link"),
    ],
)
def test_wrong_options_say_what_to_write(
    arguments: tuple[str, ...], code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["console", *arguments]) == code
    assert text in capsys.readouterr().err


def test_clusters_of_contexts_have_a_switch_and_changes_have_names_in_the_log(cli: Cli, tmp_path: Path) -> None:
    topic, users = cli.topic(), tmp_path / "users"
    users.write_text("otto:operator:o\nada:administrator:a\n")
    contexts = {name: {"bootstrap": cli.bootstrap} for name in ("west", "east")}
    (tmp_path / "ottla").mkdir()
    (tmp_path / "ottla" / "contexts.json").write_text(json.dumps({"current": None, "contexts": contexts}))
    arguments = (
        "--clusters",
        "west",
        "--clusters",
        "east",
        "--listen",
        "127.0.0.1:0",
        "--allow-changes",
        "--login-file",
        str(users),
    )
    with subprocess.Popen(
        command("console", *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ | {"XDG_CONFIG_HOME": str(tmp_path)},
    ) as console:
        assert console.stdout is not None
        url = console.stdout.readline().strip()
        with httpx.Client(base_url=url, timeout=60, follow_redirects=True) as client:
            assert client.get("/").status_code == 401
            begin = client.get("/", auth=("otto", "o"))
            assert begin.url.path == "/c/west/" and 'href="/c/east/"' in begin.text
            page = f"/c/east/topics/{topic}/produce"
            for auth in (("otto", "o"), ("ada", "a")):
                token = client.get(page, auth=auth).text.partition('name="csrf" value="')[2].partition('"')[0]
                fields = {"csrf": token, "key_as": "text", "value_as": "text", "value": auth[0]}
                written = client.post(page, auth=auth, data=fields)
                assert written.status_code == 200 and auth[0] in written.text, written.text
        console.send_signal(signal.SIGINT)
        _, log = console.communicate(timeout=60)
    for offset, who in enumerate(("otto (operator)", "ada (administrator)")):
        assert f"ottla console: {who}: the record is in partition 0 at offset {offset}\n" in log


@pytest.mark.ours
def test_the_listeners_of_a_local_cluster_need_not_be_named(cli: Cli) -> None:
    topic, environment = cli.topic(), os.environ | {"XDG_STATE_HOME": cli.state}
    arguments = command("console", "-b", cli.bootstrap, "--listen", "localhost:0")
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment) as console:
        assert console.stdout is not None
        url = console.stdout.readline().strip()
        with httpx.Client(base_url=url, timeout=60) as client:
            story = client.get(f"/topics/{topic}/story").text
            assert f"Leader {topic}-0 starts at leader epoch 0" in story
            assert "Delay of the event loop" in client.get("/").text
        console.send_signal(signal.SIGINT)
        assert console.wait(60) == 0


def test_a_port_that_is_in_use_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["console", "-b", "127.0.0.1:1", "--listen", f"127.0.0.1:{port}"]) == FAILED
    assert f"cannot listen at 127.0.0.1:{port}" in capsys.readouterr().err
