"""Memories of any vectors under RecurrentPPO, and catalogs of one's own."""

import pickle

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")
pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")

import msgspec
import torch
from gymnasium.spaces import Discrete
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.env_util import make_vec_env
from torch import nn

import rlcatalog
from rlcatalog import Catalog
from rlcatalog.errors import NotServedError, UnknownNameError
from rlcatalog_policy import load
from rlcatalog_sb3 import (
    CatalogExtractor,
    CatalogPolicy,
    CatalogRecurrentPolicy,
    RecurrentPPO,
    for_sb3,
    to_policy,
)
from rlcatalog_torch import FullyConnectedNetwork, TorchModelV2, steps_of

QUICK = {"n_steps": 64, "batch_size": 64, "n_epochs": 2, "seed": 0, "device": "cpu"}


class GatedConfig(msgspec.Struct, frozen=True, kw_only=True):
    use_gated: bool = False
    gated_widths: list[int] = msgspec.field(default_factory=lambda: [5])


class Gated(TorchModelV2):
    """GRU cells side by side around a trunk, a vector of state for each."""

    is_memory = True

    def __init__(self, obs_space, action_space, num_outputs, model_config, name, trunk):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.trunk, self.widths = trunk, model_config["gated_widths"]
        self.cells = nn.ModuleList(nn.GRUCell(trunk.num_outputs, width) for width in self.widths)
        self.logits, self.value = (
            nn.Linear(sum(self.widths), num_outputs),
            nn.Linear(sum(self.widths), 1),
        )

    def get_initial_state(self):
        return [torch.zeros(width) for width in self.widths]

    def forward(self, input_dict, state, seq_lens):
        features = self.trunk(input_dict, [], None)[0]
        count = len(seq_lens)
        timed = features.reshape(count, steps_of(len(features), count), -1)
        found = []
        for t in range(timed.shape[1]):
            keep = (t < seq_lens)[:, None]
            after = [cell(timed[:, t], part) for cell, part in zip(self.cells, state, strict=True)]
            state = [torch.where(keep, new, old) for new, old in zip(after, state, strict=True)]
            found.append(torch.cat(after, 1))
        self.features = torch.stack(found, 1).flatten(0, 1)
        return self.logits(self.features), state

    def value_function(self):
        return self.value(self.features)[:, 0]


@pytest.fixture(scope="module")
def catalog():
    """The installed parts, and a memory of the program's own, switched on by a key of its own."""
    made = Catalog()
    made.register_model("gated", Gated, slot="memory", switch="use_gated", config=GatedConfig)
    return made


def config_of(*widths):
    return {"fcnet_hiddens": [8], "use_gated": True, "gated_widths": list(widths)}


def algorithm(catalog, *widths, env="CartPole-v1", **changes):
    kwargs = {"model_config": config_of(*widths), "catalog": catalog}
    return RecurrentPPO(CatalogRecurrentPolicy, env, policy_kwargs=kwargs, **{**QUICK, **changes})


WIDTHS = [(5,), (4, 4), (3, 6), (5, 3, 2), (2, 2, 2, 1)]


