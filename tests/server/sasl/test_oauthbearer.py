"""OAUTHBEARER: the tokens that are accepted, signed and unsigned, and the sources of keys and tokens."""

from __future__ import annotations

import asyncio
import base64
import errno
import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from ottla.server.config.broker import BROKER_CONFIGS
from ottla.server.config.key import ConfigError
from ottla.server.network.peer_security import LoginRejected
from ottla.server.principal import Principal
from ottla.server.sasl import identity_provider, signed_tokens
from ottla.server.sasl.client_exchange import OAuthBearerClient
from ottla.server.sasl.exchange import Authenticated, SaslFailure
from ottla.server.sasl.identity_provider import ClientCredentials, JwtBearer
from ottla.server.sasl.mechanisms import JWT_BEARER, RETRIEVER, OAuthTokens
from ottla.server.sasl.oauthbearer import (
    ENDPOINT,
    OAuthBearerExchange,
    Token,
    TokenRejected,
    UnsecuredTokens,
    unsecured_token,
)
from ottla.server.sasl.signed_tokens import KEYS_TRIED_MAX, Expected, KeySet, SignedTokens, read_keys
from ottla.server.world import RealWorld
from ottla.storage.errors import failure_of
from ottla.storage.files import OsFiles
from tests.server.tiny_node import until

DEFAULTS: dict[str, Any] = {name: key.default for name, key in BROKER_CONFIGS.items()}
NOW_S = 1_000_000
NOW_MS = NOW_S * 1000
RSA = rsa.generate_private_key(65537, 2048)
OTHER = rsa.generate_private_key(65537, 2048)
CURVE = ec.generate_private_key(ec.SECP256R1())
CLAIMS = {"sub": "alice", "iss": "https://idp", "aud": ["kafka", "other"], "iat": NOW_S - 10, "exp": NOW_S + 60}


def key_set(*keys: tuple[str, Any]) -> bytes:
    rows = []
    for name, key in keys:
        algorithm = (
            jwt.algorithms.ECAlgorithm if isinstance(key, ec.EllipticCurvePrivateKey) else jwt.algorithms.RSAAlgorithm
        )
        rows.append({**algorithm.to_jwk(key.public_key(), as_dict=True), "kid": name, "use": "sig"})
    rows.append({"kty": "oct", "kid": "symmetric", "k": "c2VjcmV0"})
    return json.dumps({"keys": rows}).encode()


KEYS = read_keys(key_set(("rsa", RSA), ("ec", CURVE)))


def signed(
    changes: dict[str, Any] | None = None, key: Any = RSA, algorithm: str = "RS256", key_id: str | None = "rsa"
) -> str:
    claims = {name: value for name, value in {**CLAIMS, **(changes or {})}.items() if value is not None}
    return jwt.encode(claims, key, algorithm, headers={"kid": key_id} if key_id else None)


def validator(missing: Callable[[], None] = lambda: None, **changes: Any) -> SignedTokens:
    expected = Expected(
        **{"issuer": "https://idp", "audiences": ["kafka"], "skew_ms": 0, "subject_claim": "sub"} | changes
    )
    return SignedTokens(lambda: KEYS, missing, expected, lambda: NOW_MS)


def unsigned(claims: object, header: object = {"alg": "none"}, signature: str = "") -> str:
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in (header, claims)]
    return ".".join([*parts, signature])


# -- Signed tokens -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "token",
    [
        signed(),
        signed(algorithm="RS512"),
        signed(algorithm="PS256"),
        signed(key=CURVE, algorithm="ES256", key_id="ec"),
        signed(key_id=None),
        signed(key=CURVE, algorithm="ES256", key_id=None),
        signed({"aud": "kafka"}),
    ],
)
def test_a_token_that_the_provider_has_signed_is_accepted(token: str) -> None:
    assert validator()(token) == Token("alice", (NOW_S + 60) * 1000)


def test_the_principal_is_the_claim_that_the_configuration_names() -> None:
    assert validator(subject_claim="email")(signed({"email": "a@b"})).subject == "a@b"


