"""Several agents: each policy's parts see and do for its agents what they would do alone."""

import warnings

import numpy as np
import pytest

pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")

import agents_env
from agents_env import AGENTS, Agents
from gymnasium import spaces
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner
from ray.rllib.examples.rl_modules.classes.random_rlm import RandomRLModule
from ray.rllib.policy.policy import PolicySpec

import rlcatalog_rllib
from rlcatalog.errors import CatalogError, ConfigError, NotServedError, UnknownNameError

MODULES = {"both": ("left", "right"), "reads": ("reader", "scribe"), "picks": ("picker",)}
MODULE_OF = {agent: module for module, agents in MODULES.items() for agent in agents}
MODEL = {"fcnet_hiddens": [8]}
MODELS = {
    "reads": {
        "use_lstm": True,
        "lstm_cell_size": 4,
        "lstm_use_prev_action": True,
        "lstm_use_prev_reward": True,
    },
    "both": {"observation_filter": "MeanStdFilter"},
}
pytestmark = pytest.mark.filterwarnings("ignore:.*Overriding environment rllib-multi-agent-env-v0")


def config_of(
    make=PPOConfig, modules=tuple(MODULES), env=Agents, models=MODELS, agents=tuple(AGENTS), **more
):
    config = make().debugging(seed=3, log_level="ERROR").reporting(min_time_s_per_iteration=0)
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=1, rollout_fragment_length=30)
    # Which ignores masks.
    config.training(train_batch_size_per_learner=30).environment(disable_env_checking=True)
    if make is PPOConfig:
        config.training(minibatch_size=10, num_epochs=1)
    config.multi_agent(
        policies=set(modules), policy_mapping_fn=lambda agent, episode, **_: MODULE_OF[agent]
    )
    return rlcatalog_rllib.configure(
        config, env, model=MODEL, models=models, env_config={"agents": agents}, **more
    )


@pytest.fixture(scope="module")
def sampled():
    """What 30 steps of the environment left: the runner, Ray's episodes, and what the environment
    noted.
    """
    runner = MultiAgentEnvRunner(config=config_of())
    return runner, runner.sample(), Agents.last.episodes


def whole(episodes, agent):
    """Return an agent's episodes."""
    return [
        episode.agent_episodes[agent] for episode in episodes if agent in episode.agent_episodes
    ]


@pytest.mark.parametrize("agent", AGENTS)
def test_observations_are_stored_as_the_agents_policy_encodes_them(sampled, agent):
    runner, episodes, noted = sampled
    policy = runner.module[MODULE_OF[agent]].policy
    for ours, theirs in zip(whole(episodes, agent), noted, strict=True):
        shown = theirs[agent][0][: len(ours) + 1]
        stored = ours.get_observations()
        if agent in ("left", "right"):  # under a filter that both agents feed
            continue
        encoded = stored["obs"] if isinstance(stored, dict) else stored
        np.testing.assert_allclose(encoded, policy.preprocess(shown), rtol=1e-6)
        if agent == "picker":
            np.testing.assert_array_equal(stored["mask"], [obs["action_mask"] for obs in shown])


