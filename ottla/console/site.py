"""The site: what all pages share, how a page is rendered, and how a change is confirmed and made."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from ottla.client.cluster import ClusterClient
from ottla.client.failures import NO_SUCH_THING, Failure, Kind
from ottla.client.values import INT32_MAX, number_in
from ottla.console import texts
from ottla.console.access import ConsoleAccess
from ottla.console.decoding import registry_client, registry_values
from ottla.console.guard import FIELD, is_right_token
from ottla.console.matching import Decode
from ottla.console.options import ConsoleOptions
from ottla.console.panels import LIMIT_S, Panels, Shown
from ottla.console.problems import remedy_of
from ottla.console.record_view import visible
from ottla.console.roles import PERMISSIONS, ConsoleUser, Role
from ottla.console.sampler import MoveRates, Sampler
from ottla.console.schemas import SchemaBrowser
from ottla.console.snapshot import ConsoleSnapshot
from ottla.console.table_process import TableBrowser
from ottla.console.value_filter import VALUE_BYTES_MAX
from ottla.console.window import Event

T = TypeVar("T")

log = logging.getLogger(__name__)

Fields = Mapping[str, str]
#: The name that a user types to confirm a change. For a new thing it comes from the form.
Name = str | Callable[[Fields], str]
#: Makes a change. Returns a sentence about it, with the next page unless that is the usual one, or a complete page.
Make = Callable[[ClusterClient, Fields], Awaitable["str | ChangeDone | Response"]]
#: Returns the page that shows why a change failed, with the form as the user filled it in.
Failed = Callable[[Fields, Failure], Awaitable[Response]]

FOLDER = Path(__file__).parent
#: The largest body of a form. Most have some hundred bytes; the longest are plans of 500 moves and resets of 2,000 offsets.
FORM_BYTES_MAX = 256 * 1024
FIELDS_MAX = 200
#: The characters of the sentence about a change that are logged, and kept for the timeline.
NOTE_CHARS_MAX = 500
#: Each page marks a sample that is older than this.
STALE_INTERVALS = 4


class ChangeDone(NamedTuple):
    """The sentence about a change, and the next page."""

    text: str
    back: str


class WrongToken(Failure):
    """A form that lacks the token of its session."""


class Denied(Failure):
    """A request that the user's role does not allow."""


STATUS = {WrongToken: 403, Denied: 403}


def not_there(what: str) -> Failure:
    return Failure(f"there is no {what}", "it may have been deleted", Kind.NOT_THERE)


