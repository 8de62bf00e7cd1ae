"""`Catalog`: one set of plugins and registrations, and the lookups over it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from rlcatalog.catalog.lookups import find_action_dist, find_model_parts, find_resolution, warn_of
from rlcatalog.catalog.parts import load_model_classes, make_preprocessor
from rlcatalog.catalog.registrations import Registrations
from rlcatalog.choice import Explanation, Pins, Resolution
from rlcatalog.choice.env_wrappers import check_wrapped, wrap
from rlcatalog.choice.selection import Verdict
from rlcatalog.config import KernelConfig, keys_of
from rlcatalog.config.flat import FlatConfig, ReadOnlyConfig
from rlcatalog.config.schema import Schema
from rlcatalog.config.values import plain_values
from rlcatalog.errors import ModelContractError, UnsupportedSpaceError
from rlcatalog.frameworks import require_framework
from rlcatalog.models import assemble
from rlcatalog.observations import Preprocessor
from rlcatalog.observations.trunk_observation import TrunkObservation
from rlcatalog.observations.watch import check_answers
from rlcatalog.plugins import Component, Request
from rlcatalog.plugins.discovery import PluginRecord
from rlcatalog.spaces import SpaceInfo

if TYPE_CHECKING:
    import gymnasium
    from gymnasium.vector import VectorEnv

    from rlcatalog.models import ModelV2

T = TypeVar("T")


class Catalog(Registrations):
    """The parts that are installed or registered, and what fits.

    Args:
        entry_points: Entry points to load plugins from; those of the process when None, none when empty.
        environ: Environment variables that disable or allow plugins; the process's when None.
        prefer: Distributions whose parts count as listed and win ties, the most preferred first; beside those of
            `RLCATALOG_PREFER_PLUGINS`.

    Raises:
        CatalogError: A plugin fails to load and `RLCATALOG_STRICT_PLUGINS=1`.
    """

    # --- plugins ---------------------------------------------------------------------------------------------------

    @property
    def plugins(self) -> list[PluginRecord]:
        """How each plugin ended, sorted by distribution and name."""
        return sorted(self.registry.records, key=lambda r: (r.distribution, r.name))

    def components(self, kind: str | None = None) -> list[Component]:
        """Return all components, sorted by kind and name."""
        return [c for c in self.registry if kind in (None, c.kind)]

    # --- config ----------------------------------------------------------------------------------------------------

    @property
    def schema(self) -> Schema:
        """The table of config keys."""
        schema = self._schema
        if schema is None:
            with self._changing:  # or it would be made of what was there before a change, and kept after it
                schema = self._schema = self._schema or Schema(self.registry)
        return schema

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
        """Choose a part for every slot; nothing is built and no framework is imported.

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
        env: gymnasium.Env[Any, Any] | VectorEnv[Any, Any, Any] | None = None,
    ) -> Explanation:
        """Say what a lookup chooses, why, and the shapes along the way; no framework is imported.

        Keys that nothing reads stand in the explanation; there is no warning.

        Args:
            obs_space: The environment's observation space.
            action_space: Its action space.
            config: The model config.
            framework: See `resolve`.
            env: An environment, instead of the two spaces; its wrappers are explained too.

        Raises:
            CatalogError: See `resolve`.
        """
        wrappers: list[Verdict] = []
        if env is not None:
            obs_space, action_space, wrappers = self.spaces_of(env, config)
        if obs_space is None or action_space is None:
            raise UnsupportedSpaceError("explain() needs an observation space and an action space, or env=.")
        # Apart from what `resolve` remembers, which warns where it looks.
        what, spaces = ("explanation", framework), (obs_space, action_space)
        resolution: Resolution | None = self._cache.get(what, spaces, config)
        if resolution is None:
            resolution = find_resolution(self, obs_space, action_space, config, framework)
            self._cache.put(what, spaces, config, resolution)
        spec = getattr(env, "spec", None)
        name = "" if env is None else type(env.unwrapped).__name__ if spec is None else spec.id
        return replace(resolution.explain(), env=name, wrappers=tuple(wrappers))

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
        spaces, what = (obs_space, action_space), ("resolution", framework)
        every = dict(defaults or {})
        fewer = [{name: value for name, value in every.items() if name != without} for without in every]
        for tried in [*filter(None, (every, *fewer)), None]:
            key = config if tried is None else (config, tried)
            try:
                known: Resolution | None = None if pins is not None else self._cache.get(what, spaces, key)
                resolution = known or find_resolution(self, *spaces, config, framework, pins, tried)
                built = build(resolution)
                break
            except Exception:  # a class of the user's may refuse an engine's default in any way
                if tried is None:
                    raise
        if known is None and pins is None:  # after success: where it fails, the error alone says what to do
            warn_of(self, resolution)
            self._cache.put(what, spaces, key, resolution)
        return built

    def spaces_of(
        self, env: gymnasium.Env[Any, Any] | VectorEnv[Any, Any, Any], config: Mapping[str, Any] | None = None
    ) -> tuple[gymnasium.Space[Any], gymnasium.Space[Any], list[Verdict]]:
        """Return the spaces of an environment, observations and actions, as `wrap_env` makes them.

        Returns:
            The two spaces, and what each installed wrapper said.

        Raises:
            ModelContractError: It is no environment.
        """
        vector: Any = env  # or what has the spaces of one
        if hasattr(vector, "single_observation_space"):
            values = self.parse_config(config)
            check_wrapped(self.slots.env_wrappers(values), vector, values)
            return vector.single_observation_space, vector.single_action_space, []
        if isinstance(env, str):
            raise ModelContractError(f"env: expected an environment, found {env!r}. Make it: gymnasium.make({env!r}).")
        env, verdicts = self.explain_wrapping(vector, config)
        return env.observation_space, env.action_space, verdicts

    def trunk(self, request: Request, name: str | None = None) -> Component:
        """Choose the trunk for a part of an observation, for a model that holds others.

        Args:
            request: `obs` is the part and `encoded_shape` the shape of its tensor.
            name: Name of a model; the best match when None.

        Raises:
            NoMatchError: No installed model fits.
        """
        return self.slots.trunk(replace(request, catalog=self), name)

    # --- single parts ----------------------------------------------------------------------------------------------

    def preprocessor_for(
        self,
        space: gymnasium.Space[Any] | SpaceInfo,
        options: Mapping[str, Any] | None = None,
        *,
        check: str | None = None,
        pins: Pins | None = None,
        chosen: Component | None = None,
    ) -> Preprocessor:
        """Make the preprocessor for a space.

        Args:
            space: The space, or its SpaceInfo.
            options: A complete model config.
            check: When observations are checked; what the options say when None.
            pins: What an earlier lookup chose, to be repeated, children's included.
            chosen: The component, where it was chosen already: it is looked up when None.

        Raises:
            UnsupportedSpaceError: No installed preprocessor takes it; the message names the leaf.
        """
        info = space if isinstance(space, SpaceInfo) else SpaceInfo.read(space)
        options = plain_values(options or {})  # its own: it may change them
        options["custom_options"] = options.get("custom_model_config", {})  # where RLlib's preprocessors look
        return self.child_preprocessor(info, options, pins, check or options.get("check_observations", "first"), chosen)

    def child_preprocessor(
        self,
        info: SpaceInfo,
        options: Mapping[str, Any],
        pins: Pins | None = None,
        check: str = "never",
        chosen: Component | None = None,
    ) -> Preprocessor:
        """Make the preprocessor of a child, with its parent's options; it leaves checking to the root."""
        component = chosen or self.slots.preprocessor(Request(info, config=ReadOnlyConfig(options)), pins).component
        assert component is not None
        made = make_preprocessor(component, info, options, check, partial(self.child_preprocessor, pins=pins))
        made.component, made.made_by = component, self
        made.is_watched = not component.is_indexed
        if made.is_watched:
            check_answers(made)
        return made

    def action_dist(
        self,
        action_space: gymnasium.Space[Any],
        config: Mapping[str, Any] | None = None,
        dist_type: str | type | None = None,
        framework: str | None = None,
    ) -> tuple[Any, int]:
        """Return the distribution class for an action space and the number of model outputs it needs.

        Args:
            action_space: The action space.
            config: The model config; its `custom_action_dist` wins.
            dist_type: Name or class of a distribution: for the space, or for those of its parts that it fits.
            framework: `"torch"` or `"tf"`; None lets a custom class decide, else the
                installed one, torch before tf.

        Raises:
            UnsupportedSpaceError: Nothing takes the space or a part of it; the message names the leaf.
        """
        what, asked = ("action_dist", framework), (config, dist_type)
        dist_and_size: tuple[Any, int] | None = self._cache.get(what, (action_space,), asked)
        if dist_and_size is None:
            dist_and_size = find_action_dist(self, action_space, config, dist_type, framework)
            self._cache.put(what, (action_space,), asked, dist_and_size)
        return dist_and_size

    def model_v2(
        self,
        obs_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
        num_outputs: int | None,
        config: Mapping[str, Any] | None = None,
        framework: str | None = None,
        name: str = "default_model",
        interface: type | None = None,
        default_model: type | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> ModelV2:
        """Build a model for encoded observations; see `ModelCatalog.get_model_v2`."""
        what, spaces = ("model", framework, num_outputs), (obs_space, action_space)
        made_of: dict[str, Any] | None = self._cache.get(what, spaces, (config, default_model))
        if made_of is None:
            made_of = find_model_parts(self, *spaces, num_outputs, config, framework, default_model)
            self._cache.put(what, spaces, (config, default_model), made_of)
        return self.model(action_space=action_space, num_outputs=num_outputs, name=name, interface=interface,
                          kwargs=kwargs, **made_of)  # fmt: skip

    def model(
        self,
        choices: Mapping[str, Component | None],
        obs_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any] | None,
        num_outputs: int | None,
        config: FlatConfig,
        framework: str,
        *,
        name: str = "default_model",
        interface: type | None = None,
        kwargs: Mapping[str, Any] | None = None,
        unclaimed: TrunkObservation | None = None,
        action_dist: Callable[..., Any] | None = None,
    ) -> ModelV2:
        """Build a model from the components of its slots (see `rlcatalog.models.assemble`)."""
        require_framework(framework)
        parts = load_model_classes(choices, config, framework, kwargs)
        return assemble(
            parts, obs_space, action_space, num_outputs, config.fresh, name, interface, unclaimed, action_dist
        )

    def wrap_env(
        self, env: gymnasium.Env[Any, Any], config: Mapping[str, Any] | None = None
    ) -> gymnasium.Env[Any, Any]:
        """Apply every installed environment wrapper that matches, in the order of their names.

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
        """Like `wrap_env`; returns the environment and what each installed wrapper said."""
        values = self.parse_config(config)
        return wrap(self.slots.env_wrappers(values), env, values)
