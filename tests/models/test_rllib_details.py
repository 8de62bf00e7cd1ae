"""Details that RLlib's code relies on: no framework named, old names of keys, raw spaces."""

from __future__ import annotations

import warnings

import gymnasium as gym
import numpy as np
import pytest
from builders import to_array, to_tensor

import rlcatalog
from rlcatalog import ModelCatalog, Preprocessor
from rlcatalog.config.flat import FlatConfig
from rlcatalog_policy import load

THREE_FEATURES = gym.spaces.Box(-1, 1, (3,), np.float32)
TWO_ACTIONS = gym.spaces.Discrete(2)
# With `default`, each test registers classes in a default catalog that no other test uses.
pytestmark = pytest.mark.usefixtures("one_thread", "seeded", "default")
in_both_frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])


def define_model(framework):
    """Return a model class that keeps the config that its constructor receives."""
    if framework == "torch":
        from rlcatalog_torch import FullyConnectedNetwork as Base
    else:
        from rlcatalog_tf import FullyConnectedNetwork as Base

    class KeepsConfig(Base):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            super().__init__(obs_space, action_space, num_outputs, model_config, name)
            self.config = model_config

    return KeepsConfig


# --- the framework, where none is named -----------------------------------------------------------


@in_both_frameworks
def test_registered_model_decides_the_framework(framework):
    ModelCatalog.register_custom_model("mine", define_model(framework))
    config = {"custom_model": "mine"}

    dist_class, size = ModelCatalog.get_action_dist(TWO_ACTIONS, config)
    model = ModelCatalog.get_model_v2(THREE_FEATURES, TWO_ACTIONS, size, config)

    assert dist_class.framework_of_class == framework
    assert model.framework == framework


def test_framework_is_torch_by_default():
    dist_class, size = ModelCatalog.get_action_dist(TWO_ACTIONS, {})
    model = ModelCatalog.get_model_v2(THREE_FEATURES, TWO_ACTIONS, size, {})

    assert dist_class.framework_of_class == "torch"
    assert model.framework == "torch"


@pytest.mark.parametrize(("framework", "other"), [("torch", "tf"), ("tf", "torch")])
def test_framework_of_a_distribution_may_differ_from_the_model(framework, other):
    ModelCatalog.register_custom_model("mine", define_model(framework))
    config = {"custom_model": "mine"}

    dist_class, _ = ModelCatalog.get_action_dist(TWO_ACTIONS, config, framework=other)

    assert dist_class.framework_of_class == other


def test_registered_distribution_decides_the_framework():
    from rlcatalog_tf import Categorical

    class CustomCategorical(Categorical):
        pass

    ModelCatalog.register_custom_action_dist("mine", CustomCategorical)
    config = {"custom_action_dist": "mine"}

    dist_class, _ = ModelCatalog.get_action_dist(TWO_ACTIONS, config)

    assert dist_class.framework_of_class == "tf"


# --- `custom_options`, the old name of `custom_model_config` --------------------------------------


