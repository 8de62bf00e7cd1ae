"""`Catalog`: a set of plugins and registrations, and lookups in it."""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from rlcatalog import choice
from rlcatalog.catalog import parts, registrations
from rlcatalog.catalog.lookups import answer_of, find_resolution, recall, remember, warn_of
from rlcatalog.choice import Pins, Resolution
from rlcatalog.choice.environments import (
    EnvSpaces,
    check_wrapped,
    close_env as close_env,
    make_env as make_env,
    wrap,
)
from rlcatalog.choice.selection import Verdict
from rlcatalog.choice.slots import Slots
from rlcatalog.config import keys_of
from rlcatalog.config.flat import FlatConfig
from rlcatalog.config.key_table import default_of
from rlcatalog.config.schema import Schema
from rlcatalog.errors import DeclarationError, DuplicateNameError, UnsupportedSpaceError
from rlcatalog.plugins import Component, Request
from rlcatalog.plugins.declarations import Declaration
from rlcatalog.plugins.discovery import PluginRecord, normalize, scan
from rlcatalog.plugins.loader import load_plugins
from rlcatalog.plugins.registry import Registry
from rlcatalog.reporting import tell
from rlcatalog.spaces import env_layout, read_attribute
from rlcatalog.spaces.info import Space

if TYPE_CHECKING:
    import gymnasium

    from rlcatalog.choice import Explanation
    from rlcatalog.choice.environments import AnyEnv

T = TypeVar("T")


