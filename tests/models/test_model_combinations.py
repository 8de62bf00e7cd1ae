"""Models, memories, spaces and options: every pair that may meet, in both frameworks, weights
copied over.

Crosses: policy, fcnet, visionnet, complex_input, lstm, attention.
"""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
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

#: What is refused, and why: the whole table.
REFUSED = [
    (
        "complex_input",
        "no_final_linear",
        lambda c: (
            MODEL_OF.get(c["obs"]) == "complex_input"
            and c["no_final_linear"]
            and not c["post_fcnet_hiddens"]
            and c["memory"] == "none"
        ),
        "post_fcnet_hiddens",
    ),
    (
        "a head",
        "no_final_linear",
        lambda c: "autoregressive" in c["action"] and c["no_final_linear"],
        "computes logits and context in linear layers",
    ),
]


def config_of(case):
    options = {key: case[key] for key in list(FACTORS)[3:]}
    if case["obs"] == "image" and case["observation_filter"] != "NoFilter":
        options["filter_include"] = ["obs"]
    return {**SMALL, **options, **MEMORIES[case["memory"]], **ACTIONS[case["action"]][1]}


def spaces_of(case):
    return OBS[case["obs"]], ACTIONS[case["action"]][0]


def label(case):
    flags = "".join(
        key[0]
        for key in ("vf_share_layers", "no_final_linear", "_disable_action_flattening")
        if case[key]
    )
    parts = (
        case["obs"],
        case["action"],
        case["memory"],
        flags,
        case["post_fcnet_hiddens"],
        case["observation_filter"],
    )
    return "-".join(map(str, parts))


#: Where there is nothing to filter, a filter warns.
UNFILTERED = ("discrete", "repeated images")


def valid(case):
    if case["observation_filter"] != "NoFilter" and case["obs"] in UNFILTERED:
        return False
    return not any(refuses(case) for _, _, refuses, _ in REFUSED)


#: In `make test` every value occurs, and many of the pairs; `make attack` runs the rest.
PAIRWISE = pairwise(FACTORS, valid)
KEPT = covering(
    [list(map(str, case.values())) for case in PAIRWISE], slow=("attention", "attention, past")
)
CASES = [
    case if i in KEPT else pytest.param(case, marks=pytest.mark.attack)
    for i, case in enumerate(PAIRWISE)
]


def array(x):
    return np.asarray(x.detach() if hasattr(x, "detach") else x)


def played(policy, obs, steps, explore=False):
    """Act for some steps from the start and return the steps."""
    state, found = None, []
    for t in range(steps):
        found.append(
            policy.act(
                [row[t] for row in obs],
                state,
                prev_reward=np.full(len(obs), 0.1 * t),
                explore=explore,
            )
        )
        state = found[-1].state
    return found


@pytest.mark.parametrize("case", CASES, ids=label)
def test_every_pair_of_options_works_alike_in_both_frameworks(case):
    obs_space, action_space = spaces_of(case)
    obs_space.seed(0)
    rows, steps = 2, 3
    obs = [[obs_space.sample() for _ in range(steps)] for _ in range(rows)]
    policies = {
        fw: rlcatalog.build(obs_space, action_space, config_of(case), fw) for fw in ("torch", "tf")
    }
    for policy in policies.values():
        policy.preprocess([o for row in obs for o in row], update=True)  # the filters see the same
    chosen = policies["torch"].explain().as_dict()
    assert chosen["model"]["chosen"] == MODEL_OF.get(case["obs"], "fcnet")
    assert (chosen["memory"]["chosen"] or "none") == case["memory"].split(",")[0]
    # Weights go across and back, under the same names and in the same order.
    weights = policies["torch"].model.get_weights()
    assert list(weights) == list(policies["tf"].model.get_weights())
    stages = policies["torch"].resolution.shapes
    assert all(stage.weights is not None and stage.whole for stage in stages)
    assert sum(stage.weights for stage in stages) == sum(array.size for array in weights.values())
    policies["tf"].model.set_weights(weights)
    for name, value in policies["tf"].model.get_weights().items():
        np.testing.assert_array_equal(value, weights[name])
    found = {framework: played(policy, obs, steps) for framework, policy in policies.items()}
    for ours, theirs in zip(found["torch"], found["tf"], strict=True):
        for name in ("dist_inputs", "value", "logp", "raw_action"):
            first, second = getattr(ours, name), getattr(theirs, name)
            assert first.shape[0] == rows
            assert first.dtype == second.dtype
            np.testing.assert_allclose(first, second, rtol=1e-4, atol=1e-5, err_msg=name)
        memories = [step.state.memory if step.state else () for step in (ours, theirs)]
        for first, second in zip(*memories, strict=True):
            np.testing.assert_allclose(first, second, rtol=1e-4, atol=1e-5)
        single = [action_space.contains(one) for one in unbatched(action_space, ours.action, rows)]
        assert all(single)
    # One pass over the sequences scores the steps as acting did, and reaches every weight.
    for framework, policy in policies.items():
        # The likeliest action gives a mean no gradient.
        taken = played(policy, obs, steps, explore=True)
        evaluation, gradients = trained(framework, policy, taken, obs)
        expected = np.stack([step.logp for step in taken], axis=1).reshape(-1)
        np.testing.assert_allclose(array(evaluation.logp), expected, rtol=1e-3, atol=1e-4)
        assert array(evaluation.value).shape == array(evaluation.entropy).shape == (rows * steps,)
        assert set(gradients) == set(policy.model.trainable_variables(as_dict=True))
        silent = [
            name
            for name, gradient in gradients.items()
            if gradient is None or not np.any(array(gradient))
        ]
        assert silent == []


