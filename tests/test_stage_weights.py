"""Weights that parts announce before they are built: never more than the model has, and most of them."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

import rlcatalog

VECTOR, IMAGE = spaces.Box(-1, 1, (5,), np.float32), spaces.Box(0, 255, (42, 42, 3), np.uint8)
BOTH = spaces.Dict({"image": IMAGE, "vector": VECTOR})
EMBEDDED = spaces.Dict({"action_mask": spaces.MultiBinary(3), "avail_actions": spaces.Box(-1, 1, (3, 7), np.float32),
                        "x": VECTOR})  # fmt: skip
THREE, PAIR, BOX = spaces.Discrete(3), spaces.MultiDiscrete([3, 4]), spaces.Box(-1, 1, (2,), np.float32)
CASES = {
    "fcnet": (VECTOR, THREE, {"fcnet_hiddens": [40, 30]}),
    "values apart": (VECTOR, THREE, {"fcnet_hiddens": [40, 30], "vf_share_layers": False}),
    "free log std": (VECTOR, BOX, {"fcnet_hiddens": [40], "free_log_std": True}),
    "no final linear": (VECTOR, THREE, {"fcnet_hiddens": [40, 30], "no_final_linear": True}),
    "post_fcnet": (VECTOR, THREE, {"fcnet_hiddens": [40], "post_fcnet_hiddens": [20]}),
    "visionnet": (IMAGE, THREE, {}),
    "nature": (IMAGE, THREE, {"conv_filters": "nature"}),
    "impala": (IMAGE, THREE, {"conv_filters": "impala"}),
    "convolution as logits": (IMAGE, THREE, {"no_final_linear": True}),
    "complex_input": (BOTH, THREE, {"post_fcnet_hiddens": [20]}),
    "lstm": (VECTOR, THREE, {"use_lstm": True, "lstm_cell_size": 30, "lstm_use_prev_action": True}),
    "attention": (VECTOR, THREE, {"use_attention": True, "attention_num_transformer_units": 2,
                                  "attention_use_n_prev_actions": 2}),
    "transformer alone": (VECTOR, THREE, {"custom_model": "gtrxl", "custom_model_config": {"attention_dim": 40}}),
    "mask": (EMBEDDED, THREE, {"action_embeddings_key": "none"}),
    "embeddings": (EMBEDDED, THREE, {}),
    "autoregressive": (VECTOR, PAIR, {"use_autoregressive": True}),
    "all": (BOTH, PAIR, {"use_autoregressive": True, "use_lstm": True, "lstm_cell_size": 30}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_parts_announce_most_of_their_weights_and_never_more(case):
    obs, action, config = CASES[case]
    policy = rlcatalog.build(obs, action, config, "torch")
    announced = sum(stage.weights for stage in policy.resolution.shapes)
    built = sum(array.size for array in policy.model.get_weights().values())
    assert built / (3 if case == "values apart" else 1.6) < announced <= built
