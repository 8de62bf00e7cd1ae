"""The parts of `planted.py`: sound classes, and tables of what is made of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
from gymnasium import spaces

from rlcatalog import ActionDistribution, Filter, Preprocessor
from rlcatalog.frameworks import ops_of

Broken = Callable[[Any], Any]
BOX = spaces.Box(-1, 1, (2,), np.float32)


class Breakable:
    """The steps of a sound memory that mutants replace."""

    def prepared(self, features: Any) -> Any:
        return features

    def begun(self, state: Any) -> Any:
        return state


class TwoKinds(ActionDistribution):
    """The inputs of a sound distribution: choices for a Discrete, normal numbers for a Box."""

    limit = 5.0

    @staticmethod
    def required_model_output_shape(action_space: Any, model_config: Any = None) -> int:
        return (
            int(action_space.n) if hasattr(action_space, "n") else 2 * math.prod(action_space.shape)
        )

    @classmethod
    def options_for(cls, action: Any, config: Any, children: Any = ()) -> dict[str, Any]:
        return {"discrete": action.kind == "discrete"}


def sound(kind: str, framework: str) -> Any:
    """Return a sound class of a framework: a net, a memory or a head around one, a distribution."""
    return getattr(import_module(f"planted_{framework}"), kind)


def over(**methods: Any) -> Broken:
    """Return what makes a subclass with other methods; each is given the base class first."""

    def make(base: Any) -> Any:
        def bound(method: Any) -> Any:
            return lambda self, *args, **kwargs: method(base, self, *args, **kwargs)

        return type("Planted", (base,), {name: bound(method) for name, method in methods.items()})

    return make


def instead(**methods: Any) -> Broken:
    """Return what makes a subclass with these methods as they are."""
    return lambda base: type("Planted", (base,), methods)


def outputs(change: Callable[[Any], Any]) -> Broken:
    """Return what makes a model with changed outputs."""

    def forward(base: Any, self: Any, *args: Any) -> Any:
        found, state = base.forward(self, *args)
        return change(found), state

    return over(forward=forward)


def outputs_in_training(change: Callable[[Any], Any]) -> Broken:
    """Return what makes a model with changed outputs where stored actions are scored, and there
    alone.
    """

    def forward(base: Any, self: Any, input_dict: Any, *args: Any) -> Any:
        found, state = base.forward(self, input_dict, *args)
        return (change(found) if input_dict["is_training"] else found), state

    return over(forward=forward)


def values(change: Callable[[Any], Any]) -> Broken:
    return over(value_function=lambda base, self: change(base.value_function(self)))


def values_alone(change: Callable[[Any], Any]) -> Broken:
    """Return what makes a model with changed values where nobody acts, and there alone."""

    def forward(base: Any, self: Any, input_dict: Any, *args: Any) -> Any:
        self.nobody_acts = bool(input_dict.get("values_only"))
        return base.forward(self, input_dict, *args)

    def value_function(base: Any, self: Any) -> Any:
        found = base.value_function(self)
        return change(found) if self.nobody_acts else found

    return over(forward=forward, value_function=value_function)


def states(change: Callable[[list[Any]], Any]) -> Broken:
    """Return what makes a model or memory with changed states."""

    def forward(base: Any, self: Any, *args: Any) -> Any:
        found, state = base.forward(self, *args)
        return found, change(state)

    return over(forward=forward)


def twice(x: Any) -> Any:
    """Return a tensor beside itself, with twice the columns."""
    return ops_of(x).side_by_side([x, x])


def mean(x: Any) -> Any:
    return ops_of(x).mean(x)


def fails(*args: Any, **kwargs: Any) -> Any:
    return 1 // 0


def hidden(base: Any) -> Any:
    """Return a net whose outputs pass through a weight that stands in no attribute."""
    return base.with_hidden_weight()


def written_into(name: str) -> Broken:
    """Return what makes a model that halves one of its inputs where it is."""

    def forward(base: Any, self: Any, input_dict: Any, state: Any, seq_lens: Any) -> Any:
        (state[0] if name == "state" else input_dict[name]).mul_(0.5)
        return base.forward(self, input_dict, state, seq_lens)

    return over(forward=forward)


def stateful(
    change: Callable[[Any], Any], initial: Callable[[], Any] = lambda: [np.zeros(2, np.float32)]
) -> Broken:
    """Return what makes a net with a state, which it changes at each step."""

    def forward(base: Any, self: Any, input_dict: Any, state: Any, seq_lens: Any) -> Any:
        found, _ = base.forward(self, input_dict, [], None)
        return found, change(list(state))

    return over(forward=forward, get_initial_state=lambda base, self: initial())


BEYOND = {"config": {"use_lstm": True, "lstm_cell_size": 3}}

IN_TORCH = {"frameworks": ("torch",)}
MODELS: dict[str, tuple[Any, ...]] = {
    "too many outputs for a Discrete": (
        outputs(twice),
        r"forward\(\).*shape \[\d, 2\].*found shape \[\d, 4\]",
    ),
    "too many outputs in training": (
        outputs_in_training(twice),
        r"forward\(\).*found shape \[\d, 4\]",
    ),
    "one row of outputs in training": (
        outputs_in_training(lambda x: x[:1]),
        r"forward\(\).*found shape \[1, 2\]",
    ),
    "one row of outputs": (outputs(lambda x: x[:1]), r"forward\(\).*found shape \[1, 2\]"),
    "no outputs": (outputs(lambda x: None), r"forward\(\).*found None"),
    "outputs alone": (
        instead(forward=lambda self, *args: None),
        r"forward\(\).*must return a tuple",
    ),
    "states in a tuple": (states(tuple), r"forward\(\).*must return its state as a list"),
    "forward takes the input alone": (
        instead(forward=lambda self, input_dict: None),
        r"forward\(\).*it takes \(input_dict",
    ),
    "forward raises": (instead(forward=fails), "ZeroDivisionError"),
    "the constructor takes two arguments": (
        instead(__init__=lambda self, obs_space, action_space: None),
        r"is called with .* but takes \(obs_space",
    ),
    "the constructor does not call its base's": (
        instead(__init__=lambda self, *args, **kwargs: None),
        "must call its base's __init__",
    ),
    "the constructor raises": (instead(__init__=fails), "cannot be built: ZeroDivisionError"),
    "values in two columns": (
        values(lambda x: twice(x[:, None])),
        r"value_function\(\).*found shape \((3|1|None), 2\)",
    ),
    "one value": (values(lambda x: x[:1]), r"value_function\(\).*found shape \(1,\)"),
    "one value where nobody acts": (
        values_alone(lambda x: x[:1]),
        r"value_function\(\).*found shape \(1,\)",
    ),
    "the mean of the values": (values(mean), r"value_function\(\).*found shape \(\)"),
    "no value": (values(lambda x: None), r"value_function\(\).*found None"),
    "value_function takes an argument": (
        instead(value_function=lambda self, features: features),
        r"value_function\(\).*it takes \(features\)|missing",
    ),
    "value_function raises": (instead(value_function=fails), "ZeroDivisionError"),
    "no list of states to begin with": (
        instead(get_initial_state=lambda self: None),
        r"get_initial_state\(\).*found None",
    ),
    "text for a state": (
        instead(get_initial_state=lambda self: ["zero"]),
        r"get_initial_state\(\).*found \['zero'\]",
    ),
    "get_initial_state raises": (instead(get_initial_state=fails), "ZeroDivisionError"),
    "a state grows": (
        stateful(lambda s: [twice(s[0])]),
        r"forward\(\).*\[\(3, 2\)\].*found \[\(3, 4\)\]",
    ),
    "one state too many": (stateful(lambda s: [*s, *s]), r"forward\(\).*returned 2 states"),
    "the state of one episode": (
        stateful(lambda s: [s[0][:1]]),
        r"forward\(\).*found \[\(1, 2\)\]",
    ),
    "a weight that nothing holds": (
        hidden,
        "uses the weight .* would neither be trained nor saved",
    ),
    "a trunk that announces no width": (
        over(
            __init__=lambda base, self, *args: (
                base.__init__(self, *args),
                setattr(self, "num_outputs", None),
            )[0]
        ),
        "did not set self.num_outputs",
        BEYOND,
    ),
    "an observation written into": (
        written_into("obs_flat"),
        r"forward\(\).* must not write into its inputs; input_dict\['obs'\]",
        IN_TORCH,
    ),
    "a trunk that announces another width": (
        over(
            __init__=lambda base, self, *args: (
                base.__init__(self, *args),
                setattr(self, "num_outputs", 9),
            )[0]
        ),
        r"declared num_outputs=9.*returned 4",
        BEYOND,
    ),
}

MEMORIES: dict[str, tuple[Any, ...]] = {
    "its constructor takes no trunk": (
        instead(
            __init__=lambda self, obs_space, action_space, num_outputs, model_config, name: None
        ),
        "takes .* trunk=",
    ),
    "too many outputs": (outputs(twice), r"forward\(\).*found shape \[\d, 4\]"),
    "a state of another width": (
        states(lambda s: [twice(s[0])]),
        r"forward\(\).*found \[\(3, 6\)\]",
    ),
    "a state too many": (states(lambda s: [*s, *s]), r"forward\(\).*returned 2 states"),
    "one value": (values(lambda x: x[:1]), r"value_function\(\).*found shape \(1,\)"),
    "a state written into": (
        written_into("state"),
        r"forward\(\).* must not write into its inputs; state\[0\]",
        IN_TORCH,
    ),
}

HEADS: dict[str, tuple[Any, ...]] = {
    "its constructor takes the trunk alone": (
        instead(__init__=lambda self, obs_space, action_space, size, config, name, *, trunk: None),
        "takes .* value_trunk=",
    ),
    "too many outputs": (outputs(twice), r"forward\(\).*found shape \[\d, 4\]"),
}


def said(method: str, change: Callable[[Any], Any]) -> Broken:
    """Return what makes a distribution with a changed answer."""
    return over(**{method: lambda base, self, *args: change(getattr(base, method)(self, *args))})


def per_row(method: str) -> str:
    return rf"{method}\(\).*one number per row"


DISTS: dict[str, tuple[Any, ...]] = {
    "logp in a column": (said("logp", lambda x: x[:, None]), per_row("logp")),
    "no logp": (said("logp", lambda x: None), "logp|NoneType"),
    "entropy in a column": (said("entropy", lambda x: x[:, None]), per_row("entropy")),
    "entropy of each value in a Tuple": (
        said("entropy", lambda x: x[:, None]),
        "entropy|acme",
        {"action": spaces.Tuple([spaces.Discrete(2)] * 2)},
    ),
    "kl in a column": (said("kl", lambda x: x[:, None]), per_row("kl")),
    "one sample": (said("sample", lambda x: x[:1]), r"sample\(\).*found shape \[1, 1\]"),
    "samples too wide": (
        said("sample", twice),
        r"sample\(\).*returned 4 values per action",
        {"action": BOX},
    ),
    "a sample with gradient": (
        over(sample=lambda base, self: self.rsample()),
        r"sample\(\).*without gradient",
        {"action": BOX},
    ),
    "a likely action too wide": (
        said("deterministic_sample", twice),
        r"sample\(\).*returned 4 values per action",
        {"action": BOX},
    ),
    "sample raises": (instead(sample=fails), "ZeroDivisionError"),
    "logp raises": (instead(logp=fails), "ZeroDivisionError"),
    "entropy raises": (instead(entropy=fails), "ZeroDivisionError"),
    "kl raises": (instead(kl=fails), "ZeroDivisionError"),
    "logp takes no action": (instead(logp=lambda self: None), r"logp\(\).*it takes \(self\)"),
    "the constructor takes the inputs alone": (
        instead(__init__=lambda self, inputs: None),
        r"__init__ is called with \(inputs, model",
    ),
    "the constructor raises": (instead(__init__=fails), "ZeroDivisionError"),
    "another size than declared": (
        lambda base: type(
            "Planted", (base,), {"required_model_output_shape": staticmethod(lambda a, c=None: 7)}
        ),
        "takes 2 inputs .* returns 7",
    ),
    "required_model_output_shape raises": (
        lambda base: type("Planted", (base,), {"required_model_output_shape": staticmethod(fails)}),
        "required_model_output_shape raised ZeroDivisionError",
    ),
    "no distribution at all": (lambda base: dict, "must be a subclass of ActionDistribution"),
}


class Codec(Preprocessor):
    """A sound codec of a 2×2 matrix."""

    def _init_shape(self, obs_space: Any, options: Any) -> tuple[int, ...]:
        return (4,)

    def writer(self, start: int) -> Any:
        def write(obs: Any, out: Any) -> None:
            out[start : start + 4] = np.ravel(obs)

        return write

    def batch_writer(self, start: int) -> Any:
        def write(batch: Any, out: Any) -> None:
            out[:, start : start + 4] = np.reshape(batch, (len(out), 4))

        return write

    def bounds(self) -> Any:
        return np.full(4, -1, np.float32), np.full(4, 1, np.float32)


def writing(first: int, last: int, value: float = 0.5) -> dict[str, Any]:
    """Return writers that write besides into places counted from their slice's start."""

    def writer(base: Any, self: Any, start: int) -> Any:
        write = base.writer(self, start)

        def more(obs: Any, out: Any) -> None:
            write(obs, out)
            out[max(start + first, 0) : start + last] = value

        return more

    return {"writer": writer}


