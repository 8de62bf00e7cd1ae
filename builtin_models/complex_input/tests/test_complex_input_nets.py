"""The nets inside the complex-input network: their configs, inputs, losses, errors and copies."""

from __future__ import annotations

import copy
import functools
import pickle

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces
from model_runs import add_to_weights, assert_close, run_model

import rlcatalog
from rlcatalog.errors import ConfigError, ModelContractError, NotServedError, SavedPolicyError
from rlcatalog.models import weights_of
from rlcatalog.models.views import ViewRequirement
from rlcatalog.spaces import Repeated
from rlcatalog_tf import TFModelV2
from rlcatalog_torch import TorchModelV2

IMAGE = spaces.Box(0, 255, (4, 4, 3), np.uint8)
THREE_FEATURES = spaces.Box(-5, 5, (3,), np.float32)
#: Three parts: an image, a list of up to two images, and a vector.
SPACE = spaces.Dict({"camera": IMAGE, "frames": Repeated(IMAGE, 2), "speed": THREE_FEATURES})
THREE_ACTIONS = spaces.Discrete(3)


class RecordingNet(TorchModelV2):
    """Keeps what it was built with and its last inputs, and returns its observation."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.arguments = arguments
        self.num_outputs = int(np.prod(self.obs_space.shape))

    def forward(self, input_dict, state, seq_lens):
        self.inputs = dict(input_dict)
        return input_dict["obs_flat"].float(), state


@pytest.fixture
def build_recording_policy(make_catalog):
    """Build a policy with a `RecordingNet` for each part; return it and the nets by path."""

    def build(space=SPACE, **config):
        catalog = make_catalog()
        catalog.register_model("recording", RecordingNet)
        config = {"fcnet_hiddens": [5], "custom_model": "complex_input", **config}
        resolution = catalog.resolve(space, THREE_ACTIONS, config)
        declaration = resolution.part("trunk").declaration
        paths = declaration.pinned_keys(resolution.request)["input_nets"]
        config["input_nets"] = dict.fromkeys(paths, "recording")
        policy = rlcatalog.build(space, THREE_ACTIONS, config, "torch", catalog=catalog)
        return policy, dict(zip(paths, policy.model.nets, strict=True))

    return build


# --- arguments of a net ---------------------------------------------------------------------------


def test_net_is_built_as_a_trunk(build_recording_policy):
    _, nets = build_recording_policy()

    for net in nets.values():
        _, action_space, num_outputs, _, name = net.arguments
        assert action_space == THREE_ACTIONS
        assert num_outputs is None
        assert name.startswith("default_model_net")


def test_net_has_hidden_layers_of_the_config(build_recording_policy):
    policy, nets = build_recording_policy(fcnet_hiddens=[5], fcnet_activation="elu")

    for net in nets.values():
        _, _, _, config, _ = net.arguments
        assert set(config) == set(policy.config)
        assert config["fcnet_hiddens"] == [5]
        assert config["fcnet_activation"] == "elu"


def test_net_has_defaults_for_keys_of_outputs(build_recording_policy):
    policy, nets = build_recording_policy(post_fcnet_hiddens=[4], no_final_linear=True)

    defaults = policy.catalog.schema.defaults()
    for net in nets.values():
        _, _, _, config, _ = net.arguments
        for key in ("post_fcnet_hiddens", "no_final_linear", "custom_model", "input_nets"):
            assert config[key] == defaults[key]
            assert policy.config[key] != defaults[key]


def test_nets_share_no_lists_of_their_configs(build_recording_policy):
    policy, _ = build_recording_policy(vf_share_layers=False)

    all_nets = [*policy.model.nets, *policy.model.value_nets]
    lists = [net.arguments[3]["fcnet_hiddens"] for net in all_nets]

    assert len(lists) == 6  # three parts, for policy and value
    assert len({id(widths) for widths in lists}) == 6


# --- observations of a net ------------------------------------------------------------------------


def test_space_of_an_image_keeps_its_dtype(build_recording_policy):
    _, nets = build_recording_policy()

    assert nets["obs['camera']"].obs_space == IMAGE
    assert nets["obs['frames'][:]"].obs_space == IMAGE


@pytest.mark.parametrize(
    ("path", "rows"),
    [
        pytest.param("obs['camera']", 1, id="image"),
        pytest.param("obs['frames'][:]", 2, id="items-of-a-list"),  # 2 places
    ],
)
def test_image_arrives_as_unscaled_floats(path, rows, build_recording_policy):
    policy, nets = build_recording_policy()
    white = np.full((4, 4, 3), 255, np.uint8)

    policy.act([{"camera": white, "frames": [white], "speed": np.zeros(3, np.float32)}])

    received = nets[path].inputs["obs"]
    assert received.dtype == torch.float32
    assert tuple(received.shape) == (rows, 4, 4, 3)
    assert received.max() == 255


def test_filtered_parts_have_the_bounds_of_the_filter(build_recording_policy):
    _, nets = build_recording_policy(
        observation_filter="MeanStdFilter", filter_include=["obs['camera']", "obs['speed']"]
    )

    # The filter clips at 10 standard deviations.
    assert nets["obs['camera']"].obs_space == spaces.Box(-10, 10, (4, 4, 3), np.float32)
    assert nets["obs['speed']"].obs_space == spaces.Box(-10, 10, (3,), np.float32)
    assert nets["obs['frames'][:]"].obs_space == IMAGE  # items of lists are not filtered


def test_filter_does_not_include_images_by_default(build_recording_policy):
    _, nets = build_recording_policy(observation_filter="MeanStdFilter")

    assert nets["obs['camera']"].obs_space == IMAGE


def test_filter_of_the_lengths_of_lists_is_an_error(build_recording_policy):
    with pytest.raises(ConfigError, match="a filter changes the lists' lengths") as caught:
        build_recording_policy(observation_filter="MeanStdFilter", filter_include=["obs['frames']"])

    assert str(caught.value).startswith("obs['frames']: ")
    assert "filter_excl" in str(caught.value)


def test_filter_of_a_list_may_exclude_its_lengths(build_recording_policy):
    build_recording_policy(
        observation_filter="MeanStdFilter",
        filter_include=["obs['frames']"],
        filter_exclude=["obs['frames'].lengths"],
    )


@pytest.mark.parametrize(
    "integers", [False, True], ids=["one-hot-encoding", "_disable_preprocessor_api"]
)
def test_discrete_parts_arrive_as_one_hots(integers, build_recording_policy):
    space = spaces.Dict(
        {"gear": spaces.Discrete(3, start=-1), "lamps": spaces.MultiDiscrete([2, 3])}
    )
    policy, nets = build_recording_policy(space, _disable_preprocessor_api=integers)

    policy.act([{"gear": 1, "lamps": np.array([0, 2])}])

    gear = nets["obs['gear']"]
    lamps = nets["obs['lamps']"]
    assert gear.obs_space == spaces.Box(0, 1, (3,), np.float32)
    assert gear.inputs["obs"].tolist() == [[0, 0, 1]]  # of -1, 0, 1
    assert lamps.obs_space == spaces.Box(0, 1, (5,), np.float32)
    assert lamps.inputs["obs"].tolist() == [[1, 0, 0, 0, 1]]  # 0 of 2, and 2 of 3
    assert lamps.inputs["obs"].dtype is torch.float32


def test_discrete_observation_arrives_as_a_one_hot(build_recording_policy):
    policy, nets = build_recording_policy(spaces.Discrete(3, start=5))

    policy.act([6])

    assert nets["obs"].inputs["obs"].tolist() == [[0, 1, 0]]  # of 5, 6, 7


def test_discrete_observation_may_stay_an_integer(framework, catalog):
    config = {
        "fcnet_hiddens": [5],
        "custom_model": "complex_input",
        "_disable_preprocessor_api": True,
    }

    policy = rlcatalog.build(
        spaces.Discrete(3, start=5), THREE_ACTIONS, config, framework, catalog=catalog
    )

    # The net reads one-hots all the same.
    assert policy.model.nets[0].obs_space == spaces.Box(0, 1, (3,), np.float32)
    assert policy.act([6]).dist_inputs.shape == (1, 3)  # 1 observation, 3 actions


def test_action_mask_has_no_net(build_recording_policy):
    space = spaces.Dict(
        {"speed": THREE_FEATURES, "action_mask": spaces.MultiBinary(3), "camera": IMAGE}
    )
    policy, _ = build_recording_policy(space, custom_model=None)

    step = policy.act([{**space.sample(), "action_mask": np.int8([0, 1, 0])}])

    assert list(policy.config["input_nets"]) == ["obs['camera']", "obs['speed']"]
    assert step.action == [1]  # the only one that the mask allows


def test_nets_receive_is_training(build_recording_policy):
    policy, nets = build_recording_policy()
    encoded = policy.preprocess([SPACE.sample()])

    policy.act_encoded(encoded)
    while_acting = [net.inputs["is_training"] for net in nets.values()]
    policy.evaluate({"obs": encoded, "raw_action": np.zeros((1, 1), np.int64)})
    while_training = [net.inputs["is_training"] for net in nets.values()]

    assert while_acting == [False, False, False]  # three nets
    assert while_training == [True, True, True]


# --- losses, metrics and update ops ---------------------------------------------------------------


class NetWithLoss(RecordingNet):
    """Adds to the loss, and counts calls of its update op in its metrics."""

    updates = 0

    def custom_loss(self, policy_loss, loss_inputs):
        return policy_loss + loss_inputs["weight"]

    def metrics(self):
        return {"updates": self.updates}

    def update_ops(self):
        def update():
            self.updates += 1

        return [update]


@pytest.fixture
def build_model_with_losses(make_catalog):
    """Build a model in which two of three parts have a `NetWithLoss`."""

    def build(share):
        catalog = make_catalog()
        catalog.register_model("with_loss", NetWithLoss)
        config = {
            "fcnet_hiddens": [5],
            "input_nets": {"obs['camera']": "with_loss", "obs['speed']": "with_loss"},
            "vf_share_layers": share,
        }
        return rlcatalog.build(SPACE, THREE_ACTIONS, config, "torch", catalog=catalog).model

    return build


@pytest.mark.parametrize(
    ("share", "nets"),
    [
        pytest.param(True, 2, id="shared-value"),
        pytest.param(False, 4, id="separate-value"),  # two for the policy, two for the value
    ],
)
def test_custom_losses_of_all_nets_are_added(share, nets, build_model_with_losses):
    model = build_model_with_losses(share)

    loss = model.custom_loss(1.0, {"weight": 10.0})

    assert loss == 1 + 10 * nets


def test_metrics_name_the_part_of_each_net(build_model_with_losses):
    model = build_model_with_losses(share=True)

    for update in model.update_ops():
        update()

    assert model.metrics() == {"obs['camera']: updates": 1, "obs['speed']: updates": 1}


def test_metrics_name_the_nets_of_a_separate_value(build_model_with_losses):
    model = build_model_with_losses(share=False)

    # Two ops of the policy's nets stand before two of the value's nets.
    first, second, _, _ = model.update_ops()
    first()
    second()

    assert model.metrics() == {
        "obs['camera']: updates": 1,
        "obs['speed']: updates": 1,
        "value: obs['camera']: updates": 0,
        "value: obs['speed']: updates": 0,
    }


# --- nets of several kinds ------------------------------------------------------------------------


def test_complex_input_may_be_its_own_net(framework, catalog):
    config = {"fcnet_hiddens": [5], "input_nets": {"obs['camera']": "complex_input"}}

    policy = rlcatalog.build(SPACE, THREE_ACTIONS, config, framework, catalog=catalog)

    step = policy.act([SPACE.sample()])
    assert type(policy.model.nets[0]) is type(policy.model)
    assert np.isfinite(step.dist_inputs).all()


def test_explanation_shows_complex_input_inside_itself(catalog):
    config = {"fcnet_hiddens": [5], "input_nets": {"obs['camera']": "complex_input"}}

    explanation = catalog.explain(SPACE, THREE_ACTIONS, config).as_dict()

    shapes = {row["stage"]: row["shape"] for row in explanation["shapes"]}
    inner = "complex_input: obs['camera']: complex_input: obs['camera']: fcnet: hidden 1 (tanh)"
    assert shapes[inner] == [5]


def test_image_and_vector_have_vision_net_and_fcnet():
    space = spaces.Dict(
        {"camera": spaces.Box(0, 255, (16, 12, 3), np.uint8), "speed": THREE_FEATURES}
    )
    config = {"fcnet_hiddens": [5], "conv_filters": [[4, 4, 4], [6, [4, 3], 1]]}

    policy = rlcatalog.build(space, THREE_ACTIONS, config, "torch")

    nets = [type(net).__name__ for net in policy.model.nets]
    assert policy.explain().as_dict()["model"]["chosen"] == "complex_input"
    assert nets == ["VisionNetwork", "FullyConnectedNetwork"]


#: The filters fit the camera, not the smaller map.
TWO_IMAGES = spaces.Dict(
    {"camera": spaces.Box(0, 255, (16, 16, 3), np.uint8), "map": spaces.Box(0, 1, (8, 8, 1))}
)
FILTERS_FOR_16X16 = {"conv_filters": [[4, 4, 4], [6, 4, 1]]}


def test_conv_filters_that_do_not_fit_name_the_part():
    with pytest.raises(ConfigError, match=r"obs\['map'\]"):
        rlcatalog.default_catalog().resolve(TWO_IMAGES, THREE_ACTIONS, FILTERS_FOR_16X16)


def test_conv_filters_may_skip_a_part_with_another_net():
    config = {**FILTERS_FOR_16X16, "input_nets": {"obs['map']": "fcnet"}}

    rlcatalog.default_catalog().resolve(TWO_IMAGES, THREE_ACTIONS, config)


# --- errors ---------------------------------------------------------------------------------------


class NetWithState(RecordingNet):
    def get_initial_state(self):
        return [np.zeros(2, np.float32)]


class NetWithPastRewards(RecordingNet):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.view_requirements["prev_rewards"] = ViewRequirement(shift=-1)


class NetWithoutNumOutputs(RecordingNet):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.num_outputs = None


@pytest.mark.parametrize(
    ("cls", "error", "message"),
    [
        (NetWithState, NotServedError, "NetWithState has a state, but the net"),
        (NetWithPastRewards, NotServedError, "NetWithPastRewards requests the views"),
        (NetWithoutNumOutputs, ModelContractError, "did not set self"),
        (torch.nn.Identity, ModelContractError, "must be a subclass of"),
    ],
)
def test_unsuitable_net_is_an_error(cls, error, message, make_catalog):
    catalog = make_catalog()
    catalog.register_model("net", RecordingNet)
    # `register_model` itself would reject some of these classes.
    catalog.registry.get("model", "net").objects["torch"] = cls
    config = {"input_nets": {"obs['speed']": "net"}}

    with pytest.raises(error, match=message):
        rlcatalog.build(SPACE, THREE_ACTIONS, config, "torch", catalog=catalog)


# --- nets as code ---------------------------------------------------------------------------------


class SpeedNet(torch.nn.Module):
    """A plain module for the speed."""

    def __init__(self, space):
        super().__init__()
        self.layer = torch.nn.Linear(space.shape[0], 6)

    def forward(self, x):
        return self.layer(x)


def make_speed_net(space):
    return SpeedNet(space)


def make_keras_net():
    return tf.keras.Sequential([tf.keras.layers.Dense(6)])


nets_as_code = pytest.mark.parametrize(
    ("net", "net_framework"),
    [
        pytest.param(SpeedNet, "torch", id="class"),
        pytest.param(make_speed_net, "torch", id="function"),
        pytest.param(functools.partial(SpeedNet), "torch", id="partial"),
        pytest.param(RecordingNet, "torch", id="class in RLlib's form"),
        pytest.param(make_keras_net, "tf", id="Keras"),
    ],
)


def build_with_speed_net(net, net_framework, **config):
    config = {"input_nets": {"speed": net}, **config}
    return rlcatalog.build(SPACE, THREE_ACTIONS, config, net_framework)


@nets_as_code
class TestNetAsCode:
    def test_net_of_the_part_is_the_code(self, net, net_framework):
        policy = build_with_speed_net(net, net_framework)
        camera, frames, speed = policy.model.nets
        assert type(camera).__name__ == "VisionNetwork"
        assert type(frames).__name__ == "VisionNetwork"
        assert speed.num_outputs == (3 if net is RecordingNet else 6)
        policy.act([SPACE.sample()])

    def test_value_has_a_net_with_its_own_weights(self, net, net_framework):
        if net is RecordingNet:
            pytest.skip("it has no weights")
        policy = build_with_speed_net(net, net_framework, vf_share_layers=False)
        own = weights_of(policy.model.nets[2])
        of_value = weights_of(policy.model.value_nets[2])
        assert own
        assert own.keys() == of_value.keys()
        assert any(not np.array_equal(own[name], of_value[name]) for name in own)

    def test_saved_policy_needs_the_code_again(self, net, net_framework, tmp_path):
        policy = build_with_speed_net(net, net_framework)
        policy.save(tmp_path)
        with pytest.raises(ConfigError, match="contained code when") as caught:
            rlcatalog.load(tmp_path)
        assert "input_nets: \"obs['speed']\"" in str(caught.value)

        loaded = rlcatalog.load(tmp_path, model={"obs['speed']": net})

        observations = [SPACE.sample() for _ in range(3)]
        expected = policy.act(observations, explore=False).dist_inputs
        actual = loaded.act(observations, explore=False).dist_inputs
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)

    def test_copy_has_equal_weights(self, net, net_framework):
        policy = build_with_speed_net(net, net_framework)
        twin = copy.deepcopy(policy)
        for name, array in policy.model.get_weights().items():
            np.testing.assert_array_equal(twin.model.get_weights()[name], array)


def test_explanation_names_the_class_of_a_net():
    policy = build_with_speed_net(SpeedNet, "torch")
    stages = [row["stage"] for row in policy.explain().as_dict()["shapes"]]
    assert "complex_input: obs['speed']: SpeedNet: output" in stages


def test_policy_with_code_in_the_config_cannot_be_pickled():
    policy = build_with_speed_net(SpeedNet, "torch")
    with pytest.raises(SavedPolicyError, match="is in the config itself"):
        pickle.dumps(policy)


# --- weights and copies ---------------------------------------------------------------------------


class LazyKerasNet(TFModelV2):
    """A Keras layer that creates its variables at its first call."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.num_outputs = 6
        self.layer = tf.keras.layers.Dense(6)

    def forward(self, input_dict, state, seq_lens):
        return self.layer(input_dict["obs"]), state