def unbatched(space, action, rows):
    """Yield the single actions of a batch."""
    if isinstance(space, Dict):
        parts = {
            key: list(unbatched(child, action[key], rows)) for key, child in space.spaces.items()
        }
        yield from ({key: parts[key][i] for key in parts} for i in range(rows))
    elif isinstance(space, Tuple):
        parts = [list(unbatched(child, action[k], rows)) for k, child in enumerate(space.spaces)]
        yield from (tuple(part[i] for part in parts) for i in range(rows))
    else:
        yield from (action[i] for i in range(rows))


def rows_of(steps, pick):
    """Return what `pick` takes of each step, row after row: [rows * steps, ...]."""

    def joined(values):
        first = values[0]
        if isinstance(first, dict):
            return {key: joined([value[key] for value in values]) for key in first}
        if isinstance(first, tuple):
            return tuple(joined(list(parts)) for parts in zip(*values, strict=True))
        stacked = np.stack(values, axis=1)
        return stacked.reshape(-1, *stacked.shape[2:])

    return joined([pick(step) for step in steps])


def trained(framework, policy, steps, obs):
    batch = {
        "obs": policy.preprocess([o for row in obs for o in row]),
        "raw_action": rows_of(steps, lambda step: step.raw_action),
    }
    if steps[0].state is not None:
        batch["views"] = rows_of(steps, lambda step: step.state.seen) if steps[0].state.seen else {}
        batch["seq_lens"] = np.full(len(obs), len(steps), np.int32)
    variables = policy.model.trainable_variables(as_dict=True)
    noise = np.random.default_rng(1).normal(size=len(batch["raw_action"])).astype(np.float32)

    def loss(found):
        if framework == "torch":
            import torch

            return (found.logp * torch.from_numpy(noise)).sum() + found.value.square().sum()
        return tf.reduce_sum(found.logp * noise) + tf.reduce_sum(found.value**2)

    if framework == "torch":
        found = policy.evaluate(batch)
        policy.model.zero_grad(set_to_none=True)
        loss(found).backward()
        return found, {name: p.grad for name, p in variables.items()}
    with tf.GradientTape() as tape:
        found = policy.evaluate(batch)
        total = loss(found)
    return found, dict(zip(variables, tape.gradient(total, list(variables.values())), strict=True))


@pytest.mark.parametrize(
    ("who", "key", "refuses", "reason"), REFUSED, ids=[f"{who}: {key}" for who, key, *_ in REFUSED]
)
def test_what_is_refused_says_why(who, key, refuses, reason):
    """Each row of the table is refused with its reason, before anything is built; nothing else is
    (the test above).
    """
    base = {name: values[0] for name, values in FACTORS.items()}
    other = (
        {"obs": "dict with image"}
        if who == "complex_input"
        else {"action": "nested, autoregressive"}
    )
    case = {**base, **other, key: True}
    assert refuses(case)
    with pytest.raises(ConfigError, match=reason):
        rlcatalog.explain(*spaces_of(case), config_of(case))


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_two_models_of_one_config_share_nothing(framework):
    config = {**SMALL, **LSTM}
    first, second = (
        rlcatalog.build(OBS["dict with image"], Discrete(2), config, framework).model
        for _ in range(2)
    )
    theirs = second.get_weights()
    first.set_weights({name: value + 1 for name, value in first.get_weights().items()})
    for name, value in second.get_weights().items():
        np.testing.assert_array_equal(value, theirs[name])
