"""Defaults of an engine (`defaults=`): they apply where the config sets nothing, and give way to a
model that does not support them.
"""

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

import rlcatalog
from rlcatalog import Catalog
from rlcatalog.errors import UnreadKeysWarning
from rlcatalog.plugins.discovery import scan
from rlcatalog_torch import FullyConnectedNetwork

THREE_FEATURES = Box(-1, 1, (3,), np.float32)
TWO_ACTIONS = Discrete(2)
SEPARATE_VALUE = {"vf_share_layers": False}
SMALL = {"fcnet_hiddens": [4]}


@pytest.fixture(scope="module")
def catalog():
    """A catalog of these tests' own."""
    return Catalog(scan(), environ={})


class SharesAllLayers(FullyConnectedNetwork):
    """A model that does not support a separate value net."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        assert model_config["vf_share_layers"], "shares all layers"
        super().__init__(obs_space, action_space, num_outputs, model_config, name)


class WithoutValueKey(FullyConnectedNetwork):
    """A model that is registered as reading only `free_log_std`."""


def has_shared_layers(policy):
    return not any(name.startswith("value_hidden") for name in policy.model.get_weights())


def test_default_applies_if_config_does_not_set_the_key(catalog):
    with_default = rlcatalog.build(
        THREE_FEATURES, TWO_ACTIONS, SMALL, "torch", defaults=SEPARATE_VALUE, catalog=catalog
    )
    without_default = rlcatalog.build(THREE_FEATURES, TWO_ACTIONS, SMALL, "torch", catalog=catalog)

    assert not has_shared_layers(with_default)
    assert has_shared_layers(without_default)


def test_default_is_given_but_not_explicit(catalog):
    resolution = catalog.resolve(
        THREE_FEATURES, TWO_ACTIONS, SMALL, "torch", defaults=SEPARATE_VALUE
    )

    assert resolution.config.given == SMALL | SEPARATE_VALUE
    assert resolution.config.explicit == SMALL


@pytest.mark.parametrize("share_layers", [True, False])
def test_config_overrides_default(catalog, share_layers):
    config = {"fcnet_hiddens": [4], "vf_share_layers": share_layers}
    defaults = {"vf_share_layers": not share_layers}

    policy = rlcatalog.build(
        Box(-1, 1, (3,)), Discrete(2), config, "torch", defaults=defaults, catalog=catalog
    )

    assert has_shared_layers(policy) == share_layers


def test_default_that_no_part_reads_does_not_warn(catalog):
    catalog.register_model("no_value_key", WithoutValueKey, reads=("free_log_std",))
    config = {"custom_model": "no_value_key"}

    # pytest makes any warning an error.
    resolution = catalog.resolve(
        THREE_FEATURES, TWO_ACTIONS, config, "torch", defaults={"vf_share_layers": False}
    )

    assert not resolution.unread


def test_config_key_that_no_part_reads_warns(catalog):
    catalog.register_model("no_value_key", WithoutValueKey, reads=("free_log_std",))
    config = {"custom_model": "no_value_key", **SEPARATE_VALUE}

    with pytest.warns(UnreadKeysWarning, match="vf_share_layers"):
        catalog.resolve(THREE_FEATURES, TWO_ACTIONS, config, "torch")


def test_default_that_the_model_rejects_is_left_out(catalog):
    config = {**SMALL, "custom_model": SharesAllLayers}

    policy = rlcatalog.build(
        THREE_FEATURES, TWO_ACTIONS, config, "torch", defaults=SEPARATE_VALUE, catalog=catalog
    )

    assert has_shared_layers(policy)


def test_config_key_that_the_model_rejects_is_an_error(catalog):
    config = {**SMALL, "custom_model": SharesAllLayers, **SEPARATE_VALUE}

    with pytest.raises(AssertionError, match="shares all layers"):
        rlcatalog.build(THREE_FEATURES, TWO_ACTIONS, config, "torch", catalog=catalog)


@pytest.mark.parametrize(
    "defaults",
    [
        # A categorical distribution has no log standard deviation.
        pytest.param({"vf_share_layers": False, "free_log_std": True}, id="rejected-last"),
        pytest.param({"free_log_std": True, "vf_share_layers": False}, id="rejected-first"),
    ],
)
def test_default_that_fits_stays_beside_a_rejected_one(catalog, defaults):
    policy = rlcatalog.build(
        THREE_FEATURES, TWO_ACTIONS, SMALL, "torch", defaults=defaults, catalog=catalog
    )
    resolution = catalog.resolve(THREE_FEATURES, TWO_ACTIONS, SMALL, "torch", defaults=defaults)

    assert not has_shared_layers(policy)
    assert policy.resolution.config.given == SMALL | SEPARATE_VALUE
    assert resolution.config.given == SMALL | SEPARATE_VALUE


def test_config_error_is_raised_beside_defaults(catalog):
    with pytest.raises(rlcatalog.errors.UnknownConfigKeyError, match="fcnet_hidens"):
        catalog.resolve(
            THREE_FEATURES, TWO_ACTIONS, {"fcnet_hidens": [4]}, "torch", defaults=SEPARATE_VALUE
        )


def test_saved_policy_keeps_defaults(catalog, tmp_path):
    defaults = {"vf_share_layers": False}
    policy = rlcatalog.build(
        THREE_FEATURES, TWO_ACTIONS, SMALL, "torch", defaults=defaults, catalog=catalog
    )
    policy.save(tmp_path)

    loaded = rlcatalog.load(tmp_path)

    obs = np.ones((2, 3), np.float32)
    value = policy.act(obs, explore=False).value
    np.testing.assert_array_equal(loaded.act(obs, explore=False).value, value)
    assert not has_shared_layers(loaded)


def test_lookups_with_and_without_defaults_are_cached_apart(catalog):
    def look_up(**options):
        return catalog.resolve(THREE_FEATURES, TWO_ACTIONS, SMALL, "torch", **options)

    assert look_up() is look_up()
    assert look_up(defaults=SEPARATE_VALUE) is look_up(defaults=SEPARATE_VALUE)
    assert look_up() is not look_up(defaults=SEPARATE_VALUE)
