"""What the distributions over choices take and refuse: forms of inputs, actions and options."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from gymnasium import spaces
from scipy.special import log_softmax

from rlcatalog import SpaceInfo
from rlcatalog.errors import ConfigError, ModelContractError
from rlcatalog_categorical.slates import Slates

RANDOM = np.random.default_rng(0)


def logits(rows, columns):
    return RANDOM.normal(size=(rows, columns)).astype(np.float32)


@pytest.mark.parametrize("module", ["categorical", "bernoulli", "gumbel", "multi"])
def test_inputs_may_be_arrays(kit, module):
    names = {"bernoulli": "Bernoulli", "gumbel": "GumbelSoftmax", "multi": "MultiCategorical"}
    cls = kit.load(names[module]) if module in names else _categorical(kit)
    options = {"input_lens": (2, 3)} if module == "multi" else {}
    inputs = logits(4, 5)
    made = [cls(given, **options) for given in (inputs, kit.tensor(inputs))]
    one, other = (kit.array(dist.deterministic_sample()) for dist in made)
    np.testing.assert_array_equal(one, other)
    scores = [kit.array(dist.logp(kit.tensor(one))) for dist in made]
    np.testing.assert_array_equal(*scores)


def _categorical(kit):
    return importlib.import_module(f"rlcatalog_categorical.{kit.framework}").Categorical


@pytest.mark.parametrize("lens", [(2, 3), (3, 3)], ids=["padded", "equal"])
def test_inputs_of_another_rank_or_width_are_refused(kit, lens):
    cls, total = kit.load("MultiCategorical"), sum(lens)
    for shape in ((4, total, 1), (total,), (4, total + 1), (4, 1, total)):
        with pytest.raises(
            ModelContractError, match=rf"input_lens .* requires inputs \[B, {total}\], found \("
        ):
            cls(kit.tensor(np.zeros(shape, np.float32)), input_lens=lens)


@pytest.mark.parametrize("rows", [2, 3, 5])
def test_actions_of_several_choices_are_one_per_row_of_the_inputs(kit, rows):
    dist = kit.load("MultiCategorical")(kit.tensor(logits(rows, 5)), input_lens=(2, 3))
    actions = np.zeros((rows, 2), np.int64)
    by_list = kit.array(dist.logp([kit.tensor(column) for column in actions.T]))
    np.testing.assert_array_equal(kit.array(dist.logp(kit.tensor(actions))), by_list)
    assert by_list.shape == (rows,)
    for wrong in (np.zeros((rows + 1, 2), np.int64), np.zeros((rows, 3), np.int64)):
        with pytest.raises(ModelContractError, match=rf"expected actions \[{rows}, 2\]"):
            dist.logp(kit.tensor(wrong))


def test_a_single_choice_may_be_a_list_of_one(kit):
    inputs = logits(4, 3)
    dist = kit.load("MultiCategorical")(kit.tensor(inputs), input_lens=(3,))
    values = np.array([2, 0, 1, 1])
    expected = log_softmax(inputs, axis=1)[np.arange(4), values]
    np.testing.assert_allclose(kit.array(dist.logp([kit.tensor(values)])), expected, rtol=1e-5)


def test_the_parts_of_several_choices_are_as_wide_as_these(kit):
    space = SpaceInfo.read(spaces.MultiDiscrete([2, 5, 3]), "action")
    cls = kit.load("MultiCategorical")
    parts = cls.parts(space, 10, {"input_lens": (2, 5, 3)})
    assert [(info.n, size) for info, _, size in parts] == [(2, 2), (5, 5), (3, 3)]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_the_temperature_of_the_config_is_the_distributions(kit, temperature):
    cls = kit.load("GumbelSoftmax")
    space = SpaceInfo.read(spaces.Discrete(3), "action")
    options = cls.options_for(space, {"gumbel_softmax_temperature": temperature})
    assert cls(kit.tensor(logits(2, 3)), **options).temperature == temperature


def test_slates_are_numbered_as_long_as_int64_holds_the_numbers():
    table = np.zeros((2, 62), np.int64)
    table[1, -1] = 1
    assert Slates(table, 2).codes.tolist() == [0, 1]
    table = np.concatenate([np.ones((1, 62), np.int64), table])
    assert Slates(table, 2).codes.tolist() == [0, 1, 2**62 - 1]
    with pytest.raises(ConfigError, match="slates of 63 out of 2 items cannot be numbered"):
        Slates(np.zeros((1, 63), np.int64), 2)
    with pytest.raises(ConfigError, match="slates of 1 out of 2 items cannot be numbered"):
        Slates([[2]], 2)
