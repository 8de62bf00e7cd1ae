"""Policies to export: each model, distribution, kind of observation and of action at least once,
pairs mixed.
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np
from gymnasium.spaces import (
    Box,
    Dict,
    Discrete,
    Graph,
    MultiBinary,
    MultiDiscrete,
    OneOf,
    Sequence,
    Text,
    Tuple,
)
from heading import Headings

import rlcatalog
from rlcatalog.errors import UnreadKeysWarning
from rlcatalog.spaces import Repeated, Simplex
from rlcatalog_preprocessors.examples import Missions

VECTOR = Box(-1, 1, (3,), np.float32)
IMAGE = Box(0, 255, (16, 16, 3), np.uint8)
CONVS = {"conv_filters": [[4, [4, 4], 4], [8, [4, 4], 1]]}
PARTS = Dict({"a": Discrete(2), "b": Tuple([Box(0, 1, (2,), np.float32)])})
LSTM = {"use_lstm": True, "lstm_cell_size": 6}
ATTENTION = {
    "use_attention": True,
    "attention_dim": 8,
    "attention_memory_inference": 5,
    "attention_head_dim": 4,
}


@dataclass(frozen=True)
class Case:
    """One policy.

    Attributes:
        obs: Observation space.
        action: Action space.
        config: Model config.
        tolerance: How far the file may lie from the policy.
        recurrent: Whether it remembers: it is then tried over more steps.
        prepared: A module whose `prepare()` must be called before.
        framework: The policy's framework.
    """

    obs: object
    action: object
    config: dict = field(default_factory=dict)
    tolerance: float = 1e-5
    recurrent: bool = False
    prepared: str = ""
    framework: str = "torch"


def _case(obs, action, tolerance=1e-5, recurrent=False, prepared="", **config):
    return Case(obs, action, {"fcnet_hiddens": [8], **config}, tolerance, recurrent, prepared)


def cases():
    """Return name → case."""
    mask = Box(0, 1, (3,), np.int8)
    found = {
        "categorical, filter": _case(
            Dict({"v": VECTOR, "d": Discrete(3, start=2)}),
            Discrete(3, start=-1),
            observation_filter="MeanStdFilter",
        ),
        "squashed gaussian, choices": _case(
            MultiDiscrete([[2, 3], [4, 2]]),
            Box(-1, 2, (3,), np.float32),
            custom_action_dist="squashed_gaussian",
            free_log_std=True,
        ),
        "beta, nested": _case(
            Dict({"x": Tuple([VECTOR, Box(-5, 5, (), np.float64)]), "y": MultiBinary(2)}),
            Box(np.array([-1, 0], np.float32), np.array([2, 5], np.float32)),
            2e-5,
            custom_action_dist="beta",
        ),
        "gaussian, scaled, bits": _case(
            Tuple([MultiBinary((2, 2)), Discrete(4, start=-2)]),
            Box(-1, 2, (2, 1), np.float64),
            action_bounds="affine",
            vf_share_layers=False,
        ),
        "deterministic, whole numbers": _case(
            Box(-9, 9, (3,), np.int64),
            Box(-1, 1, (2,), np.float32),
            custom_action_dist="deterministic",
        ),
        "bernoulli, lstm": _case(
            VECTOR, MultiBinary((2, 2)), recurrent=True, **LSTM, lstm_use_prev_reward=True
        ),
        "choices, attention": _case(
            Box(0, 9, (2,), np.uint16),
            MultiDiscrete([2, 3], start=[1, -1]),
            recurrent=True,
            **ATTENTION,
            attention_use_n_prev_actions=2,
            attention_use_n_prev_rewards=1,
        ),
        "gumbel softmax, images": _case(
            IMAGE, Discrete(3), custom_action_dist="gumbel_softmax", **CONVS
        ),
        "quantiles": _case(VECTOR, Discrete(3), custom_action_dist="quantiles", num_quantiles=4),
        "dirichlet, text": _case(
            Dict({"t": Text(4), "v": VECTOR, "o": OneOf([VECTOR, Discrete(2)])}),
            Simplex((2, 3)),
            2e-5,
        ),
        "choices, two layers of a gru": _case(
            VECTOR,
            MultiDiscrete([2, 3]),
            recurrent=True,
            use_gru=True,
            gru_cell_size=6,
            lstm_num_layers=2,
        ),
        "parts, lstm": _case(VECTOR, PARTS, recurrent=True, **LSTM, lstm_use_prev_action=True),
        "one of, lstm": _case(
            VECTOR,
            OneOf([PARTS, Box(-3, 9, (2,), np.float32)]),
            recurrent=True,
            **LSTM,
            lstm_use_prev_action=True,
        ),
        "autoregressive": _case(
            VECTOR,
            Dict({"a": Discrete(2), "b": Box(0, 1, (2,), np.float32)}),
            use_autoregressive=True,
        ),
        "complex inputs": _case(
            Dict({"cam": IMAGE, "v": VECTOR, "d": Discrete(4)}), Box(-3, 9, (2,), np.int8), **CONVS
        ),
        "parametric": _case(
            Dict(
                {"action_mask": mask, "avail_actions": Box(-1, 1, (3, 4), np.float32), "v": VECTOR}
            ),
            Discrete(3),
            use_parametric=True,
        ),
        "slates, nature, sequences": _case(
            Dict(
                {
                    "cam": Box(0, 255, (36, 36, 3), np.uint8),
                    "s": Sequence(Discrete(3)),
                    "g": Graph(Box(-1, 1, (2,), np.float32), Discrete(2)),
                }
            ),
            MultiDiscrete([3, 3]),
            conv_filters="nature",
            custom_action_dist="slate_multi_categorical",
            sequence_max_len=60,
            graph_max_nodes=10,
            graph_max_edges=100,
        ),
        "impala, lstm": _case(
            IMAGE, Box(-1, 1, (2,), np.float32), recurrent=True, conv_filters="impala", **LSTM
        ),
        "gtrxl, simplex": _case(
            Dict({"p": Simplex((3,)), "r": Repeated(VECTOR, 3), "t": Missions()}),
            Discrete(3),
            recurrent=True,
            custom_model="gtrxl",
            text_max_length=20,
            **{key: value for key, value in ATTENTION.items() if key != "use_attention"},
        ),
        "integers": _case(
            Dict({"d": Discrete(4), "m": MultiDiscrete([2, 3])}),
            Discrete(2),
            _disable_preprocessor_api=True,
        ),
        "embedded integer": _case(Discrete(5, start=2), Discrete(2), embeddings=4),
        "embedded integers": _case(
            Dict({"d": Discrete(40_000), "m": MultiDiscrete([2, 3]), "t": Text(3), "v": VECTOR}),
            Discrete(2),
            embeddings={"d": 3, "m": 2, "t": 4},
        ),
        "memory of a game": _case(
            Box(0, 255, (128,), np.uint8), Discrete(2), custom_preprocessor="atari_ram"
        ),
        "pixels of a game": _case(
            Box(0, 255, (210, 160, 3), np.uint8),
            Discrete(2),
            dim=42,
            custom_preprocessor="generic_pixel",
        ),
    }
    found["a user's codec"] = _case(
        Dict({"h": Headings(), "v": VECTOR}), Discrete(2), prepared="heading"
    )
    found |= {f"{name}, tf": replace(case, framework="tf") for name, case in found.items()}
    return found | {
        "a user's recurrent model": _case(VECTOR, Discrete(3), recurrent=True, custom_model=gru()),
        "a recurrent layer": _case(
            VECTOR,
            Discrete(3),
            recurrent=True,
            memory=recurrent_layer("torch"),
        ),
        "a recurrent layer, tf": replace(
            _case(VECTOR, Discrete(3), recurrent=True, memory=recurrent_layer("tf")),
            framework="tf",
        ),
        "a memory of one step": _case(VECTOR, PARTS, recurrent=True, memory=traces()),
        "a user's model": _case(VECTOR, Discrete(3), custom_model=normalised()),
        "a user's views": _case(VECTOR, Discrete(3), recurrent=True, custom_model=looking_back()),
        "a user's Keras layers, lstm, tf": replace(
            _case(VECTOR, PARTS, recurrent=True, custom_model=of_keras(), **LSTM), framework="tf"
        ),
        "a user's recurrent model, tf": replace(
            _case(VECTOR, Discrete(3), recurrent=True, custom_model=gru("tf")), framework="tf"
        ),
    }


def gru(framework="torch"):
    """Return the recurrent model of the examples."""
    folder = str(Path(__file__).resolve().parents[2] / "examples")
    sys.path.insert(0, folder)
    try:
        import rnn_model
    finally:
        sys.path.remove(folder)
    return getattr(rnn_model, f"{framework}_model")()


def recurrent_layer(framework):
    """Return a recurrent layer of two layers of PyTorch, or one of Keras, which follows a trunk."""
    if framework == "tf":
        from rlcatalog_tf import keras

        return partial(keras.layers.LSTM, 5)

    from torch import nn

    return partial(nn.LSTM, hidden_size=5, num_layers=2)


def traces():
    """Return a module of one step, whose state is a dict of a vector and a matrix."""
    import torch
    from torch import nn

    class Traces(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.layer = nn.Linear(width + 4, 4)

        def initial_state(self, batch_size):
            return {"fast": torch.ones(batch_size, 4), "slow": torch.zeros(batch_size, 2, 2)}

        def forward(self, x, state):
            fast = torch.tanh(self.layer(torch.cat([x, state["fast"]], dim=1)))
            slow = 0.9 * state["slow"] + fast.reshape(-1, 2, 2)
            return slow.flatten(1) + fast, {"fast": fast, "slow": slow}

    return Traces


def normalised():
    """Return a model as users write them, that knows nothing of exporting."""
    from torch import nn

    from rlcatalog_torch import TorchModelV2

    class Normalised(TorchModelV2, nn.Module):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
            nn.Module.__init__(self)
            self.body = nn.Sequential(
                nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.ReLU()
            )
            self.ends = nn.ModuleList([nn.Linear(8, num_outputs), nn.Linear(8, 1)])

        def forward(self, input_dict, state, seq_lens):
            self.features = self.body(input_dict["obs"].float())
            return self.ends[0](self.features), state

        def value_function(self):
            return self.ends[1](self.features).squeeze(1)

    return Normalised


def of_keras():
    """Return a model of Keras' layers for TensorFlow alone, one that a memory is built around."""
    from rlcatalog_tf import TFModelV2, keras, tf

    class OfKeras(TFModelV2):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            super().__init__(obs_space, action_space, num_outputs, model_config, name)
            layers = keras.layers
            self.body = keras.Sequential(
                [layers.Dense(8), layers.BatchNormalization(), layers.Dropout(0.5)]
            )
            self.num_outputs = num_outputs or 8
            self.ends = [layers.Dense(self.num_outputs), layers.Dense(1)]

        def forward(self, input_dict, state, seq_lens):
            self.features = tf.where(self.body(input_dict["obs"]) > 0, 1.0, -1.0) * self.body(
                input_dict["obs"]
            )
            return self.ends[0](self.features), state

        def value_function(self):
            return self.ends[1](self.features)[:, 0]

    return OfKeras


