"""Several agents under RLlib: observations, actions, filters and views of each agent's policy."""

import random
import sys
from typing import Any, NamedTuple

import numpy as np
import pytest

pytest.importorskip("ray.rllib", reason="Ray RLlib is not installed")

import agents_env
import gymnasium as gym
from agents_env import AGENTS, Agents
from gymnasium import spaces
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner
from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner
from ray.rllib.examples.rl_modules.classes.random_rlm import RandomRLModule
from ray.rllib.policy.policy import PolicySpec
from torch.nn import ModuleDict
from torch_weights import assert_every_weight_changed, copy_weights

import rlcatalog_rllib
from rlcatalog.errors import CatalogError, ConfigError, NotServedError, UnknownNameError

pytestmark = pytest.mark.filterwarnings("ignore:.*Overriding environment rllib-multi-agent-env-v0")

#: Agent of `Agents` → its policy.
POLICY_OF = {
    "left": "filtered",
    "right": "filtered",
    "reader": "recurrent",
    "scribe": "recurrent",
    "picker": "masked",
}
POLICIES = {"filtered", "recurrent", "masked"}
MODEL = {"fcnet_hiddens": [8]}
#: Keys of single policies.
MODELS = {
    "filtered": {"observation_filter": "MeanStdFilter"},
    "recurrent": {
        "use_lstm": True,
        "lstm_cell_size": 4,
        "lstm_use_prev_action": True,
        "lstm_use_prev_reward": True,
    },
}


def map_agent(agent, episode, **kwargs):
    """Return an agent's policy, as a `policy_mapping_fn`."""
    return POLICY_OF[agent]


def make_config(algorithm=PPOConfig, policies=POLICIES, mapping=map_agent):
    """Return a config of Ray for several agents, which samples 30 steps at once."""
    config = algorithm().debugging(seed=3, log_level="ERROR")
    config.reporting(min_time_s_per_iteration=0)
    config.env_runners(num_env_runners=0, num_envs_per_env_runner=1, rollout_fragment_length=30)
    config.training(train_batch_size_per_learner=30)
    if algorithm is PPOConfig:
        config.training(minibatch_size=10, num_epochs=1)
    # Ray's check of environments takes actions that masks forbid.
    config.environment(disable_env_checking=True)
    return config.multi_agent(policies=policies, policy_mapping_fn=mapping)


def configure(config=None, models=MODELS):
    """Configure an algorithm for `Agents`, by default PPO."""
    if config is None:
        config = make_config()
    return rlcatalog_rllib.configure(config, Agents, model=MODEL, models=models)


# --- what runners store and environments get ------------------------------------------------------


class AgentEpisode(NamedTuple):
    """The steps of one agent in one episode."""

    #: Ray's episode, with encoded observations and raw actions.
    stored: Any
    #: Raw actions of the stored episode `[n, width]`.
    raw_actions: np.ndarray
    #: The n + 1 observations and the n actions, as the environment recorded them.
    observations: list[Any]
    actions: list[Any]


class Sample(NamedTuple):
    runner: Any
    #: Ray's episodes.
    episodes: list[Any]
    #: For each episode, a dict of agents to their observations, actions and rewards, as the
    #: environment recorded them.
    records: list[dict[str, Any]]

    def policy_of(self, agent):
        return self.runner.module[POLICY_OF[agent]].policy

    def episodes_of(self, agent):
        """Return the episodes of one agent."""
        agent_episodes = []
        for episode, record in zip(self.episodes, self.records, strict=True):
            stored = episode.agent_episodes[agent]
            num_steps = len(stored)  # of the last episode, Ray returns only the steps it asked for
            observations, actions, _ = record[agent]
            agent_episodes.append(
                AgentEpisode(
                    stored,
                    np.reshape(stored.get_actions(), (num_steps, -1)),
                    observations[: num_steps + 1],
                    actions[:num_steps],
                )
            )
        return agent_episodes