def test_a_filter_learns_from_all_agents_of_its_policy(sampled):
    runner, _, noted = sampled
    seen = np.concatenate(
        [np.stack(episode[agent][0]) for episode in noted for agent in MODULES["both"]]
    )
    state = runner._env_to_module.get_state()["EncodeAgents"]
    assert set(state) == set(MODULES)
    assert (state["reads"], state["picks"]) == ({}, {})
    assert int(state["both"]["filter"]["n"]) == len(seen)
    np.testing.assert_allclose(state["both"]["filter"]["mean"], seen.mean(0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("agent", AGENTS)
def test_the_environment_is_given_what_the_agents_codec_makes_of_stored_actions(sampled, agent):
    runner, episodes, noted = sampled
    codec = runner.module[MODULE_OF[agent]].policy.action_codec
    for ours, theirs in zip(whole(episodes, agent), noted, strict=True):
        raw = np.asarray(ours.get_actions()).reshape(len(ours), -1)
        adapted = codec.adapt(raw)
        for t, taken in enumerate(theirs[agent][1][: len(raw)]):
            if isinstance(adapted, tuple):
                assert all(
                    np.array_equal(part[t], own) for part, own in zip(adapted, taken, strict=True)
                )
            else:
                assert adapted[t] == taken


@pytest.mark.parametrize("agent", MODULES["reads"])
def test_views_are_of_the_agents_own_past(sampled, agent):
    """`reader` is left out of every third step: its last action lies two steps back then."""
    _, episodes, noted = sampled
    for ours, theirs in zip(whole(episodes, agent), noted, strict=True):
        views = ours.get_observations(slice(0, len(ours)))["views"]
        rewards = np.ravel(views["past_rewards"])
        assert rewards[0] == 0
        assert not views["past_actions"][0].any()
        np.testing.assert_allclose(rewards[1:], ours.get_rewards()[: len(ours) - 1])
        kinds = [np.eye(2)[int(action[0])] for action in theirs[agent][1]]
        np.testing.assert_array_equal(views["past_actions"][1:, :2], kinds[: len(ours) - 1])


def test_learners_train_every_policy(sampled):
    from ray.rllib.core.learner.learner import Learner
    from ray.rllib.core.learner.training_data import TrainingData

    runner = MultiAgentEnvRunner(config=(config := config_of()))
    learner = config.build_learner(env=runner.env, spaces=runner.get_spaces())
    before = {
        (mid, name): value.clone()
        for mid in MODULES
        for name, value in learner.module[mid].state_dict().items()
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Learner.update(
            learner,
            training_data=TrainingData(episodes=runner.sample()),
            timesteps={"num_env_steps_sampled_lifetime": 0},
        )
    for mid in MODULES:
        moved = [
            not value.equal(before[mid, name])
            for name, value in learner.module[mid].state_dict().items()
        ]
        assert all(moved), mid


def test_each_policy_has_what_the_algorithms_own_nets_share():
    config = config_of()
    specs = config.rl_module_spec.rl_module_specs
    assert {
        mid: spec.model_config["vf_share_layers"] for mid, spec in specs.items()
    } == dict.fromkeys(MODULES, False)
    shared = config_of(models={"picks": {"vf_share_layers": True}}).rl_module_spec.rl_module_specs
    assert shared["picks"].model_config["vf_share_layers"] is True


@pytest.fixture
def by_value(local_ray):
    """Have Ray pickle the environment: workers do not find the folder of these tests."""
    local_ray.cloudpickle.register_pickle_by_value(agents_env)
    yield
    local_ray.cloudpickle.unregister_pickle_by_value(agents_env)


@pytest.mark.parametrize("runners", [0, pytest.param(1, marks=pytest.mark.attack)])
def test_it_trains_is_saved_restored_and_handed_on(by_value, tmp_path, runners):
    """With a remote runner, and asynchronously, in `make attack`."""
    config = config_of().env_runners(num_env_runners=runners)
    algo = config.build_algo()
    result = algo.train()
    assert set(MODULES) <= set(result["learners"])
    path = algo.save_to_path(str(tmp_path / "checkpoint"))
    obs = np.stack([AGENTS["left"][0].sample() for _ in range(5)])
    acted = rlcatalog_rllib.to_policy(algo, "both").act(obs, explore=False)
    with pytest.raises(
        UnknownNameError, match=r"policies are several. Name one of: 'both', 'picks', 'reads'"
    ):
        rlcatalog_rllib.to_policy(algo)
    with pytest.raises(UnknownNameError, match="it has no policy 'neither'"):
        rlcatalog_rllib.to_policy(algo, "neither")
    algo.stop()
    again = type(algo).from_checkpoint(path)
    restored = rlcatalog_rllib.to_policy(again, "both")
    np.testing.assert_array_equal(restored.act(obs, explore=False).value, acted.value)
    assert int(restored.filter.get_state()["n"]) > 30
    again.stop()


@pytest.mark.attack  # one is configured, sampled and built below
def test_an_asynchronous_algorithm_runs(by_value):
    # An episode is nine steps: of three, none is cut.
    config = config_of(APPOConfig).env_runners(num_env_runners=1, rollout_fragment_length=27)
    config.training(train_batch_size_per_learner=27).reporting(
        min_sample_timesteps_per_iteration=40
    )
    made = config.learners(num_learners=0).build_algo()
    try:
        # Wait for the actors to start: training asks without a pause, and leaves them little of the
        # processor.
        made.env_runner_group.foreach_env_runner(
            lambda runner: len(runner.sample()), local_env_runner=False
        )
        while (result := made.train()).get("num_env_steps_sampled_lifetime", 0) < 80:
            pass
        assert set(MODULES) <= set(result["learners"])
        obs = np.stack([AGENTS["left"][0].sample() for _ in range(5)])
        policy = rlcatalog_rllib.to_policy(made, "both")
        assert policy.act(obs).action.shape == (5,)
        assert int(policy.filter.get_state()["n"]) > 80
    finally:
        made.stop()


# --- Ray's check of environments ------------------------------------------------------------------


def checked_config(agents):
    """Return a config for which Ray checks the environment, which refuses forbidden actions."""
    config = PPOConfig().env_runners(num_env_runners=0, rollout_fragment_length=20)
    config.multi_agent(
        policies={MODULE_OF[agent] for agent in agents},
        policy_mapping_fn=lambda agent, episode, **_: MODULE_OF[agent],
    )
    return rlcatalog_rllib.configure(config, Agents, model=MODEL, env_config={"agents": agents})


def test_configure_skips_the_check_with_masks_and_says_so(capsys):
    config = checked_config(["picker", "left"])
    message = capsys.readouterr().err
    assert config.disable_env_checking
    assert "configure() sets disable_env_checking=True" in message
    assert "policies with masks: picks" in message
    MultiAgentEnvRunner(config=config).sample()  # which asserts that no forbidden action is taken


def test_configure_keeps_the_check_without_masks(capsys):
    assert not checked_config(["left", "right"]).disable_env_checking
    assert "disable_env_checking" not in capsys.readouterr().err


# --- whose module, and which spaces ---------------------------------------------------------------


def test_a_module_of_another_kind_stays_what_it_is():
    config = PPOConfig().multi_agent(
        policies=set(MODULES), policy_mapping_fn=lambda agent, episode, **_: MODULE_OF[agent]
    )
    config.env_runners(num_env_runners=0, rollout_fragment_length=20).environment(
        disable_env_checking=True
    )
    config.rl_module(
        rl_module_spec=MultiRLModuleSpec(
            rl_module_specs={
                "both": RLModuleSpec(
                    module_class=RandomRLModule,
                    observation_space=AGENTS["left"][0],
                    action_space=AGENTS["left"][1],
                ),
                "picks": RLModuleSpec(model_config={"fcnet_hiddens": [5]}),
            }
        )
    )
    rlcatalog_rllib.configure(config, Agents)
    runner = MultiAgentEnvRunner(config=config)
    episodes = runner.sample()
    assert isinstance(runner.module["both"], RandomRLModule)
    assert runner.module["picks"].policy.config["fcnet_hiddens"] == [5]
    for ours, theirs in zip(whole(episodes, "left"), Agents.last.episodes, strict=True):
        np.testing.assert_array_equal(
            ours.get_observations(), np.stack(theirs["left"][0][: len(ours) + 1])
        )


def test_spaces_may_stand_in_the_policies():
    obs, actions = AGENTS["left"]
    config = PPOConfig().multi_agent(
        policies={"a": PolicySpec(observation_space=obs, action_space=actions), "b": PolicySpec()},
        policy_mapping_fn=lambda agent, episode, **_: "b",
    )
    rlcatalog_rllib.configure(config, Agents, env_config={"agents": ("left",)})
    assert set(config.rl_module_spec.rl_module_specs) == {"a", "b"}


def test_agents_that_are_alike_may_be_mapped_by_chance():
    config = PPOConfig().multi_agent(
        policies={"a", "b"},
        policy_mapping_fn=lambda agent, episode, **_: "ab"[hash((agent, episode.id_)) % 2],
    )
    config.env_runners(num_env_runners=0, rollout_fragment_length=40)
    rlcatalog_rllib.configure(config, Agents, model=MODEL, env_config={"agents": ("left", "right")})
    MultiAgentEnvRunner(config=config).sample()


REFUSED = [
    (
        {"modules": ("one",), "models": {}},
        NotServedError,
        "'one' serves the agents 'left', 'picker', 'reader', 'right', 'scribe', whose spaces",
    ),
    ({"models": {"pics": {}}}, ConfigError, r"there is no policy 'pics'. Did you mean 'picks'"),
    (
        {"modules": (*MODULES, "idle")},
        ConfigError,
        r"no agent is mapped to 'idle'.*PolicySpec\(observation_space",
    ),
    ({"env": "CartPole-v1"}, ConfigError, "is not a ray.rllib.env.multi_agent_env.MultiAgentEnv"),
    (
        {"models": {"picks": {"fcnet_hidens": [3]}}},
        CatalogError,
        "policy 'picks': Unknown model config key",
    ),
]


@pytest.mark.parametrize(
    ("how", "kind", "message"), REFUSED, ids=[message[:24] for *_, message in REFUSED]
)
def test_what_cannot_be_is_refused_by_name(how, kind, message, monkeypatch):
    if how.get("modules") == ("one",):
        monkeypatch.setattr(f"{__name__}.MODULE_OF", dict.fromkeys(AGENTS, "one"))
    if how.get("env"):
        how = {**how, "agents": None}
        monkeypatch.setattr(
            "rlcatalog_rllib.configuration.create_env",
            lambda *_: __import__("gymnasium").make("CartPole-v1"),
        )
    with pytest.raises(kind, match=message):
        config_of(**how)


def test_models_are_for_several_agents():
    with pytest.raises(ConfigError, match="there is no policy 'a'"):
        rlcatalog_rllib.configure(PPOConfig(), "CartPole-v1", models={"a": {}})


# --- connectors of the user's own -----------------------------------------------------------------


class Doubled(ConnectorV2):
    """Twice every observation, once more at its end: another space, and other values."""

    def recompute_output_observation_space(self, input_observation_space, input_action_space):
        low, high = (
            np.tile(bound, 2)
            for bound in (input_observation_space.low, input_observation_space.high)
        )
        return spaces.Box(2 * low, 2 * high, dtype=np.float32)

    def __call__(self, *, batch, episodes, **kwargs):
        for episode in episodes:
            episode.set_observations(
                at_indices=-1, new_data=np.tile(2 * episode.get_observations(-1), 2)
            )
            episode.observation_space = self.observation_space
        return batch


class Noting(ConnectorV2):
    """Notes the raw actions that pass."""

    def __call__(self, *, batch, **kwargs):
        type(self).seen = {key: list(value) for key, value in batch["actions"].items()}
        return batch


def test_connectors_of_the_users_own_stand_beside_ours(bench):
    import gymnasium as gym
    from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner

    config = PPOConfig().env_runners(
        num_env_runners=0,
        rollout_fragment_length=10,
        env_to_module_connector=lambda env, spaces, device: Doubled(),
        module_to_env_connector=lambda env, spaces: [Noting()],
    )
    for _ in range(2):  # configured again, each stands there once
        rlcatalog_rllib.configure(
            config, "CartPole-v1", model={**MODEL, "observation_filter": "MeanStdFilter"}
        )
    runner = SingleAgentEnvRunner(config=config)
    assert runner.module.policy.observation_space.shape == (8,)
    names = [type(piece).__name__ for piece in runner._env_to_module]
    assert names.index("Doubled") + 1 == names.index("EncodeObservations")
    assert names.count("Doubled") == 1
    episodes = runner.sample()
    assert episodes[0].get_observations().shape[1:] == (8,)
    assert Noting.seen
    assert gym.make("CartPole-v1").action_space.contains(episodes[0].get_actions(-1))


@pytest.mark.parametrize("make", [APPOConfig])
def test_other_algorithms_are_configured_alike(make):
    config = config_of(make)
    runner = MultiAgentEnvRunner(config=config)
    learner = config.build_learner(env=runner.env, spaces=runner.get_spaces())
    assert set(learner.module.keys()) == set(MODULES)
