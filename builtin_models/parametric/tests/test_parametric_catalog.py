"""The parametric head in the catalog: its choice, keys, explanation, errors, and its name."""

from __future__ import annotations

import re

import numpy as np
import pytest
from gymnasium import spaces

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


def test_mask_or_embeddings_choose_the_head(kind, make_space):
    head = explain(make_space(kind))["head"]

    assert head["chosen"] == "parametric"
    assert head["config_keys"][:2] == ["use_parametric", "action_embeddings_key"]


@pytest.mark.parametrize("kind", ["mask", "embeddings and mask", "list and mask"])
def test_reason_names_the_mask(kind, make_space):
    reason = explain(make_space(kind))["head"]["reason"]

    assert "an action mask in obs['action_mask']" in reason


@pytest.mark.parametrize("kind", ["embeddings", "list"])
def test_reason_without_a_mask_names_none(kind, make_space):
    assert "an action mask" not in explain(make_space(kind))["head"]["reason"]


@pytest.mark.parametrize("kind", ["embeddings", "embeddings and mask", "list", "list and mask"])
def test_reason_names_the_embeddings(kind, make_space):
    reason = explain(make_space(kind))["head"]["reason"]

    assert "embeddings of the actions in obs['avail_actions']" in reason


def test_reason_without_embeddings_names_none(make_space):
    assert "embeddings" not in explain(make_space("mask"))["head"]["reason"]


@pytest.mark.parametrize(
    ("kind", "rank"),
    [
        ("mask", "GENERIC"),
        ("embeddings", "SPECIFIC"),
        ("embeddings and mask", "SPECIFIC"),
        ("list", "SPECIFIC"),
        ("list and mask", "SPECIFIC"),
    ],
)
def test_embeddings_make_the_head_specific(kind, rank, make_space):
    candidate = explain(make_space(kind))["head"]["candidates"][0]

    assert candidate["rank"] == rank


def test_stages_with_a_mask_have_a_logit_per_action(make_space):
    shapes = explain_shapes(make_space("mask"))

    assert shapes["fcnet: hidden 1 (tanh)"] == [8]
    assert shapes["parametric: logits (linear)"] == [5]


@pytest.mark.parametrize("kind", ["embeddings", "embeddings and mask", "list", "list and mask"])
def test_stages_with_embeddings_have_dot_products(kind, make_space):
    shapes = explain_shapes(make_space(kind))

    assert shapes["fcnet: hidden 1 (tanh)"] == [8]
    assert shapes["parametric: intent (linear)"] == [3]  # the width of an embedding
    assert shapes["parametric: logits (dot products)"] == [5]


@pytest.mark.parametrize("kind", ["list", "list and mask"])
def test_stages_with_a_list_are_masked_by_its_length(kind, make_space):
    assert explain_shapes(make_space(kind))["parametric: masked"] == [5]


@pytest.mark.parametrize("kind", ["mask", "embeddings", "embeddings and mask"])
def test_stages_without_a_list_are_not_masked(kind, make_space):
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
def test_config_without_a_head_gives_its_reason(make_space, config, reason):
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


def with_embeddings(embeddings):
    return spaces.Dict({"avail_actions": embeddings, "x": spaces.Discrete(3)})


