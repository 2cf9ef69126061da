"""The instances of a registry recognise each other by a shared secret (`--secret-file`), which is never sent.

The secret proves that an identity in the group's metadata comes from an instance: another client that may join the group cannot
lead. It proves the user of a forwarded write, so that only the name is sent and no password. And it proves that a response
comes from the leader.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import random
from collections.abc import Mapping
from typing import Any

from ottla.server.clock import Clock

SECRET_BYTES_MIN = 16
#: A forwarded request is accepted for this long after it was signed, because the clocks of the instances may differ by as much.
AGE_MS_MAX = 120_000
#: The purposes of signatures: a forwarded request, and its response.
SIGNED, ANSWERED = "X-Ottla-Signed", "X-Ottla-Answered"


class Members:
    """The signatures of one secret."""

    def __init__(self, secret: bytes, clock: Clock, rng: random.Random) -> None:
        self._secret, self._clock, self._rng = secret, clock, rng
        #: The numbers of the requests that have arrived, in the order of their times, so that none is accepted twice.
        self._taken: dict[str, int] = {}

    def proof(self, row: Mapping[str, Any]) -> str:
        """Return the proof of an identity's JSON."""
        return self._mac("identity", json.dumps(row, sort_keys=True).encode())

    def signed(self, user: str, address: str, method: str, target: str, body: bytes) -> tuple[str, str]:
        """Return the header for a request that is forwarded for a user, and the number that its response must have."""
        number = f"{self._rng.getrandbits(128):032x}"
        row = {"ms": self._clock.wall_ms(), "number": number, "user": user, "address": address}
        data = base64.urlsafe_b64encode(json.dumps(row).encode()).decode()
        return f"{data} {self._mac('request', _digest(data, method, target, body))}", number

    def asked(self, header: str, method: str, target: str, body: bytes) -> tuple[str, str, str]:
        """Return the user and the address for which an instance forwards a request, and the request's number.

        Raises:
            ValueError: no instance has signed this request, it is old, or it came before.
        """
        data, _, mac = header.partition(" ")
        if not hmac.compare_digest(mac.encode(), self._mac("request", _digest(data, method, target, body)).encode()):
            raise ValueError("the signature is another one")
        row, now_ms = json.loads(base64.urlsafe_b64decode(data)), self._clock.wall_ms()
        for number in [number for number, ms in self._taken.items() if ms < now_ms - 2 * AGE_MS_MAX]:
            del self._taken[number]
        if abs(now_ms - row["ms"]) > AGE_MS_MAX or row["number"] in self._taken:
            raise ValueError("the request is old: the clocks of the instances may differ")
        self._taken[row["number"]] = now_ms
        return row["user"], row["address"], row["number"]

    def answer(self, number: str, status: int, offset: str, body: bytes) -> str:
        """Return the signature of the response to a request."""
        return self._mac("answer", _digest(number, str(status), offset, body))

    def _mac(self, purpose: str, data: bytes) -> str:
        return hmac.new(self._secret, purpose.encode() + b"\0" + data, hashlib.sha256).hexdigest()


def check_secret(secret: bytes) -> bytes:
    """Return a secret after checking its length.

    Raises:
        ValueError: it is too short.
    """
    if len(secret) < SECRET_BYTES_MIN:
        raise ValueError(f"a secret has at least {SECRET_BYTES_MIN} bytes")
    return secret


def _digest(*parts: str | bytes) -> bytes:
    made = b""
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        made += hashlib.sha256(data).digest()
    return made
