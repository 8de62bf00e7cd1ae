"""Saved algorithms and policies of Stable-Baselines3, exported policies, and the saved runs of
`rlcatalog train --engine sb3`.
"""

import json
import textwrap

import numpy as np
import pytest
import warm

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")

import torch
from command_line import run_command
from gymnasium.spaces import Box, Dict, Discrete, Tuple
from random_observations import RandomObservations
from sb3_helpers import extractor_kwargs
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

import rlcatalog
from rlcatalog.errors import CatalogError, NotServedError
from rlcatalog_runs import SeedStream, derive_seed
from rlcatalog_runs.records import read_record
from rlcatalog_sb3 import CatalogExtractor, CatalogPolicy, for_sb3, to_policy
from rlcatalog_sb3.algorithms import make

NESTED = Dict(
    {"a": Tuple([Discrete(3), Box(-1, 1, (2,))]), "action_mask": Box(0, 1, (3,), np.int8)}
)
HYBRID = Tuple([Discrete(3, start=1), Box(0, 1, (2,))])


class NestedEnv(RandomObservations):
    """Random observations of several parts, with a mask, and actions of two parts."""

    def __init__(self, observation_space=NESTED, action_space=HYBRID):
        super().__init__(observation_space, action_space)

    def step(self, action):
        is_over = bool(self.np_random.random() < 0.1)
        return self.observe(), 1.0, False, is_over, {}


# --- files of Stable-Baselines3 -------------------------------------------------------------------


def train_ppo_in_nested_env():
    env = for_sb3(NestedEnv(), {"fcnet_hiddens": [8]})
    model = PPO(CatalogPolicy, env, n_steps=16, batch_size=8, seed=0, device="cpu")
    return model.learn(32)


@pytest.mark.parametrize("load_with_env", [False, True])
def test_loaded_algorithm_acts_like_the_saved_one(load_with_env, tmp_path):
    model = train_ppo_in_nested_env()  # with a layer of eight units
    model.save(tmp_path / "model.zip")

    new_env = for_sb3(NestedEnv()) if load_with_env else None
    loaded = PPO.load(tmp_path / "model.zip", env=new_env)

    assert loaded.policy.catalog_policy.config["fcnet_hiddens"] == [8]
    for _ in range(5):
        obs = model.observation_space.sample()
        obs["action_mask"][:] = [1, 0, 1]  # a random mask may allow no action
        expected, _ = model.predict(obs, deterministic=True)
        action, _ = loaded.predict(obs, deterministic=True)
        np.testing.assert_array_equal(action, expected)


def test_loaded_algorithm_goes_on_with_its_optimiser(tmp_path):
    def count_optimiser_steps(algorithm):
        return float(algorithm.policy.optimizer.state_dict()["state"][0]["step"])

    train_ppo_in_nested_env().save(tmp_path / "model.zip")

    loaded = PPO.load(tmp_path / "model.zip", env=for_sb3(NestedEnv()))
    steps_before = count_optimiser_steps(loaded)
    loaded.learn(16)

    assert steps_before > 0
    assert count_optimiser_steps(loaded) > steps_before


def test_saved_policy_is_loaded_without_its_algorithm(tmp_path):
    kwargs = {"model_config": {"fcnet_hiddens": [8]}}
    model = A2C(CatalogPolicy, "CartPole-v1", policy_kwargs=kwargs, device="cpu")
    model.policy.save(tmp_path / "policy.pt")

    loaded = CatalogPolicy.load(tmp_path / "policy.pt", device="cpu")

    obs = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    expected, _ = model.predict(obs, deterministic=True)
    actions, _ = loaded.predict(obs, deterministic=True)
    np.testing.assert_array_equal(actions, expected)
    assert loaded.catalog_policy.config["fcnet_hiddens"] == [8]


def test_algorithm_trains_in_another_environment_of_equal_spaces():
    model = PPO(CatalogPolicy, for_sb3(NestedEnv()), n_steps=8, batch_size=8, device="cpu")

    model.set_env(for_sb3(NestedEnv()))
    model.learn(8)

    assert model.num_timesteps == 8


