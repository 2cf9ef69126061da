"""`ottla table serve`: the reading half of Iceberg's REST catalog, used by the engines' own clients."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.needs import needs_packages, skip_because

needs_packages("pyarrow", "pyiceberg", "deltalake", "obstore", "starlette", "uvicorn")

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchTableError, UnauthorizedError

from ottla.registry.access import hashed
from ottla.tables import catalog_rest
from ottla.tables.catalog_server import CatalogSettings, http_server
from ottla.tables.store import StoreFailure
from ottla.tables.table_location import TableLocation
from tests.ottla.tables import readers
from tests.ottla.tables.lakes import Lake
from tests.ottla.web.servers import HOST, catalog_application, in_thread
from tools import duck

TABLES = ["orders", "orders__dlq"]


@pytest.fixture(scope="module")
def url(lake: Path) -> Iterator[str]:
    with in_thread(http_server(catalog_application(str(lake)), CatalogSettings(HOST, 0))) as port:
        yield f"http://{HOST}:{port}"


@pytest.fixture(scope="module")
def closed_url(lake: Path) -> Iterator[str]:
    users = {"ada": hashed("right"), "bob": "plain"}
    with in_thread(http_server(catalog_application(str(lake), users), CatalogSettings(HOST, 0))) as port:
        yield f"http://{HOST}:{port}"


def asked(url: str, method: str = "GET", body: bytes | None = None, **headers: str) -> tuple[int, Any, dict[str, str]]:
    kind = {"Content-Type": "application/json"} if body is not None else {}
    request = urllib.request.Request(url, body, kind | headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            data, status, head = answer.read(), answer.status, dict(answer.headers)
    except urllib.error.HTTPError as fault:
        data, status, head = fault.read(), fault.code, dict(fault.headers)
    return status, json.loads(data) if data else None, head


def duck_with_iceberg() -> Any:
    extensions = ("httpfs", "avro", "iceberg")
    skip_because(duck.missing(*extensions))
    return duck.connected(*extensions)


# -- Engines


def test_pyiceberg_lists_loads_and_reads(url: str) -> None:
    catalog = RestCatalog("lake", uri=url)
    assert catalog.list_namespaces() == [("ottla",)]
    assert catalog.list_tables("ottla") == [("ottla", name) for name in TABLES]
    assert catalog.namespace_exists("ottla") and not catalog.namespace_exists("other")
    assert catalog.table_exists("ottla.orders") and not catalog.table_exists("ottla.raw")
    rows = catalog.load_table("ottla.orders").scan().to_arrow().to_pylist()
    assert sorted(row["value"] for row in rows) == ["a", "b", "c"]
    with pytest.raises(NoSuchTableError):
        catalog.load_table("ottla.nothing")


def test_duckdb_attaches_the_catalog_and_reads(url: str) -> None:
    database = duck_with_iceberg()
    database.execute(f"ATTACH '' AS lake (TYPE ICEBERG, ENDPOINT '{url}', AUTHORIZATION_TYPE 'none')")
    assert database.sql("select count(*), max(value) from lake.ottla.orders").fetchall() == [(3, "c")]
    assert database.sql("select reason from lake.ottla.orders__dlq").fetchone() is not None
    assert database.sql("select table_name from duckdb_tables() where database_name = 'lake'").fetchall()
    with pytest.raises(Exception, match=r"406|NotAcceptable|not support|Unsupported"):
        database.sql("create table lake.ottla.mine (x int)")


def test_polars_reads_by_pyiceberg(url: str) -> None:
    skip_because(readers.missing("iceberg", "polars"))
    import polars

    table = RestCatalog("lake", uri=url).load_table("ottla.orders")
    assert sorted(polars.scan_iceberg(table).collect()["value"]) == ["a", "b", "c"]


def test_a_commit_is_seen_by_the_next_query(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path))
    lake.add("orders", [b"a"])
    with in_thread(http_server(catalog_application(str(tmp_path)), CatalogSettings(HOST, 0))) as port:
        table = RestCatalog("lake", uri=f"http://{HOST}:{port}").load_table("ottla.orders")
        assert len(table.scan().to_arrow()) == 1
        lake.add("orders", [b"b", b"c"])
        assert len(table.refresh().scan().to_arrow()) == 3


# -- The API


def test_what_it_serves_is_said_and_nothing_else_is_served(url: str) -> None:
    status, found, _ = asked(f"{url}/v1/config?warehouse=lake")
    assert status == 200 and found["overrides"] == {} and len(found["endpoints"]) == 6
    for endpoint in found["endpoints"]:
        method, _, path = endpoint.partition(" ")
        path = path.replace("/{prefix}", "").format(namespace="ottla", table="orders")
        assert asked(url + path, method)[0] in (200, 204)
    for path in (
        "/",
        "/v1",
        "/v1/views",
        "/v1/namespaces/ottla/views",
        "/v1/%ff",
        "/v1/namespaces/ottla/tables/orders/x",
    ):
        status, found, _ = asked(url + path)
        assert (status, found["error"]["code"]) == (404, 404), path


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/namespaces"),
        ("DELETE", "/v1/namespaces/ottla"),
        ("POST", "/v1/namespaces/ottla/tables"),
        ("POST", "/v1/namespaces/ottla/tables/orders"),
        ("DELETE", "/v1/namespaces/ottla/tables/orders"),
        ("POST", "/v1/tables/rename"),
        ("POST", "/v1/transactions/commit"),
        ("PUT", "/v1/config"),
    ],
)
def test_a_change_is_refused_as_the_specification_says(url: str, lake: Path, method: str, path: str) -> None:
    before = sorted(lake.rglob("*"))
    status, found, _ = asked(url + path, method, b"{}")
    assert status == 406
    assert found["error"]["type"] == "UnsupportedOperationException" and found["error"]["code"] == 406
    assert sorted(lake.rglob("*")) == before


@pytest.mark.parametrize(
    "name", ["..", "%2e%2e", "orders%2f..", "a%00b", "%1f", "x" * 300, "raw", "or%22ders; drop".replace(" ", "%20")]
)
def test_a_name_that_is_no_table_is_not_found(url: str, name: str) -> None:
    status, found, _ = asked(f"{url}/v1/namespaces/ottla/tables/{name}")
    assert status == 404 and found["error"]["type"] in ("NoSuchTableException", "NoSuchPathException")
    assert asked(f"{url}/v1/namespaces/ottla/tables/{name}", "HEAD")[0] == 404


def test_a_table_of_another_namespace_is_a_table_that_is_not_there(url: str) -> None:
    """Spark looks for `lake.ottla.orders.snapshots` in this way, and continues only after this exception."""
    for namespace in ("ottla%1Forders", "other"):
        status, found, _ = asked(f"{url}/v1/namespaces/{namespace}/tables/snapshots")
        assert status == 404 and found["error"]["type"] == "NoSuchTableException"
        assert asked(f"{url}/v1/namespaces/{namespace}")[1]["error"]["type"] == "NoSuchNamespaceException"


def test_metadata_that_a_client_has_is_not_sent_again(url: str) -> None:
    table = f"{url}/v1/namespaces/ottla/tables/orders"
    status, found, head = asked(table)
    assert status == 200 and found["metadata-location"].endswith("/ottla/orders/metadata/v3.metadata.json")
    assert len(found["metadata"]["snapshots"]) == 2
    assert asked(table, **{"If-None-Match": head["etag"]})[0] == 304
    status, found, _ = asked(f"{table}?snapshots=refs")
    assert [each["snapshot-id"] for each in found["metadata"]["snapshots"]] == [
        found["metadata"]["current-snapshot-id"]
    ]


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b"[" * 100_000, b"\xff", b'{"refs": 7}', b'{"refs": {"main": 1}}'], ids=range(7)
)
def test_metadata_that_is_none_is_an_error_and_the_next_request_is_served(tmp_path: Path, body: bytes) -> None:
    file = tmp_path / "ottla" / "orders" / "metadata" / "v1.metadata.json"
    file.parent.mkdir(parents=True)
    file.write_bytes(body)
    with in_thread(http_server(catalog_application(str(tmp_path)), CatalogSettings(HOST, 0))) as port:
        url = f"http://{HOST}:{port}/v1/namespaces/ottla/tables"
        status, found, _ = asked(f"{url}/orders?snapshots=refs")
        assert status == 503 and found["error"]["type"] == "ServiceUnavailableException"
        assert asked(url)[1]["identifiers"] == [{"namespace": ["ottla"], "name": "orders"}]


def test_metadata_that_is_too_long_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(str(tmp_path))
    lake.add("orders", [b"a"])
    monkeypatch.setattr("ottla.tables.table_location.METADATA_BYTES_MAX", 100)
    with pytest.raises(StoreFailure, match="100 are read at most"):
        TableLocation(lake.open("orders", "iceberg", "string").store.__class__(str(tmp_path))).metadata("orders")


def test_a_store_that_hangs_holds_its_own_requests_alone(
    lake: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    import threading

    go_on = threading.Event()
    request.addfinalizer(go_on.set)
    monkeypatch.setattr(catalog_rest, "CALL_S_MAX", 0.2)
    monkeypatch.setattr(catalog_rest, "CALLS_MAX", 2)
    monkeypatch.setattr(TableLocation, "metadata_version", lambda *_: go_on.wait(20))
    with in_thread(http_server(catalog_application(str(lake)), CatalogSettings(HOST, 0))) as port:
        url = f"http://{HOST}:{port}/v1"
        for wanted in ("has not answered within", "has not answered within", "too many calls"):
            status, found, _ = asked(f"{url}/namespaces/ottla/tables/orders")
            assert status == 503 and wanted in found["error"]["message"]
        assert asked(f"{url}/config")[0] == 200
        go_on.set()


# -- Logins


def test_each_engine_has_a_way_to_log_in(closed_url: str) -> None:
    with pytest.raises(UnauthorizedError):
        RestCatalog("lake", uri=closed_url)
    credential = RestCatalog("lake", uri=closed_url, credential="ada:right")
    assert credential.list_tables("ottla") == [("ottla", name) for name in TABLES]
    basic = {"type": "basic", "basic": {"username": "bob", "password": "plain"}}
    assert RestCatalog("lake", uri=closed_url, auth=basic).table_exists("ottla.orders")
    database = duck_with_iceberg()
    database.execute(
        f"CREATE SECRET (TYPE ICEBERG, CLIENT_ID 'ada', CLIENT_SECRET 'right', OAUTH2_SERVER_URI '{closed_url}/v1/oauth/tokens')"
    )
    database.execute(f"ATTACH '' AS lake (TYPE ICEBERG, ENDPOINT '{closed_url}')")
    assert database.sql("select count(*) from lake.ottla.orders").fetchall() == [(3,)]


def test_a_wrong_login_is_refused_and_a_form_is_bounded(closed_url: str) -> None:
    status, found, head = asked(f"{closed_url}/v1/config")
    assert status == 401 and found["error"]["type"] == "NotAuthorizedException" and "www-authenticate" in head
    assert asked(f"{closed_url}/v1/config", Authorization="Bearer guess")[0] == 401
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    for body, wanted in (
        (b"client_id=ada&client_secret=wrong", 401),
        (b"", 401),
        (b"&".join([b"a=1"] * 50), 400),
        (b"\xff", 400),
        (b"client_secret=" + b"x" * 10_000, 413),
    ):
        assert asked(f"{closed_url}/v1/oauth/tokens", "POST", body, **form)[0] == wanted, body[:40]


def test_the_oldest_token_makes_room(closed_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_rest, "TOKENS_MAX", 2)
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    login = b"grant_type=client_credentials&client_id=ada&client_secret=right"
    tokens = [asked(f"{closed_url}/v1/oauth/tokens", "POST", login, **form)[1]["access_token"] for _ in range(3)]
    found = [asked(f"{closed_url}/v1/config", Authorization=f"Bearer {token}")[0] for token in tokens]
    assert found == [401, 200, 200]


# -- The command


def test_the_command_serves_until_it_is_stopped_and_imports_no_library_of_a_format(lake: Path) -> None:
    command = [
        sys.executable,
        "-X",
        "importtime",
        "-m",
        "ottla",
        "table",
        "serve",
        "--at",
        str(lake),
        "--listen",
        f"{HOST}:0",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ})
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith(f"tables of file://{lake} at http://{HOST}:"), line
        assert asked(f"{line.split()[-1]}/v1/namespaces/ottla/tables/orders")[0] == 200
    finally:
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=20)
    assert process.returncode == 0
    imported = {row.rpartition("|")[2].strip().partition(".")[0] for row in err.splitlines()}
    assert "starlette" in imported and not imported & {"pyarrow", "pyiceberg", "deltalake", "duckdb", "obstore"}
