"""Action masks inside nested Dicts: `action_mask_key` is the path to one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Tuple

import rlcatalog
from rlcatalog.errors import ConfigError, ObservationError, UnusedMaskWarning
from rlcatalog.spaces import SpaceInfo
from rlcatalog_policy import read_manifest
from rlcatalog_policy.manifest import encode
from rlcatalog_torch import TorchModelV2

pytestmark = pytest.mark.twins

FOUR_ACTIONS = Discrete(4)
THREE_FEATURES = Box(-1, 1, (3,), np.float32)
PAIR = Box(-1, 1, (2,), np.float32)
NESTED = Dict({"p": Dict({"action_mask": MultiBinary(4), "x": THREE_FEATURES}), "q": PAIR})
#: The same with the mask at the top, where it is found without a path.
FLAT = Dict({"action_mask": MultiBinary(4), "p": Dict({"x": THREE_FEATURES}), "q": PAIR})
SMALL = {"fcnet_hiddens": [8]}
NESTED_CONFIG = {**SMALL, "action_mask_key": "p.action_mask"}

in_both_frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])


class Rows:
    """Random observations with masks, for both spaces.

    Attributes:
        mask: Booleans `[rows, 4]`; each row allows an action.
        nested: A batch of `NESTED`.
        flat: The same batch of `FLAT`.
    """

    def __init__(self, count):
        rng = np.random.default_rng(0)
        self.mask = rng.random((count, 4)) < 0.4
        self.mask[np.arange(count), rng.integers(4, size=count)] = True
        x = rng.uniform(-1, 1, (count, 3)).astype(np.float32)
        q = rng.uniform(-1, 1, (count, 2)).astype(np.float32)
        self.nested = {"p": {"action_mask": self.mask.astype(np.int8), "x": x}, "q": q}
        self.flat = {"action_mask": self.mask.astype(np.int8), "p": {"x": x}, "q": q}

    def nested_list(self):
        """Return the nested batch as a list of observations."""
        p = self.nested["p"]
        observations = []
        for i in range(len(self.mask)):
            part = {"action_mask": p["action_mask"][i], "x": p["x"][i]}
            observations.append({"p": part, "q": self.nested["q"][i]})
        return observations


@pytest.fixture
def rows():
    return Rows(6)


def change_saved_config(folder, **keys):
    """Change keys in the config of a saved policy."""
    manifest = read_manifest(folder)
    manifest.config.update(keys)
    (folder / "policy.json").write_bytes(encode(manifest))


# --- acting ---------------------------------------------------------------------------------------


@in_both_frameworks
class TestNestedMask:
    """A policy whose mask is inside a Dict."""

    @pytest.fixture
    def policy(self, framework):
        return rlcatalog.build(NESTED, FOUR_ACTIONS, NESTED_CONFIG, framework)

    @pytest.fixture
    def expected_step(self, policy, rows, framework):
        """The step of a policy with the same weights whose mask is at the top."""
        flat = rlcatalog.build(FLAT, FOUR_ACTIONS, SMALL, framework)
        flat.model.set_weights(policy.model.get_weights())
        return flat.act(rows.flat, explore=False)

    def test_explanation_names_the_path(self, policy):
        assert policy.explain().as_dict()["action_mask"] == "obs['p']['action_mask']"

    def test_mask_is_not_encoded(self, policy):
        assert policy.encoded_space.shape == (5,)  # x and q

    @pytest.mark.parametrize("form", ["batch", "list", "loaded"])
    def test_policy_acts_as_if_the_mask_were_at_the_top(
        self, policy, rows, expected_step, form, tmp_path
    ):
        obs = rows.nested_list() if form == "list" else rows.nested
        if form == "loaded":
            policy.save(tmp_path)
            policy = rlcatalog.load(tmp_path)
        step = policy.act(obs, explore=False)
        np.testing.assert_array_equal(step.action, expected_step.action)
        expected = expected_step.dist_inputs
        np.testing.assert_allclose(step.dist_inputs, expected, rtol=1e-5, atol=1e-6)

    def test_action_mask_reads_the_nested_mask(self, policy, rows):
        np.testing.assert_array_equal(policy.action_mask(rows.nested), rows.mask)

    @pytest.mark.parametrize("obs", [np.zeros((6, 3), np.float32), [1.0, 2.0], None])
    def test_observation_that_is_not_a_dict_is_an_error(self, policy, obs):
        with pytest.raises(ObservationError, match=r"action mask under 'p\.action_mask'"):
            policy.act(obs)
        with pytest.raises(ObservationError, match="expected a "):
            policy.preprocess(obs)


@pytest.mark.slow
@in_both_frameworks
def test_exported_policy_reads_the_nested_mask(framework, tmp_path):
    policy = rlcatalog.build(NESTED, FOUR_ACTIONS, NESTED_CONFIG, framework)
    policy.export(tmp_path / "policy.onnx")
    actor = rlcatalog.Actor(tmp_path / "policy.onnx")
    rows = Rows(40)
    likely = actor.act(rows.nested, explore=False).action
    sampled = actor.act(rows.nested).action
    np.testing.assert_array_equal(likely, policy.act(rows.nested, explore=False).action)
    assert rows.mask[np.arange(40), sampled].all()


def test_dict_with_the_mask_alone_is_left_out():
    image = Box(0, 255, (42, 42, 1), np.uint8)
    space = Dict({"camera": image, "rules": Dict({"mask": MultiBinary(4)})})
    policy = rlcatalog.build(space, FOUR_ACTIONS, {"action_mask_key": "rules.mask"}, "torch")
    # Only the image is left, which visionnet takes.
    assert policy.resolution.part("trunk").name == "visionnet"
    only_action_1 = np.array([[0, 1, 0, 0]] * 2, np.int8)
    obs = {"camera": np.zeros((2, 42, 42, 1), np.uint8), "rules": {"mask": only_action_1}}
    assert policy.act(obs).action.tolist() == [1, 1]


def test_key_with_a_dot_is_found_before_a_path():
    space = Dict({"p.action_mask": MultiBinary(4), "x": THREE_FEATURES})
    policy = rlcatalog.build(space, FOUR_ACTIONS, NESTED_CONFIG, "torch")
    only_action_3 = np.array([[0, 0, 0, 1]], np.int8)
    obs = {"p.action_mask": only_action_3, "x": np.zeros((1, 3), np.float32)}
    assert policy.act(obs).action.tolist() == [3]
    assert policy.encoded_space.shape == (3,)


@pytest.mark.parametrize("key", ["obs['p']['action_mask']", 'obs["p"]["action_mask"]'])
def test_mask_is_found_by_its_path_in_python_syntax(key, rows, tmp_path):
    policy = rlcatalog.build(NESTED, FOUR_ACTIONS, SMALL | {"action_mask_key": key}, "torch")
    np.testing.assert_array_equal(policy.action_mask(rows.nested), rows.mask)
    policy.save(tmp_path)
    loaded = rlcatalog.load(tmp_path)
    np.testing.assert_array_equal(loaded.action_mask(rows.nested), rows.mask)


@pytest.mark.parametrize("use_parametric", [False, True])
def test_mask_at_the_top_is_found_by_its_path(use_parametric, rows):
    config = {"action_mask_key": "obs['action_mask']", "use_parametric": use_parametric}
    policy = rlcatalog.build(FLAT, FOUR_ACTIONS, SMALL | config, "torch")
    np.testing.assert_array_equal(policy.action_mask(rows.flat), rows.mask)
    assert policy.encoded_space.shape == (5,)  # x and q


class TestTwoMasks:
    """A key with a dot, and a path that looks the same."""

    SPACE = Dict({"p.action_mask": MultiBinary(4), **NESTED.spaces})

    def test_short_path_is_an_error(self):
        with pytest.raises(ConfigError, match=r"'p\.action_mask' has several meanings"):
            rlcatalog.build(self.SPACE, FOUR_ACTIONS, NESTED_CONFIG, "torch")

    def test_saved_policy_keeps_the_meaning_of_its_key(self, rows, tmp_path):
        config = SMALL | {"action_mask_key": "obs['p.action_mask']"}
        policy = rlcatalog.build(self.SPACE, FOUR_ACTIONS, config, "torch")
        policy.save(tmp_path)
        # As policies were saved when a key with a dot was found before a path.
        change_saved_config(tmp_path, action_mask_key="p.action_mask")

        loaded = rlcatalog.load(tmp_path)

        obs = {"p.action_mask": np.eye(4, dtype=np.int8)[[2] * 6], **rows.nested}
        assert set(loaded.act(obs).action) == {2}


# --- models that see the mask ---------------------------------------------------------------------


class MaskReader(TorchModelV2):
    """A user's model, which keeps the mask that it sees, and gives their number as the value."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.num_outputs = num_outputs or 4  # None for a trunk, which chooses its width
        self.layer = torch.nn.Linear(3, self.num_outputs)

    def forward(self, input_dict, state, seq_lens):
        self.seen_mask = input_dict["obs"]["p"]["action_mask"]
        return self.layer(input_dict["obs"]["p"]["x"]), state

    def value_function(self):
        return self.seen_mask.sum(1)