def hmac_with_the_public_key() -> str:
    pem = RSA.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    import hashlib
    import hmac

    head = unsigned(CLAIMS, {"alg": "HS256", "kid": "rsa"})[:-1]
    signature = hmac.digest(pem, head.encode(), hashlib.sha256)
    return f"{head}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (signed(key=OTHER), "no key of the identity provider verifies"),
        (signed(key_id="unknown"), "no key of the token's id"),
        (signed(key_id="ec"), "no key of the identity provider verifies"),
        (unsigned(CLAIMS), "algorithm is not accepted"),
        (unsigned(CLAIMS, {"alg": "None", "kid": "rsa"}), "algorithm is not accepted"),
        (unsigned(CLAIMS, {"alg": "RS256", "kid": "rsa"}), "no key of the identity provider verifies"),
        (hmac_with_the_public_key(), "algorithm is not accepted"),
        (jwt.encode(CLAIMS, "secret" * 6, "HS256", headers={"kid": "symmetric"}), "algorithm is not accepted"),
        (signed({"exp": NOW_S}), "has expired"),
        (signed({"exp": None}), "Required claim missing: exp"),
        (signed({"iat": None}), "Required claim missing: iat"),
        (signed({"sub": None}), "Required claim missing: sub"),
        (signed({"sub": " "}), "Required claim missing: sub"),
        (signed({"nbf": NOW_S + 1}), "not valid yet"),
        (signed({"iat": NOW_S + 1}), "not valid yet"),
        (signed({"exp": float("1e300")}), "incorrect type"),
        (signed({"exp": True}), "incorrect type"),
        (signed({"iss": "https://other"}), "another issuer"),
        (signed({"iss": None}), "another issuer"),
        (signed({"aud": "other"}), "another audience"),
        (signed({"aud": None}), "another audience"),
        ("a.b.c", "cannot be read"),
        ("", "cannot be read"),
        (signed()[:-5], "cannot be read|no key"),
        (base64.urlsafe_b64encode(b"[" * 100_000).decode() + ".e30.AAAA", "cannot be read"),
    ],
)  # fmt: skip
def test_any_other_token_is_refused(token: str, reason: str) -> None:
    with pytest.raises(TokenRejected, match=reason) as refused:
        validator()(token)
    assert token[:40] not in str(refused.value) or not token


def test_clocks_may_differ_by_what_the_configuration_says() -> None:
    tolerant = validator(skew_ms=30_000)
    assert tolerant(signed({"exp": NOW_S - 29, "iat": NOW_S - 60})).subject == "alice"
    assert tolerant(signed({"nbf": NOW_S + 29})).subject == "alice"
    with pytest.raises(TokenRejected):
        tolerant(signed({"exp": NOW_S - 31, "iat": NOW_S - 60}))


def test_any_issuer_and_audience_is_accepted_where_none_is_expected() -> None:
    assert validator(issuer=None, audiences=[])(signed({"iss": None, "aud": "else"})).subject == "alice"


def test_a_token_without_a_key_id_is_tried_with_a_few_keys_only() -> None:
    many = read_keys(key_set(*[(str(number), OTHER) for number in range(KEYS_TRIED_MAX)], ("rsa", RSA)))
    tokens = SignedTokens(lambda: many, lambda: None, Expected(None, [], 0, "sub"), lambda: NOW_MS)
    with pytest.raises(TokenRejected):
        tokens(signed(key_id=None))


@pytest.mark.parametrize("data", [b"", b"{}", b'{"keys": []}', b"[]", b'{"keys": [1]}', b"\xff", b"[" * 100_000])
def test_what_is_no_key_set_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="no key set"):
        read_keys(data)


# -- Unsigned tokens -----------------------------------------------------------------------------------------------------


def test_an_unsigned_token_is_accepted_by_the_validator_for_development_alone() -> None:
    tokens = UnsecuredTokens({}, lambda: NOW_MS)
    assert tokens(unsigned(CLAIMS)) == Token("alice", (NOW_S + 60) * 1000)
    assert tokens(unsecured_token({"unsecuredLoginStringClaim_sub": "node"}, NOW_MS)).subject == "node"


