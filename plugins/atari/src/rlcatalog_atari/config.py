"""Config keys for Atari environments and for the codecs for their pixels and RAM."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta


class AtariConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Config keys for the Atari wrapper and its codecs."""

    preprocessor_pref: Annotated[
        Literal["deepmind", "rllib"] | None,
        Meta(
            description='Atari: "deepmind" stacks grayscale frames, "rllib" scales pixels or RAM;'
            " None does neither"
        ),
    ] = "deepmind"
    dim: Annotated[int, Meta(ge=1, description="height and width of Atari frames")] = 84
    framestack: Annotated[
        bool | Annotated[int, Meta(ge=1)],
        Meta(
            description='number of frames that "deepmind" stacks as channels: True for 4, False'
            " for 1, or a number"
        ),
    ] = True
    grayscale: Annotated[
        bool,
        Meta(description="pixel codec: one channel, the mean of the colours, instead of three"),
    ] = False
    zero_mean: Annotated[
        bool, Meta(description="pixel codec: values from -1 to 1 instead of 0 to 1")
    ] = True
    atari_terminal_on_life_loss: Annotated[
        bool,
        Meta(
            description="end the episode at a lost life; the next episode continues the same game"
        ),
    ] = False

    @property
    def frames(self) -> int:
        """Number of frames in one observation with `"deepmind"`."""
        if self.framestack is True:
            return 4
        if self.framestack is False:
            return 1
        return self.framestack
