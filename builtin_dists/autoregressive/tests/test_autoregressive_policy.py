"""The autoregressive head in policies: what it stands around, how it is chosen, and its errors."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
import tensorflow as tf
import torch
from autoregressive_policies import (
    OBS_SPACE,
    SMALL_MODEL,
    build_policy,
    distribution,
    random_observations,
    to_numpy,
    to_tensor,
    without_tracing,
)
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple

import rlcatalog
from rlcatalog import ModelCatalog, ViewRequirement
from rlcatalog.errors import ConfigError, ModelContractError, NotServedError, UnsupportedSpaceError
from rlcatalog_tf import TFModelV2
from rlcatalog_torch import Categorical, TorchModelV2

pytestmark = pytest.mark.twins

#: Has 3, 2 and 2 parameters.
TWO_CHOICES_AND_BOX = Tuple([Discrete(3), Discrete(2), Box(-1, 1, (1,))])
LSTM = {"use_lstm": True, "lstm_cell_size": 5}
ATTENTION = {
    "use_attention": True,
    "attention_dim": 8,
    "attention_head_dim": 4,
    "attention_memory_inference": 4,
    "attention_memory_training": 4,
}
#: Models that the head stands around.
MODELS = {
    "trunk": {},
    "separate value": {"vf_share_layers": False},
    "post_fcnet": {"post_fcnet_hiddens": [5]},
    "lstm": LSTM,
    "lstm with past": {**LSTM, "lstm_use_prev_action": True, "lstm_use_prev_reward": True},
    "lstm with separate value": {**LSTM, "vf_share_layers": False},
    "attention": ATTENTION,
    "attention with past": {
        **ATTENTION,
        "attention_use_n_prev_actions": 2,
        "attention_use_n_prev_rewards": 1,
    },
}


# --- around any model -----------------------------------------------------------------------------


def act_for_four_steps(policy):
    """Act in two sequences of four steps; return the batch to train on, and what acting returned:
    logp and value.
    """
    obs = random_observations(rows=8).reshape(2, 4, 3)
    steps = []
    state = None
    with without_tracing(policy):
        for t in range(4):
            step = policy.act(obs[:, t], state, prev_reward=np.full(2, 0.3 * t))
            steps.append(step)
            state = step.state

    def in_rows(arrays):
        stacked = np.stack(arrays, axis=1)
        return stacked.reshape(8, *stacked.shape[2:])

    batch = {
        "obs": obs.reshape(8, 3),
        "raw_action": in_rows([step.raw_action for step in steps]),
        "dist_inputs": in_rows([step.dist_inputs for step in steps]),
    }
    if state is not None:
        batch["seq_lens"] = np.array([4, 4], np.int32)
        batch["views"] = {
            name: in_rows([step.state.views[name] for step in steps]) for name in state.views
        }
    logp = in_rows([step.logp for step in steps])
    value = in_rows([step.value for step in steps])
    return batch, logp, value


@pytest.mark.grid
@pytest.mark.parametrize("model", MODELS)
def test_evaluate_scores_as_act_does_around_any_model(framework, model):
    policy = build_policy(TWO_CHOICES_AND_BOX, framework, **MODELS[model])
    batch, logp, value = act_for_four_steps(policy)

    evaluation = policy.evaluate(batch)

    np.testing.assert_allclose(to_numpy(evaluation.logp), logp, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(to_numpy(evaluation.value), value, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(to_numpy(evaluation.kl), 0, atol=1e-4)
    assert evaluation.entropy_kind == "exact"


def gradients_of(policy, batch, quantity):
    """Return the gradients of an evaluation's `logp` or `value`, by the names of the weights that
    it depends on.
    """
    weights = policy.model.trainable_variables(as_dict=True)
    variables = list(weights.values())
    if policy.framework == "torch":
        total = getattr(policy.evaluate(batch), quantity).sum()
        gradients = torch.autograd.grad(total, variables, allow_unused=True)
    else:
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(getattr(policy.evaluate(batch), quantity))
        gradients = tape.gradient(total, variables)
    named = zip(weights, gradients, strict=True)
    return {name: to_numpy(gradient) for name, gradient in named if gradient is not None}


@pytest.mark.grid
@pytest.mark.parametrize("model", MODELS)
def test_weights_have_gradients_around_any_model(framework, model):
    policy = build_policy(TWO_CHOICES_AND_BOX, framework, **MODELS[model])
    batch, _, _ = act_for_four_steps(policy)

    trained_weights = set()
    for quantity in ("logp", "value"):
        for name, gradient in gradients_of(policy, batch, quantity).items():
            if gradient.any():
                trained_weights.add(name)

    assert trained_weights == set(policy.model.trainable_variables(as_dict=True))


@pytest.mark.parametrize("memory", [{}, LSTM], ids=["none", "lstm"])
def test_value_trains_the_trunk_that_it_shares(framework, memory):
    policy = build_policy(TWO_CHOICES_AND_BOX, framework, **memory)
    batch, _, _ = act_for_four_steps(policy)

    gradients = gradients_of(policy, batch, "value")

    assert any(gradients[name].any() for name in gradients if name.startswith("trunk."))


def test_separate_value_shares_no_weight(framework):
    policy = build_policy(TWO_CHOICES_AND_BOX, framework, vf_share_layers=False)
    batch, _, _ = act_for_four_steps(policy)

    weights_of_logp = set(gradients_of(policy, batch, "logp"))
    weights_of_value = set(gradients_of(policy, batch, "value"))

    assert any(name.startswith("value_trunk.") for name in weights_of_value)
    assert weights_of_value.isdisjoint(weights_of_logp)


# --- custom trunks --------------------------------------------------------------------------------


def make_counting_trunk(framework):
    """Return the class of a trunk with one layer of `width` units that counts its runs, in a trace
    too.
    """
    base = TorchModelV2 if framework == "torch" else TFModelV2

    class CountingTrunk(base):
        #: View requirements to add.
        views: ClassVar = {}

        def __init__(self, *args, width=4):
            super().__init__(*args)
            if self.num_outputs is None:
                self.num_outputs = width
            if framework == "torch":
                self.layer = torch.nn.Linear(3, self.num_outputs)
                self.runs = torch.zeros(())
            else:
                self.layer = tf.keras.layers.Dense(self.num_outputs)
                self.runs = tf.Variable(0.0, trainable=False)
            self.view_requirements |= self.views

        def forward(self, input_dict, state, seq_lens):
            if framework == "torch":
                self.runs += 1
            else:
                self.runs.assign_add(1)
            return self.layer(input_dict["obs"]), state

    return CountingTrunk


def build_with_counting_trunk(framework, memory):
    """Build a policy over four choices, and return it with its trunk of width 7."""
    policy = build_policy(
        MultiDiscrete([3] * 4),
        framework,
        custom_model=make_counting_trunk(framework),
        custom_model_config={"width": 7},
        autoregressive_exact=0,
        **(LSTM if memory == "lstm" else {}),
    )
    trunk = policy.model.trunk.trunk if memory == "lstm" else policy.model.trunk
    assert trunk.num_outputs == 7
    return policy, trunk


@pytest.mark.parametrize("memory", ["none", "lstm"])
def test_trunk_runs_once_per_act(framework, memory):
    # Drawing takes four passes, one for each choice, but only through the head.
    policy, trunk = build_with_counting_trunk(framework, memory)
    obs = random_observations(rows=4)
    policy.act(obs)  # in TensorFlow, the first call traces and so runs the trunk twice
    runs_before = int(trunk.runs)

    policy.act(obs)

    assert int(trunk.runs) == runs_before + 1


def test_trunk_runs_once_per_evaluation(framework):
    policy, trunk = build_with_counting_trunk(framework, memory="none")
    obs = random_observations(rows=4)
    raw_action = policy.act(obs).raw_action
    runs_before = int(trunk.runs)

    policy.evaluate({"obs": obs, "raw_action": raw_action})

    assert int(trunk.runs) == runs_before + 1


@pytest.fixture
def policy_with_views(framework):
    """A policy whose trunk requires the previous action and the last three observations."""
    trunk = make_counting_trunk(framework)
    trunk.views = {
        "prev_actions": ViewRequirement("actions", shift=-1),
        "last": ViewRequirement("obs", shift="-2:0"),
    }
    return build_policy(TWO_CHOICES_AND_BOX, framework, custom_model=trunk)


def test_custom_trunk_gets_views_of_the_past(policy_with_views):
    obs = random_observations(rows=2)

    first = policy_with_views.act(obs)
    second = policy_with_views.act(obs, first.state)

    assert second.state.views["last"].shape == (2, 3, 3)  # rows, three observations of 3 values
    np.testing.assert_allclose(second.state.views["prev_actions"], first.raw_action)


def test_evaluate_with_views_of_the_past_scores_as_act_does(policy_with_views):
    obs = random_observations(rows=2)
    first = policy_with_views.act(obs)
    second = policy_with_views.act(obs, first.state)

    evaluation = policy_with_views.evaluate(
        {"obs": obs, "raw_action": second.raw_action, "views": second.state.views}
    )

    np.testing.assert_allclose(to_numpy(evaluation.logp), second.logp, rtol=1e-4, atol=1e-5)


def test_trunk_that_declares_a_wrong_width_is_an_error(framework):
    class WrongWidth(make_counting_trunk(framework)):
        def __init__(self, *args):
            super().__init__(*args)
            self.num_outputs = 9  # but the layer has 4 units

    space = MultiDiscrete([3, 2])

    with pytest.raises(ModelContractError, match="declared num_outputs=9") as caught:
        build_policy(space, framework, custom_model=WrongWidth).act(random_observations(rows=2))

    assert "WrongWidth declared" in str(caught.value)
    assert "its forward() returned 4" in str(caught.value)


# --- through the catalog --------------------------------------------------------------------------


def get_dist_and_model(framework, config, **options):
    """Call ModelCatalog's two methods for two choices, of three and of two values."""
    space = MultiDiscrete([3, 2])
    dist_class, size = ModelCatalog.get_action_dist(space, config, framework=framework)
    model = ModelCatalog.get_model_v2(OBS_SPACE, space, size, config, framework, **options)
    return dist_class, model


