"""Which class in an object's MRO defines a method: whether one method still describes another."""

from __future__ import annotations

from collections.abc import Sequence


def is_up_to_date(thing: object, method: str, others: Sequence[str]) -> bool:
    """Return whether every class that overrides one of `others` also overrides a method, or is a
    base of a class that does.

    Otherwise a subclass changed what the object does, and an inherited method, such as a codec's
    tensor form, describes what its base class does.

    Args:
        thing: The object.
        method: The name of the method that describes the others.
        others: The names of attributes that it describes.
    """
    place = _place_in_mro(thing, method)
    return all(place <= _place_in_mro(thing, other) for other in others)


def _place_in_mro(thing: object, name: str) -> int:
    """Return the place in the MRO of the class that defines an attribute."""
    classes = type(thing).__mro__
    for place, cls in enumerate(classes):
        if name in vars(cls):
            return place
    return len(classes)
