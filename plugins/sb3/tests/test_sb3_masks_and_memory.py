"""MaskablePPO and RecurrentPPO of sb3-contrib with the catalog's parts."""

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")
pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")

import sb3_contrib
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from sb3_contrib import MaskablePPO
from sb3_contrib.common.recurrent.buffers import RecurrentRolloutBuffer
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from sb3_contrib.common.wrappers import ActionMasker
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

import rlcatalog
from rlcatalog.errors import ActionMaskError, NotServedError
from rlcatalog.spaces import Repeated
from rlcatalog_sb3 import (
    CatalogMaskablePolicy,
    CatalogPolicy,
    CatalogRecurrentPolicy,
    RecurrentPPO,
    for_sb3,
    to_policy,
)
from rlcatalog_sb3.contrib import sequence_lengths
from rlcatalog_torch import RecurrentNetwork, TorchModelV2

# One config serves parts of every kind here.
pytestmark = pytest.mark.filterwarnings("ignore::rlcatalog.errors.UnreadKeysWarning")

QUICK = {"n_steps": 64, "batch_size": 64, "n_epochs": 2, "seed": 0, "device": "cpu"}
#: Before an update, and after it, every source of masks is asked 32 times: a choice at random is
#: forbidden most times.
SHORT = {**QUICK, "n_steps": 16, "batch_size": 32}


