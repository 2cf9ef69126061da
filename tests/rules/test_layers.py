"""The packages that may import each other, and access to the outside: time, chance, files, sockets, tasks."""

from __future__ import annotations

import ast
import re
from typing import TypeAlias

from tests.rules.sources import (
    PARTS,
    ROOT,
    STANDS_ON,
    Source,
    below,
    dotted,
    imported_modules,
    nodes_of,
    package_of,
    pipeline_sources,
    sources,
    tree_of,
)

#: The parts of the controller that a broker may use.
SEEN_BY_BROKER = tuple(f"ottla.controller.{name}" for name in ("metadata", "raft", "node", "runtime"))

#: `ottla dev --faults` imports the test kit in the function that starts such nodes.
WITH_FAULTS = "ottla/cli/commands/dev.py"

#: It checks 2^15 sets of names in half a second.
NAMES_MAX = 15

#: Packages without these rules: programs on a person's machine, which are not part of a cluster (the command line, its local
#: clusters, the supervisor, the container's entry, the test kit); and the connector, which blocks in Spark's own processes.
OUTSIDE = tuple(
    f"ottla/{name}" for name in ("__main__.py", "cli/", "local/", "processes/", "container/", "testing/", "spark/")
)

#: A kind of access: its names, and the only files (or folders) that may use them. All others are given an object. For registry,
#: console, mirror and the client each file is listed: code that is not simulated yet (HTTP, processes that decode) has its own
#: time.
DOORS: dict[str, tuple[re.Pattern[str], tuple[str, ...]]] = {
    "the clock": (
        re.compile(
            r"time\.(time|monotonic|perf_counter|process_time|sleep)(_ns)?|datetime\.(datetime\.)?(now|utcnow|today)|date\.today"
        ),
        (
            "server/clock.py",
            "server/loop_watch.py",  # it measures the loop from a thread of its own
            "ottla/client/blocking.py",  # for processes that have no loop
            "ottla/web/",
            "ottla/console/",
            "ottla/registry/guarded_process.py",
            "ottla/registry/timely_http.py",  # for the deadline of a request that blocks
            "ottla/tables/worker.py",  # for the length of a slice of its work
            "ottla/tables/delta_log.py",  # for the time of a commit in a table's history
        ),
    ),
    "chance": (
        re.compile(r"random\.(?!Random$)\w+|os\.urandom|uuid\.uuid[14]|secrets\.\w+"),
        (
            "server/world.py",
            "ottla/console/guard.py",
            "ottla/console/pages/credentials.py",
            "ottla/registry/access.py",
            "ottla/tables/directory_store.py",  # names of unfinished files
            "ottla/tables/iceberg_files.py",  # names of merged files
            "ottla/tables/worker.py",  # names of offers
        ),
    ),
    "sockets": (
        re.compile(r"socket\.(?!AF_|SOCK_|gethostname)\w+"),
        (
            "server/transport.py",
            "server/listening.py",
            "ottla/client/blocking.py",
            "ottla/node/parent.py",  # the socket of systemd
            "ottla/web/",
            "ottla/registry/rest/leader_http.py",
        ),
    ),
    "files": (
        re.compile(
            r"open|io\.open|os\.(open|read|write|pread|pwrite|rename|replace|remove|unlink|rmdir|mkdir|makedirs|listdir|scandir|stat|"
            r"fsync|fdatasync|truncate|ftruncate|posix_fallocate|statvfs|path\.(exists|getsize|isfile|isdir|getmtime))|"
            r"mmap\.mmap|shutil\.\w+|fcntl\.\w+|pathlib\.Path|Path|tempfile\.\w+"
        ),
        (
            "storage/files.py",
            "storage/mapped_file.py",
            "ottla/node/adoption/preview.py",  # for another process's directory, which it must not change
            "ottla/node/parent.py",  # pipes
            "server/installation.py",  # to find out how this package was installed, for a message
            "ottla/client/connection.py",  # a client's properties
            "ottla/client/move_plans.py",
            "ottla/console/options.py",
            "ottla/console/site.py",
            "ottla/registry/",
            "ottla/web/certificate.py",
            "ottla/columns/segments.py",  # reads a broker's files
            "ottla/tables/directory_store.py",
            "ottla/tables/offline.py",
            "ottla/tables/segment_source.py",
        ),
    ),
    "tasks": (
        re.compile(r"asyncio\.(create_task|ensure_future|TaskGroup)|(\w+\.)*create_task"),
        (
            "server/tasks.py",
            # These wait for the tasks that they begin, and so get their exceptions.
            "ottla/mirror/transaction.py",
            "ottla/mirror/worker.py",
            "ottla/console/panels.py",
            "ottla/console/server.py",
            "ottla/registry/server.py",
            "ottla/registry/rest/forwarding.py",
            "ottla/registry/rest/leader_http.py",
            "ottla/web/connections.py",
        ),
    ),
    "threads": (
        re.compile(r"threading\.Thread|(\w+\.)*ThreadPoolExecutor|asyncio\.to_thread"),
        (
            "server/workers.py",
            "server/worker_process.py",
            "server/loop_watch.py",
            # A request by urllib, which blocks.
            "ottla/client/admin_listeners.py",
            "ottla/console/admin_numbers.py",
            "ottla/console/schemas.py",
            "ottla/registry/access.py",
            "ottla/registry/decoder.py",
            "ottla/registry/rest/leader_http.py",
        ),
    ),
    "processes": (
        re.compile(r"subprocess\.\w+|os\.(fork|system|exec\w*|spawn\w*)|multiprocessing\.\w+"),
        ("server/worker_process.py",),
    ),
}


