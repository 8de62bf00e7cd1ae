"""The parametric head in the catalog: its choice, keys, explanation, errors, and its name."""

from __future__ import annotations

import re

import numpy as np
import pytest
from gymnasium import spaces
from parametric_observations import draw_observations, find_allowed, make_space

import rlcatalog
from rlcatalog.errors import ConfigError, UnsupportedSpaceError
from rlcatalog.spaces import Repeated
from rlcatalog_torch import TorchModelV2

#: The logit of an action that is not allowed.
LOWEST = np.finfo(np.float32).min
FIVE_ACTIONS = spaces.Discrete(5)


def explain(space, actions=FIVE_ACTIONS, config=None):
    config = {"fcnet_hiddens": [8], **(config or {})}
    return rlcatalog.explain(space, actions, config).as_dict()


def explain_shapes(space):
    """Return the shape of each stage: name → shape."""
    return {row["stage"]: row["shape"] for row in explain(space)["shapes"]}


# --- the choice -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "rank", "reason"),
    [
        ("mask", "GENERIC", "an action mask in obs['action_mask']"),
        ("embeddings", "SPECIFIC", "embeddings of the actions in obs['avail_actions']"),
        (
            "list and mask",
            "SPECIFIC",
            "embeddings of the actions in obs['avail_actions'] and"
            " an action mask in obs['action_mask']",
        ),
    ],
)
def test_mask_or_embeddings_choose_the_head(kind, rank, reason):
    head = explain(make_space(kind))["head"]

    assert head["chosen"] == "parametric"
    assert head["config_keys"][:2] == ["use_parametric", "action_embeddings_key"]
    assert head["candidates"][0]["rank"] == rank
    assert head["reason"] == reason


def test_stages_with_a_mask_have_a_logit_per_action():
    shapes = explain_shapes(make_space("mask"))

    assert shapes["fcnet: hidden 1 (tanh)"] == [8]
    assert shapes["parametric: logits (linear)"] == [5]


@pytest.mark.parametrize("kind", ["embeddings", "embeddings and mask", "list", "list and mask"])
def test_stages_with_embeddings_have_dot_products(kind):
    shapes = explain_shapes(make_space(kind))

    assert shapes["fcnet: hidden 1 (tanh)"] == [8]
    assert shapes["parametric: intent (linear)"] == [3]  # the width of an embedding
    assert shapes["parametric: logits (dot products)"] == [5]


@pytest.mark.parametrize("kind", ["list", "list and mask"])
def test_stages_with_a_list_are_masked_by_its_length(kind):
    assert explain_shapes(make_space(kind))["parametric: masked"] == [5]


@pytest.mark.parametrize("kind", ["mask", "embeddings", "embeddings and mask"])
def test_stages_without_a_list_are_not_masked(kind):
    # The policy applies the mask itself.
    assert "parametric: masked" not in explain_shapes(make_space(kind))


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        pytest.param(
            {"use_parametric": False}, r"use_parametric is False", id="use_parametric-False"
        ),
        pytest.param(
            {"custom_model": TorchModelV2},
            r"a custom_model is set; set use_parametric=True to read .* anyway",
            id="custom-class",
        ),
        pytest.param({"custom_model": "fcnet"}, r"a custom_model is set", id="custom-name"),
    ],
)
def test_config_without_a_head_gives_its_reason(config, reason):
    head = explain(make_space("embeddings and mask"), config=config)["head"]

    [candidate] = [row for row in head["candidates"] if row["name"] == "parametric"]
    assert head["chosen"] is None
    assert candidate["rank"] is None
    assert re.search(reason, candidate["reason"])


