"""Action masks inside nested Dicts, which `action_mask_key` leads to by a path."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Tuple

import rlcatalog
from rlcatalog.errors import ActionMaskError, ConfigError, ObservationError, UnusedMaskWarning
from rlcatalog.spaces import SpaceInfo
from rlcatalog_torch import TorchModelV2

pytestmark = pytest.mark.twins

FOUR, BOX = Discrete(4), Box(-1, 1, (3,), np.float32)
NESTED = Dict(
    {"p": Dict({"action_mask": MultiBinary(4), "x": BOX}), "q": Box(-1, 1, (2,), np.float32)}
)
#: The same with the mask at the top, where it was always read.
FLAT = Dict(
    {"action_mask": MultiBinary(4), "p": Dict({"x": BOX}), "q": Box(-1, 1, (2,), np.float32)}
)
PATH = {"fcnet_hiddens": [8], "action_mask_key": "p.action_mask"}
both = pytest.mark.parametrize("framework", ["torch", "tf"])


def pair_of_batches(rows=6, seed=0):
    """Return the same observations for both spaces, and their masks."""
    rng = np.random.default_rng(seed)
    mask = rng.random((rows, 4)) < 0.4
    mask[np.arange(rows), rng.integers(4, size=rows)] = True
    x, q = (rng.uniform(-1, 1, (rows, n)).astype(np.float32) for n in (3, 2))
    own = mask.astype(np.int8)
    return (
        {"p": {"action_mask": own, "x": x}, "q": q},
        {"action_mask": own, "p": {"x": x}, "q": q},
        mask,
    )


@both
def test_a_mask_that_is_nested_is_one_at_the_top(framework, tmp_path):
    policy, flat = (
        rlcatalog.build(NESTED, FOUR, PATH, framework),
        rlcatalog.build(FLAT, FOUR, PATH | KEY, framework),
    )
    flat.model.set_weights(policy.model.get_weights())
    assert policy.explain().as_dict()["action_mask"] == "obs['p']['action_mask']"
    assert policy.encoded_space.shape == (5,)
    nested, other, mask = pair_of_batches()
    expected = flat.act(other, explore=False)
    single = [
        {"p": {k: v[i] for k, v in nested["p"].items()}, "q": nested["q"][i]} for i in range(6)
    ]
    policy.save(tmp_path / "saved")
    for acting, obs in (
        (policy, nested),
        (policy, single),
        (rlcatalog.load(tmp_path / "saved"), nested),
    ):
        step = acting.act(obs, explore=False)
        np.testing.assert_array_equal(step.action, expected.action)
        np.testing.assert_allclose(step.dist_inputs, expected.dist_inputs, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(policy.action_mask(nested), mask)
    step = policy.act(nested)
    batch = {
        "obs": policy.preprocess(nested),
        "raw_action": step.raw_action,
        "mask": policy.action_mask(nested),
    }
    logp = policy.evaluate(batch).logp
    np.testing.assert_allclose(
        logp.detach() if framework == "torch" else logp, step.logp, rtol=1e-5, atol=1e-6
    )
    other = policy.act(nested, mask=np.eye(4)[[3] * 6])
    assert set(other.action) == {3}
    nested["p"]["action_mask"][2] = 0
    with pytest.raises(ActionMaskError, match="row 2 allows no action"):
        policy.act(nested)
    with pytest.raises(
        ObservationError, match=r"expected a dict with the action mask under 'p\.action_mask'"
    ):
        policy.act({"p": {"x": nested["p"]["x"]}, "q": nested["q"]})
    for wrong in (nested["p"]["x"], [1.0, 2.0], None):  # no dict at all
        with pytest.raises(
            ObservationError, match=r"expected a dict with the action mask under 'p\.action_mask'"
        ):
            policy.act(wrong)
        with pytest.raises(ObservationError, match="expected a "):
            policy.preprocess(wrong)


KEY = {"action_mask_key": "action_mask"}


@pytest.mark.attack
@both
def test_an_exported_policy_reads_it_there(framework, tmp_path):
    policy = rlcatalog.build(NESTED, FOUR, PATH, framework)
    policy.export(tmp_path / "policy.onnx")
    actor, (nested, _, mask) = rlcatalog.Actor(tmp_path / "policy.onnx"), pair_of_batches(rows=40)
    step, expected = (one.act(nested, explore=False) for one in (actor, policy))
    np.testing.assert_array_equal(step.action, expected.action)
    assert mask[np.arange(40), actor.act(nested).action].all()


def test_a_part_that_holds_the_mask_alone_goes_with_it():
    image = Box(0, 255, (42, 42, 1), np.uint8)
    space = Dict({"camera": image, "rules": Dict({"mask": MultiBinary(4)})})
    policy = rlcatalog.build(space, FOUR, {"action_mask_key": "rules.mask"}, "torch")
    assert policy.resolution.component("trunk").name == "visionnet"
    obs = {
        "camera": np.zeros((2, 42, 42, 1), np.uint8),
        "rules": {"mask": np.array([[0, 1, 0, 0]] * 2, np.int8)},
    }
    assert policy.act(obs).action.tolist() == [1, 1]


class Shown(TorchModelV2):
    """A model of the user's, which is shown the mask."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(obs_space, action_space, num_outputs, model_config, name)
        self.num_outputs = num_outputs or 4  # a trunk says how wide it is
        self.layer = torch.nn.Linear(3, self.num_outputs)

    def forward(self, input_dict, state, seq_lens):
        self.shown = input_dict["obs"]["p"]["action_mask"]
        return self.layer(input_dict["obs"]["p"]["x"]), state

    def value_function(self):
        return self.shown.sum(1)