def batch_writing(first: int, last: int, value: float = 0.5) -> dict[str, Any]:
    def writer(base: Any, self: Any, start: int) -> Any:
        write = base.batch_writer(self, start)

        def more(batch: Any, out: Any) -> None:
            write(batch, out)
            out[:, max(start + first, 0) : start + last] = value

        return more

    return {"batch_writer": writer}


def harmful(base: Any, self: Any, start: int) -> Any:
    write = base.batch_writer(self, start)

    def harming(batch: Any, out: Any) -> None:
        write(batch, out)
        batch *= 0.5

    return harming


def in_rllibs_form(**methods: Any) -> Broken:
    def make(base: Any) -> Any:
        body = {
            "_init_shape": lambda self, space, options: (4,),
            "transform": lambda self, obs: np.ravel(obs),
        }
        return type("Planted", (Preprocessor,), {**body, **methods})

    return make


INSIDE = spaces.Dict(
    {"a": spaces.Box(-1, 1, (2, 2), np.float32), "b": spaces.Box(-1, 1, (2, 2), np.float32)}
)

CODECS: dict[str, tuple[Any, ...]] = {
    "writes behind its slice": (
        over(**writing(4, 5)),
        r"writer\(start\) writes to position start\+4",
    ),
    "writes before its slice": (
        over(**writing(-1, 0)),
        r"writer\(start\) writes to position start-1",
    ),
    "writes a batch behind its slice": (
        over(**batch_writing(4, 5)),
        r"_writer\(start\) writes to position start\+4",
    ),
    "writes everywhere, inside a Dict": (
        over(**batch_writing(-99, 99)),
        "writes to position",
        {"obs": INSIDE},
    ),
    "outside of its bounds": (over(**batch_writing(0, 4, 3.0)), "outside \\[", {"check": "always"}),
    "outside of its bounds, inside a Dict": (
        over(**batch_writing(0, 4, 3.0)),
        r"obs\['a'\] is encoded as 3.0",
        {"check": "always", "obs": INSIDE},
    ),
    "changes the observation": (over(batch_writer=harmful), "modifies its observations"),
    "a number for a shape": (
        instead(_init_shape=lambda self, *args: 4),
        r"_init_shape\(\) must return a shape",
    ),
    "no shape": (
        instead(_init_shape=lambda self, *args: None),
        r"_init_shape\(\) must return a shape",
    ),
    "_init_shape raises": (instead(_init_shape=fails), "ZeroDivisionError"),
    "no way to write": (
        lambda base: type("Planted", (Preprocessor,), {"_init_shape": base._init_shape}),
        "RecursionError",
    ),
    "bounds of another size": (
        instead(bounds=lambda self: (np.zeros(3), np.ones(3))),
        r"bounds\(\) must return two arrays of shape \(4,\)",
    ),
    "writer returns nothing": (
        instead(writer=lambda self, start: None),
        r"writer\(\) must return a function",
    ),
    "writer raises": (instead(writer=fails), "ZeroDivisionError"),
    "transform of another shape": (
        in_rllibs_form(transform=lambda self, obs: obs),
        r"transform\(\) returned shape \(2, 2\)",
    ),
    "transform of text": (
        in_rllibs_form(transform=lambda self, obs: ["a"] * 4),
        "must return numbers",
    ),
    "no preprocessor at all": (lambda base: dict, "must be a subclass of rlcatalog.Preprocessor"),
}