@pytest.fixture(scope="module")
def sample():
    """30 steps of `Agents`."""
    runner = MultiAgentEnvRunner(config=configure())
    episodes = runner.sample()
    return Sample(runner, episodes, Agents.last.episodes)


@pytest.mark.parametrize("agent", ["reader", "scribe", "picker"])  # their policies have no filter
def test_observations_are_stored_as_the_policy_encodes_them(sample, agent):
    policy = sample.policy_of(agent)

    for episode in sample.episodes_of(agent):
        encoded = episode.stored.get_observations()
        if isinstance(encoded, dict):  # with views or masks beside the observations
            encoded = encoded["obs"]
        expected = policy.preprocess(episode.observations)
        np.testing.assert_allclose(encoded, expected, rtol=1e-6)


def test_masks_are_stored_with_observations(sample):
    for episode in sample.episodes_of("picker"):
        masks = [obs["action_mask"] for obs in episode.observations]
        np.testing.assert_array_equal(episode.stored.get_observations()["mask"], masks)


def test_filter_learns_from_all_agents_of_its_policy(sample):
    states = sample.runner._env_to_module.get_state()["EncodeAgents"]
    statistics = states["filtered"]["filter"]

    # The agents "left" and "right" share the policy "filtered".
    observations = []
    for record in sample.records:
        left_observations, _, _ = record["left"]
        right_observations, _, _ = record["right"]
        observations += left_observations + right_observations
    assert int(statistics["n"]) == len(observations)  # "n" counts observations
    expected_mean = np.mean(observations, axis=0)
    np.testing.assert_allclose(statistics["mean"], expected_mean, rtol=1e-5, atol=1e-6)


def test_policies_without_filter_have_no_state(sample):
    state = sample.runner._env_to_module.get_state()["EncodeAgents"]

    assert set(state) == POLICIES
    assert state["recurrent"] == {}
    assert state["masked"] == {}


@pytest.mark.parametrize("agent", ["left", "picker"])
def test_environment_gets_adapted_choices(sample, agent):
    codec = sample.policy_of(agent).action_codec

    for episode in sample.episodes_of(agent):
        np.testing.assert_array_equal(codec.adapt(episode.raw_actions), episode.actions)


def test_environment_gets_both_parts_of_adapted_actions(sample):
    # An action of this agent is a tuple of a choice and a vector.
    codec = sample.policy_of("scribe").action_codec

    for episode in sample.episodes_of("scribe"):
        choices, vectors = codec.adapt(episode.raw_actions)
        np.testing.assert_array_equal(choices, [choice for choice, _ in episode.actions])
        np.testing.assert_array_equal(vectors, [vector for _, vector in episode.actions])


# The agent "reader" takes no part in every third step, so its last action may be two steps old.
@pytest.mark.parametrize("agent", ["reader", "scribe"])
def test_views_show_the_past_of_the_same_agent(sample, agent):
    for episode in sample.episodes_of(agent):
        num_steps = len(episode.actions)
        views = episode.stored.get_observations(slice(0, num_steps))["views"]
        past_actions = views["past_actions"]
        past_rewards = views["past_rewards"].reshape(num_steps)

        # Nothing comes before the first step.
        assert not past_actions[0].any()
        assert past_rewards[0] == 0
        np.testing.assert_allclose(past_rewards[1:], episode.stored.get_rewards()[:-1])
        # An action is a choice of two, which is encoded as a one-hot, and a vector.
        one_hots = [np.eye(2)[choice] for choice, _ in episode.actions]
        np.testing.assert_array_equal(past_actions[1:, :2], one_hots[:-1])


# --- training and checkpoints ---------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_learners_train_every_policy(rllib):
    config = configure()
    runner = MultiAgentEnvRunner(config=config)
    learner = rllib.make_learner(config, runner)
    modules = ModuleDict({policy: learner.module[policy] for policy in POLICIES})
    weights_before = copy_weights(modules)

    rllib.update(learner, runner.sample())

    assert_every_weight_changed(modules, weights_before)