def test_model_interface_is_mixed_in(framework):
    class Judge:
        def judge(self):
            return self.value_function()

    _, model = get_dist_and_model(framework, SMALL_MODEL, model_interface=Judge)

    model({"obs": to_tensor(random_observations(rows=3), framework)})

    assert tuple(model.judge().shape) == (3,)  # one value for each observation


def test_catalog_counts_parameters_and_context(framework):
    config = {"use_autoregressive": True, "autoregressive_hiddens": [16]}
    space = MultiDiscrete([3, 2])

    dist_class, size = ModelCatalog.get_action_dist(space, config, framework=framework)

    # Logits of the two choices, and the context of 16 hidden units for each.
    assert size == 3 + 2 + 2 * 16
    assert dist_class.required_model_output_shape(space, config) == size


def test_number_of_inputs_is_that_of_the_catalog_of_the_config():
    class PairOfLogits(Categorical):
        @staticmethod
        def required_model_output_shape(action_space, model_config=None):
            return 2 * int(action_space.n)

    catalog = rlcatalog.Catalog()
    catalog.register_action_dist("pair", PairOfLogits)  # unknown to the default catalog
    config = {
        "use_autoregressive": True,
        "autoregressive_hiddens": [16],
        "custom_action_dist": {"action[0]": "pair"},
    }
    space = Tuple([Discrete(2), Discrete(3)])
    resolution = catalog.resolve(Box(-1, 1, (4,)), space, config, "torch")
    dist_class = resolution.dists.load("torch", resolution.config)

    size = dist_class.required_model_output_shape(space, resolution.config)

    assert size == resolution.num_outputs


