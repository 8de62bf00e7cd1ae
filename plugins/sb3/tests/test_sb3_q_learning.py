"""DQN and QR-DQN whose networks come from the catalog: values, masks, files."""

import gymnasium as gym
import numpy as np
import pytest
import torch

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")
pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")

import sb3_contrib
import stable_baselines3
from gymnasium.spaces import Box, Dict, Discrete
from torch import nn

from rlcatalog.errors import ActionMaskError, ConfigError, NotServedError
from rlcatalog_sb3 import DQN, QRDQN, for_sb3, to_policy
from rlcatalog_torch import dueling_values

LEFT, RIGHT, JUMP = range(3)
CELLS = 5
GAMMA = 0.9
#: One row of weights for each cell, so that Q-learning is exact.
TABLE = {"fcnet_hiddens": [], "no_final_linear": False}


class Corridor(gym.Env):
    """Five cells; the last one ends the episode and pays 1, every other step costs 0.1.

    The agent goes left, right, or jumps over a cell. In the first cell it cannot go left; it can
    jump in odd cells only. A forbidden action raises an error.
    """

    action_space = Discrete(3)
    observation_space = Dict({"cell": Box(0, 1, (CELLS,)), "action_mask": Box(0, 1, (3,), np.int8)})

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cell = int(self.np_random.integers(CELLS - 1))
        self.steps = 0
        return observe(self.cell), {}

    def step(self, action):
        assert allowed_in(self.cell)[action], f"action {action} is forbidden in cell {self.cell}"
        self.cell, reward = move(self.cell, action)
        self.steps += 1
        is_over = self.cell == CELLS - 1
        obs = observe(self.cell)
        if is_over:
            obs["action_mask"][:] = 0  # the last observation of an episode allows nothing
        return obs, reward, is_over, self.steps == 20, {}


def allowed_in(cell):
    return np.array([cell > 0, True, cell % 2 == 1])


def observe(cell):
    one_hot = np.eye(CELLS, dtype=np.float32)[cell]
    return {"cell": one_hot, "action_mask": allowed_in(cell).astype(np.int8)}


def move(cell, action):
    next_cell = min(cell + {LEFT: -1, RIGHT: 1, JUMP: 2}[action], CELLS - 1)
    return next_cell, 1.0 if next_cell == CELLS - 1 else -0.1


def exact_values():
    """Return the optimal values `[cells, actions]` by value iteration; 0 for the last cell."""
    values = np.zeros((CELLS, 3))
    for _ in range(100):
        for cell in range(CELLS - 1):
            for action in range(3):
                next_cell, reward = move(cell, action)
                allowed = allowed_in(next_cell)
                future = 0.0
                if next_cell < CELLS - 1:
                    future = values[next_cell, allowed].max()
                values[cell, action] = reward + GAMMA * future
    return values


def batch_of_all_cells():
    observations = [observe(cell) for cell in range(CELLS - 1)]
    return {key: np.stack([obs[key] for obs in observations]) for key in observations[0]}


ALGORITHMS = pytest.mark.parametrize("algorithm", [DQN, QRDQN], ids=["DQN", "QRDQN"])
WRAPPERS = pytest.mark.parametrize("wrap", [lambda env: env, for_sb3], ids=["as it is", "for_sb3"])


def make(algorithm, env, *, model_config=None, **policy_kwargs):
    """Return an algorithm for the corridor, with its catalog policy."""
    policy = {DQN: "CatalogQPolicy", QRDQN: "CatalogQuantilePolicy"}[algorithm]
    policy_kwargs["model_config"] = (
        {"fcnet_hiddens": [16]} if model_config is None else model_config
    )
    if algorithm is QRDQN:
        policy_kwargs.setdefault("n_quantiles", 5)
    return algorithm(
        policy,
        env,
        policy_kwargs=policy_kwargs,
        gamma=GAMMA,
        learning_starts=50,
        buffer_size=2_000,
        train_freq=1,
        target_update_interval=50,
        exploration_fraction=0.5,
        exploration_final_eps=0.5,
        learning_rate=2e-2,
        seed=0,
        device="cpu",
    )


