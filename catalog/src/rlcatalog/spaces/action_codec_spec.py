"""`ActionCodecSpec`: the declaration of an action codec, and the table of declared ones."""

from __future__ import annotations

from typing import Any, ClassVar

from rlcatalog.declaration import Form, Forms, are_texts
from rlcatalog.shared_declarations import SharedDeclaration, SharedTable


def _are_classes(kinds: Any) -> bool:
    return are_texts(kinds) and kinds != ()


class ActionCodecSpec(SharedDeclaration):
    """An `ActionCodec` class, which handles actions from certain kinds of space.

    Attributes:
        kinds: The qualified names of the space classes that it handles, including their subclasses.
    """

    kind: ClassVar[str] = "action_codec"
    targets_allowed = frozenset({"numpy"})
    forms: ClassVar[Forms] = {
        "kinds": Form(
            _are_classes, "a tuple of names of space classes, such as ('acme.spaces.Dial',)"
        )
    }
    #: Kind of space → codec.
    table: ClassVar[SharedTable[ActionCodecSpec]] = SharedTable("action_codec")

    @property
    def entries(self) -> tuple[str, ...]:
        return self.kinds

    def describe_clash(self, entry: str, other: SharedDeclaration) -> str:
        codec = other.targets["numpy"]
        return (
            f"actions of the kind {entry!r} already have a codec, {codec}; declare a new space"
            " class."
        )
