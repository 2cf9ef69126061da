"""Who may import whom, and where the doors to the world are: time, chance, files, sockets, tasks."""

from __future__ import annotations

import ast
import re

from tests.rules.sources import LAYERS, Source, dotted, imported_modules, sources

#: What a broker may see of the controller.
SEEN_BY_BROKER = ("controller.metadata", "controller.raft", "controller.node", "controller.runtime")

#: Packages without a circle even when imports for type checkers and late ones are counted.
WITHOUT_HIDDEN_CIRCLES = (
    "protocol",
    "controller",
)

#: A door: the names behind it, and the only files (or folders) that may use them. Everybody else is handed an object.
DOORS: dict[str, tuple[re.Pattern[str], tuple[str, ...]]] = {
    "the clock": (
        re.compile(
            r"time\.(time|monotonic|perf_counter|process_time|sleep)(_ns)?|datetime\.(datetime\.)?(now|utcnow|today)|date\.today"
        ),
        # The command line measures and shows times on a person's machine; it takes no part in a cluster.
        ("server/clock.py", "ottla/"),
    ),
    "chance": (
        re.compile(r"random\.(?!Random$)\w+|os\.urandom|uuid\.uuid[14]|secrets\.\w+"),
        ("server/world.py", "ottla/"),
    ),
    "sockets": (re.compile(r"socket\.(?!AF_|SOCK_|gethostname)\w+"), ("server/network/transport.py", "ottla/")),
    "files": (
        re.compile(
            r"open|io\.open|os\.(open|read|write|pread|pwrite|rename|replace|remove|unlink|rmdir|mkdir|makedirs|listdir|scandir|stat|"
            r"fsync|fdatasync|truncate|ftruncate|posix_fallocate|statvfs|path\.(exists|getsize|isfile|isdir|getmtime))|"
            r"mmap\.mmap|shutil\.\w+|fcntl\.\w+|pathlib\.Path|Path|tempfile\.\w+"
        ),
        ("storage/files.py", "storage/mapped_file.py", "ottla/"),
    ),
    "tasks": (
        re.compile(r"asyncio\.(create_task|ensure_future|TaskGroup)|(\w+\.)*create_task"),
        ("server/service.py", "ottla/"),
    ),
    "threads": (
        re.compile(r"threading\.Thread|(\w+\.)*ThreadPoolExecutor|asyncio\.to_thread"),
        ("server/workers.py", "server/worker_process.py", "server/prometheus.py", "ottla/"),
    ),
    "processes": (
        re.compile(r"subprocess\.\w+|os\.(fork|system|exec\w*|spawn\w*)|multiprocessing\.\w+"),
        ("server/worker_process.py", "ottla/"),
    ),
}


def used_names(source: Source) -> list[tuple[int, str]]:
    """Dotted names that are called or looked up, written out in full where they were imported by `from`."""
    full = {}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                full[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    found = []
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load):
            name = dotted(node)
            head, _, rest = name.partition(".")
            if head in full:
                name = f"{full[head]}.{rest}" if rest else full[head]
            found.append((node.lineno, name))
    return found


def test_each_layer_imports_only_what_is_left_of_it() -> None:
    wrong = []
    for source in sources():
        allowed = LAYERS[: LAYERS.index(source.package) + 1]
        for line, name in imported_modules(source.tree):
            top = name.partition(".")[0]
            if top in LAYERS and top not in allowed:
                wrong.append(f"{source.path}:{line} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_a_broker_sees_little_of_the_controller() -> None:
    wrong = [
        f"{source.path}:{line} imports {name}"
        for source in sources()
        if source.package == "broker"
        for line, name in imported_modules(source.tree)
        if name.startswith("controller.") and not name.startswith(SEEN_BY_BROKER)
    ]
    assert not wrong, "\n".join(wrong)


def test_protocol_and_storage_know_nothing_of_the_event_loop() -> None:
    wrong = [
        f"{source.path}:{line} imports {name}"
        for source in sources()
        if source.package in ("protocol", "storage")
        for line, name in imported_modules(source.tree)
        if name.partition(".")[0] in ("asyncio", "uvloop", "socket", "selectors", "threading", "concurrent")
        # Finding out what the kernel can do happens once; locks are needed where workers recover logs side by side.
        if not name.startswith("threading.Lock")
    ]
    assert not wrong, "\n".join(wrong)


def test_the_world_is_reached_through_its_doors_only() -> None:
    wrong = []
    for source in sources():
        for line, name in used_names(source):
            for door, (behind, keepers) in DOORS.items():
                if behind.fullmatch(name) and not source.path.startswith(keepers):
                    wrong.append(f"{source.path}:{line} uses {name}: {door} is behind {keepers[0]}")
    assert not wrong, "\n".join(sorted(set(wrong)))


def test_no_import_goes_round_in_a_circle() -> None:
    """Late imports and those for type checkers hide a circle: outside of WITHOUT_HIDDEN_CIRCLES they do not count yet."""
    modules = {source.module for source in sources()}
    graph: dict[str, set[str]] = {}
    for source in sources():
        names = imported_modules(
            source.tree if source.package in WITHOUT_HIDDEN_CIRCLES else without_hidden_imports(source)
        )
        targets = {name if name in modules else name.rpartition(".")[0] for _, name in names}
        graph[source.module] = (targets & modules) - {source.module}
    done: set[str] = set()
    path: list[str] = []

    def visit(module: str) -> None:
        assert module not in path, " -> ".join([*path[path.index(module) :], module])
        if module not in done:
            path.append(module)
            for target in sorted(graph[module]):
                visit(target)
            path.pop()
            done.add(module)

    for module in sorted(graph):
        visit(module)


def without_hidden_imports(source: Source) -> ast.Module:
    """The statements that run when the module is imported."""
    body = [node for node in source.tree.body if not is_for_type_checkers(node) and not is_body(node)]
    return ast.Module(body=body, type_ignores=[])


def is_for_type_checkers(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and dotted(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def is_body(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
