"""The head in the catalog: around which parts it stands, what it shares with the value, what it
refuses.
"""

from __future__ import annotations

import importlib
from typing import ClassVar

import numpy as np
import pytest
import tensorflow as tf
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple

import rlcatalog
from rlcatalog import ModelCatalog, ViewRequirement
from rlcatalog.errors import ConfigError, ModelContractError, NotServedError, UnsupportedSpaceError
from rlcatalog_tf import TFModelV2
from rlcatalog_torch import TorchModelV2

pytestmark = pytest.mark.twins

PAIR = Tuple([Discrete(3), Discrete(2), Box(-1, 1, (1,))])
LSTM = {"use_lstm": True, "lstm_cell_size": 5}
ATTENTION = {
    "use_attention": True,
    "attention_dim": 8,
    "attention_head_dim": 4,
    "attention_memory_inference": 4,
    "attention_memory_training": 4,
}
AROUND = {
    "trunk": {},
    "value apart": {"vf_share_layers": False},
    "post_fcnet": {"post_fcnet_hiddens": [5]},
    "lstm": LSTM,
    "lstm, past": {**LSTM, "lstm_use_prev_action": True, "lstm_use_prev_reward": True},
    "lstm, value apart": {**LSTM, "vf_share_layers": False},
    "attention": ATTENTION,
    "attention, past": {
        **ATTENTION,
        "attention_use_n_prev_actions": 2,
        "attention_use_n_prev_rewards": 1,
    },
}


def gradients(policy, framework, pick, batch):
    """The gradient of the sum of what `pick` takes of an evaluation, by weight; None where there is
    no way.
    """
    variables = policy.model.trainable_variables(as_dict=True)
    if framework == "torch":
        found = torch.autograd.grad(
            pick(policy.evaluate(batch)).sum(), list(variables.values()), allow_unused=True
        )
    else:
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(pick(policy.evaluate(batch)))
        found = tape.gradient(total, list(variables.values()))
    return dict(zip(variables, found, strict=True))


@pytest.mark.grid
@pytest.mark.parametrize("around", AROUND)
def test_what_acting_drew_is_scored_alike_in_training_and_reaches_every_weight(
    ar, framework, around
):
    policy = ar.build(PAIR, framework, AROUND[around])
    obs, steps, state = ar.observations(8).reshape(2, 4, 3), [], None
    with ar.untraced(policy):
        for t in range(4):
            steps.append(policy.act(obs[:, t], state, prev_reward=np.full(2, 0.3 * t)))
            state = steps[-1].state

    def rows(pick):
        return np.stack([pick(step) for step in steps], axis=1).reshape(
            8, *pick(steps[0]).shape[1:]
        )

    batch = {
        "obs": obs.reshape(8, 3),
        "raw_action": rows(lambda step: step.raw_action),
        "dist_inputs": rows(lambda step: step.dist_inputs),
    }
    if state is not None:
        batch["seq_lens"] = np.array([4, 4], np.int32)
        batch["views"] = {
            name: rows(lambda step, name=name: step.state.seen[name]) for name in state.seen
        }
    found = policy.evaluate(batch)
    np.testing.assert_allclose(
        ar.array(found.logp), rows(lambda step: step.logp), rtol=1e-3, atol=1e-4
    )
    np.testing.assert_allclose(
        ar.array(found.value), rows(lambda step: step.value), rtol=1e-3, atol=1e-4
    )
    np.testing.assert_allclose(ar.array(found.kl), 0, atol=1e-4)
    assert found.entropy_kind == "exact"
    of_policy = gradients(policy, framework, lambda e: e.logp, batch)
    of_value = gradients(policy, framework, lambda e: e.value, batch)
    silent = [
        n
        for n in of_policy
        if all(g[n] is None or not np.any(ar.array(g[n])) for g in (of_policy, of_value))
    ]
    assert silent == []
    if around == "value apart":
        for name in of_policy:
            mine = name.startswith(("value_trunk.", "outputs.value"))
            assert (of_policy[name] is None) == mine, name
            assert (of_value[name] is None) != mine, name
        assert any(name.startswith("value_trunk.") for name in of_policy)
    else:
        shared = [n for n in of_policy if n.startswith("trunk.") and "logits" not in n]
        assert any(
            of_value[name] is not None and np.any(ar.array(of_value[name])) for name in shared
        )


