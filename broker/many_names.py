"""Requests that name many things: each name is looked at once, and a bounded number of them in one turn of the event loop.

One request of 10 KB named the same broker 2,000 times, and describing it as often held the loop for 6.7 s. Names that the client
may not see cost as much as others, so the guard of an API is behind this, too.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Any, NamedTuple

from ottla.broker.long_work import LongWork
from ottla.protocol.messages.describe_configs import DescribeConfigsResource
from ottla.protocol.work import Work
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Answer, gather
from ottla.server.network.route import Handler

#: The limits of a turn: a group, a transaction or a coordinator takes up to 20 us, the configuration of a broker 3 ms.
NAMES_AT_ONCE = 500
RESOURCES_AT_ONCE = 10


def itself(name: Hashable) -> Hashable:
    return name


def config_resource(resource: DescribeConfigsResource) -> Hashable:
    keys = resource.configuration_keys
    return resource.resource_type, resource.resource_name, None if keys is None else tuple(keys)


class ManyNames(NamedTuple):
    """The field of a request with the names, the field of the response with their answers, and the limit of a turn."""

    field: str
    answers: str
    at_once: int = NAMES_AT_ONCE
    #: What makes two of them the same.
    key: Callable[[Any], Hashable] = itself


def in_parts(work: LongWork, many: ManyNames, handle: Handler) -> Handler:
    """Returns a handler that gives the request to `handle` without repetitions, and in parts if the names are many."""

    def handled(request: Any, context: RequestContext) -> Answer[Any]:
        names = getattr(request, many.field)
        if len(names) > 1:
            distinct: dict[Hashable, Any] = {}
            for name in names:
                distinct.setdefault(many.key(name), name)
            names = list(distinct.values())
            setattr(request, many.field, names)
        if len(names) <= many.at_once:
            return handle(request, context)
        parts = _parts(request, many, lambda part: handle(part, context))
        return work.run(context, parts, partial(gather, combine=partial(_joined, many)), is_search=True)

    return handled


def _parts(request: Any, many: ManyNames, handle: Callable[[Any], Answer[Any]]) -> Work[list[Answer[Any]]]:
    names = getattr(request, many.field)
    answers = []
    for at in range(0, len(names), many.at_once):
        if at:
            yield None
        part = copy.copy(request)
        setattr(part, many.field, names[at : at + many.at_once])
        answers.append(handle(part))
    return answers


def _joined(many: ManyNames, parts: Iterable[Any]) -> Any:
    whole, *rest = parts
    rows = getattr(whole, many.answers)
    for part in rest:
        rows.extend(getattr(part, many.answers))
    return whole
