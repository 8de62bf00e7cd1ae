"""A third framework, as a package of its own would bring it: NumPy, with gradients by central
differences.

It has the backend, the operations, the learner, PPO's step and what the conformance kit asks; a net
and a distribution of its own; and these two again as code for fcnet and categorical.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import rlcatalog
from rlcatalog import (
    ActionDistribution,
    ActionDistSpec,
    FrameworkSpec,
    Match,
    ModelSpec,
    ModelV2,
    Rank,
    Request,
    SpaceInfo,
    Stage,
)
from rlcatalog.actions import params_given
from rlcatalog.errors import ConfigError, UnsupportedSpaceError
from rlcatalog.frameworks import Evaluation, NumpyOps
from rlcatalog.models import DensePlan, ModelBookkeeping, plan_dense_layers
from rlcatalog_ppo.learner import StepMetrics
from rlcatalog_ppo.loss import PPO_OBJECTIVE

Array = np.ndarray[Any, Any]

#: What actions are drawn from.
BITS = np.random.MT19937(0)
GENERATOR = np.random.Generator(BITS)


def as_columns(sample: Array) -> Array:
    """Return actions `[B]` or `[B, width]` as `[B, width]`."""
    return sample[:, None] if sample.ndim == 1 else sample


class Backend:
    """Runs a policy in NumPy."""

    def __init__(self, policy: rlcatalog.Policy) -> None:
        self.policy = policy

    def _forward(self, obs, mask):
        inputs, _ = self.policy.model({"obs": obs, "is_training": False}, [], None)
        return inputs if mask is None else self.policy.dist_class.masked(inputs, mask)

    def act(self, obs, views, memory, mask, explore) -> tuple[Any, ...]:
        inputs = self._forward(obs, mask)
        dist = self.policy.dist_class(inputs, self.policy.model)
        sample = dist.sample() if explore else dist.deterministic_sample()
        return as_columns(sample), dist.logp(sample), self.policy.model.value_function(), inputs, ()

    def values(self, obs, views, memory):
        self._forward(obs, None)
        return self.policy.model.value_function()

    def evaluate(self, batch: Mapping[str, Any], entropy: bool = True) -> Evaluation:
        dist = self.policy.dist_class(
            self._forward(batch["obs"], batch.get("mask")), self.policy.model
        )
        value = self.policy.model.value_function()
        return Evaluation(
            dist.logp(batch["raw_action"]),
            dist.entropy() if entropy else None,
            "exact",
            value,
            dist,
        )

    def log_density(self, dist_inputs, raw_action):
        return self.policy.stored_dist(dist_inputs, self.policy.model).logp(raw_action)

    @staticmethod
    def device_of(name):
        if name not in ("cpu", "auto"):
            raise ConfigError(f"device={name!r}: there is one, cpu.")
        return "cpu"

    def to(self, device: str) -> None:
        """There is one device."""

    def random_state(self):
        state = BITS.state["state"]
        return {"key": state["key"].copy(), "pos": np.array(state["pos"])}

    def set_random_state(self, state):
        BITS.state = {
            "bit_generator": "MT19937",
            "state": {"key": state["key"], "pos": int(state["pos"])},
        }


class NetBookkeeping(ModelBookkeeping):
    """How the kernel reads and sets a net's weights."""

    def weights(self, model):
        return dict(model.weights)

    def set_weights(self, model, weights):
        model.weights = {name: np.array(weights[name]) for name in model.weights}


class Net(ModelV2):
    """A linear net."""

    framework_of_class = "toy"
    _rlcatalog_bookkeeping_class = NetBookkeeping

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        super().__init__(
            obs_space, action_space, num_outputs, model_config, name, self.framework_of_class
        )
        plan: DensePlan = plan_dense_layers(
            self.model_config, math.prod(obs_space.shape), [], num_outputs
        )
        self.weights = {
            "logits": 0.1 * GENERATOR.normal(size=(plan.num_inputs, plan.num_outputs)),
            "value": 0.1 * GENERATOR.normal(size=plan.num_inputs),
        }

    def forward(self, input_dict, state, seq_lens):
        self.features = input_dict["obs_flat"].astype(np.float64)
        return self.features @ self.weights["logits"], state

    def value_function(self):
        return self.features @ self.weights["value"]