@pytest.mark.parametrize(
    ("obs", "actions"),
    [
        pytest.param(spaces.Box(-1, 1, (4,)), FIVE_ACTIONS, id="box"),
        pytest.param(spaces.Dict({"x": spaces.Box(-1, 1, (4,))}), FIVE_ACTIONS, id="other-entries"),
        pytest.param(spaces.Tuple([spaces.Box(-1, 1, (5, 2))]), FIVE_ACTIONS, id="tuple"),
        pytest.param(
            spaces.Dict({"avail_actions": spaces.Box(-1, 1, (5, 2)), "x": spaces.Discrete(3)}),
            spaces.Box(-1, 1, (5,)),
            id="embeddings-for-continuous-actions",
        ),
        pytest.param(
            spaces.Dict({"avail_actions": spaces.Box(-1, 1, (2, 2)), "x": spaces.Discrete(3)}),
            spaces.MultiDiscrete([2, 2]),
            id="embeddings-for-MultiDiscrete",
        ),
    ],
)
def test_observation_without_mask_and_embeddings_has_no_head(obs, actions):
    assert explain(obs, actions)["head"]["chosen"] is None


def test_embeddings_for_multi_discrete_are_an_input():
    # Embeddings are of the actions of a Discrete space.
    obs = spaces.Dict(
        {"action_mask": spaces.MultiBinary(4), "avail_actions": spaces.Box(-1, 1, (2, 2))}
    )

    explanation = explain(obs, spaces.MultiDiscrete([2, 2]))

    assert explanation["head"]["chosen"] == "parametric"
    assert explanation["head"]["reason"] == "an action mask in obs['action_mask']"
    assert explanation["shapes"][1]["shape"] == [2 * 2]  # what the trunk reads


# --- keys -----------------------------------------------------------------------------------------

WITH_OTHER_KEYS = spaces.Dict(
    {
        "allowed": spaces.MultiBinary(5),
        "cards": spaces.Box(-1, 1, (5, 2)),
        "x": spaces.Discrete(3),
    }
)


def test_keys_of_mask_and_embeddings_may_be_set():
    config = {"action_mask_key": "allowed", "action_embeddings_key": "cards"}

    head = explain(WITH_OTHER_KEYS, config=config)["head"]

    assert head["chosen"] == "parametric"
    assert head["reason"].endswith("in obs['cards'] and an action mask in obs['allowed']")


def test_entries_with_other_keys_are_observations():
    assert explain(WITH_OTHER_KEYS)["head"]["chosen"] is None


#: In some environments `avail_actions` is what others call the action mask.
MASK_CALLED_AVAIL_ACTIONS = spaces.Dict(
    {"avail_actions": spaces.MultiBinary(5), "x": spaces.Discrete(3)}
)


def test_action_mask_key_may_be_avail_actions():
    config = {"action_mask_key": "avail_actions"}

    head = explain(MASK_CALLED_AVAIL_ACTIONS, config=config)["head"]

    assert head["reason"] == "an action mask in obs['avail_actions']"


def test_mask_as_avail_actions_is_an_error_with_advice():
    with pytest.raises(ConfigError, match="If it is an action mask, set the") as caught:
        explain(MASK_CALLED_AVAIL_ACTIONS)

    assert "set the model config key 'action_mask_key'" in str(caught.value)


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("embeddings", "message"),
    [
        pytest.param(
            spaces.Box(-1, 1, (4, 2)),
            r"expected a Box of shape \(5, E\)",
            id="fewer-embeddings-than-actions",
        ),
        pytest.param(spaces.Box(-1, 1, (5, 2, 2)), "is not a list", id="embeddings-of-rank-2"),
        pytest.param(
            Repeated(spaces.Box(-1, 1, (2, 2)), 5), "is not a list", id="list-of-matrices"
        ),
        pytest.param(
            Repeated(spaces.Box(-1, 1, (2,)), 6),
            "at most 6 embeddings for the 5 actions",
            id="longer-list",
        ),
        pytest.param(
            spaces.Sequence(spaces.Box(-1, 1, (2,))),
            "config key 'sequence_max_len' to 5",
            id="longer-sequence",
        ),
    ],
)
def test_embeddings_that_do_not_fit_the_actions_are_an_error(embeddings, message):
    obs = spaces.Dict({"avail_actions": embeddings, "x": spaces.Discrete(3)})

    with pytest.raises(ConfigError, match=message):
        explain(obs, FIVE_ACTIONS, {"sequence_max_len": 7})


