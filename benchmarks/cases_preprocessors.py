"""Preprocessors, filters and Atari wrapping, against what one would write by hand for
each space.
"""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

import rlcatalog
from benchmarks import floors_preprocessors as floors
from benchmarks.harness import Case, Result, report
from rlcatalog.observations.filter import make_filter
from rlcatalog.spaces import SpaceInfo

CATALOG = rlcatalog.default_catalog()
BATCH = 256

Call = Callable[[], Any]


def box(*shape: int) -> spaces.Box:
    """Return a float32 Box."""
    return spaces.Box(-1, 1, shape, np.float32)


def nested() -> spaces.Dict:
    """Return a space of 20 leaves, three deep: a robot, its goal and what it sees."""
    thing = {"kind": spaces.Discrete(5), "position": box(3)}
    arm = {"gripper": box(), "position": box(7), "torque": box(7), "velocity": box(7)}
    base = {"battery": box(), "pose": box(3), "twist": box(6)}
    limits = {"orientation": box(3, 3), "tolerance": box()}
    return spaces.Dict(
        {
            "goal": spaces.Tuple([box(3), spaces.Discrete(6), spaces.Dict(limits)]),
            "robot": spaces.Dict(
                {
                    "arm": spaces.Dict(arm),
                    "base": spaces.Dict(base),
                    "faults": spaces.MultiBinary(8),
                    "mode": spaces.Discrete(4),
                }
            ),
            "scene": spaces.Dict(
                {
                    "contacts": spaces.MultiBinary((2, 4)),
                    "heights": box(8, 8),
                    "objects": spaces.Tuple([spaces.Dict(thing), spaces.Dict(thing)]),
                    "switches": spaces.MultiDiscrete([4, 2, 3, 4, 3, 2, 2, 8]),
                }
            ),
        }
    )


def robot() -> spaces.Dict:
    """Return a small Dict with a camera."""
    camera = spaces.Box(0, 255, (16, 16, 3), np.uint8)
    return spaces.Dict(
        {"camera": camera, "gripper": spaces.Discrete(4), "position": box(3), "velocity": box(3)}
    )


#: Name, space, and the floors of a stacked batch and of a list, each written for that space.
SPACES: list[tuple[str, spaces.Space[Any], floors.Encoder, floors.Encoder]] = [
    ("20 nested leaves", nested(), floors.nested_batch, floors.nested_list),
    ("Discrete(16)", spaces.Discrete(16), floors.discrete_batch, floors.discrete_list),
    (
        "MultiDiscrete(3, 4, 5)",
        spaces.MultiDiscrete([3, 4, 5]),
        floors.multi_discrete_batch,
        floors.multi_discrete_list,
    ),
    ("Dict with a camera", robot(), floors.robot_batch, floors.robot_list),
    (
        "Box(84, 84, 4) uint8",
        spaces.Box(0, 255, (84, 84, 4), np.uint8),
        floors.frames_batch,
        floors.frames_list,
    ),
]


def samples(space: spaces.Space[Any]) -> tuple[list[Any], Any]:
    """Return 256 observations, as a list and as a vector environment would stack them."""
    space.seed(0)
    rows = [space.sample() for _ in range(BATCH)]
    many = gym.vector.utils.create_empty_array(space, BATCH)
    return rows, gym.vector.utils.concatenate(space, rows, many)


def same(name: str, ours: Call, floor: Call, budget: float | None, batch: str = "") -> Case:
    """Return a case whose two sides give the same arrays, freshly made."""
    a, b = ours(), floor()
    np.testing.assert_array_equal(a, b, strict=True)
    assert not np.shares_memory(a, ours())
    return Case(name, ours, floor, budget, batch)


def one_observation() -> Iterator[Case]:
    """One observation, as an environment emits it, against the interpreting floor."""
    for name, space, _, _ in SPACES:
        rows, _ = samples(space)
        preprocessor = CATALOG.preprocessor_for(space, {})
        preprocessor.transform(rows[0])  # has been checked
        obs, encode = rows[1], floors.interpreter(space)
        ours = lambda p=preprocessor, o=obs: p.transform(o)  # noqa: E731
        budget = 0.8 if name == "20 nested leaves" else 1.3  # one leaf leaves little to interpret
        yield same(f"transform, {name}", ours, lambda e=encode, o=obs: e(o), budget, "1")


