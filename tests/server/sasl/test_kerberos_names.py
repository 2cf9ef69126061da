"""sasl.kerberos.principal.to.local.rules: each expected name is what Apache Kafka 4.3.1's KerberosShortNamer gives."""

from __future__ import annotations

import pytest

from ottla.server.config.key import ConfigError
from ottla.server.sasl.kerberos import read_rules, short_name

APP = ("RULE:[1:$1](App\\..*)s/App\\.(.*)/$1/g", "RULE:[2:$1](App\\..*)s/App\\.(.*)/$1/g", "DEFAULT")
LOWER = (
    "RULE:[1:$1]/L", "RULE:[2:$1](Test.*)s/ABC///L", "RULE:[2:$1](ABC.*)s/ABC/XYZ/g/L", "RULE:[2:$1](App\\..*)s/App\\.(.*)/$1/g/L",
    "RULE:[2:$1]/L", "DEFAULT",
)  # fmt: skip


@pytest.mark.parametrize(
    ("rules", "principal", "expected"),
    [
        (("DEFAULT",), "alice@REALM", "alice"),
        (("DEFAULT",), "kafka/host.example@REALM", "kafka"),
        (("DEFAULT",), "kafka/@REALM", "kafka"),
        (("DEFAULT",), "alice", "alice"),
        (("DEFAULT",), "@REALM", ""),
        (APP, "App.service-name/example.com@REALM", "service-name"),
        (APP, "App.service-name@REALM", "service-name"),
        (APP, "user/host@REALM", "user"),
        (LOWER, "User@REALM", "user"),
        (LOWER, "TestABC/host@FOO.COM", "test"),
        (LOWER, "ABC_User_ABC/host@FOO.COM", "xyz_user_xyz"),
        (LOWER, "App.SERVICE-name/example.com@REALM", "service-name"),
        (("RULE:[1:$1]/U",), "User@OTHER", "USER"),
        (("RULE:[2:$1.$2.$0]",), "a/b@C", "a.b.C"),
        (("RULE:[1:$1@$0](.*@ACME)s/@.*//",), "bob@ACME", "bob"),
        (("RULE:[1:$1](b.*)", "RULE:[1:other-$1]"), "alice@X", "other-alice"),
        (("RULE:[1:$1](lic)", "DEFAULT"), "alice@REALM", "alice"),  # the pattern has to match the whole name
        (("RULE:[1:$1]s/a/b/",), "aaa@X", "baa"),
        (("RULE:[1:$1]s/a/b/g",), "aaa@X", "bbb"),
        (("RULE:[1:$1]s/(a)(b)/$2$1-\\$/",), "ab@X", "ba-$"),
        (("RULE:[1:user]",), "x@Y", "user"),
        (("RULE:[1:]", "DEFAULT"), "x@Y", ""),
        (("RULE:[01:$1]",), "x@Y", "x"),
    ],
)
def test_the_first_rule_that_applies_names_the_principal(rules: tuple[str, ...], principal: str, expected: str) -> None:
    assert short_name(read_rules("REALM", rules), principal) == expected


@pytest.mark.parametrize(
    ("rules", "principal", "why"),
    [
        (("DEFAULT",), "alice@OTHER", "No rules apply to alice@OTHER"),
        (("RULE:[2:$1]",), "alice@REALM", "No rules apply"),
        (("RULE:[1:$1@$0]", "DEFAULT"), "alice@REALM", "Non-simple name alice@REALM"),
        (("RULE:[1:$2]", "DEFAULT"), "alice@REALM", "outside of the valid range 0 to 1"),
        (("RULE:[1:$x]", "DEFAULT"), "alice@REALM", "outside of the valid range"),
        (("DEFAULT",), "a/b/c@REALM", "Malformed Kerberos name"),
        (("DEFAULT",), "a@b@REALM", "Malformed Kerberos name"),
        ((), "alice@REALM", "No rules apply"),
    ],
)
def test_a_principal_without_a_name_is_rejected(rules: tuple[str, ...], principal: str, why: str) -> None:
    with pytest.raises(ValueError, match=why.replace("/", ".").replace("$", ".")):
        short_name(read_rules("REALM", rules), principal)


@pytest.mark.parametrize(
    "rule",
    [
        "default", "DEFAUL", "DEFAULT/L", "DEFAULT/g", "rule:[1:$1]", "RULE:[1:$1]/L/U", "RULE:[1:$1]/LU", "RULE:[1:$1/L", "RULE:[1:$1]/l",
        "RULE:[2:$1](ABC.*)s/ABC/XYZ/L/g", "RULE:[:$1]", "RULE:[1:$1](*)", "",
    ],
)  # fmt: skip
def test_a_malformed_rule_is_refused(rule: str) -> None:
    with pytest.raises(ConfigError, match=r"sasl\.kerberos\.principal\.to\.local\.rules"):
        read_rules("REALM", [rule])
