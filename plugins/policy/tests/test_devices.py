"""The contract of `Policy.to`: the policy moves, what it computes stays."""

import gymnasium as gym
import numpy as np
import pytest

import rlcatalog
from rlcatalog.errors import ConfigError

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    # One config serves parts of every kind here.
    pytest.mark.filterwarnings("ignore::rlcatalog.errors.UnreadKeysWarning"),
]

OBS = np.random.default_rng(0).uniform(-1, 1, (5, 3)).astype(np.float32)


def build(framework):
    return rlcatalog.build(
        gym.spaces.Box(-1, 1, (3,)), gym.spaces.Discrete(4), {"fcnet_hiddens": [8]}, framework
    )


@pytest.mark.parametrize(("framework", "device"), [("torch", "cpu"), ("tf", "/cpu:0")])
def test_moving_keeps_what_a_policy_computes(framework, device):
    policy = build(framework)
    before = policy.act(OBS, explore=False)
    assert policy.to(device) is policy
    after = policy.act(OBS, explore=False)
    np.testing.assert_array_equal(before.dist_inputs, after.dist_inputs)
    np.testing.assert_array_equal(before.value, after.value)
    assert policy.evaluate({"obs": OBS, "raw_action": after.raw_action}).logp.shape == (5,)


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_auto_is_a_device_that_is_there(framework):
    policy = build(framework).to("auto")
    assert policy.device in ("cpu", "cuda", "mps", "/gpu:0")
    assert np.isfinite(policy.act(OBS).logp).all()


@pytest.mark.parametrize(
    ("framework", "device", "message"),
    [
        ("torch", "gpu", "device='gpu': expected cpu, cuda, cuda:1, …, mps or auto"),
        ("torch", "cuda:99", r"device='cuda:99': PyTorch \S+ sees \d devices of this kind"),
        ("tf", "mps", "device='mps': expected cpu, cuda, cuda:1, … or auto"),
        ("tf", "/gpu:99", r"device='/gpu:99': TensorFlow \S+ sees \d GPUs"),
    ],
)
def test_a_policy_stays_where_it_is_when_a_device_is_not_there(framework, device, message):
    policy = build(framework)
    before = policy.act(OBS, explore=False)
    with pytest.raises(ConfigError, match=message):
        policy.to(device)
    assert policy.device == "cpu"
    np.testing.assert_array_equal(policy.act(OBS, explore=False).dist_inputs, before.dist_inputs)


def test_every_parameter_and_every_input_moves():
    import torch

    policy = build("torch").to("meta")
    assert {p.device.type for p in policy.model.parameters()} == {"meta"}
    batch = {"obs": OBS, "raw_action": np.zeros((5, 1), np.int64)}
    assert policy.evaluate(batch).logp.device.type == "meta"
    if torch.cuda.is_available():
        on_cpu = build("torch")
        expected = on_cpu.act(OBS, explore=False).dist_inputs
        np.testing.assert_allclose(
            on_cpu.to("cuda").act(OBS, explore=False).dist_inputs, expected, atol=1e-5
        )


IMAGE = gym.spaces.Box(0, 255, (10, 10, 3), np.uint8)
MODELS = {
    "lstm": (
        gym.spaces.Box(-1, 1, (3,)),
        {"use_lstm": True, "lstm_cell_size": 6, "lstm_use_prev_action": True},
    ),
    "attention": (
        gym.spaces.Box(-1, 1, (3,)),
        {"use_attention": True, "attention_dim": 8, "attention_use_n_prev_rewards": 2},
    ),
    "image": (IMAGE, {}),
    "image in a dict": (
        gym.spaces.Dict({"eye": IMAGE, "self": gym.spaces.Discrete(3)}),
        {"use_lstm": True},
    ),
}


def play(policy, obs, steps=3, between=lambda: None):
    state = None
    for t in range(steps):
        step = policy.act(obs, state, prev_reward=np.full(len(obs), float(t)), explore=False)
        state = step.state
        between()
    return step


@pytest.mark.grid
@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize(("framework", "device"), [("torch", "cpu"), ("tf", "/cpu:0")])
def test_memories_and_images_move_in_the_middle_of_an_episode(kind, framework, device):
    space, config = MODELS[kind]
    space.seed(0)
    obs = [space.sample() for _ in range(4)]
    policy = rlcatalog.build(
        space, gym.spaces.Discrete(4), {"fcnet_hiddens": [8], **config}, framework
    )
    expected = play(policy, obs)
    found = play(policy, obs, between=lambda: policy.to(device))
    np.testing.assert_allclose(found.dist_inputs, expected.dist_inputs, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.value, expected.value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", MODELS)
def test_everything_of_memories_and_images_moves(kind):
    import torch

    space, config = MODELS[kind]
    space.seed(0)
    obs = [space.sample() for _ in range(4)]
    policy = rlcatalog.build(
        space, gym.spaces.Discrete(4), {"fcnet_hiddens": [8], **config}, "torch"
    )
    on_cpu = play(policy, obs)
    batch = {"obs": policy.preprocess(obs), "raw_action": on_cpu.raw_action}
    if on_cpu.state is not None:
        batch |= {
            "seq_lens": np.array([3, 1]),
            "state": policy.initial_state(2),
            "views": on_cpu.state.seen,
        }
    policy.to("meta")
    assert {
        tensor.device.type for tensor in (*policy.model.parameters(), *policy.model.buffers())
    } == {"meta"}
    found = policy.evaluate(batch)
    assert {found.logp.device.type, found.value.device.type} == {"meta"}
    if torch.cuda.is_available():
        policy = rlcatalog.build(
            space, gym.spaces.Discrete(4), {"fcnet_hiddens": [8], **config}, "torch"
        )
        expected = play(policy, obs)
        np.testing.assert_allclose(
            play(policy.to("cuda"), obs).dist_inputs, expected.dist_inputs, atol=1e-4
        )
