"""All names of the Arcade Learning Environment that are not part of its public interface and that
rlcatalog uses.

No other module of rlcatalog uses such a name, because each of them may change in any release.

They were tried with ale-py 0.11.0 and 0.12.1. `plugins/atari/tests/test_atari_private_api.py`
checks that the names still do what is relied on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlcatalog.private_names import PrivateNames

if TYPE_CHECKING:
    import gymnasium

ALE = PrivateNames("ale_py", tried="0.12.1")


def frames_per_step(game: gymnasium.Env[Any, Any]) -> int | tuple[int, int]:
    """Return how many frames a game's emulator advances in a step, or the range that each step
    draws it from.

    The spec of an environment tells it too, but not for a game that was created without
    `gymnasium.make`. Gymnasium's own `AtariPreprocessing` reads the same attribute. Without it,
    games cannot be wrapped, because frames might be skipped twice.
    """
    # The game is ale_py's; other releases of it may have no such attribute.
    if not hasattr(game, "_frameskip"):
        raise ALE.error("AtariEnv._frameskip", "find out whether a game skips frames")
    frame_skip: int | tuple[int, int] = game._frameskip
    return frame_skip
