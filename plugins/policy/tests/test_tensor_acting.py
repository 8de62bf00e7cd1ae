"""`Policy.act` and its neighbours on tensors: results equal those on arrays, and refusals."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping

import numpy as np
import pytest
import torch
from gymnasium.spaces import (
    Box,
    Dict,
    Discrete,
    Graph,
    MultiBinary,
    MultiDiscrete,
    OneOf,
    Sequence,
    Text,
    Tuple,
)
from hypothesis import given, strategies as st
from properties import max_examples
from random_actions import nested
from tensor_batches import assert_same_as_tensors, sample_batch, to_tensors

import rlcatalog
from rlcatalog import Filter
from rlcatalog.errors import (
    ActionError,
    ModelContractError,
    NotServedError,
    ObservationError,
)
from rlcatalog.spaces import Repeated, Simplex

pytestmark = pytest.mark.usefixtures("one_thread")

THREE_FEATURES = Box(-1, 1, (3,), np.float32)
SMALL = {"fcnet_hiddens": [8]}
LSTM = {"use_lstm": True, "lstm_cell_size": 4}
LSTM_WITH_PAST = {**LSTM, "lstm_use_prev_action": True, "lstm_use_prev_reward": True}
ATTENTION = {
    "use_attention": True,
    "attention_dim": 8,
    "attention_memory_inference": 3,
    "attention_use_n_prev_actions": 2,
    "attention_use_n_prev_rewards": 2,
}
STEP_FIELDS = ("action", "raw_action", "logp", "value", "dist_inputs")
ROWS = 5


def build_policy(obs_space=THREE_FEATURES, action_space=None, **config):
    action_space = Discrete(4) if action_space is None else action_space
    return rlcatalog.build(obs_space, action_space, {**SMALL, **config}, "torch")


def act_on_both(policy, obs, *, seed=0, **options):
    """Return the step on arrays and the step on tensors, drawn from the same random numbers."""
    torch.manual_seed(seed)
    step = policy.act(obs, **options)
    torch.manual_seed(seed)
    tensor_step = policy.act(to_tensors(obs), **to_tensors(options))
    return step, tensor_step


def assert_same_step(tensor_step, step):
    for field in STEP_FIELDS:
        assert_same_as_tensors(getattr(tensor_step, field), getattr(step, field))


# --- spaces ---------------------------------------------------------------------------------------

ACTION_SPACES = {
    "discrete": Discrete(4),
    "discrete-with-start": Discrete(4, start=-2),
    "multi-discrete": MultiDiscrete([[2, 3], [4, 2]], start=[[1, 0], [0, 5]]),
    "multi-binary": MultiBinary((2, 2)),
    "box": Box(-2, 3, (2,), np.float32),
    "box-half-open": Box(-np.inf, 3, (2,), np.float32),
    "box-float64": Box(-2, 3, (2,), np.float64),
    "box-float16": Box(-2, 3, (2,), np.float16),
    "box-uint8": Box(0, 255, (2,), np.uint8),
    "box-uint16": Box(3, 900, (2,), np.uint16),
    "simplex": Simplex((3,)),
    "nested": Dict({"b": Discrete(3), "a": Tuple([MultiDiscrete([2, 2]), Box(0, 1, ())])}),
}
OBS_SPACES = {
    "box": THREE_FEATURES,
    "box-float64": Box(-1, 1, (3,), np.float64),
    "box-uint8": Box(0, 255, (3,), np.uint8),
    "discrete": Discrete(5, start=2),
    "multi-discrete": MultiDiscrete([[3, 4], [2, 2]], start=[[1, 0], [0, 5]]),
    "multi-binary": MultiBinary((2, 2)),
    "simplex": Simplex((3,)),
    "nested": Dict(
        {"z": Tuple([Box(-5, 5, (2, 2)), Discrete(2)]), "a": Discrete(3), "m": MultiBinary(2)}
    ),
}


@pytest.mark.parametrize("action_space", ACTION_SPACES.values(), ids=ACTION_SPACES)
@pytest.mark.parametrize("action_bounds", ["affine", "clip"])
def test_act_gives_the_same_actions_for_tensors(action_space, action_bounds):
    policy = build_policy(action_space=action_space, action_bounds=action_bounds)
    obs = sample_batch(THREE_FEATURES, rows=ROWS)

    step, tensor_step = act_on_both(policy, obs)

    assert_same_step(tensor_step, step)
    policy.check()


@pytest.mark.parametrize("obs_space", OBS_SPACES.values(), ids=OBS_SPACES)
@pytest.mark.parametrize("filter_name", ["NoFilter", "MeanStdFilter"])
@pytest.mark.filterwarnings("ignore::rlcatalog.errors.CatalogWarning")
def test_act_encodes_tensors_like_arrays(obs_space, filter_name):
    policy = build_policy(obs_space, observation_filter=filter_name)
    if policy.filter is not None:
        policy.preprocess(sample_batch(obs_space, rows=9, seed=1), update=True)
    obs = sample_batch(obs_space, rows=ROWS)

    step, tensor_step = act_on_both(policy, obs)

    assert_same_as_tensors(policy.preprocess(to_tensors(obs)), policy.preprocess(obs))
    assert_same_step(tensor_step, step)
    policy.check()


@max_examples(60)
@given(obs_space=nested, action_space=nested, seed=st.integers(0, 2**16))
@pytest.mark.filterwarnings("ignore")
def test_act_is_the_same_for_random_spaces(obs_space, action_space, seed):
    policy = build_policy(obs_space, action_space)
    obs = sample_batch(obs_space, rows=3, seed=seed)

    step, tensor_step = act_on_both(policy, obs, seed=seed)

    assert_same_step(tensor_step, step)
    policy.check()


@pytest.mark.parametrize("rows", [0, 1])
def test_act_takes_any_number_of_rows(rows):
    policy = build_policy(Dict({"a": Discrete(3), "b": THREE_FEATURES}), Box(-1, 1, (2,)))
    obs = {"a": torch.zeros(rows, dtype=torch.int64), "b": torch.zeros(rows, 3)}

    assert policy.act(obs).action.shape == (rows, 2)
    policy.check()


def test_act_takes_the_most_likely_action():
    policy = build_policy()
    obs = sample_batch(THREE_FEATURES, rows=ROWS)

    step = policy.act(to_tensors(obs), explore=False)

    assert_same_step(step, policy.act(obs, explore=False))


class LikeTensorDict(MutableMapping):
    """A mapping with a device that is no dict, as tensordict's TensorDict is."""

    def __init__(self, tensors):
        self.tensors = tensors
        self.shape = torch.Size([ROWS])
        self.device = torch.device("cpu")

    def __getitem__(self, key):
        return self.tensors[key]

    def __setitem__(self, key, value):
        self.tensors[key] = value

    def __delitem__(self, key):
        del self.tensors[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self):
        return len(self.tensors)


