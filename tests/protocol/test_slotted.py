"""Values and states behave as dataclasses would make them, but no source text has to be compiled for them."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, fields, is_dataclass, replace
from typing import ClassVar

import pytest

from ottla.protocol.slotted import entity, frozen, mutable


@frozen
class Place:
    """A field without a default, one with a default, and one that is in no comparison and no text."""

    kind: ClassVar[str] = "place"
    name: str
    offset: int = 0
    secret: str = field(default="", repr=False, compare=False)

    @property
    def following(self) -> int:
        return self.offset + 1


@frozen
class Named(Place):
    names: tuple[str, ...] = ()
    offset: int = 7


@mutable
class Counts:
    seen: dict[str, int] = field(default_factory=dict)
    last: int | None = None


@entity
class Task:
    name: str


@frozen
class Nothing:
    pass


@dataclass(frozen=True, slots=True)
class AsBefore:
    name: str
    offset: int = 0
    secret: str = field(default="", repr=False, compare=False)


def test_a_value_is_equal_by_its_fields_and_has_their_hash() -> None:
    assert Place("a", 1) == Place(name="a", offset=1, secret="x") != Place("a", 2)
    assert len({Place("a", 1), Place("a", 1, "x"), Place("a", 2)}) == 2
    assert Place("a") != Named("a") and Place("a") != ("a", 0)
    assert Nothing() == Nothing() and hash(Nothing()) == hash(Nothing())


def test_the_text_is_that_of_a_dataclass() -> None:
    assert repr(Place("a", 1, "hidden")) == repr(AsBefore("a", 1, "hidden")).replace("AsBefore", "Place")
    assert repr(Named("a")) == "Named(name='a', offset=7, names=())"


def test_fields_of_a_value_cannot_be_set_and_there_are_no_others() -> None:
    place = Place("a")
    with pytest.raises(FrozenInstanceError):
        place.offset = 3
    with pytest.raises(FrozenInstanceError):
        del place.offset
    assert not hasattr(place, "__dict__") and not hasattr(Named("a"), "__dict__")
    with pytest.raises(AttributeError):
        Counts().more = 1


def test_a_wrong_call_of_the_constructor_is_rejected_each_time() -> None:
    for _ in range(2):
        with pytest.raises(TypeError, match=r"Place.__init__\(\) missing 1 required positional argument: 'name'"):
            Place()
        with pytest.raises(TypeError, match="unexpected keyword argument"):
            Place("a", colour=1)


def test_a_factory_is_called_for_each_state() -> None:
    one, other = Counts(), Counts()
    one.seen["a"] = 1
    assert other == Counts({}) and one != other
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)


def test_an_entity_is_equal_to_itself_alone() -> None:
    task = Task("a")
    assert task == task != Task("a") and len({task, Task("a")}) == 2
    task.name = "b"
    assert repr(task) == "Task(name='b')"


def test_values_are_copied_with_other_fields() -> None:
    one = Named("a", names=("x",))
    assert replace(one, offset=9) == Named("a", 9, "", ("x",))
    assert is_dataclass(one) and [each.name for each in fields(Named)] == ["name", "offset", "secret", "names"]
    assert [each.name for each in fields(Place("a"))] == ["name", "offset", "secret"]
    assert copy.copy(one) == copy.deepcopy(one) == one
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        replace(one, colour=1)


def test_a_class_keeps_its_place() -> None:
    @frozen
    class Inner:
        a: int = 0

    assert repr(Inner()) == "test_a_class_keeps_its_place.<locals>.Inner(a=0)"
    assert (Place.__doc__ or "").startswith("A field") and Place.__module__ == __name__


def test_values_go_through_pickle_and_patterns() -> None:
    assert pickle.loads(pickle.dumps(Named("a", 3, "s", ("x",)))).secret == "s"
    match Place("a", 5):
        case Place(name, offset):
            assert (name, offset) == ("a", 5)
    assert Place.kind == "place" and Named("a").following == 8