class Catalog:
    """Installed and registered components, and the lookups that choose among them.

    Args:
        entry_points: Entry points of the plugins to load; None loads all that are installed, an
            empty list loads none.
        environ: Environment variables that disable or allow plugins; None uses the process's
            environment.
        prefer: Distributions whose components count as listed and win ties, most preferred first;
            added to `RLCATALOG_PREFER_PLUGINS`.

    Attributes:
        environ: The environment variables.
        registry: All components by name.
        schema: The table of config keys.
        slots: Chooses a component for each slot; replaced after each change.

    Raises:
        CatalogError: A plugin fails to load and `RLCATALOG_STRICT_PLUGINS=1`.

    Example:
        >>> catalog = Catalog()
        >>> obs, action = spaces.Box(-1, 1, (3,)), spaces.Discrete(2)
        >>> resolution = catalog.resolve(obs, action, {"use_lstm": True})
        >>> resolution.component("trunk").name, resolution.component("memory").name
        ('fcnet', 'lstm')
    """

    def __init__(
        self,
        entry_points: Iterable[Any] | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        prefer: Sequence[str] = (),
    ) -> None:
        self._given = None if entry_points is None else tuple(entry_points)
        self.environ = os.environ if environ is None else environ
        self._preferred = tuple(prefer)
        named = self.environ.get("RLCATALOG_PREFER_PLUGINS", "").split(",")
        self.prefer = tuple(normalize(name) for name in (*prefer, *named) if name.strip())
        #: Name of the catalog in other processes, to which it was pickled.
        self._name = os.urandom(16).hex()
        #: Lock for changes. Lookups do not wait for it, and see the catalog either before or after
        #: a change.
        self._changing = threading.RLock()
        self._hold(self._load_plugins())

    @property
    def entry_points(self) -> tuple[Any, ...]:
        """The entry points from which the catalog loads plugins."""
        return tuple(scan() if self._given is None else self._given)

    def _load_plugins(self) -> Registry:
        return load_plugins(self.entry_points, self.environ, default_of)

    def _hold(self, registry: Registry) -> None:
        """Store a new or changed registry, with the objects derived from it."""
        # Keys first: a lookup in another thread may see the keys without the parts that read them,
        # but not vice versa.
        self.registry, self.schema = registry, Schema(registry)
        self.slots = Slots(registry, self.prefer)

    # --- contents ---------------------------------------------------------------------------------

    @property
    def plugins(self) -> list[PluginRecord]:
        """The status of each plugin, sorted by distribution and name."""
        return sorted(self.registry.records, key=lambda r: (r.distribution, r.name))

    def components(self, kind: str | None = None) -> list[Component]:
        """Return all components, sorted by kind and name."""
        return [c for c in self.registry if kind in (None, c.kind)]

    def refresh(self) -> list[PluginRecord]:
        """Load newly installed plugins, and forget removed ones.

        Registered components remain, and objects that are already built keep working. Python does
        not import a module twice, so a new version of a loaded plugin needs a new process.

        Returns:
            The status of each new plugin.

        Raises:
            CatalogError: A plugin fails to load and `RLCATALOG_STRICT_PLUGINS=1`. The catalog stays
                unchanged.
        """
        with self._changing:
            if self._given is None:
                importlib.invalidate_caches()  # to find packages that were installed since then
                scan.cache_clear()
            registry, old = self._load_plugins(), self.registry
            for component in (c for c in old if c.in_process):
                struct = old.config_paths.get(component.declaration.config or "")
                try:
                    registry.add_in_process(component, struct)
                # a plugin brought or took a key.
                except (DeclarationError, DuplicateNameError) as error:
                    tell(
                        f"{component.kind} {component.name!r}, which this program registered, is"
                        f" omitted: {error}"
                    )
            self._hold(registry)
        known = {(record.distribution, record.name, record.version) for record in old.records}
        return [r for r in registry.records if (r.distribution, r.name, r.version) not in known]

    def register(self, component: Component | Declaration, *, config: type | None = None) -> None:
        """Register a component of the running program, which takes precedence over plugins and
        earlier registrations.

        Args:
            component: A declaration, or the result of `rlcatalog.choice.in_process` for a class.
            config: The struct that the declaration names as `config`, if no plugin provides it.

        Raises:
            DuplicateNameError: A config key belongs to a different component.
            DeclarationError: The struct's keys cannot be read, or the component names an undeclared
                key.
        """
        if isinstance(component, Declaration):
            component = Component(component, "", "")
        if config is not None:
            default_of(config)  # its keys can be read
        with self._changing:
            self.registry.add_in_process(component, config)
            self._hold(self.registry)

    # registrations.py registers classes of the program and pickles catalogs.
    register_model = registrations.register_model
    register_action_dist = registrations.register_action_dist
    register_preprocessor = registrations.register_preprocessor
    register_filter = registrations.register_filter
    pickled = registrations.pickled

    def __reduce__(self) -> Any:
        return self.pickled()

    # --- config -----------------------------------------------------------------------------------

    def parse_config(self, config: Mapping[str, Any] | None) -> FlatConfig:
        """Check and complete a model config (see `Schema.parse`)."""
        return self.schema.parse(config)

    def config_keys(self, component: Component, framework: str | None = None) -> list[str]:
        """Return the config keys that a component reads: the keys of its package, and the shared
        keys in `reads`.

        Args:
            component: The component.
            framework: If another package provides the code for this framework, its `reads` apply,
                if it declares any.
        """
        for extension in component.extensions.get(framework or "", ()):
            if extension.declaration.reads:
                return list(extension.declaration.reads)
        struct = self.registry.config_paths.get(component.declaration.config or "")
        own: list[str] = []
        if struct is not None:
            names = self.registry.key_names.get(struct, {})
            own = [names.get(key.name, key.name) for key in keys_of(struct)]
        return list(dict.fromkeys((*own, *component.declaration.named_keys)))

    # --- lookups ----------------------------------------------------------------------------------

    def resolve(
        self,
        obs_space: Space,
        action_space: Space,
        config: Mapping[str, Any] | None = None,
        framework: str | None = None,
        *,
        pins: Pins | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> Resolution:
        """Choose a component for every slot, without building a model or importing a framework.

        Results are cached by the identity of the spaces and by the values of the config and the
        framework.

        Args:
            obs_space: The environment's observation space.
            action_space: The environment's action space.
            config: The model config.
            framework: `"torch"` or `"tf"`; None selects the framework of a custom class, or
                otherwise the first installed one: torch, then tf.
            pins: The choices of an earlier lookup, which this lookup repeats.
            defaults: An engine's defaults for keys that the config does not set. They cause no
                warnings. If a component does not support one, the catalog's default applies.

        Raises:
            CatalogError: The config is invalid, or no component fits a slot; see
                `rlcatalog.errors`.

        Warns:
            UnreadKeysWarning: Some keys differ from their defaults, but no chosen component reads
                them. One warning lists all of them; a cached result does not repeat the warning.
            UnusedMaskWarning: An observation entry is named like an action mask, but is not used as
                one.
            ActionRangeWarning: Before training, the policy hardly reaches the actions within some
                bounds; or bounds count as infinite.
        """
        return self.build_from_lookup(
            lambda resolution: resolution,
            obs_space,
            action_space,
            config,
            framework,
            pins=pins,
            defaults=defaults,
        )

    def explain(
        self,
        obs_space: Space | None = None,
        action_space: Space | None = None,
        config: Mapping[str, Any] | None = None,
        framework: str | None = None,
        *,
        env: AnyEnv | None = None,
    ) -> Explanation:
        """Explain what a lookup chooses and why, with the shapes, without importing a framework.

        The explanation lists the keys that no component reads, without issuing a warning.

        Args:
            obs_space: The environment's observation space.
            action_space: The environment's action space.
            config: The model config.
            framework: See `resolve`.
            env: An environment, or anything that `rlcatalog.catalog.make_env` accepts, instead of
                the two spaces. The explanation then includes environment wrappers.

        Raises:
            CatalogError: See `resolve`.
        """
        name, wrappers, defaults = "", list[Verdict](), {}
        if env is not None:
            if obs_space is not None or action_space is not None:
                raise UnsupportedSpaceError(
                    "explain() needs two spaces or env=, but both were given. Remove one."
                )
            found = self.spaces_of(env, config)
            obs_space, action_space, name, wrappers, _ = found
            defaults = found.defaults
        if obs_space is None or action_space is None:
            raise UnsupportedSpaceError(
                "explain() needs an observation space and an action space, or env=."
            )
        spaces = obs_space, action_space
        # Not through the cache of `resolve`, which warns.
        resolution = answer_of(
            self.slots,
            ("explanation", framework),
            spaces,
            (config, defaults),
            lambda: find_resolution(self, *spaces, config, framework, defaults=defaults),
        )
        return choice.Explanation(resolution, env=name, wrappers=tuple(wrappers))

    def build_from_lookup(
        self,
        build: Callable[[Resolution], T],
        obs_space: Space,
        action_space: Space,
        config: Mapping[str, Any] | None = None,
        framework: str | None = None,
        *,
        pins: Pins | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> T:
        """Look up components and build an object from them. `rlcatalog.build` calls it.

        If the lookup or `build` fails with the defaults, it is retried without each default in
        turn, then without any of them.

        Args:
            build: A function that builds the result.
            obs_space: The environment's observation space; see `resolve`.
            action_space: The environment's action space.
            config: The model config.
            framework: The framework.
            pins: The choices of an earlier lookup.
            defaults: An engine's defaults.

        Raises:
            CatalogError: See `resolve`.
        """
        slots, what, spaces = self.slots, ("resolution", framework), (obs_space, action_space)
        every = dict(defaults or {})
        fewer = [
            {name: value for name, value in every.items() if name != without} for without in every
        ]
        for tried in [*filter(None, (every, *fewer)), None]:
            key = config if tried is None else (config, tried)
            try:
                known: Resolution | None = (
                    None if pins is not None else recall(slots, what, spaces, key)
                )
                resolution = known or find_resolution(self, *spaces, config, framework, pins, tried)
                built = build(resolution)
                break
            except Exception:  # a user's class may refuse an engine's default in any way
                if tried is None:
                    raise
        # Only after success: on failure, the error says what to do.
        if known is None and pins is None:
            warn_of(self, resolution)
            remember(slots, what, spaces, key, resolution)
        return built

    def trunk(self, request: Request, name: str | None = None) -> Component:
        """Choose the trunk for a part of an observation, for a model that contains other models.

        Args:
            request: `obs` is that part, and `encoded_shape` is the shape of its tensor.
            name: Name of a model; None selects the best match.

        Raises:
            NoMatchError: No installed model fits.
        """
        return self.slots.trunk(request.replace(catalog=self), name)

    # parts.py looks up and creates single parts.
    preprocessor_for = parts.preprocessor_for
    action_dist = parts.action_dist
    model_v2 = parts.model_v2
    model = staticmethod(parts.model)

    # --- environments -----------------------------------------------------------------------------

    def spaces_of(self, env: AnyEnv, config: Mapping[str, Any] | None = None) -> EnvSpaces:
        """Return an environment's observation space and action space after `wrap_env`.

        Args:
            env: An environment, or anything that `rlcatalog.catalog.make_env` accepts; an
                environment created here is closed again.
            config: The model config.

        Raises:
            CatalogError: `env` is neither an environment nor an id or callable that creates one.
        """
        made = make_env(env)
        try:
            spec = read_attribute(made, "spec")
            name = type(read_attribute(made, "unwrapped", made)).__name__
            if spec is not None:
                name = spec.id
            # a vector environment, or an object with the spaces of one.
            if read_attribute(made, "single_observation_space") is not None:
                values = self.parse_config(config)
                check_wrapped(self.slots.env_wrappers(values), made, values)
                layout = env_layout(next(iter(read_attribute(made, "envs", ())), None))
                spaces = made.single_observation_space, made.single_action_space
                return EnvSpaces(*spaces, name, [], layout)
            wrapped, verdicts = self.explain_wrapping(made, config)
            layout = env_layout(wrapped)
            return EnvSpaces(
                wrapped.observation_space, wrapped.action_space, name, verdicts, layout
            )
        finally:
            if made is not env:
                close_env(made)

    def wrap_env(
        self,
        env: gymnasium.Env[Any, Any],
        config: Mapping[str, Any] | None = None,
        *,
        move_masks: bool = True,
    ) -> gymnasium.Env[Any, Any]:
        """Apply the environment wrappers that match, in the order of their names, and move the
        environment's action masks into its observations.

        A wrapper that is already applied is not applied again.

        Masks in `info[action_mask_key]` or from `action_masks()`, as in sb3-contrib, become an
        entry of a Dict observation, which every engine reads. An observation that is not a Dict
        becomes the entry `"obs"` beside it. Only a reset shows whether there are masks in the info,
        so an environment without `action_masks()` is reset once if its actions can be masked.

        Args:
            env: A single environment.
            config: The model config; each wrapper reads its own keys.
            move_masks: Whether to move action masks into the observations.

        Raises:
            ModelContractError: `env` is not a single environment.

        Example:
            >>> env = rlcatalog.wrap_env(gym.make("Taxi-v4"))
            >>> env.observation_space
            Dict('action_mask': MultiBinary(6), 'obs': Discrete(500))
        """
        wrapped = self.explain_wrapping(env, config)[0]
        if not move_masks:
            return wrapped
        from rlcatalog.choice.mask_wrapper import move_masks as moved

        return moved(wrapped, self.parse_config(config)["action_mask_key"])

    def explain_wrapping(
        self, env: gymnasium.Env[Any, Any], config: Mapping[str, Any] | None = None
    ) -> tuple[gymnasium.Env[Any, Any], list[Verdict]]:
        """Do the same as `wrap_env`, but return each candidate wrapper's answer together with the
        environment.
        """
        values = self.parse_config(config)
        return wrap(self.slots.env_wrappers(values), env, values)