def test_act_takes_a_mapping_such_as_a_tensordict():
    space = Dict({"inner": Dict({"a": Discrete(3)}), "b": THREE_FEATURES})
    policy = build_policy(space)
    obs = sample_batch(space, rows=ROWS)
    tensors = to_tensors(obs)
    mapping = LikeTensorDict({"inner": LikeTensorDict(tensors["inner"]), "b": tensors["b"]})

    step = policy.act(mapping, explore=False)

    assert_same_step(step, policy.act(obs, explore=False))


def test_act_takes_a_tensordict():
    tensordict = pytest.importorskip("tensordict")
    space = Dict({"inner": Dict({"a": Discrete(3)}), "action_mask": MultiBinary(4)})
    policy = build_policy(space)
    obs = sample_batch(space, rows=ROWS)
    obs["action_mask"][:, 1] = 1
    tensors = tensordict.TensorDict(to_tensors(obs), batch_size=[ROWS])

    step = policy.act(tensors, explore=False)

    assert_same_step(step, policy.act(obs, explore=False))
    assert_same_as_tensors(policy.action_mask(tensors), policy.action_mask(obs))


# --- masks ----------------------------------------------------------------------------------------

MASKED_ACTIONS = {
    "discrete": (Discrete(4), MultiBinary(4)),
    "integers": (Discrete(4), Box(0, 1, (4,), np.int8)),
    "bits": (MultiBinary(2), MultiDiscrete([3, 3])),
    "multi-discrete": (MultiDiscrete([2, 3]), Tuple([MultiBinary(2), MultiBinary(3)])),
    "columns": (MultiDiscrete([2, 3]), MultiBinary(5)),
    "dict": (Dict({"a": Discrete(3), "b": Box(-1, 1, (2,))}), Dict({"a": MultiBinary(3)})),
}


def allow_first_values(mask):
    """Let the first value of each choice be allowed in a batch of masks."""
    if isinstance(mask, dict):
        return {key: allow_first_values(part) for key, part in mask.items()}
    if isinstance(mask, tuple):
        return tuple(map(allow_first_values, mask))
    mask[:, 0] = 1
    return mask