def counting(framework):
    """A trunk of one layer that counts how often it runs, in a trace too."""
    base = TorchModelV2 if framework == "torch" else TFModelV2

    class Counting(base):
        views: ClassVar = {}

        def __init__(self, *args, width=4):
            super().__init__(*args)
            self.num_outputs = width if self.num_outputs is None else self.num_outputs
            if framework == "torch":
                self.layer, self.runs = torch.nn.Linear(3, self.num_outputs), 0
            else:
                self.layer = tf.keras.layers.Dense(self.num_outputs)
                self.runs = tf.Variable(0, trainable=False)
            self.view_requirements |= self.views

        def forward(self, input_dict, state, seq_lens):
            self.runs = self.runs + 1 if framework == "torch" else self.runs
            if framework == "tf":
                self.runs.assign_add(1)
            return self.layer(input_dict["obs"]), state

    return Counting


@pytest.mark.grid
@pytest.mark.parametrize("memory", ["none", "lstm"])
def test_the_trunk_runs_once_for_each_act_and_each_evaluation(ar, framework, memory):
    space = MultiDiscrete([3] * 4)  # four light passes
    config = {
        "custom_model": counting(framework),
        "custom_model_config": {"width": 7},
        "autoregressive_exact": 0,
    }
    policy = ar.build(space, framework, {**config, **(LSTM if memory == "lstm" else {})})
    trunk = policy.model.trunk if memory == "none" else policy.model.trunk.trunk
    assert trunk.num_outputs == 7
    obs, state = ar.observations(4), None
    step = policy.act(obs)  # traces
    for explore in (True, False):
        policy.act(obs, explore=explore)
    before = int(trunk.runs)
    for call in range(5):
        step = policy.act(obs, state, explore=call % 2 == 0)
        state = step.state
        assert int(trunk.runs) == before + call + 1
    batch = {"obs": obs, "raw_action": step.raw_action, "dist_inputs": step.dist_inputs}
    policy.evaluate({**batch, "seq_lens": [2, 2]} if memory == "lstm" else batch)
    assert int(trunk.runs) == before + 6


def test_a_custom_trunk_asks_for_views_of_the_past(ar, framework):
    cls = counting(framework)
    cls.views = {
        "prev_actions": ViewRequirement("actions", shift=-1),
        "last": ViewRequirement("obs", shift="-2:0"),
    }
    policy = ar.build(PAIR, framework, {"custom_model": cls})
    step = policy.act(ar.observations(2))
    again = policy.act(ar.observations(2), step.state)
    assert again.state.seen["last"].shape == (2, 3, 3)
    np.testing.assert_allclose(again.state.seen["prev_actions"], step.raw_action)
    found = policy.evaluate(
        {"obs": ar.observations(2), "raw_action": again.raw_action, "views": again.state.seen}
    )
    np.testing.assert_allclose(ar.array(found.logp), again.logp, rtol=1e-4, atol=1e-5)


def test_a_trunk_that_lies_about_its_width_is_named(ar, framework):
    cls = counting(framework)

    class Lying(cls):
        def __init__(self, *args):
            super().__init__(*args)
            self.num_outputs = 9

    with pytest.raises(
        ModelContractError, match=r"Lying declared num_outputs=9, but its forward\(\) returned 4"
    ):
        ar.build(PAIR, framework, {"custom_model": Lying}).act(ar.observations(2))


def test_an_interface_is_mixed_over_it(ar, framework):
    class Judging:
        """Adds a method to any model."""

        def judge(self):
            return self.value_function()

    config = {**ar.SMALL, "custom_action_dist": None}
    dist_class, size = ModelCatalog.get_action_dist(PAIR, config, framework=framework)
    model = ModelCatalog.get_model_v2(
        ar.OBS, PAIR, size, config, framework, model_interface=Judging
    )
    inputs, _ = model({"obs": ar.tensor(ar.observations(3), framework)})
    dist = dist_class(inputs, model)
    assert tuple(dist.logp(dist.sample()).shape) == tuple(model.judge().shape) == (3,)