class Choice(ActionDistribution):
    """A categorical distribution."""

    framework_of_class = "toy"

    def __init__(self, inputs, model=None):
        super().__init__(inputs, model)
        shifted = inputs - inputs.max(axis=1, keepdims=True, initial=-np.inf)
        self.logits = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))

    @staticmethod
    def required_model_output_shape(action_space, model_config=None):
        return int(action_space.n)

    def sample(self):
        self.last_sample = (self.logits + GENERATOR.gumbel(size=self.logits.shape)).argmax(axis=1)
        return self.last_sample

    def deterministic_sample(self):
        self.last_sample = self.logits.argmax(axis=1)
        return self.last_sample

    def logp(self, actions):
        return np.take_along_axis(
            self.logits, np.asarray(actions).reshape(-1, 1).astype(int), axis=1
        )[:, 0]

    def entropy(self):
        return -(np.exp(self.logits) * self._finite).sum(axis=1)

    def kl(self, other):
        return (np.exp(self.logits) * (self._finite - other._finite)).sum(axis=1)

    @property
    def _finite(self):
        return np.maximum(self.logits, np.finfo(self.logits.dtype).min)


class Ops(NumpyOps):
    """What any framework has, and what PPO's losses and the kit ask; the others are omitted."""

    framework = "toy"

    def booleans(self, value, like):
        return np.asarray(value, bool)

    def cast(self, x, dtype):
        return x.astype(dtype)

    def total(self, values):
        return sum(values)

    def mean(self, x, axis=None, keepdims=False):
        return x.mean(axis, keepdims=keepdims)

    def std(self, x):
        return x.std(ddof=1)

    def exp(self, x):
        return np.exp(x)

    def minimum(self, x, y):
        return np.minimum(x, y)

    def clip(self, x, low, high):
        return np.clip(x, low, high)


OPS = Ops()


def slope(function: Callable[[Array], float], at: Array, step: float = 1e-5) -> Array:
    """Return the gradient of a function of an array, by central differences; the array is as
    before.
    """
    gradient = np.zeros(at.shape)
    for place in np.ndindex(at.shape):
        before = at[place]
        at[place] = before + step
        above = function(at)
        at[place] = before - step
        gradient[place] = (above - function(at)) / (2 * step)
        at[place] = before
    return gradient


class Learner:
    """Adam over the weights of a policy (Kingma and Ba's algorithm 1)."""

    def __init__(self, policy: rlcatalog.Policy, eps: float = 1e-5) -> None:
        self.policy, self.model, self.eps = policy, policy.model, eps
        self.count = 0
        self.first, self.second = (
            {name: np.zeros(w.shape) for name, w in self.weights.items()} for _ in range(2)
        )

    @property
    def weights(self) -> dict[str, Array]:
        return self.model.weights

    @staticmethod
    def seed(value):
        BITS.state = np.random.MT19937(value).state

    @staticmethod
    def drawn():
        """Return where the generator is."""
        state = BITS.state["state"]
        return state["key"].tobytes(), state["pos"]

    @staticmethod
    def set_threads(count):
        """There is one."""

    def select_weights(self):
        """All weights always learn."""

    def place_batch(self, batch):
        return batch

    def rows(self, columns, index):
        return {name: column[index] for name, column in columns.items()}

    def means(self, figures):
        return np.mean(figures, axis=0).tolist()

    def apply(self, gradients: Mapping[str, Array], lr: float) -> None:
        self.count += 1
        for name, gradient in gradients.items():
            self.first[name] += 0.1 * (gradient - self.first[name])
            self.second[name] += 0.001 * (gradient**2 - self.second[name])
            first, second = (
                self.first[name] / (1 - 0.9**self.count),
                self.second[name] / (1 - 0.999**self.count),
            )
            self.weights[name] -= lr * first / (np.sqrt(second) + self.eps)

    def get_state(self):
        first, second = (
            {name: m.copy() for name, m in part.items()} for part in (self.first, self.second)
        )
        return {"step": self.count, "first": first, "second": second, "behind": {}}

    def set_state(self, state):
        self.count, self.first, self.second = (
            state["step"],
            dict(state["first"]),
            dict(state["second"]),
        )


