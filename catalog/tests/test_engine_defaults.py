"""Defaults that an engine gives to a lookup: they hold where the config is silent, and never stand
in the way.
"""

import warnings

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import rlcatalog
from rlcatalog import Catalog
from rlcatalog.errors import UnreadKeysWarning
from rlcatalog.plugins.discovery import scan
from rlcatalog_torch import FullyConnectedNetwork

OBS, ACTIONS = Box(-1, 1, (3,), np.float32), Discrete(2)
APART = {"vf_share_layers": False}
SMALL = {"fcnet_hiddens": [4]}


@pytest.fixture(scope="module")
def catalog():
    """A catalog of these tests' own."""
    return Catalog(scan(), environ={})


class Refusing(FullyConnectedNetwork):
    """Has no place for a value net of its own, and says so as it likes."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        assert model_config["vf_share_layers"], "shares all layers"
        super().__init__(obs_space, action_space, num_outputs, model_config, name)


def shares(policy):
    return not any(name.startswith("value_hidden") for name in policy.model.get_weights())


def test_it_holds_where_the_config_is_silent(catalog):
    policy = rlcatalog.build(OBS, ACTIONS, SMALL, "torch", defaults=APART, catalog=catalog)
    assert not shares(policy)
    assert shares(rlcatalog.build(OBS, ACTIONS, SMALL, "torch", catalog=catalog))
    found = catalog.resolve(OBS, ACTIONS, SMALL, "torch", defaults=APART)
    assert found.config.given == {**SMALL, **APART}
    assert found.config.explicit == SMALL


@pytest.mark.parametrize("asked", [True, False])
def test_a_given_key_wins_also_where_it_is_the_catalogs_default(catalog, asked):
    for own in (True, False):
        policy = rlcatalog.build(
            OBS,
            ACTIONS,
            {**SMALL, "vf_share_layers": asked},
            "torch",
            defaults={"vf_share_layers": own},
            catalog=catalog,
        )
        assert shares(policy) == asked


def test_nobody_is_warned_of_it(catalog):
    catalog.register_model(
        "deaf", type("Deaf", (FullyConnectedNetwork,), {}), reads=("free_log_std",)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = catalog.resolve(OBS, ACTIONS, {"custom_model": "deaf"}, "torch", defaults=APART)
    assert not found.unread
    with pytest.warns(UnreadKeysWarning, match="vf_share_layers"):
        catalog.resolve(OBS, ACTIONS, {"custom_model": "deaf", **APART}, "torch")


def test_it_gives_way_where_a_part_refuses_it(catalog):
    config = {**SMALL, "custom_model": Refusing}
    assert shares(rlcatalog.build(OBS, ACTIONS, config, "torch", defaults=APART, catalog=catalog))
    with pytest.raises(AssertionError, match="shares all layers"):
        rlcatalog.build(OBS, ACTIONS, {**config, **APART}, "torch", catalog=catalog)


def test_only_the_one_that_is_refused_gives_way(catalog):
    """A distribution over choices has no log standard deviations."""
    both = {**APART, "free_log_std": True}
    for defaults in (both, dict(reversed(both.items()))):
        policy = rlcatalog.build(OBS, ACTIONS, SMALL, "torch", defaults=defaults, catalog=catalog)
        assert not shares(policy)
        found = catalog.resolve(OBS, ACTIONS, SMALL, "torch", defaults=defaults)
        assert found.config.given == policy.resolution.config.given == {**SMALL, **APART}


def test_what_is_wrong_without_it_is_said(catalog):
    with pytest.raises(rlcatalog.errors.UnknownConfigKeyError, match="fcnet_hidens"):
        catalog.resolve(OBS, ACTIONS, {"fcnet_hidens": [4]}, "torch", defaults=APART)


def test_a_policy_is_saved_with_it(catalog, tmp_path):
    policy = rlcatalog.build(OBS, ACTIONS, SMALL, "torch", defaults=APART, catalog=catalog)
    policy.save(tmp_path)
    loaded = rlcatalog.load(tmp_path)
    obs = np.ones((2, 3), np.float32)
    ours, theirs = policy.act(obs, explore=False), loaded.act(obs, explore=False)
    np.testing.assert_array_equal(ours.value, theirs.value)
    assert not shares(loaded)


def test_lookups_with_and_without_it_are_remembered_apart(catalog):
    def lookup(**more):
        return catalog.resolve(OBS, ACTIONS, SMALL, "torch", **more)

    assert lookup() is lookup()
    assert lookup(defaults=APART) is lookup(defaults=APART)
    assert lookup() is not lookup(defaults=APART)
