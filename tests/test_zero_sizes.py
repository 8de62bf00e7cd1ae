"""Parts of spaces without a single value: seen as nothing, or refused by name before anything is built."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

import rlcatalog
from rlcatalog.errors import UnsupportedSpaceError
from rlcatalog.spaces import Simplex

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

OBS, TWO = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(2)
SMALL = {"fcnet_hiddens": [4]}
NOTHING = {
    "floats": spaces.Box(-1, 1, (0,), np.float32),
    "floats of rank 2": spaces.Box(-1, 1, (3, 0), np.float32),
    "integers": spaces.Box(0, 3, (0, 2), np.int64),
    "choices": spaces.MultiDiscrete(np.zeros((2, 0), np.int64)),
    "simplex": Simplex((0, 3)),
}
nothing = pytest.mark.parametrize("part", NOTHING.values(), ids=NOTHING)
frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])


@nothing
@pytest.mark.parametrize("config", [{}, {"use_autoregressive": True}], ids=["plain", "dependent"])
def test_an_action_without_values_is_refused_by_name(part, config):
    inside = spaces.Dict({"a": TWO, "b": spaces.Tuple([OBS, part])})
    for space, path in ((part, r"action"), (inside, r"action\['b'\]\[1\]")):
        with pytest.raises(UnsupportedSpaceError, match=f"^{path}: .* holds no values.*[Ll]eave it out"):
            rlcatalog.build(OBS, space, {**SMALL, **config}, "torch")


@pytest.mark.parametrize("name", ["squashed_gaussian", "beta", "deterministic", "diag_gaussian"])
def test_a_distribution_that_is_named_does_not_hide_it(name):
    with pytest.raises(UnsupportedSpaceError, match=r"action\['a'\]: .* holds no values"):
        rlcatalog.explain(OBS, spaces.Dict({"a": NOTHING["floats"], "b": OBS}), {"custom_action_dist": name})


@frameworks
@pytest.mark.parametrize(
    ("space", "config"),
    [
        (NOTHING["floats"], {}),
        (NOTHING["integers"], {}),
        (spaces.Dict({"a": NOTHING["floats"], "b": spaces.Tuple([])}), {}),
        (spaces.Dict({"action_mask": spaces.MultiBinary(2)}), {}),
    ],
    ids=["floats", "integers", "inside a dict", "nothing but a mask"],
)
def test_an_observation_without_values_is_refused_by_name(framework, space, config):
    with pytest.raises(UnsupportedSpaceError, match=r"^obs: .* holds no values"):
        rlcatalog.build(space, TWO, {**SMALL, **config}, framework)


@frameworks
def test_parts_without_values_beside_others_are_seen_as_nothing(framework):
    image = spaces.Box(0, 255, (0, 4, 3), np.uint8)
    space = spaces.Dict(
        {"a": NOTHING["floats of rank 2"], "b": OBS, "c": spaces.Tuple([image, NOTHING["choices"], TWO])}
    )
    policy = rlcatalog.build(space, TWO, SMALL, framework)
    space.seed(0)
    obs = [space.sample() for _ in range(3)]
    encoded = policy.preprocess(obs)
    expected = [[*one["b"], *np.eye(2)[one["c"][2]]] for one in obs]
    np.testing.assert_allclose(encoded, expected, rtol=1e-6)
    step = policy.act(obs)
    assert policy.evaluate({"obs": encoded, "raw_action": step.raw_action}).logp.shape == (3,)
