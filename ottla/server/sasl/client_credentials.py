"""Gets this node's own OAUTHBEARER tokens from an identity provider; the client-credentials grant. Another grant is in jwt_bearer.py."""

from __future__ import annotations

import base64
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from ottla.server.config.errors import ConfigError
from ottla.server.config.key import Values
from ottla.server.network.peer_security import LoginRejected
from ottla.server.sasl.login_tokens import ENDPOINT
from ottla.server.sasl.oauthbearer import MS_PER_S
from ottla.server.sasl.web import TIMEOUT_S, fetch, without_secrets

if TYPE_CHECKING:
    from ottla.server.world import World

CLIENT_ID = "sasl.oauthbearer.client.credentials.client.id"
CLIENT_SECRET = "sasl.oauthbearer.client.credentials.client.secret"


class EndpointTokens(ABC):
    """Gets a token from the identity provider, and keeps it for most of its life."""

    def __init__(self, world: World, values: Values, options: Mapping[str, str]) -> None:
        """Takes the configuration as `values`, and the `options` of the JAAS entry, which has Kafka's older names."""
        self._world = world
        self._url: str = values[ENDPOINT]
        self._headers = {"Content-Type": "application/x-www-form-urlencoded"}
        self._scope: str | None = values["sasl.oauthbearer.scope"] or options.get("scope")
        self._timeout_s = (values["sasl.login.read.timeout.ms"] or TIMEOUT_S * MS_PER_S) / MS_PER_S
        self._part = values["sasl.login.refresh.window.factor"]
        self._token = ""
        self._until_ms = 0

    @abstractmethod
    def form(self) -> dict[str, str]:
        """The grant, as the endpoint gets it. Raises ValueError."""

    def _ask(self) -> bytes:
        form = self.form() | ({"scope": self._scope} if self._scope else {})
        return fetch(self._url, urlencode(form).encode(), self._headers, self._timeout_s)

    async def token(self) -> str:
        """Raises LoginRejected."""
        now_ms = self._world.clock.mono_ms()
        if now_ms < self._until_ms:
            return self._token
        try:
            data = await self._world.workers.run(self._ask)
        except (OSError, ValueError) as error:
            raise LoginRejected(f"no token from {without_secrets(self._url)}: {error}") from None
        try:
            answer = json.loads(data)
            self._token = str(answer["access_token"])
            lifetime_s = float(answer.get("expires_in", 0))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            # The message does not contain the response, because it may have the token.
            raise LoginRejected(f"{without_secrets(self._url)} answered without a token") from None
        self._until_ms = now_ms + int(lifetime_s * MS_PER_S * self._part)
        return self._token


class ClientCredentials(EndpointTokens):
    """The grant with the client's id and secret (RFC 6749)."""

    def __init__(self, world: World, values: Values, options: Mapping[str, str]) -> None:
        """Raises ConfigError."""
        super().__init__(world, values, options)
        client_id = values[CLIENT_ID] or options.get("clientId")
        secret = values[CLIENT_SECRET] or options.get("clientSecret")
        if not client_id or not secret:
            name = CLIENT_SECRET if client_id else CLIENT_ID
            raise ConfigError(name, None, "", f"{name}=...", message=f"{name} is not set, and {ENDPOINT} is")
        basic = base64.b64encode(f"{quote(client_id, '')}:{quote(secret, '')}".encode()).decode()
        self._headers["Authorization"] = f"Basic {basic}"

    def form(self) -> dict[str, str]:
        return {"grant_type": "client_credentials"}
