"""The nets inside: what they are built with, what they see, which are refused."""

from __future__ import annotations

import copy
import io

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium import spaces

import rlcatalog
from rlcatalog.errors import ConfigError, ModelContractError, NotServedError
from rlcatalog.models.views import ViewRequirement
from rlcatalog.spaces import Repeated
from rlcatalog_tf import TFModelV2
from rlcatalog_torch import TorchModelV2

FRAMEWORKS = ["torch", "tf"]
IMAGE, VECTOR = spaces.Box(0, 255, (4, 4, 3), np.uint8), spaces.Box(-5, 5, (3,), np.float32)
SPACE = spaces.Dict({"camera": IMAGE, "frames": Repeated(IMAGE, 2), "speed": VECTOR})
ACTIONS = spaces.Discrete(3)
CONFIG = {"fcnet_hiddens": [5]}


class Witness(TorchModelV2):
    """Remembers what it was built with and what it saw; hands its input on."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.arguments = arguments
        self.num_outputs = int(np.prod(self.obs_space.shape))

    def forward(self, input_dict, state, seq_lens):
        self.seen = dict(input_dict)
        return input_dict["obs_flat"].float(), state


@pytest.fixture
def witnesses(fresh_catalog):
    """Build a policy whose nets are witnesses; return it and them, by path."""

    def witnesses(space=SPACE, **config):
        catalog = fresh_catalog()
        catalog.register_model("witness", Witness)
        config = {**CONFIG, "custom_model": "complex_input", **config}
        resolution = catalog.resolve(space, ACTIONS, config)
        paths = resolution.component("trunk").declaration.pinned_keys(resolution.request)[
            "input_nets"
        ]
        policy = rlcatalog.build(
            space,
            ACTIONS,
            {**config, "input_nets": dict.fromkeys(paths, "witness")},
            "torch",
            catalog=catalog,
        )
        return policy, dict(zip(paths, policy.model.nets, strict=True))

    return witnesses


# --- what they are built with ---------------------------------------------------------------------


def test_a_net_is_a_trunk_with_a_config_of_its_own(witnesses):
    config = {
        "post_fcnet_hiddens": [4],
        "vf_share_layers": False,
        "no_final_linear": True,
        "fcnet_activation": "elu",
    }
    policy, nets = witnesses(**config)
    configs = [net.arguments[3] for net in (*nets.values(), *policy.model.value_nets)]
    for _, action_space, num_outputs, found, name in (net.arguments for net in nets.values()):
        assert (action_space, num_outputs) == (ACTIONS, None)
        assert name.startswith("default_model_net")
        assert set(found) == set(policy.config)
        assert found["fcnet_hiddens"] == [5]
        assert found["fcnet_activation"] == "elu"
        for key in (
            "post_fcnet_hiddens",
            "no_final_linear",
            "free_log_std",
            "custom_model",
            "input_nets",
        ):
            assert found[key] == policy.catalog.schema.defaults()[key], key
    hiddens = [id(found["fcnet_hiddens"]) for found in configs]
    assert len(set(hiddens)) == len(hiddens) == 6


def test_the_space_of_an_image_keeps_its_dtype(witnesses):
    policy, nets = witnesses()
    for path in ("obs['camera']", "obs['frames'][:]"):
        assert nets[path].obs_space == IMAGE  # uint8, although ...
    policy.act([{**SPACE.sample(), "frames": [IMAGE.sample()]} for _ in range(2)])
    for path, rows in (("obs['camera']", 2), ("obs['frames'][:]", 4)):
        seen = nets[path].seen["obs"]
        assert (seen.dtype, tuple(seen.shape)) == (torch.float32, (rows, 4, 4, 3))
        assert seen.max() > 100  # ... float32 numbers from 0 to 255 arrive


def test_a_filtered_image_is_no_image_of_bytes_any_more(witnesses):
    named = ["obs['camera']", "obs['speed']"]
    _, nets = witnesses(observation_filter="MeanStdFilter", filter_include=named)
    camera, frames, speed = (nets[path].obs_space for path in nets)
    assert camera.dtype == np.float32
    assert (camera.low.min(), camera.high.max()) == (-10, 10)
    assert (speed.low.min(), speed.high.max()) == (-10, 10)
    assert frames == IMAGE  # items of lists are not filtered
    _, nets = witnesses(observation_filter="MeanStdFilter")
    assert nets["obs['camera']"].obs_space == IMAGE


def test_a_filter_that_changes_lengths_is_refused(witnesses):
    config = {"observation_filter": "MeanStdFilter", "filter_include": ["obs['frames']"]}
    with pytest.raises(
        ConfigError, match=r"^obs\['frames'\]: a filter changes the lists' lengths.*filter_excl"
    ):
        witnesses(**config)
    witnesses(**config, filter_exclude=["obs['frames'].lengths"])


@pytest.mark.parametrize("index", [False, True])
def test_integers_arrive_as_one_hots(index, witnesses):
    space = spaces.Dict(
        {"gear": spaces.Discrete(3, start=-1), "lamps": spaces.MultiDiscrete([2, 3])}
    )
    policy, nets = witnesses(space, _disable_preprocessor_api=index)
    policy.act([{"gear": 1, "lamps": np.array([0, 2])}])
    gear, lamps = nets.values()
    assert gear.obs_space == spaces.Box(0, 1, (3,), np.float32)
    assert gear.seen["obs"].tolist() == [[0, 0, 1]]
    assert lamps.obs_space == spaces.Box(0, 1, (5,), np.float32)
    assert lamps.seen["obs"].tolist() == [[1, 0, 0, 0, 1]]
    assert lamps.seen["obs"].dtype is torch.float32


@pytest.mark.parametrize("index", [False, True])
@pytest.mark.parametrize(
    "space", [spaces.Discrete(3, start=5), spaces.MultiDiscrete([1, 1])], ids=str
)
def test_a_lone_discrete_observation(index, space, catalog, assert_close):
    config = {**CONFIG, "custom_model": "complex_input", "_disable_preprocessor_api": index}
    one, other = (
        rlcatalog.build(space, ACTIONS, config, framework, catalog=catalog)
        for framework in FRAMEWORKS
    )
    other.model.set_weights(one.model.get_weights())
    observations = [space.sample() for _ in range(4)]
    assert_close([one.act(observations).dist_inputs], [other.act(observations).dist_inputs])
    assert one.model.nets[0].obs_space.shape == (3 if space == spaces.Discrete(3, start=5) else 2,)


def test_a_mask_is_none_of_the_parts(witnesses):
    space = spaces.Dict({"speed": VECTOR, "action_mask": spaces.MultiBinary(3), "camera": IMAGE})
    policy, _ = witnesses(space, custom_model=None)
    assert type(policy.model).__name__ == "ComplexInputNetwork"
    assert list(policy.config["input_nets"]) == ["obs['camera']", "obs['speed']"]
    obs = {
        "speed": VECTOR.sample(),
        "action_mask": np.array([0, 1, 0], np.int8),
        "camera": IMAGE.sample(),
    }
    assert policy.act([obs]).action == [1]


def test_nets_know_whether_they_are_trained(witnesses):
    policy, nets = witnesses()
    encoded = policy.preprocess([SPACE.sample()])
    policy.act_encoded(encoded)
    assert [net.seen["is_training"] for net in nets.values()] == [False] * 3
    policy.evaluate({"obs": encoded, "raw_action": np.zeros((1, 1), np.int64)})
    assert [net.seen["is_training"] for net in nets.values()] == [True] * 3


class Adding(Witness):
    """Adds to the loss, reports, and wants something done after each step."""

    done = 0

    def custom_loss(self, policy_loss, loss_inputs):
        return policy_loss + loss_inputs["weight"]

    def metrics(self):
        return {"done": self.done}

    def update_ops(self):
        def step():
            self.done += 1

        return [step]


@pytest.mark.parametrize("share", [True, False])
def test_losses_metrics_and_update_ops_of_the_nets_count(share, fresh_catalog):
    catalog = fresh_catalog()
    catalog.register_model("adding", Adding)
    names = {"obs['camera']": "adding", "obs['speed']": "adding"}
    policy = rlcatalog.build(
        SPACE,
        ACTIONS,
        {**CONFIG, "input_nets": names, "vf_share_layers": share},
        "torch",
        catalog=catalog,
    )
    assert policy.model.custom_loss(1.0, {"weight": 10.0}) == (21 if share else 41)
    for op in policy.model.update_ops()[:2]:
        op()
    own = {"value: obs['camera']: done": 0, "value: obs['speed']: done": 0}
    expected = {"obs['camera']: done": 1, "obs['speed']: done": 1, **({} if share else own)}
    assert policy.model.metrics() == expected


def test_it_may_stand_inside_itself(catalog, assert_close):
    config = {**CONFIG, "input_nets": {"obs['camera']": "complex_input"}}
    shapes = {
        row["stage"]: row["shape"]
        for row in catalog.explain(SPACE, ACTIONS, config).as_dict()["shapes"]
    }
    assert shapes[
        "complex_input: obs['camera']: complex_input: obs['camera']: fcnet: hidden 1 (tanh)"
    ] == [5]
    one, other = (
        rlcatalog.build(SPACE, ACTIONS, config, framework, catalog=catalog)
        for framework in FRAMEWORKS
    )
    other.model.set_weights(one.model.get_weights())
    observations = [SPACE.sample() for _ in range(3)]
    assert_close([one.act(observations).dist_inputs], [other.act(observations).dist_inputs])


# --- which are refused ----------------------------------------------------------------------------


class Recurrent(Witness):
    def get_initial_state(self):
        return [np.zeros(2, np.float32)]


class LooksBack(Witness):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.view_requirements["prev_rewards"] = ViewRequirement(shift=-1)


class Silent(Witness):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.num_outputs = None


@pytest.mark.parametrize(
    ("cls", "kind", "said"),
    [
        (
            Recurrent,
            NotServedError,
            r"^obs\['speed'\]: Recurrent has a state, but the net for a part sees",
        ),
        (
            LooksBack,
            NotServedError,
            r"^obs\['speed'\]: LooksBack requests the views \['prev_rewards'\], but the net for",
        ),
        (Silent, ModelContractError, r"^Silent was built as a trunk for .*, but did not set self"),
        (
            torch.nn.Identity,
            ModelContractError,
            "must be a subclass of rlcatalog_torch.TorchModelV2",
        ),
    ],
)
def test_a_net_that_cannot_be_used_is_refused(cls, kind, said, fresh_catalog):
    catalog = fresh_catalog()
    catalog.register_model("net", Witness)
    catalog.registry.get("model", "net").objects["torch"] = cls
    with pytest.raises(kind, match=said):
        rlcatalog.build(
            SPACE,
            ACTIONS,
            {**CONFIG, "input_nets": {"obs['speed']": "net"}},
            "torch",
            catalog=catalog,
        )


# --- TensorFlow, copies ---------------------------------------------------------------------------


class Lazy(TFModelV2):
    """A Keras layer that makes its variables at its first call."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.num_outputs = 6
        self.layer = tf.keras.layers.Dense(6)

    def forward(self, input_dict, state, seq_lens):
        return self.layer(input_dict["obs"]), state


