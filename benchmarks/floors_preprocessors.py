"""Floors of the preprocessors: an interpreter of spaces, and encoders written by hand for one space
each.

All of them write a float32 vector, or a batch of them, in the order of Gymnasium's own flattening,
so that outputs are comparable bit by bit. None checks anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

Array = np.ndarray[Any, Any]
Encoder = Callable[[Any], Array]


# Any space, one observation


def read(space: spaces.Space[Any]) -> tuple[Any, ...]:
    """Reads a space into nodes `(kind, ...)` for `interpret`."""
    if isinstance(space, spaces.Dict):
        return "dict", [(key, read(child)) for key, child in space.spaces.items()]
    if isinstance(space, spaces.Tuple):
        return "tuple", [read(child) for child in space.spaces]
    if isinstance(space, spaces.Discrete):
        return "discrete", int(space.n), int(space.start)
    if isinstance(space, spaces.MultiDiscrete):
        return "multi_discrete", space.nvec.tolist()
    return "array", int(np.prod(space.shape))


def interpret(node: tuple[Any, ...], obs: Any, out: Array, at: int) -> int:
    """Writes one observation into `out` from `at` on (zeroed before) and returns where it ended."""
    kind = node[0]
    if kind == "array":
        stop = at + node[1]
        out[at:stop] = obs.ravel()
        return stop
    if kind == "discrete":
        out[at + obs - node[2]] = 1.0
        return at + node[1]
    if kind == "dict":
        for key, child in node[1]:
            at = interpret(child, obs[key], out, at)
        return at
    if kind == "tuple":
        for child, value in zip(node[1], obs, strict=True):
            at = interpret(child, value, out, at)
        return at
    for n, value in zip(node[1], obs.tolist(), strict=True):  # multi_discrete
        out[at + value] = 1.0
        at += n
    return at


def interpreter(space: spaces.Space[Any]) -> Encoder:
    """Return the interpreting encoder of one observation; a space that is a Box keeps its shape and
    dtype.
    """
    if isinstance(space, spaces.Box):
        return lambda obs: obs.copy()
    tree, size = read(space), spaces.flatdim(space)

    def encode(obs: Any) -> Array:
        out = np.zeros(size, np.float32)
        interpret(tree, obs, out, 0)
        return out

    return encode


# Discrete(16)


def discrete_batch(obs: Array) -> Array:
    """Encode `[B]` values of Discrete(16); a negative one must not land in another slot."""
    if obs.min() < 0 or obs.max() >= 16:
        raise ValueError("values outside [0, 16)")
    return discrete_batch_unchecked(obs)


def discrete_batch_unchecked(obs: Array) -> Array:
    """The same for values that are known to be in their range."""
    out = np.zeros((len(obs), 16), np.float32)
    out[np.arange(len(obs)), obs] = 1.0
    return out


def discrete_list(rows: Sequence[Any]) -> Array:
    """The same, one by one."""
    out = np.zeros((len(rows), 16), np.float32)
    for row, obs in zip(out, rows, strict=True):
        row[obs] = 1.0
    return out


# MultiDiscrete([3, 4, 5])

_PLACES = np.array([0, 3, 7])


def multi_discrete_batch(obs: Array) -> Array:
    """Encode `[B, 3]` values of MultiDiscrete([3, 4, 5])."""
    out = np.zeros((len(obs), 12), np.float32)
    out[np.arange(len(obs))[:, None], obs + _PLACES] = 1.0
    return out


def multi_discrete_list(rows: Sequence[Array]) -> Array:
    """The same, one by one."""
    out = np.zeros((len(rows), 12), np.float32)
    for row, obs in zip(out, rows, strict=True):
        a, b, c = obs.tolist()
        row[a] = row[3 + b] = row[7 + c] = 1.0
    return out


MULTI_DISCRETE = multi_discrete_batch, multi_discrete_list


# Dict: camera Box(16, 16, 3) uint8, gripper Discrete(4), position Box(3), velocity Box(3)


def robot_batch(obs: dict[str, Array]) -> Array:
    """Encode a batch of the space with the camera."""
    camera = obs["camera"]
    n = len(camera)
    out = np.zeros((n, 778), np.float32)
    out[:, :768] = camera.reshape(n, 768)
    out[np.arange(n), 768 + obs["gripper"]] = 1.0
    out[:, 772:775] = obs["position"]
    out[:, 775:] = obs["velocity"]
    return out


def robot_list(rows: Sequence[dict[str, Any]]) -> Array:
    """The same, one by one."""
    out = np.zeros((len(rows), 778), np.float32)
    for row, obs in zip(out, rows, strict=True):
        row[:768] = obs["camera"].ravel()
        row[768 + obs["gripper"]] = 1.0
        row[772:775] = obs["position"]
        row[775:] = obs["velocity"]
    return out


# The 20 leaves of `cases_preprocessors.nested`, in the order of their keys


def nested_batch(obs: dict[str, Any]) -> Array:
    """Encode a batch of the nested space."""
    (goal, task, limits), robot, scene = obs["goal"], obs["robot"], obs["scene"]
    arm, base, (first, second) = robot["arm"], robot["base"], scene["objects"]
    n = len(goal)
    out, i = np.zeros((n, 179), np.float32), np.arange(n)
    out[:, 0:3] = goal
    out[i, 3 + task] = 1.0
    out[:, 9:18] = limits["orientation"].reshape(n, 9)
    out[:, 18] = limits["tolerance"]
    out[:, 19] = arm["gripper"]
    out[:, 20:27] = arm["position"]
    out[:, 27:34] = arm["torque"]
    out[:, 34:41] = arm["velocity"]
    out[:, 41] = base["battery"]
    out[:, 42:45] = base["pose"]
    out[:, 45:51] = base["twist"]
    out[:, 51:59] = robot["faults"]
    out[i, 59 + robot["mode"]] = 1.0
    out[:, 63:71] = scene["contacts"].reshape(n, 8)
    out[:, 71:135] = scene["heights"].reshape(n, 64)
    out[i, 135 + first["kind"]] = 1.0
    out[:, 140:143] = first["position"]
    out[i, 143 + second["kind"]] = 1.0
    out[:, 148:151] = second["position"]
    out[i[:, None], scene["switches"] + _SWITCHES] = 1.0
    return out


def nested_list(rows: Sequence[dict[str, Any]]) -> Array:
    """The same, one by one."""
    out = np.zeros((len(rows), 179), np.float32)
    for row, obs in zip(out, rows, strict=True):
        (goal, task, limits), robot, scene = obs["goal"], obs["robot"], obs["scene"]
        arm, base, (first, second) = robot["arm"], robot["base"], scene["objects"]
        row[0:3] = goal
        row[3 + task] = 1.0
        row[9:18] = limits["orientation"].ravel()
        row[18] = limits["tolerance"]
        row[19] = arm["gripper"]
        row[20:27] = arm["position"]
        row[27:34] = arm["torque"]
        row[34:41] = arm["velocity"]
        row[41] = base["battery"]
        row[42:45] = base["pose"]
        row[45:51] = base["twist"]
        row[51:59] = robot["faults"]
        row[59 + robot["mode"]] = 1.0
        row[63:71] = scene["contacts"].ravel()
        row[71:135] = scene["heights"].ravel()
        row[135 + first["kind"]] = 1.0
        row[140:143] = first["position"]
        row[143 + second["kind"]] = 1.0
        row[148:151] = second["position"]
        for place, value in zip(_SWITCH_PLACES, scene["switches"].tolist(), strict=True):
            row[place + value] = 1.0
    return out


_SWITCHES = np.array([151, 155, 157, 160, 164, 167, 169, 171])
_SWITCH_PLACES = _SWITCHES.tolist()


# One Dict of Box(3) and Discrete(4) in turns


def alternating_batch(obs: dict[str, Array]) -> Array:
    """Encode a batch, column by column."""
    n, at = len(next(iter(obs.values()))), 0
    out, i = np.zeros((n, len(obs) // 2 * 7), np.float32), np.arange(n)
    for column in obs.values():
        if column.ndim == 1:
            out[i, at + column] = 1.0
            at += 4
        else:
            out[:, at : at + 3] = column
            at += 3
    return out


# Box(84, 84, 4) uint8, which stays as it is


def frames_batch(obs: Array) -> Array:
    """Copies a batch."""
    return obs.copy()


def frames_list(rows: Sequence[Array]) -> Array:
    """Copies a list into a batch."""
    out = np.empty((len(rows), 84, 84, 4), np.uint8)
    for row, obs in zip(out, rows, strict=True):
        row[:] = obs
    return out


# A running mean and standard deviation


class MeanStd:
    """Normalises float32 `[B, n]` by the mean and the standard deviation of all rows so far, the
    new ones included.
    """

    def __init__(self, n: int) -> None:
        self.count, self.mean, self.squares = 0, np.zeros(n), np.zeros(n)

    def __call__(self, obs: Array) -> Array:
        """Learns from a batch and returns it normalised."""
        rows = len(obs)
        total = self.count + rows
        mean = obs.mean(0, dtype=np.float64)
        shift, centred = mean - self.mean, obs - mean
        self.squares += (centred * centred).sum(0) + shift * shift * (self.count * rows / total)
        self.mean += shift * (rows / total)
        self.count = total
        std = np.sqrt(self.squares / (total - 1))
        return ((obs - self.mean) / (std + 1e-6)).clip(-10.0, 10.0).astype(np.float32)


def pixels(gray: bool) -> Encoder:
    """Returns the pixel codec for an Atari screen: its middle, resized by area to 84x84, from -1 to
    1.
    """
    import cv2

    mean = np.full((1, 3), 1 / 3, np.float32)

    def encode(image: Array) -> Array:
        x: Array = image[25:-25].astype(np.float32)
        if gray:
            x = cv2.transform(x, mean)
        x = cv2.resize(x, (84, 84), interpolation=cv2.INTER_AREA)
        x -= 128
        x *= 1 / 128
        return x.reshape(84, 84, -1)

    return encode
