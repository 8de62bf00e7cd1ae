"""A vector environment that follows a script, and a policy that records how it is called."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from rlcatalog_ppo.collector import Collector

#: Number of environments.
N = 3
OBS_SHAPE = (2, 4)  # neither axis of an observation is as long as the batch
MODES = {mode.name.lower(): mode for mode in AutoresetMode}


def step(rewards, terminated_envs=(), truncated_envs=()):
    """Return a step for `ScriptedEnvs`, which names the environments whose episodes end."""
    return rewards, terminated_envs, truncated_envs


def observe(number):
    """Return an observation of each environment: `number + i / 10` everywhere in environment i."""
    return np.full((N, *OBS_SHAPE), number, np.float32) + np.arange(N).reshape(N, 1, 1) / 10


class ScriptedEnvs(VectorEnv):
    """Three environments that return the given steps, and record their resets.

    After step t they observe `observe(t)`, after reset k `observe(100 * k)`. The last observations
    of episodes that end at step t are those of `observe(50 + t)` in `infos["final_obs"]`.

    Args:
        steps: The steps (see `step`).
        autoreset: When environments are reset: `"next_step"`, `"same_step"` or `"disabled"`.
    """

    def __init__(self, *steps, autoreset):
        self.num_envs = N
        self.metadata = {"autoreset_mode": MODES[autoreset]}
        self.single_observation_space = spaces.Box(-99, 99, OBS_SHAPE)
        self.single_action_space = spaces.Discrete(2)
        self.steps = steps
        self.steps_taken = 0
        self.resets = []
        self.observation = observe(0)

    def reset(self, *, seed=None, options=None):
        self.resets.append({"seed": seed, "options": options})
        is_reset = np.ones(N, bool) if options is None else options["reset_mask"]
        first_observation = observe(100 * len(self.resets))
        self.observation = np.where(is_reset.reshape(N, 1, 1), first_observation, self.observation)
        return self.observation, {}

    def step(self, actions):
        rewards, terminated_envs, truncated_envs = self.steps[self.steps_taken]
        self.steps_taken += 1
        self.observation = observe(self.steps_taken)
        return (
            self.observation,
            np.asarray(rewards),
            np.isin(np.arange(N), terminated_envs),
            np.isin(np.arange(N), truncated_envs),
            {"final_obs": list(observe(50 + self.steps_taken))},
        )


class RecordingViews:
    """The views of a model that requests none; records the columns that it could have."""

    ahead = ()

    def __init__(self):
        self.columns = []

    def look_ahead(self, columns, done):
        self.columns.append(set(columns))
        return {}


class RecordingPolicy:
    """A policy without a model, which records its calls.

    The value of an observation is its first number. If there are masks, they allow everything
    right after a reset, and nothing later.

    Args:
        has_masks: Whether the environments have masks.
        has_custom_loss: Whether its model overrides `custom_loss`.
    """

    memory = ()
    device = "cpu"
    action_codec = SimpleNamespace(scalar=True)

    def __init__(self, has_masks=False, has_custom_loss=False):
        self.has_masks = has_masks
        self.has_custom_loss = has_custom_loss
        self.views = RecordingViews()
        self.forget_calls()

    def forget_calls(self):
        self.filter_updates = []
        self.idle_rows = []
        self.restarted_rows = []
        self.previous_rewards = []
        self.value_calls = []

    def overrides(self, name):
        return self.has_custom_loss and name == "custom_loss"

    def preprocess(self, observed, update=False):
        self.filter_updates.append(update if isinstance(update, bool) else update.tolist())
        return np.array(observed)

    def action_mask(self, observed, idle=None):
        self.idle_rows.append(None if idle is None else idle.tolist())
        if not self.has_masks:
            return None
        return np.full((N, 2), np.asarray(observed)[0, 0, 0] > 99)

    def initial_state(self, n):
        return None

    def restart(self, state, rows):
        self.restarted_rows.append(rows.tolist())
        return state

    def act_encoded(self, encoded, state, *, prev_reward, mask):
        self.previous_rewards.append(prev_reward.tolist())
        zeros = np.zeros(N, np.float32)
        return SimpleNamespace(
            raw_action=zeros[:, None],
            logp=zeros,
            value=encoded[:, 0, 0],
            dist_inputs=zeros[:, None],
            state=None,
            action=zeros,
        )

    def values(self, encoded, state, *, prev_reward):
        assert len(encoded), "an empty batch"
        self.value_calls.append({"obs": encoded[:, 0, 0], "prev_reward": prev_reward.tolist()})
        return encoded[:, 0, 0]


def make_collector(envs, policy=None, *, gamma=0.5, **options):
    return Collector(policy or RecordingPolicy(), envs, 7, gamma, **options)


def end_two_episodes_then_one(mode):
    """Return environments of four steps: two episodes end at the second step, one at the third."""
    return ScriptedEnvs(
        step(rewards=[1.0, 2.0, 3.0]),
        step(rewards=[1.0, 2.0, 3.0], terminated_envs=[0], truncated_envs=[1]),
        step(rewards=[4.0, 5.0, 6.0], terminated_envs=[2], truncated_envs=[2]),
        step(rewards=[1.0, 2.0, 3.0]),
        autoreset=mode,
    )
