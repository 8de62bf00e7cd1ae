"""Private names of libraries: looking them up, and errors about missing ones."""

import sys
from types import ModuleType

import pytest

from rlcatalog.errors import NotServedError
from rlcatalog.private_names import PrivateNames


class Widget:
    _size = 3


@pytest.fixture
def library(monkeypatch):
    """The private names of a library `gadgets` in version 7.1: `_double` and `_Base`."""
    gadgets = ModuleType("gadgets")
    gadgets.__version__ = "7.1"
    gadgets._double = lambda number: 2 * number
    gadgets._Base = Widget
    monkeypatch.setitem(sys.modules, "gadgets", gadgets)
    return PrivateNames("gadgets", tried="7.0")


def test_name_is_the_object_of_the_library(library):
    assert library.name("gadgets:_double", "double") is sys.modules["gadgets"]._double


def test_missing_name_raises_only_when_it_is_called(library):
    halve = library.name("gadgets:_halve", "halve numbers")

    with pytest.raises(NotServedError) as error:
        halve(4)

    assert str(error.value) == (
        "gadgets 7.1 has no gadgets._halve, which rlcatalog needs to halve numbers. Upgrade"
        " rlcatalog, or install the version that it is tested with: pip install gadgets==7.0"
    )


def test_missing_module_raises_only_when_a_name_is_called(library):
    halve = library.name("gadgets._internal.numbers:halve", "halve numbers")

    with pytest.raises(NotServedError, match=r"has no gadgets\._internal\.numbers"):
        halve(4)


def test_missing_base_class_raises_when_a_subclass_is_called(library):
    class SizedWidget(library.name("gadgets:_Other", "build widgets")):
        def __init__(self, size):
            self.size = size

    with pytest.raises(NotServedError, match=r"has no gadgets\._Other.*to build widgets"):
        SizedWidget(4)


def test_missing_object_raises_when_its_attributes_are_read(library):
    registry = library.name("gadgets:_registry", "find gadgets")

    with pytest.raises(NotServedError, match=r"gadgets\._registry.*to find gadgets"):
        registry.contains("lamp")


@pytest.mark.parametrize("owner", [Widget, Widget()], ids=["class", "instance"])
def test_attribute_is_read_from_the_given_object(library, owner):
    widget = Widget()
    widget._size = 5

    read_size = library.attribute(owner, "_size", "read sizes")

    assert read_size(widget) == 5


@pytest.mark.parametrize("owner", [Widget, Widget()], ids=["class", "instance"])
def test_missing_attribute_raises_when_it_is_read(library, owner):
    read_colour = library.attribute(owner, "_colour", "read colours")

    with pytest.raises(NotServedError, match=r"has no Widget\._colour.*to read colours"):
        read_colour(Widget())


def test_needs_returns_the_function_itself(library):
    def area(widget):
        return widget._size**2

    # Widget has the attribute.
    assert library.needs(Widget, "_size", purpose="compute areas")(area) is area


def test_needs_replaces_a_function_without_its_attribute(library):
    # Widget has no _colour.
    @library.needs(Widget, "_size", "_colour", purpose="paint")
    def paint(widget):
        return widget._size, widget._colour

    with pytest.raises(NotServedError, match=r"has no Widget\._colour.*to paint"):
        paint(Widget())
