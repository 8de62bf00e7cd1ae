"""`Policy.to`: everything moves to the device, and the policy computes the same there."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch

import rlcatalog
from rlcatalog.errors import ConfigError

pytestmark = pytest.mark.usefixtures("one_thread")

OBS = np.random.default_rng(0).uniform(-1, 1, (5, 3)).astype(np.float32)
THREE_FEATURES = gym.spaces.Box(-1, 1, (3,))
FOUR = gym.spaces.Discrete(4)
cpu_devices = pytest.mark.parametrize(
    ("framework", "device"), [("torch", "cpu"), ("tf", "/cpu:0")], ids=["torch", "tf"]
)
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA is not available")


def build_policy(framework, space=THREE_FEATURES, **config):
    return rlcatalog.build(space, FOUR, {"fcnet_hiddens": [8], **config}, framework)


@cpu_devices
def test_moved_policy_acts_the_same(framework, device):
    policy = build_policy(framework)
    before = policy.act(OBS, explore=False)

    assert policy.to(device) is policy

    after = policy.act(OBS, explore=False)
    np.testing.assert_array_equal(before.dist_inputs, after.dist_inputs)
    np.testing.assert_array_equal(before.value, after.value)


@cpu_devices
def test_moved_policy_evaluates(framework, device):
    policy = build_policy(framework).to(device)
    raw_action = policy.act(OBS).raw_action

    assert policy.evaluate({"obs": OBS, "raw_action": raw_action}).logp.shape == (5,)


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_auto_chooses_an_existing_device(framework):
    policy = build_policy(framework).to("auto")

    assert policy.device in ("cpu", "cuda", "mps", "/gpu:0")
    assert np.isfinite(policy.act(OBS).logp).all()


@pytest.mark.parametrize(
    ("framework", "device", "message"),
    [
        ("torch", "gpu", "'gpu': expected cpu, cuda, cuda:1, …"),
        ("torch", "cuda:99", r"'cuda:99': PyTorch \S+ sees \d devices"),
        ("tf", "mps", "'mps': expected cpu, cuda, cuda:1, … or"),
        ("tf", "/gpu:99", r"'/gpu:99': TensorFlow \S+ sees \d GPUs"),
    ],
)
def test_policy_stays_if_the_device_does_not_exist(framework, device, message):
    policy = build_policy(framework)
    before = policy.act(OBS, explore=False)

    with pytest.raises(ConfigError, match=message):
        policy.to(device)

    assert policy.device == "cpu"
    np.testing.assert_array_equal(policy.act(OBS, explore=False).dist_inputs, before.dist_inputs)


def test_inputs_of_evaluate_move():
    # Tensors on "meta" have a device and a shape, but no values.
    policy = build_policy("torch").to("meta")

    evaluation = policy.evaluate({"obs": OBS, "raw_action": np.zeros((5, 1), np.int64)})

    assert policy.device == "meta"
    assert evaluation.logp.device.type == "meta"


@needs_cuda
def test_policy_computes_the_same_on_a_gpu():
    policy = build_policy("torch")
    on_cpu = policy.act(OBS, explore=False).dist_inputs

    on_gpu = policy.to("cuda").act(OBS, explore=False).dist_inputs

    np.testing.assert_allclose(on_gpu, on_cpu, atol=1e-5)


# --- memories and images --------------------------------------------------------------------------

IMAGE = gym.spaces.Box(0, 255, (10, 10, 3), np.uint8)
LSTM = {"use_lstm": True, "lstm_cell_size": 6, "lstm_use_prev_action": True}
ATTENTION = {"use_attention": True, "attention_dim": 8, "attention_use_n_prev_rewards": 2}
MODELS = [
    pytest.param(THREE_FEATURES, LSTM, id="lstm"),
    pytest.param(THREE_FEATURES, ATTENTION, id="attention"),
    pytest.param(IMAGE, {}, id="image"),
    pytest.param(
        gym.spaces.Dict({"eye": IMAGE, "self": gym.spaces.Discrete(3)}),
        {"use_lstm": True},
        id="image-in-a-dict",
    ),
]
all_models = pytest.mark.parametrize(("space", "config"), MODELS)
# The key fcnet_hiddens of `build_policy` is not read for an image alone.
ignore_unread_keys = pytest.mark.filterwarnings("ignore::rlcatalog.errors.UnreadKeysWarning")


def sample_observations(space):
    space.seed(0)
    return [space.sample() for _ in range(4)]


def take_three_steps(policy, obs, *, device=None):
    """Act on the same observations three times; move the policy to the device after each."""
    state = None
    for t in range(3):
        step = policy.act(obs, state, prev_reward=np.full(len(obs), float(t)), explore=False)
        state = step.state
        if device is not None:
            policy.to(device)
    return step


@pytest.mark.grid
@ignore_unread_keys
@all_models
@cpu_devices
def test_policy_may_move_in_the_middle_of_an_episode(space, config, framework, device):
    obs = sample_observations(space)
    policy = build_policy(framework, space, **config)
    expected = take_three_steps(policy, obs)

    step = take_three_steps(policy, obs, device=device)

    np.testing.assert_allclose(step.dist_inputs, expected.dist_inputs, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(step.value, expected.value, rtol=1e-5, atol=1e-6)


@ignore_unread_keys
@all_models
def test_all_parameters_and_buffers_move(space, config):
    policy = build_policy("torch", space, **config).to("meta")

    tensors = [*policy.model.parameters(), *policy.model.buffers()]
    assert {tensor.device.type for tensor in tensors} == {"meta"}


@pytest.mark.parametrize("config", [LSTM, ATTENTION], ids=["lstm", "attention"])
def test_state_and_views_of_a_batch_move_to_the_device(config):
    policy = build_policy("torch", **config)
    obs = np.zeros((4, 3), np.float32)
    step = policy.act(obs)
    batch = {
        "obs": obs,
        "raw_action": step.raw_action,
        "seq_lens": np.array([3, 1]),  # the rows are a sequence of three steps, and one of one
        "state": policy.initial_state(2),  # of the two sequences
        "views": step.state.views,
    }

    # "meta" is a device of PyTorch without memory; it does not mix with the CPU.
    evaluation = policy.to("meta").evaluate(batch)

    assert evaluation.logp.device.type == "meta"
    assert evaluation.value.device.type == "meta"


@needs_cuda
@ignore_unread_keys
@all_models
def test_memories_and_images_compute_the_same_on_a_gpu(space, config):
    obs = sample_observations(space)
    policy = build_policy("torch", space, **config)
    on_cpu = take_three_steps(policy, obs)

    on_gpu = take_three_steps(policy.to("cuda"), obs)

    np.testing.assert_allclose(on_gpu.dist_inputs, on_cpu.dist_inputs, atol=1e-4)
