"""Config keys for the autoregressive head, and checks of their values against an action space."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from rlcatalog import SpaceInfo
from rlcatalog.actions import action_codec
from rlcatalog.config import KernelConfig, NameOrCallable, activation_name, read_config
from rlcatalog.errors import ConfigError, UnsupportedSpaceError, nearest, shown


class AutoregressiveConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Config keys for the autoregressive head."""

    use_autoregressive: Annotated[
        bool, Meta(description="make each part of an action depend on the parts sampled before it")
    ] = False
    autoregressive_hiddens: Annotated[
        list[Annotated[int, Meta(ge=1)]],
        Meta(
            min_length=1, description="units of each hidden layer between the parts, for every part"
        ),
    ] = msgspec.field(default_factory=lambda: [16])
    autoregressive_activation: Annotated[
        NameOrCallable, Meta(description="activation of the hidden layers")
    ] = "tanh"
    autoregressive_order: Annotated[
        list[int | str],
        Meta(description="the parts in sampling order (number, path or Dict key); others follow"),
    ] = []
    autoregressive_mask: Annotated[
        Any, Meta(description="function (path, earlier parts) -> mask [B, n], or None")
    ] = None
    autoregressive_exact: Annotated[
        int,
        Meta(
            ge=0,
            description="maximum number of combinations summed for exact entropy and kl; beyond"
            " it, estimates",
        ),
    ] = 64

    def __post_init__(self) -> None:
        activation_name(self.autoregressive_activation, "autoregressive_activation")
        if self.autoregressive_mask is not None and not callable(self.autoregressive_mask):
            raise ConfigError(
                "autoregressive_mask: expected a function (path, earlier) -> boolean mask [B, n]"
                f" or None, found {shown(self.autoregressive_mask)}."
            )


def check_last_layers(config: Mapping[str, Any]) -> None:
    """Raise an error if the config sets a final-layer key that the autoregressive head does not
    support.

    Raises:
        ConfigError: `no_final_linear` is set.
    """
    if read_config(config, KernelConfig).no_final_linear:
        raise ConfigError(
            "use_autoregressive does not work with no_final_linear: the head computes logits and"
            " context in linear layers after the trunk. Remove no_final_linear."
        )


def hidden_widths(action: SpaceInfo, config: Mapping[str, Any]) -> list[int]:
    """Return the widths of the hidden layers.

    Raises:
        UnsupportedSpaceError: The action has only one part.
        ConfigError: `autoregressive_order` names an unknown part, or the same part twice.
    """
    settings = read_config(config, AutoregressiveConfig)
    paths = action_codec(action).paths
    if len(paths) < 2:
        raise UnsupportedSpaceError(
            f"{action.path}: autoregressive requires actions with several parts (Tuple, Dict,"
            f" MultiDiscrete), but {action.describe()} has {len(paths)}. Remove"
            " use_autoregressive."
        )
    # The order is not needed here: the call raises an error if it names an unknown part.
    sampling_order(settings.autoregressive_order, paths)
    # The setting counts units per part.
    return [len(paths) * units_per_part for units_per_part in settings.autoregressive_hiddens]


def sampling_order(order: list[int | str], paths: list[str]) -> list[int]:
    """Return the parts' positions in sampling order.

    Args:
        order: The value of `autoregressive_order`. A path or Dict key stands for all parts below it
            that were not named earlier.
        paths: The parts' paths.

    Raises:
        ConfigError: See `hidden_widths`.
    """
    positions: list[int] = []
    for entry in order:
        positions_of_entry = _positions_of(entry, paths)
        if not positions_of_entry:
            hint = nearest(entry, paths) if isinstance(entry, str) else ""
            raise ConfigError(
                f"autoregressive_order: {entry!r} is not a part of the action.{hint} Parts:"
                f" {', '.join(paths)}."
            )
        additions = [i for i in positions_of_entry if i not in positions]
        if not additions:
            raise ConfigError(f"autoregressive_order: {entry!r} is named twice.")
        positions += additions
    return positions + [i for i in range(len(paths)) if i not in positions]


def _positions_of(entry: int | str, paths: list[str]) -> list[int]:
    """Return the positions of the parts that an entry of `autoregressive_order` names."""
    if isinstance(entry, int):
        return [entry] if 0 <= entry < len(paths) else []
    positions = []
    for i, path in enumerate(paths):
        # The entry is a path or a Dict key; it also stands for the parts below that path.
        for root in (entry, f"action[{entry!r}]"):
            is_below = path.startswith((f"{root}[", f"{root}."))
            if path == root or is_below:
                positions.append(i)
                break
    return positions
