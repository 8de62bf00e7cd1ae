"""PyTorch's own initial values for a policy's layers, for engines whose nets begin with them."""

from __future__ import annotations

from torch import nn

from rlcatalog_torch.nn import DenseStack, Linear

#: Config keys with which dense layers and convolutions begin like nn.Linear and nn.Conv2d.
TORCH_INITIALIZERS = {
    f"{prefix}_{kind}_initializer": "fan_in_uniform"
    for prefix, weights in (("fcnet", "weights"), ("post_fcnet", "weights"), ("conv", "kernel"))
    for kind in (weights, "bias")
}


def reset_output_layers(model: nn.Module) -> None:
    """Give the layers for logits and values, whose initial values no config key sets, those of
    nn.Linear.

    Hidden layers follow the config; `TORCH_INITIALIZERS` are the keys with which they begin alike.

    Args:
        model: A policy's model. Layers that a user's own module has made stay as they are.
    """
    hidden_layers: set[nn.Module] = set()
    for module in model.modules():
        if isinstance(module, DenseStack):
            hidden_layers.update(module.layers)
    for module in model.modules():
        if isinstance(module, Linear) and module not in hidden_layers:
            # `Linear` itself does nothing here, because `dense` initialises it.
            nn.Linear.reset_parameters(module)
