"""Pairs of models, memories, spaces and options, in both frameworks with equal weights.

Crosses: policy, fcnet, visionnet, complex_input, lstm, attention.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from builders import split_rows, to_array
from grids import covering
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple
from pairwise import pairwise

import rlcatalog
from rlcatalog.errors import ConfigError
from rlcatalog.spaces import Repeated

pytestmark = [
    pytest.mark.usefixtures("one_thread", "seeded"),
    # One config serves parts of every kind here.
    pytest.mark.filterwarnings("ignore::rlcatalog.errors.UnreadKeysWarning"),
]

IMAGE = Box(0, 255, (10, 10, 2), np.uint8)
OBS = {
    "vector": Box(-1, 1, (3,), np.float32),
    "discrete": Discrete(4),
    "image": IMAGE,
    "dict": Dict(
        {"a": Box(-1, 1, (2,), np.float32), "b": Tuple([Discrete(3), MultiDiscrete([2, 2])])}
    ),
    "dict with image": Dict(
        {"eye": IMAGE, "self": Tuple([Discrete(3), Box(-1, 1, (2,), np.float32)])}
    ),
    "repeated images": Dict({"seen": Repeated(IMAGE, 2), "hand": Repeated(Discrete(3), 3)}),
}
MODEL_OF = {
    "image": "visionnet",
    "dict with image": "complex_input",
    "repeated images": "complex_input",
}
PAST = Tuple(
    [Discrete(3), Dict({"aim": Box(-1, 1, (2,), np.float32), "grip": MultiDiscrete([2, 3])})]
)
ACTIONS = {
    "discrete": (Discrete(3, start=1), {}),
    "multi_discrete": (MultiDiscrete([3, 2]), {}),
    "box": (Box(-1, 1, (2,), np.float32), {}),
    "box, free_log_std": (Box(-1, 1, (2,), np.float32), {"free_log_std": True}),
    "box, beta": (Box(-1, 1, (2,), np.float32), {"custom_action_dist": "beta"}),
    "nested": (PAST, {}),
    "nested, autoregressive": (
        PAST,
        {"use_autoregressive": True, "autoregressive_hiddens": [4, 3]},
    ),
}
LSTM = {"use_lstm": True, "lstm_cell_size": 6}
ATTENTION = {
    "use_attention": True, "attention_dim": 8, "attention_num_heads": 2, "attention_head_dim": 4,
    "attention_memory_inference": 5, "attention_memory_training": 5,
    "attention_position_wise_mlp_dim": 8,
}  # fmt: skip
MEMORIES = {
    "none": {},
    "lstm": LSTM,
    "lstm, past": {**LSTM, "lstm_use_prev_action": True, "lstm_use_prev_reward": True},
    "attention": {**ATTENTION, "attention_num_transformer_units": 2},
    "attention, past": {
        **ATTENTION,
        "attention_use_n_prev_actions": 2,
        "attention_use_n_prev_rewards": 3,
    },
}
FACTORS = {
    "obs": list(OBS),
    "action": list(ACTIONS),
    "memory": list(MEMORIES),
    "vf_share_layers": [True, False],
    "no_final_linear": [False, True],
    "post_fcnet_hiddens": [[], [7]],
    "observation_filter": ["NoFilter", "MeanStdFilter"],
    "_disable_action_flattening": [False, True],
}
SMALL = {
    "fcnet_hiddens": [8],
    "fcnet_activation": "tanh",
    "post_fcnet_activation": "tanh",
    "conv_activation": "tanh",
}


def is_complex_input_without_last_layer(options):
    has_last_layer = options["post_fcnet_hiddens"] or options["memory"] != "none"
    is_complex_input = MODEL_OF.get(options["obs"]) == "complex_input"
    return is_complex_input and options["no_final_linear"] and not has_last_layer


def is_head_without_final_linear(options):
    return "autoregressive" in options["action"] and options["no_final_linear"]


class Refusal(NamedTuple):
    """A kind of combination that raises an error."""

    applies: Callable[[dict[str, Any]], bool]
    factors: dict[str, Any]  # of an example; the others have their first value
    message: str


#: All combinations that are refused.
REFUSALS = {
    "complex_input: no_final_linear": Refusal(
        is_complex_input_without_last_layer,
        {"obs": "dict with image", "no_final_linear": True},
        "post_fcnet_hiddens",
    ),
    "head: no_final_linear": Refusal(
        is_head_without_final_linear,
        {"action": "nested, autoregressive", "no_final_linear": True},
        "computes logits and context in linear layers",
    ),
}


def make_config(options):
    flags = {key: options[key] for key in list(FACTORS)[3:]}
    if options["obs"] == "image" and options["observation_filter"] != "NoFilter":
        flags["filter_include"] = ["obs"]
    _, action_config = ACTIONS[options["action"]]
    return {**SMALL, **flags, **MEMORIES[options["memory"]], **action_config}


def choose_spaces(options):
    action_space, _ = ACTIONS[options["action"]]
    return OBS[options["obs"]], action_space


def label(options):
    flags = ("vf_share_layers", "no_final_linear", "_disable_action_flattening")
    parts = [
        options["obs"],
        options["action"],
        options["memory"],
        "".join(flag[0] for flag in flags if options[flag]),
        options["post_fcnet_hiddens"],
        options["observation_filter"],
    ]
    return "-".join(map(str, parts))


#: A filter warns of observations without numbers.
UNFILTERED = ("discrete", "repeated images")


def is_valid(options):
    if options["observation_filter"] != "NoFilter" and options["obs"] in UNFILTERED:
        return False
    return not any(refusal.applies(options) for refusal in REFUSALS.values())


#: In `make test` every value occurs, and many of the pairs; `make attack` runs the rest.
PAIRWISE = pairwise(FACTORS, is_valid)
KEPT = covering(
    [list(map(str, options.values())) for options in PAIRWISE],
    slow=("attention", "attention, past"),
)
PAIRWISE_OPTIONS = [
    options if i in KEPT else pytest.param(options, marks=pytest.mark.slow)
    for i, options in enumerate(PAIRWISE)
]


ROWS = 2
STEPS = 3


def sample_episodes(obs_space):
    """Return an episode for each row: a list of observations, one per step."""
    obs_space.seed(0)
    return [[obs_space.sample() for _ in range(STEPS)] for _ in range(ROWS)]


def join_episodes(episodes):
    return [obs for episode in episodes for obs in episode]


def act_on_episodes(policy, episodes, explore=False):
    """Act on all episodes at once, from their start, and return the steps."""
    state = None
    steps = []
    for t in range(STEPS):
        obs = [episode[t] for episode in episodes]
        reward = np.full(ROWS, 0.1 * t)
        step = policy.act(obs, state, prev_reward=reward, explore=explore)
        steps.append(step)
        state = step.state
    return steps


# --- both frameworks ------------------------------------------------------------------------------


@pytest.mark.parametrize("options", PAIRWISE_OPTIONS, ids=label)
def test_pairs_of_options_agree_in_both_frameworks(options):
    obs_space, action_space = choose_spaces(options)
    config = make_config(options)
    torch_policy = rlcatalog.build(obs_space, action_space, config, "torch")
    tf_policy = rlcatalog.build(obs_space, action_space, config, "tf")
    episodes = sample_episodes(obs_space)
    for policy in (torch_policy, tf_policy):
        policy.preprocess(join_episodes(episodes), update=True)  # the filter learns from them

    check_chosen_parts(torch_policy, options)
    check_summary_counts_all_weights(torch_policy)
    check_weights_can_be_copied(torch_policy, tf_policy)
    torch_steps = act_on_episodes(torch_policy, episodes)
    tf_steps = act_on_episodes(tf_policy, episodes)
    check_steps_agree(torch_steps, tf_steps)
    for policy in (torch_policy, tf_policy):
        check_actions_are_legal(policy, episodes)
        check_evaluation_scores_steps_as_acting(policy, episodes)
        check_gradients_reach_every_weight(policy, episodes)


def check_chosen_parts(policy, options):
    explanation = policy.explain().as_dict()
    assert explanation["model"]["chosen"] == MODEL_OF.get(options["obs"], "fcnet")
    memory = options["memory"].split(",")[0]  # "lstm, past" is an LSTM
    assert (explanation["memory"]["chosen"] or "none") == memory


def check_weights_can_be_copied(source, target):
    """Copy weights, which have equal names in the same order in both frameworks."""
    weights = source.model.get_weights()
    assert list(weights) == list(target.model.get_weights())
    target.model.set_weights(weights)
    for name, value in target.model.get_weights().items():
        np.testing.assert_array_equal(value, weights[name])


def check_summary_counts_all_weights(policy):
    stages = policy.resolution.shapes
    assert all(stage.weights is not None and stage.whole for stage in stages)
    sizes = [array.size for array in policy.model.get_weights().values()]
    assert sum(stage.weights for stage in stages) == sum(sizes)


def check_steps_agree(torch_steps, tf_steps):
    for torch_step, tf_step in zip(torch_steps, tf_steps, strict=True):
        for name in ("dist_inputs", "value", "logp", "raw_action"):
            numbers, expected = getattr(tf_step, name), getattr(torch_step, name)
            assert len(expected) == ROWS
            assert numbers.dtype == expected.dtype
            np.testing.assert_allclose(numbers, expected, rtol=1e-4, atol=1e-5, err_msg=name)
        for part, expected in zip(memory_of(tf_step), memory_of(torch_step), strict=True):
            np.testing.assert_allclose(part, expected, rtol=1e-4, atol=1e-5)


def memory_of(step):
    return () if step.state is None else step.state.memory


def check_actions_are_legal(policy, episodes):
    for step in act_on_episodes(policy, episodes):
        for action in split_rows(policy.action_space, step.action, ROWS):
            assert policy.action_space.contains(action)


def check_evaluation_scores_steps_as_acting(policy, episodes):
    steps = act_on_episodes(policy, episodes, explore=True)
    evaluation = policy.evaluate(make_batch(policy, episodes, steps))

    logp_of_rows = np.stack([step.logp for step in steps], axis=1).reshape(-1)
    np.testing.assert_allclose(to_array(evaluation.logp), logp_of_rows, rtol=1e-3, atol=1e-4)
    assert to_array(evaluation.value).shape == (ROWS * STEPS,)
    assert to_array(evaluation.entropy).shape == (ROWS * STEPS,)


def check_gradients_reach_every_weight(policy, episodes):
    # It explores because the most likely action gives a mean no gradient.
    steps = act_on_episodes(policy, episodes, explore=True)
    gradients = compute_gradients(policy, make_batch(policy, episodes, steps))
    assert set(gradients) == set(policy.model.trainable_variables(as_dict=True))
    for name, gradient in gradients.items():
        assert gradient is not None, name
        assert np.any(to_array(gradient)), name


def join_rows(values):
    """Stack what each step has, `[ROWS, ...]`, into rows of sequences, `[ROWS * STEPS, ...]`."""
    first = values[0]
    if isinstance(first, dict):
        return {key: join_rows([value[key] for value in values]) for key in first}
    if isinstance(first, tuple):
        return tuple(join_rows(list(parts)) for parts in zip(*values, strict=True))
    stacked = np.stack(values, axis=1)
    return stacked.reshape(-1, *stacked.shape[2:])


def make_batch(policy, episodes, steps):
    batch = {
        "obs": policy.preprocess(join_episodes(episodes)),
        "raw_action": join_rows([step.raw_action for step in steps]),
    }
    if steps[0].state is not None:
        batch["seq_lens"] = np.full(ROWS, STEPS, np.int32)
        batch["views"] = {}
        if steps[0].state.views:
            batch["views"] = join_rows([step.state.views for step in steps])
    return batch


def compute_gradients(policy, batch):
    variables = policy.model.trainable_variables(as_dict=True)
    # Rows count differently, by random factors.
    factors = np.random.default_rng(1).normal(size=len(batch["raw_action"])).astype(np.float32)
    if policy.framework == "torch":
        import torch

        evaluation = policy.evaluate(batch)
        policy.model.zero_grad(set_to_none=True)
        loss = (evaluation.logp * torch.from_numpy(factors)).sum() + evaluation.value.square().sum()
        loss.backward()
        return {name: parameter.grad for name, parameter in variables.items()}
    with tf.GradientTape() as tape:
        evaluation = policy.evaluate(batch)
        loss = tf.reduce_sum(evaluation.logp * factors) + tf.reduce_sum(evaluation.value**2)
    return dict(zip(variables, tape.gradient(loss, list(variables.values())), strict=True))


# --- refusals, and separate models ----------------------------------------------------------------


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
def test_refused_combination_says_why(refusal):
    first_values = {name: values[0] for name, values in FACTORS.items()}
    options = {**first_values, **refusal.factors}
    assert refusal.applies(options)
    with pytest.raises(ConfigError, match=refusal.message):
        rlcatalog.explain(*choose_spaces(options), make_config(options))


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_models_of_one_config_share_no_weights(framework):
    config = {"fcnet_hiddens": [8], "use_lstm": True, "lstm_cell_size": 6}
    vector = Box(-1, 1, (3,), np.float32)
    first = rlcatalog.build(vector, Discrete(2), config, framework).model
    second = rlcatalog.build(vector, Discrete(2), config, framework).model
    weights_of_second = second.get_weights()

    first.set_weights({name: value + 1 for name, value in first.get_weights().items()})

    for name, value in second.get_weights().items():
        np.testing.assert_array_equal(value, weights_of_second[name])
