"""Parts of spaces without a single value: seen as nothing, or refused by name before anything is
built.

Crosses: policy, preprocessors, deterministic.
"""

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
def test_action_without_values_is_rejected_by_name(part):
    whole = spaces.Dict({"a": part, "b": spaces.Tuple([part])})
    for space, path in ((part, r"action"), (whole, r"action(\['a'\])?")):
        with pytest.raises(UnsupportedSpaceError, match=f"^{path}: .* has no values.*Remove it"):
            rlcatalog.build(OBS, space, SMALL, "torch")


@pytest.mark.grid
@nothing
@frameworks
@pytest.mark.parametrize(
    "config",
    [
        {},
        {"use_autoregressive": True},
        *({"custom_action_dist": name} for name in ("squashed_gaussian", "beta")),
    ],
    ids=["plain", "dependent", "squashed", "beta"],
)
def test_action_part_without_values_is_empty_or_rejected(part, framework, config):
    space = spaces.Dict({"a": TWO, "b": spaces.Tuple([OBS, part])})
    if part.dtype != np.float32 or isinstance(part, Simplex):
        with pytest.raises(
            UnsupportedSpaceError, match=r"^action\['b'\]\[1\]: .* has no values.*Remove it"
        ):
            rlcatalog.build(OBS, space, {**SMALL, **config}, framework)
        return
    policy = rlcatalog.build(OBS, space, {**SMALL, **config}, framework)
    obs = np.zeros((4, 2), np.float32)
    for explore in (True, False):
        step = policy.act(obs, explore=explore)
        assert step.raw_action.shape == (4, 3)
        first, second = step.action["b"]
        assert second.shape == (4, *part.shape)
        for i in range(4):
            assert space.contains({"a": step.action["a"][i], "b": (first[i], second[i])})
    found = policy.evaluate(
        {"obs": obs, "raw_action": step.raw_action, "dist_inputs": step.dist_inputs}
    )
    np.testing.assert_allclose(
        found.logp.detach() if framework == "torch" else found.logp, step.logp, rtol=1e-4
    )
    assert tuple(found.kl.shape) == tuple(found.entropy.shape) == (4,)


@frameworks
def test_deterministic_actions_may_have_parts_without_values(framework):
    space = spaces.Dict({"a": NOTHING["floats"], "b": OBS})
    policy = rlcatalog.build(
        OBS, space, {**SMALL, "custom_action_dist": "deterministic"}, framework
    )
    step = policy.act(np.zeros((4, 2), np.float32))
    assert step.action["a"].shape == (4, 0)
    assert step.action["b"].shape == (4, 2)


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
def test_observation_without_values_is_rejected_by_name(framework, space, config):
    with pytest.raises(UnsupportedSpaceError, match=r"^obs: .* has no values"):
        rlcatalog.build(space, TWO, {**SMALL, **config}, framework)


@frameworks
def test_parts_without_values_beside_others_are_seen_as_nothing(framework):
    image = spaces.Box(0, 255, (0, 4, 3), np.uint8)
    space = spaces.Dict(
        {
            "a": NOTHING["floats of rank 2"],
            "b": OBS,
            "c": spaces.Tuple([image, NOTHING["choices"], TWO]),
        }
    )
    policy = rlcatalog.build(space, TWO, SMALL, framework)
    space.seed(0)
    obs = [space.sample() for _ in range(3)]
    encoded = policy.preprocess(obs)
    expected = [[*one["b"], *np.eye(2)[one["c"][2]]] for one in obs]
    np.testing.assert_allclose(encoded, expected, rtol=1e-6)
    step = policy.act(obs)
    assert policy.evaluate({"obs": encoded, "raw_action": step.raw_action}).logp.shape == (3,)
