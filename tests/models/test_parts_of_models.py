"""Parts of a model (trunk, memory, head, value) with their own weights: their names, moving their
weights between policies, freezing them, and groups for optimisers.

Crosses: catalog, policy, torch, tf.
"""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Tuple as TupleSpace

import rlcatalog
from rlcatalog.errors import ConfigError, ModelContractError, NotServedError
from rlcatalog.internals import ModelParts

VECTOR = Box(-1, 1, (3,), np.float32)
IMAGE = Box(0, 255, (12, 12, 3), np.uint8)
IMAGE_AND_VECTOR = Dict({"camera": IMAGE, "state": VECTOR})
MASKED = Dict({"action_mask": MultiBinary(2), "state": VECTOR})
TWO_ACTIONS = Discrete(2)
SMALL = {"fcnet_hiddens": [5]}
SEPARATE = {"vf_share_layers": False}
LSTM = {**SMALL, "use_lstm": True, "lstm_cell_size": 4}
FILTERS = {"conv_filters": [[2, 4, 4], [3, 3, 1]]}
CONVOLUTIONS = {**FILTERS, "fcnet_hiddens": [5]}

frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])


class Normalized(torch.nn.Module):
    """Module with batch statistics and dropout."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 4)
        self.norm = torch.nn.BatchNorm1d(4)
        self.dropout = torch.nn.Dropout(0.5)

    def forward(self, x):
        return self.dropout(self.norm(self.linear(x)))


def build(obs_space=VECTOR, action_space=TWO_ACTIONS, config=SMALL, framework="torch", **options):
    return rlcatalog.build(obs_space, action_space, config, framework, **options)


def rows_of(space, count=6):
    """Return random observations of a space, the same at each call."""
    space.seed(0)
    return [space.sample() for _ in range(count)]


def part_weights(policy, part):
    """Return a part's weights by their relative names."""
    weights = policy.model.get_weights()
    selection = ModelParts(policy.model).select(part, "test")
    return {name: weights[whole].copy() for name, whole in selection.names.items()}


def assert_same_weights(weights, other_weights):
    assert weights.keys() == other_weights.keys()
    for name, array in weights.items():
        assert np.array_equal(array, other_weights[name]), name


# --- the truth about a model's parts is autograd --------------------------------------------------


def weights_reached_from_value_alone(policy, obs_space):
    """Return the names of the weights that values depend on and logits do not, by autograd."""
    encoded = policy.preprocess(rows_of(obs_space))
    if policy.masks.key is not None:
        encoded[:, :2] = 1.0  # the mask comes first; every action is allowed
    inputs = {"obs": torch.from_numpy(encoded).float(), "is_training": True}
    states = [torch.as_tensor(part) for part in policy.memory.start(len(encoded))]
    lengths = torch.ones(len(encoded), dtype=torch.int32) if states else None
    outputs, _ = policy.model(inputs, states, lengths)
    values = policy.model.value_function()
    weights = dict(policy.model.named_parameters())

    def reached_from(result):
        gradients = torch.autograd.grad(
            result.sum(), list(weights.values()), retain_graph=True, allow_unused=True
        )
        names = zip(weights, gradients, strict=True)
        return {name for name, gradient in names if gradient is not None}

    return reached_from(values) - reached_from(outputs)


