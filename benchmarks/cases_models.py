"""Whole models in PyTorch: a step of acting and a step of training, against bare modules with the
same weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

import rlcatalog
from benchmarks import floors_fused, floors_models
from benchmarks.harness import Case, Result, report
from rlcatalog_torch import TorchModelV2
from rlcatalog_torch.learner import Adam

Array = np.ndarray[Any, Any]

ACTIONS, OBS_SIZE, HIDDENS = 6, 8, [256, 256]
IMAGES, VECTORS = gym.spaces.Box(0, 255, (84, 84, 4), np.uint8), gym.spaces.Box(-1, 1, (OBS_SIZE,))
#: Model → space of observations, config, largest ratio while acting.
MODELS: dict[str, tuple[gym.spaces.Box, dict[str, Any], float]] = {
    "vision": (IMAGES, {}, 1.25),
    "vision (nature)": (IMAGES, {"conv_filters": "nature"}, 1.25),
    "LSTM": (VECTORS, {"use_lstm": True, "lstm_cell_size": 256, "fcnet_hiddens": HIDDENS}, 1.25),
    "attention": (VECTORS, {"use_attention": True, "fcnet_hiddens": HIDDENS}, 1.25),
}
IMAGE_BATCH, SEQUENCES, LENGTH = 64, 16, 20
#: Lengths of sequences: all the same, and half of that on average.
LENGTHS = {
    "equal": np.full(SEQUENCES, LENGTH, np.int32),
    "mixed": np.random.default_rng(0)
    .permutation(np.linspace(1, LENGTH - 1, SEQUENCES).round())
    .astype(np.int32),
}
FULL = 60  # steps after which every memory is full


def some_obs(space: gym.spaces.Box, rows: int) -> Array:
    """Return observations `[rows, ...]`."""
    rng = np.random.default_rng(0)
    if space.dtype == np.uint8:
        return rng.integers(0, 256, (rows, *space.shape), np.uint8)
    return rng.uniform(-1, 1, (rows, *space.shape)).astype(np.float32)


def net_of(name: str, weights: Mapping[str, Array]) -> Any:
    """Return the bare modules of a model, with its weights."""
    net: Any
    if name.startswith("vision"):
        net = floors_models.VisionFloor(name.endswith("(nature)"), ACTIONS)
    elif name == "LSTM":
        net = floors_models.LstmFloor(OBS_SIZE, ACTIONS, HIDDENS, 256)
    else:
        net = floors_models.AttentionFloor(OBS_SIZE, ACTIONS, HIDDENS)
    floors_models.adopt(net, weights)
    return net


# Acting


def our_steps(policy: Any, obs: Array) -> Callable[[], Any]:
    """Return a step of a policy that goes on from where the last one ended."""
    state: Any = policy.initial_state(len(obs))

    def step() -> Any:
        nonlocal state
        found = policy.act(obs, state)
        state = found.state
        return found

    return step


def floor_steps(act: Callable[..., Any], obs: Array, state: tuple[Array, ...]) -> Callable[[], Any]:
    """Return a step of a floor, likewise."""

    def step() -> Any:
        nonlocal state
        found, state = act(obs, *state)
        return found, state

    return step


def same_steps(ours: Callable[[], Any], floor: Callable[[], Any], actions: int = FULL) -> None:
    """Take steps, and raise unless both sides give the same logits, values and states."""
    for _ in range(actions):
        mine, (theirs, state) = ours(), floor()
    np.testing.assert_allclose(mine.dist_inputs, theirs[3], rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(mine.value, theirs[2], rtol=1e-3, atol=1e-5)
    assert mine.raw_action.shape == (*theirs[0].shape, 1)
    assert mine.logp.shape == theirs[1].shape
    for part, expected in zip(mine.state.memory if mine.state else (), state, strict=True):
        np.testing.assert_allclose(part, expected, rtol=1e-3, atol=1e-5)


def acting() -> Iterator[Case]:
    """`policy.act` against the bare modules, and hand-fused code for scale; states go from step to
    step as arrays.
    """
    for name, (space, config, budget) in MODELS.items():
        for batch in (1, 32):
            policy = rlcatalog.build(space, gym.spaces.Discrete(ACTIONS), config, "torch")
            obs = some_obs(space, batch)
            floor = floors_models.ActFloor(net_of(name, policy.model.get_weights()))
            mine, theirs = (
                our_steps(policy, obs),
                floor_steps(floor.act, obs, policy.memory.start(batch)),
            )
            same_steps(mine, theirs)
            yield Case(f"act, {name}, torch", mine, theirs, budget, str(batch))
            by_hand = floor_steps(floors_fused.fused(floor.net), obs, policy.memory.start(batch))
            mine = our_steps(policy, obs)
            same_steps(mine, by_hand)
            yield Case(f"act, {name}, torch, to hand-fused", mine, by_hand, None, str(batch))


# Plain modules


class PlainNet(nn.Module):
    """Two layers for a vector, or the convolutions of the nature net for an image."""

    def __init__(self, space: Any) -> None:
        super().__init__()
        if len(space.shape) == 1:
            layers = [nn.Linear(OBS_SIZE, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh()]
        else:
            convs = [nn.Conv2d(4, 32, 8, 4), nn.Conv2d(32, 64, 4, 2), nn.Conv2d(64, 64, 3)]
            layers = [part for conv in convs for part in (conv, nn.ReLU())]
            layers += [nn.Flatten(), nn.Linear(3136, 512), nn.ReLU()]
        self.layers, self.width = nn.Sequential(*layers), layers[-2].out_features

    def forward(self, obs: Tensor) -> Tensor:
        """Return the features `[B, width]`."""
        features: Tensor = self.layers(obs)
        return features


class InRllibsForm(TorchModelV2, nn.Module):
    """The same net as a model class in RLlib's form, with logits and value of its own."""

    def __init__(
        self, obs_space: Any, action_space: Any, num_outputs: int, model_config: Any, name: str
    ) -> None:
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        self.net = PlainNet(obs_space)
        self.logits, self.value = (
            nn.Linear(self.net.width, num_outputs),
            nn.Linear(self.net.width, 1),
        )

    def forward(self, input_dict: Any, state: Any, seq_lens: Any) -> Any:
        """Return the logits."""
        obs = input_dict["obs"]
        self.features = self.net(obs.permute(0, 3, 1, 2).float() / 255 if obs.ndim == 4 else obs)
        return self.logits(self.features), state

    def value_function(self) -> Any:
        """Return the values."""
        return self.value(self.features).squeeze(1)


