"""The contract between the kernel and a format: what writes a file returns `Exported`, what runs one is a `Runner`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from rlcatalog_export.interface import Interface
    from rlcatalog_policy import Policy

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Exported:
    """What was written.

    Attributes:
        interface: Its inputs and outputs.
        policy: A copy of the policy, which the file is compared with.
        drawing: `drawing(noise)` returns a context in which `policy.act` draws from noise `[B, k]` as the file does;
            None where it cannot, and only what is not drawn is compared.
    """

    interface: Interface
    policy: Policy
    drawing: Callable[[Array], AbstractContextManager[Any]] | None


class Runner(Protocol):
    """What runs an exported policy.

    Attributes:
        interface: The file's inputs and outputs as JSON, as `Interface.to_json` wrote them.
        checked: Whether the file holds a checksum over its whole content, which is right then (a wrong one is a
            `SavedPolicyError`); None where the format has none.
    """

    interface: str

    @property
    def checked(self) -> bool | None:  # documented above
        ...

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str]) -> Sequence[Array]:
        """Return the outputs of these names for inputs by name."""
