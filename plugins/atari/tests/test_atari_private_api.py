"""Private names of the Arcade Learning Environment: each still does what rlcatalog relies on in the
installed version.

If one of these tests fails after an upgrade, ale-py has changed the name: adapt
`rlcatalog_atari/private_api.py`, which says what the name is for.
"""

import ale_py
import gymnasium
import pytest

from rlcatalog.errors import NotServedError
from rlcatalog_atari.private_api import frames_per_step

#: Names the version in the message of every failure.
VERSION = f"ale-py {ale_py.__version__}"


@pytest.mark.parametrize("frames", [1, 4])
def test_frames_per_step_are_those_that_the_emulator_advances(frames):
    game = gymnasium.make("ALE/Pong-v5", frameskip=frames).unwrapped
    game.reset(seed=0)
    before = game.ale.getEpisodeFrameNumber()

    game.step(0)

    assert game.ale.getEpisodeFrameNumber() - before == frames, VERSION
    assert frames_per_step(game) == frames, VERSION


def test_frames_per_step_may_be_a_range():
    game = gymnasium.make("ALE/Pong-v5", frameskip=(2, 5)).unwrapped

    assert frames_per_step(game) == (2, 5), VERSION


def test_frames_per_step_report_the_version_if_unknown():
    # An object without the private attribute stands for another version of ale-py.
    with pytest.raises(NotServedError, match=rf"{ale_py.__version__} has no AtariEnv\."):
        frames_per_step(object())
