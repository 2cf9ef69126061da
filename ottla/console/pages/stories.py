"""Stories on the pages of groups, partitions and transactions: the last decisions with their causes, from the brokers' admin
listeners.

A story has the names and hosts of clients, as the page of a group does. A broker with an authorizer gives no story unless its
properties file allows it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ottla.client.admin_listeners import Story, story_of_group, story_of_partition, story_of_transaction
from ottla.console.panels import Shown
from ottla.console.site import Site, index_in


async def _shown(
    site: Site, key: tuple[object, ...], ask: Callable[[Mapping[int, str]], Awaitable[Story]]
) -> Shown[Story]:
    async def load() -> Story:
        return await ask(site.sampler.listeners)

    return await site.panels.show(("story", *key), load)


async def of_group(site: Site, name: str) -> Shown[Story]:
    return await _shown(site, ("group", name), lambda listeners: story_of_group(listeners, name))


async def of_transaction(site: Site, name: str) -> Shown[Story]:
    return await _shown(site, ("transaction", name), lambda listeners: story_of_transaction(listeners, name))


async def partition_story(request: Request) -> Response:
    site: Site = request.app.state.site
    name = request.path_params["name"]
    index = index_in(request.query_params, "partition", f"partition of {name} with the number") or 0
    await site.snapshot_with(name, index)
    key = ("partition", name, index)
    story = await _shown(site, key, lambda listeners: story_of_partition(listeners, name, index))
    return site.render(request, "partition_story.html", name=name, tab="partitions", index=index, story=story)


ROUTES = [Route("/topics/{name}/story", partition_story)]
