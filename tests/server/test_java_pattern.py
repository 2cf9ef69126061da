"""Java's patterns match the same texts here; the expected results come from java.util.regex of JDK 17."""

from __future__ import annotations

import re
import time
import warnings

import pytest

from ottla.server.config.key import ConfigError
from ottla.server.java_pattern import NAME_LENGTH_MAX, compiled
from ottla.server.sasl import kerberos
from ottla.server.tls import distinguished_names

#: A pattern, a text, whether it matches as a whole, and the text with "<>" around group 1 of each match, or around the match
#: itself if there is no group.
JAVA = [
    (r"CN=(.*)", "CN=a\n", False, "<a>\n"),
    (r"CN=(.*)", "CN=alice\r", False, "<alice>\r"),
    (r"CN=(.*)", "CN=a\r\n", False, "<a>\r\n"),
    (r".*$", "a\u2028", False, "<a><>\u2028<>"),
    (r".*$", "a\r\n", False, "<a><>\r\n<>"),
    (r"CN=.$", "CN=a\r\n", False, "<CN=a>\r\n"),
    (r".\Z", "a\u0085", False, "<a>\u0085"),
    (r".\z", "CN=a\n", False, "CN=a\n"),
    (r"CN=(\d+)", "CN=٧٨", False, "CN=٧٨"),
    (r"CN=(\d+)", "CN=78", True, "<78>"),
    (r"\s+", "a\u00a0b", False, "a\u00a0b"),
    (r"(\w+)\s(\w+)", "a b", True, "<a>"),
    (r"CN=(\S+?)\b.*", "CN=Jürgen", True, "<Jürgen>"),
    (r"\b\w+\b", "éa", False, "éa"),
    (r"\w+", "éü", False, "éü"),
    (r"(?i)É", "é", False, "é"),
    (r"CN=(?i)AL(ice)", "CN=alice", True, "<ice>"),
    (r"a(?i)b|c", "C", True, "<C>"),
    (r"a(?i)b|c", "aB", True, "<aB>"),
    (r"(?:a(?i)b|c)D", "Cd", False, "Cd"),
    (r"(a|b(?i)c|d)E", "dE", True, "<d>"),
    (r"(?i:CN)=(a)", "cn=Alice", False, "cn=Alice"),
    (r"(?s).+", "CN=a\n", True, "<CN=a\n>"),
    (r"(?s:.)\n", "\r\n", True, "<\r\n>"),
    (r"CN=(?<user>[^,]+).*", "CN=alice,OU=ServiceUsers,O=x", True, "<alice>"),
    (r"(?<x>a)\k<x>", "aa", True, "<a>"),
    (r"(a)\11", "aa1", True, "<a>"),
    (r"((((((((((x))))))))))\10", "xxxxx", False, "<x><x>x"),
    (r"\p{Alpha}+", "éa", False, "é<a>"),
    (r"\p{Upper}\P{Digit}*", "CN=a\n", True, "<CN=a\n>"),
    (r"[\p{Lower}\d]+", "CN=78", False, "CN=<78>"),
    (r"\Qa.b\E(.*)", "a.bc", True, "<c>"),
    (r"\h+", "\t \u3000", True, "<\t \u3000>"),
    (r"[\v]+", "a\u2028", False, "a<\u2028>"),
    (r"\R", "\r\n", True, "<\r\n>"),
    (r"\x{41}\u0042", "AB", True, "<AB>"),
    (r"\0101", "A", True, "<A>"),
    (r"[a-]+", "a-b", False, "<a->b"),
    (r"[a-z-9]+", "a-9", True, "<a-9>"),
    (r"[\w-]+", "a-b", True, "<a-b>"),
    (r"[a&b]+", "ab", True, "<ab>"),
    (r"[.$]+", "a.b", False, "a<.>b"),
    (r"a*+|[]x]", "", None, ""),
    (r"(?>a+)b", "aaab", True, "<aaab>"),
    (r"a++a", "aaa", False, "aaa"),
    (r"x]", "x", False, "x"),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "text", "is_match", "replaced"), JAVA)