class Site:
    """One console: its cluster, its sampler, its panels and its templates."""

    def __init__(
        self,
        options: ConsoleOptions,
        access: ConsoleAccess,
        sampler: Sampler,
        menu: Sequence[tuple[str, str]],
        clusters: Sequence[str] = (),
    ) -> None:
        """Take the paths and names of the menu. `names` are those of all clusters of the process, for the switch between them."""
        self.menu = tuple(menu)
        self.clusters = tuple(clusters)
        self.options = options
        self.access = access
        self.sampler = sampler
        self.panels = Panels()
        self.move_rates = MoveRates()
        client = registry_client(options.registry, options.registry_config)
        self.decoder = None if client is None else registry_values(client)
        # A filter needs complete values, while those of a page are cut.
        self._filtered = None if client is None else registry_values(client, VALUE_BYTES_MAX, cut=False)
        self.schemas = None if client is None else SchemaBrowser(client)
        self.tables = None if options.tables is None else TableBrowser(options.tables)
        self._templates = Environment(
            loader=FileSystemLoader(FOLDER / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
        )
        self._templates.filters.update(texts.FILTERS, visible=visible)

    @property
    def decode(self) -> Decode | None:
        """Return the function that decodes values for a filter, or None without a registry."""
        return None if self._filtered is None else self._filtered.decode_for_filter

    async def close(self) -> None:
        self.panels.close()
        for each in (self.decoder, self._filtered, self.schemas, self.tables):
            if each is not None:
                await each.close()

    def render(self, request: Request, template: str, status: int = 200, **context: Any) -> Response:
        """Return a page. A request from htmx gets only the part of the page that changes by itself."""
        root = root_of(request)
        text = self._templates.get_template(template).render(
            root=root,
            query=partial(rooted_query, root),
            pages=self.menu,
            clusters=self.clusters,
            frame="fragment.html" if request.headers.get("hx-request") else "base.html",
            csrf=request.scope["ottla.csrf"],
            path=request.url.path.removeprefix(root),
            here=request.url.path + (f"?{request.url.query}" if request.url.query else ""),
            options=self.options,
            console_user=(user := self.user(request)),
            may=lambda path: user.role >= PERMISSIONS[path],
            sampler=self.sampler,
            snapshot=self.sampler.snapshot,
            sample_age=self.sample_age(),
            **context,
        )
        return HTMLResponse(text, status)

    def rows(self, request: Request, template: str, **context: Any) -> str:
        """Return a part of a page that a stream sends."""
        links = partial(rooted_query, root_of(request))
        return str(self._templates.get_template(template).render(query=links, **context))

    def sample_age(self) -> float | None:
        """Return the seconds since the last sample if they are too many, or else None."""
        if self.sampler.sampled_s is None:
            return None
        age = time.monotonic() - self.sampler.sampled_s
        return age if age > STALE_INTERVALS * self.sampler.interval_s or self.sampler.problem else None

    def problem(self, request: Request, fault: Failure) -> Response:
        """Return the page about a failure. The status is 404 if something that was named does not exist."""
        status = STATUS.get(type(fault)) or (404 if fault.kind in NO_SUCH_THING else 422)
        return self.render(request, "problem.html", status, cause=fault.cause, hint=remedy_of(fault))

    async def snapshot_with(self, topic: str, partition: int | None = None) -> ConsoleSnapshot | None:
        """Return the newest sample, None before the first one. If it lacks the topic, which may be new, wait for a sample that begins now.

        Raises:
            Failure: there is no such topic, or no such partition of it.
        """
        if self.sampler.snapshot is not None and topic not in self.sampler.snapshot.topics:
            await self.sampler.newer(LIMIT_S)
        if self.sampler.snapshot is not None:
            found = self.sampler.snapshot.topics.get(topic)
            if found is None:
                raise not_there(f"topic {topic}")
            if partition is not None and partition >= len(found):
                raise not_there(f"partition {topic}-{partition}")
        return self.sampler.snapshot

    def check_token(self, request: Request, fields: Fields) -> None:
        """Check that a form was made by a page of this session.

        Raises:
            WrongToken: it was not.
        """
        if not is_right_token(fields.get(FIELD, ""), request.scope):
            raise WrongToken("this form is not of this console", "load the page again")

    def user(self, request: Request) -> ConsoleUser:
        """Return the user of a request, with the role that the console allows: without --allow-changes all users may only read."""
        user: ConsoleUser = request.scope["ottla.user"]
        return user if self.options.allow_changes else user._replace(role=Role.VIEWER)

    def denied(self, request: Request, needed: Role) -> Response:
        """Return the page for a request that the user's role does not allow."""
        if not self.options.allow_changes:
            fault = Denied("this console only looks", "start it with --allow-changes to change something")
        else:
            user = self.user(request)
            path = in_one_line(request.url.path[:NOTE_CHARS_MAX])
            log.warning("%s (%s) may not %s %s", in_one_line(user.shown), user.role.word, request.method, path)
            cause = f"this takes the role {needed.word}, and {user.shown} is {user.role.word}"
            fault = Denied(cause, "roles stand in the file of --login-file")
        return self.problem(request, fault)

    def _note(self, request: Request, text: str) -> None:
        """Log a change with its user, and add it to the timeline."""
        user, text = self.user(request), visible(text[:NOTE_CHARS_MAX])
        log.info("%s (%s): %s", in_one_line(user.shown), user.role.word, in_one_line(text))
        self.sampler.window.record([Event(time.time_ns() // 1_000_000, "change", user.shown, text)])

    async def change(
        self, request: Request, names: Name | None, make: Make, back: str, failed: Failed | None = None
    ) -> Response:
        """Make a change that a form has asked for and that the user has confirmed by typing `names`; None means that no
        confirmation is needed. `back` is the page after it.
        """
        fields = await form(request)
        self.check_token(request, fields)
        wanted = names if isinstance(names, str) or names is None else names(fields)
        if wanted is not None and (not wanted or fields.get("confirm") != wanted):
            cause = f"the confirmation is not {wanted!r}: nothing was changed"
            return self.problem(request, Failure(cause, "go back, and type the name as it stands there"))
        try:
            async with self.access.change() as cluster:
                done = await make(cluster, fields)
        except Failure as fault:
            return self.problem(request, fault) if failed is None else await failed(fields, fault)
        self.panels.forget()
        self._note(request, request.url.path if isinstance(done, Response) else str(getattr(done, "text", done)))
        if isinstance(done, Response):
            return done
        if isinstance(done, str):
            done = ChangeDone(done, back)
        return RedirectResponse(
            f"{root_of(request)}{done.back}{'&' if '?' in done.back else '?'}{urlencode({'done': done.text})}", 303
        )


async def form(request: Request) -> dict[str, str]:
    """Return the fields of a posted form.

    Raises:
        Failure: it is larger than any form of the console.
    """
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > FORM_BYTES_MAX:
            raise Failure(f"a form of more than {FORM_BYTES_MAX} bytes")
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=FIELDS_MAX))
    except ValueError:
        raise Failure("this is no form of this console") from None


def in_one_line(text: str) -> str:
    """Return a text for the log, in which a name cannot begin a line of its own."""
    return visible(text).replace("\n", "\\n").replace("\t", "\\t")


def root_of(request: Request) -> str:
    """Return the prefix of the paths of a cluster's pages: "/c/NAME", or nothing if there is only one cluster."""
    return str(request.scope.get("root_path", ""))


def rooted_query(root: str, path: str, /, **fields: object) -> str:
    return root + query(path, **fields)


def query(path: str, /, **fields: object) -> str:
    """Return a link to a page with fields. Fields that are None or empty are left out."""
    pairs = {name: str(value) for name, value in fields.items() if value not in (None, "")}
    return f"{path}?{urlencode(pairs)}" if pairs else path


def number(request: Request, name: str, default: int, low: int, high: int) -> int:
    """Return a field of the query as a number within bounds, or the default if it is no number."""
    text = request.query_params.get(name, "")
    try:
        return min(max(int(text), low), high)
    except ValueError:
        return default


def named(request: Request, field: str, what: str) -> str:
    """Return the name that the link of a page must have.

    Raises:
        Failure: it has none.
    """
    if not (name := str(request.query_params.get(field, ""))):
        raise not_there(f"{what} without a name")
    return name


def index_in(fields: Fields, field: str, what: str, low: int = 0) -> int | None:
    """Return the number of a partition or a version in a link, None if it has none.

    Raises:
        Failure: it is no such number.
    """
    if not (text := fields.get(field, "")):
        return None
    index = number_in(text, low, INT32_MAX)
    if index is None:
        raise not_there(f"{what} {text}")
    return index


def chosen(shown: Shown[Any] | None, what: str | None, rows: Iterable[T]) -> T | None:
    """Return the first row, which is the one that a link names. None if it names none (`what`), or if the rows are not known.

    Raises:
        Failure: the rows of the panel are known, and none is it.
    """
    row = next(iter(rows), None)
    if row is None and what is not None and shown is not None and shown.value is not None and not shown.problem:
        raise not_there(what)
    return row
