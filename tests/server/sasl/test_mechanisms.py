"""The SASL mechanisms as state machines: each token of a client, and its result."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import NamedTuple

import pytest

from ottla.server.network.peer_security import LoginRejected
from ottla.server.principal import Principal
from ottla.server.sasl.client_exchange import ITERATIONS_ACCEPTED_MAX, PlainClient, ScramClient
from ottla.server.sasl.exchange import Authenticated, SaslFailure, Slow
from ottla.server.sasl.jaas import JaasError, read_module, read_sections
from ottla.server.sasl.mechanisms import PlainExchange
from ottla.server.sasl.scram import (
    HASHES,
    SALT_BYTES,
    ScramCredential,
    ScramExchange,
    ScramUsers,
    TokenCredential,
    decoy,
    keys_of,
    salted_password,
)

ALICE = Principal("User", "alice")


# -- PLAIN ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", [b"\0alice\0secret", b"alice\0alice\0secret", "\0ä\0ü".encode()])
def test_plain_accepts_the_password_of_the_user(token: bytes) -> None:
    outcome = PlainExchange({"alice": "secret", "ä": "ü"}).evaluate(token)
    assert outcome.principal in (ALICE, Principal("User", "ä")) and outcome.expires_ms is None


@pytest.mark.parametrize(
    ("token", "message"),
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0bob\0secret", "Authentication failed: Invalid username or password"),
        (b"\0bob\0", "Authentication failed: password not specified"),
        (b"\0\0secret", "Authentication failed: username not specified"),
        (
            b"bob\0alice\0secret",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
        (b"alice secret", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0a\0b\0c\0d", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\xff\xfe", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
    ],
)
def test_plain_refuses_anything_else_with_kafkas_message(token: bytes, message: str) -> None:
    with pytest.raises(SaslFailure) as failed:
        PlainExchange({"alice": "secret"}).evaluate(token)
    assert failed.value.for_client == str(failed.value) == message


# -- SCRAM ---------------------------------------------------------------------------------------------------------------


SECRET = b"hmac of the token"
PASSWORD = base64.b64encode(SECRET)


def challenge_of(server: ScramExchange, first: bytes) -> bytes:
    """The challenge for a delegation token, which a worker computes."""
    slow = server.evaluate(first)
    assert isinstance(slow, Slow)
    challenge = slow.step()
    assert isinstance(challenge, bytes)
    return challenge


class Stored(NamedTuple):
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


def stored(mechanism: str, password: bytes, iterations: int = 4096) -> Stored:
    salt = b"salt of the user"
    keys = keys_of(HASHES[mechanism], salted_password(HASHES[mechanism], password, salt, iterations))
    return Stored(salt, keys.stored, keys.server, iterations)


def exchange(mechanism: str = "SCRAM-SHA-256", iterations: int = 4096, nonce: str = "server") -> ScramExchange:
    def token(token_id: str) -> TokenCredential | None:
        return (
            TokenCredential(Principal("User", "owner"), 1234, (b"of another key", SECRET))
            if token_id == "token-1"
            else None
        )

    users = ScramUsers(
        lambda _, name: stored(mechanism, b"secret", iterations) if name in ("alice", "a=b,c") else None,
        token,
        lambda mechanism, name: decoy(stored(mechanism, b"secret", iterations), b"", name),
        lambda: nonce,
    )
    return ScramExchange(mechanism, users)


def proof(mechanism: str, password: bytes, first_bare: str, server_first: bytes, without_proof: str) -> str:
    """The client's side, written only from RFC 5802."""
    digest = HASHES[mechanism]
    fields = dict(part.split("=", 1) for part in server_first.decode().split(","))
    salted = hashlib.pbkdf2_hmac(digest, password, base64.b64decode(fields["s"]), int(fields["i"]))
    client_key = hmac.digest(salted, b"Client Key", digest)
    message = f"{first_bare},{server_first.decode()},{without_proof}".encode()
    signature = hmac.digest(hashlib.new(digest, client_key).digest(), message, digest)
    return base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()


def final(mechanism: str, password: bytes, first_bare: str, server_first: bytes) -> bytes:
    nonce = server_first.decode().split(",")[0].removeprefix("r=")
    without_proof = f"c=biws,r={nonce}"
    return f"{without_proof},p={proof(mechanism, password, first_bare, server_first, without_proof)}".encode()


