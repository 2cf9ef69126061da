"""ssl.principal.mapping.rules, with the cases of Kafka's documentation."""

from __future__ import annotations

import pytest

from ottla.server.config.key import ConfigError
from ottla.server.tls.distinguished_names import mapped_name, read_rules

RULES = """
 RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,
 RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,
 RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U,
 DEFAULT
"""


@pytest.mark.parametrize(
    ("rules", "name", "mapped"),
    [
        (RULES, "CN=kafka1,OU=ServiceUsers,O=Unknown,C=x", "kafka1"),
        (RULES, "CN=Duke,OU=JavaSoft,O=Sun,L=City,ST=State,C=US", "duke@javasoft"),
        (RULES, "OU=JavaSoft,CN=duke.x,O=Sun", "DUKE.X"),
        (RULES, "OU=JavaSoft,O=Sun", "OU=JavaSoft,O=Sun"),
        ("DEFAULT", "CN=a", "CN=a"),
        ("RULE:^CN=([^,]*),.*$/a\\/$1/L,DEFAULT", "CN=B,O=x", "a/b"),
        ("RULE:CN=(\\w+)\\/(\\w+)/$2-$1-$3-$12/", "CN=a/b", "b-a-$3-a2"),
        ("RULE:^CN=(.*)$/\\$1/", "CN=a", "$1"),
        ("RULE:.*/x/", "abc", "xx"),  # as Java's replaceAll: the empty rest matches as well
    ],
)
def test_the_first_rule_that_matches_the_whole_name_decides(rules: str, name: str, mapped: str) -> None:
    assert mapped_name(read_rules(rules), name) == mapped


def test_a_name_that_no_rule_takes_is_not_let_in() -> None:
    with pytest.raises(ValueError, match="No rules apply to CN=a"):
        mapped_name(read_rules("RULE:^O=(.*)$/$1/"), "CN=a")


@pytest.mark.parametrize("rules", ["DEFAULTS", "RULE:a/b", "RULE:a", "default", "RULE:(/b/", "DEFAULT RULE:a/b/", "x"])
def test_rules_that_cannot_be_read_are_refused(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules") as caught:
        read_rules(rules)
    assert caught.value.what_to_try
