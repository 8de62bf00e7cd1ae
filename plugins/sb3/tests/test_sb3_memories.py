"""Memories of a plugin under RecurrentPPO, and catalogs other than the default one."""

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")
pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")

import msgspec
import torch
from engine_models import catalog_with_twelve, layer_widths
from sb3_helpers import extractor_kwargs, score_rollout
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.env_util import make_vec_env
from torch import nn
from torch_weights import assert_every_weight_changed, copy_weights

from rlcatalog import Catalog
from rlcatalog.errors import NotServedError, UnknownNameError
from rlcatalog_policy import load
from rlcatalog_sb3 import (
    CatalogPolicy,
    CatalogRecurrentPolicy,
    RecurrentPPO,
    for_sb3,
    to_policy,
)
from rlcatalog_torch import FullyConnectedNetwork, TorchModelV2, steps_of


class GatedConfig(msgspec.Struct, frozen=True, kw_only=True):
    use_gated: bool = False
    gated_widths: list[int] = msgspec.field(default_factory=lambda: [5])


class Gated(TorchModelV2):
    """A memory of GRU cells side by side, around a trunk; each cell has one vector of state."""

    is_memory = True

    def __init__(self, obs_space, action_space, num_outputs, model_config, name, trunk):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.trunk = trunk
        self.widths = model_config["gated_widths"]
        self.cells = nn.ModuleList(nn.GRUCell(trunk.num_outputs, width) for width in self.widths)
        self.logits = nn.Linear(sum(self.widths), num_outputs)
        self.value = nn.Linear(sum(self.widths), 1)

    def get_initial_state(self):
        return [torch.zeros(width) for width in self.widths]

    def forward(self, input_dict, state, seq_lens):
        features, _ = self.trunk(input_dict, [], None)
        num_sequences = len(seq_lens)
        num_steps = steps_of(len(features), num_sequences)
        sequences = features.reshape(num_sequences, num_steps, -1)
        outputs = []
        for step in range(num_steps):
            is_real = (step < seq_lens)[:, None]
            new_state = []
            for cell, part in zip(self.cells, state, strict=True):
                new_part = cell(sequences[:, step], part)
                new_state.append(torch.where(is_real, new_part, part))
            state = new_state
            outputs.append(torch.cat(state, 1))
        self.features = torch.stack(outputs, 1).flatten(0, 1)
        return self.logits(self.features), state

    def value_function(self):
        return self.value(self.features)[:, 0]


@pytest.fixture(scope="module")
def catalog():
    """The installed parts, and the memory `Gated`, which the key `use_gated` selects."""
    catalog = Catalog()
    catalog.register_model("gated", Gated, slot="memory", switch="use_gated", config=GatedConfig)
    return catalog


def make_recurrent_ppo(catalog, widths, env="CartPole-v1", custom_model=None, **settings):
    """Return an algorithm with a `Gated` memory of the given widths."""
    config = {"fcnet_hiddens": [8], "use_gated": True, "gated_widths": widths}
    if custom_model is not None:
        config["custom_model"] = custom_model
    defaults = {"n_steps": 64, "batch_size": 64, "n_epochs": 2, "seed": 0, "device": "cpu"}
    return RecurrentPPO(
        CatalogRecurrentPolicy,
        env,
        policy_kwargs={"model_config": config, "catalog": catalog},
        **{**defaults, **settings},
    )


# --- states of any number of vectors --------------------------------------------------------------