def test_appo_builds_every_policy(rllib):
    config = configure(make_config(APPOConfig))
    runner = MultiAgentEnvRunner(config=config)

    learner = rllib.make_learner(config, runner)

    assert set(learner.module.keys()) == POLICIES


def test_policies_have_separate_critics_as_in_ppo():
    specs = configure().rl_module_spec.rl_module_specs

    assert set(specs) == POLICIES
    for spec in specs.values():
        assert spec.model_config["vf_share_layers"] is False


def test_model_config_of_one_policy_overrides_the_default():
    config = configure(models={"masked": {"vf_share_layers": True}})

    spec = config.rl_module_spec.rl_module_specs["masked"]

    assert spec.model_config["vf_share_layers"] is True


@pytest.fixture
def pickled_env(local_ray):
    """Have Ray pickle the environment and this file, because workers cannot import them."""
    modules = [agents_env, sys.modules[__name__]]
    for module in modules:
        local_ray.cloudpickle.register_pickle_by_value(module)
    yield
    for module in modules:
        local_ray.cloudpickle.unregister_pickle_by_value(module)


class TrainedAlgorithm(NamedTuple):
    algorithm: Any
    result: dict[str, Any]


@pytest.fixture(params=[0, pytest.param(1, marks=pytest.mark.slow)], ids=["local", "remote"])
def trained(request, pickled_env):
    """PPO after an iteration, with a local or a remote environment runner."""
    config = configure().env_runners(num_env_runners=request.param)
    algorithm = config.build_algo()
    yield TrainedAlgorithm(algorithm, algorithm.train())
    algorithm.stop()


def sample_left(size):
    """Return observations of the agent "left"."""
    space, _ = AGENTS["left"]
    return np.stack([space.sample() for _ in range(size)])


def test_algorithm_reports_and_restores_every_policy(trained, tmp_path):
    assert trained.result["learners"].keys() >= {"filtered", "recurrent", "masked"}
    checkpoint = trained.algorithm.save_to_path(str(tmp_path / "checkpoint"))

    restored = type(trained.algorithm).from_checkpoint(checkpoint)
    restored_policy = rlcatalog_rllib.to_policy(restored, "filtered")
    restored.stop()

    policy = rlcatalog_rllib.to_policy(trained.algorithm, "filtered")
    obs = sample_left(5)
    expected_values = policy.act(obs, explore=False).value
    values = restored_policy.act(obs, explore=False).value
    np.testing.assert_array_equal(values, expected_values)
    # In an iteration, the filter sees all 30 steps of one agent and some of another.
    assert int(restored_policy.filter.get_state()["n"]) > 30


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param([], "'filtered', 'masked', 'recurrent'", id="no name"),
        pytest.param(["neither"], "it has no policy 'neither'", id="unknown name"),
    ],
)
def test_to_policy_needs_a_name_of_several_policies(rllib, pickled_env, arguments, message):
    with (
        rllib.build_algorithm(configure()) as algorithm,
        pytest.raises(UnknownNameError, match=message),
    ):
        rlcatalog_rllib.to_policy(algorithm, *arguments)


@pytest.mark.slow  # a faster test above builds APPO without training it
def test_appo_trains_every_policy(rllib, pickled_env):
    config = configure(make_config(APPOConfig)).learners(num_learners=0)
    # An episode has nine steps, so 27 steps are three whole episodes.
    config.env_runners(num_env_runners=1, rollout_fragment_length=27)
    config.training(train_batch_size_per_learner=27)
    config.reporting(min_sample_timesteps_per_iteration=40)

    with rllib.build_algorithm(config) as algorithm:
        result = rllib.train_asynchronously(algorithm, num_steps=80)
        policy = rlcatalog_rllib.to_policy(algorithm, "filtered")

    assert result["learners"].keys() >= {"filtered", "recurrent", "masked"}
    five_observations = sample_left(5)
    assert policy.act(five_observations).action.shape == (5,)
    # The filter has seen all 80 steps of one agent and some of another.
    assert int(policy.filter.get_state()["n"]) > 80