class Optimizer(Learner):
    """A step of PPO."""

    def __init__(self, policy, config, objective=PPO_OBJECTIVE):
        super().__init__(policy)
        self.config, self.objective = config, objective

    def step(self, batch, hyperparameters, *, check_rows=True, measure=True):
        def losses(_=None):
            evaluation = self.policy.evaluate(batch, check=False)
            return self.objective.losses(evaluation, batch, self.config, OPS, hyperparameters)

        if check_rows:
            self.policy.evaluate(batch)
        gradients = {
            name: slope(lambda _: float(losses().total), w) for name, w in self.weights.items()
        }
        norm = math.sqrt(sum((gradient**2).sum() for gradient in gradients.values()))
        scale = min(1.0, (self.config.grad_clip or math.inf) / (norm + 1e-6))
        found = losses()
        self.apply(
            {name: scale * gradient for name, gradient in gradients.items()}, hyperparameters.lr
        )
        metrics = np.array([*self.objective.metrics(found, OPS), norm], float)
        return StepMetrics(metrics, self.model.metrics())


class Kit:
    """What the conformance kit asks."""

    traces = False

    @staticmethod
    def seed(number):
        Learner.seed(number)

    @staticmethod
    def run(policy, inputs, memory, lengths, single):
        outputs, state = policy.model({**inputs, "is_training": False}, list(memory), lengths)
        return outputs, policy.model.value_function(), list(state)

    @staticmethod
    def draw(policy, outputs, mask, explore):
        inputs = outputs if mask is None else policy.dist_class.masked(outputs, mask)
        dist = policy.dist_class(inputs, policy.model)
        sample = dist.sample() if explore else dist.deterministic_sample()
        return as_columns(sample), params_given(dist, sample)

    @staticmethod
    def gradients(policy, batch, rng):
        weights = rng.normal(size=(2, len(batch["obs"])))

        def loss(_):
            found = policy.evaluate(batch)
            return float((weights[0] * found.logp).sum() + (weights[1] * found.value).sum())

        return {name: slope(loss, array) for name, array in policy.model.weights.items()}, []

    @staticmethod
    def gradient(function, inputs):
        before = Learner.drawn()
        found = np.asarray(function(inputs))
        if found.dtype.kind != "f" or Learner.drawn() != before:
            return None  # what is whole, and what is drawn
        return slope(lambda x: float(np.sum(function(x))), np.array(inputs, np.float64)).astype(
            inputs.dtype
        )


def targets(**named: str) -> dict[str, str]:
    return {name: f"toy_framework:{attribute}" for name, attribute in named.items()}


FRAMEWORK = FrameworkSpec(
    "toy",
    targets(backend="Backend", ops="OPS", learner="Learner", kit="Kit"),
    "NumPy",
    module="numpy",
    aliases=("np",),
)
PPO_STEP = FrameworkSpec("toy", targets(ppo="Optimizer"), "a step of PPO", extends="toy/toy")


def match(request: Request) -> Match:
    if request.encoded_shape is None or len(request.encoded_shape) != 1:
        return Match(None, "takes vectors")
    return Match(Rank.FALLBACK, "takes any vector")


def describe(request: Request) -> list[Stage]:
    outputs, values = int(request.num_outputs or 0), request.encoded_size
    return [Stage("value", (), values), Stage("logits", (outputs,), request.encoded_size * outputs)]


def match_choice(request: Request) -> Match:
    return (
        Match(Rank.FALLBACK, "a choice")
        if request.action.kind == "discrete"
        else Match(None, "takes Discrete")
    )


def size_of_choice(action: SpaceInfo, config: Mapping[str, Any]) -> int:
    if action.kind != "discrete":
        raise UnsupportedSpaceError(f"{action.path}: takes Discrete, found {action.space}.")
    return int(action.space.n)


OWN_NET = ModelSpec(
    "toy_linear", targets(toy="Net"), "a linear net", match=match, describe=describe
)
OWN_DIST = ActionDistSpec(
    "toy_choice", targets(toy="Choice"), "one of n", match=match_choice, size=size_of_choice
)
NET = ModelSpec("fcnet", targets(toy="Net"), "fcnet in NumPy", extends="rlcatalog-fcnet/fcnet")
DIST = ActionDistSpec(
    "categorical", targets(toy="Choice"), "in NumPy", extends="rlcatalog-categorical/categorical"
)
