"""Declarations of parts, commands and checks, which a plugin's hooks return: frozen objects of
strings and small functions.

A declaration gives a part's name, the requests that it fits, and the import path of its code.
rlcatalog imports a target such as `"rlcatalog_fcnet.torch:FullyConnectedNetwork"` on first use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

# A door names files of its own room; these declarations stand in lower ones.
from rlcatalog.declaration import (
    FUNCTION,
    TEXTS,
    Declaration as Declaration,
    Form,
    Forms,
    Match as Match,
    Rank as Rank,
    text_like,
)
from rlcatalog.frameworks import frameworks
from rlcatalog.frameworks.table import FrameworkSpec as FrameworkSpec
from rlcatalog.plugins.request import Request
from rlcatalog.shared_declarations import SharedDeclaration, SharedTable
from rlcatalog.spaces.action_codec_spec import ActionCodecSpec as ActionCodecSpec

#: The config keys that `rlcatalog.models.post_fcnet` and `plan_dense_layers` read: the layers after
#: a trunk.
OUTPUT_KEYS = (
    "init", "vf_share_layers", "free_log_std", "no_final_linear", "post_fcnet_hiddens",
    "post_fcnet_activation", "post_fcnet_weights_initializer",
    "post_fcnet_weights_initializer_config", "post_fcnet_bias_initializer",
    "post_fcnet_bias_initializer_config",
)  # fmt: skip
#: The config keys that apply to a plain module: the form of images, and the layers after it.
PLAIN_KEYS = ("module_images", "image_layout", *OUTPUT_KEYS)
#: The config keys that apply to a plain memory. The kernel reads more keys with any memory.
PLAIN_MEMORY_KEYS = ("init", "free_log_std", "max_seq_len")


@dataclass(frozen=True)
class Stage:
    """One stage of a model, as shown by `explain`.

    Attributes:
        name: Name of the stage, such as `hidden 1 (tanh)`.
        shape: Shape of the stage's output for one observation; None if known only after building.
        weights: Number of weights in the stage; None if known only after building.
            `rlcatalog summary` adds them up. Before building, loading rejects a config that
            requires more weights than the file contains.
        whole: Whether `weights` counts all weights; False if it is a lower bound.
    """

    name: str
    shape: tuple[int, ...] | None
    weights: int | None = None
    whole: bool = True


class PreprocessorSpec(Declaration):
    """A `Preprocessor` class: the codec for the spaces that `kinds` lists.

    The target has the key `"numpy"`. `request.obs` is the space to encode: the whole observation
    space, or a child of a Dict or Tuple, so the codec also works inside nested spaces.
    """

    kind: ClassVar[str] = "preprocessor"
    targets_allowed = frozenset({"numpy"})


class FilterSpec(Declaration):
    """A `Filter` class, a stateful stage between preprocessor and model; chosen by
    `observation_filter`.

    The target has the key `"numpy"`. It is a class of filters, or a function that returns a filter.
    rlcatalog calls the class or function with the preprocessor and the model config. A filter is
    only used if the config names it, so its declaration needs no `match`.
    """

    kind: ClassVar[str] = "filter"
    targets_allowed = frozenset({"numpy"})


class EnvWrapperSpec(Declaration):
    """A function `wrap(env, config) -> env`; `match` sees the environment as `request.env`.

    The target has the key `"numpy"`. In `match`, the spaces of the environment are `request.obs`
    and `request.action`. If you declare no `match`, the wrapper fits every environment while its
    switch is on.

    The conformance kit needs environments to test the wrapper with. `examples` names a function
    that returns a list of functions without arguments, each of which creates an environment. An
    entry of the list may also be a pair of such a function and the config that switches the wrapper
    on.
    """

    kind: ClassVar[str] = "env_wrapper"
    targets_allowed = frozenset({"numpy"})


@dataclass(frozen=True)
class EnvAdapterSpec(SharedDeclaration):
    """A function `adapt(env)` that returns an environment of another kind in Gymnasium's form.

    The target `"numpy"` names the function. It returns a `gymnasium.Env`, or a
    `gymnasium.vector.VectorEnv` whose `metadata["autoreset_mode"]` says when it resets its
    environments. rlcatalog calls it wherever an environment comes in: in `build`, in `explain`, in
    `make_env`, and in the engines that make their environments with it. An adapter is recognised
    by names alone, so rlcatalog imports neither the adapter nor the other package before.

    An adapter can also own a prefix of ids, such as `acme:` in `acme:Maze-v1`. A second target then
    makes the environment of such an id. It is either `"make"`, a function
    `make(id, **env_config)`, or `"make_vec"`, a function `make_vec(id, num_envs, **env_config)`
    that makes all environments of a run at once. The function gets the id without the prefix.

    Attributes:
        modules: Names of modules or packages. The adapter fits an environment if one of them
            defines its class or one of the class's bases. The nearest class decides.
        attributes: Names of attributes, for environments whose modules cannot be listed. The
            adapter fits an environment that has all of them, unless another adapter lists its
            module. What an adapter returns must not have them all.
        prefix: The prefix of ids, without the colon.

    Example:
        >>> targets = {"numpy": "acme_sim.env:adapt", "make": "acme_sim.env:make"}
        >>> spec = EnvAdapterSpec(
        ...     "acme_sim", targets, "simulations of acme", modules=("acme_core",), prefix="acme"
        ... )
        >>> spec.makes_vector
        False
    """

    kind: ClassVar[str] = "env_adapter"
    targets_allowed = frozenset({"numpy", "make", "make_vec"})
    shows_classes = False
    forms: ClassVar[Forms] = {
        "modules": TEXTS,
        "attributes": TEXTS,
        "prefix": Form(text_like(r"[A-Za-z_][A-Za-z0-9_]*"), "a word, such as 'acme'"),
    }
    #: Module, or `"prefix:"`, or a text about attributes → adapter.
    table: ClassVar[SharedTable[EnvAdapterSpec]] = SharedTable("env_adapter")

    modules: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    prefix: str | None = None

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if "numpy" not in self.targets:
            yield "targets must have 'numpy', the function that adapts an environment"
        if not self.modules and not self.attributes:
            yield (
                "modules or attributes must say which environments it adapts, such as"
                " modules=('acme_core',)"
            )
        makers = sorted(self.targets.keys() & {"make", "make_vec"})
        if self.prefix is None and makers:
            yield f"the target {makers[0]!r} needs a prefix, such as prefix='acme'"
        if self.prefix is not None and len(makers) != 1:
            yield f"the prefix {self.prefix!r} needs one target, 'make' or 'make_vec'"

    @property
    def makes_vector(self) -> bool:
        """Whether an id with the adapter's prefix makes all environments of a run at once."""
        return "make_vec" in self.targets

    @property
    def entries(self) -> tuple[str, ...]:
        """The modules, the prefix with its colon, and the attributes as one text."""
        entries = list(self.modules)
        if self.prefix is not None:
            entries.append(f"{self.prefix}:")
        if self.attributes:
            entries.append(f"attributes {', '.join(self.attributes)}")
        return tuple(entries)

    def describe_clash(self, entry: str, other: SharedDeclaration) -> str:
        return (
            f"environments of {entry!r} already have an adapter, {other.targets['numpy']}. Disable"
            " one of the two packages."
        )


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