@pytest.mark.parametrize("head", [{}, {"use_parametric": True}])
def test_a_custom_model_is_shown_it(head):
    config = {
        "custom_model": Shown,
        "action_mask_key": "p.action_mask",
        "observation_filter": "MeanStdFilter",
        **head,
    }
    policy = rlcatalog.build(NESTED, FOUR, config, "torch")
    nested, _, mask = pair_of_batches()
    policy.preprocess(nested, update=True)
    step = policy.act(nested)
    assert mask[np.arange(6), step.action].all()
    np.testing.assert_array_equal(policy.model.trunk.shown if head else policy.model.shown, mask)
    assert policy.explain().as_dict()["model_sees_mask"]


def test_a_key_with_a_dot_is_no_path():
    space = Dict({"p.action_mask": MultiBinary(4), "x": BOX})
    policy = rlcatalog.build(space, FOUR, PATH, "torch")
    obs = {"p.action_mask": np.array([[0, 0, 0, 1]], np.int8), "x": np.zeros((1, 3), np.float32)}
    assert policy.act(obs).action.tolist() == [3]
    assert policy.encoded_space.shape == (3,)


# --- masks that nobody uses -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "action", "config", "path", "way"),
    [
        (NESTED, FOUR, {}, "obs['p']['action_mask']", "action_mask_key='part.action_mask'"),
        (
            Dict({"p": Dict({"m": MultiBinary(4), "x": BOX})}),
            FOUR,
            {"action_mask_key": "m"},
            "obs['p']['m']",
            "action_mask_key='part.m'",
        ),
        (Tuple([NESTED["p"], BOX]), FOUR, {}, "obs[0]['action_mask']", "set its path"),
        (
            FLAT,
            Box(-1, 1, (2,), np.float32),
            {},
            "obs['action_mask']",
            "Box(2,) float32 has no values that a mask",
        ),
    ],
    ids=["nested", "another key", "inside a Tuple", "of floats"],
)
def test_one_that_is_not_used_is_reported(space, action, config, path, way):
    catalog = rlcatalog.Catalog()
    with pytest.warns(UnusedMaskWarning) as caught:
        policy = rlcatalog.build(
            space, action, {"fcnet_hiddens": [8], **config}, "torch", catalog=catalog
        )
    (text,) = [str(w.message) for w in caught]
    assert text.startswith(f"{path} is named like an action mask, but is not used as one")
    assert way in text
    assert policy.explain().as_dict()["unused_masks"] == [path]
    assert f"not used as action masks: {path}" in repr(policy.explain())


def test_another_name_says_that_it_is_none():
    policy = rlcatalog.build(
        NESTED, FOUR, {"fcnet_hiddens": [8], "action_mask_key": "none"}, "torch"
    )
    assert policy.encoded_space.shape == (9,)


def test_a_path_that_leads_nowhere_is_refused():
    text = r"'action_mask_key': 'p\.mask' is not in obs, Dict\(p: Dict\(action_mask"
    with pytest.raises(ConfigError, match=text):
        rlcatalog.build(NESTED, FOUR, PATH | {"action_mask_key": "p.mask"}, "torch")


def test_a_space_without_an_entry():
    info = SpaceInfo.read(NESTED)
    assert info.without("p", "action_mask").space == Dict({"p": Dict({"x": BOX}), "q": NESTED["q"]})
    assert info.without("p").space == Dict({"q": NESTED["q"]})
    alone = SpaceInfo.read(Dict({"a": Dict({"b": Dict({"c": FOUR})}), "x": BOX}))
    assert alone.without("a", "b", "c").space == Dict({"x": BOX})
    assert isinstance(info.space, gym.spaces.Dict)
