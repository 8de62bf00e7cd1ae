"""Mutants: parts that are wrong in one way and train without an error, for the conformance kit to
find.

Each is made of a sound class of a framework, so that one line of the table is a part in PyTorch, in
TensorFlow and in the third framework of the tests. `cases_of` returns the kit's cases of one, or of
the sound part itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Annotated, Any

import msgspec
import numpy as np
import tape_own_parts
from gymnasium import spaces
from planted_parts import Broken, instead, mean, outputs, over, said, sound, states, values

from rlcatalog import ActionDistSpec, Match, ModelSpec
from rlcatalog.errors import UnsupportedSpaceError
from rlcatalog.frameworks import ops_of
from rlcatalog_testing import Case, Example, PluginEntryPoint, cases, isolated_catalog, plugin_of

DISTRIBUTION, NAME, MODULE = "acme-mutant", "acme_mutant", "acme_mutant_parts"
BOTH, ALL = ("torch", "tf"), ("torch", "tf", "tape")
AROUND = (
    "rlcatalog-preprocessors", "rlcatalog-fcnet", "rlcatalog-categorical", "rlcatalog-gaussian",
    "rlcatalog-multi-action", "rlcatalog-lstm",
)  # fmt: skip
VECTOR = spaces.Box(-1, 1, (4,), np.float32)
PAIR = spaces.Dict({"a": spaces.Box(-1, 1, (3,), np.float32), "b": spaces.Discrete(3)})
CHOICE, BOX = spaces.Discrete(3, start=1), spaces.Box(-2, 2, (2,), np.float32)


@dataclass(frozen=True)
class Mutant:
    """A part that is wrong in one way.

    Attributes:
        name: What is wrong.
        kind: `"model"`, `"memory"`, `"head"` or `"action_dist"`.
        check: The check that finds it.
        make: Makes the class, of the sound class of a framework.
        frameworks: Where it can be made.
        declared: What its declaration has in place of the sound one's.
    """

    name: str
    kind: str
    check: str
    make: Broken
    frameworks: tuple[str, ...] = ALL
    declared: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.kind}: {self.name}"


class SwitchConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The key that turns a memory or a head on."""

    acme_mutant_on: Annotated[bool, msgspec.Meta(description="turns it on")] = False


def _size(action: Any, config: Any) -> int:
    if action.kind == "discrete":
        return int(action.n)
    if action.kind == "box":
        return 2 * int(np.prod(action.shape))
    raise UnsupportedSpaceError(f"{action.path}: takes Discrete and Box")


def _declaration(kind: str, framework: str, declared: Mapping[str, Any]) -> tuple[str, Any]:
    """Return the hook and the declaration of a part."""
    given: dict[str, Any] = {"examples": f"{MODULE}:examples", **declared}
    targets, summary = {framework: f"{MODULE}:Planted"}, given.pop("summary", "a toy")
    name = given.pop("name", NAME)
    if kind == "action_dist":
        return "rlcatalog_action_dists", ActionDistSpec(
            name, targets, summary, **{"size": _size, **given}
        )
    if kind != "model":
        given = {
            "slot": kind,
            "switch": "acme_mutant_on",
            "config": f"{MODULE}:SwitchConfig",
            **given,
        }
    return "rlcatalog_models", ModelSpec(name, targets, summary, **given)


def _examples(kind: str) -> list[Example]:
    if kind in ("memory", "head"):
        return [Example(VECTOR, CHOICE, {"acme_mutant_on": True, "fcnet_hiddens": [4]})]
    if kind == "model":
        return [Example(VECTOR, CHOICE), Example(PAIR, CHOICE)]
    return [Example(VECTOR, action, {"fcnet_hiddens": [4]}) for action in (CHOICE, BOX)]


