"""Stored actions are scored in an update as they were when the policy acted."""

import numpy as np
import pytest
import torch

pytest.importorskip("skrl", reason="skrl is not installed; `make test` runs it apart")

from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from skrl_runs import make_catalog_agent, make_trainer
from tensor_envs import RandomGroupsEnv

VECTOR = Box(-3, 3, (5,), np.float32)
MASKED = Dict({"action_mask": MultiBinary(4), "vector": VECTOR})
MIXED = Dict(
    {
        "camera": Box(0, 255, (10, 10, 3), np.uint8),
        "gear": Discrete(3, start=2),
        "grid": MultiDiscrete([[2, 3], [3, 2]]),
        "vector": VECTOR,
    }
)
PAIR = Tuple([Discrete(3), Box(-1, 1, (2,), np.float32)])
FREE = Box(-np.inf, np.inf, (2,), np.float32)
SMALL = {"fcnet_hiddens": [16]}
LSTM = {**SMALL, "use_lstm": True, "lstm_cell_size": 8}
ATTENTION = {
    **SMALL,
    "use_attention": True,
    "attention_dim": 8,
    "attention_head_dim": 4,
    "attention_num_heads": 2,
    "attention_num_transformer_units": 2,
    "attention_memory_inference": 4,
    "attention_memory_training": 4,
}
#: Name → (observation space, action space, model config).
CASES = {
    "mlp": (VECTOR, FREE, SMALL),
    "squashed": (
        VECTOR,
        Box(-1, 2, (3,), np.float32),
        {**SMALL, "custom_action_dist": "squashed_gaussian"},
    ),
    "lstm": (VECTOR, Discrete(3), LSTM),
    "lstm, value chain": (VECTOR, FREE, {**LSTM, "vf_share_layers": False, "vf_memory": "own"}),
    "gru": (VECTOR, FREE, {**SMALL, "memory": torch.nn.GRU, "memory_config": {"hidden_size": 8}}),
    "attention": (VECTOR, FREE, {**ATTENTION, "vf_share_layers": True}),
    "mask": (MASKED, Discrete(4, start=1), SMALL),
    "mask, lstm": (MASKED, Discrete(4), LSTM),
    "tuple": (VECTOR, PAIR, SMALL),
    "tuple, lstm": (VECTOR, PAIR, LSTM),
    "parts that depend on one another": (VECTOR, PAIR, {**SMALL, "use_autoregressive": True}),
    "multi_discrete": (VECTOR, MultiDiscrete([3, 2]), SMALL),
    "multi_binary": (VECTOR, MultiBinary(3), SMALL),
    "mixed groups": (MIXED, FREE, SMALL),
    "filter": (VECTOR, FREE, {**SMALL, "observation_filter": "MeanStdFilter"}),
    "filter, lstm": (VECTOR, FREE, {**LSTM, "observation_filter": "MeanStdFilter"}),
    "critic": (VECTOR, FREE, {**SMALL, "critic": {"fcnet_hiddens": [32, 32]}}),
}


#: A rollout of 8 steps is one sequence; with a memory, also two.
SEQUENCES = [(name, 8) for name in CASES] + [("lstm", 4), ("attention", 4), ("mask, lstm", 4)]


@pytest.mark.parametrize(("name", "sequence_length"), SEQUENCES)
def test_first_minibatch_scores_actions_as_acting_did(name, sequence_length):
    observation_space, action_space, model_config = CASES[name]
    tensor_env = RandomGroupsEnv(8, observation_space, action_space)
    agent, env = make_catalog_agent(
        tensor_env, model_config, sequence_length=sequence_length, mini_batches=2
    )
    scores = record_first_scores(agent, update=2)  # its rollout begins within episodes

    make_trainer(agent, env, updates=2).train()

    actions, logp, values = scores()
    # The rows of a minibatch are drawn at random; each is found by its action.
    stored_actions, stored_logp, stored_values = (
        agent.memory.get_tensor_by_name(column).flatten(0, 1)
        for column in ("actions", "log_prob", "values")
    )
    for row, action in enumerate(actions):
        candidates = (stored_actions == action).all(1)
        logp_error = (stored_logp[candidates] - logp[row]).abs()
        value_error = (stored_values[candidates] - values[row]).abs()
        assert (logp_error + value_error).min() < 1e-6


def record_first_scores(agent, update):
    """Record the log densities and values of the first minibatch of an update.

    Returns:
        A function that returns its actions, log densities and values.
    """
    model = agent.policy
    act = model.act
    run_update = agent.update
    updates = []
    scores = []

    def count_update(**arguments):
        updates.append(arguments)
        run_update(**arguments)

    def record(inputs, *, role=""):
        result = act(inputs, role=role)
        is_scoring = "taken_actions" in inputs and role == "policy"
        if is_scoring and len(updates) == update and not scores:
            values, _ = act(inputs, role="value")
            logp = result[1]["log_prob"]
            scores.extend([inputs["taken_actions"], logp.detach(), values.detach()])
        return result

    agent.update = count_update
    model.act = record
    return lambda: scores
