"""Tables that several files of tests read, written once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pytest

#: The credentials that the S3 server accepts.
S3_KEYS = {"access_key_id": "ak", "secret_access_key": "sk", "region": "us-east-1"}
BUCKET = "lake"


class LosingAnswers:
    """WSGI: while it is on, the first attempt of each conditional put takes effect, but its response has status 500."""

    def __init__(self, application: Callable[..., Any]) -> None:
        self._application = application
        self.is_on = False
        self.lost = 0
        self._seen: set[str] = set()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        name = environ["PATH_INFO"]
        is_conditional = environ["REQUEST_METHOD"] == "PUT" and "HTTP_IF_NONE_MATCH" in environ
        if not (self.is_on and is_conditional and name not in self._seen):
            return self._application(environ, start_response)
        self._seen.add(name)
        self.lost += 1
        for _ in self._application(environ, lambda *_: lambda data: None):
            pass  # its effect
        start_response("500 Internal Server Error", [("Content-Length", "0")])
        return [b""]


class Moods:
    """WSGI: a server that hangs, or rejects all requests, while a test wants it. A request that hung takes effect late."""

    def __init__(self, application: Callable[..., Any]) -> None:
        self._application = application
        self._answers = threading.Event()
        self._answers.set()
        self._refuses = False
        #: moto checks whether there is an object and then writes it: on a busy machine two writers found none, and both wrote
        #: it.
        self._one_at_a_time = threading.Lock()

    @contextmanager
    def hanging(self) -> Iterator[None]:
        self._answers.clear()
        try:
            yield
        finally:
            self._answers.set()

    @contextmanager
    def refusing(self) -> Iterator[None]:
        self._refuses = True
        try:
            yield
        finally:
            self._refuses = False

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        self._answers.wait()
        if self._refuses:
            body = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
            start_response("403 Forbidden", [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
            return [body]
        with self._one_at_a_time if "HTTP_IF_NONE_MATCH" in environ else nullcontext():
            return self._application(environ, start_response)


class S3Server(NamedTuple):
    options: dict[str, str]
    losing: LosingAnswers
    moods: Moods


@pytest.fixture(scope="package")
def s3_server() -> Iterator[S3Server]:
    import boto3
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # no line for each request
    losing = LosingAnswers(DomainDispatcherApplication(create_backend_app))
    moods = Moods(losing)
    server = make_server("127.0.0.1", 0, moods, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    client = boto3.client(
        "s3", endpoint_url=address, aws_access_key_id="ak", aws_secret_access_key="sk", region_name="us-east-1"
    )
    client.create_bucket(Bucket=BUCKET)
    yield S3Server({**S3_KEYS, "endpoint": address}, losing, moods)
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="package")
def s3(s3_server: S3Server) -> str:
    """The address of an S3 server with the bucket `lake`."""
    return s3_server.options["endpoint"]


@pytest.fixture
def lossy_s3(s3_server: S3Server) -> Iterator[S3Server]:
    """The same server, which can lose responses."""
    s3_server.losing.is_on, s3_server.losing.lost = False, 0
    yield s3_server
    s3_server.losing.is_on = False


@pytest.fixture(scope="package")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the topics `orders` (Iceberg), `click-stream.v1` (Delta) and `raw` (Parquet): three values each, and one rejected."""
    from tests.ottla.tables.lakes import Lake

    made = Lake(str(tmp_path_factory.mktemp("lake")))
    for topic, format_ in (("orders", "iceberg"), ("click-stream.v1", "delta"), ("raw", "parquet")):
        made.add(topic, [b"a", b"b"], format_)
        made.add(topic, [b"c", b"\xff"], format_)
    (Path(made.location) / "ottla" / 'or"ders; drop').mkdir()
    return Path(made.location)