# --- Ray's check of environments ------------------------------------------------------------------


def configure_with_check(agents):
    """Configure PPO for some agents of `Agents`, in which forbidden actions are errors; Ray checks
    the environment unless `configure` switches this off.
    """
    config = PPOConfig().env_runners(num_env_runners=0, rollout_fragment_length=20)
    policies = {POLICY_OF[agent] for agent in agents}
    config.multi_agent(policies=policies, policy_mapping_fn=map_agent)
    return rlcatalog_rllib.configure(config, Agents, model=MODEL, env_config={"agents": agents})


def test_configure_skips_the_check_with_masks(capsys):
    config = configure_with_check(agents=["picker", "left"])  # picker has masks

    message = capsys.readouterr().err
    assert config.disable_env_checking
    assert "configure() sets disable_env_checking=True" in message
    assert "policies with masks: masked" in message
    MultiAgentEnvRunner(config=config).sample()  # a forbidden action would be an error


def test_configure_keeps_the_check_without_masks(capsys):
    config = configure_with_check(agents=["left", "right"])

    assert not config.disable_env_checking
    assert "disable_env_checking" not in capsys.readouterr().err


# --- modules and spaces of policies ---------------------------------------------------------------


@pytest.fixture
def config_with_random_module():
    """A config with a module of Ray's for "filtered", and model keys for "masked"."""
    observation_space, action_space = AGENTS["left"]
    config = make_config()
    config.rl_module(
        rl_module_spec=MultiRLModuleSpec(
            rl_module_specs={
                "filtered": RLModuleSpec(
                    module_class=RandomRLModule,
                    observation_space=observation_space,
                    action_space=action_space,
                ),
                "masked": RLModuleSpec(model_config={"fcnet_hiddens": [5]}),
            }
        )
    )
    return rlcatalog_rllib.configure(config, Agents)


def test_configure_keeps_modules_of_other_classes(config_with_random_module):
    runner = MultiAgentEnvRunner(config=config_with_random_module)

    assert isinstance(runner.module["filtered"], RandomRLModule)
    assert runner.module["masked"].policy.config["fcnet_hiddens"] == [5]


def test_observations_for_other_modules_are_not_encoded(config_with_random_module):
    runner = MultiAgentEnvRunner(config=config_with_random_module)
    sample = Sample(runner, runner.sample(), Agents.last.episodes)

    for episode in sample.episodes_of("left"):
        stored_observations = episode.stored.get_observations()
        np.testing.assert_array_equal(stored_observations, np.stack(episode.observations))


def test_policy_that_no_agent_uses_may_declare_its_spaces():
    observation_space, action_space = AGENTS["left"]
    policies = {
        "unused": PolicySpec(observation_space=observation_space, action_space=action_space),
        "used": PolicySpec(),
    }
    config = PPOConfig().multi_agent(
        policies=policies, policy_mapping_fn=lambda agent, episode, **_: "used"
    )

    rlcatalog_rllib.configure(config, Agents, env_config={"agents": ("left",)})

    assert set(config.rl_module_spec.rl_module_specs) == {"unused", "used"}


def test_agents_with_equal_spaces_may_be_mapped_at_random():
    config = PPOConfig().multi_agent(
        policies={"a", "b"},
        policy_mapping_fn=lambda agent, episode, **_: random.choice(["a", "b"]),
    )
    config.env_runners(num_env_runners=0, rollout_fragment_length=40)
    # These two agents have equal spaces.
    env_config = {"agents": ("left", "right")}
    rlcatalog_rllib.configure(config, Agents, model={"fcnet_hiddens": [8]}, env_config=env_config)

    episodes = MultiAgentEnvRunner(config=config).sample()

    assert sum(len(episode) for episode in episodes) >= 40


# --- rejected configs -----------------------------------------------------------------------------