def observe_through(env, cell):
    """Return the observation of a cell as an environment, which may be flattened, shows it."""
    if isinstance(env, Corridor):
        return observe(cell)
    return env.flattening.observe(observe(cell), None, last=False)


def action_values(model, env, cell):
    """Return an algorithm's values `[3]` of all actions in a cell."""
    obs, _ = model.policy.obs_to_tensor(observe_through(env, cell))
    return model.policy.action_values(obs).detach().numpy()[0]


def let_jumping_look_best(model):
    """Give all actions the initial value 0, except for jumping, which gets 10."""
    net = model.policy.model
    weights = net.get_weights()
    outputs = {name: array for name, array in weights.items() if name.startswith("outputs.logits")}
    for name, array in outputs.items():
        outputs[name] = np.zeros_like(array)
    bias = outputs["outputs.logits.bias"].reshape(-1, 3)  # one row for each quantile
    bias[:, JUMP] = 10.0
    net.set_weights({**weights, **outputs})
    model.policy.q_net_target.load_state_dict(model.policy.q_net.state_dict())


# --- learning under masks -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "wrap"),
    [
        pytest.param(DQN, lambda env: env, id="DQN"),
        pytest.param(QRDQN, for_sb3, id="QRDQN, flattened"),
        pytest.param(DQN, for_sb3, id="DQN, flattened", marks=pytest.mark.slow),
        pytest.param(QRDQN, lambda env: env, id="QRDQN", marks=pytest.mark.slow),
    ],
)
def test_masked_values_agree_with_value_iteration(algorithm, wrap):
    env = wrap(Corridor())
    model = make(algorithm, env, model_config=TABLE)
    let_jumping_look_best(model)

    model.learn(1_500)  # the environment raises an error at a forbidden action

    expected = exact_values()
    for cell in range(CELLS - 1):
        allowed = allowed_in(cell)
        values = action_values(model, env, cell)
        np.testing.assert_allclose(values[allowed], expected[cell, allowed], atol=0.05)
        best_action, _ = model.predict(observe_through(env, cell), deterministic=True)
        assert expected[cell, best_action] == expected[cell, allowed].max()


@ALGORITHMS
def test_random_actions_are_drawn_from_all_allowed_ones(algorithm):
    model = make(algorithm, Corridor())
    model.exploration_rate = 1.0

    batch = batch_of_all_cells()
    drawn = np.array([model.predict(batch)[0] for _ in range(200)])

    for cell in range(CELLS - 1):
        assert set(drawn[:, cell]) == set(np.flatnonzero(allowed_in(cell)))


@ALGORITHMS
def test_observation_that_allows_nothing_is_an_error_when_acting(algorithm):
    model = make(algorithm, Corridor())
    obs = observe(2)
    obs["action_mask"][:] = 0

    with pytest.raises(ActionMaskError):
        model.predict(obs, deterministic=True)


# --- the network ----------------------------------------------------------------------------------


def dense_layers(model):
    """Return the weights of a catalog model with one hidden layer as a plain PyTorch network."""
    weights = {name: torch.from_numpy(array) for name, array in model.get_weights().items()}
    hidden_weight = weights["hidden.layers.0.weight"]
    hidden = nn.Linear(hidden_weight.shape[1], hidden_weight.shape[0])
    output_weight = weights["outputs.logits.weight"]
    outputs = nn.Linear(output_weight.shape[1], output_weight.shape[0])
    with torch.no_grad():
        hidden.weight.copy_(hidden_weight)
        hidden.bias.copy_(weights["hidden.layers.0.bias"])
        outputs.weight.copy_(output_weight)
        outputs.bias.copy_(weights["outputs.logits.bias"])
    return nn.Sequential(hidden, nn.Tanh(), outputs)


def test_network_of_dqn_equals_plain_layers():
    policy = make(DQN, "CartPole-v1").policy
    obs = torch.randn(7, 4)

    torch.testing.assert_close(policy.q_net(obs), dense_layers(policy.model)(obs))


