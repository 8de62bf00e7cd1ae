"""`Catalog`: a set of plugins and registrations, and lookups in it."""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from rlcatalog.catalog.pickling import CatalogState, remember_catalog, restore_catalog
from rlcatalog.catalog.snapshot import CatalogSnapshot, Query
from rlcatalog.choice import Explanation, PartAddresses, Resolution
from rlcatalog.choice.env_adapters import (
    count_envs as count_envs,
    is_adapter_id as is_adapter_id,
    is_environment as is_environment,
    makes_vector as makes_vector,
    vector_source as vector_source,
)
from rlcatalog.choice.environments import (
    EngineWrapper as EngineWrapper,
    EnvProperties,
    class_name as class_name,
    close_env as close_env,
    make_env as make_env,
    read_env,
    registered_id as registered_id,
    vector_layout as vector_layout,
    wrap,
)
from rlcatalog.choice.in_process import Code, in_process, path_of
from rlcatalog.choice.selection import Verdict
from rlcatalog.choice.slots import Slots
from rlcatalog.config.flat import FlatConfig
from rlcatalog.config.key_table import default_of
from rlcatalog.config.schema import Schema
from rlcatalog.errors import DeclarationError, DuplicateNameError, UnsupportedSpaceError
from rlcatalog.observations import Preprocessor
from rlcatalog.plugins import Part, Request
from rlcatalog.plugins.declarations import Declaration
from rlcatalog.plugins.discovery import PluginRecord, normalize, scan
from rlcatalog.plugins.loader import PluginLoader
from rlcatalog.plugins.registry import Registry
from rlcatalog.reporting import tell
from rlcatalog.spaces.info import Space, SpaceInfo

if TYPE_CHECKING:
    import gymnasium
    import pluggy

    from rlcatalog.choice.environments import AnyEnv
    from rlcatalog.models import ModelV2

T = TypeVar("T")
C = TypeVar("C", bound=Code)