@pytest.mark.parametrize(
    ("observation_space", "config"),
    [
        # Its observations are five numbers and a mask of three, as in NESTED.
        pytest.param(
            Dict({"b": Box(-1, 1, (5,)), "action_mask": Box(0, 1, (3,), np.int8)}),
            None,
            id="different space of equal size",
        ),
        pytest.param(NESTED, {"action_bounds": "clip"}, id="different action bounds"),
    ],
)
def test_loading_with_unequal_spaces_is_an_error(observation_space, config, tmp_path):
    model = PPO(CatalogPolicy, for_sb3(NestedEnv()), n_steps=8, batch_size=8, device="cpu")
    model.save(tmp_path / "model.zip")

    with pytest.raises(ValueError, match="spaces do not match"):
        PPO.load(tmp_path / "model.zip", env=for_sb3(NestedEnv(observation_space), config))


def test_evaluate_policy_plays_in_vector_environments():
    envs = make_vec_env("CartPole-v1", n_envs=2, seed=0, wrapper_class=for_sb3)
    model = PPO(CatalogPolicy, envs, n_steps=8, batch_size=8, seed=0, device="cpu")

    returns, lengths = evaluate_policy(model, envs, n_eval_episodes=4, return_episode_rewards=True)

    assert len(returns) == 4
    assert returns == lengths  # CartPole pays 1 for each step
    assert min(returns) > 5  # as even random actions return


# --- exported policies ----------------------------------------------------------------------------


def make_env_of_float64():
    """Observations of float64, and choices 4 to 6."""
    return NestedEnv(Box(-1, 1, (3,), np.float64), Discrete(3, start=4))


def train_off_policy(algorithm, env, net_arch):
    """Train for 30 steps over a trunk of two layers."""
    config = {"fcnet_hiddens": [16], "post_fcnet_hiddens": [7]}
    kwargs = extractor_kwargs(config, net_arch=net_arch)
    model = algorithm(
        "MlpPolicy", env, policy_kwargs=kwargs, learning_starts=10, seed=0, device="cpu"
    )
    return model.learn(30)


def sample_observations(env):
    """Return 50 observations of an environment, and the same flattened by `for_sb3`."""
    observations = [env.unwrapped.observation_space.sample() for _ in range(50)]
    flat_observations = np.stack([env.flattening.observe(obs) for obs in observations])
    return observations, flat_observations


@pytest.mark.grid
@pytest.mark.parametrize("net_arch", [[], [8], [8, 6]], ids=str)
@pytest.mark.parametrize(
    ("algorithm", "make_env"),
    [
        pytest.param(DQN, lambda: "CartPole-v1", id="DQN"),
        pytest.param(DQN, make_env_of_float64, id="DQN, choices from 4"),
        pytest.param(SAC, lambda: "Pendulum-v1", id="SAC"),
        pytest.param(TD3, lambda: "Pendulum-v1", id="TD3"),
    ],
)
def test_exported_actor_acts_like_its_algorithm(algorithm, make_env, net_arch, tmp_path):
    env = for_sb3(make_env())
    model = train_off_policy(algorithm, env, net_arch)
    to_policy(model).save(tmp_path)
    observations, flat_observations = sample_observations(env)

    policy = rlcatalog.load(tmp_path)
    actions = policy.act(observations, explore=False).action

    flat_actions, _ = model.predict(flat_observations, deterministic=True)
    expected = np.stack([env.flattening.act(action) for action in flat_actions])
    np.testing.assert_allclose(actions, expected, rtol=1e-4, atol=1e-5)
    assert policy.action_space == env.unwrapped.action_space


