"""`ottla.protocol.dataclass` beside Python's own: the same classes, declared by both, do the same."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import pytest

from ottla.protocol.dataclass import dataclass, declared_fields

T = TypeVar("T")
ROOT = Path(__file__).parents[2]


@dataclass(slots=True, frozen=True)
class Kept:
    name: str
    secret: str = field(default="", repr=False)
    parts: list[int] = field(default_factory=list, compare=False)


@dataclass(slots=True)
class Counted(Generic[T]):
    kind: ClassVar[str] = "counted"
    first: T
    count: int = 0
    seen: dict[str, int] = field(default_factory=dict)

    @property
    def double(self) -> int:
        return self.count * 2


@dataclass(slots=True)
class Extended(Counted[int]):
    last: int = 7


@dataclass(slots=True, eq=False)
class Same:
    number: int


@dataclass(slots=True)
class Own:
    number: int

    def __repr__(self) -> str:
        return "its own"

    def __eq__(self, other: object) -> bool:
        return True


def python_s(cls: type[Any]) -> type[Any]:
    """The class as Python's decorator makes it, of the same source."""
    options = {"frozen": cls is Kept, "eq": cls is not Same}
    source = inspect.getsource(cls).split("\n", 1)[1]
    scope = globals() | {"Counted": python_s(Counted)} if cls is Extended else dict(globals())
    exec(compile("from __future__ import annotations\n" + source, "<python's>", "exec"), scope)
    made: type[Any] = dataclasses.dataclass(slots=True, **options)(scope[cls.__name__])
    return made


CLASSES = [Kept, Counted, Extended, Same, Own]
CALLS: list[Callable[[Any], Any]] = [
    lambda cls: repr(cls("a")),
    lambda cls: repr(cls(1, 2)),
    lambda cls: repr(cls(1, 2, {"x": 1})),
    lambda cls: repr(cls(number=3)),
    lambda cls: repr(cls(first=1, last=2)),
    lambda cls: cls(1) == cls(1),
    lambda cls: cls(1) == cls(2),
    lambda cls: cls(1) == "another class",
    lambda cls: len({hash(each) for each in [cls(1), cls(1)]}),  # both live: an address may be used again
    lambda cls: len({hash(each) for each in [cls("a", parts=[1]), cls("a")]}),
    lambda cls: repr(cls(1, 2)),
    lambda cls: repr(cls()),
    lambda cls: repr(cls(1, unknown=2)),
    lambda cls: setattr(cls(1), "name", 5),
    lambda cls: delattr(cls("x"), "name"),
    lambda cls: cls(1).seen is cls(1).seen,
    lambda cls: cls(1, 4).double,
    lambda cls: cls.kind,
    lambda cls: cls.__match_args__,
    lambda cls: repr(dataclasses.replace(cls(1), name="b")),
    lambda cls: repr(dataclasses.replace(cls(1), count=8)),
    lambda cls: dataclasses.asdict(cls(1)),
    lambda cls: [(each.name, each.type, each.default) for each in dataclasses.fields(cls)],
    lambda cls: dataclasses.is_dataclass(cls),
    lambda cls: repr(copy.copy(cls(1))),
    lambda cls: repr(copy.deepcopy(cls("a"))),
    lambda cls: hasattr(cls(1), "__dict__"),
    lambda cls: sorted(name for name in cls.__slots__),
    lambda cls: repr(copy.replace(cls(1), count=8)),
]


def outcome(call: Callable[[Any], Any], cls: type[Any]) -> tuple[str, object]:
    try:
        return "returned", call(cls)
    except Exception as error:
        return "raised", (type(error), str(error))


@pytest.mark.parametrize("number", range(len(CALLS)))
@pytest.mark.parametrize("cls", CLASSES)
def test_the_first_use_of_a_class_does_what_it_does_with_python_s_decorator(cls: type[Any], number: int) -> None:
    """Each case declares the class again, so that this use is its first; the second use is that of a complete class."""
    scope: dict[str, Any] = dict(globals())
    for each in (Counted, cls) if cls is Extended else (cls,):
        exec(compile("from __future__ import annotations\n" + inspect.getsource(each), "<again>", "exec"), scope)
    mine, theirs = scope[cls.__name__], python_s(cls)
    for _ in range(2):
        assert outcome(CALLS[number], mine) == outcome(CALLS[number], theirs)


def test_frozen_objects_are_pickled() -> None:
    kept = Kept("a", "b", [1])
    assert pickle.loads(pickle.dumps(kept)) == kept
    assert pickle.loads(pickle.dumps(kept)).parts == [1]
    with pytest.raises(FrozenInstanceError):
        pickle.loads(pickle.dumps(kept)).name = "c"


def test_a_frozen_object_refuses_also_what_is_no_field() -> None:
    """Python's own raises a TypeError that speaks of super(), because its guard is made for the class before it had slots."""
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'absent'"):
        Kept("a").absent = 1


def test_a_class_in_a_match_statement_has_its_fields_by_position() -> None:
    match Same(4):
        case Same(number):
            assert number == 4


def test_declared_fields_are_those_of_the_classes_above_first() -> None:
    assert list(declared_fields(Extended)) == ["first", "count", "seen", "last"]
    assert declared_fields(Extended)["last"] == 7


def test_an_object_s_constructor_compiles_no_other_method() -> None:
    code = (
        "from __future__ import annotations\nimport dataclasses\nfrom ottla.protocol.dataclass import dataclass\n"
        "@dataclass(slots=True, frozen=True)\nclass One:\n    number: int = 0\n"
        "def refuse(*args, **options): raise AssertionError('compiled')\n"
        "dataclasses.dataclass = refuse\nprint(One(5).number)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True).stdout == "5\n"


@pytest.mark.parametrize("package", ["broker", "controller", "node", "processes", "protocol", "server", "storage"])
def test_what_a_node_imports_declares_its_classes_so(package: str) -> None:
    """Python's own decorator took a fifth of the time of a node's imports."""
    sources = {path.name: path.read_text() for path in (ROOT / "ottla" / package).rglob("*.py")}
    assert [name for name, text in sources.items() if "from dataclasses import dataclass" in text] == []