@pytest.mark.parametrize("mechanism", sorted(HASHES))
@pytest.mark.parametrize(("written", "name"), [("alice", "alice"), ("a=3Db=2Cc", "a=b,c")])
def test_scram_accepts_who_knows_the_password(mechanism: str, written: str, name: str) -> None:
    server = exchange(mechanism)
    bare = f"n={written},r=client"
    challenge = server.evaluate(b"n,," + bare.encode())
    assert isinstance(challenge, bytes) and challenge.startswith(b"r=clientserver,s=")
    outcome = server.evaluate(final(mechanism, b"secret", bare, challenge))
    assert isinstance(outcome, Authenticated) and outcome.principal == Principal("User", name)
    assert outcome.token.startswith(b"v=")


def test_the_exchange_of_rfc_7677_is_reproduced() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    keys = keys_of("sha256", salted_password("sha256", b"pencil", salt, 4096))
    users = ScramUsers(
        lambda mechanism, name: Stored(salt, keys.stored, keys.server, 4096),
        lambda token_id: None,
        lambda mechanism, name: ScramCredential(b""),
        lambda: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
    )
    server = ScramExchange("SCRAM-SHA-256", users)
    challenge = server.evaluate(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert challenge == b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    outcome = server.evaluate(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert isinstance(outcome, Authenticated)
    assert outcome.token == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_a_user_that_does_not_exist_is_challenged_like_the_others_and_alike_by_each_node() -> None:
    """Decoys of 16 bytes and 4,096 iterations, from each node's own key, showed which users exist."""
    like = Stored(b"s" * 32, b"stored", b"server", 8192)
    first, other = (decoy(like, own_key, "unknown") for own_key in (b"node 1", b"node 2"))
    assert first == other
    assert (len(first.salt), first.iterations, first.stored_key) == (32, 8192, b"")
    assert decoy(like, b"", "other").salt != first.salt
    assert decoy(like._replace(server_key=b"another"), b"", "unknown").salt != first.salt, (
        "it can't be computed from outside"
    )
    assert len(decoy(None, b"node 1", "unknown").salt) == SALT_BYTES


def test_scram_with_a_wrong_password_fails_without_saying_why() -> None:
    server = exchange()
    challenge = server.evaluate(b"n,,n=alice,r=c")
    assert isinstance(challenge, bytes)
    with pytest.raises(SaslFailure, match="Invalid client credentials") as failed:
        server.evaluate(final("SCRAM-SHA-256", b"wrong", "n=alice,r=c", challenge))
    assert failed.value.for_client is None


def test_a_user_that_does_not_exist_gets_a_challenge_that_is_the_same_at_each_attempt() -> None:
    challenges = {exchange().evaluate(b"n,,n=bob,r=c") for _ in range(2)}
    assert len(challenges) == 1
    server = exchange()
    challenge = server.evaluate(b"n,,n=bob,r=c")
    assert isinstance(challenge, bytes) and challenge.endswith(b",i=4096")
    with pytest.raises(SaslFailure) as failed:
        server.evaluate(final("SCRAM-SHA-256", b"", "n=bob,r=c", challenge))
    assert failed.value.for_client is None


def test_a_delegation_token_authenticates_its_owner() -> None:
    server = exchange()
    bare = "n=token-1,r=c,tokenauth=true"
    challenge = challenge_of(server, b"n,," + bare.encode())
    outcome = server.evaluate(final("SCRAM-SHA-256", PASSWORD, bare, challenge))
    assert isinstance(outcome, Authenticated)
    assert outcome[::2] == (Principal("User", "owner", True), 1234)
    with pytest.raises(SaslFailure, match="Invalid tokenId"):
        exchange().evaluate(b"n,,n=other,r=c,tokenauth=true")


@pytest.mark.parametrize(
    "token",
    [
        b"", b"n,,", b"n,,n=alice", b"n,,n=al=ice,r=c", b"y,,n=alice,r=c", b"p=tls-unique,,n=alice,r=c", b"n,,n=alice,r=",
        b"n,,n=alice,r=c,", b"\xff\xff", b"n,,n=\xc3\xa4,r=c", b"n,,r=c,n=alice", b"n,,n=alice,r=c\0",
    ],
)  # fmt: skip
def test_scram_refuses_a_malformed_first_message_without_repeating_it(token: bytes) -> None:
    with pytest.raises(SaslFailure) as failed:
        exchange().evaluate(token)
    assert str(failed.value) == "Invalid SCRAM client first message format"


@pytest.mark.parametrize(
    "token", [b"", b"c=biws,r=cserver", b"c=biws,r=other,p=AAAA", b"c=biws,r=cserver,p=AAAA", b"c=biws,r=cserver,p=!"]
)
def test_scram_refuses_a_malformed_final_message(token: bytes) -> None:
    server = exchange()
    server.evaluate(b"n,,n=alice,r=c")
    with pytest.raises(SaslFailure):
        server.evaluate(token)


def test_scram_refuses_another_authorization_id_and_a_credential_of_too_few_iterations() -> None:
    with pytest.raises(SaslFailure, match="authorization id that is different"):
        exchange().evaluate(b"n,a=bob,n=alice,r=c")
    with pytest.raises(SaslFailure, match="Iterations 100 is less than the minimum 4096"):
        exchange(iterations=100).evaluate(b"n,,n=alice,r=c")


# -- JAAS ----------------------------------------------------------------------------------------------------------------


def test_a_jaas_property_is_read_as_kafka_writes_it() -> None:
    module = read_module(
        "org.apache.kafka.common.security.plain.PlainLoginModule required \\\n".replace("\\\n", "\n")
        + ' username="admin" password="a \\"quoted\\" one"\n user_alice=plain // a remark\n user_b="";'
    )
    assert module.mechanisms == ("plain",)
    assert module.values == {"username": "admin", "password": 'a "quoted" one', "user_alice": "plain", "user_b": ""}
    assert "quoted" not in repr(module)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Module",
        "Module required",
        'Module required a="b"',
        'M required a="b;',
        "M required a=;",
        "M required; N required;",
    ],
)
def test_a_malformed_jaas_property_is_refused_without_its_passwords(text: str) -> None:
    with pytest.raises(JaasError):
        read_module(text)


