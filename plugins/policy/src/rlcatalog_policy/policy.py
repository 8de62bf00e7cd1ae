"""`Policy`: the parts of one lookup, built and joined into one object."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

import rlcatalog_policy  # whose door shows `Frozen`, a subclass of what stands here
from rlcatalog.actions import action_codec, unbind
from rlcatalog.choice import MODEL_SLOTS, Explanation, Resolution
from rlcatalog.errors import (
    ActionMaskError,
    CatalogError,
    MissingPluginError,
    ModelContractError,
    NotServedError,
    ObservationError,
    reason,
)
from rlcatalog.frameworks import Evaluation, Step, frameworks, require_framework
from rlcatalog.internals import Acting, make_filter, public_index
from rlcatalog.models import ModelV2, SeparateValue, models_inside, weights_of
from rlcatalog_policy.contract_checker import ContractChecker, check_dists
from rlcatalog_policy.copies import copy_policy, pickle_policy, unpickle_policy
from rlcatalog_policy.encoder import Encoder, check_encoded, with_batch_hint
from rlcatalog_policy.history import Views
from rlcatalog_policy.non_finite import check_observations, check_rows, check_step
from rlcatalog_policy.raw_actions import raw_actions
from rlcatalog_policy.saving import save
from rlcatalog_policy.state import Memory, State
from rlcatalog_policy.stepper import Stepper
from rlcatalog_policy.summary import Summary, policy_sheet, summarize_layers, summarize_weights
from rlcatalog_policy.training_batch import check_batch

if TYPE_CHECKING:
    import gymnasium

    from rlcatalog.catalog import Catalog
    from rlcatalog_export import Interface
    from rlcatalog_policy.frozen import Frozen

Array = np.ndarray[Any, Any]


class Policy:
    """Preprocessor, filter, model, action distribution and action codec as one object.

    Made by `rlcatalog.build` and `rlcatalog.load`.

    Attributes:
        observation_space: The environment's observation space.
        action_space: Its action space.
        encoder: Encodes observations and reads action masks, as one without a model would.
        preprocessor: Encodes observations.
        filter: The filter after it, or None.
        encoded_space: The space of observations as the model sees them: encoded and filtered.
        model: The model.
        dist_class: The class of its action distributions: `dist_class(inputs, model)`.
        stored_dist: The same for `step.dist_inputs` (tensors of the framework): `stored_dist(dist_inputs, model)`.
        action_codec: Maps raw actions to the environment's.
        config: The model config, complete.
        framework: `"torch"` or `"tf"`.
        backend: What the framework does for it, a `Backend`; for what freezes and exports it.
    """

    def __init__(
        self,
        catalog: Catalog,
        resolution: Resolution,
        observation_space: Any,
        action_space: Any,
        model: ModelV2 | None = None,
    ) -> None:
        require_framework(resolution.framework, resolution.component("trunk").distribution)
        self.catalog, self.resolution = catalog, resolution
        self.observation_space, self.action_space = observation_space, action_space
        self.framework = resolution.framework
        self.config = resolution.config.fresh()
        assert resolution.request.action is not None
        kinds = resolution.actions.raw_kinds(self.framework)
        self.action_codec = action_codec(resolution.request.action, self.config["action_bounds"], kinds)
        self.encoder = Encoder(catalog, resolution, self.action_codec)
        self.preprocessor, self.masks = self.encoder.preprocessor, self.encoder.masks
        chosen = resolution.choices["filter"].component
        self.filter = make_filter(chosen, self.preprocessor, self.config, resolution.unclaimed)
        self.encoded_space = self.preprocessor.observation_space
        if self.filter is not None:
            self.encoded_space = self.filter.processed_space(self.preprocessor)
        self.dist_class = resolution.actions.load(self.framework, self.config.read_only())
        check_dists(resolution, self.config.read_only())
        #: What engines compare shapes with.
        self.contract = ContractChecker(self)
        self._checks_actions = self.contract.checks_actions
        cls, options = unbind(self.dist_class)
        self.stored_dist = (cls.stored(options) if hasattr(cls, "stored") else None) or self.dist_class
        self.model = self.make_model() if model is None else model
        with self.contract.blaming():
            self.memory = Memory(self.model)
            #: The views of past steps that the model asks for.
            self.views = Views(
                self.model.view_requirements,
                self.preprocessor.shape,
                self.encoded_space.dtype,
                self.action_codec,
                not self.config["_disable_action_flattening"],
                self.model_name,
            )
            self._looks_back = bool(self.views)
            self._carries = self._looks_back or bool(self.memory)
            #: What the framework does for this policy, a `Backend` with methods of the framework's own.
            self.backend: Any = frameworks()[self.framework].load("backend")(self)
        #: Where model and computation are, as `to` was told.
        self.device = "cpu"
        #: A model remembers its last pass: whoever runs it reads what it remembers before another thread runs it again.
        #: A trace that runs it within a pass of the same thread may pass.
        self._passing = threading.RLock()

    @property
    def model_name(self) -> str:
        """Class of the model, for messages; of the policy's part where the value has a chain of its own beside it."""
        return type(self.model.trunk if isinstance(self.model, SeparateValue) else self.model).__name__

    @property
    def has_value(self) -> bool:
        """Whether the model has a value branch."""
        return type(self.model).value_function is not ModelV2.value_function

    def overrides(self, method: str) -> bool:
        """Whether the model, or one inside it, overrides a method of `ModelV2`, such as `"custom_loss"`."""
        models: list[Any] = [self.model]
        for model in models:
            models += models_inside(model).values()
        return any(getattr(type(model), method) is not getattr(ModelV2, method) for model in models)

    # --- acting ----------------------------------------------------------------------------------------------------

    def act(
        self,
        obs: Any,
        state: Any = None,
        *,
        prev_reward: Any = None,
        mask: Any = None,
        explore: bool = True,
    ) -> Step:
        """Choose actions for a batch of observations.

        Args:
            obs: A vector environment's observations (a batch), or a list of single ones.
            state: The state the last `act` returned; None at the start of all episodes.
            prev_reward: Rewards `[B]` of the last step, for models that ask for them.
            mask: Action mask in Gymnasium's format, batched: `[B, n]` for Discrete (see `ActionMasks.matrix`); the
                observations' own when missing.
            explore: Sample; else take the most likely action.

        Raises:
            ObservationError: An observation does not lie in the space.
            ActionMaskError: The mask has the wrong shape, or a row allows nothing.
            NonFiniteError: An observation, a past reward, a value or a parameter of an action's distribution is NaN or
                infinite.
        """
        encoded, mask = self._encode(obs, mask)
        return self._step(self.backend, encoded, state, prev_reward, mask, explore)

    def act_encoded(
        self,
        encoded: Array,
        state: Any = None,
        *,
        prev_reward: Any = None,
        mask: Any = None,
        explore: bool = True,
    ) -> Step:
        """Like `act`, for observations that `preprocess` returned (a training loop stores those)."""
        mask = self._check_encoded(encoded, mask)
        return self._step(self.backend, encoded, state, prev_reward, mask, explore)

    def _encode(self, obs: Any, mask: Any) -> tuple[Array, Array | None]:
        """Return a batch of observations encoded and filtered, and the action masks `[B, m]`: the given, or its own."""
        own = None
        try:
            if self.masks.key is not None:
                own = self.masks.of(obs) if mask is None else None
                if self.encoder.mask_apart:
                    obs = self.masks.without(obs)
            encoded = self.preprocessor.encode_batch(obs)
        except (ActionMaskError, ObservationError) as error:
            raise with_batch_hint(error, self.preprocessor, self.encoder.seen(obs)) from error.__cause__
        if self.filter is not None:
            check_observations(encoded, self.preprocessor)  # it may cut them to its bounds
            encoded = self.filter.filtered(encoded)
        if mask is not None or (own is not None and len(own) != len(encoded)):
            own = self.masks.matrix(own if mask is None else mask, len(encoded))
        return encoded, own

    def _check_encoded(self, encoded: Array, mask: Any = None) -> Array | None:
        """Raise unless observations have the encoded shape; return the masks that go with them `[B, m]`."""
        check_encoded(encoded.shape, self.preprocessor.shape, "encoded")
        return None if mask is None else self.masks.matrix(mask, len(encoded))

    def _step(
        self, acting: Acting, encoded: Array, state: State | None, prev_reward: Any, mask: Array | None, explore: bool
    ) -> Step:
        """Choose actions for encoded observations, and carry the state on.

        Args:
            acting: What chooses them: the backend, or what stands in for it in a frozen policy.
            encoded: The observations.
            state: See `act`.
            prev_reward: See `act`.
            mask: Action masks `[B, m]`, or None.
            explore: See `act`.
        """
        before: State | None = None
        memory: tuple[Array, ...] = ()
        views: Mapping[str, Any] = {}
        if self._carries:
            before = self._resume(encoded, state, prev_reward)
            memory, views = before.memory, {name: before.seen[name] for name in self.views.acting}
        with self._passing:
            try:
                raw, logp, value, inputs, new_memory = acting.act(encoded, views, memory, mask, explore)
            except BaseException as error:
                self.contract.blame(error)
                raise
        steps = before.history.t if before is not None and self._looks_back else None
        check_step(logp, value, inputs, encoded, self.preprocessor, steps)
        if self._checks_actions:
            self.contract.check_actions(raw, mask)
        after = None if before is None else self._carry_on(before, encoded, raw, new_memory)
        return Step(self.action_codec.adapt(raw), raw, logp, value, inputs, after)

    def _resume(self, encoded: Array, state: State | None, prev_reward: Any) -> State:
        """Return the state before a step, with the last rewards, and what the model sees of the past."""
        rows = len(encoded)
        if state is None:
            state = self._start(rows)
        if not isinstance(state, State) or len(state.history.t) != rows:
            found = f"{len(state.history.t)} rows" if isinstance(state, State) else type(state).__name__
            raise ModelContractError(f"state: expected the state of {rows} rows, as act() returned it, found {found}.")
        if not self._looks_back:
            return state
        history = self.views.rewarded(state.history, prev_reward)
        return state._replace(history=history, seen=self.views.see(history, encoded))

    def _carry_on(self, before: State, encoded: Array, raw: Array, new_memory: tuple[Array, ...]) -> State:
        """Return the state after a step."""
        memory, past = self.memory.after(before.memory, new_memory, before.past)
        history = self.views.after(before.history, encoded, raw) if self._looks_back else before.history
        return State(memory, history, before.seen, past)

    def _start(self, rows: int) -> State:
        """Return the state at the start of episodes."""
        return State(self.memory.start(rows), self.views.start(rows), {}, self.memory.begin(rows))

    def adapt(self, raw: Array) -> Any:
        """Return the environment's actions for raw ones `[B, width]` that a backend drew.

        Raises:
            ModelContractError: A third-party distribution drew one outside of the action space.
        """
        if self._checks_actions:
            self.contract.check_actions(raw, None)
        return self.action_codec.adapt(raw)

    def backend_inputs(
        self, encoded: Array, state: Any = None, prev_reward: Any = None, mask: Any = None
    ) -> dict[str, Any]:
        """Return what `Backend.act` would be given, by name: `obs`, `views`, `memory`, `mask`; for what freezes it.

        Args:
            encoded: Observations that `preprocess` returned.
            state: See `act`.
            prev_reward: See `act`.
            mask: Action mask, as `act_encoded` takes it.
        """
        mask = None if mask is None else self.masks.matrix(mask, len(encoded))
        before = self._resume(encoded, state, prev_reward)
        views = {name: before.seen[name] for name in self.views.acting}
        return {"obs": encoded, "views": views, "memory": before.memory, "mask": mask}

    def values(self, encoded: Array, state: Any = None, *, prev_reward: Any = None) -> Array:
        """Return value estimates `[B]` where nobody acts: of an episode's last observation, say.

        They are float32, or float64 where the model's are. No action is drawn and no action mask is asked for: a row in
        which nothing is allowed will do.

        Args:
            encoded: Observations that `preprocess` returned.
            state: The state the last `act` returned; None at the start of all episodes. It stays as it was.
            prev_reward: Rewards `[B]` of the last step, for models that ask for them.

        Raises:
            NotServedError: The model has no value branch.
            NonFiniteError: A value is NaN or infinite.
        """
        if not self.has_value:
            raise NotServedError(f"values: {self.model_name} has no value_function().")
        self._check_encoded(encoded)
        given = self.backend_inputs(encoded, state, prev_reward)
        with self._passing, self.contract.blaming():
            value: Array = self.backend.values(encoded, given["views"], given["memory"])
        check_rows(value, "its value estimate", "look at its observation, and at the model's weights")
        return value

    def preprocess(self, obs: Any, *, update: bool | Array = False) -> Array:
        """Encode and filter a batch of observations: `[B, *encoded shape]`.

        Args:
            obs: A batch of observations, or a list of single ones.
            update: Whether the filter learns from them first; booleans `[B]`: from which.

        Raises:
            ObservationError: An observation does not lie in the space.
            NonFiniteError: One holds a number that is NaN or infinite; the filter has learned nothing from the batch.
        """
        seen = self.encoder.seen(obs)
        try:
            encoded = self.preprocessor.transform_batch(seen)
        except ObservationError as error:
            raise with_batch_hint(error, self.preprocessor, seen) from error.__cause__
        check_observations(encoded, self.preprocessor)
        if self.filter is None:
            return encoded
        rows = np.asarray(update)
        with self._passing:  # it reads its statistics, and writes new ones
            if not rows.ndim:
                return self.filter.filtered(encoded, update=bool(update))
            if rows.any():
                self.filter.filtered(encoded[rows], update=True)
            return self.filter.filtered(encoded)

    def action_mask(self, obs: Any, *, idle: Array | None = None) -> Array | None:
        """Return the action masks in a batch of observations, boolean `[B, m]`, or None where they hold none.

        Args:
            obs: A batch of observations, or a list of single ones.
            idle: Rows in which no action will be taken, booleans `[B]`: there, everything is allowed.

        Raises:
            ActionMaskError: A mask has the wrong form, or allows nothing in some row.
        """
        return self.masks.of(obs, idle)

    def evaluate(self, batch: Mapping[str, Any], *, check: bool = True, entropy: bool = True) -> Evaluation:
        """Score stored actions under the current weights, for training.

        Args:
            batch: `"obs"`: encoded observations `[B, ...]` from `preprocess`; `"raw_action"`: `[B, width]`, from
                `act`, or from `raw_action` for those of an environment; for masked actions `"mask"`, from
                `action_mask`; for models that ask for views `"views"`, what acting returned as `step.state.seen`, row
                by row. Models with memory read sequences: `"seq_lens"` `[S]`, the lengths of the sequences that stand
                one after the other in the rows, and `"state"`, the memory `[S, ...]` each began with (none: fresh
                episodes). Rows are not padded. With `"dist_inputs"`, of `act`, the divergence is computed, too. Arrays
                or tensors.
            check: Whether the batch is looked at first. A learner that goes over the same rows again and again needs
                that once.
            entropy: Whether the entropy is asked for; a loss that does not weigh it takes less time without.

        Raises:
            MissingColumnError: `"obs"` or `"raw_action"` is missing.
            ModelContractError: A view is missing, or the lengths do not add up to the rows.
            ObservationError, ActionError, ActionMaskError, NonFiniteError: See `check_batch`: rows that do not belong
                together, actions and masks that are none of the space. Tensors of a trace are taken at their word.
            NoClosedFormError: `"dist_inputs"` are given, and the distribution has no closed form for its divergence.
        """
        if check:
            check_batch(self, batch)
        with self._passing, self.contract.blaming():
            evaluation: Evaluation = self.backend.evaluate(batch, entropy)
            return evaluation

    def raw_action(self, actions: Any) -> Array:
        """Return the raw actions `[B, width]` that become these actions of the environment: what `evaluate` scores.

        For data that others recorded; what `act` returned holds its own, as `step.raw_action`. Within the bounds the
        way back is exact: `action_codec.adapt` makes the same actions of them again.

        Args:
            actions: A batch, as a vector environment takes it; a list of single actions; or one, a batch of one row.
                Arrays or tensors.

        Raises:
            ActionError: One does not lie in the space, out of a Box's bounds, say; the message names its path.
            NotServedError: A plugin's codec has no inverse.
        """
        return raw_actions(self, actions)

    def initial_state(self, batch_size: int) -> Any:
        """Return the state at the start of `batch_size` episodes, or None where nothing is carried."""
        return self._start(batch_size) if self._carries else None

    def restart(self, state: State | None, rows: Any) -> State | None:
        """Return a state with new episodes in some rows, by indices `[k]` or booleans `[B]`."""
        if state is None:
            return None
        memory, past = self.memory.restart(state, rows)
        return State(memory, self.views.restart(state.history, rows), state.seen, past)

    def stepper(self, n: Any, autoreset: Any = None) -> Stepper:
        """Return an object that acts in several environments and keeps their states.

        Args:
            n: Their number, or the vector environment.
            autoreset: When episodes begin anew, `"same_step"`, `"next_step"` or `"disabled"` (see `Stepper`); when
                missing, as the vector environment does it, or `"same_step"` for a number.
        """
        return Stepper(self, n, autoreset)

    # --- the object ------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return policy_sheet(self).text()

    def _repr_html_(self) -> str:
        return policy_sheet(self).html()

    def explain(self) -> Explanation:
        """Return why these parts were chosen."""
        return self.resolution.explain()

    def summary(self) -> Summary:
        """Return the layers of the model, with their shapes and their numbers of weights."""
        if (known := summarize_layers(self.resolution)) is not None:
            return known
        arrays = ((name, array.shape) for name, array in weights_of(self.model).items())
        return summarize_weights(self.resolution.model_parts, self.framework, arrays)

    def wrap_env(self, env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
        """Apply the environment wrappers this policy's config asks for; see `Catalog.wrap_env`."""
        return self.catalog.wrap_env(env, self.resolution.config.given)

    def to(self, device: str) -> Policy:
        """Move the policy to a device (`"cpu"`, `"cuda"`, …) and return it."""
        with self._passing:
            self.backend.to(device)
            self.device = device
        return self

    def random_state(self) -> dict[str, Array]:
        """Return the state of what actions are drawn from, by name: PyTorch's generators, or the policy's own."""
        return dict(self.backend.random_state())

    def set_random_state(self, state: Mapping[str, Array]) -> None:
        """Set the state of what actions are drawn from, as `random_state` returned it: the same are drawn again."""
        self.backend.set_random_state(state)

    def __deepcopy__(self, memo: dict[int, Any]) -> Policy:
        """Return a policy of the same parts with weights and statistics of its own, on the same device.

        Where the model is copied with it, as a part of the same object, the copies belong together, too.
        """
        with self._passing:
            return copy_policy(self, memo)

    def __reduce__(self) -> Any:
        """Pickle what `save` writes; the policy comes back on the CPU, and its parts are found again by name.

        Raises:
            SavedPolicyError: A class of the running program is not registered, or cannot be imported.
        """
        with self._passing:
            return unpickle_policy, (type(self), pickle_policy(self))

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Write names and versions of the parts, the non-default config, weights and filter statistics; no pickle.

        A policy saved there before stays whole until this one is: whatever happens in between, one of them loads.

        Raises:
            SavedPolicyError: The config holds a class, a callable or another value that would not come back as it is;
                or the files cannot be written.
        """
        save(self, directory)

    def export(self, path: str | os.PathLike[str], format: str | None = None) -> Interface:
        """Write a file that acts as this policy does, without it: the whole way from observation to action.

        The file is compared with the policy on random observations before it takes its place, and the policy is as it
        was. `rlcatalog.Actor(path)` acts from it.

        Args:
            path: The file, or the folder where the format is one's.
            format: Name of the format, such as `"onnx"`; that of the path's suffix when missing.

        Returns:
            Inputs and outputs of the file.

        Raises:
            ConfigError: No format is named, and the suffix is of none.
            MissingPluginError: The package that brings the format is not usable here.
            NotServedError: The policy does something that cannot be exported; the message names the line.
            SavedPolicyError: The file cannot be written.
            FolderTakenError: A folder is to be written, and the one of that name holds something else.
        """
        with self._passing:
            framework = frameworks()[self.framework]
            if framework.target("export") is None:
                raise MissingPluginError(f"Policy.export: {self._provider_of('export')}.")
            interface: Interface = framework.load("export")(self, path, format)
            return interface

    def freeze(self, rows: int = 1, *, seed: int | None = None) -> Frozen:
        """Return the policy as one that acts faster, for collecting and serving: its step recorded as one graph.

        It shares the weights with this policy; tell it by `frozen.update()` when they have changed. Where no installed
        package can do that for this policy, what is returned acts as this policy does, and `frozen.reason` says why.

        Args:
            rows: How many environments it will act in at once; other numbers do as well, each at a cost once.
            seed: Of what actions are drawn from; None: another each time.
        """
        with self._passing:
            framework = frameworks()[self.framework]
            if framework.target("freeze") is None:
                return rlcatalog_policy.Frozen(self, None, self._provider_of("freeze"))
            try:
                return rlcatalog_policy.Frozen(self, framework.load("freeze")(self, rows, seed))
            except CatalogError as error:
                return rlcatalog_policy.Frozen(self, None, reason(error))

    def _provider_of(self, target: str) -> str:
        """Return what to install where no package here brings a target of the framework."""
        missing = f"no installed package does this for framework={self.framework!r}"
        owner = public_index.provider_of("framework", f"{self.framework}: {target}")
        return missing if owner is None else f"{missing}; install it with: pip install '{owner}[{self.framework}]'"

    def make_model(self) -> ModelV2:
        """Build another model like this policy's, with fresh weights."""
        resolution = self.resolution
        choices = {slot: resolution.choices[slot].component for slot in MODEL_SLOTS}
        return self.catalog.model(
            choices,
            self.encoded_space,
            self.action_space,
            resolution.num_outputs,
            resolution.config,
            self.framework,
            unclaimed=resolution.unclaimed,
            action_dist=self.dist_class,
        )
