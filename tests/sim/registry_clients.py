"""Clients of a registry in its history: their requests, and the checks of each response."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Sequence
from typing import Any

from ottla.registry.rest.leader_http import HttpQuestion
from tests.sim.registry_instance import Instance, Web
from tests.sim.registry_truth import Fact, Truth, context_of, schema_of

REFERRED, USER = "ref", "user"
SUBJECTS = ("a", "b", ":.c:a", REFERRED, USER)
LEVELS = ("NONE", "BACKWARD", "FORWARD", "FULL", "BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE")
FIELDS = 4
#: A client waits so long for an answer.
PATIENCE_S = 70.0
#: For so long after a cut, or after the topic was created again, an instance may show the earlier log, or a part of it.
UNSETTLED_S = 60.0


class Client:
    """One client, which sends one request at a time, each to any instance."""

    def __init__(
        self,
        web: Web,
        truth: Truth,
        rng: random.Random,
        running: Callable[[], list[Instance]],
        weights: Sequence[int],
    ) -> None:
        self._web, self._truth, self._rng, self._running, self._weights = web, truth, rng, running, weights
        self.counts: dict[tuple[str, int], int] = {}

    async def run(self, count: int, pause_s: float) -> None:
        for _ in range(count):
            await asyncio.sleep(self._rng.expovariate(1 / pause_s))
            if instances := self._running():
                await self.step(self._rng.choice(instances))

    async def step(self, instance: Instance) -> None:
        subject = self._rng.choice(SUBJECTS)
        match self._rng.choices(range(8), self._weights)[0]:
            case 0:
                await self.register(instance, subject)
            case 1:
                await self.look_up(instance, subject)
            case 2:
                await self.read_id(instance, subject)
            case 3:
                await self.read_versions(instance, subject)
            case 4:
                number = self._rng.choice(sorted(self._truth.versions.get(subject, {1: None})))
                await self.delete(instance, f"{subject}/versions/{number}")
            case 5:
                await self.delete(instance, subject)
            case 6:
                level = self._rng.choice(LEVELS)
                await self.put(instance, "config", subject, {"compatibility": level})
            case 7:
                mode = self._rng.choice(("READWRITE", "READWRITE", "READONLY"))
                await self.put(instance, "mode", subject, {"mode": mode})

    async def ask(self, instance: Instance, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Return the error code, or the status of a good response, and its JSON; 0 if there is none."""
        data = b"" if body is None else json.dumps(body).encode()
        question = HttpQuestion(method, path, {"content-type": "application/json"}, data)
        try:
            async with asyncio.timeout(PATIENCE_S):
                answer = await self._web.ask(instance.host, question)
        except (OSError, TimeoutError):
            return 0, None
        made = json.loads(answer.body)
        code = made["error_code"] if answer.status >= 400 else answer.status
        kind = f"{method} {path.split('/')[1]}"
        self.counts[kind, code] = self.counts.get((kind, code), 0) + 1
        return code, made

    # -- Writes ------------------------------------------------------------------------------------------------------------

    async def register(self, instance: Instance, subject: str) -> bool:
        """Register a schema. Return whether the response had a version."""
        body = self.schema(subject)
        began_s = asyncio.get_running_loop().time()
        code, made = await self.ask(instance, "POST", f"/subjects/{subject}/versions", body)
        if code != 200:
            return False
        now_s = asyncio.get_running_loop().time()
        references = [(each["subject"], each["version"]) for each in body.get("references", ())]
        fact = Fact(subject, made["version"], made["id"], schema_of(body["schema"], references))
        if not self._truth.was(fact, began_s, now_s):
            self._truth.problem(f"{instance.host} has answered {fact}, which the log has not had since {began_s:.3f} s")
        elif not instance.is_over and self._rng.random() < 0.7:
            await self._read_own(instance, fact, now_s)
        return True

    async def _read_own(self, instance: Instance, fact: Fact, since: float) -> None:
        """Check that an instance shows from then on what its response said."""
        code, made = await self.ask(instance, "GET", f"/subjects/{fact.subject}/versions/{fact.version}?deleted=true")
        if code == 0 or instance.is_over or not self._truth.has_had(fact, since) or self._is_unsettled():
            return
        if code != 200 or made["id"] != fact.id:
            self._truth.problem(f"{instance.host} has answered {fact}, and now shows {code} {made}")

    async def delete(self, instance: Instance, what: str) -> None:
        end = "?permanent=true" if self._rng.random() < 0.5 else ""
        await self.ask(instance, "DELETE", f"/subjects/{what}{end}")

    async def put(self, instance: Instance, what: str, subject: str, value: dict[str, str]) -> None:
        await self.ask(instance, "PUT", f"/{what}/{subject}", value)

    # -- Reads -------------------------------------------------------------------------------------------------------------

    async def look_up(self, instance: Instance, subject: str) -> None:
        body = self.schema(subject)
        code, made = await self.ask(instance, "POST", f"/subjects/{subject}", body)
        if code == 200:
            self._check_shown(instance, made)

    async def read_id(self, instance: Instance, subject: str) -> None:
        context = context_of(subject)
        schema_id = self._rng.randint(1, max(self._truth.ids.get(context, ()), default=0) + 1)
        place = f"?subject={subject}" if context else ""
        code, made = await self.ask(instance, "GET", f"/schemas/ids/{schema_id}{place}")
        if code == 200:
            shown = schema_of(made["schema"], _references(made))
            if shown not in self._truth.meanings(context, schema_id, asyncio.get_running_loop().time()):
                self._truth.problem(f"{instance.host} shows id {schema_id} as {shown}, which the log has never had")

    async def read_versions(self, instance: Instance, subject: str) -> None:
        code, made = await self.ask(instance, "GET", f"/subjects/{subject}/versions/latest")
        if code == 200:
            self._check_shown(instance, made)

    def _check_shown(self, instance: Instance, made: dict[str, Any]) -> None:
        fact = Fact(made["subject"], made["version"], made["id"], schema_of(made["schema"], _references(made)))
        if not self._truth.was(fact, 0.0, asyncio.get_running_loop().time()):
            self._truth.problem(f"{instance.host} shows {fact}, which the log has never had")

    def _is_unsettled(self) -> bool:
        return asyncio.get_running_loop().time() - self._truth.broken_s < UNSETTLED_S

    # -- Schemas -----------------------------------------------------------------------------------------------------------

    def schema(self, subject: str) -> dict[str, Any]:
        """Return a schema of some of the subject's fields, each with a default or without one.

        A user's schema also has a record of its reference.
        """
        fields: list[dict[str, Any]] = []
        for number in range(FIELDS):
            match self._rng.choices(range(3), (30, 50, 20))[0]:
                case 1:
                    fields.append({"name": f"f{number}", "type": "int", "default": 0})
                case 2:
                    fields.append({"name": f"f{number}", "type": "int"})
        made: dict[str, Any] = {}
        known = sorted(self._truth.versions.get(REFERRED, ()))
        if subject == USER and known:
            fields.append({"name": "r", "type": "Ref"})
            made["references"] = [{"name": "Ref", "subject": REFERRED, "version": self._rng.choice(known)}]
        name = "Ref" if subject == REFERRED else "R"
        text = json.dumps({"type": "record", "name": name, "fields": fields}, separators=(",", ":"))
        return {"schema": text, **made}


def _references(made: dict[str, Any]) -> list[tuple[str, int]]:
    return [(each["subject"], each["version"]) for each in made.get("references", ())]
