"""What an exported policy says about its model config where packages are not installed."""

from __future__ import annotations

import msgspec
import pytest
from gymnasium.spaces import Box, Discrete

import rlcatalog


@pytest.fixture
def interface(tmp_path):
    """The interface of a file with the layers of rlcatalog-fcnet, whose config also has a key of
    rlcatalog-atari, a package of wrappers.
    """
    policy = rlcatalog.build(Box(-1, 1, (3,)), Discrete(2), {"fcnet_hiddens": [4]}, "torch")
    exported = policy.export(tmp_path / "policy.onnx")
    assert "rlcatalog-fcnet" in exported.versions
    return msgspec.structs.replace(exported, config={"fcnet_hiddens": [4], "framestack": 2})


@pytest.fixture
def without_packages(monkeypatch):
    """Look up as if rlcatalog-fcnet and rlcatalog-atari were not installed."""
    monkeypatch.setenv("RLCATALOG_DISABLE_PLUGINS", "rlcatalog-fcnet, rlcatalog-atari")
    rlcatalog.default_catalog.cache_clear()
    yield
    rlcatalog.default_catalog.cache_clear()


def test_config_for_wrappers_has_all_keys_of_installed_packages(interface):
    assert interface.config_for_wrappers() == interface.config


def test_config_for_wrappers_keeps_the_key_of_a_missing_wrapper(interface, without_packages):
    assert interface.config_for_wrappers() == {"framestack": 2}
    with pytest.raises(rlcatalog.errors.UnknownConfigKeyError, match="rlcatalog-atari"):
        rlcatalog.default_catalog().parse_config(interface.config_for_wrappers())