def test_a_pattern_matches_as_in_java(pattern: str, text: str, is_match: bool | None, replaced: str) -> None:
    if is_match is None:
        with pytest.raises(ValueError, match="a set that begins with"):
            compiled(pattern)
        return
    found = compiled(pattern)
    assert (found.fullmatch(text) is not None) is is_match

    def shown(match: re.Match[str]) -> str:
        return f"<{(match[1] or '') if found.groups else match[0]}>"

    assert found.sub(shown, text) == replaced


@pytest.mark.parametrize(
    "pattern",
    [
        "[a-z&&[^x]]", "[a[bc]]", "[a&&b]", "[[:alpha:]]", r"\p{L}", r"\p{IsAlphabetic}", r"\P{Lu}", "(?m)a", "(?x)a", "(?-i)a", r"\X",
        r"\G", r"\N{DASH}", r"\cA", "(?<=a{1,2})b", r"(a)\2", "(?P<x>a)", "(?#c)", r"[\b]", r"[\H]", "{", "a{,3}", "a{", r"\y", "(a", "a)",
        "[a", "a\\", "[z-a]", "*", r"[a-\d]", r"\k<x>", r"\x{110000}", "a{99999999999}", "(" * 200,
    ],
)  # fmt: skip
def test_what_has_no_counterpart_is_refused_with_the_rule(pattern: str) -> None:
    """Java accepts some of these, and rejects others. None of them silently becomes another pattern here."""
    with warnings.catch_warnings():
        # Only warnings of `re` count: the garbage collector may find objects at any time that other tests have left open.
        warnings.simplefilter("error", FutureWarning)
        warnings.simplefilter("error", DeprecationWarning)
        with pytest.raises(ValueError):
            compiled(pattern)
        with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules"):
            distinguished_names.read_rules(f"RULE:{pattern}/x/")


def test_a_kerberos_rule_that_has_no_counterpart_is_refused() -> None:
    with pytest.raises(ConfigError, match="a set within a set"):
        kerberos.read_rules("R", ["RULE:[1:$1](a)s/[a-z&&b]//"])


@pytest.mark.parametrize("pattern", ["[a||b]+", "[+--]", "[a~~b]", "[.-/]", "[\\w]", "[ #]"])
def test_a_set_that_python_may_read_otherwise_one_day_brings_no_warning(pattern: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        warnings.simplefilter("error", DeprecationWarning)
        compiled(pattern)


@pytest.mark.parametrize(
    ("replacement", "name"),
    [("${user}", "alice"), ("${user}$2", "alicex"), ("\\${user}", "${user}"), ("$1-$12", "alice-alice2")],
)
def test_a_replacement_refers_to_a_group_by_number_or_name(replacement: str, name: str) -> None:
    rules = distinguished_names.read_rules(f"RULE:CN=(?<user>[^,]+),O=(.*)/{replacement}/")
    assert distinguished_names.mapped_name(rules, "CN=alice,O=x") == name


def test_a_replacement_by_a_name_that_no_group_has_lets_no_client_in() -> None:
    with pytest.raises(ValueError, match="no group of the pattern has the name who"):
        distinguished_names.mapped_name(distinguished_names.read_rules("RULE:CN=(.*)/${who}/"), "CN=a")


def test_a_long_name_is_refused_before_a_pattern_looks_at_it() -> None:
    """With the rule in Kafka's documentation the time grows with the sixth power of the name's length."""
    rules = distinguished_names.read_rules(r"RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1/,DEFAULT")
    hostile = "CN=" + ",OU=,O=,L=,ST=,C=\n" * 10_000
    with pytest.raises(ValueError, match="characters"):
        distinguished_names.mapped_name(rules, hostile)
    assert distinguished_names.mapped_name(distinguished_names.read_rules("DEFAULT"), hostile) == hostile
    begin = time.process_time()
    longest = hostile[:NAME_LENGTH_MAX]
    assert distinguished_names.mapped_name(rules, longest) == longest
    assert time.process_time() - begin < 5
    with pytest.raises(ValueError, match="characters"):
        kerberos.short_name(kerberos.read_rules("R", ["RULE:[1:$1](.*)s/a//"]), "a" * 5_000 + "@R")