def peers() -> Iterator[Case]:
    """The interpreting floor against what others offer for one observation; above 1 means that they
    are slower.
    """
    for name, space, _, _ in SPACES[:1] + SPACES[3:4]:
        obs, encode = samples(space)[0][1], floors.interpreter(space)
        floor = lambda e=encode, o=obs: e(o)  # noqa: E731
        peer = lambda s=space, o=obs: spaces.utils.flatten(s, o)  # noqa: E731
        np.testing.assert_array_equal(peer(), floor())
        yield Case(
            f"gymnasium's flatten to the interpreting floor, {name}",
            peer,
            floor,
            None,
            "1",
            peer=True,
        )
    if importlib.util.find_spec("stable_baselines3") is None:
        print("| Stable-Baselines3's preprocess_obs | | | | | skipped: not installed |")
        return
    import torch
    from stable_baselines3.common.preprocessing import preprocess_obs

    # It takes no Tuple, so only the Dict with a camera.
    def peer_sb3(o: Any = obs, s: Any = space) -> Any:
        tensors = {key: torch.as_tensor(value)[None] for key, value in o.items()}
        found = preprocess_obs(tensors, s, normalize_images=False)
        return torch.cat([tensor.flatten(1) for tensor in found.values()], 1)[0].numpy()

    torch.set_num_threads(1)
    np.testing.assert_array_equal(peer_sb3(), floor(), strict=True)
    yield Case(
        f"Stable-Baselines3's preprocess_obs to the interpreting floor, {name}",
        peer_sb3,
        floor,
        None,
        "1",
        peer=True,
    )


def batches() -> Iterator[Case]:
    """A vector environment's batch, and a list of observations."""
    for name, space, by_batch, by_list in SPACES:
        rows, batch = samples(space)
        preprocessor = CATALOG.preprocessor_for(space, {})
        preprocessor.transform(rows[0])
        for form, obs, floor in (("stacked", batch, by_batch), ("list", rows, by_list)):
            ours = lambda p=preprocessor, o=obs: p.transform_batch(o)  # noqa: E731
            yield same(
                f"transform_batch, {form}, {name}",
                ours,
                lambda f=floor, o=obs: f(o),
                1.3,
                str(BATCH),
            )
            if floor is floors.discrete_batch:
                unchecked = lambda o=obs: floors.discrete_batch_unchecked(o)  # noqa: E731
                yield same(
                    f"transform_batch, {form}, {name}, to an unchecked floor",
                    ours,
                    unchecked,
                    None,
                    str(BATCH),
                )


def flat(leaves: int) -> spaces.Dict:
    """Return one Dict of Box(3) and Discrete(4) in turns."""
    return spaces.Dict(
        {f"leaf{i:04}": spaces.Discrete(4) if i % 2 else box(3) for i in range(leaves)}
    )


def tree(leaves: int) -> spaces.Dict:
    """Return the same leaves in Dicts of ten."""
    children = list(flat(leaves).spaces.values())
    while len(children) > 1:
        children = [
            spaces.Dict({f"part{i}": child for i, child in enumerate(group)})
            for group in (children[i : i + 10] for i in range(0, len(children), 10))
        ]
    return children[0]


def linear() -> Iterator[Case]:
    """The cost of a leaf in plans of 10, 100 and 1,000."""
    for shape, make in (("one Dict", flat), ("Dicts of ten", tree)):
        calls: dict[int, tuple[Call, Call]] = {}
        for leaves in (10, 100, 1000):
            space = make(leaves)
            rows, batch = samples(space)
            preprocessor = CATALOG.preprocessor_for(space, {})
            np.testing.assert_array_equal(
                preprocessor.transform(rows[0]), spaces.utils.flatten(space, rows[0])
            )
            calls[leaves] = (
                lambda p=preprocessor, o=rows[1]: p.transform(o),
                lambda p=preprocessor, o=batch: p.transform_batch(o),
            )
        for i, (what, size) in enumerate((("transform", "1"), ("transform_batch", str(BATCH)))):
            whole, hundred, ten = calls[1000][i], calls[100][i], calls[10][i]
            name = f"{what}, {shape}, a leaf of 1,000 to a leaf of"
            # Rows of a large batch lie far apart; see the same by hand below.
            yield Case(
                f"{name} 100",
                whole,
                lambda c=hundred: _times(c, 10),
                1.2 if size == "1" else 1.5,
                size,
            )
            yield Case(f"{name} 10", whole, lambda c=ten: _times(c, 100), None, size)
    # How much of the growth is the machine's: rows of 14 kB are further apart than rows of 1.4 kB.
    many, few = (samples(flat(leaves))[1] for leaves in (1000, 100))
    by_hand, name = floors.alternating_batch, "transform_batch, one Dict, 1,000 leaves"
    yield Case(
        "the same by hand, a leaf of 1,000 to a leaf of 100",
        lambda: by_hand(many),
        lambda: _times(lambda: by_hand(few), 10),
        None,
        str(BATCH),
    )
    preprocessor = CATALOG.preprocessor_for(flat(1000), {})
    yield same(
        name, lambda: preprocessor.transform_batch(many), lambda: by_hand(many), None, str(BATCH)
    )