def test_network_of_qrdqn_orders_its_outputs_as_sb3_contrib_does():
    policy = make(QRDQN, "CartPole-v1", n_quantiles=5).policy
    obs = torch.randn(7, 4)

    outputs = dense_layers(policy.model)(obs)
    # sb3_contrib.qrdqn.policies.QuantileNetwork.forward: view(-1, n_quantiles, number of actions)
    torch.testing.assert_close(policy.quantile_net(obs), outputs.view(7, 5, 2))


def test_dueling_network_adds_centred_advantages_to_the_value():
    policy = make(DQN, "CartPole-v1", dueling=True).policy
    obs = torch.randn(7, 4)

    values = policy.q_net(obs).detach().numpy()

    model = policy.model
    advantages = model({"obs": obs}, [], None)[0].detach().numpy()
    state_values = model.value_function().detach().numpy()
    centred = advantages - advantages.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(values, state_values[:, None] + centred, rtol=1e-5, atol=1e-6)


def test_dueling_values_average_allowed_advantages_only():
    advantages = torch.tensor([[1.0, 5.0, 100.0]])
    allowed = torch.tensor([[True, True, False]])

    values = dueling_values(advantages, torch.tensor([2.0]), allowed)

    # The mean of 1 and 5 is 3, and the state's value is 2.
    np.testing.assert_allclose(values[0, :2], [2.0 + 1.0 - 3.0, 2.0 + 5.0 - 3.0])


def test_target_network_has_weights_of_its_own():
    model = make(DQN, Corridor(), dueling=True)
    model.target_update_interval = 10**6
    target_before = {
        name: weight.clone() for name, weight in model.q_net_target.state_dict().items()
    }

    model.learn(100)

    for name, weight in model.q_net_target.state_dict().items():
        torch.testing.assert_close(weight, target_before[name], rtol=0, atol=0)
    online = model.q_net.state_dict()
    assert any((online[name] != target_before[name]).any() for name in online)


# --- the same training as Stable-Baselines3's -----------------------------------------------------


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(DQN, stable_baselines3.DQN), (QRDQN, sb3_contrib.QRDQN)],
    ids=["DQN", "QRDQN"],
)
def test_policy_of_sb3_trains_as_in_its_own_algorithm(ours, theirs):
    trained = [
        algorithm("MlpPolicy", "CartPole-v1", learning_starts=20, seed=3, device="cpu").learn(120)
        for algorithm in (ours, theirs)
    ]

    for weight, expected in zip(*(model.policy.parameters() for model in trained), strict=True):
        torch.testing.assert_close(weight, expected, rtol=0, atol=0)


def test_ten_updates_equal_those_of_sb3_from_equal_weights():
    settings = {"learning_starts": 0, "seed": 0, "device": "cpu", "target_update_interval": 1}
    theirs = stable_baselines3.DQN(
        "MlpPolicy", "CartPole-v1", policy_kwargs={"net_arch": [16]}, **settings
    )
    config = {"fcnet_hiddens": [16], "fcnet_activation": "relu"}
    kwargs = {"model_config": config}
    ours = DQN("CatalogQPolicy", "CartPole-v1", policy_kwargs=kwargs, **settings)
    layers = dense_layers(ours.policy.model)
    for network in (theirs.q_net, theirs.q_net_target):
        with torch.no_grad():
            for target, source in zip(network.parameters(), layers.parameters(), strict=True):
                target.copy_(source)
    rng = np.random.default_rng(0)
    for _ in range(300):
        transition = (
            rng.normal(size=(1, 4)).astype(np.float32),
            rng.normal(size=(1, 4)).astype(np.float32),
            rng.integers(2, size=(1, 1)),
            rng.normal(size=1).astype(np.float32),
            rng.random(1) < 0.1,
            [{}],
        )
        for model in (ours, theirs):
            model.replay_buffer.add(*transition)
    for model in (ours, theirs):
        model.set_logger(stable_baselines3.common.logger.Logger(None, []))
        np.random.seed(0)
        model.train(gradient_steps=10, batch_size=32)

    obs = torch.randn(50, 4)
    torch.testing.assert_close(ours.q_net(obs), theirs.q_net(obs), rtol=1e-5, atol=1e-5)


