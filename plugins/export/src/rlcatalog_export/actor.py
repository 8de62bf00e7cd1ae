"""`Actor`, which acts from an exported policy with NumPy and a runner, without a framework."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rlcatalog import Catalog, SpaceInfo, default_catalog
from rlcatalog.actions import NOT_GIVEN, ActionCodec, ActionMasks, action_codec
from rlcatalog.errors import (
    ActionMaskError,
    CatalogError,
    ConfigError,
    ModelContractError,
    SavedPolicyError,
    reason,
)
from rlcatalog.frameworks import Array, Step
from rlcatalog.internals import mask_steps
from rlcatalog_export.actor_inputs import Observations
from rlcatalog_export.formats import Runner, runner_for
from rlcatalog_export.interface import Interface, Port
from rlcatalog_export.noise import LEAST
from rlcatalog_policy import Stepper, check_reward, check_step, space_from_json, with_batch_hint


class ActorState(NamedTuple):
    """State of B episodes between two steps: arrays `[B, ...]`, keyed by the file's input names."""

    parts: Mapping[str, Array]

    def __len__(self) -> int:
        return len(next(iter(self.parts.values())))


class Actor:
    """Exported policy that is read from a file and acts like the original policy.

    PyTorch and TensorFlow are only imported if the file's format needs them. The actor checks
    observations and masks as the policy does, and raises the same errors.

    Args:
        path: The file.
        observation_space: The environment's observation space, if the file cannot contain it
            (because its kind comes from a plugin).
        action_space: The same for actions.
        seed: Seed for sampling actions: with the same seed, `act` samples the same actions. None
            means a new seed each time.
        catalog: Catalog that provides the formats and codecs. If None, the default catalog is used.
        runner: Object that runs the file, instead of `path`.

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
        observation_space: Any = None,
        action_space: Any = None,
        seed: int | None = None,
        catalog: Catalog | None = None,
        runner: Runner | None = None,
    ) -> None:
        catalog = default_catalog() if catalog is None else catalog
        where = "the runner" if path is None else str(path)
        if runner is None:
            if path is None:
                raise ConfigError("Actor: expected the path to an exported policy.")
            runner = runner_for(catalog, Path(path))
        self._runner, self._where = runner, where
        self.interface = Interface.from_json(
            runner.interface, where, getattr(runner, "checked", None)
        )
        self.rng = np.random.default_rng(seed)
        try:
            self._build(catalog, observation_space, action_space, where)
            self._try()
        except CatalogError:
            raise
        except Exception as error:  # spaces and codecs may raise any error for unknown data
            raise SavedPolicyError(
                f"{where}: its interface does not fit its spaces: {reason(error)}"
            ) from error

    def _build(
        self, catalog: Catalog, observation_space: Any, action_space: Any, where: str
    ) -> None:
        """Build the processing steps before and after the file from its interface."""
        interface = self.interface
        self.observation_space = _space(
            interface.observation_space, observation_space, "observation_space", where
        )
        self.action_space = _space(interface.action_space, action_space, "action_space", where)
        action = SpaceInfo.read(self.action_space, "action")
        self.action_codec = action_codec(action, interface.action_bounds, interface.raw_kinds)
        observed = SpaceInfo.read(self.observation_space)
        steps = () if interface.mask_key is None else mask_steps(observed, interface.mask_key)
        info_key = interface.config.get("action_mask_key", "action_mask")
        self.masks = ActionMasks(action, interface.mask_key, steps, info_key=info_key)
        self._observations = Observations(catalog, interface, observed, self.masks)
        self._masked = interface.input("mask") is not None
        self._rewarded = interface.input("prev_reward") is not None
        noise = interface.input("noise")
        self._noise = 0 if noise is None else noise.shape[0]
        self._states = [port for port in interface.inputs if port.role == "state"]
        self._outputs = [port.name for port in interface.outputs]
        self._follows = [
            (i, port.follows) for i, port in enumerate(interface.outputs) if port.role == "state"
        ]
        self._place = {
            port.role: i
            for i, port in enumerate(interface.outputs)
            if port.role not in ("action", "state")
        }
        self._actions = [i for i, port in enumerate(interface.outputs) if port.role == "action"]
        self._single = len(self._actions) == 1 and not self.action_codec.children
        self._leaves = list(self.action_codec.leaves)
        self._flags = {False: np.array(False), True: np.array(True)}

    def _try(self) -> None:
        """Run the file on one row to detect a wrong interface or wrong spaces before acting.

        Raises:
            SavedPolicyError: An output differs in format from the interface or the action space, or
                the graph cannot run.
        """
        interface, codec = self.interface, self.action_codec
        forms = {"raw_action": (codec.width,), "logp": (), "value": (), "mask": (self.masks.size,)}
        wanted = [
            (port, forms[port.role])
            for port in (*interface.inputs, *interface.outputs)
            if port.role in forms
        ]
        if self._actions:
            actions = [interface.outputs[i] for i in self._actions]
            wanted += [
                (port, leaf.info.shape or ())
                for port, leaf in zip(actions, self._leaves, strict=True)
            ]
        for port, shape in wanted:
            if port.shape != shape:
                raise SavedPolicyError(
                    f"{self._where}: {port.name!r} has rows of shape {list(port.shape)}, but the"
                    f" spaces require {list(shape)}."
                )
        if interface.observation == "filtered":
            filtered = next(port for port in interface.inputs if port.role == "observation")
            obs: Any = np.zeros((1, *filtered.shape), filtered.dtype)
        else:
            space = copy.deepcopy(self.observation_space)
            space.seed(0)
            obs = [space.sample()]
        feeds, rows = self.feeds(obs)
        self._observations.forget()
        self._complete(feeds, rows, None, None, None, False, None)
        for port, array in zip(interface.outputs, self._run(feeds), strict=True):
            if (array.dtype.name, array.shape) != (port.dtype, (1, *port.shape)):
                raise SavedPolicyError(
                    f"{self._where}: {port.name!r} has the output"
                    f" {array.dtype}{list(array.shape)}, but its interface declares"
                    f" {port.dtype}{[1, *port.shape]}."
                )

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
            state: The state that the last `act` returned; None if all episodes are starting.
            prev_reward: Rewards `[B]` of the last step, for models that request them.
            mask: Batch of action masks in Gymnasium's format. By default, the mask in the
                observations is used, if the space has one. None allows every action.
            explore: Whether to sample actions; otherwise the most likely action is chosen.

        Raises:
            ObservationError: An observation is not in the space.
            ActionMaskError: The mask has the wrong shape, or a row allows no action.
            NonFiniteError: An observation, a past reward, a value or an action distribution's
                parameter is NaN or infinite.
        """
        own = None
        if self.masks.key is not None and mask is NOT_GIVEN:
            try:
                own = self.masks.of(obs)
            except ActionMaskError as error:
                observations = self._observations
                raise with_batch_hint(
                    error, observations.preprocessor, observations.seen(obs)
                ) from error.__cause__
        feeds, rows = self.feeds(obs)
        if mask is NOT_GIVEN and own is not None and len(own) == rows:
            mask = own  # it is already checked
        elif mask is NOT_GIVEN:
            mask = None if own is None else self.masks.matrix(own, rows)
        elif mask is not None:
            mask = self.masks.matrix(mask, rows)
        noise = self.draw(rows) if explore and self._noise else None
        return self.act_on(feeds, rows, state, prev_reward, mask, explore, noise)

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
        drawn = self.rng.random((rows, self._noise), np.float32)
        return np.maximum(drawn, np.float32(LEAST), out=drawn)

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
        t = self._complete(feeds, rows, state, prev_reward, mask, explore, noise)
        arrays = self._run(feeds) if rows else self._none(feeds)
        place = self._place
        raw, logp, inputs = (
            arrays[place["raw_action"]],
            arrays[place["logp"]],
            arrays[place["dist_inputs"]],
        )
        value = arrays[place["value"]] if "value" in place else None
        if not (
            math.isfinite(np.vdot(logp, logp if value is None else value))
            and (math.isfinite(np.vdot(inputs, inputs)) or np.isfinite(inputs).all())
            and self._observations.finite(feeds)
        ):
            check_step(logp, value, inputs, *self._observations.encoded(feeds), t)
        action = arrays[self._actions[0]] if self._single else self._joined(arrays, raw)
        if self._single and action.dtype != self._leaves[0].info.dtype:
            action = action.astype(self._leaves[0].info.dtype)
        after = (
            ActorState({name: arrays[i] for i, name in self._follows}) if self._follows else None
        )
        return Step(action, raw, logp, value, inputs, after)

    def _complete(
        self,
        feeds: dict[str, Array],
        rows: int,
        state: Any,
        prev_reward: Any,
        mask: Any,
        explore: bool,
        noise: Any,
    ) -> Array | None:
        """Add all inputs other than observations, and return each episode's number of steps, or
        None.
        """
        if self._masked:
            feeds["mask"] = np.ones((rows, self.masks.size), np.bool_) if mask is None else mask
        elif mask is not None:
            raise ModelContractError(
                "mask: this policy's action distribution does not support masks."
            )
        if self._noise:
            feeds["noise"] = (
                np.full((rows, self._noise), 0.5, np.float32) if noise is None else noise
            )
        feeds["deterministic"] = self._flags[not explore]
        if self._states:
            feeds.update(self._carried(state, rows))
            if self._rewarded:
                reward = check_reward(prev_reward, feeds["steps"], self.interface.model)
                feeds["prev_reward"] = np.zeros(rows, np.float32) if reward is None else reward
        return feeds.get("steps") if self._states else None

    def _run(self, feeds: Mapping[str, Array]) -> Sequence[Array]:
        """Return the file's outputs.

        Raises:
            SavedPolicyError: The file cannot run with these inputs.
        """
        try:
            return self._runner.run(feeds, self._outputs)
        except Exception as error:  # runtimes' errors have no common base class
            raise SavedPolicyError(f"{self._where}: cannot run: {reason(error)}") from error

    def _none(self, feeds: Mapping[str, Array]) -> list[Array]:
        """Return the outputs for zero rows, which some runtimes do not support for
        all operations.
        """
        one = {
            name: np.ones((1, *x.shape[1:]), x.dtype) if x.ndim else x for name, x in feeds.items()
        }
        return [array[:0] for array in self._run(one)]

    def _joined(self, arrays: Any, raw: Array) -> Any:
        if not self._actions:
            return self.action_codec.adapt(raw)
        parts = iter([arrays[i] for i in self._actions])

        def join(codec: ActionCodec) -> Any:
            if codec.children:
                return codec.info.join([join(child) for child in codec.children])
            return next(parts).astype(codec.info.dtype or "float32", copy=False)

        return join(self.action_codec)

    # --- state ------------------------------------------------------------------------------------

    def _carried(self, state: Any, rows: int) -> Mapping[str, Array]:
        if state is None:
            return {port.name: _initial(port, rows) for port in self._states}
        if not isinstance(state, ActorState) or len(state) != rows:
            given = f"{len(state)} rows" if isinstance(state, ActorState) else type(state).__name__
            raise ModelContractError(
                f"state: expected the state of {rows} rows, as act() returned it, found {given}."
            )
        return state.parts

    def initial_state(self, batch_size: int) -> ActorState | None:
        """Return the initial state of `batch_size` episodes, or None if there is no state."""
        return ActorState(dict(self._carried(None, batch_size))) if self._states else None

    def restart(self, state: ActorState | None, rows: Any) -> ActorState | None:
        """Return a state in which some rows, given as indices `[k]` or booleans `[B]`, start new
        episodes.
        """
        if state is None:
            return None
        parts = {name: part.copy() for name, part in state.parts.items()}
        for name, first in self._carried(None, 1).items():
            parts[name][rows] = first[0]
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
        ports, names = self.interface, ", ".join(port.name for port in self.interface.inputs)
        spaces = f"{self.observation_space} -> {self.action_space}"
        return f"Actor({spaces}, {ports.model} of {ports.framework}; inputs: {names})"


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
    initial = np.array(port.initial or 0, port.dtype)
    return np.broadcast_to(
        initial.reshape(port.shape if port.initial else ()), (rows, *port.shape)
    ).copy()


def _space(written: Any, given: Any, name: str, where: str) -> Any:
    if given is not None:
        return given
    if written is None:
        raise SavedPolicyError(
            f"{where}: the file cannot contain its {name}, whose kind comes from a plugin; pass"
            f" {name}= to Actor."
        )
    try:
        return space_from_json(written)
    except Exception as error:  # Gymnasium's spaces may raise any error
        raise SavedPolicyError(
            f"{where}: its {name} cannot be read: {error}; pass {name}= to Actor."
        ) from error
