"""The guards of the HTTP servers. Each is removed in a copy of the code, and a test of hostile clients must notice that.

python -m tests.ottla.web.mutants            all
python -m tests.ottla.web.mutants SUBSTRING  those whose description has it
"""

from __future__ import annotations

import sys

from tests.broker.replication.mutants import Mutant, main

CONNECTIONS, RULES, SERVER = "ottla/web/connections.py", "ottla/web/rules.py", "ottla/web/server.py"
ADMIN, CONSOLE, REGISTRY = "ottla/server/admin.py", "ottla/console/guard.py", "ottla/registry/server.py"
CATALOG, OF_CATALOG = "ottla/tables/catalog_server.py", "[ottla/tables/catalog_server]"
HOSTILE, OWN = "tests/ottla/web/test_hostile_http.py::", "tests/ottla/web/test_connections.py::"
OF_RULES, OF_CERTIFICATE = "tests/ottla/web/test_rules.py::", "tests/ottla/web/test_certificate.py::"
CERTIFICATE = "ottla/web/certificate.py"
OTHER_SITES = HOSTILE + "test_a_page_of_another_site_gets_nothing"
MALFORMED = HOSTILE + "test_none_is_served_and_the_next_one_is"
SLOW = HOSTILE + "test_a_request_that_does_not_come_to_its_end_ends_with_its_connection"
ROOM = HOSTILE + "test_silent_connections_make_room"
OF_CONSOLE, OF_REGISTRY = "[ottla/console/server]", "[ottla/registry/server]"
OF_ADMIN, OF_MIRROR = "[server/admin]", "[ottla/cli/commands/mirror]"