def test_model_and_distribution_of_catalog_fit(framework):
    dist_class, model = get_dist_and_model(framework, {"use_autoregressive": True})

    inputs, _ = model({"obs": to_tensor(random_observations(rows=5), framework)})
    dist = dist_class(inputs, model)

    assert type(model).__name__ == "AutoregressiveModel"
    assert type(dist).__name__ == "AutoregressiveDistribution"
    assert tuple(dist.logp(dist.sample()).shape) == (5,)


def test_distribution_with_wrong_inputs_is_an_error(framework):
    dist_class, model = get_dist_and_model(framework, SMALL_MODEL)
    only_logits = np.zeros((7, 3 + 2), np.float32)  # without 4 hidden units for each choice

    with pytest.raises(ModelContractError, match=r"inputs \[B, 13\], found shape \(7, 5\)"):
        dist_class(to_tensor(only_logits, framework), model)


def test_model_with_wrong_num_outputs_is_an_error(framework):
    space = MultiDiscrete([3, 2])

    with pytest.raises(ModelContractError, match="num_outputs is 7, but") as caught:
        ModelCatalog.get_model_v2(OBS_SPACE, space, 7, SMALL_MODEL, framework)

    # The logits, and 4 hidden units for each choice.
    assert "needs 13. Pass" in str(caught.value)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"custom_action_dist": "autoregressive"}, "custom_action_dist names it"),
        ({"use_autoregressive": True}, "use_autoregressive is set"),
    ],
    ids=["custom_action_dist", "use_autoregressive"],
)
def test_config_chooses_the_head(framework, config, reason):
    config = {"fcnet_hiddens": [4], **config}
    policy = rlcatalog.build(OBS_SPACE, MultiDiscrete([3, 2]), config, framework)

    head = policy.explain().as_dict()["head"]
    assert head["chosen"] == "autoregressive"
    assert head["reason"] == reason
    assert hasattr(policy.model, "conditionals")