@pytest.mark.parametrize(
    ("obs_space", "action_space", "config"),
    [
        pytest.param(VECTOR, TWO_ACTIONS, SMALL, id="vector"),
        pytest.param(VECTOR, TWO_ACTIONS, {**SMALL, **SEPARATE}, id="vector-separate"),
        pytest.param(VECTOR, VECTOR, {**SMALL, "free_log_std": True}, id="free-log-std"),
        pytest.param(IMAGE, TWO_ACTIONS, {**FILTERS, **SEPARATE}, id="image-separate"),
        pytest.param(IMAGE_AND_VECTOR, TWO_ACTIONS, {**CONVOLUTIONS, **SEPARATE}, id="both"),
        pytest.param(MASKED, TWO_ACTIONS, SMALL, id="mask"),
        pytest.param(MASKED, TWO_ACTIONS, {**SMALL, **SEPARATE}, id="mask-separate"),
        pytest.param(VECTOR, TWO_ACTIONS, LSTM, id="lstm"),
        pytest.param(VECTOR, TWO_ACTIONS, {**LSTM, **SEPARATE}, id="lstm-separate"),
        pytest.param(
            VECTOR, TWO_ACTIONS, {**LSTM, **SEPARATE, "vf_memory": "none"}, id="value-memoryless"
        ),
        pytest.param(MASKED, TWO_ACTIONS, {**LSTM, **SEPARATE}, id="mask-lstm-separate"),
        pytest.param(
            VECTOR,
            TupleSpace([TWO_ACTIONS, TWO_ACTIONS]),
            {**SMALL, **SEPARATE, "use_autoregressive": True},
            id="autoregressive-separate",
        ),
        pytest.param(
            VECTOR,
            TWO_ACTIONS,
            {**SMALL, **SEPARATE, "use_attention": True, "attention_dim": 4},
            id="attention-separate",
        ),
        pytest.param(
            VECTOR, TWO_ACTIONS, {"custom_model": Normalized, **SEPARATE}, id="module-separate"
        ),
    ],
)
def test_value_parts_are_the_weights_that_only_values_reach(obs_space, action_space, config):
    policy = build(obs_space, action_space, config)

    of_value = set()
    for part in ModelParts(policy.model).main.values():
        if part.name == "value" or part.name.startswith("critic."):
            of_value |= set(part.names.values())

    parameters = set(dict(policy.model.named_parameters()))  # batch statistics have no gradients
    assert of_value & parameters == weights_reached_from_value_alone(policy, obs_space)


@frameworks
@pytest.mark.parametrize(
    ("obs_space", "config", "parts"),
    [
        (VECTOR, SMALL, {"trunk", "head", "value"}),
        (VECTOR, LSTM, {"trunk", "memory", "head", "value"}),
        (VECTOR, {**SMALL, **SEPARATE}, {"trunk", "head", "critic.trunk", "critic.value"}),
        (
            MASKED,
            {**LSTM, **SEPARATE},
            {"trunk", "memory", "head", "critic.trunk", "critic.memory", "critic.value"},
        ),
    ],
)
def test_part_names_partition_all_weights(framework, obs_space, config, parts):
    policy = build(obs_space, config=config, framework=framework)

    main = ModelParts(policy.model).main

    assert main.keys() == parts
    names = [name for part in main.values() for name in part.names.values()]
    assert sorted(names) == sorted(policy.model.get_weights())


def test_relative_names_do_not_depend_on_what_is_around_a_trunk():
    alone = build()
    others = [build(config=LSTM), build(MASKED), build(config={**LSTM, **SEPARATE})]

    expected = list(part_weights(alone, "trunk"))
    for policy in others:
        assert list(part_weights(policy, "trunk")) == expected
    assert list(part_weights(others[2], "critic.trunk")) == expected


def test_nets_for_leaves_are_parts_by_their_paths():
    policy = build(IMAGE_AND_VECTOR, config=CONVOLUTIONS)

    nets = ModelParts(policy.model).nets

    assert set(nets) == {"trunk[\"obs['camera']\"]", "trunk[\"obs['state']\"]"}


# --- load_part ------------------------------------------------------------------------------------


@frameworks
@pytest.mark.parametrize(
    ("obs_space", "action_space", "config"),
    [
        pytest.param(VECTOR, VECTOR, SMALL, id="box-actions"),
        pytest.param(VECTOR, TWO_ACTIONS, LSTM, id="lstm"),
        pytest.param(VECTOR, TWO_ACTIONS, {**SMALL, **SEPARATE}, id="separate"),
        pytest.param(MASKED, TWO_ACTIONS, SMALL, id="mask"),
    ],
)
def test_load_part_moves_trunk_bit_by_bit(framework, obs_space, action_space, config):
    source = build(framework=framework)
    policy = build(obs_space, action_space, config, framework)
    before = policy.model.get_weights()

    rlcatalog.load_part(policy, "trunk", source)

    assert_same_weights(part_weights(policy, "trunk"), part_weights(source, "trunk"))
    trunk = set(ModelParts(policy.model).main["trunk"].names.values())
    for name, array in policy.model.get_weights().items():
        if name not in trunk:
            assert np.array_equal(array, before[name]), name


def test_load_part_moves_trunk_to_critic():
    source = build()
    policy = build(config={**LSTM, **SEPARATE})

    rlcatalog.load_part(policy, "critic.trunk", source, from_part="trunk")

    assert_same_weights(part_weights(policy, "critic.trunk"), part_weights(source, "trunk"))