def _times(call: Call, count: int) -> None:
    for _ in range(count):
        call()


def plans() -> Iterator[Case]:
    """Reading a space of 1,000 leaves, planning and encoding (and checking) the first
    observation.
    """
    for shape, make in (("one Dict", flat), ("Dicts of ten", tree)):
        space = make(1000)
        obs = samples(space)[0][0]
        plan = lambda s=space, o=obs: CATALOG.preprocessor_for(SpaceInfo.read(s), {}).transform(o)  # noqa: E731
        yield Case(f"plan of 1,000 leaves and its first transform, {shape}", plan, None, 50_000)


def atari() -> Iterator[Case]:
    """Steps of Breakout, wrapped by the catalog and by Gymnasium's own wrappers."""
    if importlib.util.find_spec("rlcatalog_atari") is None:
        print("| stepping Breakout | | | | | skipped: rlcatalog-atari is not installed |")
        return
    import ale_py
    from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

    from rlcatalog_atari.preprocessors import GenericPixelPreprocessor

    screen = spaces.Box(0, 255, (210, 160, 3), np.uint8)
    image = np.random.default_rng(0).integers(0, 256, screen.shape, np.uint8)
    for kind in ("gray", "colours"):
        codec, by_hand = (
            GenericPixelPreprocessor(screen, {"grayscale": kind == "gray"}),
            floors.pixels(kind == "gray"),
        )
        np.testing.assert_allclose(codec.transform(image), by_hand(image), atol=1e-5)
        yield Case(
            f"pixels, {kind}",
            lambda c=codec: c.transform(image),
            lambda f=by_hand: f(image),
            1.3,
            "1",
        )

    gym.register_envs(ale_py)
    ours = rlcatalog.wrap_env(gym.make("ALE/Breakout-v5"))
    theirs = FrameStackObservation(AtariPreprocessing(gym.make("ALE/Breakout-v5"), frame_skip=1), 4)
    assert ours.observation_space.shape == (84, 84, 4)
    assert theirs.observation_space.shape == (4, 84, 84)
    # 0.05 for noise.
    yield Case("stepping Breakout, to Gymnasium's wrappers", _stepper(ours), _stepper(theirs), 1.05)


def _stepper(env: gym.Env[Any, Any]) -> Call:
    actions = itertools.cycle(
        np.random.default_rng(0).integers(0, env.action_space.n, 997).tolist()
    )
    env.reset(seed=0)

    def step() -> None:
        _, _, terminated, truncated, _ = env.step(next(actions))
        if terminated or truncated:
            env.reset()

    return step


def filters() -> Iterator[Case]:
    """The running mean and standard deviation, learning as it filters."""
    if importlib.util.find_spec("rlcatalog_filters") is None:
        print(
            "| MeanStdFilter, with update | | | | | skipped: rlcatalog-filters is not installed |"
        )
        return
    config = {"observation_filter": "MeanStdFilter"}
    found = CATALOG.resolve(
        spaces.Box(-np.inf, np.inf, (17,), np.float32), spaces.Discrete(2), config
    )
    ours = make_filter(found.choices["filter"].part, found.preprocessor, found.config)
    assert ours is not None
    floor, rng = floors.MeanStd(17), np.random.default_rng(0)
    for _ in range(3):
        obs = rng.normal(3, 2, (8, 17)).astype(np.float32)
        np.testing.assert_allclose(ours(obs, update=True), floor(obs), rtol=1e-5, atol=1e-6)
    yield Case(
        "MeanStdFilter, with update", lambda: ours(obs, update=True), lambda: floor(obs), None, "8"
    )


def run() -> list[Result]:
    """Print the preprocessors' cases."""
    parts = (one_observation, peers, batches, linear, plans, atari, filters)
    return [result for part in parts for result in report(part())]