def explain_small_model(space, **config):
    return rlcatalog.explain(OBS_SPACE, space, {**SMALL_MODEL, **config}).as_dict()


def test_explanation_names_head_and_distributions_of_parts():
    space = Tuple([Discrete(3), Box(-1, 1, (1,))])

    explanation = explain_small_model(space, custom_action_dist={"action[1]": "beta"})

    assert explanation["action_dist"]["chosen"] == "autoregressive"
    assert explanation["head"]["chosen"] == "autoregressive"
    assert explanation["head"]["distribution"] == "rlcatalog-autoregressive"
    parts = {part["path"]: part["chosen"] for part in explanation["action_parts"]}
    assert parts == {"action": "multi_action", "action[0]": "categorical", "action[1]": "beta"}


def test_explanation_lists_stages_of_the_head():
    # Two choices with 3 and 2 logits, and 4 and 8 hidden units for each of them.
    explanation = explain_small_model(MultiDiscrete([3, 2]), autoregressive_hiddens=[4, 8])

    stages = {row["stage"]: row["shape"] for row in explanation["shapes"]}
    assert stages["autoregressive: value"] == []
    assert stages["autoregressive: hidden 1 of the conditionals, masked"] == [2 * 4]
    assert stages["autoregressive: hidden 2 of the conditionals, masked"] == [2 * 8]
    assert stages["autoregressive: changes of the logits, masked"] == [3 + 2]
    assert stages["autoregressive: logits of 2 parts, and context"] == [3 + 2 + 2 * 4]
    assert stages["autoregressive: inputs"] == [3 + 2 + 2 * 4]


def test_explanation_lists_config_keys_of_the_head():
    explanation = explain_small_model(MultiDiscrete([3, 2]))

    assert set(explanation["head"]["config_keys"]) >= {
        "use_autoregressive",
        "autoregressive_hiddens",
        "autoregressive_order",
    }


def test_explanation_says_why_the_head_is_not_chosen():
    explanation = rlcatalog.explain(OBS_SPACE, MultiDiscrete([3, 2])).as_dict()

    reasons = {
        candidate["name"]: candidate["reason"] for candidate in explanation["head"]["candidates"]
    }
    assert explanation["head"]["chosen"] is None
    assert reasons["autoregressive"] == "use_autoregressive is not set"
    assert explanation["action_dist"]["chosen"] == "multi_categorical"


# --- order of the parts ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("order", "paths"),
    [
        ([], ["action['arm'][0]", "action['arm'][1]", "action['leg']"]),
        ([2], ["action['leg']", "action['arm'][0]", "action['arm'][1]"]),
        ([np.int64(2)], ["action['leg']", "action['arm'][0]", "action['arm'][1]"]),
        (["action['arm'][1]"], ["action['arm'][1]", "action['arm'][0]", "action['leg']"]),
        (["leg", "arm"], ["action['leg']", "action['arm'][0]", "action['arm'][1]"]),
        (["action['arm'][1]", "arm"], ["action['arm'][1]", "action['arm'][0]", "action['leg']"]),
        (["action"], ["action['arm'][0]", "action['arm'][1]", "action['leg']"]),
    ],
    ids=str,
)
def test_order_is_given_by_number_path_or_key(order, paths):
    space = Dict({"arm": Tuple([Discrete(2), Discrete(3)]), "leg": Box(-1, 1, (2,))})

    policy = build_policy(space, autoregressive_order=order)

    parts = policy.dist_class.options["layout"].parts
    assert [part.path for part in parts] == paths