@pytest.mark.parametrize(
    ("action_space", "mask_space"), MASKED_ACTIONS.values(), ids=MASKED_ACTIONS
)
def test_masks_forbid_the_same_actions_in_tensors(action_space, mask_space):
    obs_space = Dict({"obs": THREE_FEATURES, "action_mask": mask_space})
    policy = build_policy(obs_space, action_space)
    obs = sample_batch(obs_space, rows=20)
    obs["action_mask"] = allow_first_values(obs["action_mask"])
    if mask_space == MultiBinary(5):
        obs["action_mask"][:, 2] = 1  # the first value of the second choice

    step, tensor_step = act_on_both(policy, obs)

    assert_same_step(tensor_step, step)
    assert_same_as_tensors(policy.action_mask(to_tensors(obs)), policy.action_mask(obs))
    policy.check()


def test_act_takes_masks_beside_the_observations():
    policy = build_policy()
    obs = sample_batch(THREE_FEATURES, rows=ROWS)
    mask = np.tile([True, False, True, False], (ROWS, 1))

    step, tensor_step = act_on_both(policy, obs, mask=mask)
    uploaded = policy.act(to_tensors(obs), mask=mask, explore=False)

    assert_same_step(tensor_step, step)
    assert (uploaded.action % 2 == 0).all()


def test_act_refuses_a_mask_of_another_shape():
    policy = build_policy()

    with pytest.raises(rlcatalog.errors.ActionMaskError, match=r"expected shape \(5, 4\)"):
        policy.act(torch.zeros(ROWS, 3), mask=torch.ones(ROWS, 3, dtype=torch.bool))


# --- a critic of its own --------------------------------------------------------------------------


def test_act_leaves_out_what_only_a_critic_sees():
    space = Dict({"a": THREE_FEATURES, "b": Dict({"c": Box(-1, 1, (2,)), "d": Discrete(3)})})
    groups = {"policy": ["a", "b.d"], "critic": ["a", "b.c", "b.d"]}
    policy = build_policy(space, critic={}, obs_groups=groups, observation_filter="MeanStdFilter")
    policy.preprocess(sample_batch(space, rows=9, seed=1), update=True)
    obs = sample_batch(space, rows=ROWS)
    visible = {"a": obs["a"], "b": {"d": obs["b"]["d"]}}

    step, tensor_step = act_on_both(policy, obs)
    visible_step, visible_tensor_step = act_on_both(policy, visible)

    assert_same_step(tensor_step, step)
    assert_same_step(visible_tensor_step, visible_step)
    assert visible_tensor_step.value is None


# --- memories -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "config",
    [LSTM, {"use_gru": True}, LSTM_WITH_PAST, ATTENTION, {**LSTM, "vf_share_layers": False}],
    ids=["lstm", "gru", "lstm-with-past", "attention", "separate-value"],
)
def test_states_are_the_same_over_random_restarts(config):
    policy = build_policy(action_space=Dict({"a": Discrete(3), "b": Box(-1, 1, (2,))}), **config)
    rng = np.random.default_rng(0)
    state = None
    tensor_state = None
    for step_number in range(30):
        obs = sample_batch(THREE_FEATURES, rows=ROWS, seed=step_number)
        reward = rng.normal(size=ROWS)
        torch.manual_seed(step_number)
        step = policy.act(obs, state, prev_reward=reward)
        torch.manual_seed(step_number)
        tensor_step = policy.act(
            to_tensors(obs), tensor_state, prev_reward=torch.from_numpy(reward)
        )
        assert_same_step(tensor_step, step)
        assert_same_as_tensors(tensor_step.state.memory, step.state.memory)
        assert_same_as_tensors(dict(tensor_step.state.views), dict(step.state.views))
        ended = rng.random(ROWS) < 0.3
        state = policy.restart(step.state, ended)
        tensor_state = policy.restart(tensor_step.state, torch.from_numpy(ended))
        assert_same_as_tensors(tensor_state.history.t, state.history.t)
    policy.check()


def test_act_begins_with_either_initial_state():
    policy = build_policy(**LSTM_WITH_PAST)
    obs = torch.zeros(ROWS, 3)

    steps = [
        policy.act(obs, state, explore=False)
        for state in (
            None,
            policy.initial_state(ROWS),
            policy.initial_state(ROWS, on_device=True),
        )
    ]

    for step in steps[1:]:
        assert torch.equal(step.dist_inputs, steps[0].dist_inputs)