@pytest.fixture
def model_with_custom_options():
    config = {"custom_model": define_model("torch"), "custom_options": {"cell_size": 5}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the old key is deprecated
        return rlcatalog.build(THREE_FEATURES, TWO_ACTIONS, config).model


def test_custom_options_are_an_alias_of_custom_model_config(model_with_custom_options):
    config = model_with_custom_options.config
    assert config["custom_model_config"] == {"cell_size": 5}
    assert config["custom_options"] == {"cell_size": 5}
    assert config.get("custom_options") == {"cell_size": 5}
    assert model_with_custom_options.model_config.get("custom_options", {}) == {"cell_size": 5}


def test_custom_options_are_not_listed(model_with_custom_options):
    assert "custom_options" not in list(model_with_custom_options.config)


def test_misspelt_alias_is_a_key_error(model_with_custom_options):
    config = model_with_custom_options.config
    assert config.get("custom_optins", 3) == 3
    with pytest.raises(KeyError, match="custom_optins"):
        config["custom_optins"]


def test_custom_options_of_an_empty_config_are_missing():
    assert FlatConfig({}).get("custom_options", {}) == {}
    with pytest.raises(KeyError):
        FlatConfig({})["custom_options"]


# --- spaces ---------------------------------------------------------------------------------------


IMAGE_AND_VECTOR = gym.spaces.Dict(
    {
        "image": gym.spaces.Box(0, 255, (10, 10, 3), np.uint8),
        "vector": gym.spaces.Box(-1, 1, (3,), np.float32),
    }
)


class Flattening(Preprocessor):
    """A preprocessor that has its space in a property, as RLlib's have."""

    def _init_shape(self, obs_space, options):
        return (303,)  # 10 * 10 * 3 + 3

    def transform(self, observation):
        parts = [observation["image"], observation["vector"]]
        return np.concatenate([part.reshape(-1).astype(np.float32) for part in parts])

    @property
    def observation_space(self):
        space = gym.spaces.Box(-1, 255, self.shape, np.float32)
        space.original_space = self._obs_space
        return space


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_preprocessor_may_set_original_space_in_a_property(catalog, tmp_path):
    catalog.register_preprocessor("flattening", Flattening)
    config = {"custom_preprocessor": "flattening"}
    obs = [IMAGE_AND_VECTOR.sample(), IMAGE_AND_VECTOR.sample()]

    policy = rlcatalog.build(IMAGE_AND_VECTOR, TWO_ACTIONS, config, "torch", catalog=catalog)
    policy.save(tmp_path)
    loaded = load(tmp_path, catalog=catalog)

    # This model reads the image and the vector again from the flat array of the preprocessor.
    assert type(policy.model).__name__ == "ComplexInputNetwork"
    logits = policy.act(obs).dist_inputs
    np.testing.assert_array_equal(loaded.act(obs).dist_inputs, logits)


PLACE_AND_KIND = gym.spaces.Dict(
    {
        "place": gym.spaces.Box(-1, 1, (2,), np.float32),
        "kind": gym.spaces.Tuple([gym.spaces.Discrete(3, start=1), gym.spaces.MultiBinary(2)]),
    }
)
IMAGE_AND_CHOICE = gym.spaces.Tuple(
    [gym.spaces.Box(0, 255, (10, 10, 3), np.uint8), gym.spaces.Discrete(4)]
)


def to_tensors(framework, structure):
    """Convert the arrays of a nested observation to tensors."""
    if isinstance(structure, dict):
        return {name: to_tensors(framework, part) for name, part in structure.items()}
    if isinstance(structure, tuple):
        return tuple(to_tensors(framework, part) for part in structure)
    return to_tensor(framework, np.asarray(structure))


@in_both_frameworks
@pytest.mark.parametrize(
    ("space", "model_name"),
    [(PLACE_AND_KIND, "FullyConnectedNetwork"), (IMAGE_AND_CHOICE, "ComplexInputNetwork")],
    ids=["Dict", "Tuple with an image"],
)
def test_get_model_v2_accepts_raw_dict_and_tuple_spaces(framework, space, model_name):
    samples = [space.sample() for _ in range(4)]
    # A vector environment stacks its observations like this.
    batch_of_samples = gym.vector.utils.concatenate(
        space, samples, out=gym.vector.utils.create_empty_array(space, n=4)
    )
    preprocessor = ModelCatalog.get_preprocessor_for_space(space)
    encoded = np.stack([preprocessor.transform(sample) for sample in samples])

    model = ModelCatalog.get_model_v2(space, TWO_ACTIONS, 2, {"fcnet_hiddens": [8]}, framework)
    outputs, _ = model({"obs": to_tensors(framework, batch_of_samples)})

    assert type(model).__name__ == model_name
    outputs_of_encoded, _ = model({"obs": to_tensors(framework, encoded)})
    np.testing.assert_allclose(
        to_array(outputs), to_array(outputs_of_encoded), rtol=1e-4, atol=1e-5
    )


@in_both_frameworks
def test_custom_model_receives_a_raw_space_unchanged(framework):
    if framework == "torch":
        from rlcatalog_torch import TorchModelV2 as Base
    else:
        from rlcatalog_tf import TFModelV2 as Base

    class KeepsObservation(Base):
        def forward(self, input_dict, state, seq_lens):
            self.obs = input_dict["obs"]
            return self.obs["place"], state

    space = gym.spaces.Dict(
        place=gym.spaces.Box(-1, 1, (2,), np.float32), kind=gym.spaces.Discrete(3)
    )
    obs = {"place": np.array([[0.5, 1]], np.float32), "kind": np.array([2])}

    config = {"custom_model": KeepsObservation}
    model = ModelCatalog.get_model_v2(space, TWO_ACTIONS, 2, config, framework)
    outputs, _ = model({"obs": to_tensors(framework, obs)})

    assert model.obs_space is space
    assert np.asarray(outputs).tolist() == [[0.5, 1]]
    assert np.asarray(model.obs["kind"]).tolist() == [2]