@pytest.mark.parametrize("head", [{}, {"use_parametric": True}], ids=["alone", "below a head"])
def test_custom_model_sees_the_nested_mask_unfiltered(head, rows):
    config = {
        "custom_model": MaskReader,
        "action_mask_key": "p.action_mask",
        "observation_filter": "MeanStdFilter",
        **head,
    }
    policy = rlcatalog.build(NESTED, FOUR_ACTIONS, config, "torch")
    policy.preprocess(rows.nested, update=True)  # the filter learns from the observations

    step = policy.act(rows.nested)

    model = policy.model.trunk if head else policy.model
    np.testing.assert_array_equal(model.seen_mask, rows.mask)
    assert rows.mask[np.arange(6), step.action].all()  # allowed in all six rows
    assert policy.explain().as_dict()["model_sees_mask"]


# --- masks that are not used ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "action", "config", "path", "advice"),
    [
        pytest.param(
            NESTED,
            FOUR_ACTIONS,
            {},
            "obs['p']['action_mask']",
            "action_mask_key=\"obs['p']['action_mask']\"",
            id="nested",
        ),
        pytest.param(
            Dict({"p": Dict({"m": MultiBinary(4), "x": THREE_FEATURES})}),
            FOUR_ACTIONS,
            {"action_mask_key": "m"},
            "obs['p']['m']",
            "action_mask_key=\"obs['p']['m']\"",
            id="nested, another key",
        ),
        pytest.param(
            Tuple([NESTED["p"], THREE_FEATURES]),
            FOUR_ACTIONS,
            {},
            "obs[0]['action_mask']",
            "set its path",
            id="inside a Tuple",
        ),
        pytest.param(
            FLAT,
            PAIR,
            {},
            "obs['action_mask']",
            "Box(2,) float32 has no values that a mask",
            id="for floats",
        ),
    ],
)
class TestUnusedMask:
    """An entry that is called like a mask, where no mask is read."""

    @pytest.fixture
    def warning_and_policy(self, space, action, config):
        catalog = rlcatalog.Catalog()  # which has not warned of it before
        with pytest.warns(UnusedMaskWarning) as caught:
            policy = rlcatalog.build(space, action, SMALL | config, "torch", catalog=catalog)
        (warning,) = caught
        return str(warning.message), policy

    def test_warning_names_path_and_way_out(self, warning_and_policy, path, advice):
        message, _ = warning_and_policy
        assert message.startswith(f"{path} is named like an action mask, but is not used as one")
        assert advice in message

    def test_explanation_names_path(self, warning_and_policy, path, advice):
        _, policy = warning_and_policy
        assert policy.explain().as_dict()["unused_masks"] == [path]
        assert f"not used as action masks: {path}" in repr(policy.explain())


