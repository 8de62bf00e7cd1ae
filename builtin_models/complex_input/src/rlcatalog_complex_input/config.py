"""Config key for the complex-input network, and the layers after its nets."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from rlcatalog.errors import ConfigError, ConfigTypeError, shown
from rlcatalog.models import DensePlan, plan_dense_layers, post_fcnet

#: A net in the config: the name of a model, or a class, or a function that creates a module.
NetSource: TypeAlias = "str | type | Callable[..., Any]"


class ComplexInputConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Config keys for the complex-input network."""

    input_nets: Annotated[
        dict[str, Any],
        Meta(
            description="path of an observation part → its model: a name, a class or a function"
            " that creates a module; the other parts get the best fit"
        ),
    ] = {}

    def __post_init__(self) -> None:
        for path, net in self.input_nets.items():
            is_code = isinstance(net, type | partial) or inspect.isroutine(net)
            if not is_code and not isinstance(net, str):
                raise ConfigTypeError(
                    f"model config key 'input_nets': for {path!r}: expected the name of a model, a"
                    " class, or a function that creates a module (an instance cannot be used,"
                    f" because a net may be built more than once); found {shown(net)}."
                )


def plan_last_layers(config: Mapping[str, Any], width: int, num_outputs: int | None) -> DensePlan:
    """Read the layers after the networks from a model config.

    Args:
        config: The flat model config; missing keys take their defaults.
        width: Width of the concatenated features.
        num_outputs: Width of the output, or None for a trunk.

    Raises:
        ConfigError: `free_log_std` is set although the number of outputs is odd, or
            `no_final_linear` is set without `post_fcnet_hiddens`.
    """
    layers = post_fcnet(config)
    if config.get("no_final_linear") and num_outputs is not None and not layers:
        raise ConfigError(
            "no_final_linear uses the last post_fcnet layer as the output, but post_fcnet_hiddens"
            " is empty. Set post_fcnet_hiddens, or no_final_linear=False."
        )
    return plan_dense_layers(config, width, layers, num_outputs)
