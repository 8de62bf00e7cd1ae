"""Environments with the interface dm_env, which Shimmy converts."""

from __future__ import annotations

import sys

import gymnasium as gym
import pytest
from other_environments import Catch, OwnDmEnvironment, Suite, make_shimmy

from rlcatalog.catalog import make_env
from rlcatalog.errors import MissingExtraError, NotServedError, UnknownNameError


@pytest.fixture
def _shimmy(monkeypatch):
    """Shimmy, which registers environments when it is imported."""
    monkeypatch.setitem(sys.modules, "shimmy", make_shimmy())


@pytest.mark.usefixtures("_shimmy")
@pytest.mark.parametrize(
    ("env", "name"),
    [(Suite(), "DmControlCompatibilityV0"), (Catch(), "BSuiteCompatibilityV0")],
    ids=["dm_control", "bsuite"],
)
def test_environment_gets_the_class_for_its_package(env, name):
    adapted = make_env(env)

    assert type(adapted).__name__ == name
    assert adapted.env_inside is env


@pytest.mark.usefixtures("_shimmy")
def test_environment_of_another_package_is_refused():
    with pytest.raises(NotServedError, match="neither of dm_control nor of bsuite"):
        make_env(OwnDmEnvironment())


@pytest.mark.usefixtures("_shimmy")
def test_id_is_made_by_gymnasium():
    env = make_env("shimmy:CartPole-v1", {"max_episode_steps": 7})

    assert isinstance(env, gym.Env)
    assert env.get_wrapper_attr("_max_episode_steps") == 7


@pytest.mark.usefixtures("_shimmy")
def test_id_with_another_module_is_refused():
    with pytest.raises(UnknownNameError, match="expected no other colon"):
        make_env("shimmy:json:CartPole-v1")


@pytest.mark.parametrize("env", ["shimmy:bsuite/catch-v0", Suite()], ids=["id", "environment"])
def test_missing_shimmy_is_named(env):
    with pytest.raises(MissingExtraError, match="pip install 'shimmy"):
        make_env(env)