@pytest.mark.parametrize(
    "token",
    [
        signed(), unsigned(CLAIMS, signature="AAAA"), unsigned([]), unsigned({"sub": "alice"}), unsigned({**CLAIMS, "exp": NOW_S}),
        unsigned({**CLAIMS, "exp": "1"}), unsigned({**CLAIMS, "iat": NOW_S + 100}), unsigned({**CLAIMS, "sub": 1}), "a.b.", "..", "x",
        "W" * 50_000 + ".e30.", *(unsigned({**CLAIMS, "level": number}) for number in map(float, ("nan", "inf", "-inf"))),
    ],
)  # fmt: skip
def test_an_unsigned_token_that_is_not_valid_is_refused(token: str) -> None:
    with pytest.raises(TokenRejected):
        UnsecuredTokens({}, lambda: NOW_MS)(token)


def test_the_required_scope_is_named_to_the_client() -> None:
    options = {"unsecuredValidatorRequiredScope": "read write", "unsecuredValidatorAllowableClockSkewMs": "1000"}
    tokens = UnsecuredTokens(options, lambda: NOW_MS)
    scope = unsecured_token(
        {"unsecuredLoginStringClaim_sub": "a", "unsecuredLoginListClaim_scope": "|read|write"}, NOW_MS
    )
    assert tokens(scope).subject == "a"
    exchange = OAuthBearerExchange(tokens)
    assert exchange.evaluate(first(unsigned(CLAIMS))) == b'{"status":"insufficient_scope", "scope":"read write"}'


# -- The exchange --------------------------------------------------------------------------------------------------------


def first(token: str, authzid: str = "") -> bytes:
    return f"n,{authzid},\x01auth=Bearer {token}\x01\x01".encode()


def test_a_valid_token_authenticates_until_it_expires() -> None:
    exchange = OAuthBearerExchange(validator())
    sent = OAuthBearerClient(signed()).answer(b"")
    assert sent is not None
    assert exchange.evaluate(sent) == Authenticated(Principal("User", "alice"), b"", (NOW_S + 60) * 1000)
    assert isinstance(OAuthBearerExchange(validator()).evaluate(first(signed(), "a=alice")), Authenticated)


def test_an_invalid_token_is_answered_with_json_and_then_fails() -> None:
    exchange, client = OAuthBearerExchange(validator()), OAuthBearerClient("not.a.token")
    sent = client.answer(b"")
    assert sent is not None
    challenge = exchange.evaluate(sent)
    assert challenge == b'{"status":"invalid_token"}'
    with pytest.raises(SaslFailure) as failed:
        exchange.evaluate(client.answer(challenge) or b"")
    assert failed.value.for_client == '{"status":"invalid_token"}'
    assert "cannot be read" in str(failed.value)


@pytest.mark.parametrize(
    "message",
    [
        b"", b"\x01", b"n,,\x01\x01", b"n,,\x01auth=Basic abc\x01\x01", b"n,,\x01auth=Bearer \x01\x01", b"n,,\x01host=a\x01\x01",
        b"y,,\x01auth=Bearer a\x01\x01", b"n,,\x01auth=Bearer a\x01", b"n,,auth=Bearer a", b"\xff", first(signed(), "a=bob"),
    ],
)  # fmt: skip
def test_a_malformed_message_fails_without_being_repeated(message: bytes) -> None:
    with pytest.raises(SaslFailure) as failed:
        OAuthBearerExchange(validator()).evaluate(message)
    assert "Basic" not in str(failed.value)


# -- Keys and tokens from elsewhere --------------------------------------------------------------------------------------


class Provider:
    """An identity provider: its responses, and the requests that it got."""

    def __init__(self) -> None:
        self.status = 200
        self.answer = b""
        self.asked: list[tuple[dict[str, str], bytes]] = []