@dataclass(frozen=True)
class ModelSpec(Declaration):
    """A model class.

    Attributes:
        slot: `"trunk"`, `"memory"` or `"head"`; a memory and a head are built around the trunk.
        claims: For a head, a function `claims(request)` that returns the keys of a Dict observation
            that the head reads itself. Trunk and memory are chosen for the remaining keys, and see
            only those; a single remaining entry is passed without the Dict.
        describe: A function `describe(request)` that returns a list of `Stage`s without importing a
            framework; `explain` prints it. For a trunk inside another model,
            `request.num_outputs` is None. If there is no function, shapes are "known after
            build".
        dense_layers: For a trunk that ends with dense layers, the beginnings of their config keys,
            in order: `("acme",)` for `acme_hiddens`, `acme_activation` and, if there are any,
            `acme_weights_initializer` and `acme_bias_initializer`. With `memory_first`, the kernel
            builds the trunk with empty lists of `hiddens`, and these layers after the memory.
        pinned_keys: For a model that requests other models from the catalog, a function
            `pinned_keys(request)` that returns config keys with the models chosen, by name; a class
            or function that the config contains stays as it is. A saved policy stores the names, so
            that loading does not repeat the choice.
        plain: Whether its targets are plain modules: a class, an instance or a factory of
            `torch.nn.Module` or `keras.Layer`. Such a model is a trunk, which reads the keys of
            `PLAIN_KEYS`, or a memory, which reads those of `PLAIN_MEMORY_KEYS`. A plain trunk
            has no config keys of its own: its settings are arguments of its constructor, which
            users set with `custom_model_config`.

    Example:
        >>> @hookimpl
        ... def rlcatalog_models():
        ...     return [ModelSpec("acme_net", {"torch": "acme_net.torch:Net"}, "a residual net")]
        >>> rlcatalog_models()[0].slot
        'trunk'
    """

    kind: ClassVar[str] = "model"
    forms: ClassVar[Forms] = {
        "slot": Form(text_like("trunk|memory|head"), "trunk, memory or head"),
        "claims": FUNCTION,
        "describe": FUNCTION,
        "dense_layers": TEXTS,
        "pinned_keys": FUNCTION,
        "plain": Form(_is_bool, "True or False"),
    }

    slot: str = "trunk"
    claims: Callable[[Request], Sequence[str]] | None = None
    describe: Callable[[Request], Sequence[Stage]] | None = None
    dense_layers: tuple[str, ...] = ()
    pinned_keys: Callable[[Request], Mapping[str, Any]] | None = None
    plain: bool = False

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.plain and self.slot == "head":
            yield (
                "a plain module is a trunk or a memory; found slot='head'. Derive it from"
                " TorchModelV2 or TFModelV2"
            )
        if self.plain and self.slot == "trunk" and self.config is not None:
            yield (
                "a plain module gets no config, so its keys would have no effect; found"
                f" config={self.config!r}. Make the keys arguments of its constructor, which users"
                " set with custom_model_config"
            )

    def complete_fields(self) -> None:
        super().complete_fields()
        if self.plain and not self.extends:
            keys: tuple[str, ...] = PLAIN_KEYS
            if self.slot == "memory":
                keys = PLAIN_MEMORY_KEYS
            else:
                self._set_field("dense_layers", ("post_fcnet",))
            reads = dict.fromkeys((*self.reads, *keys))
            self._set_field("reads", tuple(reads))

    def adapt(self, target: Callable[..., Any], framework: str) -> Any:
        if not self.plain:
            return target
        wrapper = "plain"
        if self.slot == "memory":
            wrapper = "plain_memory"
        plain_adapter = frameworks()[framework].load(wrapper)
        return plain_adapter.of(target)


