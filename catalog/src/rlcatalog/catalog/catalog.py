"""`Catalog`: one set of plugins and registrations, and the lookups over it."""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from rlcatalog.catalog import parts, registrations
from rlcatalog.catalog.lookups import answer_of, find_resolution, recall, remember, warn_of
from rlcatalog.choice import Explanation, Pins, Resolution
from rlcatalog.choice.environments import check_wrapped, make_env as make_env, wrap
from rlcatalog.choice.selection import Verdict
from rlcatalog.choice.slots import Slots
from rlcatalog.config import KernelConfig, keys_of
from rlcatalog.config.flat import FlatConfig
from rlcatalog.config.key_table import default_of
from rlcatalog.config.schema import Schema
from rlcatalog.errors import DuplicateNameError, UnsupportedSpaceError
from rlcatalog.plugins import Component, Request
from rlcatalog.plugins.declarations import Declaration
from rlcatalog.plugins.discovery import PluginRecord, normalize, scan
from rlcatalog.plugins.loader import load_plugins
from rlcatalog.plugins.registry import Registry
from rlcatalog.reporting import tell

if TYPE_CHECKING:
    import gymnasium

    from rlcatalog.choice.environments import AnyEnv

T = TypeVar("T")


class Catalog:
    """The parts that are installed or registered, and what fits.

    Args:
        entry_points: Entry points to load plugins from; those of the process when None, none when empty.
        environ: Environment variables that disable or allow plugins; the process's when None.
        prefer: Distributions whose parts count as listed and win ties, the most preferred first; beside those of
            `RLCATALOG_PREFER_PLUGINS`.

    Attributes:
        environ: The environment variables.
        registry: All components by name.
        schema: The table of config keys.
        slots: Chooses a component for each slot; another object after each change.

    Raises:
        CatalogError: A plugin fails to load and `RLCATALOG_STRICT_PLUGINS=1`.
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
        #: What it is called in other processes, to which it was pickled.
        self._name = os.urandom(16).hex()
        #: Held while the catalog changes; lookups go on beside it, with what was there before or after.
        self._changing = threading.RLock()
        self._hold(self._load_plugins())

    @property
    def entry_points(self) -> tuple[Any, ...]:
        """The entry points that its plugins are loaded from."""
        return tuple(scan() if self._given is None else self._given)

    def _load_plugins(self) -> Registry:
        return load_plugins(self.entry_points, self.environ, default_of)

    def _hold(self, registry: Registry) -> None:
        """Hold a registry, or the one that it has after a change, with what is made of it."""
        # The keys before the parts that read them: a lookup that is under way may see one and not yet the other.
        self.registry, self.schema = registry, Schema(registry)
        self.slots = Slots(registry, self.prefer)

    # --- what is there ---------------------------------------------------------------------------------------------

    @property
    def plugins(self) -> list[PluginRecord]:
        """How each plugin ended, sorted by distribution and name."""
        return sorted(self.registry.records, key=lambda r: (r.distribution, r.name))

    def components(self, kind: str | None = None) -> list[Component]:
        """Return all components, sorted by kind and name."""
        return [c for c in self.registry if kind in (None, c.kind)]

    def refresh(self) -> list[PluginRecord]:
        """Find newly installed plugins, and forget removed ones.

        What the program registered stays, and so do parts that were built. A module that was imported before is not
        imported again: a plugin of another version needs another process.

        Returns:
            How the plugins ended that were not there before.

        Raises:
            CatalogError: A plugin fails to load and `RLCATALOG_STRICT_PLUGINS=1`; the catalog is then as it was.
        """
        with self._changing:
            if self._given is None:
                importlib.invalidate_caches()  # a package that came since is to be found
                scan.cache_clear()
            registry, old = self._load_plugins(), self.registry
            for component in (c for c in old if c.in_process):
                struct = old.config_paths.get(component.declaration.config or "")
                try:
                    registry.add_in_process(component, struct)
                except DuplicateNameError as error:  # one of its config keys is a plugin's now
                    who = f"{component.kind} {component.name!r}, which this program registered,"
                    tell(f"{who} is left out: {error}")
            self._hold(registry)
        known = {(record.distribution, record.name, record.version) for record in old.records}
        return [r for r in registry.records if (r.distribution, r.name, r.version) not in known]

    def register(self, component: Component | Declaration, *, config: type | None = None) -> None:
        """Register a component of this program; it stands before a plugin's, and replaces an earlier one.

        Args:
            component: A declaration, or what `rlcatalog.choice.in_process` made of a class.
            config: The struct that its declaration's `config` names, where no plugin brings it.

        Raises:
            DuplicateNameError: A config key is another's.
            DeclarationError: The struct's keys cannot be read, or the component names an undeclared key.
        """
        if isinstance(component, Declaration):
            component = Component(component, "", "")
        if config is not None:
            default_of(config)  # its keys can be read
        with self._changing:
            self.registry.add_in_process(component, config)
            self._hold(self.registry)

    # Classes of the program are registered, and catalogs pickled, in registrations.py.
    register_model = registrations.register_model
    register_action_dist = registrations.register_action_dist
    register_preprocessor = registrations.register_preprocessor
    register_filter = registrations.register_filter
    pickled = registrations.pickled

    def __reduce__(self) -> Any:
        return self.pickled()

    # --- config ----------------------------------------------------------------------------------------------------

    def parse_config(self, config: Mapping[str, Any] | None) -> FlatConfig:
        """Check and complete a model config (see `Schema.parse`)."""
        return self.schema.parse(config)

    def config_keys(self, component: Component, framework: str | None = None) -> list[str]:
        """Return the config keys a component reads: its package's own and the shared ones it honours.

        Args:
            component: The component.
            framework: Where another package brings the code for it, that one's `reads` count, if it has any.
        """
        for extension in component.extensions.get(framework or "", ()):
            if extension.declaration.reads:
                return list(extension.declaration.reads)
        struct = self.registry.config_paths.get(component.declaration.config or "")
        names = self.registry.key_names.get(struct or KernelConfig, {})
        own = [names.get(k.name, k.name) for k in keys_of(struct)] if struct is not None else []
        return list(dict.fromkeys((*own, *component.declaration.named_keys)))

    # --- lookups ---------------------------------------------------------------------------------------------------

    def resolve(
        self,
        obs_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
        config: Mapping[str, Any] | None = None,
        framework: str | None = None,
        *,
        pins: Pins | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> Resolution:
        """Choose a part for every slot; no model is built and no framework is imported.

        A lookup with the same space objects, an equal config and the same framework is answered from memory.

        Args:
            obs_space: The environment's observation space.
            action_space: Its action space.
            config: The model config.
            framework: `"torch"` or `"tf"`; None lets a custom class decide, else the
                installed one, torch before tf.
            pins: What an earlier lookup chose, to be repeated.
            defaults: Defaults of an engine's own for keys that the config does not give. Nobody is warned of them, and
                where a part refuses one, the catalog's holds.

        Raises:
            CatalogError: The config is wrong, or a slot cannot be filled; see `rlcatalog.errors`.

        Warns:
            UnreadKeysWarning: Keys differ from their defaults, and nothing that was chosen reads them; once for all of
                them, and not again where the answer comes from memory.
            UnusedMaskWarning: An entry of the observation is named as an action mask is, and is not used as one.
        """
        return self.build_from_lookup(
            lambda resolution: resolution, obs_space, action_space, config, framework, pins=pins, defaults=defaults
        )

    def explain(
        self,
        obs_space: gymnasium.Space[Any] | None = None,
        action_space: gymnasium.Space[Any] | None = None,
        config: Mapping[str, Any] | None = None,
        framework: str | None = None,
        *,
        env: AnyEnv | None = None,
    ) -> Explanation:
        """Say what a lookup chooses, why, and the shapes along the way; no framework is imported.

        Keys that nothing reads stand in the explanation; there is no warning.

        Args:
            obs_space: The environment's observation space.
            action_space: Its action space.
            config: The model config.
            framework: See `resolve`.
            env: An environment, or what makes one (see `rlcatalog.catalog.make_env`), instead of the two spaces; its
                wrappers are explained too.

        Raises:
            CatalogError: See `resolve`.
        """
        name, wrappers = "", list[Verdict]()
        if env is not None:
            obs_space, action_space, name, wrappers = self.spaces_of(env, config)
        if obs_space is None or action_space is None:
            raise UnsupportedSpaceError("explain() needs an observation space and an action space, or env=.")
        spaces = obs_space, action_space
        # Apart from what `resolve` remembers, which warns where it looks.
        resolution = answer_of(
            self.slots, ("explanation", framework), spaces, config,
            lambda: find_resolution(self, *spaces, config, framework),
        )  # fmt: skip
        return Explanation(resolution, env=name, wrappers=tuple(wrappers))

    def build_from_lookup(
        self,
        build: Callable[[Resolution], T],
        obs_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
        config: Mapping[str, Any] | None = None,
        framework: str | None = None,
        *,
        pins: Pins | None = None,
        defaults: Mapping[str, Any] | None = None,
    ) -> T:
        """Look parts up, and return what a function builds of them; for `rlcatalog.build`.

        Where the lookup or the function refuses the defaults, all but one of them are tried, then none.

        Args:
            build: The function.
            obs_space: See `resolve`, as the others.
            action_space: The environment's action space.
            config: The model config.
            framework: The framework.
            pins: What an earlier lookup chose.
            defaults: An engine's defaults.

        Raises:
            CatalogError: See `resolve`.
        """
        slots, what, spaces = self.slots, ("resolution", framework), (obs_space, action_space)
        every = dict(defaults or {})
        fewer = [{name: value for name, value in every.items() if name != without} for without in every]
        for tried in [*filter(None, (every, *fewer)), None]:
            key = config if tried is None else (config, tried)
            try:
                known: Resolution | None = None if pins is not None else recall(slots, what, spaces, key)
                resolution = known or find_resolution(self, *spaces, config, framework, pins, tried)
                built = build(resolution)
                break
            except Exception:  # a class of the user's may refuse an engine's default in any way
                if tried is None:
                    raise
        if known is None and pins is None:  # after success: where it fails, the error alone says what to do
            warn_of(self, resolution)
            remember(slots, what, spaces, key, resolution)
        return built

    def trunk(self, request: Request, name: str | None = None) -> Component:
        """Choose the trunk for a part of an observation, for a model that holds others.

        Args:
            request: `obs` is the part and `encoded_shape` the shape of its tensor.
            name: Name of a model; the best match when None.

        Raises:
            NoMatchError: No installed model fits.
        """
        return self.slots.trunk(replace(request, catalog=self), name)

    # Single parts are looked up and made in parts.py.
    preprocessor_for = parts.preprocessor_for
    action_dist = parts.action_dist
    model_v2 = parts.model_v2
    model = staticmethod(parts.model)

    # --- environments ----------------------------------------------------------------------------------------------

    def spaces_of(self, env: AnyEnv, config: Mapping[str, Any] | None = None) -> tuple[Any, Any, str, list[Verdict]]:
        """Return the spaces of an environment, observations and actions, as `wrap_env` makes them.

        Args:
            env: An environment, or what makes one (see `rlcatalog.catalog.make_env`), which is then closed.
            config: The model config.

        Returns:
            The two spaces, the environment's name, and the answer of each wrapper that was asked; none for a vector
            environment.

        Raises:
            CatalogError: It is no environment, or makes none.
        """
        made = make_env(env)
        try:
            spec = getattr(made, "spec", None)
            name = type(getattr(made, "unwrapped", made)).__name__ if spec is None else spec.id
            if hasattr(made, "single_observation_space"):  # a vector environment, or what has the spaces of one
                values = self.parse_config(config)
                check_wrapped(self.slots.env_wrappers(values), made, values)
                return made.single_observation_space, made.single_action_space, name, []
            wrapped, verdicts = self.explain_wrapping(made, config)
            return wrapped.observation_space, wrapped.action_space, name, verdicts
        finally:
            if made is not env and hasattr(made, "close"):
                made.close()

    def wrap_env(
        self, env: gymnasium.Env[Any, Any], config: Mapping[str, Any] | None = None
    ) -> gymnasium.Env[Any, Any]:
        """Apply the environment wrappers that match, in the order of their names.

        A wrapper that is applied already is not applied again.

        Args:
            env: A single environment.
            config: The model config; each wrapper reads its own keys.

        Raises:
            ModelContractError: `env` is no single environment.
        """
        return self.explain_wrapping(env, config)[0]

    def explain_wrapping(
        self, env: gymnasium.Env[Any, Any], config: Mapping[str, Any] | None = None
    ) -> tuple[gymnasium.Env[Any, Any], list[Verdict]]:
        """Like `wrap_env`; returns the environment and the answer of each wrapper that was asked."""
        values = self.parse_config(config)
        return wrap(self.slots.env_wrappers(values), env, values)
