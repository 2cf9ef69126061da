"""Tables that several files of tests read, written once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

#: What the S3 server takes.
S3_KEYS = {"access_key_id": "ak", "secret_access_key": "sk", "region": "us-east-1"}


@pytest.fixture(scope="package")
def s3() -> Iterator[str]:
    """The address of an S3 server with the bucket `lake`."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    address = "http://{}:{}".format(*server.get_host_and_port())
    made = boto3.client(
        "s3", endpoint_url=address, aws_access_key_id="ak", aws_secret_access_key="sk", region_name="us-east-1"
    )
    made.create_bucket(Bucket="lake")
    yield address
    server.stop()


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
