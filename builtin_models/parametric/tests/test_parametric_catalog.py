"""When the head is chosen, what it takes out of the observation, what `explain` shows, and what is
refused.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
from gymnasium import spaces

import rlcatalog
from rlcatalog.errors import ConfigError, UnsupportedSpaceError
from rlcatalog.spaces import Repeated
from rlcatalog_torch import TorchModelV2

LOWEST = np.finfo(np.float32).min


def explained(space, actions, config=None):
    return rlcatalog.explain(space, actions, {"fcnet_hiddens": [8], **(config or {})}).as_dict()


def steps(found):
    return [(stage["stage"], stage["shape"]) for stage in found["shapes"]]


def test_it_is_chosen_by_itself(head, kind):
    found = explained(head.space(kind), head.actions)
    assert found["head"]["chosen"] == "parametric"
    assert found["head"]["config_keys"][:2] == ["use_parametric", "action_embeddings_key"]
    assert ("an action mask in obs['action_mask']" in found["head"]["reason"]) == (
        "mask" in kind or kind == "both"
    )
    assert ("embeddings of the actions in obs['avail_actions']" in found["head"]["reason"]) == (
        kind != "mask"
    )
    own = found["head"]["candidates"][0]
    assert own["rank"] == ("GENERIC" if kind == "mask" else "SPECIFIC")
    assert ("fcnet: hidden 1 (tanh)", [8]) in steps(found)
    if kind == "mask":
        assert ("parametric: logits (linear)", [5]) in steps(found)
    else:
        assert ("parametric: intent (linear)", [3]) in steps(found)
        assert ("parametric: logits (dot products)", [5]) in steps(found)
    assert (("parametric: masked", [5]) in steps(found)) == ("list" in kind)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"use_parametric": False}, "use_parametric is False"),
        (
            {"custom_model": TorchModelV2},
            "a custom_model is set; set use_parametric=True to read .* anyway",
        ),
        ({"custom_model": "fcnet"}, "a custom_model is set"),
    ],
)
def test_what_keeps_it_away(head, config, reason):
    found = explained(head.space("both"), head.actions, config)["head"]
    assert found["chosen"] is None
    [own] = [candidate for candidate in found["candidates"] if candidate["name"] == "parametric"]
    assert own["rank"] is None
    assert re.search(reason, own["reason"])


@pytest.mark.parametrize(
    ("obs", "actions"),
    [
        (spaces.Box(-1, 1, (4,)), spaces.Discrete(5)),
        (spaces.Dict({"x": spaces.Box(-1, 1, (4,))}), spaces.Discrete(5)),
        (spaces.Tuple([spaces.Box(-1, 1, (5, 2))]), spaces.Discrete(5)),
        (
            spaces.Dict({"avail_actions": spaces.Box(-1, 1, (5, 2)), "x": spaces.Discrete(3)}),
            spaces.Box(-1, 1, (5,)),
        ),
        (
            spaces.Dict({"avail_actions": spaces.Box(-1, 1, (2, 2)), "x": spaces.Discrete(3)}),
            spaces.MultiDiscrete([2, 2]),
        ),
    ],
)
def test_without_mask_and_embeddings_there_is_no_head(obs, actions):
    assert explained(obs, actions)["head"]["chosen"] is None


def test_the_mask_of_another_action_space_leaves_the_rest_to_the_trunk():
    """Embeddings are those of a Discrete's actions; beside a mask for a MultiDiscrete the key means
    nothing.
    """
    obs = spaces.Dict(
        {"action_mask": spaces.MultiBinary(4), "avail_actions": spaces.Box(-1, 1, (2, 2))}
    )
    found = explained(obs, spaces.MultiDiscrete([2, 2]))
    assert found["head"]["chosen"] == "parametric"
    assert found["head"]["reason"] == "an action mask in obs['action_mask']"
    assert found["shapes"][1]["shape"] == [4]


def test_keys_of_another_name(head):
    obs = spaces.Dict(
        {
            "allowed": spaces.MultiBinary(5),
            "cards": spaces.Box(-1, 1, (5, 2)),
            "x": spaces.Discrete(3),
        }
    )
    keys = {"action_mask_key": "allowed", "action_embeddings_key": "cards"}
    found = explained(obs, spaces.Discrete(5), keys)
    assert found["head"]["chosen"] == "parametric"
    assert found["head"]["reason"].endswith("in obs['cards'] and an action mask in obs['allowed']")
    assert explained(obs, spaces.Discrete(5))["head"]["chosen"] is None


def test_a_mask_under_the_embeddings_key_is_a_mask():
    """In some environments `avail_actions` is what others call the action mask."""
    obs = spaces.Dict({"avail_actions": spaces.MultiBinary(5), "x": spaces.Discrete(3)})
    found = explained(obs, spaces.Discrete(5), {"action_mask_key": "avail_actions"})
    assert found["head"]["reason"] == "an action mask in obs['avail_actions']"
    with pytest.raises(
        ConfigError, match=r"If it is an action mask, set the model config key 'action_mask_key'"
    ):
        explained(obs, spaces.Discrete(5))


def with_list(shown, **more):
    return spaces.Dict({"avail_actions": shown, "x": spaces.Discrete(3), **more})


ITEM = spaces.Box(-1, 1, (2,))
FIVE = spaces.Discrete(5)
REFUSED = {
    "fewer embeddings than actions": (
        with_list(spaces.Box(-1, 1, (4, 2))),
        FIVE,
        {},
        r"obs\['avail_actions'\]: Box\(4, 2\) float32 is not a list of embeddings for"
        r" Discrete\(5\): expected a Box of shape \(5, E\), or Repeated\(Box\(E,\), 5\)\..*set"
        r" 'action_embeddings_key' to a different key",
    ),
    "embeddings of rank 2": (
        with_list(spaces.Box(-1, 1, (5, 2, 2))),
        FIVE,
        {},
        r"2, 2\) float32 is not a list",
    ),
    "a list of images": (
        with_list(Repeated(spaces.Box(-1, 1, (2, 2)), 5)),
        FIVE,
        {},
        "Repeated.* is not a list",
    ),
    "a longer list": (
        with_list(Repeated(ITEM, 6)),
        FIVE,
        {},
        r"at most 6 embeddings for the 5 actions.*at most 5\.$",
    ),
    "a sequence without a limit": (
        with_list(spaces.Sequence(ITEM)),
        FIVE,
        {"sequence_max_len": 7},
        r"at most 7 embeddings.*Set the model config key 'sequence_max_len' to 5",
    ),
    "no final layer": (
        with_list(spaces.Box(-1, 1, (5, 2))),
        FIVE,
        {"no_final_linear": True},
        "no_final_linear does not work with parametric.*Remove no_final_linear, or set use_param",
    ),
    "no final layer, mask": (
        spaces.Dict({"action_mask": spaces.MultiBinary(5), "x": ITEM}),
        FIVE,
        {"no_final_linear": True},
        "no_final_linear does not work with parametric actions",
    ),
    "asked for, with nothing there": (
        spaces.Dict({"x": ITEM}),
        FIVE,
        {"use_parametric": True},
        r"parametric: obs has neither an action mask \(action_mask_key='action_mask'\) nor, for a"
        r" Discrete action space, embeddings of the actions"
        r" \(action_embeddings_key='avail_actions'\); found Dict\(x: Box\(2,\) float32\) and the"
        r" action space Discrete\(5\)\. Remove use_parametric",
    ),
    "asked for, with a box": (
        spaces.Box(-1, 1, (2,)),
        FIVE,
        {"use_parametric": True},
        "parametric: obs has neither",
    ),
    "embeddings of a Box's actions": (
        with_list(spaces.Box(-1, 1, (5, 2))),
        spaces.Box(-1, 1, (5,)),
        {"use_parametric": True},
        "for a Discrete action space, embeddings",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_when_it_is_looked_up(case):
    obs, actions, config, said = REFUSED[case]
    with pytest.raises(ConfigError, match=said):
        explained(obs, actions, config)


def test_embeddings_alone_leave_nothing_to_see():
    with pytest.raises(
        UnsupportedSpaceError, match=r"parametric takes 'avail_actions' and leaves no entry"
    ):
        explained(spaces.Dict({"avail_actions": spaces.Box(-1, 1, (5, 2))}), FIVE)


@pytest.mark.parametrize(
    ("asked", "said"), [(None, "features were requested"), (7, "but 7 were requested")]
)
def test_embeddings_serve_one_output_per_action(head, framework, asked, said):
    with pytest.raises(ConfigError, match=said):
        head.model(framework, head.space("embeddings"), num_outputs=asked)


def test_a_mask_that_models_see_as_one_hots_is_refused(head, framework):
    space = spaces.Dict({"action_mask": spaces.MultiDiscrete([2] * 5), "x": head.place})
    rlcatalog.build(space, head.actions, head.small, framework)  # kept apart, it does no harm
    with pytest.raises(
        ConfigError,
        match=r"obs\['action_mask'\]: models see .* as one-hot vectors.*MultiBinary or Box",
    ):
        head.model(framework, space)
    assert head.model(framework, space, {"use_parametric": False})[0].num_outputs == 5


def test_observations_that_are_not_encoded(head, framework):
    space = head.space("both")
    plain = rlcatalog.ModelCatalog.get_model_v2(space, head.actions, 5, {}, framework)
    model = rlcatalog.ModelCatalog.get_model_v2(
        space, head.actions, 5, {"use_parametric": True}, framework
    )
    # As RLlib's models do, they take the space as environments have it, and see it encoded.
    assert (plain.obs_space.original_space, model.obs_space.original_space) == (space, space)
    assert type(model).__name__ == "ParametricActionsHead"


def test_it_may_be_named_as_custom_model(head, framework):
    policy = head.policy(framework, head.space("both"), {"custom_model": "parametric"})
    assert type(policy.model).__name__ == "ParametricActionsHead"
    # a custom model is shown all.
    assert policy.preprocessor.info.keys == ("action_mask", "avail_actions", "real_obs")
    obs = head.observations(head.space("both"), 300)
    step = policy.act(obs)
    assert head.allowed(obs)[np.arange(300), step.action - 2].all()
    np.testing.assert_array_equal(step.dist_inputs[~head.allowed(obs)], LOWEST)