def test_load_part_moves_whole_critic():
    source = build(config={**LSTM, **SEPARATE})
    policy = build(action_space=VECTOR, config={**LSTM, **SEPARATE})

    rlcatalog.load_part(policy, "critic", source)

    assert_same_weights(part_weights(policy, "critic"), part_weights(source, "critic"))


def test_load_part_moves_net_of_leaf_to_other_observation():
    source = build(IMAGE_AND_VECTOR, config=CONVOLUTIONS)
    other_space = Dict({"camera": IMAGE, "speed": Box(-1, 1, (7,), np.float32)})
    policy = build(other_space, config=CONVOLUTIONS)
    part = "trunk[\"obs['camera']\"]"

    rlcatalog.load_part(policy, part, source)

    assert_same_weights(part_weights(policy, part), part_weights(source, part))


def test_load_part_reads_saved_folder_of_other_framework(tmp_path):
    source = build(framework="tf")
    source.save(tmp_path)
    policy = build(action_space=VECTOR)

    rlcatalog.load_part(policy, "trunk", tmp_path)

    assert_same_weights(part_weights(policy, "trunk"), part_weights(source, "trunk"))


def test_load_part_moves_statistics_of_filter():
    config = {**SMALL, "observation_filter": "MeanStdFilter"}
    source = build(config=config)
    source.preprocess(rows_of(VECTOR), update=True)
    policy = build(MASKED, config=config)

    rlcatalog.load_part(policy, "trunk", source)

    state = source.filter.get_state()
    moved = policy.filter.get_state()
    for name in ("n", "mean", "m2"):
        assert np.array_equal(moved[name], state[name])


@pytest.mark.parametrize(
    ("other_config", "message"),
    [
        ({**SMALL, "fcnet_activation": "relu"}, "fcnet_activation='tanh'"),
        ({**SMALL, "observation_filter": "MeanStdFilter"}, "observation_filter='NoFilter' here"),
        ({"custom_model": Normalized}, "rlcatalog-fcnet/fcnet here, but of"),
    ],
)
def test_load_part_names_other_component_or_key(other_config, message):
    policy = build()
    source = build(config=other_config)
    before = policy.model.get_weights()

    with pytest.raises(ConfigError, match="load_part: 'trunk'") as caught:
        rlcatalog.load_part(policy, "trunk", source)

    assert message in str(caught.value)
    assert_same_weights(policy.model.get_weights(), before)


def test_load_part_ignores_keys_of_other_layers():
    source = build(config={**SMALL, "fcnet_weights_initializer": "orthogonal"})
    policy = build(config={**SMALL, **SEPARATE})

    rlcatalog.load_part(policy, "trunk", source)

    assert_same_weights(part_weights(policy, "trunk"), part_weights(source, "trunk"))


def test_load_part_names_first_weight_that_differs():
    policy = build()
    source = build(Box(-1, 1, (4,), np.float32))

    with pytest.raises(ModelContractError, match=r"'hidden.layers.0.weight' has") as caught:
        rlcatalog.load_part(policy, "trunk", source)

    assert "float32 (5, 3) here, but float32 (5, 4) there" in str(caught.value)


def test_load_part_lists_parts_for_unknown_name():
    policy = build(config={**SMALL, **SEPARATE})

    with pytest.raises(ConfigError, match="no part 'value'") as caught:
        rlcatalog.load_part(policy, "value", policy)

    parts = "trunk, critic.trunk, head, critic.value, critic"
    assert f"Its parts: {parts}." in str(caught.value)


def test_load_part_refuses_statistics_among_others():
    config = {**SMALL, "observation_filter": "MeanStdFilter"}
    images = {**CONVOLUTIONS, "observation_filter": "MeanStdFilter"}
    source = build(IMAGE_AND_VECTOR, config=images)
    source.preprocess(rows_of(IMAGE_AND_VECTOR), update=True)
    two_vectors = Dict({"camera": IMAGE, "state": VECTOR, "other": VECTOR})
    policy = build(two_vectors, config=images)

    with pytest.raises(NotServedError, match="statistics of 0 observations here"):
        rlcatalog.load_part(policy, "trunk[\"obs['state']\"]", source)

    assert build(config=config).filter.get_state()["n"] == 0


# --- freezing -------------------------------------------------------------------------------------


@frameworks
def test_freeze_parts_leaves_only_other_weights_trainable(framework):
    policy = build(config={**LSTM, "freeze_parts": ["trunk"]}, framework=framework)

    trainable = set(policy.model.trainable_variables(as_dict=True))

    main = ModelParts(policy.model).main
    others = [set(main[part].names.values()) for part in ("memory", "head", "value")]
    assert trainable == set().union(*others)


