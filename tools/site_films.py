"""Makes the films of the site: `python tools/site_films.py [NAME...]`, all of them without a name.

- `gardener` is the film of the home page. If `runs/gardener` does not exist, this command first
  trains it with `examples/gardener/ppo.py`, which takes some minutes.
- `cartpole` plays the exported policy of the home page.
- `robot` plays the policy of the robot tutorial, which `tools/robot_tutorial.py` trains.
- The others, such as `Hopper-v5`, play the policies of the zoo.

A film is an `.mp4` with a still picture beside it, `.webp`, for readers who prefer less motion. The
gardener also becomes `gardener.gif.webp`, a moving picture for the README.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from film_scenes import SCENES, Rendered
from generated import ROOT
from PIL import Image
from robot_tutorial import FOLDER as ROBOT_RUN, ROBOT

import rlcatalog
from rlcatalog_cli import import_modules
from rlcatalog_ppo.commands import ZOO
from rlcatalog_ppo.video import Film

FILMS = ROOT / "docs/_static/films"
GARDENER = ROOT / "examples/gardener"
CARTPOLE = ROOT / "docs/_static/live/cartpole.onnx"
#: Packages of environments that only the comparison of engines needs: `make compare`.
BESIDE = ROOT / ".venv/compare"
SECONDS = 10
#: Largest film of the home page, and largest other one, in bytes.
LARGEST_GARDENER = 1_000_000
LARGEST = 300_000


class Subject(NamedTuple):
    """What a film shows.

    Attributes:
        env: The environment's id.
        policy: A folder with a saved policy, or an exported file.
        modules: Modules that register the environment.
        seed: The seed of the episode.
        every: One frame for so many steps.
    """

    env: str
    policy: Path
    modules: tuple[str, ...] = ()
    seed: int = 0
    every: int = 1


def subjects() -> dict[str, Subject]:
    """Return the films: name → what it shows."""
    found = {
        "gardener": Subject("Garden-v0", ROOT / "runs/gardener", ("garden",), seed=4),
        "cartpole": Subject("CartPole-v1", CARTPOLE, seed=1),
        "robot": Subject("Depot-v0", ROBOT_RUN / "runs/policy.onnx", ("depot",), seed=10),
    }
    for record in sorted(ZOO.glob("*.json")):
        facts = json.loads(record.read_text(encoding="utf-8"))
        if facts["env"] == "CartPole-v1":
            continue  # the film `cartpole` shows the policy in the web page
        modules = tuple(facts["modules"])
        found[record.stem] = Subject(facts["env"], record.with_suffix(".onnx"), modules)
    # An episode of the hopper has 125 steps in a second.
    found["Hopper-v5"] = found["Hopper-v5"]._replace(every=4)
    found["LunarLander-v3"] = found["LunarLander-v3"]._replace(every=2)
    # An episode with the median return.
    found["Weeds-v0"] = found["Weeds-v0"]._replace(seed=6)
    return found


#: Film → frames in a second, if its environment names none, or has too many steps in one.
FRAMES_PER_SECOND = {
    "Hopper-v5": 31,
    "MinAtar-Breakout-v1": 8,
    "popgym-RepeatPreviousEasy-v0": 2,
    "robot": 10,
    "Weeds-v0": 10,
    "Workshop-v0": 2,
}
DEFAULT_FRAMES_PER_SECOND = 25


def frames(subject: Subject) -> Iterator[np.ndarray]:
    """Yield the frames of an episode, with the most likely actions."""
    import_modules(subject.modules)
    scene_class = SCENES.get(subject.env, Rendered)
    options = {}
    if scene_class.render_mode is not None:  # some environments have no such argument
        options["render_mode"] = scene_class.render_mode
    env: Any = gym.make(subject.env, **options)
    scene = scene_class(env)
    policy: Any
    if subject.policy.is_dir():
        policy = rlcatalog.load(subject.policy)
    else:
        policy = rlcatalog.Actor(subject.policy)
    obs, _ = env.reset(seed=subject.seed)
    yield scene.draw(obs, None)
    state = None
    is_over = False
    steps = 0
    while not is_over:
        step = policy.act([obs], state, explore=False)
        state = step.state
        action = first_row(step.action)
        obs, _, terminated, truncated, _ = env.step(action)
        is_over = terminated or truncated
        steps += 1
        if steps % subject.every == 0:
            yield scene.draw(obs, action)
    env.close()


def first_row(action: Any) -> Any:
    """Return the action in a batch of one row."""
    if isinstance(action, dict):
        return {name: part[0] for name, part in action.items()}
    if isinstance(action, tuple):
        return tuple(part[0] for part in action)
    return action[0]


def write_film(name: str, subject: Subject) -> None:
    """Write a film and its still picture."""
    rate = FRAMES_PER_SECOND.get(name, DEFAULT_FRAMES_PER_SECOND)
    film = Film(FILMS / f"{name}.mp4")
    film.fps = float(rate)
    shown = []
    for frame in frames(subject):
        film.add(frame)
        shown.append(frame)
        if len(shown) == SECONDS * rate:
            break
    film.write()
    still = Image.fromarray(shown[len(shown) * 2 // 3])
    still.save(FILMS / f"{name}.webp", quality=80)
    if name == "gardener":
        write_moving_picture(shown, rate)
    size = film.path.stat().st_size
    print(f"{film.path.relative_to(ROOT)}: {len(shown) / rate:.1f} s, {size / 1000:.0f} kB")
    most = LARGEST_GARDENER if name == "gardener" else LARGEST
    if size > most:
        raise SystemExit(f"{film.path} has {size:,} bytes, more than {most:,}")


def write_moving_picture(shown: list[np.ndarray], rate: int) -> None:
    """Write a moving picture of every second frame, at two thirds of the size."""
    images = []
    for frame in shown[::2]:
        image = Image.fromarray(frame)
        size = (image.width * 2 // 3, image.height * 2 // 3)
        images.append(image.resize(size, Image.Resampling.LANCZOS))
    images[0].save(
        FILMS / "gardener.gif.webp",
        save_all=True,
        append_images=images[1:],
        duration=2000 // rate,
        loop=0,
        quality=60,
        method=4,
    )


def train_gardener(folder: Path) -> None:
    """Train the agent of the home page, with the program that the page shows."""
    folder.parent.mkdir(exist_ok=True)
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    program = GARDENER / "ppo.py"
    subprocess.run([sys.executable, program], cwd=folder.parent, env=environ, check=True)


def main(arguments: list[str]) -> int:
    """Make the films."""
    sys.path += [str(GARDENER), str(ROBOT), str(BESIDE)]
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    FILMS.mkdir(parents=True, exist_ok=True)
    films = subjects()
    names = arguments or list(films)
    unknown = set(names) - set(films)
    if unknown:
        raise SystemExit(f"no such film: {', '.join(unknown)}. There are {', '.join(films)}.")
    if "gardener" in names and not films["gardener"].policy.exists():
        train_gardener(films["gardener"].policy)
    for name in names:
        write_film(name, films[name])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