def test_keras_layers_inside_have_their_variables_from_the_start(fresh_catalog):
    catalog = fresh_catalog()
    catalog.register_model("lazy", Lazy)
    config = {**CONFIG, "input_nets": {"obs['speed']": "lazy"}, "vf_share_layers": False}
    policy = rlcatalog.build(SPACE, ACTIONS, config, "tf", catalog=catalog)
    names = list(policy.model.get_weights())
    assert {"nets.2.layer.weight", "value_nets.2.layer.bias"} <= set(names)
    policy.act([SPACE.sample()])
    assert list(policy.model.get_weights()) == names


@pytest.mark.parametrize(
    "config", [{}, {"_disable_preprocessor_api": True, "vf_share_layers": False}], ids=str
)
def test_a_copy_after_a_training_pass(config, rich, build, run, assert_close):
    model, preprocessor = build(rich.space, {**CONFIG, **config}, "torch")
    encoded = preprocessor.transform_batch(rich.case.samples(4, seed=1))
    before = run(model, encoded)  # features on a graph are held now
    twin = copy.deepcopy(model)
    assert_close(run(twin, encoded), before, 0)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.add_(1)
    assert_close(run(model, encoded), before, 0)
    assert not np.allclose(run(twin, encoded)[0], before[0])
    # Its weights are its parameters: the tables of one-hots are no part of them.
    assert list(model.state_dict()) == [name for name, _ in model.named_parameters()]


