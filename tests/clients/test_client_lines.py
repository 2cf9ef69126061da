"""Stock Python clients print nothing beside a node that they do not print beside Apache Kafka. `make compat ARGS=client-lines` has Java's, and a restart."""

from __future__ import annotations

import pytest

from tests.compat import client_lines


@pytest.mark.compat
def test_clients_print_only_what_they_print_beside_apache_kafka(bootstrap: str) -> None:
    """Before the fix each client of librdkafka printed a line about telemetry, which no subscription asks for."""
    for day in client_lines.days(client_lines.PYTHON_CLIENTS, bootstrap, restart=lambda: None):
        assert day.returncode == 0, day.lines[-20:]
        assert client_lines.unexpected(day) == []
