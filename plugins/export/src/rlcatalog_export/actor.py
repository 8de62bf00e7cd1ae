"""`Actor`, which acts from an exported policy with NumPy and a runner, without a framework."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space

from rlcatalog import Catalog, SpaceInfo, default_catalog
from rlcatalog.actions import NOT_GIVEN, ActionMasks, action_codec
from rlcatalog.errors import (
    ActionMaskError,
    CatalogError,
    ConfigError,
    ModelContractError,
    NotServedError,
    SavedPolicyError,
    reason,
)
from rlcatalog.frameworks import Array, Step
from rlcatalog.internals import mask_key_path
from rlcatalog_export.actor_inputs import Observations
from rlcatalog_export.formats import Runner, runner_for
from rlcatalog_export.interface import Interface, Port
from rlcatalog_export.noise import LEAST
from rlcatalog_policy import (
    Stepper,
    are_tensors,
    check_finite_step,
    check_reward,
    space_from_json,
    with_batch_hint,
)


class ActorState(NamedTuple):
    """State of B episodes between two steps: arrays `[B, ...]`, keyed by the file's input names."""

    parts: Mapping[str, Array]

    def __len__(self) -> int:
        return len(next(iter(self.parts.values())))


class Actor:
    """Actor that runs a file which `Policy.export` has written, and acts like the policy.

    You need neither the policy's model nor, for ONNX files, PyTorch or TensorFlow. The actor checks
    observations and masks as the policy does, and raises the same errors.

    Args:
        path: The file.
        observation_space: The environment's observation space. You only need to pass it if the file
            does not contain it, because its class comes from a plugin.
        action_space: The environment's action space, in the same case.
        seed: Seed for sampling actions: with the same seed, `act` samples the same actions. None
            means a new seed each time.
        catalog: Catalog that provides the formats and codecs. If None, the default catalog is used.
        runner: An object that runs the file, if you do not pass a path.

    Attributes:
        interface: The file's inputs and outputs, the spaces, the config and the versions.
        observation_space: The environment's observation space.
        action_space: The environment's action space.
        action_codec: Converter from raw actions to environment actions.
        masks: Reader for action masks.
        rng: Generator for sampling actions.

    Raises:
        SavedPolicyError: The file cannot be read.
        MissingPluginError: A package that is needed to run the file is not installed.

    Example:
        >>> interface = rlcatalog.build(env="CartPole-v1").export("cartpole.onnx")
        >>> actor = rlcatalog.Actor("cartpole.onnx", seed=0)
        >>> actor.act([[0.0, 0.0, 0.0, 0.0]]).action.shape
        (1,)
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        observation_space: Space[Any] | None = None,
        action_space: Space[Any] | None = None,
        seed: int | None = None,
        catalog: Catalog | None = None,
        runner: Runner | None = None,
    ) -> None:
        if catalog is None:
            catalog = default_catalog()
        if runner is None:
            if path is None:
                raise ConfigError("Actor: expected the path to an exported policy.")
            runner = runner_for(catalog, Path(path))
        where = "the runner" if path is None else str(path)
        self._runner = runner
        self._where = where
        # A user's runner need not say whether the file has a checksum.
        has_checksum = getattr(runner, "checked", None)
        self.interface = Interface.from_json(runner.interface, where, has_checksum)
        self.rng = np.random.default_rng(seed)
        try:
            self._build(catalog, observation_space, action_space)
            self._try()
        except CatalogError:
            raise
        except Exception as error:  # spaces and codecs may raise any error for unknown data
            raise SavedPolicyError(
                f"{where}: its interface does not fit its spaces: {reason(error)}"
            ) from error

    def _build(
        self,
        catalog: Catalog,
        observation_space: Space[Any] | None,
        action_space: Space[Any] | None,
    ) -> None:
        """Build the processing steps before and after the file from its interface."""
        interface = self.interface
        if observation_space is None:
            observation_space = self._read_space("observation_space")
        if action_space is None:
            action_space = self._read_space("action_space")
        self.observation_space = observation_space
        self.action_space = action_space
        action_info = SpaceInfo.read(action_space, "action")
        obs_info = SpaceInfo.read(observation_space)
        self.action_codec = action_codec(action_info, interface.action_bounds, interface.raw_kinds)
        # The keys and positions that lead to the mask in an observation.
        key_path: tuple[Any, ...] = ()
        if interface.mask_key is not None:
            key_path = mask_key_path(obs_info, interface.mask_key)
        # An environment may also give the mask in its `info`.
        info_key = interface.config.get("action_mask_key", "action_mask")
        self.masks = ActionMasks(action_info, interface.mask_key, key_path, info_key=info_key)
        self._observations = Observations(catalog, interface, obs_info, self.masks)

        # What each step needs of the interface.
        self._takes_mask = interface.input("mask") is not None
        self._takes_reward = interface.input("prev_reward") is not None
        noise = interface.input("noise")
        self._noise_width = 0 if noise is None else noise.shape[0]
        self._states = [port for port in interface.inputs if port.role == "state"]
        #: Values of the input `deterministic`, created once.
        self._flags = {False: np.array(False), True: np.array(True)}
        self._output_names = [port.name for port in interface.outputs]
        #: Places of the environment's actions among the outputs.
        self._action_places: list[int] = []
        #: Places of the new states, with the inputs that receive them in the next step.
        self._state_places: list[tuple[int, str]] = []
        #: Role → place, for all other outputs.
        self._output_places: dict[str, int] = {}
        for place, port in enumerate(interface.outputs):
            if port.role == "action":
                self._action_places.append(place)
            elif port.role == "state":
                self._state_places.append((place, port.follows))
            else:
                self._output_places[port.role] = place
        self._action_leaves = list(self.action_codec.leaves)
        self._has_single_action = len(self._action_places) == 1 and not self.action_codec.children

    def _try(self) -> None:
        """Run the file on one row to detect a wrong interface or wrong spaces before acting.

        Raises:
            SavedPolicyError: An output differs in format from the interface or the action space, or
                the graph cannot run.
        """
        interface = self.interface
        for port, shape in self._required_shapes():
            if port.shape != shape:
                raise SavedPolicyError(
                    f"{self._where}: {port.name!r} has rows of shape {list(port.shape)}, but the"
                    f" spaces require {list(shape)}."
                )
        if interface.observation == "filtered":
            filtered = next(port for port in interface.inputs if port.role == "observation")
            obs: Any = np.zeros((1, *filtered.shape), filtered.dtype)
        else:
            # Seeding a copy leaves the caller's space as it was.
            space: Any = copy.deepcopy(self.observation_space)
            space.seed(0)
            obs = [space.sample()]
        feeds, rows = self.feeds(obs)
        # The first batch of the caller is checked in full, whatever this one was.
        self._observations.forget()
        self._add_inputs(
            feeds, rows, state=None, prev_reward=None, mask=None, explore=False, noise=None
        )
        for port, array in zip(interface.outputs, self._run(feeds), strict=True):
            expected_shape = (1, *port.shape)
            if array.dtype.name != port.dtype or array.shape != expected_shape:
                raise SavedPolicyError(
                    f"{self._where}: {port.name!r} has the output"
                    f" {array.dtype}{list(array.shape)}, but its interface declares"
                    f" {port.dtype}{list(expected_shape)}."
                )

    def _required_shapes(self) -> Iterator[tuple[Port, tuple[int, ...]]]:
        """Yield the inputs and outputs whose rows have a shape that the spaces determine."""
        interface = self.interface
        shapes: dict[str, tuple[int, ...]] = {
            "raw_action": (self.action_codec.width,),
            "logp": (),
            "value": (),
            "mask": (self.masks.size,),
        }
        for port in (*interface.inputs, *interface.outputs):
            if port.role in shapes:
                yield port, shapes[port.role]
        if self._action_places:
            actions = [interface.outputs[place] for place in self._action_places]
            for port, leaf in zip(actions, self._action_leaves, strict=True):
                yield port, leaf.info.shape or ()

    # --- acting -----------------------------------------------------------------------------------

    def act(
        self,
        obs: Any,
        state: Any = None,
        *,
        prev_reward: Any = None,
        mask: Any = NOT_GIVEN,
        explore: bool = True,
    ) -> Step:
        """Choose actions for a batch of observations; see `Policy.act`.

        Args:
            obs: A vector environment's observations (a batch), or a list of single observations. If
                the file expects filtered observations (see `interface.observation`), pass the
                result of the policy's `preprocess`.
            state: The `state` of the step that the last `act` returned, if the policy has a memory.
                None if an episode begins in every row.
            prev_reward: Rewards `[B]` of the last step, for models that request them.
            mask: Batch of action masks in Gymnasium's format. By default, the mask in the
                observations is used, if the space has one. None allows every action.
            explore: Whether to sample actions instead of taking the deterministic ones; see
                `Policy.act`.

        Raises:
            ObservationError: An observation is not in the space.
            ActionMaskError: The mask has the wrong shape, or a row allows no action.
            NonFiniteError: An observation, a past reward, a value or an action distribution's
                parameter is NaN or infinite.
            NotServedError: The observations are tensors.
        """
        if are_tensors(obs):
            raise NotServedError("an Actor takes arrays and does not act on tensors. Pass arrays.")
        mask_columns = None
        if mask is NOT_GIVEN:
            mask_columns = self._mask_in(obs)
        feeds, rows = self.feeds(obs)
        if mask is not NOT_GIVEN and mask is not None:
            mask_columns = self.masks.matrix(mask, rows)
        elif mask_columns is not None and len(mask_columns) != rows:
            # Called for its error, which says how many rows there should be.
            mask_columns = self.masks.matrix(mask_columns, rows)
        noise = None
        if explore and self._noise_width:
            noise = self.draw(rows)
        return self.act_on(feeds, rows, state, prev_reward, mask_columns, explore, noise)

    def _mask_in(self, obs: Any) -> Array | None:
        """Return the mask in the observations as columns `[B, m]`; None if the space has none.

        Raises:
            ActionMaskError: A mask is malformed, or allows no action.
        """
        if self.masks.key is None:
            return None
        try:
            return self.masks.of(obs)
        except ActionMaskError as error:
            observations = self._observations
            encoded_part = observations.without_hidden_masks(obs)
            raise with_batch_hint(
                error, observations.preprocessor, encoded_part
            ) from error.__cause__

    def feeds(self, obs: Any) -> tuple[dict[str, Array], int]:
        """Return the file's observation inputs by name, and the number of rows.

        Raises:
            ObservationError: An observation is not in the space.
        """
        return self._observations.feeds(obs)

    def draw(self, rows: int) -> Array:
        """Return noise `[B, k]` for a step: float32 uniform numbers from the open
        interval (0, 1).
        """
        numbers = self.rng.random((rows, self._noise_width), np.float32)
        return np.maximum(numbers, np.float32(LEAST), out=numbers)

    def act_on(
        self,
        feeds: dict[str, Array],
        rows: int,
        state: Any,
        prev_reward: Any,
        mask: Array | None,
        explore: bool,
        noise: Array | None,
    ) -> Step:
        """Run the file on observations that have been checked; see `act`.

        Args:
            feeds: The file's observation inputs, by name.
            rows: B.
            state: See `act`.
            prev_reward: See `act`.
            mask: The columns of the action mask `[B, m]`, or None.
            explore: See `act`.
            noise: Random numbers `[B, k]` to sample from, if the file has this input; None without
                sampling.
        """
        steps = self._add_inputs(
            feeds,
            rows,
            state=state,
            prev_reward=prev_reward,
            mask=mask,
            explore=explore,
            noise=noise,
        )
        arrays = self._run(feeds) if rows else self._run_without_rows(feeds)
        places = self._output_places
        raw = arrays[places["raw_action"]]
        logp = arrays[places["logp"]]
        dist_inputs = arrays[places["dist_inputs"]]
        value = arrays[places["value"]] if "value" in places else None
        # A sum of products is not finite if a factor is not, so one number checks two arrays. It
        # may also overflow; therefore `check_finite_step` looks closely.
        value_or_logp = logp if value is None else value
        is_finite = (
            math.isfinite(np.vdot(logp, value_or_logp))
            # Squares of masked logits, which are very low, overflow.
            and (math.isfinite(np.vdot(dist_inputs, dist_inputs)) or np.isfinite(dist_inputs).all())
            and self._observations.finite(feeds)
        )
        if not is_finite:
            encoded, preprocessor = self._observations.encoded(feeds)
            check_finite_step(logp, value, dist_inputs, encoded, preprocessor, steps)
        new_state = None
        if self._state_places:
            new_state = ActorState({name: arrays[place] for place, name in self._state_places})
        return Step(self._action_of(arrays, raw), raw, logp, value, dist_inputs, new_state)

    def _add_inputs(
        self,
        feeds: dict[str, Array],
        rows: int,
        *,
        state: Any,
        prev_reward: Any,
        mask: Array | None,
        explore: bool,
        noise: Array | None,
    ) -> Array | None:
        """Add all inputs other than observations to `feeds`.

        Returns:
            The number of steps of each episode, or None if the file does not count them.
        """
        if self._takes_mask:
            if mask is None:
                mask = np.ones((rows, self.masks.size), np.bool_)
            feeds["mask"] = mask
        elif mask is not None:
            raise ModelContractError(
                "mask: this policy's action distribution does not support masks."
            )
        if self._noise_width:
            if noise is None:  # the deterministic action does not depend on it
                noise = np.full((rows, self._noise_width), 0.5, np.float32)
            feeds["noise"] = noise
        feeds["deterministic"] = self._flags[not explore]
        if not self._states:
            return None
        feeds.update(self._state_inputs(state, rows))
        if self._takes_reward:
            reward = check_reward(prev_reward, feeds["steps"], self.interface.model)
            if reward is None:  # all episodes are starting
                reward = np.zeros(rows, np.float32)
            feeds["prev_reward"] = reward
        return feeds.get("steps")

    def _run(self, feeds: Mapping[str, Array]) -> Sequence[Array]:
        """Return the file's outputs.

        Raises:
            SavedPolicyError: The file cannot run with these inputs.
        """
        try:
            return self._runner.run(feeds, self._output_names)
        except Exception as error:  # runtimes' errors have no common base class
            raise SavedPolicyError(f"{self._where}: cannot run: {reason(error)}") from error

    def _run_without_rows(self, feeds: Mapping[str, Array]) -> list[Array]:
        """Return the outputs for zero rows.

        Some runtimes do not support this for all operations, so one row is run and removed.
        """
        feeds_of_one_row = {}
        for name, array in feeds.items():
            has_rows = array.ndim > 0
            if has_rows:
                array = np.ones((1, *array.shape[1:]), array.dtype)
            feeds_of_one_row[name] = array
        return [array[:0] for array in self._run(feeds_of_one_row)]

    def _action_of(self, arrays: Sequence[Array], raw: Array) -> Any:
        """Return the environment's actions, in the structure and the dtypes of the space."""
        if self._has_single_action:
            action = arrays[self._action_places[0]]
            dtype = self._action_leaves[0].info.dtype
            # Files lack some of NumPy's dtypes.
            return action if action.dtype == dtype else action.astype(dtype)
        if not self._action_places:
            return self.action_codec.adapt(raw)
        leaves = iter([arrays[place] for place in self._action_places])
        return self.action_codec.join_leaves(leaves)

    # --- state ------------------------------------------------------------------------------------

    def _state_inputs(self, state: Any, rows: int) -> Mapping[str, Array]:
        """Return the state's inputs by name; for None, those of starting episodes.

        Raises:
            ModelContractError: The state is not one of this many rows.
        """
        if state is None:
            return {port.name: _initial(port, rows) for port in self._states}
        found = type(state).__name__
        if isinstance(state, ActorState):
            if len(state) == rows:
                return state.parts
            found = f"{len(state)} rows"
        raise ModelContractError(
            f"state: expected the state of {rows} rows, as act() returned it, found {found}."
        )

    def initial_state(self, batch_size: int) -> ActorState | None:
        """Return the initial state of `batch_size` episodes, or None if there is no state."""
        if not self._states:
            return None
        return ActorState(dict(self._state_inputs(state=None, rows=batch_size)))

    def restart(self, state: ActorState | None, rows: Any) -> ActorState | None:
        """Return a state in which some rows, given as indices `[k]` or booleans `[B]`, start new
        episodes.
        """
        if state is None:
            return None
        parts = {name: part.copy() for name, part in state.parts.items()}
        for name, initial in self._state_inputs(state=None, rows=1).items():
            parts[name][rows] = initial[0]
        return ActorState(parts)

    def stepper(self, n: Any, autoreset: Any = None) -> ActorStepper:
        """Return an object that acts in several environments and keeps track of their states; see
        `Policy.stepper`.
        """
        acting: Any = self  # provides everything that a stepper uses
        return ActorStepper(acting, n, autoreset)

    def seed(self, seed: int | None) -> None:
        """Set the seed for sampling."""
        self.rng = np.random.default_rng(seed)

    def __repr__(self) -> str:
        interface = self.interface
        names = ", ".join(port.name for port in interface.inputs)
        spaces = f"{self.observation_space} -> {self.action_space}"
        return f"Actor({spaces}, {interface.model} of {interface.framework}; inputs: {names})"

    def _read_space(self, name: str) -> Space[Any]:
        """Return the environment's space that the interface holds under a name.

        Raises:
            SavedPolicyError: It holds none, or one that cannot be read.
        """
        plain_spaces = {
            "observation_space": self.interface.observation_space,
            "action_space": self.interface.action_space,
        }
        if plain_spaces[name] is None:
            raise SavedPolicyError(
                f"{self._where}: the file cannot contain its {name}, whose kind comes from a"
                f" plugin; pass {name}= to Actor."
            )
        space: Space[Any]
        try:
            space = space_from_json(plain_spaces[name])
        except Exception as error:  # Gymnasium's spaces may raise any error
            raise SavedPolicyError(
                f"{self._where}: its {name} cannot be read: {error}; pass {name}= to Actor."
            ) from error
        return space


class ActorStepper(Stepper):
    """Actor for `n` environments that keeps their states across steps and episodes;
    see `Stepper`.
    """

    def _act_with_idle_rows(
        self, obs: Any, idle: Array, prev_reward: Any, mask: Any, explore: bool
    ) -> Step:
        """Act in all rows.

        Idle rows allow all actions and keep the value of their last observation.
        """
        actor: Any = self.policy
        if idle.any() and actor.masks.size:
            if mask is NOT_GIVEN:
                mask = actor.masks.of(obs, idle)
            elif mask is not None:
                mask = actor.masks.matrix(mask, self.n, idle)
        return actor.act(obs, self.state, prev_reward=prev_reward, mask=mask, explore=explore)  # type: ignore[no-any-return]


def _initial(port: Port, rows: int) -> Array:
    """Return a part of the state at the start of `rows` episodes."""
    shape = (rows, *port.shape)
    if not port.initial:
        return np.zeros(shape, port.dtype)
    one_row = np.array(port.initial, port.dtype).reshape(port.shape)
    return np.broadcast_to(one_row, shape).copy()