@pytest.mark.parametrize("net_arch", [[], [8, 6]], ids=str)
def test_exported_actor_of_sac_has_its_densities(net_arch, tmp_path):
    env = for_sb3("Pendulum-v1")
    model = train_off_policy(SAC, env, net_arch)
    to_policy(model).save(tmp_path)
    observations, flat_observations = sample_observations(env)

    step = rlcatalog.load(tmp_path).act(observations)

    actor = model.policy.actor
    mean, log_std, _ = actor.get_action_dist_params(torch.from_numpy(flat_observations))
    distribution = actor.action_dist.proba_distribution(mean, log_std)
    # SAC's own actions are in [-1, 1], those of Pendulum in [-2, 2]: twice as wide, half as dense.
    own_logp = distribution.log_prob(torch.from_numpy(step.action / 2)).detach().numpy()
    np.testing.assert_allclose(step.logp, own_logp - np.log(2), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize(
    ("config", "kwargs", "message"),
    [
        pytest.param(
            {},
            {"net_arch": [8], "activation_fn": torch.nn.Hardtanh},
            "a Hardtanh among Stable-Baselines3's",
            id="activation without a name",
        ),
        pytest.param(
            {"post_fcnet_hiddens": [8]},
            {"net_arch": [8], "activation_fn": torch.nn.Tanh},
            r"activations tanh;.*Set net_arch=\[\]",
            id="two activations",
        ),
        pytest.param({"no_final_linear": True}, {}, "no_final_linear", id="no final layer"),
    ],
)
def test_to_policy_rejects_layers_without_config_keys(config, kwargs, message):
    kwargs = extractor_kwargs(config, **kwargs)
    model = DQN("MlpPolicy", "CartPole-v1", policy_kwargs=kwargs, device="cpu")

    with pytest.raises(NotServedError, match=message):
        to_policy(model)


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [(PPO, "ActorCriticPolicy has no catalog parts"), (DQN, "DQNPolicy has no catalog parts")],
)
def test_to_policy_rejects_policies_without_catalog_parts(algorithm, message):
    model = algorithm("MlpPolicy", "CartPole-v1", device="cpu")

    with pytest.raises(NotServedError, match=message):
        to_policy(model)


def test_to_policy_rejects_extractors_of_a2c():
    kwargs = {"features_extractor_class": CatalogExtractor}
    model = A2C("MlpPolicy", "CartPole-v1", policy_kwargs=kwargs, device="cpu")

    with pytest.raises(NotServedError, match="has other layers after the trunk than"):
        to_policy(model)


#: Program that prints the actions of a saved policy, and cannot import Stable-Baselines3.
ACT_WITHOUT_SB3 = """
    import json, sys

    for name in ("stable_baselines3", "sb3_contrib", "rlcatalog_sb3.policies"):
        sys.modules[name] = None  # importing them fails
    import numpy as np
    import rlcatalog

    policy = rlcatalog.load(sys.argv[1])
    observations = [
        {
            "a": (obs["a"][0], np.asarray(obs["a"][1], np.float32)),
            "action_mask": np.asarray(obs["action_mask"], np.int8),
        }
        for obs in json.loads(sys.argv[2])
    ]
    step = policy.act(observations, explore=False)
    choice, box = step.action
    print(json.dumps([choice.tolist(), box.tolist(), step.logp.tolist()]))
"""


def as_json(observation):
    """Return an observation of `NESTED` as numbers and lists."""
    number, vector = observation["a"]
    mask = observation["action_mask"]
    return {"a": [int(number), vector.tolist()], "action_mask": mask.tolist()}


@pytest.fixture
def nested_model():
    """PPO, trained in `NestedEnv` for a rollout."""
    env = for_sb3(NestedEnv())
    model = PPO(CatalogPolicy, env, n_steps=16, batch_size=8, seed=0, device="cpu")
    return model.learn(16)


@pytest.fixture
def nested_observations():
    env = NestedEnv()
    return [env.reset(seed=seed)[0] for seed in range(5)]


@pytest.mark.slow
def test_exported_policy_acts_without_stable_baselines3(
    nested_model, nested_observations, tmp_path
):
    nested_model.policy.catalog_policy.save(tmp_path)
    observations = json.dumps([as_json(obs) for obs in nested_observations])

    # A program that cannot import Stable-Baselines3, and prints what the saved policy does.
    program = textwrap.dedent(ACT_WITHOUT_SB3)
    process = warm.run(["-c", program, str(tmp_path), observations], tmp_path)
    assert process.returncode == 0, process.stderr
    choices, vectors, logp = json.loads(process.stdout)

    expected = to_policy(nested_model).act(nested_observations, explore=False)
    expected_choices, expected_vectors = expected.action
    assert choices == expected_choices.tolist()
    np.testing.assert_allclose(vectors, expected_vectors, atol=1e-6)
    np.testing.assert_allclose(logp, expected.logp, atol=1e-5)


