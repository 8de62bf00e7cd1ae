"""Checks of the conformance kit for adapters of environments, each with its fault."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
from faults import find_checks
from gymnasium.vector import AutoresetMode, VectorEnv
from other_environments import install_module

from rlcatalog import EnvAdapterSpec
from rlcatalog_testing import PluginEntryPoint, cases, isolated_catalog, outcomes, plugin_of
from rlcatalog_testing.checks import adapters


class Dial:
    """An environment of another kind: it counts its steps up to three."""


Dial.__module__ = "acme_dials"


class AdaptedDials(VectorEnv):
    """Two dials in Gymnasium's form, which reset themselves in the step that ends an episode."""

    num_envs = 2
    single_observation_space = gym.spaces.Box(0, 3, (1,), np.float32)
    single_action_space = gym.spaces.Discrete(2)
    observation_space = gym.spaces.Box(0, 3, (2, 1), np.float32)
    action_space = gym.spaces.MultiDiscrete([2, 2])
    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012

    def reset(self, *, seed=None, options=None):
        self.steps = np.zeros((2, 1), np.float32)
        return self.steps.copy(), {}

    def step(self, actions):
        self.steps += 1
        ended = self.steps[:, 0] == 3
        infos = {"final_obs": [*self.steps.copy()]} if ended.any() else {}
        self.steps[ended] = 0
        return self.steps.copy(), np.ones(2), ended, np.zeros(2, bool), infos

    def close(self, **_):
        pass


class WithoutMode(AdaptedDials):
    metadata = {}  # noqa: RUF012


class WithoutSpaces(AdaptedDials):
    action_space = None


class ObservesFive(AdaptedDials):
    def reset(self, *, seed=None, options=None):
        super().reset()
        return np.full((2, 1), 5, np.float32), {}


class CountsAsReward(AdaptedDials):
    def step(self, actions):
        obs, _, *rest = super().step(actions)
        return obs, np.ones(1), *rest


class FlagsAreNumbers(AdaptedDials):
    def step(self, actions):
        obs, reward, terminated, truncated, infos = super().step(actions)
        return obs, reward, terminated.astype(float), truncated, infos


class WithoutFinalObs(AdaptedDials):
    def step(self, actions):
        *returned, _ = super().step(actions)
        return *returned, {}


def adapt_again(env):
    """Adapt anything, also what it has made."""
    adapted = AdaptedDials()
    adapted.dial = "dial"
    return adapted


@pytest.fixture
def run_checks(monkeypatch):
    """Return a function that runs the kit on an adapter, and returns the outcomes by check."""

    def run(adapt, made=(Dial,), **fields):
        install_module(monkeypatch, "acme_adapter", adapt=adapt, list_examples=lambda: [*made])
        monkeypatch.setattr(
            "rlcatalog.choice.env_adapters._load", lambda _: adapt
        )  # targets are imported once per process
        fields = {"modules": ("acme_dials",), "examples": "acme_adapter:list_examples", **fields}
        spec = EnvAdapterSpec("acme_dial", {"numpy": "acme_adapter:adapt"}, "dials", **fields)
        entry_point = PluginEntryPoint(plugin_of(rlcatalog_env_adapters=[spec]), "acme")
        catalog = isolated_catalog(entry_point)
        by_name = {outcome.name: outcome for outcome in outcomes(cases("acme", catalog=catalog))}
        return {name.removeprefix("env_adapter-acme_dial-"): by_name[name] for name in by_name}

    return run


def test_sound_adapter_passes(run_checks):
    by_check = run_checks(lambda _: AdaptedDials())

    statuses = {name: by_check[name].status for name in find_checks(adapters)}
    assert statuses == dict.fromkeys(find_checks(adapters), "passed")


FAULTS = {
    "no-mode": (WithoutMode, "spaces_and_mode_are_declared", "autoreset_mode"),
    "no-space": (WithoutSpaces, "spaces_and_mode_are_declared", "its action_space is None"),
    "outside": (ObservesFive, "steps_return_what_the_spaces_say", "is not in Box"),
    "one-reward": (CountsAsReward, "steps_return_what_the_spaces_say", "have the shape"),
    "flags": (FlagsAreNumbers, "steps_return_what_the_spaces_say", "expected booleans"),
    "no-final": (WithoutFinalObs, "steps_return_what_the_spaces_say", "needs infos"),
}


@pytest.mark.parametrize(("cls", "check", "why"), FAULTS.values(), ids=FAULTS)
def test_check_finds_its_fault(run_checks, cls, check, why):
    by_check = run_checks(lambda _: cls())

    assert by_check[check].status == "failed"
    assert why in by_check[check].why


def test_adapter_that_adapts_its_own_result_fails(run_checks):
    by_check = run_checks(adapt_again, attributes=("dial",))

    assert by_check["adapted_twice_is_once"].status == "failed"
    assert "adapted a second time" in by_check["adapted_twice_is_once"].why


def test_adapter_that_recognises_none_of_its_examples_fails(run_checks):
    by_check = run_checks(lambda _: AdaptedDials(), modules=("other_dials",))

    assert by_check["adapted_twice_is_once"].status == "failed"


def test_adapter_must_declare_examples(run_checks):
    by_check = run_checks(lambda _: AdaptedDials(), examples=None)

    assert "declare examples=" in by_check["adapted_twice_is_once"].why


def test_adapter_of_a_package_that_is_not_installed_is_skipped(run_checks):
    by_check = run_checks(lambda _: AdaptedDials(), made=())

    assert by_check["adapted_twice_is_once"].status == "skipped"
