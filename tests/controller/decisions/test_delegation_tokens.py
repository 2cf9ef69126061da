"""Delegation tokens: who may make, renew and describe them, and when they end (KIP-48)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from ottla.controller.decisions import delegation_tokens
from ottla.controller.decisions.control_state import DelegationTokenSettings
from ottla.controller.decisions.delegation_tokens import EXPIRED_PER_TURN, create, expire, remove_expired, renew
from ottla.controller.metadata.delegation_tokens import DelegationToken, record_of
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from ottla.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from ottla.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from ottla.protocol.messages.shared_structs import TokenPrincipal
from ottla.server.principal import ANONYMOUS, Principal
from ottla.server.sasl.delegation_tokens import TokensByHmac, hmac_of, may_handle_tokens, principal_of
from tests.controller.harness import DecisionHarness

KEY = "the-key-of-the-cluster"
ALICE, BOB, EVE = (Principal("User", name) for name in ("alice", "bob", "eve"))
DAY_MS = 86_400_000
NOW_MS = 1_700_000_000_000


class Tokens(DecisionHarness):
    def __init__(self) -> None:
        super().__init__()
        settings = replace(self.state.settings, delegation_tokens=DelegationTokenSettings(KEY))
        self.state.settings = settings
        self.by_hmac = TokensByHmac(KEY)
        self.rng = Random(1)

    def create(
        self, lifetime_ms: int = -1, renewers: tuple[str, ...] = ("bob",), kind: str = "User"
    ) -> CreateDelegationTokenResponse:
        request = CreateDelegationTokenRequest(
            renewers=[TokenPrincipal(kind, name) for name in renewers], max_lifetime_ms=lifetime_ms
        )
        return self.decide(create(self.state, request, ALICE, ALICE, NOW_MS, self.rng))

    def renew(self, secret: bytes, who: Principal = ALICE, period_ms: int = -1, now_ms: int = NOW_MS) -> int:
        request = RenewDelegationTokenRequest(secret, period_ms)
        return self.decide(renew(self.state, request, who, self.by_hmac, now_ms)).expiry_timestamp_ms

    def expire(self, secret: bytes, who: Principal = ALICE, period_ms: int = -1, now_ms: int = NOW_MS) -> int:
        request = ExpireDelegationTokenRequest(secret, period_ms)
        return self.decide(expire(self.state, request, who, self.by_hmac, now_ms)).expiry_timestamp_ms

    @property
    def ids(self) -> set[str]:
        return set(self.state.image.delegation_tokens.tokens)


@pytest.fixture
def tokens() -> Tokens:
    return Tokens()


def refusal(call: Callable[..., object], *args: object, **more: object) -> ErrorCode:
    with pytest.raises(KafkaError) as error:
        call(*args, **more)
    return error.value.code


def test_a_token_is_an_id_and_the_hmac_of_it(tokens: Tokens) -> None:
    made = tokens.create()
    assert made.hmac == hmac_of(KEY, made.token_id) and len(made.hmac) == 64
    assert (made.issue_timestamp_ms, made.expiry_timestamp_ms - NOW_MS, made.max_timestamp_ms - NOW_MS) == (
        NOW_MS,
        DAY_MS,
        7 * DAY_MS,
    )
    stored = tokens.state.image.delegation_tokens.tokens[made.token_id]
    assert (stored.owner, stored.requester, stored.renewers) == ("User:alice", "User:alice", ("User:bob",))
    assert KEY not in repr(tokens.state.settings)


def test_the_client_may_shorten_a_tokens_life_but_not_prolong_it(tokens: Tokens) -> None:
    made = tokens.create(1_000)
    assert made.max_timestamp_ms == made.expiry_timestamp_ms == NOW_MS + 1_000
    assert tokens.create(70 * DAY_MS).max_timestamp_ms == NOW_MS + 7 * DAY_MS


def test_renewers_are_users(tokens: Tokens) -> None:
    assert refusal(tokens.create, kind="Group") is ErrorCode.INVALID_PRINCIPAL_TYPE


def test_owner_and_renewers_renew_until_the_tokens_end(tokens: Tokens) -> None:
    secret = tokens.create().hmac
    assert tokens.renew(secret, BOB, 2_000) == NOW_MS + 2_000
    assert tokens.renew(secret, ALICE, -1, NOW_MS + 1_000) == NOW_MS + 1_000 + DAY_MS
    for day in range(1, 7):
        tokens.renew(secret, now_ms=NOW_MS + day * DAY_MS)
    assert tokens.renew(secret, now_ms=NOW_MS + 6 * DAY_MS + 1) == NOW_MS + 7 * DAY_MS
    assert refusal(tokens.renew, secret, EVE) is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert refusal(tokens.renew, b"other") is ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert refusal(tokens.renew, secret, now_ms=NOW_MS + 8 * DAY_MS) is ErrorCode.DELEGATION_TOKEN_EXPIRED


def test_the_requester_of_anothers_token_sees_it_and_may_neither_renew_nor_expire_it(tokens: Tokens) -> None:
    made = tokens.decide(create(tokens.state, CreateDelegationTokenRequest(), BOB, EVE, NOW_MS, tokens.rng))
    assert tokens.state.image.delegation_tokens.tokens[made.token_id].seen_by == ("User:bob", "User:eve")
    for change in (tokens.renew, tokens.expire):
        assert refusal(change, made.hmac, EVE) is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH


def test_a_token_is_expired_at_once_or_later(tokens: Tokens) -> None:
    first, second = tokens.create(), tokens.create()
    assert refusal(tokens.expire, first.hmac, EVE) is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert tokens.expire(first.hmac, BOB) == NOW_MS and tokens.ids == {second.token_id}
    assert tokens.expire(second.hmac, period_ms=500) == NOW_MS + 500
    assert refusal(tokens.expire, second.hmac, period_ms=500, now_ms=NOW_MS + 501) is ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert refusal(tokens.expire, first.hmac) is ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    tokens.expire(second.hmac, now_ms=NOW_MS + 501)
    assert not tokens.ids


def test_expired_tokens_are_removed_some_in_each_decision(tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delegation_tokens, "EXPIRED_PER_TURN", 2)
    assert EXPIRED_PER_TURN == 1_000
    made = [tokens.create(1_000) for _ in range(3)]
    stays = tokens.create()
    assert tokens.decide(remove_expired(tokens.state, NOW_MS + 1_000)) is False and len(tokens.ids) == 4
    assert tokens.decide(remove_expired(tokens.state, NOW_MS + 1_001)) is True
    assert tokens.decide(remove_expired(tokens.state, NOW_MS + 1_001)) is False
    assert tokens.ids == {stays.token_id} and len(made) == 3


def test_secrets_of_tokens_that_are_gone_are_forgotten() -> None:
    by_hmac = TokensByHmac(KEY)
    ids = {"a", "b"}
    assert by_hmac.find(ids, hmac_of(KEY, "a")) == "a"
    assert by_hmac.find({"b"}, hmac_of(KEY, "a")) is None
    assert by_hmac.find({"b"}, hmac_of(KEY, "b")) == "b"
    assert by_hmac.find(ids, hmac_of(KEY, "a")) == "a"
    assert by_hmac.find(ids, hmac_of("another key", "a")) is None


def test_a_token_is_found_by_its_secret_of_either_key() -> None:
    by_hmac = TokensByHmac(KEY, "another key")
    for key in (KEY, "another key"):
        assert by_hmac.find({"a", "b"}, hmac_of(key, "a")) == "a"
        assert by_hmac.find({"b"}, hmac_of(key, "a")) is None
    assert by_hmac.find({"a", "b"}, hmac_of("a third one", "a")) is None


def test_only_authenticated_clients_without_a_token_handle_tokens() -> None:
    assert may_handle_tokens(ALICE) and not may_handle_tokens(ANONYMOUS)
    assert not may_handle_tokens(ALICE._replace(token_authenticated=True))
    assert principal_of("User:a:b") == Principal("User", "a:b")


def test_a_token_in_a_snapshot_is_the_same_token() -> None:
    token = DelegationToken("User:a", "User:b", ("User:c",), 1, 2, 3, "id")
    record = record_of(token)
    assert (record.owner, record.requester, record.renewers, record.expiration_timestamp) == (
        "User:a",
        "User:b",
        ["User:c"],
        3,
    )