def test_the_catalogs_two_calls_give_parts_that_fit(ar, framework):
    dist_class, size = ModelCatalog.get_action_dist(
        PAIR, {"use_autoregressive": True}, framework=framework
    )
    assert size == 3 + 2 + 2 + 3 * 16
    assert dist_class.required_model_output_shape(PAIR, {}) == size
    named = ModelCatalog.get_action_dist(PAIR, {}, "autoregressive", framework)
    assert named[1] == size
    model = ModelCatalog.get_model_v2(ar.OBS, PAIR, size, {"use_autoregressive": True}, framework)
    ar.randomise(model)
    module = importlib.import_module(f"rlcatalog_{framework}")
    assert type(model) is module.AutoregressiveModel
    inputs, _ = model({"obs": ar.tensor(ar.observations(5), framework)})
    assert tuple(inputs.shape) == (5, size)
    dist = dist_class(inputs, model)
    assert type(dist) is module.AutoregressiveDistribution
    drawn = dist.sample()
    np.testing.assert_allclose(
        ar.array(dist.sampled_action_logp()), ar.array(dist.logp(drawn)), rtol=1e-5
    )
    with pytest.raises(
        ModelContractError, match=rf"takes inputs \[B, {size}\], found shape \(5, 7\)"
    ):
        dist_class(inputs[:, :7], model)
    with pytest.raises(
        ModelContractError, match=rf"num_outputs is 7, but Tuple\(.*\) needs {size}\. Pass"
    ):
        ModelCatalog.get_model_v2(ar.OBS, PAIR, 7, {"use_autoregressive": True}, framework)


@pytest.mark.parametrize("named", [True, False], ids=["named", "asked for"])
def test_a_name_for_the_distribution_brings_the_head(ar, framework, named):
    config = {"custom_action_dist": "autoregressive"} if named else {"use_autoregressive": True}
    policy = rlcatalog.build(ar.OBS, PAIR, {"fcnet_hiddens": [4], **config}, framework)
    assert policy.resolution.component("head").name == "autoregressive"
    assert hasattr(policy.model, "conditionals")
    reason = policy.explain().as_dict()["head"]["reason"]
    assert reason == ("custom_action_dist names it" if named else "use_autoregressive is set")


NESTED = Dict(
    {
        "arm": Tuple([Discrete(2), MultiDiscrete([2, 2])]),
        "leg": Discrete(3),
        "toe": Box(-1, 1, (2,)),
    }
)
PATHS = [
    "action['arm'][0]",
    "action['arm'][1][0]",
    "action['arm'][1][1]",
    "action['leg']",
    "action['toe']",
]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ([], [0, 1, 2, 3, 4]),
        ([4, 0], [4, 0, 1, 2, 3]),
        (["action['leg']", 2], [3, 2, 0, 1, 4]),
        (["leg", "arm"], [3, 0, 1, 2, 4]),
        (["action['arm'][1][1]", "arm"], [2, 0, 1, 3, 4]),
        (["toe", "action['arm'][1]", 3], [4, 1, 2, 3, 0]),
        (["action"], [0, 1, 2, 3, 4]),
        ([np.int64(3)], [3, 0, 1, 2, 4]),
    ],
)
def test_the_order_is_given_by_number_path_or_key(ar, order, expected):
    policy = ar.build(NESTED, "torch", {"autoregressive_order": order})
    parts = policy.dist_class.options["layout"].parts
    assert [part.path for part in parts] == [PATHS[i] for i in expected]
    # The order of drawing is told by what depends on what: the last part's value moves no
    # parameter.
    dist, raw = ar.dist_of(policy, ar.observations(1)), np.zeros((1, 6), np.float32)
    before = ar.array(dist.params_given(ar.tensor(raw, "torch")))
    for place, column in zip(range(5), (0, 1, 2, 3, 4), strict=True):
        moved = raw.copy()
        moved[0, column] = 1
        after = ar.array(dist.params_given(ar.tensor(moved, "torch")))
        assert np.any(before != after) == (place != expected[-1]), place


def test_the_keys_of_a_dict_that_look_alike_are_told_apart(ar):
    space = Dict({"a": Discrete(2), "ab": Discrete(3), "a'": Tuple([Discrete(4)])})
    for key in space.spaces:
        policy = ar.build(space, "torch", {"autoregressive_order": [key]})
        first = policy.dist_class.options["layout"].parts[0]
        assert first.counts == ({"a": 2, "ab": 3, "a'": 4}[key],), key