def cases_of(kind: str, framework: str, mutant: Mutant | None = None) -> list[Case]:
    """Return the kit's cases of a mutant, or of the sound part that mutants of a kind
    are made of.
    """
    home = ModuleType(MODULE)
    base = sound(kind, framework)
    made = (as_it_is if mutant is None else mutant.make)(base)
    made.__name__ = made.__qualname__ = "Planted"
    vars(home).update(Planted=made, SwitchConfig=SwitchConfig, examples=lambda: _examples(kind))
    sys.modules[MODULE] = home
    hook, spec = _declaration(kind, framework, {} if mutant is None else mutant.declared)
    points = [
        PluginEntryPoint(
            plugin_of(**{hook: [spec]}), DISTRIBUTION, requires=("rlcatalog>=0.1,<0.2",)
        )
    ]
    if framework == "tape":
        beside = {
            "rlcatalog_models": [tape_own_parts.NET],
            "rlcatalog_action_dists": [tape_own_parts.DIST],
        }
        points.append(
            PluginEntryPoint(
                plugin_of(rlcatalog_frameworks=[tape_own_parts.FRAMEWORK], **beside), "tape"
            )
        )
    return cases(DISTRIBUTION, catalog=isolated_catalog(*AROUND, *points))


# --- what is wrong --------------------------------------------------------------------------------


def without_gradient(x: Any) -> Any:
    """Return a tensor as a constant."""
    return ops_of(x).without_gradient(x)


def as_it_is(base: Any) -> Any:
    return type("Planted", (base,), {})


def inputs(change: Callable[[Any], Any]) -> Broken:
    """Return what makes a model that sees changed observations."""

    def forward(base: Any, self: Any, input_dict: Any, *args: Any) -> Any:
        return base.forward(self, {**input_dict, "obs_flat": change(input_dict["obs_flat"])}, *args)

    return over(forward=forward)


def constant(x: Any, values: Any) -> Any:
    """Return an array as a tensor beside another."""
    return ops_of(x).tensor(np.asarray(values, np.float32), x)


def all_but(places: slice) -> Callable[[Any], Any]:
    """Return what puts zeros into some columns."""

    def change(x: Any) -> Any:
        kept = np.ones(x.shape[-1], np.float32)
        kept[places] = 0
        return x * constant(x, kept)

    return change


def noisy(x: Any) -> Any:
    return x + constant(x, np.random.default_rng().normal(size=x.shape[-1]))


def in_place(base: Any, self: Any, input_dict: Any, *args: Any) -> Any:
    flat = input_dict["obs_flat"]
    flat *= 0.5
    return base.forward(self, input_dict, *args)


def counting(base: Any, self: Any, *args: Any) -> Any:
    found, state = base.forward(self, *args)
    self.calls = getattr(self, "calls", 0) + 1
    return found + float(self.calls), state


