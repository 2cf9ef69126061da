"""A TLS 1.3 client that sends arbitrary records, such as key updates: OpenSSL does the handshake, and exports the secret for
the rest.
"""

from __future__ import annotations

import asyncio
import ssl
import tempfile
from typing import Any

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA384, HashAlgorithm
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

SECRET = "CLIENT_TRAFFIC_SECRET_0"
CIPHER = "TLS_AES_256_GCM_SHA384"
HANDSHAKE, APPLICATION_DATA = b"\x16", b"\x17"
#: A KeyUpdate with update_requested: its receiver derives keys for both directions, and answers with one of its own.
KEY_UPDATE = b"\x18\0\0\x01\x01"


class Secret:
    """The keys of one direction, from one key update to the next (RFC 8446, 7.2 and 7.3)."""

    def __init__(self, secret: bytes, hash_: HashAlgorithm) -> None:
        self._hash = hash_
        self._take(secret)

    def _take(self, secret: bytes) -> None:
        self._secret = secret
        self._cipher = AESGCM(self._expand("key", 32))
        self._iv = int.from_bytes(self._expand("iv", 12), "big")
        self._records = 0

    def _expand(self, label: str, size: int) -> bytes:
        name = b"tls13 " + label.encode()
        info = size.to_bytes(2, "big") + bytes([len(name)]) + name + b"\0"
        return HKDFExpand(self._hash, size, info).derive(self._secret)

    def record(self, kind: bytes, content: bytes) -> bytes:
        head = b"\x17\x03\x03" + (len(content) + 17).to_bytes(2, "big")
        nonce = (self._iv ^ self._records).to_bytes(12, "big")
        self._records += 1
        return head + self._cipher.encrypt(nonce, content + kind, head)

    def key_update(self) -> bytes:
        record = self.record(HANDSHAKE, KEY_UPDATE)
        self._take(self._expand("traffic upd", len(self._secret)))
        return record


class RecordClient:
    """A connection whose handshake is complete on this side."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, secret: Secret, finished: bytes
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.transport: Any = writer.transport
        self.finished = finished
        self._secret = secret

    def data(self, content: bytes) -> bytes:
        return self._secret.record(APPLICATION_DATA, content)

    def key_updates(self, count: int) -> bytes:
        return b"".join(self._secret.key_update() for _ in range(count))

    async def is_closed_by_peer(self) -> bool:
        """True at the end of what the peer has sent, which is not decrypted here."""
        async with asyncio.timeout(10):
            try:
                while await self.reader.read(1 << 16):
                    pass
            except ConnectionError:
                pass
        return True


async def connect(port: int, context: ssl.SSLContext) -> RecordClient:
    """The handshake, but for its last message: `finished` goes before the first record."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with tempfile.NamedTemporaryFile("r") as keys:
        context.keylog_filename = keys.name
        end = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
        while True:
            try:
                end.do_handshake()
                break
            except ssl.SSLWantReadError:
                writer.write(outgoing.read())
                incoming.write(await reader.read(1 << 16))
        lines = [line.split() for line in keys]
    cipher = end.cipher()
    assert cipher is not None and cipher[0] == CIPHER, cipher
    [secret] = [bytes.fromhex(line[2]) for line in lines if line and line[0] == SECRET]
    return RecordClient(reader, writer, Secret(secret, SHA384()), finished=outgoing.read())
