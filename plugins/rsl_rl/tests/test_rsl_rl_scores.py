"""Stored actions are scored in an update as they were when the policy acted."""

import numpy as np
import pytest
import torch

pytest.importorskip("rsl_rl", reason="rsl_rl is not installed; `make test` runs it apart")

from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from rsl_rl_runs import RslEnv, catalog_config, learn, make_runner
from tensor_envs import RandomGroupsEnv

from rlcatalog_rsl_rl import CatalogEnv

VECTOR = Box(-3, 3, (5,), np.float32)
MASKED = Dict({"action_mask": MultiBinary(4), "vector": VECTOR})
MIXED = Dict(
    {
        "camera": Box(0, 255, (10, 10, 3), np.uint8),
        "gear": Discrete(3, start=2),
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
    "bounded": (VECTOR, Box(-1, 2, (3,), np.float32), SMALL),
    "squashed": (
        VECTOR,
        Box(-1, 2, (3,), np.float32),
        {**SMALL, "custom_action_dist": "squashed_gaussian"},
    ),
    "lstm": (VECTOR, Discrete(3), LSTM),
    "lstm, value chain": (VECTOR, FREE, {**LSTM, "vf_share_layers": False, "vf_memory": "own"}),
    "lstm, shared": (VECTOR, FREE, {**LSTM, "vf_share_layers": True}),
    "gru": (VECTOR, FREE, {**SMALL, "memory": torch.nn.GRU, "memory_config": {"hidden_size": 8}}),
    "attention": (VECTOR, FREE, {**ATTENTION, "vf_share_layers": True}),
    "attention, value chain": (VECTOR, FREE, ATTENTION),
    "mask": (MASKED, Discrete(4, start=1), SMALL),
    "mask, lstm": (MASKED, Discrete(4), LSTM),
    "tuple": (VECTOR, PAIR, SMALL),
    "tuple, lstm": (VECTOR, PAIR, LSTM),
    "parts that depend on one another": (
        VECTOR,
        PAIR,
        {**SMALL, "use_autoregressive": True},
    ),
    "multi_discrete": (VECTOR, MultiDiscrete([3, 2]), SMALL),
    "multi_binary": (VECTOR, MultiBinary(3), SMALL),
    "mixed groups": (MIXED, FREE, SMALL),
    "mixed groups, lstm": (MIXED, FREE, LSTM),
    "filter": (VECTOR, FREE, {**SMALL, "observation_filter": "MeanStdFilter"}),
    "filter, lstm": (VECTOR, FREE, {**LSTM, "observation_filter": "MeanStdFilter"}),
    "critic": (VECTOR, FREE, {**SMALL, "critic": {"fcnet_hiddens": [32, 32]}}),
}


def make_random_runner(observation_space, action_space, model_config, num_envs=8, **settings):
    """Return a runner for random observations of a space."""
    groups = None
    if isinstance(observation_space, Dict):
        names = list(observation_space)
        groups = {"actor": names, "critic": names}
    tensor_env = RandomGroupsEnv(num_envs, observation_space, action_space)
    env = CatalogEnv(RslEnv(tensor_env), action_space, observation_space)
    # The last epochs' weights must not matter for the first minibatch.
    config = catalog_config(model_config, groups, steps=9, num_mini_batches=2, **settings)
    return make_runner(env, config)


def record_first_minibatch(runner):
    """Record the log densities and values that an update computes for its first minibatch, beside
    the stored ones.

    Returns:
        A function that returns new and stored log densities, and new and stored values.
    """
    actor, storage = runner.alg.actor, runner.alg.storage
    batches, logps, values = [], [], []

    def wrap(generator):
        def record(*arguments):
            for batch in generator(*arguments):
                batches.append(batch)
                yield batch

        return record

    storage.mini_batch_generator = wrap(storage.mini_batch_generator)
    storage.recurrent_mini_batch_generator = wrap(storage.recurrent_mini_batch_generator)
    compute_logp = actor.get_output_log_prob

    def score(actions):
        logp = compute_logp(actions)
        if batches:
            logps.append(logp.detach().clone())
            values.append(actor.value_of(batches[-1].observations).detach().clone())
        return logp

    actor.get_output_log_prob = score

    def read():
        batch = batches[0]
        return logps[0], batch.old_actions_log_prob.squeeze(-1), values[0], batch.values

    return read


@pytest.mark.parametrize("name", CASES)
def test_first_minibatch_scores_actions_as_acting_did(name):
    observation_space, action_space, model_config = CASES[name]
    settings = {}
    if name in ("squashed", "parts that depend on one another"):
        settings["schedule"] = "fixed"
    runner = make_random_runner(observation_space, action_space, model_config, **settings)
    learn(runner, 1)  # the second rollout begins in the middle of episodes
    read = record_first_minibatch(runner)
    learn(runner, 1)
    logp, stored_logp, values, stored_values = read()
    assert logp.shape == stored_logp.shape
    torch.testing.assert_close(logp, stored_logp, rtol=0, atol=1e-6)
    torch.testing.assert_close(values, stored_values, rtol=0, atol=1e-6)
