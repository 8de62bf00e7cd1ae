"""Refusals: what the head has no place for, found before anything is built."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlcatalog.config import KernelConfig, read_config
from rlcatalog.errors import ConfigError, ModelContractError
from rlcatalog_autoregressive.part_columns import PartColumns, columns_of


def check_last_layers(config: Mapping[str, Any]) -> None:
    """Raise for keys of the last layers that make no sense here.

    Raises:
        ConfigError: `no_final_linear`.
    """
    if read_config(config, KernelConfig).no_final_linear:
        raise ConfigError(
            "use_autoregressive with no_final_linear: the parts' logits and their context are linear layers behind the"
            " trunk. Leave no_final_linear out."
        )


def served_columns(action_dist: Any, num_outputs: int) -> PartColumns:
    """Return the layout of the distribution that a head is built for.

    Raises:
        ConfigError: It is no autoregressive distribution.
        ModelContractError: It takes another number of model outputs.
    """
    layout = columns_of(action_dist)
    if layout is None:
        raise ConfigError(
            f"use_autoregressive: the distribution of the whole action is {action_dist!r}, and this head serves"
            " 'autoregressive'. Leave custom_action_dist out, or name distributions of parts by their paths in it."
        )
    if num_outputs != layout.size:
        raise ModelContractError(
            f"AutoregressiveModel: num_outputs={num_outputs}; {layout.action.describe()} needs {layout.size}, as"
            " ModelCatalog.get_action_dist(action_space, config) says."
        )
    return layout


def nothing_left(row: Any, path: str) -> str:
    """Return what is said of a row in which every value of a part is forbidden."""
    return (
        f"autoregressive_mask: row {row} leaves nothing of {path}, with what the action mask forbids; each must leave"
        " one value."
    )
