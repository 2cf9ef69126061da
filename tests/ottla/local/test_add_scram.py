"""--add-scram of kafka-storage format: the record that it makes, and the arguments that it rejects."""

from __future__ import annotations

import base64
from random import Random

import pytest

from ottla.local.add_scram import read_add_scram
from ottla.server.sasl.scram import keys_of, salted_password

SALT = base64.b64encode(b"s" * 16).decode()


def test_a_password_and_the_same_salted_password_make_the_same_keys() -> None:
    salted = base64.b64encode(salted_password("sha256", b"secret", b"s" * 16, 8192)).decode()
    plain = read_add_scram(f'SCRAM-SHA-256=[name=alice,password=secret,iterations=8192,salt="{SALT}"]', Random(1))
    ready = read_add_scram(
        f'SCRAM-SHA-256=[name="alice",iterations=8192,salt="{SALT}",saltedpassword="{salted}"]', Random(1)
    )
    assert plain == ready
    assert (plain.name, plain.mechanism, plain.iterations, plain.salt) == ("alice", 1, 8192, b"s" * 16)
    keys = keys_of("sha256", base64.b64decode(salted))
    assert (plain.stored_key, plain.server_key) == (keys.stored, keys.server)


def test_without_a_salt_there_is_a_random_one_and_the_least_iterations() -> None:
    one, other = (read_add_scram("SCRAM-SHA-512=[name=a,password=b]", Random(seed)) for seed in (1, 2))
    assert one.salt != other.salt
    assert (one.mechanism, one.iterations) == (2, 4096)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "add-scram wants"),
        ("SCRAM-SHA-256", "add-scram wants"),
        ("SCRAM-SHA-1=[name=a,password=hidden]", "SCRAM-SHA-1 is not one of"),
        ("SCRAM-SHA-256=[password=hidden]", "You must supply 'name'"),
        ("SCRAM-SHA-256=[name=a]", "one of 'password' or 'saltedpassword'"),
        (f"SCRAM-SHA-256=[name=a,password=hidden,saltedpassword={SALT}]", "one of 'password' or 'saltedpassword'"),
        (f"SCRAM-SHA-256=[name=a,saltedpassword={SALT}]", "You must supply 'salt'"),
        (f"SCRAM-SHA-256=[name=a,salt={SALT},saltedpassword=_]", "'saltedpassword' of add-scram is not base64"),
        ("SCRAM-SHA-256=[name=a,password=hidden,iterations=4095]", "'iterations' value must be between"),
        ("SCRAM-SHA-256=[name=a,password=hidden,iterations=16385]", "'iterations' value must be between"),
        ("SCRAM-SHA-256=[name=a,password=hidden,iterations=x]", "'iterations' value must be between"),
        ("SCRAM-SHA-256=[name=a,password=hidden,name=b]", "there twice"),
        ("SCRAM-SHA-256=[name=a,pass=hidden]", "option 'pass'"),
    ],
)
def test_what_is_refused_is_said_without_the_password(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        read_add_scram(text, Random(1))
    assert "hidden" not in str(refused.value)