def test_lazy_keras_layers_have_weights_before_the_first_call(make_catalog):
    catalog = make_catalog()
    catalog.register_model("lazy", LazyKerasNet)
    config = {
        "fcnet_hiddens": [5],
        "input_nets": {"obs['speed']": "lazy"},
        "vf_share_layers": False,
    }

    policy = rlcatalog.build(SPACE, THREE_ACTIONS, config, "tf", catalog=catalog)

    names = list(policy.model.get_weights())
    assert "nets.2.layer.weight" in names  # speed is the third part
    assert "value_nets.2.layer.bias" in names
    policy.act([SPACE.sample()])
    assert list(policy.model.get_weights()) == names


@pytest.fixture
def model_with_tables(build_model, rich_case):
    """A model that has tables of one-hots, because it reads integers; and encoded observations."""
    config = {"fcnet_hiddens": [5], "_disable_preprocessor_api": True, "vf_share_layers": False}
    model, preprocessor = build_model(rich_case.space, config, "torch")
    return model, preprocessor.transform_batch(rich_case.samples(4, seed=1))


def test_deepcopy_after_a_pass_has_its_own_weights(model_with_tables):
    model, encoded = model_with_tables
    before = run_model(model, encoded)  # the model now keeps features with a graph

    copied = copy.deepcopy(model)
    assert_close(run_model(copied, encoded).outputs, before.outputs)
    add_to_weights(copied, 1)

    assert_close(run_model(model, encoded).outputs, before.outputs)
    assert not np.allclose(run_model(copied, encoded).outputs, before.outputs)


def test_state_dict_has_parameters_but_not_one_hot_tables(model_with_tables):
    model, _ = model_with_tables

    assert list(model.state_dict()) == [name for name, _ in model.named_parameters()]
