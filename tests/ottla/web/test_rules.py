"""Requests that pages of other sites can make are rejected, also behind a proxy that ends TLS; those of programs are accepted."""

from __future__ import annotations

import pytest

from ottla.console.guard import FORMS
from ottla.console.options import ConsoleOptions
from ottla.registry.election import Identity
from ottla.registry.server import BODIES, Settings
from ottla.web.rules import HttpRules

NAMES = frozenset({"localhost", "console.example.com"})
FORM = "application/x-www-form-urlencoded"


def status(rules: HttpRules, method: str = "POST", **headers: str) -> int:
    """Return the status with which a request is rejected, or 200. Names of headers have _ in place of -."""
    found = rules.problem(method, {"host": "localhost:9490"} | {k.replace("_", "-"): v for k, v in headers.items()})
    return 200 if found is None else found[0]


@pytest.mark.parametrize(
    ("host", "wanted"),
    [
        ("localhost:1", 200),
        ("CONSOLE.example.com", 200),
        ("[::1]:9490", 200),
        ("192.0.2.7:9490", 200),
        ("", 400),
        ("evil.example", 400),
        ("127.0.0.1.evil.example", 400),
        ("127.0.0.1@evil.example", 400),
    ],
)
def test_a_name_of_another_site_is_refused_and_an_address_is_no_name(host: str, wanted: int) -> None:
    assert status(HttpRules(NAMES, FORMS), "GET", host=host) == wanted


@pytest.mark.parametrize(
    ("origin", "host", "wanted"),
    [
        ("http://localhost:9490", "localhost:9490", 200),
        ("https://console.example.com", "console.example.com", 200),
        ("https://console.example.com", "console.example.com:443", 200),
        ("https://console.example.com:8443", "console.example.com:8443", 200),
        ("https://console.example.com", "console.example.com:80", 403),
        ("https://evil.example", "console.example.com", 403),
        ("https://console.example.com.evil.example", "console.example.com", 403),
        ("http://localhost:1", "localhost:9490", 403),
        ("file://localhost:9490", "localhost:9490", 403),
        ("null", "localhost:9490", 403),
        ("https://[", "localhost:9490", 403),
    ],
)
def test_the_origin_has_the_name_and_the_port_of_the_host(origin: str, host: str, wanted: int) -> None:
    assert status(HttpRules(NAMES, FORMS), origin=origin, host=host) == wanted


def test_a_server_with_tls_of_its_own_has_no_pages_without() -> None:
    rules = HttpRules(NAMES, FORMS, is_tls=True)
    assert status(rules, origin="http://localhost:9490") == 403
    assert status(rules, origin="https://localhost:9490") == 200


def test_behind_a_proxy_that_puts_its_own_name_in_the_url_says_the_one_of_browsers() -> None:
    options = ConsoleOptions("b", url="https://console.example.com")
    rules = HttpRules(options.host_names(), FORMS, url=options.url)
    assert status(rules, origin="https://console.example.com", host="127.0.0.1:9490") == 200
    assert status(rules, origin="https://other.example.com", host="127.0.0.1:9490") == 403
    assert options.is_reached_by_tls and not ConsoleOptions("b").is_reached_by_tls


def test_other_sites_may_link_and_nothing_else() -> None:
    rules = HttpRules(NAMES, FORMS)
    for site in ("cross-site", "same-site"):
        assert status(rules, "GET", sec_fetch_site=site, sec_fetch_mode="navigate") == 200
        assert status(rules, "GET", sec_fetch_site=site, sec_fetch_mode="no-cors") == 403
        assert status(rules, "POST", sec_fetch_site=site, sec_fetch_mode="navigate") == 403
    assert status(rules, "POST", sec_fetch_site="same-origin", content_type=FORM) == 200


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("application/json", 200),
        ("application/json; charset=utf-8", 200),
        ("Application/vnd.schemaregistry.v1+json", 200),
        ("application/vnd.schemaregistry+json", 200),
        ("application/octet-stream", 200),
        ("", 200),
        ("text/plain", 415),
        ("text/plain;charset=UTF-8", 415),
        (FORM, 415),
        ("multipart/form-data; boundary=x", 415),
    ],
)
def test_the_registry_takes_no_type_that_pages_send_without_asking(kind: str, wanted: int) -> None:
    rules = HttpRules(None, BODIES)
    assert status(rules, content_type=kind) == wanted
    assert status(rules, "GET", content_type=kind) == 200


def settings(host: str, *allowed: str, advertised: str = "registry1") -> Settings:
    identity = Identity("http", advertised, 8081, True)
    return Settings(host, 8081, identity, "_schemas", "g", "BACKWARD", 10_000, allowed_hosts=allowed)


def test_a_registry_of_this_machine_answers_to_no_name_of_elsewhere() -> None:
    for host in ("localhost", "127.0.0.1", "::1"):
        rules = settings(host, advertised="registry1").rules()
        assert status(rules, "DELETE", host="evil.example:8081") == 400
        assert status(rules, "DELETE", host="registry1:8081") == status(rules, "DELETE", host="localhost") == 200
    assert status(settings("0.0.0.0").rules(), "DELETE", host="registry.example.com") == 200
    assert status(settings("0.0.0.0", "registry.example.com").rules(), host="evil.example") == 400