def test_act_on_arrays_refuses_a_state_of_tensors():
    policy = build_policy(**LSTM)
    state = policy.act(torch.zeros(ROWS, 3)).state

    with pytest.raises(ModelContractError, match="found one of tensors"):
        policy.act(np.zeros((ROWS, 3), np.float32), state)


def test_restart_of_tensors_refuses_indices():
    policy = build_policy(**LSTM)
    state = policy.act(torch.zeros(ROWS, 3)).state

    with pytest.raises(ModelContractError, match="expected 5 booleans"):
        policy.restart(state, torch.tensor([0, 2]))


def test_stepper_restarts_states_of_tensors():
    policy = build_policy(**LSTM)
    obs = sample_batch(THREE_FEATURES, rows=2)
    stepper = policy.stepper(2)
    tensor_stepper = policy.stepper(2)
    stepper.step(obs, explore=False)
    tensor_stepper.step(to_tensors(obs), explore=False)

    step = stepper.step(obs, done=[True, False], explore=False)
    tensor_step = tensor_stepper.step(
        to_tensors(obs), done=torch.tensor([True, False]), explore=False
    )

    assert_same_step(tensor_step, step)
    assert_same_as_tensors(tensor_step.state.memory, step.state.memory)


def test_values_are_the_same_for_tensor_states():
    policy = build_policy(**LSTM_WITH_PAST)
    obs = sample_batch(THREE_FEATURES, rows=ROWS)
    step, tensor_step = act_on_both(policy, obs, prev_reward=np.zeros(ROWS))
    reward = np.ones(ROWS, np.float32)

    values = policy.values(obs, step.state, prev_reward=reward)
    tensor_values = policy.values(
        torch.from_numpy(obs), tensor_step.state, prev_reward=torch.from_numpy(reward)
    )

    assert_same_as_tensors(tensor_values, values)


# --- encoded observations and raw actions ---------------------------------------------------------


def test_act_encoded_on_the_device_gives_the_step_of_act():
    space = Dict({"obs": THREE_FEATURES, "action_mask": MultiBinary(4)})
    policy = build_policy(space, observation_filter="MeanStdFilter", **LSTM)
    obs = sample_batch(space, rows=ROWS)
    obs["action_mask"][:, 1] = 1
    tensors = to_tensors(obs)

    step = policy.act_encoded(
        policy.preprocess(tensors),
        mask=policy.action_mask(tensors),
        explore=False,
        on_device=True,
    )

    expected = policy.act(obs, explore=False)
    assert_same_step(step, expected)
    assert_same_as_tensors(step.state.memory, expected.state.memory)


@pytest.mark.parametrize("action_space", ACTION_SPACES.values(), ids=ACTION_SPACES)
def test_adapt_gives_the_same_actions_on_the_device(action_space):
    policy = build_policy(action_space=action_space)
    raw = policy.act(np.zeros((ROWS, 3), np.float32)).raw_action

    actions = policy.adapt(torch.from_numpy(raw), on_device=True)

    assert_same_as_tensors(actions, policy.adapt(raw))


def test_adapt_on_the_device_refuses_another_width():
    with pytest.raises(ActionError, match=r"expected shape \[B, 2\]"):
        build_policy(action_space=Box(-1, 1, (2,))).adapt(torch.zeros(3, 4), on_device=True)


def test_preprocess_returns_a_copy_of_tensors():
    # Simulators write their next observations into the same tensor.
    buffer = torch.ones(ROWS, 3)

    encoded = build_policy().preprocess(buffer)
    buffer.zero_()

    assert (encoded == 1).all()


def test_policy_trains_after_acting_in_inference_mode():
    # What is kept on the device must not be a tensor that training cannot use.
    policy = build_policy(action_space=Tuple([Discrete(3), Box(-1, 1, (2,))]), **LSTM)
    with torch.inference_mode():
        step = policy.act(torch.zeros(4, 3))
    batch = {
        "obs": torch.zeros(4, 3),
        "raw_action": step.raw_action.clone(),
        "restarts": torch.tensor([True, False, True, False]),
        "seq_lens": 2,
    }

    evaluation = policy.evaluate(batch)
    (evaluation.logp.sum() + evaluation.value.sum()).backward()

    assert all(weight.grad is not None for weight in policy.model.parameters())


# --- refusals -------------------------------------------------------------------------------------


class Offset(Filter):
    """Adds one; it has no tensor form."""

    def __call__(self, encoded, *, update=False):
        return encoded + 1


WITHOUT_TENSOR_FORM = {
    "sequence": Sequence(Discrete(3), stack=True),
    "repeated": Repeated(Discrete(3), 4),
    "text": Text(4),
    "one-of": OneOf([Discrete(2), Discrete(3)]),
    "graph": Graph(Box(-1, 1, (2,)), None),
}