def used_names(source: Source) -> list[tuple[int, str]]:
    """Yield the dotted names that are called or looked up, in full if they were imported by `from`."""
    full = {}
    for node in nodes_of(source.tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                full[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    found = []
    for node in nodes_of(source.tree):
        if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load):
            name = dotted(node)
            head, _, rest = name.partition(".")
            if head in full:
                name = f"{full[head]}.{rest}" if rest else full[head]
            found.append((node.lineno, name))
    return found


def test_each_package_imports_only_what_it_stands_on() -> None:
    wrong = []
    for source in (*sources(), *pipeline_sources()):
        for line, name in imported_modules(source.tree):
            if source.package and (package := package_of(name)) and package not in below(source.package):
                wrong.append(f"{source.path}:{line} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_each_folder_of_the_house_is_a_package_with_its_place() -> None:
    folders = {file.parent.name for file in (ROOT / "ottla").glob("*/__init__.py")}
    assert folders == STANDS_ON.keys() - {"__main__"}


def test_an_import_by_a_text_is_an_import() -> None:
    tree = ast.parse('import_module("ottla.cli.output")\nimportlib.import_module("uvloop")')
    assert [name for _, name in imported_modules(tree)] == ["ottla.cli.output"]


def test_only_the_table_of_apis_imports_by_a_text_that_it_makes() -> None:
    """A message's module is imported when it is first used, by the name of its API; messages import the table."""
    made = [
        source.path
        for source in sources()
        for node in nodes_of(source.tree)
        if isinstance(node, ast.Call) and dotted(node.func).endswith("import_module")
        if isinstance(node.args[0], ast.JoinedStr) and ast.unparse(node.args[0]).startswith("f'ottla.")
    ]
    assert made == ["protocol/api.py"]


def test_every_import_of_ours_begins_with_ottla() -> None:
    """The links at the top lead into the package: by their bare names Python would load a second copy of each module."""
    wrong = []
    for folder in ("ottla", "tests", "benchmarks", "tools"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            for line, name in imported_modules(tree_of(file)):
                if name.partition(".")[0] in PARTS:
                    wrong.append(f"{file.relative_to(ROOT)}:{line} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_a_broker_sees_little_of_the_controller() -> None:
    wrong = [
        f"{source.path}:{line} imports {name}"
        for source in sources()
        if source.package == "broker"
        for line, name in imported_modules(source.tree)
        if package_of(name) == "controller" and not name.startswith(SEEN_BY_BROKER)
    ]
    assert not wrong, "\n".join(wrong)


def test_only_a_development_cluster_knows_of_the_test_kit() -> None:
    wrong = [
        f"{source.path}:{line} imports {name}"
        for source in sources()
        if not source.module.startswith("ottla.testing") and source.path != WITH_FAULTS
        for line, name in imported_modules(source.tree)
        if name.startswith("ottla.testing")
    ]
    assert not wrong, "\n".join(wrong)


def test_protocol_and_storage_know_nothing_of_the_event_loop() -> None:
    wrong = [
        f"{source.path}:{line} imports {name}"
        for source in sources()
        if source.package in ("protocol", "storage")
        for line, name in imported_modules(source.tree)
        if name.partition(".")[0] in ("asyncio", "uvloop", "socket", "selectors", "threading", "concurrent")
        # Finding out the kernel's abilities happens once; locks are needed where workers recover logs at the same time, and
        # each object of zstandard belongs to one thread.
        if not name.startswith(("threading.Lock", "threading.local"))
    ]
    assert not wrong, "\n".join(wrong)


def test_the_world_is_reached_through_its_doors_only() -> None:
    wrong = []
    for source in sources():
        for line, name in used_names(source):
            for door, (behind, keepers) in DOORS.items():
                if behind.fullmatch(name) and not source.path.startswith((*keepers, *OUTSIDE)):
                    wrong.append(f"{source.path}:{line} uses {name}: {door} is behind {keepers[0]}")
    assert not wrong, "\n".join(sorted(set(wrong)))


def test_each_keeper_of_a_door_uses_it() -> None:
    used = {
        (door, keeper)
        for source in sources()
        for _, name in used_names(source)
        for door, (behind, keepers) in DOORS.items()
        for keeper in keepers
        if source.path.startswith(keeper) and behind.fullmatch(name)
    }
    assert not {(door, keeper) for door, (_, keepers) in DOORS.items() for keeper in keepers} - used


def test_no_import_goes_round_in_a_circle() -> None:
    """Late imports and those for type checkers do not count: they run when everything has been imported, or never."""
    assert not circle([(source, at_import(source.tree)) for source in sources()])


def test_no_circle_is_hidden_behind_an_import_for_type_checkers() -> None:
    """Such an import never runs, but it shows that the two modules cannot be understood separately."""
    assert not circle([(source, source.tree) for source in (*sources(), *pipeline_sources())])


def test_a_circle_behind_an_import_for_type_checkers_is_found() -> None:
    def source(module: str, text: str) -> Source:
        return Source(f"{module}.py", module, text.splitlines(), ast.parse(text))

    facade = source("log", "import verb")
    verb = source("verb", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from log import Log")
    late = source("verb", "def open() -> None:\n    from log import Log")
    assert circle([(facade, facade.tree), (verb, verb.tree)]) == "log -> verb -> log"
    assert circle([(facade, facade.tree), (late, late.tree)]) == "log -> verb -> log"
    assert circle([(facade, facade.tree), (verb, at_import(verb.tree))]) == ""


def test_the_contents_of_each_folder_import_each_other_in_one_direction() -> None:
    """No file or folder imports another one that imports it, in any folder and at any depth, not even for types."""
    found = {folder: count for folder, arrows in arrows_by_folder().items() if (count := imports_back(arrows))}
    assert not found, "these folders have files or folders that need each other, with so many imports back"


def test_imports_back_are_counted() -> None:
    there, back, apart, round_about = ("a", "b"), ("b", "a"), ("a", "c"), ("c", "b")
    assert imports_back({there: 3, back: 1, apart: 5}) == 1
    assert imports_back({there: 3, apart: 5}) == 0
    assert imports_back({back: 4, apart: 5, round_about: 2}) == 2, "a, c, b and a again: c and b are parted most easily"


#: An arrow: an entry of a folder, and another entry of the same folder that it imports.
Arrow: TypeAlias = tuple[str, str]


def arrows_by_folder() -> dict[str, dict[Arrow, int]]:
    """Return the arrows of each folder, each with the number of imports that it stands for."""
    found: dict[str, dict[Arrow, int]] = {}
    for module, targets in imports([(source, source.tree) for source in (*sources(), *pipeline_sources())]).items():
        for target in targets:
            from_, to = module.split("."), target.split(".")
            depth = next((i for i, (a, b) in enumerate(zip(from_, to, strict=False)) if a != b), None)
            if depth is not None:  # otherwise it is a package's __init__
                arrows = found.setdefault(".".join(from_[:depth]), {})
                arrow = from_[depth], to[depth]
                arrows[arrow] = arrows.get(arrow, 0) + 1
    return found


def imports_back(arrows: dict[Arrow, int]) -> int:
    """Return the smallest number of imports whose removal leaves one direction: the best order of modules is searched in which
    importers come first.
    """
    names = sorted(on_circles(arrows))
    assert len(names) <= NAMES_MAX, f"too many need each other for all their orders: {names}"
    best: dict[frozenset[str], int] = {frozenset(): 0}
    for _ in names:
        longer: dict[frozenset[str], int] = {}
        for placed, count in best.items():
            for name in names:
                if name not in placed:
                    back = count + sum(arrows.get((name, before), 0) for before in placed)
                    longer[placed | {name}] = min(back, longer.get(placed | {name}, back))
        best = longer
    return min(best.values())


def on_circles(arrows: dict[Arrow, int]) -> set[str]:
    """Return the modules that need something that needs them."""
    found = set()
    for name in {start for start, _ in arrows}:
        reached, front = set[str](), {name}
        while front:
            front = {end for start, end in arrows if start in front} - reached
            reached |= front
        if name in reached:
            found.add(name)
    return found


def circle(trees: list[tuple[Source, ast.Module]]) -> str:
    """The first way from a module back to itself over what the trees import; empty if there is none."""
    return way_back(imports(trees))


def imports(trees: list[tuple[Source, ast.Module]]) -> dict[str, set[str]]:
    """Return for each module those that its tree imports."""
    modules = {source.module for source, _ in trees}
    graph: dict[str, set[str]] = {}
    for source, tree in trees:
        targets = {name if name in modules else name.rpartition(".")[0] for _, name in imported_modules(tree)}
        graph[source.module] = (targets & modules) - {source.module}
    return graph


def way_back(graph: dict[str, set[str]]) -> str:
    done: set[str] = set()

    def visit(module: str, path: list[str]) -> str:
        if module in path:
            return " -> ".join([*path[path.index(module) :], module])
        if module in done:
            return ""
        found = next(filter(None, (visit(target, [*path, module]) for target in sorted(graph[module]))), "")
        done.add(module)
        return found

    return next(filter(None, (visit(module, []) for module in sorted(graph))), "")


def at_import(tree: ast.Module) -> ast.Module:
    """Return the part of a tree that runs when the module is imported."""
    return ast.Module(body=[n for n in tree.body if not is_for_type_checkers(n) and not is_body(n)], type_ignores=[])


def is_for_type_checkers(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and dotted(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def is_body(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
