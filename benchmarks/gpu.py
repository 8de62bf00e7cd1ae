"""`make gpu`: tests of devices, acting, training steps and PPO on an accelerator beside the CPU, as
Markdown tables.

Without an accelerator the CPU stands in for it, and everything is short: the script stays in
working order, and its figures mean nothing. PyTorch and TensorFlow run in separate processes; one
that is not installed is left out.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

import rlcatalog
from benchmarks import page
from benchmarks.cases_models import ACTIONS, IMAGES, VECTORS, our_steps, some_columns, some_obs
from benchmarks.cases_sb3 import Frames

#: Where models meet a device: in each, what needs a GPU is skipped where there is none.
TESTS = (
    "plugins/policy/tests/test_devices.py",
    "tests/frameworks/test_no_transfers.py",
    "plugins/ppo/tests/test_ppo_devices.py",
    "plugins/ppo/tests/test_ppo_adam.py",
)
#: Model → space of observations, config.
MODELS: dict[str, tuple[gym.spaces.Box, dict[str, Any]]] = {
    "fcnet, 2 × 256": (VECTORS, {"fcnet_hiddens": [256, 256]}),
    "fcnet, 2 × 2,048": (VECTORS, {"fcnet_hiddens": [2048, 2048]}),
    "vision (nature)": (IMAGES, {"conv_filters": "nature"}),
    "LSTM": (VECTORS, {"fcnet_hiddens": [256, 256], "use_lstm": True, "lstm_cell_size": 256}),
    "attention": (VECTORS, {"fcnet_hiddens": [256, 256], "use_attention": True}),
}
ACTING, TRAINING = (1, 64, 1024), (256, 4096)
#: Framework → the module it needs.
FRAMEWORKS = {"torch": "torch", "tf": "tensorflow"}
BEGIN = "<!-- written by `make gpu GPU_ARGS=--save`: begin -->"
#: Stands in a table's heading if there was no accelerator to measure.
CPU_TWICE = "no accelerator, the CPU twice"
#: Environment of PPO → its config.
RUNS: dict[str, tuple[Any, dict[str, Any]]] = {
    "CartPole-v1": ("CartPole-v1", {"rollout_length": 128, "minibatch_size": 256, "num_epochs": 4}),
    "frames, 84×84×4": (
        Frames,
        {
            "rollout_length": 64,
            "minibatch_size": 128,
            "num_epochs": 4,
            "model": {"conv_filters": "nature"},
        },
    ),
}

Step = Callable[[], Any]


def built(framework: str, model: str, device: str) -> Any:
    """Return a policy on a device."""
    space, config = MODELS[model]
    return rlcatalog.build(space, gym.spaces.Discrete(ACTIONS), config, framework).to(device)


def acting(framework: str, model: str, device: str, rows: int) -> Step:
    """Return `act` on arrays; it returns arrays, so the device has finished."""
    return our_steps(built(framework, model, device), some_obs(MODELS[model][0], rows))


def training(framework: str, model: str, device: str, rows: int) -> Step:
    """Return a training step on a batch that lies on the device, and whose loss comes back.

    Memories are trained on sequences of 16 steps.
    """
    policy = built(framework, model, device)
    columns = {"obs": some_obs(MODELS[model][0], rows), **some_columns(rows)}
    if memory := tuple(map(np.array, policy.memory.start(rows // 16))):
        columns |= {"seq_lens": np.full(rows // 16, 16, np.int32), "state": memory}
    return (_torch_training if framework == "torch" else _tf_training)(policy, columns)


def placed(columns: dict[str, Any], device: str) -> dict[str, Any]:
    """Return a batch for PyTorch's `evaluate` with its tensors on a device; lengths stay arrays."""
    import torch

    def there(value: Any) -> Any:
        return (
            tuple(map(there, value))
            if isinstance(value, tuple)
            else torch.from_numpy(value).to(device)
        )

    batch = {name: value if name == "seq_lens" else there(value) for name, value in columns.items()}
    return {**batch, "raw_action": batch["action"][:, None]}


def _torch_training(policy: Any, columns: dict[str, Any]) -> Step:
    from benchmarks.floors_models import adam, training_step

    batch = placed(columns, policy.device)

    def evaluate() -> tuple[Any, Any, Any]:
        found = policy.evaluate(batch)
        return found.logp, found.entropy, found.value

    step = training_step(evaluate, batch, *adam(list(policy.model.parameters())))
    return lambda: step().item()


def _tf_training(policy: Any, columns: dict[str, Any]) -> Step:
    import keras
    import tensorflow as tf

    from benchmarks.floors_models import LEARNING_RATE
    from benchmarks.floors_models_tf import training_step

    def evaluate(batch: Any) -> tuple[Any, Any, Any]:
        found = policy.evaluate({**batch, "raw_action": batch["action"][:, None]})
        return found.logp, found.entropy, found.value

    with tf.device(policy.device):
        adam = keras.optimizers.Adam(LEARNING_RATE)
        return training_step(
            policy.model.trainable_variables(), evaluate, {"state": (), **columns}, adam
        )[0]


