"""Models, distributions and catalogs for tests of several engines."""

from __future__ import annotations

import torch
from torch import distributions as td, nn

from rlcatalog import Catalog
from rlcatalog_testing import Subject
from rlcatalog_torch import Categorical, FullyConnectedNetwork, TorchModelV2


def catalog_with_twelve():
    """Return a catalog with the model "twelve", a layer of 12 units, which the default catalog
    lacks.
    """
    catalog = Catalog()

    @catalog.register_model("twelve")
    class Twelve(FullyConnectedNetwork):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            config = {**model_config, "fcnet_hiddens": [12]}
            super().__init__(obs_space, action_space, num_outputs, config, name)

    return catalog


def layer_widths(model):
    return [layer.out_features for layer in model.modules() if isinstance(layer, nn.Linear)]


def register_part(catalog, name, cls):
    """Register a model class, and return it as a part for the conformance kit."""
    catalog.register_model(name, cls)
    return Subject(catalog.registry.get("model", name), catalog, "torch")


class WithUnusedWeight(FullyConnectedNetwork):
    """A model whose weight "idle" nothing uses."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.idle = nn.Parameter(torch.ones(3))


class WithUpdateOps(FullyConnectedNetwork):
    """A model with an operation for each optimiser step, which RLlib does not run."""

    def update_ops(self):
        return [lambda: None]


class WithoutValue(TorchModelV2):
    """A model without a value function."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.layer = nn.Linear(obs_space.shape[0], num_outputs)

    def forward(self, input_dict, state, seq_lens):
        return self.layer(input_dict["obs_flat"]), state


class WithBatchStatistics(TorchModelV2):
    """A trunk that padding with zeros would spoil: it keeps batch statistics, and divides by the
    norm of its input, an observation of CartPole.
    """

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.num_outputs = 6
        # With momentum 1, the running mean is the mean of the last batch.
        self.norm = nn.BatchNorm1d(4, momentum=1.0)
        self.layer = nn.Linear(4, 6)

    def forward(self, input_dict, state, seq_lens):
        x = self.norm(input_dict["obs_flat"].float())
        self.features = self.layer(x / x.norm(dim=1, keepdim=True))
        return self.features, state


class SamplesArrays(Categorical):
    """A distribution of PyTorch that samples NumPy arrays."""

    def sample(self):
        return super().sample().numpy()


def squashed_normal(outputs):
    """Return a normal distribution, squashed by tanh and doubled: Pendulum's torques are in
    [-2, 2].
    """
    mean, log_std = outputs.chunk(2, -1)
    return td.TransformedDistribution(
        td.Normal(mean, log_std.exp()),
        [td.TanhTransform(cache_size=1), td.AffineTransform(0.0, 2.0)],
    )
