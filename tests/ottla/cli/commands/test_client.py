"""`ottla client list` shows which clients push metrics."""

from __future__ import annotations

import pytest

from ottla.__main__ import main
from ottla.cli.commands.client import clients
from ottla.client.admin_listeners import samples_of

SCRAPE = """# TYPE kafka_client_a gauge
kafka_client_a{client_id="x",client_instance_id="i",client_software_name="java"} 1
kafka_client_a{client_id="x",client_instance_id="i",client_software_name="java",topic="t"} 2
kafka_client_a{client_id="a",client_instance_id="j",client_software_name="c"} 2
kafka_server_b{client_id="q"} 1
"""


def test_each_client_is_a_row_with_the_number_of_its_series() -> None:
    columns = ("broker", "client_id", "client_instance_id", "software", "series")
    assert [tuple(row[name] for name in columns) for row in clients("b:1", samples_of(SCRAPE))] == [
        ("b:1", "a", "j", "c", 1),
        ("b:1", "x", "i", "java", 2),
    ]


def test_a_broker_without_an_admin_listener_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["client", "list", "127.0.0.1:1"]) == 2
    assert "no answer of 127.0.0.1:1" in capsys.readouterr().err
