"""Private names of Stable-Baselines3: each still does what rlcatalog relies on in the installed
version.

If one of these tests fails after an upgrade, Stable-Baselines3 has changed the name: adapt
`rlcatalog_sb3/private_api.py`, which says what the name is for.
"""

import gymnasium as gym
import pytest
import stable_baselines3

from rlcatalog_sb3.private_api import SavablePolicy

#: Names the version in the message of every failure.
VERSION = f"Stable-Baselines3 {stable_baselines3.__version__}"
SPACES = {
    "observation_space": gym.spaces.Box(-1, 1, (3,)),
    "action_space": gym.spaces.Discrete(2),
}


class Coloured(SavablePolicy):
    """Policy with an argument that Stable-Baselines3 does not know."""

    def __init__(self, observation_space, action_space, colour="grey"):
        super().__init__(observation_space, action_space)
        self.colour = colour

    def constructor_arguments(self):
        return {**SPACES, "colour": self.colour}

    def _predict(self, observation, deterministic=False):
        raise NotImplementedError


def test_saved_policy_is_created_with_its_own_arguments(tmp_path):
    policy = Coloured(**SPACES, colour="green")
    policy.save(tmp_path / "policy.zip")

    loaded = Coloured.load(tmp_path / "policy.zip")

    assert loaded.colour == "green", f"{VERSION}: save() asks for the arguments in another way"


def test_saved_policy_asks_for_its_arguments_when_it_is_saved(tmp_path):
    policy = Coloured(**SPACES)
    policy.colour = "blue"
    policy.save(tmp_path / "policy.zip")
    assert Coloured.load(tmp_path / "policy.zip").colour == "blue", VERSION


def test_policy_without_arguments_cannot_be_saved(tmp_path):
    class Bare(SavablePolicy):
        def _predict(self, observation, deterministic=False):
            raise NotImplementedError

    with pytest.raises(NotImplementedError):
        Bare(**SPACES).save(tmp_path / "policy.zip")
