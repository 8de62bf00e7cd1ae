"""View requirements: past steps and other columns that a model requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlcatalog import provided
from rlcatalog.errors import ConfigError, ModelContractError


@dataclass(eq=False)
class ViewRequirement:
    """One column of a model's input, as a view into a trajectory.

    Args:
        data_col: Column of the trajectory; None uses the name of the view.
        space: Space of one value; None means a scalar Box.
        shift: Time steps relative to the current one: a number, a list, or a range `"from:to"` or
            `"from:to:step"` with both ends included (`"-3:0"` is -3, -2, -1, 0).
        index: Accepted for RLlib's signature.
        batch_repeat_value: Number of steps that share one value of the view, such as a whole
            sequence for a state.
        used_for_compute_actions: Whether `act` needs it.
        used_for_training: Whether training needs it.

    Raises:
        ConfigError: `shift` is invalid.
    """

    data_col: str | None = None
    space: Any = None
    shift: int | str | Sequence[int] = 0
    index: int | None = field(default=None, repr=False)
    batch_repeat_value: int = field(default=1, repr=False)
    used_for_compute_actions: bool = field(default=True, repr=False)
    used_for_training: bool = field(default=True, repr=False)

    def __post_init__(self) -> None:
        if self.space is None:
            from gymnasium.spaces import Box

            self.space = Box(-np.inf, np.inf, shape=())
        if isinstance(self.shift, list | tuple):
            self.shift = list(self.shift)
        self.shift_arr = np.asarray(_steps(self.shift))

    def to_dict(self) -> dict[str, Any]:
        """Return the requirement as plain data that can be stored as JSON; `from_dict` restores it.

        Raises:
            ModelContractError: The space cannot be saved.
            MissingPluginError: rlcatalog-policy, which saves spaces, is not installed.
        """
        space = provided.space_to_json(self.space)
        if space is None:
            raise ModelContractError(f"the view's space {self.space} cannot be stored as JSON.")
        shift = self.shift
        if not isinstance(shift, str):
            shift = np.asarray(
                shift
            ).tolist()  # a list or a number; NumPy's integers become Python's
        data = {**vars(self), "space": space, "shift": shift}
        del data["shift_arr"]  # computed from shift
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ViewRequirement:
        """Return the requirement that `to_dict` described."""
        arguments = dict(data)
        arguments["space"] = provided.space_from_json(data["space"])
        return cls(**arguments)


def _steps(shift: int | str | Sequence[int]) -> list[int]:
    """Return the time steps that a `shift` names, relative to the current one."""
    steps: list[int] = []
    if isinstance(shift, int | np.integer):
        steps = [int(shift)]
    elif isinstance(shift, list) and all(isinstance(step, int | np.integer) for step in shift):
        steps = [int(step) for step in shift]
    elif isinstance(shift, str):
        steps = _steps_in_range(shift)
    if not steps:
        raise ConfigError(
            "shift: expected an integer, a list of integers or 'from:to[:step]' with from <= to,"
            f" found {shift!r}."
        )
    return steps


def _steps_in_range(text: str) -> list[int]:
    """Return the time steps of `"from:to"` or `"from:to:step"`; none if the text is not a range."""
    try:
        numbers = [int(part) for part in text.split(":")]
    except ValueError:
        return []
    if len(numbers) not in (2, 3):
        return []
    first, last, *rest = numbers
    step = rest[0] if rest else 1
    if step < 1:
        return []
    return list(range(first, last + 1, step))