REFUSED = {
    "one part": (
        Discrete(3),
        {},
        UnsupportedSpaceError,
        r"action: autoregressive requires actions with several parts .*, but Discrete\(3\) has 1\."
        r" Remove",
    ),
    "one box": (Box(-1, 1, (4,)), {}, UnsupportedSpaceError, r"but Box\(4,\) float32 has 1"),
    "tuple of one": (
        Tuple([Discrete(3)]),
        {},
        UnsupportedSpaceError,
        r"has 1\. Remove use_autoregressive",
    ),
    "unknown path": (
        PAIR,
        {"autoregressive_order": ["action[7]"]},
        ConfigError,
        r"autoregressive_order: 'action\[7\]' is not a part of the action\. Did you mean"
        r" 'action\[\d\]'\? Parts: action\[0\], action\[1\], action\[2\]\.",
    ),
    "unknown number": (
        PAIR,
        {"autoregressive_order": [3]},
        ConfigError,
        r"autoregressive_order: 3 is not a part",
    ),
    "negative number": (
        PAIR,
        {"autoregressive_order": [-1]},
        ConfigError,
        r"autoregressive_order: -1 is not a part",
    ),
    "twice": (
        PAIR,
        {"autoregressive_order": [1, "action[1]"]},
        ConfigError,
        r"'action\[1\]' is named twice",
    ),
    "no_final_linear": (
        PAIR,
        {"no_final_linear": True},
        ConfigError,
        "does not work with no_final_linear",
    ),
    "free_log_std": (
        PAIR,
        {"free_log_std": True},
        ConfigError,
        r"free_log_std trains .*; autoregressive, for Tuple",
    ),
    "another dist": (
        MultiDiscrete([3, 3]),
        {"custom_action_dist": "slate_multi_categorical"},
        ConfigError,
        r"use_autoregressive: the whole action has the distribution .*Slate.*choose the parts'"
        r" distributions by path",
    ),
    "value without lstm": (
        PAIR,
        {**LSTM, "vf_share_layers": False, "vf_memory": "none"},
        NotServedError,
        r"vf_memory='none': AutoregressiveModel needs features of the same width .* The memory"
        r"'s have 5, the trunk",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_says_why(ar, framework, case):
    space, config, kind, says = REFUSED[case]
    with pytest.raises(kind, match=says):
        rlcatalog.build(ar.OBS, space, {**ar.SMALL, **config}, framework)


def test_a_distribution_without_its_model_is_refused(ar, framework):
    policy = ar.build(PAIR, framework)
    inputs = ar.dist_of(policy, ar.observations(2)).inputs
    says = (
        r"needs the model that computed its inputs, with layers that connect the parts"
        r" \(`conditionals`\), found {}\."
    )
    with pytest.raises(ModelContractError, match=says.format("NoneType")):
        policy.dist_class(inputs)
    plain = rlcatalog.build(ar.OBS, PAIR, {"fcnet_hiddens": [4]}, framework).model
    with pytest.raises(ModelContractError, match=says.format("FullyConnectedNetwork")):
        policy.dist_class(inputs, plain)


def test_it_is_explained(ar):
    config = {
        **ar.SMALL,
        "autoregressive_hiddens": [4, 8],
        "custom_action_dist": {"action[2]": "beta"},
    }
    policy = rlcatalog.build(ar.OBS, PAIR, config)
    found = policy.explain().as_dict()
    assert found["action_dist"]["chosen"] == found["head"]["chosen"] == "autoregressive"
    assert found["head"]["distribution"] == "rlcatalog-autoregressive"
    assert [(part["path"], part["chosen"]) for part in found["action_parts"]] == [
        ("action", "multi_action"),
        ("action[0]", "categorical"),
        ("action[1]", "categorical"),
        ("action[2]", "beta"),
    ]
    stages = [
        (row["stage"], row["shape"])
        for row in found["shapes"]
        if row["stage"].startswith("autoreg")
    ]
    assert stages == [
        ("autoregressive: value", []),
        ("autoregressive: hidden 1 of the conditionals, masked", [12]),
        ("autoregressive: hidden 2 of the conditionals, masked", [24]),
        ("autoregressive: changes of the logits, masked", [3 + 2 + 2]),
        ("autoregressive: logits of 3 parts, and context", [3 + 2 + 2 + 12]),
        ("autoregressive: inputs", [3 + 2 + 2 + 12]),
    ]
    assert set(found["head"]["config_keys"]) >= {
        "use_autoregressive",
        "autoregressive_hiddens",
        "autoregressive_order",
    }
    plain = rlcatalog.explain(ar.OBS, PAIR).as_dict()
    assert plain["head"]["chosen"] is None
    assert ("autoregressive", "use_autoregressive is not set") in [
        (c["name"], c["reason"]) for c in plain["head"]["candidates"]
    ]
    assert plain["action_dist"]["chosen"] == "multi_action"
