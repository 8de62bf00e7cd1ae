"""Where RLlib's code leans on details of the contract: frameworks left out, old names of keys."""

from __future__ import annotations

import warnings

import gymnasium as gym
import numpy as np
import pytest

import rlcatalog
from rlcatalog import ModelCatalog
from rlcatalog.config.flat import FlatConfig

BOX, TWO = gym.spaces.Box(-1, 1, (3,), np.float32), gym.spaces.Discrete(2)
pytestmark = pytest.mark.usefixtures("one_thread", "seeded")


def trunk(framework):
    """A model class of one framework that keeps its config."""
    if framework == "torch":
        from rlcatalog_torch import FullyConnectedNetwork as Base
    else:
        from rlcatalog_tf import FullyConnectedNetwork as Base

    class Trunk(Base):
        def __init__(self, obs_space, action_space, num_outputs, model_config, name):
            super().__init__(obs_space, action_space, num_outputs, model_config, name)
            self.seen_config = model_config

    return Trunk


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_a_registered_class_decides_the_framework_where_none_is_named(default, framework):
    ModelCatalog.register_custom_model("mine", trunk(framework))
    config = {"custom_model": "mine"}
    dist_class, size = ModelCatalog.get_action_dist(TWO, config)
    model = ModelCatalog.get_model_v2(BOX, TWO, size, config)
    assert (model.framework, dist_class.framework_of_class) == (framework, framework)
    assert ModelCatalog.get_action_dist(TWO, {})[0].framework_of_class == "torch"
    assert ModelCatalog.get_model_v2(BOX, TWO, size, {}).framework == "torch"
    other = {"torch": "tf", "tf": "torch"}[framework]
    assert ModelCatalog.get_action_dist(TWO, config, framework=other)[0].framework_of_class == other


def test_a_registered_distribution_decides_it_too(default):
    from rlcatalog_tf import Categorical

    class Mine(Categorical):
        pass

    ModelCatalog.register_custom_action_dist("mine", Mine)
    assert (
        ModelCatalog.get_action_dist(TWO, {"custom_action_dist": "mine"})[0].framework_of_class
        == "tf"
    )


def test_a_model_finds_its_arguments_under_the_name_of_its_time():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        policy = rlcatalog.build(
            BOX, TWO, {"custom_model": trunk("torch"), "custom_options": {"cell_size": 5}}
        )
    config = policy.model.seen_config
    assert config["custom_options"] == config["custom_model_config"] == {"cell_size": 5}
    assert (
        config.get("custom_options")
        == policy.model.model_config.get("custom_options", {})
        == {"cell_size": 5}
    )
    assert config.get("custom_optins", 3) == 3
    with pytest.raises(KeyError, match="custom_optins"):
        config["custom_optins"]
    assert "custom_options" not in list(config)
    assert FlatConfig({}).get("custom_options", {}) == {}
    with pytest.raises(KeyError):
        FlatConfig({})["custom_options"]


def test_a_preprocessor_may_name_the_original_space_in_a_property(catalog, tmp_path):
    """RLlib's own do; models restore the structure by it, and are described, saved and loaded by
    the same.
    """
    from rlcatalog import Preprocessor
    from rlcatalog_policy import load

    image, vector = (
        gym.spaces.Box(0, 255, (10, 10, 3), np.uint8),
        gym.spaces.Box(-1, 1, (3,), np.float32),
    )
    space = gym.spaces.Dict({"image": image, "vector": vector})

    class Flattening(Preprocessor):
        def _init_shape(self, obs_space, options):
            return (303,)

        def transform(self, observation):
            parts = observation["image"], observation["vector"]
            return np.concatenate([part.reshape(-1).astype(np.float32) for part in parts])

        @property
        def observation_space(self):
            found = gym.spaces.Box(-1, 255, self.shape, np.float32)
            found.original_space = self._obs_space
            return found

    catalog.register_preprocessor("flattening", Flattening)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        policy = rlcatalog.build(
            space, TWO, {"custom_preprocessor": "flattening"}, "torch", catalog=catalog
        )
        space.seed(0)
        seen = [space.sample() for _ in range(2)]
        step = policy.act(seen, explore=False)
        policy.save(tmp_path / "policy")
        again = load(tmp_path / "policy", catalog=catalog).act(seen, explore=False)
    assert type(policy.model).__name__ == "ComplexInputNetwork"
    np.testing.assert_array_equal(again.dist_inputs, step.dist_inputs)


PARTS = gym.spaces.Dict(
    {
        "place": gym.spaces.Box(-1, 1, (2,), np.float32),
        "kind": gym.spaces.Discrete(3, start=1),
        "pair": gym.spaces.Tuple([gym.spaces.MultiDiscrete([2, 3]), gym.spaces.MultiBinary(2)]),
    }
)
SCENE = gym.spaces.Tuple([gym.spaces.Box(0, 255, (10, 10, 3), np.uint8), gym.spaces.Discrete(4)])


def tensors(framework, structure):
    """Return a structure of arrays as one of tensors."""
    if isinstance(structure, dict):
        return {name: tensors(framework, part) for name, part in structure.items()}
    if isinstance(structure, tuple):
        return tuple(tensors(framework, part) for part in structure)
    if framework == "torch":
        import torch

        return torch.from_numpy(np.asarray(structure))
    from rlcatalog_tf import tf

    return tf.convert_to_tensor(structure)


@pytest.mark.parametrize("framework", ["torch", "tf"])
@pytest.mark.parametrize(
    ("space", "name"), [(PARTS, "FullyConnectedNetwork"), (SCENE, "ComplexInputNetwork")]
)
def test_a_raw_dict_or_tuple_space_reaches_get_model_v2(default, framework, space, name):
    model = ModelCatalog.get_model_v2(space, TWO, 2, {"fcnet_hiddens": [8]}, framework)
    assert type(model).__name__ == name
    space.seed(3)
    samples = [space.sample() for _ in range(4)]
    batch = gym.vector.utils.concatenate(
        space, samples, gym.vector.utils.create_empty_array(space, 4)
    )
    preprocessor = ModelCatalog.get_preprocessor_for_space(space)
    encoded = np.stack([preprocessor.transform(sample) for sample in samples])
    found, expected = (model({"obs": tensors(framework, obs)})[0] for obs in (batch, encoded))
    found, expected = (
        x.detach().numpy() if framework == "torch" else x.numpy() for x in (found, expected)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_a_custom_class_is_given_a_raw_space_as_it_stands(default, framework):
    base = {"torch": "rlcatalog_torch", "tf": "rlcatalog_tf"}[framework]
    import importlib

    door = importlib.import_module(base)

    class Raw(getattr(door, "TorchModelV2" if framework == "torch" else "TFModelV2")):
        def forward(self, input_dict, state, seq_lens):
            self.seen = input_dict["obs"]
            return self.seen["place"], state

    model = ModelCatalog.get_model_v2(PARTS, TWO, 2, {"custom_model": Raw}, framework)
    assert model.obs_space is PARTS
    obs = tensors(
        framework,
        {"place": np.ones((1, 2), np.float32), "kind": np.ones(1), "pair": (np.ones((1, 2)),) * 2},
    )
    assert np.asarray(model({"obs": obs})[0]).tolist() == [[1, 1]]
    assert list(model.seen) == ["place", "kind", "pair"]