@frameworks
@pytest.mark.parametrize("way", ["deepcopy", "pickle", "save", "make_model"])
def test_frozen_parts_survive(framework, way, tmp_path):
    policy = build(framework=framework)
    policy.freeze_parts("trunk")
    policy.freeze_parts("value")
    policy.unfreeze_parts("trunk")

    if way == "deepcopy":
        model = copy.deepcopy(policy).model
    elif way == "pickle":
        model = pickle.loads(pickle.dumps(policy)).model
    elif way == "save":
        policy.save(tmp_path)
        model = rlcatalog.load(tmp_path).model
    else:
        model = policy.make_model()

    frozen = set(ModelParts(model).main["value"].names.values())
    assert set(model.trainable_variables(as_dict=True)) == set(model.get_weights()) - frozen


def test_unfreeze_parts_keeps_weights_frozen_by_their_owner():
    module = Normalized()
    module.linear.bias.requires_grad_(False)
    policy = build(config={}, model=module)

    policy.freeze_parts("trunk")
    policy.unfreeze_parts()

    assert module.linear.weight.requires_grad
    assert not module.linear.bias.requires_grad


def test_frozen_part_keeps_batch_statistics_and_dropout_still():
    policy = build(config={"freeze_parts": ["trunk"]}, model=Normalized)
    module = policy.model.module
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    inputs = {"obs": torch.randn(64, 3), "is_training": True}

    policy.model.train()
    outputs, _ = policy.model(inputs, [], None)
    again, _ = policy.model(inputs, [], None)

    assert torch.equal(outputs, again)  # without dropout
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    policy.unfreeze_parts("trunk")
    policy.model.train()
    policy.model(inputs, [], None)
    assert not torch.equal(module.norm.running_mean, before["norm.running_mean"])


def test_frozen_keras_part_keeps_batch_statistics_and_dropout():
    keras = pytest.importorskip("tensorflow").keras
    layers = [keras.layers.Dense(4), keras.layers.BatchNormalization(), keras.layers.Dropout(0.5)]
    net = keras.Sequential(layers)
    policy = build(config={"freeze_parts": ["trunk"]}, framework="tf", model=net)
    before = policy.model.get_weights()
    inputs = {"obs": np.random.default_rng(0).normal(size=(64, 3)), "is_training": True}
    inputs["obs"] = inputs["obs"].astype(np.float32)

    outputs, _ = policy.model(inputs, [], None)
    again, _ = policy.model(inputs, [], None)

    assert np.array_equal(outputs, again)  # without dropout
    assert_same_weights(policy.model.get_weights(), before)
    policy.unfreeze_parts()
    policy.model(inputs, [], None)
    after = policy.model.get_weights()
    assert any(not np.array_equal(after[name], array) for name, array in before.items())


def test_freeze_parts_refuses_unknown_part_and_changes_nothing():
    policy = build()
    policy.freeze_parts("trunk")

    with pytest.raises(ConfigError, match="has no part 'trunck'") as caught:
        policy.freeze_parts("head", "trunck")

    assert "Did you mean 'trunk'?" in str(caught.value)
    assert policy.frozen_parts == ("trunk",)
    assert "outputs.logits.weight" in policy.model.trainable_variables(as_dict=True)


def test_unfreeze_parts_names_frozen_parts():
    policy = build(config={**SMALL, "freeze_parts": ["trunk"]})

    with pytest.raises(ConfigError, match="'head' is not frozen; frozen"):
        policy.unfreeze_parts("head")


# --- groups for optimisers ------------------------------------------------------------------------


def test_parameter_groups_give_each_part_its_rate():
    policy = build(config={**LSTM, "freeze_parts": ["memory"]})

    groups = policy.parameter_groups({"trunk": 1e-5})

    assert [group["name"] for group in groups] == ["trunk", "head", "value"]
    assert [group.get("lr") for group in groups] == [1e-5, None, None]
    trainable = [id(weight) for weight in policy.model.parameters() if weight.requires_grad]
    assert sorted(id(weight) for group in groups for weight in group["params"]) == sorted(trainable)


def test_parameter_groups_refuse_overlapping_parts():
    policy = build(config={**SMALL, **SEPARATE})

    with pytest.raises(ConfigError, match=r"'critic' and 'critic\.value' both"):
        policy.parameter_groups({"critic": 1e-5, "critic.value": 1e-4})
