"""Config key of this package, and the layers after the networks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from rlcatalog.errors import ConfigError
from rlcatalog.models import OutputPlan, output_plan, post_fcnet


class ComplexInputConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Config keys for the complex-input network."""

    input_nets: Annotated[
        dict[str, str], Meta(description="path of an observation part → name of its model; other parts: the best fit")
    ] = {}


def ending(config: Mapping[str, Any], width: int, num_outputs: int | None) -> OutputPlan:
    """Read the layers after the networks from a model config.

    Args:
        config: The flat model config; missing keys take their defaults.
        width: Width of the concatenated features.
        num_outputs: Width of the output, or None for a trunk.

    Raises:
        ConfigError: `free_log_std` is set with an odd number of outputs, or `no_final_linear` without
            `post_fcnet_hiddens`.
    """
    layers = post_fcnet(config)
    if config.get("no_final_linear") and num_outputs is not None and not layers:
        raise ConfigError(
            "no_final_linear makes the last of the post_fcnet layers the output, but post_fcnet_hiddens is empty."
            " Set post_fcnet_hiddens, or no_final_linear=False."
        )
    return output_plan(config, width, layers, num_outputs)