# --- files and conversion -------------------------------------------------------------------------


@ALGORITHMS
def test_loaded_algorithm_has_the_same_values(algorithm, tmp_path):
    env = Corridor()
    model = make(algorithm, env).learn(80)
    model.save(tmp_path / "model.zip")

    loaded = algorithm.load(tmp_path / "model.zip", env=env)

    for cell in range(CELLS - 1):
        values = action_values(model, env, cell)
        np.testing.assert_array_equal(action_values(loaded, env, cell), values)
    loaded.learn(60, reset_num_timesteps=False)  # training goes on


@ALGORITHMS
def test_loaded_policy_has_the_same_values(algorithm, tmp_path):
    env = Corridor()
    policy = make(algorithm, env).policy
    policy.save(tmp_path / "policy.zip")

    loaded = type(policy).load(tmp_path / "policy.zip", device="cpu")

    obs, _ = policy.obs_to_tensor(batch_of_all_cells())
    torch.testing.assert_close(loaded.action_values(obs), policy.action_values(obs))


@WRAPPERS
@pytest.mark.parametrize("dueling", [False, True], ids=["plain", "dueling"])
def test_converted_policy_takes_the_greedy_allowed_actions(dueling, wrap):
    env = wrap(Corridor())
    model = make(DQN, env, dueling=dueling).learn(100)

    policy = to_policy(model)

    actions = policy.act(batch_of_all_cells(), explore=False).action
    greedy = [action_values(model, env, cell).argmax() for cell in range(CELLS - 1)]
    assert actions.tolist() == greedy


def test_converted_quantile_policy_takes_greedy_allowed_actions():
    env = Corridor()
    model = make(QRDQN, env).learn(100)

    actions = to_policy(model).act(batch_of_all_cells(), explore=False).action

    greedy = [action_values(model, env, cell).argmax() for cell in range(CELLS - 1)]
    assert actions.tolist() == greedy


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "policy"),
    [
        (stable_baselines3.DQN, "CatalogQPolicy"),
        (sb3_contrib.QRDQN, "CatalogQuantilePolicy"),
    ],
    ids=["DQN", "QRDQN"],
)
def test_masks_under_algorithm_of_sb3_are_refused(algorithm, policy):
    with pytest.raises(NotServedError, match=f"Use rlcatalog_sb3.{algorithm.__name__}"):
        algorithm(policy, Corridor())


@pytest.mark.parametrize("policy", ["CatalogPolicy", "CatalogQuantilePolicy"])
def test_policy_of_another_algorithm_is_refused(policy):
    import rlcatalog_sb3

    with pytest.raises(NotServedError, match="rlcatalog_sb3"):
        DQN(getattr(rlcatalog_sb3, policy), "CartPole-v1")


@pytest.mark.parametrize(
    ("policy_kwargs", "cause"),
    [
        ({"model_config": {"use_lstm": True}}, "use_lstm: DQN keeps no state"),
        ({"model_config": {"critic": {}}}, "critic: DQN"),
        ({"model_config": {"custom_action_dist": "quantiles"}}, "custom_action_dist: DQN needs 2"),
        ({"model_config": {"observation_filter": "MeanStdFilter"}}, "observation_filter"),
        ({"frozen": "always"}, "frozen='always'"),
        ({"net_arch": {"pi": [8], "vf": [4]}}, "net_arch"),
    ],
    ids=["memory", "critic", "distribution", "filter", "frozen", "two nets"],
)
def test_config_that_no_q_network_can_have_is_refused(policy_kwargs, cause):
    with pytest.raises((ConfigError, NotServedError), match=cause):
        DQN("CatalogQPolicy", "CartPole-v1", policy_kwargs=policy_kwargs)


def test_dueling_quantile_network_is_refused():
    with pytest.raises(NotServedError, match="dueling"):
        make(QRDQN, "CartPole-v1", dueling=True)