def plain_modules() -> Iterator[Case]:
    """`policy.act` of a plain module against that of the same net in RLlib's form."""
    for name, space in (
        ("vector", VECTORS),
        ("image", gym.spaces.Box(0, 255, (84, 84, 4), np.uint8)),
    ):
        for batch in (1, 32):
            plain, classic = (
                rlcatalog.build(space, gym.spaces.Discrete(ACTIONS), model=model)
                for model in (PlainNet, InRllibsForm)
            )
            weights = plain.model.get_weights()
            renamed = {"net": "module", "logits": "outputs.logits", "value": "outputs.value"}
            classic.model.set_weights(
                {
                    key: weights[key.replace(first, renamed[first], 1)]
                    for key in classic.model.get_weights()
                    for first in [key.partition(".")[0]]
                }
            )
            obs = some_obs(space, batch)
            acted = [policy.act(obs, explore=False) for policy in (plain, classic)]
            np.testing.assert_allclose(
                acted[0].dist_inputs, acted[1].dist_inputs, rtol=1e-4, atol=1e-5
            )
            yield Case(
                f"act, plain module, {name}, to RLlib's form, torch",
                partial(plain.act, obs),
                partial(classic.act, obs),
                1.05,
                str(batch),
            )


# Training


def some_columns(rows: int) -> dict[str, Array]:
    """Return what a loss reads of a batch, beside observations."""
    rng = np.random.default_rng(1)
    columns = {name: rng.normal(size=rows).astype(np.float32) for name in ("advantage", "target")}
    return {
        **columns,
        "action": rng.integers(0, ACTIONS, rows),
        "logp": np.full(rows, -np.log(ACTIONS), np.float32),
    }


def some_state(policy: Any, rows: int) -> tuple[Array, ...]:
    """Return the memory of episodes under way."""
    state = policy.initial_state(rows)
    for obs in np.random.default_rng(2).uniform(-1, 1, (FULL, rows, OBS_SIZE)).astype(np.float32):
        state = policy.act(obs, state).state
    return tuple(np.array(part) for part in state.memory)