def test_a_copy_in_tensorflow(rich, build, run, assert_close):
    model, preprocessor = build(rich.space, CONFIG, "tf")
    encoded = preprocessor.transform_batch(rich.case.samples(4, seed=1))
    before = run(model, encoded)
    twin = copy.deepcopy(model)
    twin.set_weights({name: array + 1 for name, array in twin.get_weights().items()})
    assert_close(run(model, encoded), before, 0)
    assert not np.allclose(run(twin, encoded)[0], before[0])


def test_a_pickled_model(rich, build, run, assert_close):
    model, preprocessor = build(rich.space, CONFIG, "torch")
    encoded = preprocessor.transform_batch(rich.case.samples(4, seed=1))
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    assert_close(run(torch.load(buffer, weights_only=False), encoded), run(model, encoded), 0)


# --- with the vision net --------------------------------------------------------------------------


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_an_image_goes_through_the_vision_net(framework, run, randomize):
    """The features of the image are those of a vision net of its own on the bytes themselves."""
    catalog = rlcatalog.default_catalog()
    image = spaces.Box(0, 255, (16, 12, 3), np.uint8)
    space = spaces.Dict({"camera": image, "speed": VECTOR})
    assert catalog.explain(space, ACTIONS).as_dict()["model"]["chosen"] == "complex_input"
    settings = {"fcnet_hiddens": [5], "conv_filters": [[4, 4, 4], [6, [4, 3], 1]]}
    encoder = catalog.preprocessor_for(space, catalog.parse_config(settings))
    model = randomize(
        catalog.model_v2(encoder.observation_space, ACTIONS, None, settings, framework)
    )
    assert [type(net).__name__ for net in model.nets] == ["VisionNetwork", "FullyConnectedNetwork"]
    alone = catalog.model_v2(image, ACTIONS, None, settings, framework)
    weights = model.get_weights()
    alone.set_weights(
        {name[7:]: array for name, array in weights.items() if name.startswith("nets.0.")}
    )
    observations = [space.sample() for _ in range(3)]
    found, _ = run(model, encoder.transform_batch(observations))
    expected, _ = run(alone, np.stack([obs["camera"] for obs in observations]))
    assert expected.shape == (3, 6)
    np.testing.assert_allclose(found[:, :6], expected, rtol=1e-5, atol=1e-5)
    assert np.ptp(found[:, :6]) > 0.1


def test_a_vision_net_that_does_not_fit_is_refused_with_the_part(run):
    space = spaces.Dict(
        {"camera": spaces.Box(0, 255, (16, 16, 3), np.uint8), "map": spaces.Box(0, 1, (8, 8, 1))}
    )
    config = {"conv_filters": [[4, 4, 4], [6, 4, 1]]}
    with pytest.raises(ConfigError, match=r"obs\['map'\]"):
        rlcatalog.default_catalog().resolve(space, ACTIONS, config)
    rlcatalog.default_catalog().resolve(
        space, ACTIONS, {**config, "input_nets": {"obs['map']": "fcnet"}}
    )