def seconds_per_call(step: Step, seconds: float) -> float:
    """Return the median time of a call, after calls that compile and allocate."""
    for _ in range(3):
        step()
    times: list[float] = []
    while sum(times) < seconds or len(times) < 3:
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def steps_per_second(framework: str, name: str, device: str, iterations: int) -> float:
    """Return PPO's steps per second with 8 environments, the first iteration left out."""
    from rlcatalog_ppo import PPO

    env, config = RUNS[name]
    algo = PPO(env, {"num_envs": 8, "device": device, "framework": framework, **config})
    algo.train()
    start, before = time.perf_counter(), algo.steps
    for _ in range(iterations):
        algo.train()
    spent = time.perf_counter() - start
    algo.stop()
    return (algo.steps - before) / spent


def tables(
    framework: str, seconds: float, batches: tuple[Sequence[int], Sequence[int]]
) -> Iterator[str]:
    """Measure on the CPU and on what `auto` finds, and yield the lines of the tables.

    Args:
        framework: `"torch"` or `"tf"`.
        seconds: For how long each call is repeated.
        batches: Numbers of rows: for acting, and for training.
    """
    device = built(framework, "LSTM", "auto").device
    version = importlib.import_module(FRAMEWORKS[framework]).__version__
    yield f"### {framework} {version}: {_name_of(framework, device)}\n"
    yield f"| work | cpu | {device} | cpu / {device} |\n|---|---:|---:|---:|"
    for title, make, rows in (("act", acting, batches[0]), ("training step", training, batches[1])):
        for model in MODELS:
            for count in rows:
                cpu, there = (
                    seconds_per_call(make(framework, model, d, count), seconds)
                    for d in ("cpu", device)
                )
                times = f"{cpu * 1e3:.2f} ms | {there * 1e3:.2f} ms | {cpu / there:.2f}"
                yield f"| {title}, {model}, batch {count:,} | {times} |"
    yield f"\n| PPO, 8 environments | cpu | {device} | {device} / cpu |\n|---|---:|---:|---:|"
    for name in RUNS:
        cpu, there = (
            steps_per_second(framework, name, d, 1 + int(seconds * 8)) for d in ("cpu", device)
        )
        yield f"| {name} | {cpu:,.0f}/s | {there:,.0f}/s | {there / cpu:.2f} |"


def _name_of(framework: str, device: str) -> str:
    if framework == "torch" and device.startswith("cuda"):
        import torch

        return str(torch.cuda.get_device_name(device))
    if framework == "tf" and device.startswith("/gpu"):
        import tensorflow as tf

        found = tf.config.list_physical_devices("GPU")[0]
        return str(tf.config.experimental.get_device_details(found).get("device_name", found.name))
    return CPU_TWICE if device == "cpu" else device


def main(given: Sequence[str] | None = None) -> int:
    """Run the tests and both frameworks, and print and write what was measured; 1 when something
    failed.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument(
        "--markdown",
        type=Path,
        default=Path("runs/gpu.md"),
        metavar="FILE",
        help="default: runs/gpu.md",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        metavar="N",
        help="for how long each call is repeated (0.5; without an accelerator 0.01)",
    )
    parser.add_argument(
        "--framework", choices=FRAMEWORKS, help="this one alone, in this process, without the tests"
    )
    parser.add_argument(
        "--save", action="store_true", help="write docs/reference/speed_gpu.md as well"
    )
    chosen = parser.parse_args(given)
    if chosen.framework:
        real = built(chosen.framework, "LSTM", "auto").device != "cpu"
        seconds = (0.5 if real else 0.01) if chosen.seconds is None else chosen.seconds
        for line in tables(
            chosen.framework, seconds, (ACTING, TRAINING) if real else ((1, 32), (64,))
        ):
            print(line, flush=True)
        return 0
    codes = [subprocess.run([sys.executable, "-m", "pytest", "-q", *TESTS]).returncode]
    text, measured = f"{time.strftime('%Y-%m-%d')}; {page.machine()}.\n", []
    for framework, module in FRAMEWORKS.items():
        if importlib.util.find_spec(module) is None:
            text += f"\n{module} is not installed.\n"
            continue
        command = [sys.executable, "-m", "benchmarks.gpu", "--framework", framework]
        command += [] if chosen.seconds is None else ["--seconds", str(chosen.seconds)]
        run = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        print(run.stdout, flush=True)
        codes.append(run.returncode)
        text += f"\n{run.stdout}"
        measured.append(run.stdout)
    chosen.markdown.parent.mkdir(parents=True, exist_ok=True)
    chosen.markdown.write_text(text, encoding="utf-8")
    if chosen.save and all(CPU_TWICE in found for found in measured):
        print(
            "docs/reference/speed_gpu.md stays as it is: no framework found an accelerator.",
            file=sys.stderr,
        )
        return 1
    if chosen.save:
        shown = page.replaced(page.GPU_PAGE.read_text(encoding="utf-8"), BEGIN, text.strip())
        page.GPU_PAGE.write_text(shown, encoding="utf-8")
    print(f"written to {chosen.markdown}{' and docs/reference/speed_gpu.md' * chosen.save}")
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())
