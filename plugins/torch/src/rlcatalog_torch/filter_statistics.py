"""A filter's statistics in the state dict of an engine's module."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn

from rlcatalog.observations import Filter

#: The names of the statistics in a state dict begin with this.
_PREFIX = "filter."


def keep_filter_in_state_dict(module: nn.Module, observation_filter: Filter | None) -> None:
    """Let an engine's checkpoints contain the statistics of a policy's filter.

    The module's `state_dict()` returns them beside the weights, and `load_state_dict()` restores
    them.

    Args:
        module: The engine's module.
        observation_filter: The filter; None changes nothing.
    """
    if observation_filter is None:
        return
    add = partial(_add_statistics, observation_filter)
    module.register_state_dict_post_hook(add)  # type: ignore[no-untyped-call]
    take = partial(_take_statistics, observation_filter)
    module.register_load_state_dict_pre_hook(take)  # type: ignore[no-untyped-call]


def _add_statistics(
    observation_filter: Filter,
    _module: nn.Module,
    state_dict: dict[str, Any],
    prefix: str,
    _metadata: Any,
) -> None:
    """Add the statistics to a state dict."""
    for name, array in observation_filter.saved_state().items():
        state_dict[prefix + _PREFIX + name] = torch.as_tensor(array)


def _take_statistics(
    observation_filter: Filter,
    _module: nn.Module,
    state_dict: dict[str, Any],
    prefix: str,
    *_others: Any,
) -> None:
    """Take the statistics out of a state dict."""
    start = prefix + _PREFIX
    names = [name for name in state_dict if name.startswith(start)]
    statistics = {name.removeprefix(start): state_dict.pop(name).cpu().numpy() for name in names}
    if statistics:
        observation_filter.set_state(statistics)
