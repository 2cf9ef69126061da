"""The certificate of a registry or console is renewed while it serves: a usable certificate is loaded, and until then the old
one stays.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path

import pytest
from cryptography import x509

from ottla.local.certificates import Authority
from ottla.web.certificate import REPEAT_S, RETRY_S, ServedCertificate
from tests.ottla.web.test_connections import serving

AUTHORITY = Authority.create("a")


def write(folder: Path, *, key_of_another: bool = False) -> tuple[str, str]:
    """Put a new certificate into place, and return the two files."""
    issued = AUTHORITY.issue("localhost", ["localhost"])
    other = AUTHORITY.issue("localhost") if key_of_another else issued
    certificate, key = folder / "cert.pem", folder / "key.pem"
    for path, text in ((certificate, issued.chain_pem), (key, other.key_pem)):
        new = path.with_suffix(".new")
        new.write_text(text)
        new.rename(path)
    return str(certificate), str(key)


def test_a_certificate_that_cannot_be_used_is_tried_again_until_it_can(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    served = ServedCertificate(*write(tmp_path))
    first = served.context
    write(tmp_path, key_of_another=True)
    served.look(100)
    assert served.context is first and caplog.text.count("stays as it is") == 1
    # A repair does not show in the files themselves, for example one of their folder's permissions.
    monkeypatch.setattr(served, "_files", lambda: served._states)
    served.look(100 + RETRY_S)
    write(tmp_path)
    served.look(101 + RETRY_S)
    assert served.context is first, "it is not time yet"
    served.look(100 + 2 * RETRY_S)
    assert served.context is not first and caplog.text.count("has been replaced") == 1
    assert caplog.text.count("stays as it is") == 1, "the same reason is logged once in ten minutes"


def test_the_reason_is_logged_again_while_it_lasts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    served = ServedCertificate(*write(tmp_path))
    (tmp_path / "key.pem").unlink()
    served.look(100)
    served.look(100 + REPEAT_S)
    assert caplog.text.count("stays as it is") == 2
    with pytest.raises(OSError):
        ServedCertificate(str(tmp_path / "cert.pem"), str(tmp_path / "key.pem"))


async def test_new_connections_get_the_renewed_certificate(tmp_path: Path) -> None:
    certificate, key = write(tmp_path)
    trust = ssl.create_default_context(cadata=AUTHORITY.pem)

    async def serial(port: int) -> int:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trust, server_hostname="localhost")
        found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        return x509.load_der_x509_certificate(found).serial_number

    async with serving(5, certificate=certificate, key=key) as (server, port):
        before = await serial(port)
        write(tmp_path)
        await server.on_tick(0)  # uvicorn calls it ten times a second; each tenth call checks the files
        assert await serial(port) != before