def test_agents_with_different_spaces_need_different_policies():
    config = make_config(policies={"all"}, mapping=lambda agent, episode, **_: "all")

    with pytest.raises(NotServedError, match="'all' serves the agents") as caught:
        configure(config, models={})

    assert "'left', 'picker', 'reader', 'right', 'scribe', whose spaces" in str(caught.value)


def test_models_of_an_unknown_policy_are_rejected():
    with pytest.raises(ConfigError, match=r"'maskd'\. Did you mean 'masked'"):
        configure(models={"maskd": {}})


def test_policy_without_agents_needs_spaces():
    config = make_config(policies={*POLICIES, "idle"})

    with pytest.raises(ConfigError, match="no agent is mapped to 'idle'") as caught:
        configure(config)

    assert "PolicySpec(observation_space" in str(caught.value)


def test_several_policies_need_a_multi_agent_env(monkeypatch):
    monkeypatch.setattr(
        "rlcatalog_rllib.configuration.create_env", lambda *_: gym.make("CartPole-v1")
    )

    with pytest.raises(ConfigError, match=r"not a ray\.rllib\.env\.multi_agent_env"):
        rlcatalog_rllib.configure(make_config(), "CartPole-v1")


def test_unknown_key_names_its_policy():
    with pytest.raises(CatalogError, match="'masked': Unknown model config key"):
        configure(models={"masked": {"fcnet_hidens": [3]}})


def test_models_need_several_agents():
    with pytest.raises(ConfigError, match="there is no policy 'a'"):
        rlcatalog_rllib.configure(PPOConfig(), "CartPole-v1", models={"a": {}})


# --- a user's connectors --------------------------------------------------------------------------


class RepeatObservation(ConnectorV2):
    """Doubles each observation and appends a copy of it."""

    def recompute_output_observation_space(self, input_observation_space, input_action_space):
        low = np.tile(2 * input_observation_space.low, 2)
        high = np.tile(2 * input_observation_space.high, 2)
        return spaces.Box(low, high, dtype=np.float32)

    def __call__(self, *, batch, episodes, **kwargs):
        for episode in episodes:
            repeated = np.tile(2 * episode.get_observations(-1), 2)
            episode.set_observations(at_indices=-1, new_data=repeated)
            episode.observation_space = self.observation_space
        return batch


class RecordActions(ConnectorV2):
    """Records the last raw actions."""

    actions = None

    def __call__(self, *, batch, **kwargs):
        RecordActions.actions = {key: list(value) for key, value in batch["actions"].items()}
        return batch


@pytest.fixture
def runner_with_connectors():
    """A runner for CartPole, whose config has two connectors of a user's."""
    config = PPOConfig().env_runners(
        num_env_runners=0,
        rollout_fragment_length=10,
        env_to_module_connector=lambda env, spaces, device: RepeatObservation(),
        module_to_env_connector=lambda env, spaces: [RecordActions()],
    )
    model = {**MODEL, "observation_filter": "MeanStdFilter"}
    rlcatalog_rllib.configure(config, "CartPole-v1", model=model)
    # Configuring a config again must not add the connectors again.
    rlcatalog_rllib.configure(config, "CartPole-v1", model=model)
    return SingleAgentEnvRunner(config=config)


def test_connectors_of_a_user_run_once_before_the_encoding(runner_with_connectors):
    names = [type(piece).__name__ for piece in runner_with_connectors._env_to_module]

    assert names.count("RepeatObservation") == 1
    assert names.index("RepeatObservation") + 1 == names.index("EncodeObservations")


def test_policy_reads_the_observations_of_a_user_s_connector(runner_with_connectors):
    episode, *_ = runner_with_connectors.sample()

    policy = runner_with_connectors.module.policy
    assert policy.observation_space.shape == (8,)  # CartPole has four numbers
    assert episode.get_observations().shape[1:] == (8,)


def test_connector_of_a_user_gets_raw_actions(runner_with_connectors):
    episode, *_ = runner_with_connectors.sample()

    assert RecordActions.actions
    assert gym.make("CartPole-v1").action_space.contains(episode.get_actions(-1))