# --- runs of the command line ---------------------------------------------------------------------


@pytest.fixture(scope="module", params=["PPO", "DQN"])
def run(request, tmp_path_factory):
    """The algorithm's name, and the folder of a run of 150 steps; not to be written to."""
    algo = request.param
    folder = tmp_path_factory.mktemp("run")
    settings = "--set learning_starts=50 --set buffer_size=1000"
    if algo == "PPO":
        settings = "--envs 2 --set n_steps=32 --set n_epochs=2"
    result = run_command(
        f"train CartPole-v1 --engine sb3 --algo {algo} --steps 150 --out {folder}"
        f" --model fcnet_hiddens=[8] --set learning_rate=0.01 {settings}"
    )
    assert result.exit_code == 0, result.output
    return algo, folder


def test_run_contains_policy_records_and_checkpoints(run):
    _, folder = run

    names = {path.name for path in folder.iterdir()}

    assert names >= {"policy", "config.json", "run.json", "metrics.jsonl", "checkpoints"}
    assert "learning_curve.png" in names


def test_run_records_its_engine_and_versions(run):
    _, folder = run

    record = read_record(folder)

    assert record["status"] == "finished"
    assert record["engine"] == "sb3"
    assert record["versions"].keys() >= {"stable_baselines3", "torch", "rlcatalog-sb3"}


def test_run_records_its_config(run):
    algo, folder = run

    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))

    assert config["algorithm"]["name"] == algo
    assert config["model"]["fcnet_hiddens"] == [8]


def test_run_can_be_evaluated(run):
    _, folder = run

    result = run_command(f"evaluate {folder} --episodes 2")

    assert "mean return" in result.output


def test_train_rejects_what_cannot_be_exported_before_training(tmp_path):
    out = tmp_path / "out"

    # An exported policy cannot explore as SAC does with use_sde.
    with pytest.raises(NotServedError, match="explores with use_sde"):
        run_command(f"train Pendulum-v1 --engine sb3 --algo SAC --set use_sde=true --out {out}")

    assert not out.exists()


def test_train_gives_the_weights_of_training_in_python(tmp_path):
    # Before its first step, the command exports a policy. That draws random weights, which must
    # not change the training.
    run_command(
        f"train Pendulum-v1 --engine sb3 --algo SAC --steps 40 --out {tmp_path}"
        " --model fcnet_hiddens=[4] --set learning_starts=20 --set buffer_size=100"
    )
    (last_checkpoint,) = tmp_path.glob("checkpoints/step-000000040/algorithm.zip")
    weights = SAC.load(last_checkpoint).policy.state_dict()

    config = {"fcnet_hiddens": [4]}
    seed = derive_seed(0, SeedStream.ENGINE)  # the command's default seed is 0
    env = make_vec_env(lambda: for_sb3("Pendulum-v1", config), n_envs=1, seed=seed)
    model = make("SAC", env, config, device="cpu", learning_starts=20, buffer_size=100, seed=seed)
    expected = model.learn(40).policy.state_dict()

    assert weights.keys() == expected.keys()
    for name, weight in expected.items():
        assert torch.equal(weights[name], weight)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--algo PPPO", "--algo: unknown algorithm 'PPPO'. Did you mean 'PPO'?"),
        ("--set gama=1", "PPO does not accept 'gama'. Did you mean 'gamma'?"),
        ("--set seed=1", "--set and --config do not accept 'seed'. Use its option instead: --seed"),
        ("--model use_lstm=true", "use_lstm: PPO keeps no state"),
    ],
)
def test_train_names_options_that_it_rejects(option, message, tmp_path):
    out = tmp_path / "out"

    with pytest.raises(CatalogError) as caught:
        run_command(f"train CartPole-v1 --engine sb3 --out {out} {option}")

    assert message in str(caught.value)
    assert not out.exists()