@pytest.mark.parametrize("widths", [[5], [4, 4], [5, 3, 2]], ids=str)
def test_stored_actions_are_scored_as_when_sampled(catalog, widths):
    envs = make_vec_env("CartPole-v1", n_envs=2, seed=0)
    # A learning rate of 0 keeps the weights that sampled the actions.
    model = make_recurrent_ppo(catalog, widths, env=envs, learning_rate=0.0)
    model.learn(128)

    scores = score_rollout(model)

    assert len(scores.logp) == 128  # 64 steps in each of two environments
    torch.testing.assert_close(scores.logp, scores.stored_logp, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(scores.values, scores.stored_values, rtol=1e-4, atol=1e-5)


class RecordsTraining(FullyConnectedNetwork):
    """A trunk that records whether each of its passes is one of training."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.passes = []

    def forward(self, input_dict, state, seq_lens):
        self.passes.append(bool(input_dict["is_training"]))
        return super().forward(input_dict, state, seq_lens)


def test_steps_after_a_start_in_a_sequence_are_trained(catalog):
    model = make_recurrent_ppo(catalog, [5], custom_model=RecordsTraining)
    model.learn(64)
    batch = next(iter(model.rollout_buffer.get(64)))
    starts = torch.ones_like(batch.episode_starts)  # each step is the first of its episode
    passes = model.policy.model.trunk.passes
    passes.clear()

    model.policy.evaluate_actions(
        batch.observations, batch.actions.long().flatten(), batch.lstm_states, starts
    )

    # Where episodes begin in the middle of sequences, the model runs step by step.
    assert len(passes) > 1
    assert all(passes)


@pytest.mark.parametrize("widths", [[5], [4, 4], [5, 3, 2]], ids=str)
def test_training_changes_every_weight_of_a_memory(catalog, widths):
    model = make_recurrent_ppo(catalog, widths)
    weights_before = copy_weights(model.policy.model)

    model.learn(64)

    assert_every_weight_changed(model.policy.model, weights_before)


@pytest.mark.parametrize("widths", [[5], [4, 4], [5, 3, 2]], ids=str)
def test_saved_memory_has_the_states_of_its_exported_policy(catalog, widths, tmp_path):
    model = make_recurrent_ppo(catalog, widths).learn(64)
    model.save(tmp_path / "model.zip")
    to_policy(model).save(tmp_path / "policy")

    loaded = RecurrentPPO.load(tmp_path / "model.zip", device="cpu")
    stepper = load(tmp_path / "policy", catalog=catalog).stepper(3)  # of three environments

    obs = np.array([[0.3, -0.2, 0.1, 0], [0, 0.2, -0.1, 0.3], [-0.3, 0, 0.2, 0.1]], np.float32)
    state = None
    # Whether an episode starts, in each of three environments.
    for done in ([True, True, True], [False, False, False], [False, True, False]):
        action, state = loaded.predict(obs, state, np.array(done), deterministic=True)
        step = stepper.step(obs, done=np.array(done), explore=False)

        np.testing.assert_array_equal(action, step.action)
        # The two vectors of RecurrentPPO, one after the other, may end with a padding 0.
        memory = np.concatenate([state[0][0], state[1][0]], axis=1)[:, : sum(widths)]
        expected_memory = np.concatenate(stepper.state.memory, axis=1)
        np.testing.assert_allclose(memory, expected_memory, atol=1e-6)
        assert np.abs(memory).max() > 0.01


def test_attention_is_rejected_because_its_state_is_not_a_vector(catalog):
    kwargs = {"model_config": {"use_attention": True}, "catalog": catalog}

    with pytest.raises(NotServedError, match=r"^use_attention: ") as caught:
        RecurrentPPO(CatalogRecurrentPolicy, "CartPole-v1", policy_kwargs=kwargs)

    message = str(caught.value)
    assert "float vectors" in message
    assert "states of shapes [(1, 50, 64), " in message


# --- other catalogs -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def twelve_catalog():
    """A catalog with the model "twelve", a layer of 12 units, which the default catalog lacks."""
    return catalog_with_twelve()


def test_model_of_another_catalog_is_unknown_to_the_default():
    kwargs = {"model_config": {"custom_model": "twelve"}}

    with pytest.raises(UnknownNameError, match="twelve"):
        PPO(CatalogPolicy, "CartPole-v1", policy_kwargs=kwargs, device="cpu")


def test_policy_takes_its_model_from_a_catalog(twelve_catalog):
    kwargs = {"model_config": {"custom_model": "twelve"}, "catalog": twelve_catalog}

    ppo = PPO(CatalogPolicy, "CartPole-v1", policy_kwargs=kwargs, device="cpu")

    assert 12 in layer_widths(ppo.policy.model)


def test_policy_takes_the_catalog_of_a_flattened_environment(twelve_catalog):
    env = for_sb3(gym.make("CartPole-v1"), {"custom_model": "twelve"}, twelve_catalog)

    ppo = PPO(CatalogPolicy, env, device="cpu")

    assert 12 in layer_widths(ppo.policy.model)
    assert ppo.policy.catalog_policy.catalog is twelve_catalog


def test_extractor_takes_its_trunk_from_a_catalog(twelve_catalog):
    kwargs = extractor_kwargs({"custom_model": "twelve"})
    kwargs["features_extractor_kwargs"]["catalog"] = twelve_catalog

    dqn = DQN("MlpPolicy", "CartPole-v1", policy_kwargs=kwargs, device="cpu", buffer_size=100)

    # The model "twelve" has a layer of 12 units.
    assert dqn.q_net.features_extractor.features_dim == 12
    obs = np.zeros((5, 4), np.float32)
    expected, _ = dqn.predict(obs, deterministic=True)
    np.testing.assert_array_equal(to_policy(dqn).act(obs, explore=False).action, expected)


def test_loaded_policy_has_its_catalog(catalog, tmp_path):
    model = make_recurrent_ppo(catalog, widths=[3])
    model.policy.save(tmp_path / "policy.pt")

    loaded = CatalogRecurrentPolicy.load(tmp_path / "policy.pt", device="cpu")

    assert loaded.catalog_policy.catalog is catalog
    obs = np.full((2, 4), 0.1, np.float32)
    expected, _ = model.predict(obs, deterministic=True)
    actions, _ = loaded.predict(obs, deterministic=True)
    np.testing.assert_array_equal(actions, expected)


# --- plain memories, and layers by config ---------------------------------------------------------


class Decay(nn.Module):
    """A memory of one step, whose state is a dict of a vector and a matrix."""

    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width + 3, 3)

    def initial_state(self, batch_size):
        return {"fast": torch.zeros(batch_size, 3), "slow": torch.zeros(batch_size, 2, 2)}

    def forward(self, x, state):
        fast = torch.tanh(self.layer(torch.cat([x, state["fast"]], dim=1)))
        return fast, {"fast": fast, "slow": 0.5 * state["slow"]}


class StartsAtOne(Decay):
    def initial_state(self, batch_size):
        return {**super().initial_state(batch_size), "fast": torch.ones(batch_size, 3)}


class Counting(Decay):
    def initial_state(self, batch_size):
        state = super().initial_state(batch_size)
        return {**state, "slow": torch.zeros(batch_size, 2, 2, dtype=torch.int64)}

    def forward(self, x, state):
        y, new_state = super().forward(x, state)
        return y, {**new_state, "slow": state["slow"] + 1}


PLAIN_MEMORIES = [
    pytest.param({"memory": nn.GRU, "memory_config": {"hidden_size": 5}}, id="gru"),
    pytest.param(
        {"memory": nn.LSTM, "memory_config": {"hidden_size": 5, "num_layers": 2}}, id="lstm-2"
    ),
    pytest.param({"memory": Decay}, id="own-module"),
    pytest.param({"use_gru": True, "gru_cell_size": 5, "lstm_num_layers": 2}, id="use-gru-2"),
]


def make_plain_ppo(config, **settings):
    defaults = {"n_steps": 64, "batch_size": 64, "n_epochs": 2, "seed": 0, "device": "cpu"}
    return RecurrentPPO(
        CatalogRecurrentPolicy,
        make_vec_env("CartPole-v1", n_envs=2, seed=0),
        policy_kwargs={"model_config": {"fcnet_hiddens": [8], **config}},
        **{**defaults, **settings},
    )


@pytest.mark.parametrize("config", PLAIN_MEMORIES)
def test_plain_memory_is_scored_as_when_sampled(config):
    # A learning rate of 0 keeps the weights that sampled the actions.
    model = make_plain_ppo(config, learning_rate=0.0).learn(128)

    scores = score_rollout(model)

    torch.testing.assert_close(scores.logp, scores.stored_logp, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(scores.values, scores.stored_values, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("config", PLAIN_MEMORIES)
def test_training_changes_every_weight_of_a_plain_memory(config):
    model = make_plain_ppo(config)
    weights_before = copy_weights(model.policy.model)

    model.learn(128)

    assert_every_weight_changed(model.policy.model, weights_before)


def test_saved_plain_memory_is_loaded(tmp_path):
    config = {"memory": nn.GRU, "memory_config": {"hidden_size": 5}}
    model = make_plain_ppo(config).learn(128)
    model.save(tmp_path / "model.zip")

    loaded = RecurrentPPO.load(tmp_path / "model.zip", device="cpu")

    obs = np.array([[0.3, -0.2, 0.1, 0]], np.float32)
    _, state = model.predict(obs, deterministic=True)
    _, loaded_state = loaded.predict(obs, deterministic=True)
    np.testing.assert_array_equal(state[0], loaded_state[0])


@pytest.mark.parametrize("memory", [StartsAtOne, Counting])
def test_states_that_recurrent_ppo_cannot_store_are_an_error(memory):
    with pytest.raises(NotServedError, match="float vectors that are initially zero") as caught:
        make_plain_ppo({"memory": memory})

    assert memory.__name__ in str(caught.value)


def test_ppo_rejects_a_plain_memory():
    config = {"memory": nn.GRU, "memory_config": {"hidden_size": 5}}

    with pytest.raises(NotServedError, match="keeps no state between steps"):
        PPO(CatalogPolicy, "CartPole-v1", policy_kwargs={"model_config": config})