class Halving(Filter):
    """A sound filter."""

    def __call__(self, encoded: Any, *, update: bool = False) -> Any:
        return encoded * 0.5


def late_harm(base: Any, self: Any, encoded: Any, *, update: bool = False) -> Any:
    self.calls = getattr(self, "calls", 0) + 1
    if self.calls > 1:
        encoded *= 0.5
    return base.__call__(self, encoded)


def in_place(self: Any, encoded: Any, *, update: bool = False) -> Any:
    encoded *= 0.5
    return encoded


FILTERS: dict[str, tuple[Any, ...]] = {
    "changes its input": (instead(__call__=in_place), "modifies its observations"),
    "changes its input later": (
        over(__call__=late_harm),
        "modifies its observations",
        {"check": "always"},
    ),
    "another shape": (
        instead(__call__=lambda self, x, *, update=False: x[:, :2]),
        r"numbers of shape \(3, 4\)",
    ),
    "one row": (
        instead(__call__=lambda self, x, *, update=False: x[:1]),
        r"numbers of shape \(3, 4\)",
    ),
    "text": (instead(__call__=lambda self, x, *, update=False: "x"), "numbers of shape"),
    "raises": (instead(__call__=fails), "ZeroDivisionError"),
    "no update": (instead(__call__=lambda self, x: x), "TypeError"),
    "no filter": (lambda base: dict, "rlcatalog.Filter|raised"),
    "its constructor raises": (instead(__init__=fails), "ZeroDivisionError"),
    "processed_space raises": (instead(processed_space=fails), "ZeroDivisionError"),
    "processed_space is none": (instead(processed_space=lambda self, p: None), "processed_space"),
    "its state is no dict": (instead(get_state=lambda self: 3), r"get_state\(\) must return"),
    "get_state raises": (instead(get_state=fails), r"get_state\(\) raised ZeroDivisionError"),
    "set_state raises": (instead(set_state=fails), "set_state raised ZeroDivisionError"),
}
