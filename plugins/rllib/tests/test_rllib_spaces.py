"""Every observation space, action space and mask that the catalog serves goes through Ray's runners
and learners.
"""

import numpy as np
import pytest
from action_kinds import ACTIONS, Anything
from gymnasium.spaces import Dict, Text
from masked_env import MASKED, Masked
from observation_kinds import KINDS, Emitter

pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")

import rlcatalog
from rlcatalog.errors import ActionMaskError, ConfigError, UnknownNameError

# One config serves parts of every kind here.
pytestmark = pytest.mark.filterwarnings("ignore::rlcatalog.errors.UnreadKeysWarning")


def finite(module):
    return all(bool(p.isfinite().all()) for p in module.parameters())


def observations(episode):
    obs = episode.get_observations()
    return obs["obs"] if isinstance(obs, dict) else obs


class Kept(Emitter):
    """Keeps what it has emitted."""

    seen = None

    def step(self, action):
        obs, *rest = super().step(action)
        self.seen.append(obs)
        return obs, *rest

    def reset(self, *, seed=None, options=None):
        obs, info = super().reset(seed=seed)
        if self.seen is None:
            type(self).last, self.seen = self, []
        self.seen.append(obs)
        return obs, info


#: Kinds that a learner is built for, too; what the others store has the same form.
LEARNT = ("box of rank 1", "box of rank 3, bytes", "discrete", "sequence", "dict", "all in one")


@pytest.mark.parametrize("name", KINDS)
def test_every_observation_is_stored_for_the_learner_as_the_preprocessor_encodes_it(bench, name):
    space, model = KINDS[name]
    config = bench.config(lambda: Kept(space), model, envs=1, fragment=13)
    runner = bench.runner(config)
    episodes = runner.sample()
    policy = rlcatalog.build(space, Kept.action_space, {"fcnet_hiddens": [8], **model})
    expected = policy.preprocess(Kept.last.seen)
    assert len(episodes) == 2
    stored = np.concatenate([observations(episode) for episode in episodes])
    np.testing.assert_allclose(stored, expected, rtol=1e-6)
    assert stored.dtype == expected.dtype
    if name not in LEARNT:
        return
    learner = bench.learner(config, runner)
    before = {n: p.detach().clone() for n, p in learner.module["default_policy"].named_parameters()}
    bench.update(learner, episodes)
    after = dict(learner.module["default_policy"].named_parameters())
    assert any(bool((after[n] != before[n]).any()) for n in before)
    assert finite(learner.module["default_policy"])


@pytest.mark.parametrize("name", ACTIONS)
def test_every_action_space_is_acted_in_and_raw_actions_are_stored(bench, name):
    space, model = ACTIONS[name]
    relaxed = name == "discrete, relaxed"  # has no closed form for its divergence
    config = bench.config(lambda: Anything(space), model, use_kl_loss=not relaxed)
    runner = bench.runner(config)
    episodes = runner.sample()
    policy = runner.module.policy
    for episode in episodes:
        raw = np.asarray(episode.get_actions())
        width = () if policy.action_codec.scalar else (policy.action_codec.width,)
        assert raw.shape == (len(episode), *width)
    learner = bench.learner(config, runner)
    bench.update(learner, episodes)
    assert finite(learner.module["default_policy"])


class Noting(Anything):
    """Notes the actions it is given."""

    def step(self, action):
        self.taken.append(np.array(action))
        return super().step(action)


@pytest.mark.parametrize(
    "scaling", [{"normalize_actions": True}, {"normalize_actions": False, "clip_actions": True}]
)
def test_an_action_is_brought_into_its_bounds_once(bench, scaling):
    """Ray's own scaling has no effect, whatever its settings say."""
    Noting.taken = taken = []
    space, model = ACTIONS["box, squashed"]
    config = bench.config(lambda: Noting(space), model, envs=1).environment(**scaling)
    (episode,) = bench.runner(config).sample(num_timesteps=7)
    raw = episode.get_actions()
    # a squashed Gaussian draws within the bounds.
    np.testing.assert_allclose(raw, np.stack(taken), rtol=1e-6)
    assert np.abs(raw - (space.low + space.high) / 2).max() > 0