@pytest.mark.parametrize(
    ("obs", "actions", "config", "message"),
    [
        pytest.param(
            with_embeddings(spaces.Box(-1, 1, (4, 2))),
            FIVE_ACTIONS,
            {},
            r"obs\['avail_actions'\]: Box\(4, 2\) float32 is not a list of embeddings for"
            r" Discrete\(5\): expected a Box of shape \(5, E\), or Repeated\(Box\(E,\), 5\)\..*set"
            r" 'action_embeddings_key' to a different key",
            id="fewer-embeddings-than-actions",
        ),
        pytest.param(
            with_embeddings(spaces.Box(-1, 1, (5, 2, 2))),
            FIVE_ACTIONS,
            {},
            r"2, 2\) float32 is not a list",
            id="embeddings-of-rank-2",
        ),
        pytest.param(
            with_embeddings(Repeated(spaces.Box(-1, 1, (2, 2)), 5)),
            FIVE_ACTIONS,
            {},
            "Repeated.* is not a list",
            id="list-of-matrices",
        ),
        pytest.param(
            with_embeddings(Repeated(spaces.Box(-1, 1, (2,)), 6)),
            FIVE_ACTIONS,
            {},
            r"at most 6 embeddings for the 5 actions.*at most 5\.$",
            id="longer-list",
        ),
        pytest.param(
            with_embeddings(spaces.Sequence(spaces.Box(-1, 1, (2,)))),
            FIVE_ACTIONS,
            {"sequence_max_len": 7},
            r"at most 7 embeddings.*Set the model config key 'sequence_max_len' to 5",
            id="longer-sequence",
        ),
        pytest.param(
            with_embeddings(spaces.Box(-1, 1, (5, 2))),
            FIVE_ACTIONS,
            {"no_final_linear": True},
            "no_final_linear does not work with parametric.*Remove no_final_linear, or set "
            "use_param",
            id="no_final_linear-with-embeddings",
        ),
        pytest.param(
            spaces.Dict({"action_mask": spaces.MultiBinary(5), "x": spaces.Box(-1, 1, (2,))}),
            FIVE_ACTIONS,
            {"no_final_linear": True},
            "no_final_linear does not work with parametric actions",
            id="no_final_linear-with-a-mask",
        ),
        pytest.param(
            spaces.Dict({"x": spaces.Box(-1, 1, (2,))}),
            FIVE_ACTIONS,
            {"use_parametric": True},
            r"parametric: obs has neither an action mask \(action_mask_key='action_mask'\) nor, for"
            r" a Discrete action space, embeddings of the actions"
            r" \(action_embeddings_key='avail_actions'\); found Dict\(x: Box\(2,\) float32\) and"
            r" the action space Discrete\(5\)\. Remove use_parametric",
            id="use_parametric-without-mask-and-embeddings",
        ),
        pytest.param(
            spaces.Box(-1, 1, (2,)),
            FIVE_ACTIONS,
            {"use_parametric": True},
            "parametric: obs has neither",
            id="use_parametric-with-a-box",
        ),
        pytest.param(
            with_embeddings(spaces.Box(-1, 1, (5, 2))),
            spaces.Box(-1, 1, (5,)),
            {"use_parametric": True},
            "for a Discrete action space, embeddings",
            id="use_parametric-with-continuous-actions",
        ),
    ],
)
def test_unsuitable_observation_or_config_is_an_error(obs, actions, config, message):
    with pytest.raises(ConfigError, match=message):
        explain(obs, actions, config)


def test_observation_of_embeddings_alone_is_an_error():
    obs = spaces.Dict({"avail_actions": spaces.Box(-1, 1, (5, 2))})

    with pytest.raises(UnsupportedSpaceError, match="and leaves no entry") as caught:
        explain(obs)

    assert "parametric takes 'avail_actions' and leaves" in str(caught.value)


@pytest.mark.parametrize(
    ("num_outputs", "message"),
    [
        pytest.param(None, "features were requested", id="trunk"),
        pytest.param(7, "but 7 were requested", id="7-outputs-for-5-actions"),
    ],
)
def test_embeddings_need_one_output_per_action(
    framework, num_outputs, message, make_space, build_model
):
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


def test_get_model_v2_encodes_a_raw_space(framework, make_space):
    space = make_space("embeddings and mask")

    # As RLlib's models do, they take the space of the environment.
    plain = rlcatalog.ModelCatalog.get_model_v2(space, FIVE_ACTIONS, 5, {}, framework)
    with_head = rlcatalog.ModelCatalog.get_model_v2(
        space, FIVE_ACTIONS, 5, {"use_parametric": True}, framework
    )

    assert plain.obs_space.original_space == space
    assert with_head.obs_space.original_space == space
    assert type(with_head).__name__ == "ParametricActionsHead"


def test_custom_model_parametric_receives_the_whole_observation(
    framework, make_space, build_policy
):
    policy = build_policy(
        framework, make_space("embeddings and mask"), {"custom_model": "parametric"}
    )

    assert type(policy.model).__name__ == "ParametricActionsHead"
    assert policy.preprocessor.info.keys == ("action_mask", "avail_actions", "real_obs")


def test_custom_model_parametric_applies_the_mask(
    framework, make_space, draw_observations, build_policy, find_allowed
):
    space = make_space("embeddings and mask")
    policy = build_policy(framework, space, {"custom_model": "parametric"})
    observations = draw_observations(space, rows=300)

    step = policy.act(observations)

    is_allowed = find_allowed(observations)
    assert is_allowed[np.arange(300), step.action - 2].all()  # Discrete(5, start=2)
    np.testing.assert_array_equal(step.dist_inputs[~is_allowed], LOWEST)