@pytest.mark.parametrize("kind", ["mask", "embeddings"])
def test_no_final_linear_is_an_error(kind):
    with pytest.raises(ConfigError, match="no_final_linear does not work with"):
        explain(make_space(kind), config={"no_final_linear": True})


@pytest.mark.parametrize(
    ("obs", "actions"),
    [
        pytest.param(spaces.Dict({"x": spaces.Box(-1, 1, (2,))}), FIVE_ACTIONS, id="Dict"),
        pytest.param(spaces.Box(-1, 1, (2,)), FIVE_ACTIONS, id="Box"),
        pytest.param(
            make_space("embeddings"),
            spaces.Box(-1, 1, (5,)),
            id="embeddings-for-continuous-actions",
        ),
    ],
)
def test_use_parametric_without_mask_and_embeddings_is_an_error(obs, actions):
    with pytest.raises(ConfigError, match="obs has neither an action mask") as caught:
        explain(obs, actions, {"use_parametric": True})

    assert "for a Discrete action space, embeddings of the actions" in str(caught.value)


def test_observation_of_embeddings_alone_is_an_error():
    obs = spaces.Dict({"avail_actions": spaces.Box(-1, 1, (5, 2))})

    with pytest.raises(UnsupportedSpaceError, match="and leaves no entry") as caught:
        explain(obs)

    assert "parametric keeps obs['avail_actions'] from the trunk" in str(caught.value)


@pytest.mark.parametrize(
    ("num_outputs", "message"),
    [
        pytest.param(None, "features were requested", id="trunk"),
        pytest.param(7, "but 7 were requested", id="7-outputs-for-5-actions"),
    ],
)
def test_embeddings_need_one_output_per_action(framework, num_outputs, message, build_model):
    with pytest.raises(ConfigError, match=message):
        build_model(framework, make_space("embeddings"), num_outputs=num_outputs)


#: A mask that models receive as one-hot vectors: two numbers for each action.
WITH_ONE_HOT_MASK = spaces.Dict(
    {
        "action_mask": spaces.MultiDiscrete([2, 2, 2, 2, 2]),
        "x": spaces.Box(-1, 1, (4,), np.float32),
    }
)


def test_one_hot_mask_in_a_models_observation_is_an_error(framework, build_model):
    with pytest.raises(ConfigError, match="as one-hot vectors") as caught:
        build_model(framework, WITH_ONE_HOT_MASK)

    message = str(caught.value)
    assert "obs['action_mask']: models see " in message
    assert "MultiBinary or Box" in message.split("as one-hot vectors")[1]


def test_one_hot_mask_is_accepted_by_a_policy(framework):
    # Its model does not receive the mask.
    rlcatalog.build(WITH_ONE_HOT_MASK, FIVE_ACTIONS, {"fcnet_hiddens": [8]}, framework)


def test_one_hot_mask_is_accepted_without_a_head(framework, build_model):
    model, _ = build_model(framework, WITH_ONE_HOT_MASK, {"use_parametric": False})

    assert model.num_outputs == 5


# --- models ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", [{}, {"use_parametric": True}], ids=str)
def test_get_model_v2_encodes_a_raw_space(framework, config):
    space = make_space("embeddings and mask")

    # As RLlib's models do, it takes the space of the environment.
    model = rlcatalog.ModelCatalog.get_model_v2(space, FIVE_ACTIONS, 5, config, framework)

    assert model.obs_space.original_space == space


def test_custom_model_parametric_receives_the_whole_observation(build_policy):
    policy = build_policy(
        "torch", make_space("embeddings and mask"), {"custom_model": "parametric"}
    )

    assert type(policy.model).__name__ == "ParametricActionsHead"
    assert policy.preprocessor.info.keys == ("action_mask", "avail_actions", "real_obs")


def test_custom_model_parametric_applies_the_mask(framework, build_policy):
    space = make_space("embeddings and mask")
    policy = build_policy(framework, space, {"custom_model": "parametric"})
    observations = draw_observations("embeddings and mask", rows=20)

    step = policy.act(observations)

    is_lowest = step.dist_inputs == LOWEST
    np.testing.assert_array_equal(is_lowest, ~find_allowed(observations))
