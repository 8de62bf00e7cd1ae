"""What tests of films share: an environment without a screen, and the frames of a file."""

from __future__ import annotations

import av


def hide_screen(monkeypatch):
    """Hide the display and what filming tells SDL; what a test sets is taken back."""
    sdl = (f"SDL_{name}" for name in ("VIDEODRIVER", "AUDIODRIVER", "FRAMEBUFFER_ACCELERATION"))
    for name in ("DISPLAY", "WAYLAND_DISPLAY", *sdl):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def frames(path):
    """Return a film's frames, `uint8 [H, W, 3]` each, and its frames per second."""
    with av.open(str(path)) as file:
        return [
            frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)
        ], file.streams.video[0].average_rate