@pytest.mark.parametrize(
    "text",
    [
        'Module required password="planted" oops;',
        'Module required password="planted"',
        "Module planted required;",
        'Module password="planted";',
        'Module required password="planted;',
        'Module required "planted";',
        'Module required user_planted="x" "planted" = ;',
    ],
)
def test_what_is_wrong_with_a_jaas_property_is_said_without_its_passwords(text: str) -> None:
    with pytest.raises(JaasError) as refused:
        read_module(text)
    assert "planted" not in str(refused.value)


def test_a_section_of_a_jaas_file_with_nothing_before_its_semicolon_is_refused() -> None:
    with pytest.raises(JaasError):
        read_sections("KafkaServer { ; };")


def test_a_jaas_file_has_sections() -> None:
    sections = read_sections('KafkaServer { A required x="1"; B optional; };\nclient.KafkaServer { };')
    assert [len(modules) for modules in sections.values()] == [2, 0]


# -- The client's side ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", sorted(HASHES))
def test_client_and_server_of_scram_prove_to_each_other_that_they_know_the_password(mechanism: str) -> None:
    client, server = ScramClient(mechanism, "a=b,c", "secret", "c"), exchange(mechanism)
    first = client.answer(b"")
    assert first == b"n,,n=a=3Db=2Cc,r=c" and client.is_slow
    challenge = server.evaluate(first)
    assert isinstance(challenge, bytes)
    proved = client.answer(challenge)
    assert proved is not None and not client.is_slow
    outcome = server.evaluate(proved)
    assert isinstance(outcome, Authenticated) and client.answer(outcome.token) is None


def test_a_client_logs_in_with_a_delegation_token() -> None:
    client, server = ScramClient("SCRAM-SHA-256", "token-1", PASSWORD.decode(), "c", token=True), exchange()
    first = client.answer(b"")
    assert first == b"n,,n=token-1,r=c,tokenauth=true"
    challenge = challenge_of(server, first)
    proved = client.answer(challenge)
    assert proved is not None and isinstance(server.evaluate(proved), Authenticated)


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b"r=other,s=AAAA,i=4096",
        b"r=c,s=AAAA,i=4096",
        b"r=cs,s=AAAA,i=4095",
        b"r=cs,s=AAAA,i=2147483648",
        f"r=cs,s=AAAA,i={ITERATIONS_ACCEPTED_MAX + 1}".encode(),
        b"r=cs,s=AAAA,i=99999999999999999999",
        b"r=cs,s=AAAA,i=-1",
        b"r=cs,s=!,i=4096",
    ],
)
def test_a_client_does_not_compute_what_no_server_should_ask_for(challenge: bytes) -> None:
    client = ScramClient("SCRAM-SHA-256", "alice", "secret", "c")
    client.answer(b"")
    with pytest.raises(LoginRejected):
        client.answer(challenge)


def test_a_client_does_not_trust_a_server_that_does_not_know_the_password() -> None:
    client = ScramClient("SCRAM-SHA-256", "alice", "secret", "c")
    client.answer(b"")
    client.answer(b"r=cs,s=AAAA,i=4096")
    for answer in (b"v=AAAA", b"", b"e=other-error"):
        with pytest.raises(LoginRejected):
            client.answer(answer)


def test_a_client_of_plain_sends_one_token() -> None:
    client = PlainClient("alice", "secret")
    assert client.answer(b"") == b"\0alice\0secret"
    assert client.answer(b"") is None