class Catalog:
    """Set of parts, of installed plugins and registered by the program, and the choice among them.

    Programs rarely need one: `rlcatalog.build` and other functions use the default catalog of the
    process. Create another one to use only some plugins, or other registrations.

    Args:
        entry_points: Entry points of the plugins to load; None loads all that are installed, an
            empty list loads none.
        environ: Environment variables that disable or allow plugins; None uses the process's
            environment.
        prefer: Distributions whose parts count as listed and win ties, most preferred first;
            added to `RLCATALOG_PREFER_PLUGINS`.
        name: The catalog's name in other processes, to which it is pickled; None makes a new one.

    Attributes:
        environ: The environment variables.
        prefer: The preferred distributions, with normalised names.

    Raises:
        CatalogError: A plugin fails to load and `RLCATALOG_STRICT_PLUGINS=1`.

    Example:
        >>> catalog = Catalog()
        >>> obs, action = spaces.Box(-1, 1, (3,)), spaces.Discrete(2)
        >>> resolution = catalog.resolve(obs, action, {"use_lstm": True})
        >>> resolution.part("trunk").name, resolution.part("memory").name
        ('fcnet', 'lstm')
    """

    def __init__(
        self,
        entry_points: Iterable[Any] | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        prefer: Sequence[str] = (),
        name: str | None = None,
    ) -> None:
        #: The argument; None reads the entry points again at each refresh.
        self._own_entry_points = None if entry_points is None else tuple(entry_points)
        self.environ = os.environ if environ is None else environ
        #: The argument, without the names from the environment.
        self._own_prefer = tuple(prefer)
        from_environment = self.environ.get("RLCATALOG_PREFER_PLUGINS", "").split(",")
        distributions = (*prefer, *from_environment)
        self.prefer = tuple(normalize(text) for text in distributions if text.strip())
        #: Unique: by it, unpickling in another process finds the catalog if it is already there.
        self._name = os.urandom(16).hex() if name is None else name
        #: Lock for changes. Lookups do not wait for it.
        self._change_lock = threading.RLock()
        self._loader = PluginLoader(self.environ, default_of=default_of)
        #: Replaced at each change.
        self._snapshot = self._snapshot_of(self._loader.load(self.entry_points))

    @property
    def entry_points(self) -> tuple[Any, ...]:
        """The entry points from which the catalog loads plugins."""
        if self._own_entry_points is None:
            return tuple(scan())
        return self._own_entry_points

    @property
    def plugin_manager(self) -> pluggy.PluginManager:
        """The manager of pluggy, with each loaded plugin under its distribution's name.

        Its methods list and trace plugins. A plugin that it blocks (`set_blocked`) is disabled from
        the next `refresh` on.
        """
        return self._loader.manager

    def _snapshot_of(self, registry: Registry) -> CatalogSnapshot:
        """Return the snapshot of this catalog with these parts."""
        return CatalogSnapshot(self, registry, self.prefer)

    # --- contents ---------------------------------------------------------------------------------

    @property
    def registry(self) -> Registry:
        """All parts by name."""
        return self._snapshot.registry

    @property
    def schema(self) -> Schema:
        """The table of config keys."""
        return self._snapshot.schema

    @property
    def slots(self) -> Slots:
        """The candidates for each slot."""
        return self._snapshot.slots

    @property
    def plugins(self) -> list[PluginRecord]:
        """The status of each plugin, sorted by distribution and name."""
        return sorted(self.registry.records, key=lambda record: (record.distribution, record.name))

    def parts(self, kind: str | None = None) -> list[Part]:
        """Return all parts, sorted by kind and name."""
        if kind is None:
            return list(self.registry)
        return self.registry.active(kind)

    def refresh(self) -> list[PluginRecord]:
        """Load newly installed plugins, and forget removed ones.

        Registered parts remain, and objects that are already built keep working. Python does
        not import a module twice, so a new version of a loaded plugin needs a new process.

        Returns:
            The status of each new plugin.

        Raises:
            CatalogError: A plugin fails to load and `RLCATALOG_STRICT_PLUGINS=1`. The catalog stays
                unchanged.
        """
        with self._change_lock:
            if self._own_entry_points is None:
                importlib.invalidate_caches()  # to find packages that were installed since then
                scan.cache_clear()  # `scan` reads the entry points of the installed packages
            old_registry = self.registry
            registry = self._loader.load(self.entry_points)
            for part in old_registry:
                if part.in_process:  # registered by the program, so no plugin brings it again
                    registry = _with_registered(registry, part, old_registry)
            self._snapshot = self._snapshot_of(registry)
        old_plugins = {_identity(record) for record in old_registry.records}
        return [record for record in registry.records if _identity(record) not in old_plugins]

    def register(self, part: Part | Declaration, *, config: type | None = None) -> None:
        """Register a part of the running program, which takes precedence over plugins and
        earlier registrations.

        Args:
            part: A declaration, or the result of `rlcatalog.choice.in_process` for a class.
            config: The struct that the declaration names as `config`, if no plugin provides it.

        Raises:
            DuplicateNameError: A config key belongs to a different part.
            DeclarationError: The struct's keys cannot be read, or the part names an undeclared
                key.
        """
        if isinstance(part, Declaration):
            part = Part(part, distribution="", version="")
        if config is not None:
            default_of(config)  # raises an error if its keys cannot be read
        with self._change_lock:
            self._snapshot = self._snapshot_of(self.registry.with_registered(part, config))

    # --- classes of the running program -----------------------------------------------------------

    def register_model(
        self,
        name: str,
        cls: type | Callable[..., Any] | None = None,
        *,
        slot: str | None = None,
        match: Callable[..., Any] | None = None,
        switch: str | None = None,
        describe: Callable[..., Any] | None = None,
        config: type | None = None,
        reads: tuple[str, ...] = (),
    ) -> Any:
        """Register a model class under a name, so that a config can select it.

        The key `custom_model` takes the name of a model, and `memory` the name of a memory.
        Configs with a name can be saved, and a saved policy finds the class by this name.

        Without a class, the method returns a decorator, as in the example.

        Args:
            name: The name.
            cls: The model class, or a plain module as a class, an instance or a function that
                creates one. If None, the method returns a decorator.
            slot: `"trunk"`, `"memory"` or `"head"`; if None, the class's own slot.
            match: A function that returns whether, how well and why the class fits a request. If
                None, the class is chosen only by name or by its switch.
            switch: Config key that turns the class on.
            describe: A function that returns the model's stages and their shapes for a request.
            config: A msgspec struct that defines the class's config keys.
            reads: Other config keys that the class reads. Without `reads` and `config`, rlcatalog
                assumes that the class reads every key.

        Returns:
            The class, or a decorator that returns it.

        Example:
            >>> @rlcatalog.register_model("my_net")
            ... class MyNet(torch.nn.Sequential):
            ...     def __init__(self, width=32):
            ...         super().__init__(torch.nn.Linear(4, width), torch.nn.Tanh())
            >>> rlcatalog.build(env="CartPole-v1", config={"custom_model": "my_net"}).model_name
            'MyNet'
        """
        return self._register_class(
            "model",
            name,
            cls,
            config,
            reads=reads,
            slot=slot,
            match=match,
            switch=switch,
            describe=describe,
        )

    def register_action_dist(
        self,
        name: str,
        cls: type | Callable[..., Any] | None = None,
        *,
        match: Callable[..., Any] | None = None,
        config: type | None = None,
        reads: tuple[str, ...] = (),
        num_inputs: int | Callable[[Any], int] | None = None,
    ) -> Any:
        """Register a distribution class under a name, which the key `custom_action_dist` takes.

        Without a class, the method returns a decorator; see `register_model`.

        You can also register a class of `torch.distributions`. If its `arg_constraints` do not say
        how model outputs become parameters, pass `num_inputs`: the number of model outputs, or a
        function of the action space that returns it. The class, or a function in its place, is
        called with the outputs `[B, num_inputs]` and returns the distribution.

        Example:
            >>> rlcatalog.register_action_dist("laplace", torch.distributions.Laplace)
            <class 'torch.distributions.laplace.Laplace'>
            >>> config = {"custom_action_dist": "laplace"}
            >>> policy = rlcatalog.build(env="Pendulum-v1", config=config)
            >>> policy.act([[1.0, 0.0, 0.0]]).action.shape
            (1, 1)
        """
        return self._register_class(
            "action_dist", name, cls, config, reads=reads, match=match, num_inputs=num_inputs
        )

    def register_preprocessor(
        self,
        name: str,
        cls: type | Callable[..., Any] | None = None,
        *,
        match: Callable[..., Any] | None = None,
        kinds: tuple[str, ...] = (),
        config: type | None = None,
        reads: tuple[str, ...] = (),
    ) -> Any:
        """Register a preprocessor class under a name, which the key `custom_preprocessor` takes.

        Without a class, the method returns a decorator; see `register_model`.

        If you pass `match`, or the `kinds` of spaces that it encodes, the preprocessor is also
        chosen by itself, even for spaces inside a Dict or Tuple.

        Example:
            >>> @rlcatalog.register_preprocessor("half")
            ... class Half(Preprocessor):
            ...     def _init_shape(self, obs_space, options): return obs_space.shape
            ...     def transform(self, observation): return observation / 2
            >>> policy = rlcatalog.build(env="CartPole-v1", config={"custom_preprocessor": "half"})
            >>> policy.preprocess([[2.0, 0.0, 0.0, 0.0]])
            array([[1., 0., 0., 0.]], dtype=float32)
        """
        return self._register_class(
            "preprocessor", name, cls, config, reads=reads, match=match, kinds=kinds or None
        )

    def register_filter(
        self,
        name: str,
        cls: type | Callable[..., Any] | None = None,
        *,
        config: type | None = None,
        reads: tuple[str, ...] = (),
    ) -> Any:
        """Register a filter class under a name, which the key `observation_filter` takes.

        Without a class, the method returns a decorator; see `register_model`.
        """
        return self._register_class("filter", name, cls, config, reads=reads)

    def _register_class(
        self, kind: str, name: str, cls: Code | None, config: type | None, **fields: Any
    ) -> Any:
        """Register a class, or return a decorator that does.

        Args:
            kind: The kind of part.
            name: The name.
            cls: The class, or None.
            config: A struct that defines the class's config keys, or None.
            **fields: Fields of the part's declaration.
        """

        def register(cls: C) -> C:
            path = None if config is None else path_of(config)
            part = in_process(kind, cls, name, config=path, **fields)
            self.register(part, config=config)
            return cls

        if cls is None:
            return register
        return register(cls)

    # --- in other processes -----------------------------------------------------------------------

    def pickled(
        self, used: Sequence[str] | None = None
    ) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Return a function that recreates the catalog in another process, and its arguments.

        In a process that already has the catalog, the function returns the same object.

        Args:
            used: Addresses of the registered parts to include; None includes all.
        """
        with self._change_lock:
            remember_catalog(self._name, self)
            registry = self.registry
        registered = []
        for part in registry:
            if part.in_process and (used is None or part.address in used):
                struct = registry.config_struct_of(part)
                registered.append((part, struct))
        environ: Mapping[str, str] | None = self.environ
        if environ is os.environ:
            environ = None  # another process uses its own
        state = CatalogState(
            type(self), self._name, self._own_entry_points, environ, self._own_prefer, registered
        )
        return restore_catalog, tuple(state)

    def __reduce__(self) -> Any:
        return self.pickled()

    # --- config -----------------------------------------------------------------------------------

    def parse_config(self, config: Mapping[str, Any] | None) -> FlatConfig:
        """Check and complete a model config (see `Schema.parse`)."""
        return self.schema.parse(config)

    def action_critic_config(self, config: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """Return the model config of a critic for the values of actions, or None without one.

        Algorithms such as SAC build their policy and their critics one by one. The key `critic` is
        then the config of the critics, which also have the keys about the observation from the
        config around it.

        Args:
            config: The whole model config.

        Raises:
            ConfigError: A key or a value is wrong, or the key is not for a critic.
            NotServedError: The config has `obs_groups`.
        """
        return self._snapshot.action_critic_config(config)

    def config_keys(self, part: Part, framework: str | None = None) -> list[str]:
        """Return the config keys that a part reads: the keys of its package, and the shared
        keys in `reads`.

        Args:
            part: The part.
            framework: If another package provides the code for this framework, its `reads` apply,
                if it declares any.
        """
        return self._snapshot.config_keys(part, framework)

    # --- lookups ----------------------------------------------------------------------------------

    def resolve(
        self,
        obs_space: Space,
        action_space: Space,
        config: Mapping[str, Any] | None = None,
        framework: str | None = None,
        *,
        pins: PartAddresses | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> Resolution:
        """Choose a part for every slot, without building a model or importing a framework.

        Results are cached by the identity of the spaces and by the values of the config and the
        framework.

        Args:
            obs_space: The environment's observation space.
            action_space: The environment's action space.
            config: The model config.
            framework: `"torch"` or `"tf"`; None selects the framework of a custom class, or
                otherwise the first installed one: torch, then tf.
            pins: Addresses of the parts of an earlier lookup, which this lookup repeats.
            defaults: An engine's defaults for keys that the config does not set. They cause no
                warnings. If a part does not support one, the catalog's default applies.

        Raises:
            CatalogError: The config is invalid, or no part fits a slot; see
                `rlcatalog.errors`.

        Warns:
            UnreadKeysWarning: Some keys differ from their defaults, but no chosen part reads
                them. One warning lists all of them; a cached result does not repeat the warning.
            UnusedMaskWarning: An observation entry is named like an action mask, but is not used as
                one.
            ActionRangeWarning: Before training, the policy hardly reaches the actions within some
                bounds; or bounds count as infinite.
        """
        query = Query(obs_space, action_space, config, framework, pins, defaults)
        return self._snapshot.resolve(query)

    def explain(
        self,
        obs_space: Space | None = None,
        action_space: Space | None = None,
        config: Mapping[str, Any] | None = None,
        framework: str | None = None,
        *,
        env: AnyEnv | None = None,
    ) -> Explanation:
        """Explain which parts `build` would choose, and why, without building anything.

        No framework is imported. The explanation also shows the shapes between the parts. It lists
        keys of the config that no part reads, instead of issuing a warning.

        Args:
            obs_space: The environment's observation space. Leave out both spaces if you pass `env`.
            action_space: The environment's action space.
            config: The model config.
            framework: See `resolve`.
            env: The environment, or anything that `rlcatalog.catalog.make_env` accepts, instead of
                its two spaces. The explanation then includes environment wrappers.

        Raises:
            CatalogError: See `resolve`.
        """
        if env is None:
            env_properties = EnvProperties(obs_space, action_space)
        elif obs_space is None and action_space is None:
            env_properties = self.read_env(env, config)
        else:
            raise UnsupportedSpaceError(
                "explain() needs two spaces or env=, but both were given. Remove one."
            )
        if env_properties.observation_space is None or env_properties.action_space is None:
            raise UnsupportedSpaceError(
                "explain() needs an observation space and an action space, or env=."
            )
        query = Query(
            env_properties.observation_space,
            env_properties.action_space,
            config,
            framework,
            defaults=env_properties.config_defaults,
        )
        resolution = self._snapshot.explain(query)
        return Explanation(
            resolution, env=env_properties.name, wrappers=tuple(env_properties.verdicts)
        )

    def build_from_lookup(
        self,
        build: Callable[[Resolution], T],
        obs_space: Space,
        action_space: Space,
        config: Mapping[str, Any] | None = None,
        framework: str | None = None,
        *,
        pins: PartAddresses | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> T:
        """Look up parts and build an object from them. `rlcatalog.build` calls it.

        If the lookup or `build` fails with the defaults, it is retried without each default in
        turn, then without any of them.

        Args:
            build: A function that builds the result from the choices.
            obs_space: The environment's observation space; see `resolve`.
            action_space: The environment's action space.
            config: The model config.
            framework: The framework.
            pins: See `resolve`.
            defaults: An engine's defaults.

        Raises:
            CatalogError: See `resolve`.
        """
        query = Query(obs_space, action_space, config, framework, pins, defaults)
        return self._snapshot.build(build, query)

    def trunk(self, request: Request, name: str | Code | None = None) -> Part:
        """Choose the trunk for a part of an observation, for a model that contains other models.

        Args:
            request: `obs` is that part, and `encoded_shape` is the shape of its tensor.
            name: Name of a model, or its class, or a function that creates a plain module; None
                selects the best match.

        Raises:
            NoMatchError: No installed model fits.
        """
        return self._snapshot.choose_trunk(request, name)

    def preprocessor_for(
        self,
        space: Space | SpaceInfo,
        options: Mapping[str, Any] | None = None,
        *,
        check: str | None = None,
        pins: PartAddresses | None = None,
        chosen: Mapping[str, Part | None] | None = None,
    ) -> Preprocessor:
        """Create the preprocessor for a space.

        Args:
            space: The space, or its SpaceInfo.
            options: A complete model config.
            check: When to check observations; None takes this setting from the options.
            pins: Addresses of the parts to repeat, including the ones for children.
            chosen: Path → part, for spaces whose part has already been chosen.

        Raises:
            UnsupportedSpaceError: No installed preprocessor supports a leaf; the message names it.
            PartError: The target is not a preprocessor class, or its constructor breaks the
                contract.
        """
        return self._snapshot.make_preprocessor(
            space, options, check=check, pins=pins, chosen=chosen
        )

    def action_dist(
        self,
        action_space: Space,
        config: Mapping[str, Any] | None = None,
        dist_type: str | type | None = None,
        framework: str | None = None,
    ) -> tuple[Any, int]:
        """Return the distribution class for an action space; see `ModelCatalog.get_action_dist`.

        Raises:
            UnsupportedSpaceError: No distribution supports the space or one of its subspaces; the
                message names the leaf.
        """
        return self._snapshot.action_dist(action_space, config, dist_type, framework)

    def model_v2(
        self,
        obs_space: Space,
        action_space: Space,
        num_outputs: int | None,
        config: Mapping[str, Any] | None = None,
        framework: str | None = None,
        name: str = "default_model",
        interface: type | None = None,
        default_model: type | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> ModelV2:
        """Build a model for encoded observations; see `ModelCatalog.get_model_v2`."""
        return self._snapshot.model_v2(
            obs_space,
            action_space,
            num_outputs,
            config,
            framework,
            default_model=default_model,
            name=name,
            interface=interface,
            kwargs=kwargs,
        )

    # --- environments -----------------------------------------------------------------------------

    def read_env(self, env: AnyEnv, config: Mapping[str, Any] | None = None) -> EnvProperties:
        """Return an environment's two spaces after `wrap_env`, its name and its wrappers' answers.

        Args:
            env: An environment, or anything that `rlcatalog.catalog.make_env` accepts; an
                environment created here is closed again.
            config: The model config.

        Raises:
            CatalogError: `env` is neither an environment nor an id or callable that creates one.
        """
        values = self.parse_config(config)
        instance = make_env(env)
        try:
            return read_env(instance, self.slots.env_wrappers(values), values)
        finally:
            if not is_environment(env):
                close_env(instance)

    def wrap_env(
        self,
        env: gymnasium.Env[Any, Any],
        config: Mapping[str, Any] | None = None,
        *,
        move_masks: bool = True,
    ) -> gymnasium.Env[Any, Any]:
        """Wrap an environment in the way that policies of this catalog expect it.

        First, the wrappers of installed plugins that match are applied, in the order of their
        names, such as the one that prepares Atari games. A wrapper that is already applied is not
        applied again.

        Then action masks are moved into the observations, where every engine reads them. Masks in
        `info[action_mask_key]` or from `action_masks()`, as in sb3-contrib, become an entry of a
        Dict observation. If the observation is not a Dict, it becomes the entry `"obs"` beside the
        mask. Only a reset shows whether there are masks in the info, so an environment without
        `action_masks()` is reset once if its actions can be masked.

        Args:
            env: A single environment.
            config: The model config, from which each wrapper reads its keys.
            move_masks: Whether to move action masks into the observations.

        Raises:
            ModelContractError: `env` is not a single environment, or something would be added
                around the wrapper of an engine, such as `for_sb3`. Apply that wrapper afterwards.

        Example:
            >>> env = rlcatalog.wrap_env(gym.make("Taxi-v4"))
            >>> env.observation_space
            Dict('action_mask': MultiBinary(6), 'obs': Discrete(500))
        """
        wrapped, _ = self.explain_wrapping(env, config)
        if not move_masks:
            return wrapped
        from rlcatalog.choice import mask_wrapper

        return mask_wrapper.move_masks(wrapped, self.parse_config(config)["action_mask_key"])

    def explain_wrapping(
        self, env: gymnasium.Env[Any, Any], config: Mapping[str, Any] | None = None
    ) -> tuple[gymnasium.Env[Any, Any], list[Verdict]]:
        """Do the same as `wrap_env`, but return each candidate wrapper's answer together with the
        environment.
        """
        values = self.parse_config(config)
        return wrap(self.slots.env_wrappers(values), env, values)


def _identity(record: PluginRecord) -> tuple[str, str, str]:
    """Return what tells a plugin from others, and from its other versions."""
    return record.distribution, record.name, record.version


def _with_registered(registry: Registry, part: Part, old: Registry) -> Registry:
    """Return a registry with a part that the program registered before a refresh; without it,
    and with a warning, if a plugin brought or took one of its keys.
    """
    struct = old.config_struct_of(part)
    try:
        return registry.with_registered(part, struct)
    except (DeclarationError, DuplicateNameError) as error:
        tell(f"{part.kind} {part.name!r}, which this program registered, is omitted: {error}")
        return registry