MUTANTS = (
    Mutant(
        "any name is taken in Host",
        RULES,
        "        if self._hosts is not None and not is_known(host, self._hosts):\n",
        "        if not self._hosts and not is_known(host, self._hosts or ()):\n",
        OTHER_SITES + OF_CONSOLE,
    ),
    Mutant(
        "a name that begins with an address is one",
        "ottla/server/hosts.py",
        "        ip_address(name)\n    except",
        '        ip_address(".".join(name.split(".")[:4]))\n    except',
        OTHER_SITES + OF_REGISTRY,
    ),
    Mutant(
        "Sec-Fetch-Site is not looked at",
        RULES,
        '        if site not in ("none", "same-origin") and (is_change or mode != NAVIGATION):\n',
        '        if site == "evil" and (is_change or mode != NAVIGATION):\n',
        OTHER_SITES + OF_CONSOLE,
    ),
    Mutant(
        "other sites may change what they link to",
        RULES,
        "and (is_change or mode != NAVIGATION)",
        "and mode != NAVIGATION",
        OTHER_SITES + OF_REGISTRY,
    ),
    Mutant(
        "other sites may have pictures and scripts",
        RULES,
        "and (is_change or mode != NAVIGATION)",
        "and is_change",
        OTHER_SITES + OF_CONSOLE,
    ),
    Mutant(
        "a server with TLS takes pages without it for its own",
        RULES,
        '        self._schemes = ("https",) if is_tls else ("http", "https")\n',
        '        self._schemes = ("http", "https")\n',
        OF_RULES + "test_a_server_with_tls_of_its_own_has_no_pages_without",
    ),
    Mutant(
        "the port of an origin is not looked at",
        RULES,
        "parts.hostname, parts.port or PORTS[parts.scheme]\n",
        "parts.hostname, 0\n",
        OF_RULES + "test_the_origin_has_the_name_and_the_port_of_the_host[http://localhost:1-localhost:9490-403]",
    ),
    Mutant(
        "Origin is not looked at",
        RULES,
        "        if origin is not None and not self._is_own(origin, host):\n",
        '        if origin == "evil" and not self._is_own(origin, host):\n',
        OTHER_SITES + OF_REGISTRY,
    ),
    Mutant(
        "a hidden origin is as if there were none",
        RULES,
        "        if origin is not None and not",
        '        if origin not in (None, "null") and not',
        OTHER_SITES + OF_CONSOLE,
    ),
    Mutant(
        "a body may have any type",
        RULES,
        "        if is_change and kind and kind not in self._bodies:\n",
        '        if is_change and kind == "evil" and kind not in self._bodies:\n',
        OTHER_SITES + OF_REGISTRY,
    ),
    Mutant(
        "the console does not ask the rules",
        CONSOLE,
        '        problem = self._rules.problem(scope["method"], headers)\n',
        "        problem = None\n",
        OTHER_SITES + OF_CONSOLE,
    ),
    Mutant(
        "the registry does not ask the rules",
        REGISTRY,
        "        Ruled(application, settings.rules(), _refusal),\n",
        "        application,\n",
        OTHER_SITES + OF_REGISTRY,
    ),
    Mutant(
        "the catalog of tables does not ask the rules",
        CATALOG,
        "        Ruled(application, settings.rules(), _refusal),\n",
        "        application,\n",
        OTHER_SITES + OF_CATALOG,
    ),
    Mutant(
        "a registry of this machine answers to each name",
        RULES,
        "        if not allowed and not is_loopback(host):\n",
        "        if not allowed:\n",
        OTHER_SITES + OF_REGISTRY,
    ),
    Mutant(
        "an admin listener answers to each name",
        ADMIN,
        "        return host is None or not is_loopback(self.host) or is_of_this_network(host, self.host)\n",
        "        return True\n",
        OTHER_SITES + OF_MIRROR,
    ),
    Mutant(
        "a head may take for ever",
        CONNECTIONS,
        "LIMITS_S = {HANDSHAKE: HEAD_S, HEAD: HEAD_S, BODY: BODY_S}\n",
        "LIMITS_S = {HANDSHAKE: HEAD_S, BODY: BODY_S}\n",
        SLOW + OF_REGISTRY,
    ),
    Mutant(
        "a body may take for ever",
        CONNECTIONS,
        "LIMITS_S = {HANDSHAKE: HEAD_S, HEAD: HEAD_S, BODY: BODY_S}\n",
        "LIMITS_S = {HANDSHAKE: HEAD_S, HEAD: HEAD_S}\n",
        SLOW + OF_REGISTRY,
    ),
    Mutant(
        "a TLS handshake may take as long as OpenSSL lets it",
        CONNECTIONS,
        "LIMITS_S = {HANDSHAKE: HEAD_S, HEAD: HEAD_S, BODY: BODY_S}\n",
        "LIMITS_S = {HEAD: HEAD_S, BODY: BODY_S}\n",
        OWN + "test_a_tls_handshake_that_does_not_come_to_its_end_is_closed",
    ),
    Mutant(
        "each byte begins the time of a head again",
        CONNECTIONS,
        "        seen = (self.phase(), self.cycle)  # each request has another `cycle`\n",
        "        seen = (self.phase(), object())\n",
        SLOW + OF_CONSOLE,
    ),
    Mutant(
        "an admin connection may be silent for ever",
        ADMIN,
        "call_later(IDLE_TIMEOUT_MS, self.abort)",
        "call_later(3_600_000, self.abort)",
        SLOW + OF_MIRROR,
    ),
    Mutant(
        "one that does not read its answer stays",
        CONNECTIONS,
        "        return bool(unread) and now_s - self._unread_s > UNREAD_S\n",
        "        return False\n",
        OWN + "test_one_that_does_not_read_its_answer_is_closed_and_one_that_reads_gets_all",
    ),
    Mutant(
        "answers that no one reads may have any number of bytes together",
        CONNECTIONS,
        "        while unread > UNREAD_BYTES_MAX:\n",
        "        while unread > 100 * UNREAD_BYTES_MAX:\n",
        OWN + "test_answers_that_no_one_reads_are_bounded_in_bytes_and_the_largest_goes",
    ),
    Mutant(
        "a connection whose request is under way makes room",
        CONNECTIONS,
        "if each.phase() != ANSWER]\n",
        "if each.phase()]\n",
        OWN + "test_those_whose_requests_are_answered_make_no_room",
    ),
    Mutant(
        "one that is idle between two requests goes before one that was never answered",
        CONNECTIONS,
        "key=lambda each: (each.was_answered, each.since_s)",
        "key=lambda each: each.since_s",
        OWN + "test_silent_ones_make_room_for_one_that_asks",
    ),
    Mutant(
        "silent connections make no room",
        CONNECTIONS,
        "        if len(self._all) >= self._connections_max:\n",
        "        if len(self._all) >= 100 * self._connections_max:\n",
        ROOM + OF_CONSOLE,
    ),
    Mutant(
        "the newest connection makes room, and not the one that has waited longest",
        CONNECTIONS,
        "                min(waiting, key=",
        "                max(waiting, key=",
        ROOM + OF_REGISTRY,
    ),
    Mutant(
        "silent connections of an admin listener make no room",
        ADMIN,
        "        if len(connections) >= CONNECTIONS_MAX:\n",
        "        if len(connections) >= 100 * CONNECTIONS_MAX:\n",
        ROOM + OF_ADMIN,
    ),
    Mutant(
        "a head may have any size",
        SERVER,
        "                h11_max_incomplete_event_size=HEAD_BYTES_MAX,\n",
        "                h11_max_incomplete_event_size=1 << 30,\n",
        MALFORMED + OF_REGISTRY,
    ),
    Mutant(
        "a head that comes at once may have any size",
        CONNECTIONS,
        "        for at in range(0, len(data), HEAD_BYTES_MAX):\n            if not self.transport.is_closing():\n"
        "                super().data_received(data[at : at + HEAD_BYTES_MAX])\n",
        "        super().data_received(data)\n",
        MALFORMED + OF_REGISTRY,
    ),
    Mutant(
        "a renewed certificate is read and not used",
        SERVER,
        "                self.connections.tls = self._certificate.context\n",
        "",
        OF_CERTIFICATE + "test_new_connections_get_the_renewed_certificate",
    ),
    Mutant(
        "a renewed certificate that cannot be used is not tried again",
        CERTIFICATE,
        "(self._rejection is None or now_s < self._retry_s)",
        "True",
        OF_CERTIFICATE + "test_a_certificate_that_cannot_be_used_is_tried_again_until_it_can",
    ),
    Mutant(
        "a head of an admin listener may have any size",
        ADMIN,
        "> REQUEST_BYTES_MAX:\n            self._write(Answer(431",
        "> 1 << 30:\n            self._write(Answer(431",
        MALFORMED + OF_ADMIN,
    ),
    Mutant(
        "an admin listener takes what follows a body as the next request",
        ADMIN,
        '    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:\n',
        '    if "transfer-encoding" in headers:\n',
        HOSTILE + "test_a_body_for_a_listener_that_expects_none_ends_the_connection",
    ),
)

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], MUTANTS))