def padded(columns: Mapping[str, Array], lengths: Array) -> dict[str, Array]:
    """Return a batch of sequences padded to the longest, `[S * longest]`, and a mask; observations
    are timed.
    """
    mask = np.arange(lengths.max()) < lengths[:, None]
    found = {}
    for name, column in columns.items():
        found[name] = np.zeros((*mask.shape, *column.shape[1:]), column.dtype)
        found[name][mask] = column
    flat = {name: column if name == "obs" else column.reshape(-1) for name, column in found.items()}
    return flat if mask.all() else {**flat, "mask": mask.reshape(-1).astype(np.float32)}


def tensors(columns: Mapping[str, Array]) -> dict[str, Tensor]:
    return {name: torch.from_numpy(column) for name, column in columns.items()}


def training() -> Iterator[Case]:
    """A training step against the bare modules; of mixed lengths, against the batch padded to the
    longest.

    The floor has PyTorch's Adam. Our side has the Adam of rlcatalog's learner, as in PPO, or also
    PyTorch's.
    """
    for name, (space, config, _) in MODELS.items():
        sequences = space is VECTORS
        for kind, lengths in (
            LENGTHS.items() if sequences else [("", np.ones(IMAGE_BATCH, np.int32))]
        ):
            policy = rlcatalog.build(space, gym.spaces.Discrete(ACTIONS), config, "torch")
            net = net_of(name, policy.model.get_weights())
            state = some_state(policy, len(lengths)) if sequences else ()
            columns = {"obs": some_obs(space, lengths.sum()), **some_columns(lengths.sum())}
            theirs = floor_training(
                net, tensors(padded(columns, lengths) if sequences else columns), state
            )
            rows = f"{SEQUENCES} sequences, {kind} lengths" if sequences else str(IMAGE_BATCH)
            given = policy, columns, lengths if sequences else None, state
            for label, adam, budget in (
                ("", our_adam, 1.05),
                (", with PyTorch's Adam", floors_models.adam, None),
            ):
                mine = our_training(*given, adam)
                same_training(mine, theirs, policy.model.parameters(), net.parameters())
                yield Case(f"training step, {name}, torch{label}", mine, theirs, budget, rows)


def our_adam(parameters: Sequence[nn.Parameter]) -> floors_models.Optimizer:
    """Return the Adam of rlcatalog's learner."""
    optimizer = Adam(parameters)
    return optimizer.zero_grad, partial(optimizer.step, floors_models.LEARNING_RATE)


def our_training(
    policy: Any,
    columns: Mapping[str, Array],
    lengths: Array | None,
    state: tuple[Array, ...],
    adam: Callable[[Sequence[nn.Parameter]], floors_models.Optimizer],
) -> Callable[[], Tensor]:
    """Return a training step of a policy.

    The batch is checked once, as a learner checks what it reads repeatedly.
    """
    batch = tensors(columns)
    given: dict[str, Any] = {"obs": batch["obs"], "raw_action": batch["action"][:, None]}
    if lengths is not None:
        given |= {"seq_lens": lengths, "state": state}

    policy.evaluate(given)

    def evaluate() -> tuple[Tensor, Tensor, Tensor]:
        found = policy.evaluate(given, check=False)
        return found.logp, found.entropy, found.value

    return floors_models.training_step(evaluate, batch, *adam(list(policy.model.parameters())))


def floor_training(
    net: Any, batch: Mapping[str, Tensor], state: tuple[Array, ...]
) -> Callable[[], Tensor]:
    """Return a training step of bare modules."""
    parameters = [p for p in net.parameters() if p.requires_grad]
    memory = list(map(torch.from_numpy, state))
    evaluate = lambda: floors_models.evaluated(net, batch, memory)  # noqa: E731
    return floors_models.training_step(evaluate, batch, *floors_models.adam(parameters))


def same_training(
    mine: Callable[[], Tensor],
    theirs: Callable[[], Tensor],
    ours: Iterator[Tensor],
    floor: Iterator[Tensor],
) -> None:
    """Raise unless both sides find the same loss and gradients of the same size."""
    torch.testing.assert_close(mine(), theirs(), rtol=1e-4, atol=1e-5)
    norms = [
        sum(float(p.grad.square().sum()) for p in side if p.grad is not None)
        for side in (ours, floor)
    ]
    np.testing.assert_allclose(norms[0], norms[1], rtol=1e-3)


def run(
    parts: Sequence[Callable[[], Iterator[Case]]] = (acting, plain_modules, training),
) -> list[Result]:
    """Print PyTorch's models."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return [result for part in parts for result in report(part())]