@pytest.mark.filterwarnings("ignore::rlcatalog.errors.UnreadKeysWarning")
@pytest.mark.parametrize("space", WITHOUT_TENSOR_FORM.values(), ids=WITHOUT_TENSOR_FORM)
def test_spaces_of_varying_size_refuse_tensors(space):
    sizes = {"sequence_max_len": 3, "graph_max_nodes": 3, "graph_max_edges": 3}
    policy = build_policy(Dict({"s": space, "x": THREE_FEATURES}), **sizes)

    with pytest.raises(NotServedError, match=r"obs\['s'\]: \w+ .* has no tensor form"):
        policy.act({"s": torch.zeros(2, 3), "x": torch.zeros(2, 3)})


def test_one_of_actions_refuse_tensors():
    policy = build_policy(action_space=OneOf([Discrete(2), Discrete(3)]))

    with pytest.raises(NotServedError, match=r"OneOfCodec .* has no tensor form"):
        policy.act(torch.zeros(2, 3))


def test_filters_without_a_tensor_form_refuse_tensors():
    policy = build_policy()
    policy.filter = Offset(policy.preprocessor, {})

    with pytest.raises(NotServedError, match="Offset has no tensor form"):
        policy.act(torch.zeros(2, 3))


def test_frozen_policies_refuse_tensors():
    with pytest.raises(NotServedError, match="a frozen policy takes arrays"):
        build_policy().freeze().act(torch.zeros(1, 3))


def test_tensorflow_policies_refuse_tensors():
    policy = rlcatalog.build(THREE_FEATURES, Discrete(4), SMALL, "tf")

    with pytest.raises(NotServedError, match="'tf', takes arrays"):
        policy.act(torch.zeros(1, 3))


def test_steppers_refuse_tensors_in_the_mode_next_step():
    stepper = build_policy().stepper(2, autoreset="next_step")

    with pytest.raises(NotServedError, match="'next_step'"):
        stepper.step(torch.zeros(2, 3))


def test_act_refuses_tensors_on_another_device():
    with pytest.raises(ObservationError, match=r"device, 'cpu'; found one on 'meta'.*policy\.to"):
        build_policy().act(torch.zeros(2, 3, device="meta"))


def test_evaluate_refuses_tensors_on_another_device():
    policy = build_policy()
    raw_action = torch.zeros(2, 1, dtype=torch.int64, device="meta")

    with pytest.raises(ObservationError, match="'cpu'; found one on 'meta'"):
        policy.evaluate({"obs": torch.zeros(2, 3), "raw_action": raw_action}, check=False)


@pytest.mark.parametrize(
    ("space", "dtype"),
    [
        (Discrete(3), torch.float32),
        (MultiDiscrete([2, 2]), torch.float64),
        (Box(0, 255, (3,), np.uint8), torch.float32),
        (MultiBinary(3), torch.bfloat16),
    ],
    ids=["discrete", "multi-discrete", "uint8", "multi-binary"],
)
def test_act_refuses_floats_for_integers(space, dtype):
    tensor = torch.zeros(2, *space.shape, dtype=dtype)

    with pytest.raises(ObservationError, match=f"dtype {str(dtype).removeprefix('torch.')}"):
        build_policy(space).act(tensor)


def test_act_takes_other_dtypes_that_arrays_may_have():
    policy = build_policy(Dict({"d": Discrete(3, start=1), "x": THREE_FEATURES}))
    obs = {"d": np.array([1, 3], np.int8), "x": np.array([[1, 0, 1]] * 2, np.int32)}

    step, tensor_step = act_on_both(policy, obs)

    assert_same_step(tensor_step, step)


@pytest.mark.parametrize(
    ("obs", "message"),
    [
        ({"a": torch.zeros(2, 3)}, r"found one with the keys \['a'\]"),
        ({"a": torch.zeros(2, 3), "b": torch.zeros(3, 2)}, r"obs\['b'\]: .* with 2 rows"),
        ({"a": torch.zeros(2, 3), "b": np.zeros((2, 2), np.float32)}, "found ndarray"),
    ],
    ids=["missing-key", "fewer-rows", "array"],
)
def test_act_refuses_tensors_in_another_structure(obs, message):
    policy = build_policy(Dict({"a": Box(-1, 1, (3,)), "b": Box(-1, 1, (2,))}))

    with pytest.raises(ObservationError, match=message):
        policy.act(obs)