@contextmanager
def provider() -> Iterator[tuple[Provider, str]]:
    state = Provider()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            state.asked.append((dict(self.headers), body))
            self.send_response(state.status)
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", str(len(state.answer)))
            self.end_headers()
            self.wfile.write(state.answer)

        do_POST = do_GET

        def log_message(self, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield state, f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def test_keys_are_fetched_and_again_for_a_key_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signed_tokens, "EARLY_REFRESH_INTERVAL_MS", 0)
    real = RealWorld(asyncio.get_running_loop())
    with provider() as (idp, url):
        idp.answer = key_set(("old", RSA))
        keys = KeySet(real.world, url, 3_600_000, 10, 20)
        await until(lambda: set(keys.keys) == {"old"})
        idp.answer = key_set(("new", RSA))
        tokens = SignedTokens(lambda: keys.keys, keys.missing, Expected(None, [], 0, "sub"), lambda: NOW_MS)
        with pytest.raises(TokenRejected):
            tokens(signed(key_id="new"))
        await until(lambda: set(keys.keys) == {"new"})
        assert tokens(signed(key_id="new")).subject == "alice"
        # A failure of the provider does not remove the keys.
        idp.answer, asked = b"<html>", len(idp.asked)
        keys.missing()
        await until(lambda: len(idp.asked) > asked + 2)
        assert set(keys.keys) == {"new"}
    await real.close()


async def test_an_unknown_key_does_not_make_the_node_ask_all_the_time() -> None:
    real = RealWorld(asyncio.get_running_loop())
    with provider() as (idp, url):
        idp.answer = key_set(("old", RSA))
        keys = KeySet(real.world, url, 3_600_000, 10, 20)
        await until(lambda: keys.keys)
        for _ in range(100):
            keys.missing()
        await asyncio.sleep(0.05)
        assert len(idp.asked) == 1
    await real.close()


async def test_keys_can_be_in_a_file(tmp_path: Path) -> None:
    real = RealWorld(asyncio.get_running_loop())
    file = tmp_path / "keys.json"
    file.write_bytes(key_set(("rsa", RSA)))
    keys = KeySet(real.world, file.as_uri(), 20, 10, 20)
    await until(lambda: set(keys.keys) == {"rsa"})
    file.unlink()
    await until(lambda: keys._early.is_set() or keys.keys)
    file.write_bytes(key_set(("rotated", RSA)))
    await until(lambda: set(keys.keys) == {"rotated"})
    await real.close()


class Locked(OsFiles):
    """Return files that this process may not read. Root may read all files."""

    is_locked = True

    def read(self, path: str) -> bytes | None:
        if self.is_locked:
            raise failure_of(path, OSError(errno.EACCES, os.strerror(errno.EACCES), path))
        return super().read(path)


async def test_a_file_of_keys_that_cannot_be_read_is_said_once_and_tried_until_its_rights_are_mended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    real, files = RealWorld(asyncio.get_running_loop()), Locked()
    file = tmp_path / "keys.json"
    file.write_bytes(key_set(("rsa", RSA)))
    keys = KeySet(replace(real.world, files=files), file.as_uri(), 3_600_000, 1, 2)
    await until(lambda: "could not be fetched" in caplog.text)
    await asyncio.sleep(0.05)
    assert caplog.text.count("Permission denied") == 1 and not keys.keys
    files.is_locked = False
    await until(lambda: set(keys.keys) == {"rsa"})
    await real.close()


async def test_a_private_key_that_cannot_be_read_rejects_a_login_and_is_read_again_for_the_next(
    tmp_path: Path,
) -> None:
    real, files = RealWorld(asyncio.get_running_loop()), Locked()
    assertion = tmp_path / "assertion.jwt"
    assertion.write_text("the.signed.assertion")
    values = {name: key.default for name, key in BROKER_CONFIGS.items()}
    with provider() as (idp, url):
        idp.answer = b'{"access_token": "the-token", "expires_in": 60}'
        values |= {ENDPOINT: url, "sasl.oauthbearer.assertion.file": str(assertion)}
        files.is_locked = False
        tokens = JwtBearer(replace(real.world, files=files), values, {})
        files.is_locked = True
        with pytest.raises(LoginRejected, match="Permission denied"):
            await tokens.token()
        files.is_locked = False
        assert await tokens.token() == "the-token"
        files.is_locked = True
        with pytest.raises(ConfigError, match="Permission denied"):
            JwtBearer(replace(real.world, files=files), values, {})
    await real.close()


