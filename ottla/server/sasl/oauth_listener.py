"""Reads the OAUTHBEARER settings from a node's configuration: the validator of a listener's tokens, and the source of the node's own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from ottla.server.config.errors import ConfigError, require
from ottla.server.config.key import Values
from ottla.server.extras import CRYPTOGRAPHY
from ottla.server.sasl.login_tokens import ENDPOINT, UNSECURED, unsecured_token
from ottla.server.sasl.oauthbearer import MS_PER_S, UnsecuredTokens, Validator

if TYPE_CHECKING:
    from ottla.server.sasl.key_sets import KeySet
    from ottla.server.world import World

JWKS_URL = "sasl.oauthbearer.jwks.endpoint.url"
_PACKAGE = "org.apache.kafka.common.security.oauthbearer"
#: Kafka's own classes, which are implemented here; other classes are not run.
SIGNED_VALIDATORS = (
    f"{_PACKAGE}.OAuthBearerValidatorCallbackHandler",
    f"{_PACKAGE}.secured.OAuthBearerValidatorCallbackHandler",
)
UNSECURED_VALIDATOR = f"{_PACKAGE}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
#: Where the tokens of a node or client come from; the default is client credentials.
RETRIEVER = "sasl.oauthbearer.jwt.retriever.class"
JWT_BEARER = f"{_PACKAGE}.JwtBearerJwtRetriever"
RETRIEVERS = (f"{_PACKAGE}.DefaultJwtRetriever", f"{_PACKAGE}.ClientCredentialsJwtRetriever", JWT_BEARER)
VALIDATORS = (*SIGNED_VALIDATORS, UNSECURED_VALIDATOR)


class OAuthTokens:
    """The key sets of a node's listeners, by the URL and the times of each: a change of another property keeps them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._key_sets: dict[tuple[object, ...], KeySet] = {}

    def validator(self, listener: str, values: Values, options: Mapping[str, str], handler: str | None) -> Validator:
        """The validator by the `options` of the JAAS entry; `handler` is sasl.server.callback.handler.class.

        Raises:
            ConfigError: no issuer of valid tokens is configured.
        """
        if values[JWKS_URL] is None:
            # Kafka accepts unsigned tokens if no class is set. Here the configuration must permit them explicitly.
            if handler == UNSECURED_VALIDATOR or any(name.startswith("unsecured") for name in options):
                return UnsecuredTokens(options, self._world.clock.wall_ms)
            raise ConfigError(
                JWKS_URL,
                None,
                "",
                f"{JWKS_URL}=https://..., or for development sasl.server.callback.handler.class={UNSECURED_VALIDATOR}",
                message=f"Listener {listener}: OAUTHBEARER has no keys to verify tokens with",
            )
        return self._signed(listener, values)

    def _signed(self, listener: str, values: Values) -> Validator:
        _check_expected(listener, values)
        require(CRYPTOGRAPHY, "checking the signatures of OAUTHBEARER's tokens", JWKS_URL, values[JWKS_URL])
        # Not at the top: PyJWT and cryptography take 60 ms to import.
        from ottla.server.sasl.key_sets import KeySet
        from ottla.server.sasl.signed_tokens import Expected, SignedTokens

        source = (
            values[JWKS_URL],
            values["sasl.oauthbearer.jwks.endpoint.refresh.ms"],
            values["sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"],
            values["sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"],
        )
        key_set = self._key_sets.get(source)
        if key_set is None:
            key_set = self._key_sets[source] = KeySet(self._world, *source)
        expected = Expected(
            values["sasl.oauthbearer.expected.issuer"],
            values["sasl.oauthbearer.expected.audience"],
            values["sasl.oauthbearer.clock.skew.seconds"] * MS_PER_S,
            values["sasl.oauthbearer.sub.claim.name"],
        )
        return SignedTokens(lambda: key_set.keys, key_set.missing, expected, self._world.clock.wall_ms)

    def source(self, listener: str, values: Values, options: Mapping[str, str]) -> Callable[[], Awaitable[str]]:
        """Returns the source of the tokens with which this node logs in.

        Raises:
            ConfigError: their source is not configured.
        """
        retriever = values[RETRIEVER]
        if retriever not in RETRIEVERS:
            raise ConfigError(RETRIEVER, retriever, "Java classes are not run", f"one of {', '.join(RETRIEVERS)}")
        if values[ENDPOINT] is not None and retriever == JWT_BEARER:
            require(CRYPTOGRAPHY, "signing assertions", RETRIEVER, retriever)
            # Not at the top, like the other one: PyJWT and cryptography take 60 ms to import, urllib 20 ms.
            from ottla.server.sasl.jwt_bearer import JwtBearer

            return JwtBearer(self._world, values, options).token
        if values[ENDPOINT] is not None:
            from ottla.server.sasl.client_credentials import ClientCredentials

            return ClientCredentials(self._world, values, options).token
        if not any(name.startswith(UNSECURED) for name in options):
            raise ConfigError(
                ENDPOINT,
                None,
                "",
                f"{ENDPOINT}=https://..., with the client's id and secret",
                message=f"Listener {listener}: it is not said where this node gets its tokens for OAUTHBEARER",
            )

        async def token() -> str:
            return unsecured_token(options, self._world.clock.wall_ms())

        return token


#: Properties that restrict the accepted tokens, and the option that permits leaving them out.
EXPECTED = (
    ("sasl.oauthbearer.expected.issuer", "sasl.oauthbearer.allow.unverified.issuer"),
    ("sasl.oauthbearer.expected.audience", "sasl.oauthbearer.allow.unverified.audience"),
)


def _check_expected(listener: str, values: Values) -> None:
    """Checks that an audience or issuer is configured, because the provider also signs tokens for other services."""
    for name, allow in EXPECTED:
        if not values[name] and not values[allow]:
            raise ConfigError(
                name,
                None,
                "",
                f"{name}=..., or {allow}=true",
                message=f"Listener {listener}: {name} is not set, so tokens for any {name.rpartition('.')[2]} would be accepted",
            )