def own_weights() -> Broken:
    """Return what makes a model that gives itself weights of its own as soon as it has some."""

    def take(self: Any) -> None:
        rng, weights = np.random.default_rng(), self.get_weights()
        if weights and not hasattr(self, "has_own"):
            self.set_weights(
                {
                    name: rng.normal(size=np.shape(w)).astype(np.float32)
                    for name, w in weights.items()
                }
            )
            self.has_own = True

    def init(base: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        base.__init__(self, *args, **kwargs)
        take(self)

    def forward(base: Any, self: Any, *args: Any) -> Any:
        found = base.forward(self, *args)
        take(self)
        return found

    return over(__init__=init, forward=forward)


def as_array(x: Any) -> Any:
    return ops_of(x).array(without_gradient(x))


def centred(x: Any) -> Any:
    return x - ops_of(x).mean(x, axis=0, keepdims=True)


def drawn(noise_of: Callable[[tuple[int, ...]], Any]) -> Broken:
    """Return what makes a distribution whose floats are drawn with other noise, and whose choices
    as before.
    """

    def sample(base: Any, self: Any) -> Any:
        if self.discrete:
            return base.sample(self)
        shape = tuple(self.means.shape)
        self.last_sample = without_gradient(
            self.means + exp(self.logs) * constant(self.means, noise_of(shape))
        )
        return self.last_sample

    return over(sample=sample)


def exp(x: Any) -> Any:
    return ops_of(x).exp(x)


def not_implemented(self: Any, other: Any) -> Any:
    raise NotImplementedError


def in_float64(base: Any, self: Any) -> Any:
    found = base.sample(self)
    return found if self.discrete else ops_of(found).as_type(found, "float64")


def off_by_one_scale(base: Any, self: Any) -> Any:
    self.last_sample = (
        base.deterministic_sample(self) if self.discrete else self.means + exp(self.logs)
    )
    return self.last_sample


def least_likely(base: Any, self: Any) -> Any:
    ops = ops_of(self.logs)
    least = np.asarray(ops.array(self.logs)).argmin(1)
    self.last_sample = ops.tensor(least) if self.discrete else self.means
    return self.last_sample


def detached(method: str, name: str) -> Broken:
    """Return what makes a distribution that answers one question with an attribute as a constant,
    where it has that.
    """

    def ask(base: Any, self: Any, *args: Any) -> Any:
        if not hasattr(self, name):
            return getattr(base, method)(self, *args)
        kept = getattr(self, name)
        setattr(self, name, without_gradient(kept))
        found = getattr(base, method)(self, *args)
        setattr(self, name, kept)
        return found

    return over(**{method: ask})


# --- the table ------------------------------------------------------------------------------------

MODELS: dict[str, tuple[Any, ...]] = {
    "noise in the outputs": ("rows_are_independent", outputs(noisy)),
    "counts its passes": ("rows_are_independent", over(forward=counting)),
    "values of nothing": ("every_weight_is_trained", values(lambda x: x * 0)),
    "half of the outputs are zero": ("every_output_is_learned", outputs(all_but(slice(1, None)))),
    "outputs that are no numbers": ("output_width", outputs(lambda x: x * float("nan"))),
    "outputs in NumPy": ("outputs_are_tensors", outputs(as_array), ("torch", "tape")),
    "values that are no numbers": ("one_value_per_row", values(lambda x: x * float("nan"))),
    "writes into its input": ("leaves_its_inputs_alone", over(forward=in_place), ("torch",)),
    "ignores a part of a Dict": (
        "every_part_of_an_observation_matters",
        inputs(all_but(slice(3, None))),
    ),
    "ignores one number": ("every_part_of_an_observation_matters", inputs(all_but(slice(1, 2)))),
    "weights of its own generator": ("weights_follow_the_seed", own_weights()),
}

MEMORIES: dict[str, tuple[Any, ...]] = {
    "a state that decays twice": ("state_carries_everything", states(lambda s: [s[0] * 0.5]), BOTH),
    "ignores its state": (
        "state_carries_everything",
        over(begun=lambda base, self, state: state * 0),
        BOTH,
    ),
    "a sequence mixes with the next": (
        "rows_are_independent",
        over(prepared=lambda base, self, x: centred(x)),
        BOTH,
    ),
    "features without gradient": (
        "every_weight_is_trained",
        over(prepared=lambda base, self, x: without_gradient(x)),
        BOTH,
    ),
    "a switch that is off when it is on": (
        "has_a_way_in",
        as_it_is,
        BOTH,
        {"match": lambda request: Match(None, "off")},
    ),
}

HEADS: dict[str, tuple[Any, ...]] = {
    "a row depends on the others": ("rows_are_independent", outputs(centred), BOTH),
    "values of nothing": ("every_weight_is_trained", values(lambda x: x * 0), BOTH),
    "outputs without gradient": ("every_weight_is_trained", outputs(without_gradient), BOTH),
    "weights of its own generator": ("weights_follow_the_seed", own_weights(), BOTH),
    "ignores the last choice": ("every_output_is_learned", outputs(all_but(slice(2, None))), BOTH),
}

DISTS: dict[str, tuple[Any, ...]] = {
    "the mode is drawn": (
        "deterministic_sample_is_no_draw",
        over(deterministic_sample=lambda base, self: self.sample()),
    ),
    "the mode is off by one scale": (
        "deterministic_sample_is_likely",
        over(deterministic_sample=off_by_one_scale),
    ),
    "the mode is the least likely": (
        "deterministic_sample_is_likely",
        over(deterministic_sample=least_likely),
    ),
    "a generator without a seed": (
        "draws_follow_the_seed",
        drawn(lambda n: np.random.default_rng().normal(size=n)),
    ),
    "the same noise each time": (
        "draws_follow_the_seed",
        drawn(lambda n: np.random.default_rng(0).normal(size=n)),
    ),
    "draws of float64": ("draws_have_their_form", over(sample=in_float64)),
    "logp of float64": (
        "one_number_per_row",
        said("logp", lambda x: ops_of(x).as_type(x, "float64")),
    ),
    "draws of another temperature": (
        "density_integrates_to_one",
        drawn(lambda shape: 1.5 * np.random.standard_normal(shape)),
    ),
    "draws are always the first": ("draws_follow_logp", said("sample", lambda x: x * 0)),
    "logp without gradient": (
        "gradients_are_those_of_numbers",
        said("logp", without_gradient),
    ),
    "a scale without gradient in logp": (
        "gradients_are_those_of_numbers",
        detached("logp", "logs"),
    ),
    "a mean without gradient in logp": (
        "gradients_are_those_of_numbers",
        detached("logp", "means"),
    ),
    "entropy without gradient": (
        "gradients_are_those_of_numbers",
        said("entropy", without_gradient),
    ),
    "kl without gradient": ("gradients_are_those_of_numbers", said("kl", without_gradient)),
    "a density of no density": ("density_integrates_to_one", said("logp", lambda x: x + 1.0)),
    "half the logp": ("density_integrates_to_one", said("logp", lambda x: x * 0.5)),
    "logp that depends on other rows": ("one_number_per_row", said("logp", lambda x: x - mean(x))),
    "half the entropy": ("entropy_agrees_with_draws", said("entropy", lambda x: x * 0.5)),
    "entropy in bits": (
        "entropy_agrees_with_draws",
        said("entropy", lambda x: x / float(np.log(2))),
    ),
    "kl the other way round": (
        "kl_agrees_with_draws",
        over(kl=lambda base, self, other: base.kl(other, self)),
    ),
    "kl from itself": ("kl_of_itself_is_zero", said("kl", lambda x: x + 0.5)),
    "kl that is drawn": (
        "one_number_per_row",
        said("kl", lambda x: x + float(np.random.default_rng().uniform())),
    ),
    "kl that is not implemented": ("kl_agrees_with_draws", instead(kl=not_implemented)),
    "an entropy that is hidden": ("entropy_agrees_with_draws", instead(entropy_kind="estimate")),
    "no limit to the scale": ("gradients_are_finite", instead(limit=1e6)),
    "half of what is stored": (
        "is_rebuilt_from_stored_parameters",
        over(params_given=lambda base, self, actions: self.inputs / 2),
    ),
    "a mask that allows all": (
        "masks_are_obeyed",
        instead(masked=classmethod(lambda cls, inputs, mask, **options: inputs)),
    ),
    "reads its model": (
        "works_inside_tuple_and_dict",
        over(
            logp=lambda base, self, actions: base.logp(self, actions) + 0.0 * self.model.num_outputs
        ),
        BOTH,
    ),
    "another size": (
        "size_is_announced",
        instead(required_model_output_shape=staticmethod(lambda space, config=None: 7)),
    ),
    "a size for every space": (
        "works_for_what_it_accepts",
        as_it_is,
        ALL,
        {"size": lambda action, config: 2 * int(np.prod(action.shape or (1,))), "examples": None},
    ),
}


def _mutants(kind: str, table: Mapping[str, tuple[Any, ...]]) -> Iterator[Mutant]:
    for name, (check, make, *more) in table.items():
        yield Mutant(name, kind, check, make, *more)


MUTANTS = [
    *_mutants("model", MODELS),
    *_mutants("memory", MEMORIES),
    *_mutants("head", HEADS),
    *_mutants("action_dist", DISTS),
]