def looking_back():
    """Return a model that asks for steps of the past."""
    from torch import cat, nn

    from rlcatalog import ViewRequirement
    from rlcatalog_torch import TorchModelV2

    class LookingBack(TorchModelV2, nn.Module):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
            nn.Module.__init__(self)
            self.logits, self.value = nn.Linear(9 + 2 + 2, num_outputs), nn.Linear(13, 1)
            self.view_requirements["frames"] = ViewRequirement("obs", shift="-2:0", space=obs_space)
            self.view_requirements["acted"] = ViewRequirement(
                "actions", shift=[-3, -1], space=action_space
            )
            self.view_requirements["t"] = ViewRequirement("t", shift=0)
            self.view_requirements["prev_rewards"] = ViewRequirement("rewards", shift=-1)

        def forward(self, input_dict, state, seq_lens):
            self.x = cat(
                [
                    input_dict["frames"].flatten(1),
                    input_dict["acted"].float(),
                    input_dict["t"].float()[:, None] / 10,
                    input_dict["prev_rewards"][:, None],
                ],
                1,
            )
            return self.logits(self.x), state

        def value_function(self):
            return self.value(self.x).squeeze(1)

    return LookingBack


def built(case):
    """Return the policy of a case, its weights jittered (equal ones may be merged) and its filter
    not empty.
    """
    if case.prepared:
        import_module(case.prepared).prepare()
    with warnings.catch_warnings():
        # Of small layers, which some models have not.
        warnings.simplefilter("ignore", UnreadKeysWarning)
        policy = rlcatalog.build(case.obs, case.action, case.config, case.framework)
    rng = np.random.default_rng(0)
    weights = policy.model.get_weights()
    for name, array in weights.items():
        if array.dtype.kind == "f" and "running" not in name:
            weights[name] = array + rng.normal(0, 0.05, array.shape).astype(array.dtype)
    policy.model.set_weights(weights)
    if policy.filter is not None:
        case.obs.seed(0)
        policy.preprocess([case.obs.sample() for _ in range(20)], update=True)
    return policy