@pytest.mark.parametrize(("key", "values"), [("a", 2), ("ab", 3), ("a'", 4)])
def test_order_tells_similar_keys_apart(key, values):
    space = Dict({"a": Discrete(2), "ab": Discrete(3), "a'": Tuple([Discrete(4)])})

    policy = build_policy(space, autoregressive_order=[key])

    first_drawn = policy.dist_class.options["layout"].parts[0]
    assert first_drawn.counts == (values,)


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (Discrete(3), r"but Discrete\(3\) has 1\. Remove"),
        (Box(-1, 1, (4,)), r"but Box\(4,\) float32 has 1"),
        (Tuple([Discrete(3)]), r"has 1\. Remove use_autoregressive"),
    ],
    ids=["Discrete", "Box", "Tuple of one"],
)
def test_action_with_one_part_is_an_error(framework, space, message):
    with pytest.raises(UnsupportedSpaceError, match=message) as caught:
        rlcatalog.build(OBS_SPACE, space, SMALL_MODEL, framework)

    assert "action: autoregressive requires actions with several parts" in str(caught.value)


@pytest.mark.parametrize(
    ("order", "message"),
    [
        (["action[7]"], r"'action\[7\]' is not a part of the"),
        ([3], "autoregressive_order: 3 is not a part"),
        ([-1], "autoregressive_order: -1 is not a part"),
        ([1, "action[1]"], r"'action\[1\]' is named twice"),
    ],
    ids=["unknown path", "unknown number", "negative number", "twice"],
)
def test_wrong_order_is_an_error(framework, order, message):
    config = {**SMALL_MODEL, "autoregressive_order": order}

    with pytest.raises(ConfigError, match=message):
        rlcatalog.build(OBS_SPACE, MultiDiscrete([3, 2, 2]), config, framework)


def test_wrong_order_error_suggests_a_path():
    config = {**SMALL_MODEL, "autoregressive_order": ["action[7]"]}

    with pytest.raises(ConfigError, match=r"Did you mean 'action\[\d\]'\?") as caught:
        rlcatalog.build(OBS_SPACE, MultiDiscrete([3, 2, 2]), config)

    assert str(caught.value).startswith("autoregressive_order: ")
    assert "Parts: action[0], action[1], action[2]." in str(caught.value)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"no_final_linear": True}, "does not work with no_final_linear"),
        ({"free_log_std": True}, "autoregressive, for MultiDiscrete"),
    ],
    ids=["no_final_linear", "free_log_std"],
)
def test_incompatible_config_is_an_error(framework, config, message):
    with pytest.raises(ConfigError, match=message):
        rlcatalog.build(OBS_SPACE, MultiDiscrete([3, 2]), {**SMALL_MODEL, **config}, framework)


def test_distribution_of_the_whole_action_is_an_error(framework):
    config = {**SMALL_MODEL, "custom_action_dist": "slate_multi_categorical"}

    with pytest.raises(ConfigError, match="choose the parts' distributions by path") as caught:
        rlcatalog.build(OBS_SPACE, MultiDiscrete([3, 3]), config, framework)

    assert "use_autoregressive: the whole action has the distribution" in str(caught.value)
    assert "Slate" in str(caught.value)


def test_value_without_memory_is_an_error(framework):
    config = {**SMALL_MODEL, **LSTM, "vf_share_layers": False, "vf_memory": "none"}

    with pytest.raises(NotServedError, match="needs features of the same width") as caught:
        rlcatalog.build(OBS_SPACE, MultiDiscrete([3, 2]), config, framework)

    assert "vf_memory='none': AutoregressiveModel" in str(caught.value)
    assert "The memory's have 5, the trunk" in str(caught.value)


def test_distribution_without_a_model_is_an_error(framework):
    policy = build_policy(MultiDiscrete([3, 2]), framework)
    inputs = distribution(policy, random_observations(rows=2)).inputs

    with pytest.raises(ModelContractError, match=r"\(`conditionals`\), found NoneType"):
        policy.dist_class(inputs, None)


def test_distribution_with_another_model_is_an_error(framework):
    policy = build_policy(MultiDiscrete([3, 2]), framework)
    inputs = distribution(policy, random_observations(rows=2)).inputs
    independent = rlcatalog.build(OBS_SPACE, MultiDiscrete([3, 2]), {}, framework)

    with pytest.raises(ModelContractError, match="found FullyConnectedNetwork"):
        policy.dist_class(inputs, independent.model)