async def test_the_log_has_no_password_of_an_address_of_keys(caplog: pytest.LogCaptureFixture) -> None:
    real = RealWorld(asyncio.get_running_loop())
    KeySet(real.world, "http://planted-user:planted-password@localhost:1/keys?code=planted", 20, 10, 20)
    await until(lambda: "Keys of http://localhost:1/keys could not be fetched" in caplog.text)
    await real.close()
    assert "planted" not in caplog.text


async def test_a_token_is_got_with_id_and_secret_and_kept_for_most_of_its_life() -> None:
    real = RealWorld(asyncio.get_running_loop())
    values = {name: key.default for name, key in BROKER_CONFIGS.items()}
    with provider() as (idp, url):
        idp.answer = b'{"access_token": "the-token", "expires_in": 60, "token_type": "Bearer"}'
        credentials = ClientCredentials(
            real.world,
            {**values, ENDPOINT: url, "sasl.oauthbearer.scope": "a b"},
            {"clientId": "id", "clientSecret": "s:1"},
        )
        assert [await credentials.token() for _ in range(3)] == ["the-token"] * 3
        [(headers, body)] = idp.asked
        assert headers["Authorization"] == "Basic " + base64.b64encode(b"id:s%3A1").decode()
        assert body == b"grant_type=client_credentials&scope=a+b"
    await real.close()


def private_pem(key: Any, passphrase: str | None = None) -> bytes:
    encryption = (
        serialization.BestAvailableEncryption(passphrase.encode()) if passphrase else serialization.NoEncryption()
    )
    return bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption))


@pytest.mark.parametrize(("key", "algorithm", "passphrase"), [(RSA, "RS256", None), (CURVE, "ES256", "planted")])
async def test_a_token_is_got_for_an_assertion_that_this_node_signs(
    tmp_path: Path, key: Any, algorithm: str, passphrase: str | None
) -> None:
    real = RealWorld(asyncio.get_running_loop())
    (tmp_path / "key.pem").write_bytes(private_pem(key, passphrase))
    template = {"header": {"kid": "k1", "alg": "none"}, "payload": {"sub": "template", "role": "broker", "iat": 1}}
    (tmp_path / "template.json").write_text(json.dumps(template))
    with provider() as (idp, url):
        idp.answer = b'{"access_token": "the-token", "expires_in": 60}'
        tokens = JwtBearer(
            real.world,
            DEFAULTS
            | {
                ENDPOINT: url,
                "sasl.oauthbearer.scope": "a b",
                "sasl.oauthbearer.assertion.private.key.file": str(tmp_path / "key.pem"),
                "sasl.oauthbearer.assertion.private.key.passphrase": passphrase,
                "sasl.oauthbearer.assertion.algorithm": algorithm.lower(),
                "sasl.oauthbearer.assertion.template.file": str(tmp_path / "template.json"),
                "sasl.oauthbearer.assertion.claim.aud": "https://idp",
                "sasl.oauthbearer.assertion.claim.iss": "node",
                "sasl.oauthbearer.assertion.claim.sub": "static",
                "sasl.oauthbearer.assertion.claim.jti.include": True,
            },
            {},
        )
        assert [await tokens.token() for _ in range(3)] == ["the-token"] * 3
        [(headers, body)] = idp.asked
    form = parse_qs(body.decode())
    assert form["grant_type"] == ["urn:ietf:params:oauth:grant-type:jwt-bearer"] and form["scope"] == ["a b"]
    assert "Authorization" not in headers
    [assertion] = form["assertion"]
    assert jwt.get_unverified_header(assertion) == {"kid": "k1", "alg": algorithm, "typ": "JWT"}
    claims = jwt.decode(assertion, key.public_key(), [algorithm], audience="https://idp")
    assert (claims["iss"], claims["sub"], claims["role"]) == ("node", "template", "broker")
    assert (claims["exp"] - claims["iat"], claims["iat"] - claims["nbf"]) == (300, 60)
    assert claims["iat"] > 1 and len(claims["jti"]) == 36
    await real.close()