class Doors(gym.Env):
    """Of some doors two are open at a time; the open one with the larger number pays.

    Counts forbidden actions.
    """

    def __init__(self, inside=True, actions=None, close_at_the_end=False):
        self.action_space = actions or Discrete(6, start=0)
        self.starts = np.ravel(getattr(self.action_space, "start", 0))
        self.widths = [6] if isinstance(self.action_space, Discrete) else [3, 3]
        self.inside, self.close = inside, close_at_the_end
        spaces = {"light": Box(-1, 1, (2,), np.float32)}
        if inside:
            spaces["action_mask"] = Box(0, 1, (6,), np.int8)
        self.observation_space = Dict(spaces)
        self.forbidden = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._look(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        parts = np.ravel(action) - self.starts
        open_ = np.split(self.open, np.cumsum(self.widths)[:-1])
        self.forbidden += sum(not mask[part] for mask, part in zip(open_, parts, strict=True))
        best = sum(
            part == np.flatnonzero(mask)[-1] for mask, part in zip(open_, parts, strict=True)
        )
        self.t += 1
        return self._look(), float(best) / len(parts), self.t == 10, False, {}

    def _look(self):
        self.open = np.zeros(6, np.int8)
        for width, start in zip(self.widths, np.cumsum([0, *self.widths[:-1]]), strict=True):
            self.open[start + self.np_random.choice(width, 2, replace=False)] = 1
        if self.close and self.t == 10:  # the game is over: nothing is allowed any more
            self.open[:] = 0
        light = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return {"light": light, "action_mask": self.open} if self.inside else {"light": light}


class Asked(Doors):
    """Tells its masks only when asked."""

    def __init__(self, **options):
        super().__init__(inside=False, **options)

    def action_masks(self):
        return self.open.astype(bool)


def forbidden(model):
    return sum(model.env.get_attr("forbidden"))


SOURCES = {
    "observation": lambda: for_sb3(Doors()),
    "observation, own spaces": lambda: ActionMasker(Doors(), lambda env: env.open),
    "environment": lambda: for_sb3(Asked()),
    "environment, own spaces": Asked,
    "choices": lambda: for_sb3(Doors(actions=MultiDiscrete([3, 3]))),
    "choices with offsets": lambda: for_sb3(
        Doors(actions=Tuple([Discrete(3, start=0), Discrete(3, start=0)]))
    ),
    "offset": lambda: for_sb3(Doors(actions=Discrete(6, start=4))),
    "nothing left at the end": lambda: for_sb3(Doors(close_at_the_end=True)),
}


@pytest.mark.parametrize("source", SOURCES)
def test_maskable_ppo_takes_no_forbidden_action(source):
    model = MaskablePPO(CatalogMaskablePolicy, make_vec_env(SOURCES[source], 2), **SHORT)
    model.learn(64)
    assert forbidden(model) == 0


@pytest.mark.attack  # `make learn` trains for longer
def test_maskable_ppo_learns_which_open_door_pays():
    """Random play among open doors gets 5 of 10."""
    settings = {**QUICK, "n_epochs": 8, "learning_rate": 1e-2, "gamma": 0.0}
    model = MaskablePPO(CatalogMaskablePolicy, make_vec_env(SOURCES["observation"], 4), **settings)
    model.learn(3_000)
    assert np.mean([episode["r"] for episode in list(model.ep_info_buffer)[-40:]]) > 7
    assert forbidden(model) == 0


@pytest.mark.parametrize("source", ["observation", "environment"])
def test_maskable_ppo_refuses_a_memory_and_its_way_out_takes_no_forbidden_action(source):
    config = {"model_config": LSTM}
    with pytest.raises(NotServedError, match=r"^use_lstm.*: MaskablePPO keeps no state") as refused:
        MaskablePPO(CatalogMaskablePolicy, SOURCES[source](), policy_kwargs=config, **QUICK)
    assert "Use RecurrentPPO(CatalogRecurrentPolicy, for_sb3(env), ...) from rlcatalog_sb3" in str(
        refused.value
    )
    assert "A2C" not in str(refused.value)
    model = RecurrentPPO(CatalogRecurrentPolicy, SOURCES[source](), policy_kwargs=config, **SHORT)
    model.learn(64)
    assert forbidden(model) == 0


def test_maskable_ppo_without_asking_masks_by_the_observation():
    model = MaskablePPO(CatalogMaskablePolicy, make_vec_env(Doors, 2), **SHORT)
    model.learn(64, use_masking=False)
    assert forbidden(model) == 0


@pytest.mark.grid
@pytest.mark.parametrize("algorithm", [PPO, A2C])
@pytest.mark.parametrize(
    "source", [Doors, lambda: for_sb3(Asked()), lambda: for_sb3(Doors(close_at_the_end=True))]
)
def test_ppo_and_a2c_take_no_forbidden_action(algorithm, source):
    settings = {"batch_size": 32} if algorithm is PPO else {}
    model = algorithm(
        CatalogPolicy, make_vec_env(source, 2), n_steps=16, seed=0, device="cpu", **settings
    )
    model.learn(64)
    assert forbidden(model) == 0


def test_masks_from_both_sides_forbid():
    model = MaskablePPO(CatalogMaskablePolicy, for_sb3(Doors()), **QUICK)
    policy, mask = model.policy, torch.tensor([[1, 1, 0, 0, 0, 0]])
    obs = {"obs": torch.zeros(1, 2), "action_mask": mask}
    outside = np.array([[False, True, True, True, True, True]])
    for _ in range(5):
        assert policy(obs, action_masks=outside)[0].item() == 1
    assert policy.predict({k: v.numpy() for k, v in obs.items()}, action_masks=outside)[0] == 1
    values, logp, entropy = policy.evaluate_actions(
        obs, torch.tensor([1]), torch.from_numpy(outside).float()
    )
    assert (values.shape, logp.item(), entropy.item()) == ((1, 1), 0.0, 0.0)
    assert policy.get_distribution(obs, outside).mode().item() == 1
    with pytest.raises(ActionMaskError, match="row 0 allows no action"):
        policy(obs, action_masks=np.array([[False, False, True, True, True, True]]))
    own = to_policy(model).evaluate(
        {"obs": np.zeros((1, 2)), "raw_action": np.ones((1, 1)), "mask": mask.numpy()}
    )
    torch.testing.assert_close(policy.evaluate_actions(obs, torch.tensor([1]))[1], own.logp)


class Offers(gym.Env):
    """The available actions are offered as a list of vectors, which may be empty."""

    observation_space = Dict(
        {"seen": Box(-1, 1, (2,), np.float32), "avail_actions": Repeated(Box(-1, 1, (3,)), 4)}
    )
    action_space = Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.looking(2), {}

    def step(self, action):
        return self.looking(2), 1.0, False, bool(self.np_random.random() < 0.2), {}

    def looking(self, offers):
        vectors = [self.np_random.uniform(-1, 1, 3).astype(np.float32) for _ in range(offers)]
        return {
            "seen": self.np_random.uniform(-1, 1, 2).astype(np.float32),
            "avail_actions": vectors,
        }


@pytest.mark.parametrize("memory", [False, True])
def test_the_value_of_a_last_observation_needs_no_available_action(memory):
    """Stable-Baselines3 asks for it where an episode is cut."""
    config = {"fcnet_hiddens": [4], "use_parametric": True}
    config |= {"use_lstm": True, "lstm_cell_size": 4} if memory else {}
    algorithm, policy = (RecurrentPPO, CatalogRecurrentPolicy) if memory else (PPO, CatalogPolicy)
    env = for_sb3(Offers(), config)
    model = algorithm(policy, env, policy_kwargs={"model_config": config}, **QUICK)
    env.reset(seed=0)
    encoded = [
        env.flattening.observe(env.unwrapped.looking(offers), None, last=True) for offers in (0, 2)
    ]
    obs = model.policy.obs_to_tensor(np.stack(encoded))[0]
    state = ((torch.zeros(1, 2, 8), torch.zeros(1, 2, 8)), torch.zeros(2)) if memory else ()
    assert torch.isfinite(model.policy.predict_values(obs, *state)).all()
    with pytest.raises(ActionMaskError, match="row 0 allows no action"):
        model.policy.get_distribution(obs, *state)


# --- RecurrentPPO ---------------------------------------------------------------------------------

LSTM = {"fcnet_hiddens": [8], "use_lstm": True, "lstm_cell_size": 6}
#: One memory for policy and value, so that the two tensors of the loop's state are the LSTM's.
SHARED = {**LSTM, "vf_share_layers": True}
RECURRENT = {
    "Box": ("Pendulum-v1", {"action_bounds": "clip"}),
    "bounded": ("Pendulum-v1", {"custom_action_dist": "squashed_gaussian"}),
    "affine, wrapped": (
        lambda: for_sb3("Pendulum-v1", {**LSTM, "action_bounds": "affine"}),
        {"action_bounds": "affine"},
    ),
    "choice": ("CartPole-v1", {}),
    "value apart": ("CartPole-v1", {"vf_share_layers": False}),
    "masked": (lambda: for_sb3(Doors()), {}),
    "masked, own spaces": (Doors, {}),
    "masked choices": (Doors, {}),
    "bits": (lambda: for_sb3(Bits()), {}),
    "a choice and a Box, masked": (lambda: for_sb3(Hybrid()), {}),
}


class Hybrid(gym.Env):
    """Two parts to an action, of which one has a mask; what is forbidden is asserted
    never to come.
    """

    action_space = Dict({"tool": Discrete(4, start=1), "force": Box(0, 10, (1,), np.float32)})
    observation_space = Dict(
        {"action_mask": Dict({"tool": MultiBinary(4)}), "lamp": Box(0, 1, (2,), np.float32)}
    )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._look(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        assert self.free[action["tool"] - 1]
        return (
            self._look(),
            float(action["force"][0]),
            bool(self.np_random.random() < 0.2),
            False,
            {},
        )

    def _look(self):
        self.free = np.roll(np.array([1, 0, 1, 0], np.int8), self.np_random.integers(4))
        return {
            "action_mask": {"tool": self.free.copy()},
            "lamp": self.np_random.random(2, np.float32),
        }


def test_maskable_ppo_takes_whole_choices_alone():
    with pytest.raises(
        AssertionError, match=r"only supports .*Discrete.* as action spaces but Box"
    ):
        MaskablePPO(CatalogMaskablePolicy, for_sb3(Hybrid()), **QUICK)


class Bits(gym.Env):
    observation_space, action_space = Tuple([Discrete(3)]), MultiBinary(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return (int(self.np_random.integers(3)),), {}

    def step(self, action):
        assert self.action_space.contains(action)
        return self.reset()[0], 0.0, bool(self.np_random.random() < 0.2), False, {}


@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_ppo_scores_stored_sequences_as_they_were_drawn(name):
    """Its padding, its states and its episode starts give back what acting computed."""
    env, config = RECURRENT[name]
    kwargs = {"model_config": {**LSTM, **config}}
    envs = make_vec_env(env, 2, seed=0)
    model = RecurrentPPO(
        CatalogRecurrentPolicy, envs, policy_kwargs=kwargs, **{**QUICK, "learning_rate": 0.0}
    )
    model.learn(128)
    checked = 0
    for data in model.rollout_buffer.get(50):
        actions = (
            data.actions.long().flatten()
            if isinstance(model.action_space, Discrete)
            else data.actions
        )
        values, logp, entropy = model.policy.evaluate_actions(
            data.observations, actions, data.lstm_states, data.episode_starts
        )
        real = data.mask > 0
        torch.testing.assert_close(logp[real], data.old_log_prob[real], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(
            values.flatten()[real], data.old_values[real], rtol=1e-4, atol=1e-5
        )
        assert torch.isfinite(entropy[real]).all()
        checked += int(real.sum())
    assert checked == 128


def test_recurrent_evaluation_equals_rlcatalogs_own():
    model = RecurrentPPO(
        CatalogRecurrentPolicy, "CartPole-v1", policy_kwargs={"model_config": SHARED}, **QUICK
    )
    own = rlcatalog.build(model.observation_space, model.action_space, SHARED)
    own.model.set_weights(model.policy.model.get_weights())
    rng = np.random.default_rng(0)
    obs, actions = rng.normal(size=(12, 4)).astype(np.float32), rng.integers(0, 2, 12)
    memory = [rng.normal(size=(3, 6)).astype(np.float32) for _ in range(2)]
    starts = np.zeros((3, 4), np.float32)
    starts[1, 0] = 1
    begun = [part * (1 - starts[:, :1]) for part in memory]
    expected = own.evaluate(
        {"obs": obs, "raw_action": actions[:, None], "seq_lens": np.full(3, 4), "state": begun}
    )
    states = tuple(torch.from_numpy(part)[None] for part in memory)
    found = model.policy.evaluate_actions(
        torch.from_numpy(obs),
        torch.from_numpy(actions),
        RNNStates(states, states),
        torch.from_numpy(starts).flatten(),
    )
    for one, other in zip(
        found, (expected.value[:, None], expected.logp, expected.entropy), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_an_episode_that_begins_inside_a_sequence_forgets():
    policy = RecurrentPPO(
        CatalogRecurrentPolicy, "CartPole-v1", policy_kwargs={"model_config": SHARED}, **QUICK
    ).policy
    obs, actions = torch.randn(5, 4), torch.zeros(5)
    states = tuple(torch.randn(1, 1, 6) for _ in range(2))
    zeros = tuple(torch.zeros(1, 1, 6) for _ in range(2))
    whole = policy.evaluate_actions(
        obs, actions, RNNStates(states, states), torch.tensor([0.0, 0, 1, 0, 0])
    )
    first = policy.evaluate_actions(obs[:2], actions[:2], RNNStates(states, states), torch.zeros(2))
    second = policy.evaluate_actions(obs[2:], actions[2:], RNNStates(zeros, zeros), torch.zeros(3))
    for one, a, b in zip(whole, first, second, strict=True):
        torch.testing.assert_close(one, torch.cat([a, b]), rtol=1e-5, atol=1e-6)


def test_a_saved_recurrent_policy_predicts_as_the_exported_one_acts(tmp_path):
    model = RecurrentPPO(
        CatalogRecurrentPolicy, "CartPole-v1", policy_kwargs={"model_config": LSTM}, **QUICK
    )
    model.learn(64)
    model.save(tmp_path / "model.zip")
    loaded = RecurrentPPO.load(tmp_path / "model.zip", device="cpu")
    to_policy(model).save(tmp_path / "policy")
    stepper = rlcatalog.load(tmp_path / "policy").stepper(3)
    state, done, rng = None, np.ones(3, bool), np.random.default_rng(0)
    for _ in range(12):
        obs = rng.uniform(-0.3, 0.3, (3, 4)).astype(np.float32)
        action, state = loaded.predict(obs, state, episode_start=done, deterministic=True)
        np.testing.assert_array_equal(action, stepper.step(obs, done=done, explore=False).action)
        carried, own = (
            np.concatenate([state[0][0], state[1][0]], 1),
            np.concatenate(stepper.state.memory, 1),
        )
        np.testing.assert_allclose(carried, own, atol=1e-6)
        done = rng.random(3) < 0.3
    assert evaluate_policy(loaded, make_vec_env("CartPole-v1", 2), 2)[0] > 5


class Unit(TorchModelV2):
    """A trunk that padding of zeros would spoil: it divides by the norm of its input, and keeps
    batch statistics.
    """

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.num_outputs = 6
        self.norm, self.layer = torch.nn.BatchNorm1d(4, momentum=1.0), torch.nn.Linear(4, 6)

    def forward(self, input_dict, state, seq_lens):
        x = self.norm(input_dict["obs_flat"].float())
        return self.layer(x / x.norm(dim=1, keepdim=True)), state


class Stacked(gym.ObservationWrapper):
    """CartPole's observation as the one entry of a Dict."""

    def __init__(self):
        super().__init__(gym.make("CartPole-v1"))
        self.observation_space = gym.spaces.Dict({"all": self.env.observation_space})

    def observation(self, observation):
        return {"all": observation}


@pytest.mark.parametrize("env", ["CartPole-v1", Stacked])
def test_padding_of_recurrent_ppo_reaches_no_trunk(env):
    kwargs = {"model_config": {**LSTM, "custom_model": Unit}}
    model = RecurrentPPO(
        CatalogRecurrentPolicy, make_vec_env(env, 2, seed=0), policy_kwargs=kwargs, **QUICK
    )
    model.learn(64)
    assert all(torch.isfinite(p).all() for p in model.policy.parameters())
    model.policy.set_training_mode(True)
    padded = 0
    for data in model.rollout_buffer.get(30):
        model.policy.evaluate_actions(
            data.observations, data.actions.flatten(), data.lstm_states, data.episode_starts
        )
        obs, real = data.observations, data.mask > 0
        rows = (obs["all"] if isinstance(obs, dict) else obs)[real]
        for chain in (model.policy.model.trunk, model.policy.model.value_trunk):
            torch.testing.assert_close(
                chain.trunk.norm.running_mean, rows.mean(dim=0), rtol=1e-4, atol=1e-5
            )
        padded += int((~real).sum())
    assert padded


def test_sequence_lengths_are_those_of_the_buffer_s_sequences():
    shape = (6, 1, 1, 3)  # [steps, layers, environments, state]
    buffer = RecurrentRolloutBuffer(6, gym.spaces.Box(-1, 1, (4,)), gym.spaces.Discrete(2), shape)
    state = (torch.zeros(1, 1, 3), torch.zeros(1, 1, 3))
    for begins in (True, False, False, True, True, False):  # three sequences
        buffer.add(
            np.zeros((1, 4)),
            np.zeros((1, 1)),
            np.zeros(1),
            np.array([begins]),
            torch.zeros(1),
            torch.zeros(1),
            lstm_states=RNNStates(state, state),
        )

    for samples in buffer.get(4):  # it cuts some sequences in two
        lengths = sequence_lengths(samples)

        assert lengths.dtype == np.int32
        rows = int(samples.mask.sum())
        np.testing.assert_array_equal(lengths, np.diff(buffer.seq_start_indices, append=rows))


def test_where_the_loop_does_not_tell_statistics_are_warned_of_once():
    kwargs = {"model_config": {**LSTM, "custom_model": Unit}}
    envs = make_vec_env("CartPole-v1", 2, seed=0)
    model = sb3_contrib.RecurrentPPO(CatalogRecurrentPolicy, envs, policy_kwargs=kwargs, **QUICK)
    with pytest.warns(
        UserWarning, match=r"batch statistics.*Use rlcatalog_sb3\.RecurrentPPO"
    ) as found:
        model.learn(64)
    assert len(found) == 1
    # Models without statistics are served in silence.
    kwargs = {"model_config": LSTM}
    sb3_contrib.RecurrentPPO(CatalogRecurrentPolicy, envs, policy_kwargs=kwargs, **QUICK).learn(64)


class Counter(RecurrentNetwork):
    """A user's own recurrent model: two vectors of one size."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name, parts=2):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.layer, self.parts = torch.nn.Linear(4, num_outputs), parts

    def get_initial_state(self):
        return [torch.zeros(3) for _ in range(self.parts)]

    def forward_rnn(self, inputs, state, seq_lens):
        self._value = inputs.sum(-1).reshape(-1)
        return self.layer(inputs), [part + 1 for part in state]

    def value_function(self):
        return self._value


def test_a_recurrent_model_of_the_users_own_is_carried():
    kwargs = {"model_config": {"custom_model": Counter}}
    model = RecurrentPPO(CatalogRecurrentPolicy, "CartPole-v1", policy_kwargs=kwargs, **QUICK)
    _, state = model.predict(np.zeros(4, np.float32))
    _, state = model.predict(np.zeros(4, np.float32), state)
    assert state[0].tolist() == [[[2.0] * 3]]
    model.learn(64)