LSTM = {"use_lstm": True, "lstm_cell_size": 4, "max_seq_len": 5}


@pytest.mark.parametrize(
    ("name", "memory"), [*((name, {}) for name in MASKED), ("discrete", LSTM), ("dict", LSTM)]
)
def test_masks_are_obeyed_and_stand_in_the_stored_parameters(bench, name, memory):
    """The environment raises at a forbidden action."""
    config = bench.config(lambda: Masked(name), memory, envs=2, fragment=30)
    runner = bench.runner(config)
    episodes = runner.sample()
    masks = np.concatenate(
        [episode.get_observations(slice(0, len(episode)))["mask"] for episode in episodes]
    )
    params = np.concatenate([e.get_extra_model_outputs("action_dist_inputs") for e in episodes])
    assert masks.shape[1] == runner.module.policy.masks.size
    assert 0 < masks.mean() < 1
    if name.startswith(("discrete", "multi_discrete")):
        assert ((params < -1e38) == (masks == 0)).all()
    learner = bench.learner(config, runner)
    bench.update(learner, episodes)
    assert finite(learner.module["default_policy"])


class Ending(Masked):
    """Allows nothing once an episode is over, or already before; may say something that Ray cannot
    batch.
    """

    def __init__(self, left, says=False):
        super().__init__("discrete")
        self.when, self.says = left, says
        if says:
            self.observation_space = Dict({**self.observation_space.spaces, "word": Text(3)})

    def _look(self):
        obs = super()._look()
        if self.left <= self.when:
            obs["action_mask"] = obs["action_mask"] * 0
        return {**obs, "word": "abc"} if self.says else obs


@pytest.mark.parametrize("says", [False, True], ids=["connector", "inside"])
def test_a_finished_episode_may_allow_nothing(bench, says):
    episodes = bench.runner(bench.config(lambda: Ending(0, says))).sample(num_timesteps=40)
    assert sum(episode.is_done for episode in episodes) >= 2


@pytest.mark.parametrize("says", [False, True], ids=["connector", "inside"])
def test_an_episode_that_goes_on_must_allow_something(bench, says):
    runner = bench.runner(bench.config(lambda: Ending(3, says)))
    with pytest.raises((ActionMaskError, RuntimeError)) as caught:
        runner.sample(num_timesteps=40)
    found = caught.value.__cause__ if says else caught.value  # Ray wraps what an environment raises
    assert isinstance(found, ActionMaskError)
    assert "row 0 allows no action" in str(found)


def test_wrappers_of_the_installed_plugins_are_applied(bench):
    """Atari's: grayscale, shrunk, four frames."""
    pytest.importorskip("ale_py", reason="ale-py is not installed")
    pytest.importorskip("rlcatalog_atari", reason="rlcatalog-atari is not installed")
    config = bench.config("ale_py:ALE/Pong-v5", {"dim": 42}, envs=1)
    (episode,) = bench.runner(config).sample(num_timesteps=6)
    assert observations(episode).shape == (7, 42, 42, 4)


def test_an_environment_that_cannot_be_made_names_the_node():
    import platform

    from rlcatalog_rllib import CatalogEnv

    with pytest.raises(UnknownNameError, match=platform.node()):
        CatalogEnv({"env": "Nowhere-v0", "model": {}})


def test_a_module_without_the_connectors_says_what_is_missing(bench):
    import gymnasium as gym

    from rlcatalog_rllib import CatalogRLModule

    env = gym.make("CartPole-v1")
    with pytest.raises(ConfigError, match=r"rlcatalog_rllib\.configure.*env_to_module_connector"):
        CatalogRLModule(
            observation_space=env.observation_space, action_space=env.action_space, model_config={}
        )