async def test_a_finished_assertion_is_read_from_its_file_for_each_token(tmp_path: Path) -> None:
    real = RealWorld(asyncio.get_running_loop())
    file = tmp_path / "assertion"
    file.write_text("first\n")
    with provider() as (idp, url):
        idp.answer = b'{"access_token": "the-token"}'
        tokens = JwtBearer(real.world, DEFAULTS | {ENDPOINT: url, "sasl.oauthbearer.assertion.file": str(file)}, {})
        await tokens.token()
        file.write_text("second")
        await tokens.token()
        assert [parse_qs(body.decode())["assertion"] for _, body in idp.asked] == [["first"], ["second"]]
        file.unlink()
        with pytest.raises(LoginRejected, match="there is no file"):
            await tokens.token()
    await real.close()


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({}, "private.key.file is not set"),
        ({"private.key.file": "none.pem"}, "there is no file none.pem"),
        ({"private.key.file": "KEY", "algorithm": "ES256"}, "has no private key for ES256"),
        ({"private.key.file": "KEY", "template.file": "KEY"}, "is not of the form"),
        ({"private.key.file": "KEY", "template.file": "none.json"}, "there is no file none.json"),
        ({"private.key.file": "LOCKED", "private.key.passphrase": "planted-wrong"}, "the passphrase is not its own"),
        ({"file": "none"}, "there is no file none"),
    ],
)
async def test_a_node_whose_assertions_cannot_be_made_does_not_start(
    tmp_path: Path, properties: dict[str, str], said: str
) -> None:
    real = RealWorld(asyncio.get_running_loop())
    for name, passphrase in (("KEY", None), ("LOCKED", "planted")):
        (tmp_path / name).write_bytes(private_pem(RSA, passphrase))
        properties = {each: text.replace(name, str(tmp_path / name)) for each, text in properties.items()}
    own = {f"sasl.oauthbearer.assertion.{name}": text for name, text in properties.items()}
    values = DEFAULTS | {ENDPOINT: "http://idp", RETRIEVER: JWT_BEARER} | own
    with pytest.raises(ConfigError, match=said) as refused:
        OAuthTokens(real.world).source("L", values, {})
    assert "planted" not in str(refused.value)
    await real.close()


async def test_a_retriever_of_ones_own_is_refused() -> None:
    real = RealWorld(asyncio.get_running_loop())
    with pytest.raises(ConfigError, match="Java classes are not run"):
        OAuthTokens(real.world).source("L", DEFAULTS | {ENDPOINT: "http://idp", RETRIEVER: "com.acme.X"}, {})
    await real.close()


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (401, b"planted"), (302, b""), (200, b"planted"), (200, b"[]"), (200, b'{"access_token_": "planted"}'),
        (200, b" " * (identity_provider.ANSWER_BYTES_MAX + 1)),
    ],
)  # fmt: skip
async def test_a_provider_that_gives_no_token_fails_the_login_without_its_answer_in_the_message(
    status: int, answer: bytes
) -> None:
    real = RealWorld(asyncio.get_running_loop())
    values = {name: key.default for name, key in BROKER_CONFIGS.items()}
    with provider() as (idp, url):
        idp.status, idp.answer = status, answer
        with_key = f"{url}?code=planted"
        credentials = ClientCredentials(
            real.world, {**values, ENDPOINT: with_key}, {"clientId": "i", "clientSecret": "planted"}
        )
        with pytest.raises(LoginRejected) as refused:
            await credentials.token()
        assert "planted" not in str(refused.value) and len(idp.asked) == 1
    await real.close()