def test_key_none_leaves_the_mask_an_observation():
    policy = rlcatalog.build(NESTED, FOUR_ACTIONS, SMALL | {"action_mask_key": "none"}, "torch")
    assert policy.encoded_space.shape == (9,)  # 4 of the mask, 3 of x, 2 of q


@pytest.mark.parametrize("key", ["p.mask", "obs['p']['mask']", "obs[0]"])
def test_path_that_leads_nowhere_is_an_error(key):
    config = SMALL | {"action_mask_key": key}
    with pytest.raises(ConfigError, match="is not a part of the observation") as caught:
        rlcatalog.build(NESTED, FOUR_ACTIONS, config, "torch")
    assert str(caught.value).startswith(f"action_mask_key: {key!r}")
    assert "obs['p']['action_mask']" in str(caught.value)


# --- SpaceInfo.without ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "path", "expected"),
    [
        (NESTED, ("p", "action_mask"), Dict({"p": Dict({"x": THREE_FEATURES}), "q": PAIR})),
        (NESTED, ("p",), Dict({"q": PAIR})),
        # Dicts that are empty then go too.
        (
            Dict({"a": Dict({"b": Dict({"c": FOUR_ACTIONS})}), "x": THREE_FEATURES}),
            ("a", "b", "c"),
            Dict({"x": THREE_FEATURES}),
        ),
    ],
    ids=["entry", "Dict", "only entry"],
)
def test_space_without_an_entry(space, path, expected):
    assert SpaceInfo.read(space).without(*path).space == expected