@pytest.mark.parametrize("widths", WIDTHS, ids=str)
def test_stored_sequences_are_scored_as_they_were_drawn(catalog, widths):
    """What the loop packs and unpacks, step by step and in padded sequences, gives back what acting
    computed.
    """
    model = algorithm(
        catalog, *widths, env=make_vec_env("CartPole-v1", 2, seed=0), learning_rate=0.0
    )
    model.learn(128)
    checked = 0
    for data in model.rollout_buffer.get(50):
        values, logp, _ = model.policy.evaluate_actions(
            data.observations, data.actions.long().flatten(), data.lstm_states, data.episode_starts
        )
        real = data.mask > 0
        torch.testing.assert_close(logp[real], data.old_log_prob[real], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(
            values.flatten()[real], data.old_values[real], rtol=1e-4, atol=1e-5
        )
        checked += int(real.sum())
    assert checked == 128


@pytest.mark.parametrize("widths", [(5,), (5, 3, 2)], ids=str)
def test_it_trains_every_weight_acts_as_the_policy_itself_and_is_saved(catalog, widths, tmp_path):
    model = algorithm(catalog, *widths)
    before = {name: array.copy() for name, array in model.policy.model.get_weights().items()}
    model.learn(64)
    after = model.policy.model.get_weights()
    assert [name for name in before if np.array_equal(before[name], after[name])] == []
    model.save(tmp_path / "model.zip")
    loaded = RecurrentPPO.load(tmp_path / "model.zip", device="cpu")
    to_policy(model).save(tmp_path / "policy")
    stepper = load(tmp_path / "policy", catalog=catalog).stepper(3)
    state, done, rng = None, np.ones(3, bool), np.random.default_rng(0)
    for _ in range(8):
        obs = rng.uniform(-0.3, 0.3, (3, 4)).astype(np.float32)
        action, state = loaded.predict(obs, state, episode_start=done, deterministic=True)
        np.testing.assert_array_equal(action, stepper.step(obs, done=done, explore=False).action)
        row = np.concatenate([state[0][0], state[1][0]], 1)[:, : sum(widths)]
        np.testing.assert_allclose(row, np.concatenate(stepper.state.memory, 1), atol=1e-6)
        done = rng.random(3) < 0.3
    assert np.abs(row).max() > 0.01


def test_a_window_is_no_vector_and_refused(catalog):
    kwargs = {"model_config": {"use_attention": True}, "catalog": catalog}
    with pytest.raises(
        NotServedError,
        match=r"^use_attention: .* float vectors .* states of shapes \[\(1, 50, 64\), ",
    ):
        RecurrentPPO(CatalogRecurrentPolicy, "CartPole-v1", policy_kwargs=kwargs, **QUICK)


# --- catalogs of one's own ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small():
    """A catalog in which a model has a name that the process's catalog does not know."""
    made = Catalog()

    @made.register_model("twelve")
    class Twelve(FullyConnectedNetwork):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            super().__init__(
                obs_space, action_space, num_outputs, {**model_config, "fcnet_hiddens": [12]}, name
            )

    return made


NAMED = {"custom_model": "twelve"}


def widths_of(model):
    return [layer.out_features for layer in model.modules() if isinstance(layer, nn.Linear)]


def test_a_policy_an_extractor_and_a_flattened_environment_take_a_catalog(small):
    with pytest.raises(UnknownNameError, match="twelve"):
        PPO(CatalogPolicy, "CartPole-v1", policy_kwargs={"model_config": NAMED}, device="cpu")
    ppo = PPO(
        CatalogPolicy,
        "CartPole-v1",
        policy_kwargs={"model_config": NAMED, "catalog": small},
        device="cpu",
    )
    assert 12 in widths_of(ppo.policy.model)
    # Of which the policy then takes the catalog.
    env = for_sb3(gym.make("CartPole-v1"), NAMED, small)
    ppo = PPO(CatalogPolicy, env, device="cpu")
    assert 12 in widths_of(ppo.policy.model)
    assert ppo.policy.catalog_policy.catalog is small
    kwargs = {
        "features_extractor_class": CatalogExtractor,
        "features_extractor_kwargs": {"model_config": NAMED, "catalog": small},
    }
    dqn = DQN("MlpPolicy", "CartPole-v1", policy_kwargs=kwargs, device="cpu", buffer_size=100)
    assert dqn.q_net.features_extractor.features_dim == 12
    obs = np.random.default_rng(0).uniform(-0.1, 0.1, (5, 4)).astype(np.float32)
    exported = to_policy(dqn).act(obs, explore=False)
    np.testing.assert_array_equal(exported.action, dqn.predict(obs, deterministic=True)[0])


def test_a_policy_is_saved_with_its_catalog(catalog, tmp_path):
    model = algorithm(catalog, 3)
    model.policy.save(tmp_path / "policy.pt")
    loaded = CatalogRecurrentPolicy.load(tmp_path / "policy.pt", device="cpu")
    assert loaded.catalog_policy.catalog is catalog  # the one that this process has
    obs = np.full((2, 4), 0.1, np.float32)
    np.testing.assert_array_equal(
        loaded.predict(obs, deterministic=True)[0], model.predict(obs, deterministic=True)[0]
    )


def test_a_catalog_is_the_same_object_in_its_process_and_equal_in_another(catalog, monkeypatch):
    data = pickle.dumps(catalog)
    assert pickle.loads(data) is catalog
    from rlcatalog.catalog import registrations

    monkeypatch.setattr(registrations, "_ALIVE", {})  # as in another process
    other = pickle.loads(data)
    assert other is not catalog
    assert pickle.loads(data) is other
    space = gym.spaces.Box(-1, 1, (3,), np.float32)
    found = rlcatalog.build(space, Discrete(2), config_of(3, 2), "torch", catalog=other)
    assert isinstance(found.model, Gated)
    assert found.model.widths == [3, 2]