@dataclass(frozen=True)
class ActionDistSpec(Declaration):
    """An action-distribution class.

    Attributes:
        size: A function `size(action, config)` of the action space's `SpaceInfo` and the model
            config that returns the number of model outputs. It must agree with the class's
            `required_model_output_shape`. A composite can omit it; all other distributions need it.
        composite: Whether it joins distributions that the catalog chooses for an action's parts:
            the children of a Tuple or Dict, or the choice and the children of a OneOf. Its size is
            the sum of their sizes, and `options_for` gets them as `children`.
        wraps_default: Whether it wraps the distribution that the catalog would otherwise choose.
            `size` then gets that distribution's size as a third argument, and `options_for` gets
            the distribution as the only entry of `children`.
        initial_std: A function `initial_std(action, config)` that returns the standard deviation of
            raw actions before training, if their mean is then 0. rlcatalog issues an
            `ActionRangeWarning` if they hardly reach the bounds. If None, it does not check this,
            as for distributions that draw within the bounds.

    Example:
        >>> def size(action, config):
        ...     return 2 * int(np.prod(action.shape))
        >>> targets = {"torch": "acme_dist.torch:Laplace"}
        >>> ActionDistSpec("acme_laplace", targets, "independent Laplace values", size=size).kind
        'action_dist'
    """

    kind: ClassVar[str] = "action_dist"
    forms: ClassVar[Forms] = {"size": FUNCTION, "initial_std": FUNCTION}

    composite: bool = False
    wraps_default: bool = False
    size: Callable[..., int] | None = None
    initial_std: Callable[..., float] | None = None

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if self.size is None and not self.composite and not self.extends:
            yield "size must be a function of the action SpaceInfo and the config"


class CommandSpec(Declaration):
    """A sub-command of `rlcatalog`: `targets={"cli": "pkg.cli:function"}` names a
    typer function.
    """

    kind: ClassVar[str] = "command"
    targets_allowed = frozenset({"cli"})


class EngineSpec(Declaration):
    """An engine: `targets={"engine": "pkg.engine:Class"}` names a `rlcatalog_runs.Engine`;
    `rlcatalog train` uses it.

    `rlcatalog train --help` imports the target's module, so import heavy modules there only when
    the engine is created.
    """

    kind: ClassVar[str] = "engine"
    targets_allowed = frozenset({"engine"})
    shows_classes = False


class CheckSpec(Declaration):
    """A conformance-kit check: `targets={"checks": "pkg.checks:function"}` names a
    `rlcatalog_testing.Check`.
    """

    kind: ClassVar[str] = "check"
    targets_allowed = frozenset({"checks"})


@dataclass(frozen=True)
class ExporterSpec(Declaration):
    """A format for exported policies; its name is the `format` of
    `policy.export(path, format=...)`.

    A format needs two functions. The first one, `load(path) -> rlcatalog_export.Runner`, loads a
    file in order to run it. It is the target `"runner"` of this declaration. The second one,
    `write(policy, path) -> rlcatalog_export.ExportResult`, writes a file and depends on the
    framework of the policy. It is a target of the framework: a `FrameworkSpec` that extends the
    framework adds it under the key `"export-NAME"`.

    Attributes:
        suffix: File suffix, such as `".onnx"`, which selects the format if none is named; empty for
            a format that writes folders.
    """

    kind: ClassVar[str] = "exporter"
    targets_allowed = frozenset({"runner"})
    shows_classes = False
    forms: ClassVar[Forms] = {
        "suffix": Form(text_like(r"(\.[A-Za-z0-9_.\-]+)?"), "text such as '.onnx'")
    }

    suffix: str = ""

    @property
    def target_names(self) -> tuple[str, ...]:
        """The runner, and the frameworks whose policies it can export."""
        writers = [name for name in frameworks() if self._writer(name) is not None]
        return (*self.targets, *writers)

    def target_of(self, name: str) -> str:
        """Return the import path of the runner, or of a framework's writer."""
        return self._writer(name) or self.targets[name]

    def _writer(self, framework: str) -> str | None:
        """Return the import path of the function that writes a framework's policies, or None."""
        spec = frameworks().get(framework)
        if spec is None:
            return None
        return spec.target(f"export-{self.name}")

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if "runner" not in self.targets:
            yield "targets must have 'runner', which runs exported files"
