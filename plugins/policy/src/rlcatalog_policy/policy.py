"""`Policy`: the parts that one lookup chose, built into one object."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rlcatalog.actions import NOT_GIVEN, action_codec, unbind
from rlcatalog.choice import Explanation, Resolution
from rlcatalog.errors import NotServedError
from rlcatalog.frameworks import (
    Array,
    Evaluation,
    Step,
    Tensor,
    TensorTree,
    frameworks,
    require_framework,
)
from rlcatalog.internals import set_frozen_parts
from rlcatalog.models import (
    ModelV2,
    SeparateCritic,
    SeparateValue,
    copying_instances,
)
from rlcatalog_policy.acting import check_critic_can_be_left_out, take_step
from rlcatalog_policy.copies import copy_policy, new_model, pickle_policy, unpickle_policy
from rlcatalog_policy.encoder import (
    Batch,
    Encoder,
    Masks,
    check_encoded,
    host_values,
    is_on_other_device,
)
from rlcatalog_policy.extensions import load_extension
from rlcatalog_policy.frozen_wrapper import Frozen, freeze_policy
from rlcatalog_policy.history import Rewards, Rows, Views
from rlcatalog_policy.model_parts import (
    FREEZE_PARTS,
    change_frozen_parts,
    names_without,
    parameter_groups,
)
from rlcatalog_policy.non_finite import check_values
from rlcatalog_policy.output_checker import OutputChecker, check_dists, model_chain
from rlcatalog_policy.raw_actions import Actions, raw_actions
from rlcatalog_policy.saving import save
from rlcatalog_policy.state import (
    EpisodeStates,
    Memory,
    NoStates,
    State,
    StateBeforeStep,
    check_state,
)
from rlcatalog_policy.stepper import Stepper
from rlcatalog_policy.summary import Summary, policy_sheet, summarize_layers, summarize_weights
from rlcatalog_policy.tensor_acting import TensorActing, tensor_device
from rlcatalog_policy.tensor_encoder import are_tensors
from rlcatalog_policy.training_batch import check_batch

if TYPE_CHECKING:
    import gymnasium
    from gymnasium.vector import AutoresetMode, VectorEnv

    from rlcatalog.actions import Mask
    from rlcatalog.catalog import Catalog
    from rlcatalog_export import Interface


class Policy:
    """Policy that acts, scores stored actions for training, and can be saved.

    `rlcatalog.build` creates it from the parts that fit: a preprocessor, an optional filter, a
    model, an action distribution, and an action codec, which converts actions for the environment.

    Attributes:
        observation_space: The environment's observation space.
        action_space: The environment's action space.
        encoder: Encodes observations and reads action masks, without the model.
        preprocessor: Encodes observations.
        filter: The filter after the preprocessor, or None.
        encoded_space: The space of observations as the model sees them: encoded and filtered.
        model: The model, with the weights.
        dist_class: Creates an action distribution from outputs of the model:
            `dist_class(inputs, model)`.
        stored_dist: Creates an action distribution from a stored `step.dist_inputs`, as a tensor of
            the framework: `stored_dist(dist_inputs, model)`.
        action_codec: Converts raw actions to actions of the environment, and back.
        config: The complete model config, with all defaults.
        framework: `"torch"` or `"tf"`.
        backend: The framework's `Backend`, for code that freezes or exports the policy.

    Example:
        >>> policy = rlcatalog.build(env="Pendulum-v1")
        >>> policy.encoded_space.shape, policy.dist_class.__name__, policy.model_name
        ((3,), 'DiagGaussian', 'FullyConnectedNetwork')
    """

    def __init__(
        self,
        catalog: Catalog,
        resolution: Resolution,
        observation_space: gymnasium.Space[Any],
        action_space: gymnasium.Space[Any],
        model: ModelV2 | None = None,
    ) -> None:
        require_framework(resolution.framework)
        self.catalog = catalog
        self.resolution = resolution
        self.framework = resolution.framework
        self.observation_space = observation_space
        self.action_space = action_space
        self.config = resolution.config.fresh()

        # Before the model: encoded and filtered observations, action masks.
        # The distributions' classes say how to read their raw actions, so the framework is imported
        # here.
        raw_kinds = resolution.dists.raw_kinds(self.framework)
        self.action_codec = action_codec(resolution.action, self.config["action_bounds"], raw_kinds)
        self.encoder = Encoder(catalog, resolution, self.action_codec, filters=True)
        self.preprocessor = self.encoder.preprocessor
        self.masks = self.encoder.masks
        self.filter = self.encoder.filter
        self.encoded_space = self.encoder.space

        # After the model: action distributions.
        self.dist_class = resolution.dists.load(self.framework, self.config.read_only())
        check_dists(resolution, self.config.read_only())
        self.stored_dist = _stored_form(self.dist_class)
        #: Checks the return values of the model and the distribution, also for engines.
        self.output_checker = OutputChecker(self)

        #: The device of the model and its computations: the argument of `to`, or the device of an
        #: instance.
        self.device = "cpu"
        # The model and its memory of an episode.
        if model is None:
            self.model = new_model(self)
        else:
            self.model = model
            if self.config[FREEZE_PARTS]:
                set_frozen_parts(model, self.config[FREEZE_PARTS])
        with self.output_checker.name_part_in_errors():
            self.memory = Memory(self.model)
            #: The views of past steps that the model requests.
            self.views = Views(
                self.model.view_requirements,
                self.preprocessor.shape,
                self.encoded_space.dtype,
                self.action_codec,
                flat=not self.config["_disable_action_flattening"],
                model_name=self.model_name,
            )
            self._episode_states: EpisodeStates | NoStates = NoStates()
            if self.memory or self.views:
                self._episode_states = EpisodeStates(self.memory, self.views)
            # The framework's target "backend", such as `rlcatalog_torch.backend.TorchBackend`.
            create_backend = frameworks()[self.framework].load("backend")
            #: The framework's `Backend`, with additional methods.
            self.backend: Any = create_backend(self)
        #: Acts on tensors; created at first use, for the policy's device.
        self._tensor_acting: TensorActing | None = None
        #: A model stores its last pass: a thread must read the results before another thread runs
        #: the model.
        #: Reentrant, because a trace may run the model within a pass of the same thread.
        self._model_lock = threading.RLock()

    @property
    def acting_model(self) -> ModelV2:
        """The model that computes the outputs: the policy's, if a critic estimates the values."""
        if isinstance(self.model, SeparateCritic):
            return self.model.policy
        return self.model

    @property
    def model_name(self) -> str:
        """The acting model's class name, for messages; if the value has a separate chain, the
        policy chain's class name.
        """
        model = self.acting_model
        if isinstance(model, SeparateValue):
            model = model.trunk
        return type(model).__name__

    @property
    def has_value(self) -> bool:
        """Whether the model has a value branch."""
        if self.resolution.lacks_critic:
            return False
        model = self.model
        if isinstance(model, SeparateCritic) and model.value is None:
            model = model.critic  # a complete model, which estimates the values itself
        return type(model).value_function is not ModelV2.value_function

    def overrides(self, method: str) -> bool:
        """Return whether the model, or a model inside it, overrides a method of `ModelV2`, such as
        `"custom_loss"`.
        """
        for model in model_chain(self.model):
            # Its methods only pass a call on to both of its sides, which are in the chain as well.
            if isinstance(model, SeparateCritic):
                continue
            # None for a function that was assigned to the model itself, which is an override, too.
            function = getattr(getattr(model, method), "__func__", None)
            if function is not getattr(ModelV2, method):
                return True
        return False

    # --- acting -----------------------------------------------------------------------------------

    def act(
        self,
        obs: Batch,
        state: State | None = None,
        *,
        prev_reward: Rewards | None = None,
        mask: Masks = NOT_GIVEN,
        explore: bool = True,
    ) -> Step:
        """Choose actions for a batch of observations.

        With PyTorch, the observations may be tensors on the policy's device: a tensor, or a dict or
        tuple of tensors. The step then contains tensors, and no number moves between the device and
        the host. Numbers that are wrong, such as NaN, are reported by `check`.

        Args:
            obs: A vector environment's observations (a batch), or a list of single observations.
                Entries that only a critic sees (`obs_groups`) may be missing; `step.value` is then
                None.
            state: The `state` of the step that the last `act` returned, if the policy has a memory.
                None if an episode begins in every row.
            prev_reward: Rewards `[B]` of the last step, for models that request them.
            mask: Batched action mask in Gymnasium's format, such as `[B, n]` for Discrete (see
                `ActionMasks.matrix`). By default, the mask in the observations is used, if the
                space has one. None allows every action.
            explore: Whether to sample. If False, take the deterministic action: the most likely
                choice, or for numbers usually the mean (`ActionDistribution.deterministic_sample`).

        Returns:
            Step with the actions for the environment, and with what a training loop stores. As
            tensors, actions of uint16, uint32 and uint64 are int64.

        Raises:
            ObservationError: An observation is not in the space, or a tensor is on another device.
            NotServedError: The observations are tensors, and the framework or a part of the policy
                has no form for them, such as the space Text.
            ActionMaskError: The mask has the wrong shape, or a row allows no action.
            NonFiniteError: An input, a value estimate or a distribution's parameter is NaN or
                infinite.

        Example:
            >>> policy = rlcatalog.build(env="CartPole-v1")
            >>> step = policy.act([[0.0, 0.0, 0.0, 0.0], [0.1, 0.0, 0.0, 0.0]])
            >>> step.action.shape, step.logp.shape, step.value.shape
            ((2,), (2,), (2,))
        """
        if are_tensors(obs):
            return self._on_tensors().act(obs, state, prev_reward, mask, explore)
        batch = self.encoder.encode_batch(obs, mask)
        return take_step(
            self,
            self.backend,
            batch.obs,
            state,
            prev_reward,
            batch.mask,
            explore,
            batch.policy_only,
        )

    def act_encoded(
        self,
        encoded: Array | Tensor,
        state: State | None = None,
        *,
        prev_reward: Rewards | None = None,
        mask: Masks | Tensor = NOT_GIVEN,
        explore: bool = True,
        policy_only: bool = False,
        on_device: bool = False,
    ) -> Step:
        """Choose actions as `act` does, for observations that `preprocess` has already encoded.

        Training loops encode observations only once, because they also store them for `evaluate`.

        An encoded observation does not contain the action mask. If the observation space has a
        mask, pass it, `mask=policy.action_mask(obs)`, or pass `mask=None` to allow every action.

        You can also pass tensors; a mask is then a boolean tensor `[B, m]`. In this case, the
        step's `raw_action`, `logp`, `value` and `dist_inputs` are tensors on the policy's device,
        without gradients, while `action` and `state` still contain NumPy arrays. On devices other
        than the CPU, NaN is not detected, because the check would have to wait for the device.

        With `on_device=True`, which PyTorch policies support, `action` and `state` are tensors too,
        as `act` returns them for tensors, and `check` detects NaN.

        If the policy has a critic of its own (`critic` in the config), `policy_only=True` leaves it
        out. The values of entries that only the critic sees then do not matter, and `step.value` is
        None.

        Raises:
            ActionMaskError: The observation space has a mask, but none is given; or the mask has
                the wrong shape, or a row allows no action.
            NotServedError: `policy_only` is set, but the policy has no critic of its own.
        """
        if policy_only:
            check_critic_can_be_left_out(self)
        if on_device:
            check_encoded(encoded.shape, self.preprocessor.shape, "encoded")
            if mask is NOT_GIVEN:
                mask = self.encoder.resolve_mask(encoded, mask)
            return self._on_tensors().act_encoded(
                encoded, state, prev_reward, mask, explore, policy_only
            )
        mask_rows = self.encoder.resolve_mask(encoded, mask)
        return take_step(
            self, self.backend, encoded, state, prev_reward, mask_rows, explore, policy_only
        )

    def adapt(self, raw: TensorTree, *, on_device: bool = False) -> Any:
        """Convert raw actions, such as samples of the distribution, to actions of the environment.

        Args:
            raw: What `sample`, `rsample` or `deterministic_sample` of the policy's distribution
                returned, or `step.raw_action`, as arrays or tensors on any device: `[B]` for a
                single Discrete, otherwise `[B, width]`. For a Tuple or Dict, either the structure
                of its children's raw actions, or all columns `[B, width]`. A single raw action
                without the batch axis becomes a batch of one row.
            on_device: Whether to return tensors on the policy's device, for raw actions `[B]` or
                `[B, width]` that are tensors there; PyTorch policies only.

        Returns:
            Arrays in the form that a vector environment takes; every action is in the space. With
            `on_device`, tensors in this form.

        Raises:
            ActionError: These are not raw actions of the space; the message names the path.

        Example:
            >>> policy = rlcatalog.build(env="Pendulum-v1")  # its torque is within [-2, 2]
            >>> policy.adapt(torch.tensor([[0.5], [3.0]]))
            array([[1.],
                   [2.]], dtype=float32)
        """
        if on_device:
            return self._on_tensors().adapt(raw)
        flat_raw = self.action_codec.flatten(raw)
        if self.output_checker.checks_actions:
            self.output_checker.check_actions(flat_raw, mask=None)
        return self.action_codec.adapt(flat_raw)

    def backend_inputs(
        self,
        encoded: Array | Tensor,
        state: State | None = None,
        prev_reward: Rewards | None = None,
        mask: Mask = None,
    ) -> dict[str, Any]:
        """Return `act_encoded`'s arguments for `Backend.act`, by name: `obs`, `views`, `memory`,
        `mask`.
        """
        mask_rows = None
        if mask is not None:
            mask_rows = self.masks.matrix(mask, encoded.shape[0])
        before = self._resume(encoded, state, prev_reward)
        return {"obs": encoded, "views": before.views, "memory": before.memory, "mask": mask_rows}

    def _resume(
        self, encoded: Array | Tensor, state: State | None, prev_reward: Rewards | None
    ) -> StateBeforeStep:
        # A policy that keeps no state ignores a wrong one.
        if state is not None:
            check_state(state, encoded.shape[0])
        view_input = self._episode_states.view_input(encoded)
        return self._episode_states.resume(view_input, state, prev_reward)

    def values(
        self,
        encoded: Array | Tensor,
        state: State | None = None,
        *,
        prev_reward: Rewards | None = None,
    ) -> Any:
        """Return value estimates `[B]` without acting, for example at the end of an episode.

        The arguments are the same as for `act_encoded`, but no action is sampled, so no mask is
        needed and the state stays as it is. The estimates are float32 or float64, as the model
        computes them, and a tensor if the observations are a tensor.

        Raises:
            NotServedError: The model has no value branch.
            NonFiniteError: A value is NaN or infinite.
        """
        if not self.has_value:
            raise NotServedError(f"values: {self.model_name} has no value_function().")
        check_encoded(encoded.shape, self.preprocessor.shape, "encoded")
        is_tensor = not isinstance(encoded, np.ndarray) and tensor_device(self) is not None
        if is_tensor:
            before = self._on_tensors().resume(encoded, state, prev_reward)
        else:
            before = self._resume(encoded, state, prev_reward)
        with self._model_lock, self.output_checker.name_part_in_errors():
            values = self.backend.values(encoded, before.views, before.memory)
        array = host_values(values)
        if array is not None:
            check_values(array)
        elif is_tensor:
            self._on_tensors().add_check_of_values(values)
        return values

    def preprocess(self, obs: Batch, *, update: bool | Array | Tensor = False) -> Array:
        """Encode a batch of observations as the model reads them, and filter them.

        Args:
            obs: A batch of observations, or a list of single observations. Tensors on the policy's
                device are encoded there, and the filter learns there.
            update: Whether the filter learns from the observations first, as in a training loop.
                Booleans `[B]` select the rows that it learns from.

        Returns:
            Array `[B, *shape]`, where `shape` is the shape of `encoded_space`; a tensor for
            tensors.

        Raises:
            ObservationError: An observation is not in the space.
            NonFiniteError: An observation contains NaN or infinity; the filter then learns nothing
                from the batch. For tensors, `check` reports it later, and the filter leaves out
                these rows.

        Example:
            >>> policy = rlcatalog.build(spaces.Discrete(3), spaces.Discrete(2))
            >>> policy.preprocess([0, 2])
            array([[1., 0., 0.],
                   [0., 0., 1.]], dtype=float32)
        """
        if are_tensors(obs):
            with self._model_lock:
                filtered: Array = self._on_tensors().preprocess(obs, update)
                return filtered
        encoded = self.encoder.transform_batch(obs)
        if self.filter is None:
            return encoded
        with self._model_lock:  # filtering reads statistics and writes new ones
            return self.encoder.filter_batch(encoded, update)  # type: ignore[arg-type]  # an array

    def action_mask(self, obs: Batch, *, idle: Array | None = None) -> Array | None:
        """Return the action masks in a batch of observations, to pass them to `act_encoded`.

        They are booleans `[B, m]`, or None if the observation space has no mask.

        Args:
            obs: A batch of observations, or a list of single observations. Masks of tensors are a
                tensor.
            idle: Rows in which no action will be taken, booleans `[B]`; in these rows, everything
                is allowed.
        """
        if are_tensors(obs):
            if idle is not None:
                raise NotServedError("action_mask: idle rows are not supported for tensors.")
            columns: Array | None = self._on_tensors().action_mask(obs)
            return columns
        return self.masks.of(obs, idle)

    def as_module(self) -> Any:
        """Return the model and the action distribution as one module, for your own training loop.

        In PyTorch it is an `nn.Module`, in TensorFlow a `tf.Module` with `trainable_variables`. It
        shares its weights with the policy, so training the module trains the policy.

        `dist, value = module(obs, mask)` takes encoded observations `[B, ...]` and boolean masks
        `[B, m]` as tensors, on the model's device; without masks, `module(obs)` is enough. `dist`
        is the distribution of raw actions, and `value` contains the value estimates `[B]`, or is
        None. Gradients from both reach the weights.

        For a model with a memory, `dist, value, state = module(obs, mask, state=state)` runs one
        step of B episodes, and `module(obs, mask, state=state, seq_lens=lengths)` runs S sequences
        of steps, whose rows follow one another. States are tuples of tensors `[S, ...]`; None, or
        `module.initial_state(S)`, stands for the start of episodes.

        Raises:
            NotServedError: The model reads past steps, other than through its memory.

        Example:
            >>> module = rlcatalog.build(env="CartPole-v1").as_module()
            >>> dist, value = module(torch.zeros(8, 4))
            >>> dist.logp(dist.sample()).shape, value.shape
            (torch.Size([8]), torch.Size([8]))
            >>> module = rlcatalog.build(env="CartPole-v1", config={"use_lstm": True}).as_module()
            >>> dist, value, state = module(torch.zeros(8, 4))
            >>> dist, value, state = module(torch.zeros(8, 4), state=state)
        """
        reads_past_steps = bool(self.views) or self.memory.looks_back
        if reads_past_steps:
            raise NotServedError(
                f"as_module: {self.model_name} reads past steps (view_requirements), but a module"
                " gets observations and a state. Act with Policy.act_encoded(encoded, state), and"
                " train with Policy.evaluate(batch)."
            )
        # The framework's target "policy_module", such as
        # `rlcatalog_torch.policy_module.PolicyModule`.
        create_module = load_extension(self.framework, "policy_module")
        return create_module(self)

    def evaluate(
        self, batch: Mapping[str, Any], *, check: bool = True, entropy: bool = True
    ) -> Evaluation:
        """Score stored actions under the current weights, for training.

        The batch is a dictionary of arrays or tensors:

        - `"obs"`: encoded observations `[B, ...]`, from `preprocess`.
        - `"raw_action"`: raw actions `[B, width]`, from `step.raw_action`, or from the method
          `raw_action` for recorded actions of an environment.
        - `"mask"`, if actions are masked: from `action_mask`. None allows every action.
        - `"dist_inputs"`, if you need the divergence from the distribution that sampled the
          actions: from `step.dist_inputs`.
        - `"seq_lens"` and `"state"`, for a model with a memory: the rows are then sequences without
          padding, one after the other. `"seq_lens"` `[S]` contains their lengths, and `"state"` the
          memory `[S, ...]` at the start of each. Without `"state"`, new episodes begin.
        - `"restarts"`, for rollouts on a device, instead of the lengths of sequences: booleans
          `[B]`, True in each row that begins a new episode. The rows are then sequences of equal
          length T, one after the other, `"seq_lens"` is the integer T, and `"state"` contains the
          memory before the first row of each. PyTorch only; the model runs step by step.
        - `"views"`, for a model that reads past steps: `step.state.views`, row by row.

        Args:
            batch: The batch.
            check: Whether to check the batch first. If a learner reads the same rows several times,
                one check is enough.
            entropy: Whether to compute the entropy. Skip it to save time if the loss does not use
                it.

        Returns:
            Evaluation with log densities, entropies and values, from which gradients reach the
            model's weights.

        Raises:
            MissingColumnError: `"obs"`, `"raw_action"` or a mask is missing.
            ObservationError: Observations do not have the encoded shape.
            ActionError: Actions have the wrong shape, or are not in the space.
            ActionMaskError: Masks have the wrong shape, contain numbers other than 0 and 1, or
                allow no action in a row.
            NonFiniteError: An observation contains NaN or infinity.
            ModelContractError: A view is missing, or the lengths do not add up to the rows.
            NoClosedFormError: `"dist_inputs"` are given, and the distribution has no closed form
                for its divergence.

        Example:
            >>> policy = rlcatalog.build(env="CartPole-v1")
            >>> obs = np.zeros((2, 4), np.float32)
            >>> batch = {"obs": policy.preprocess(obs), "raw_action": policy.act(obs).raw_action}
            >>> evaluation = policy.evaluate(batch)
            >>> (-evaluation.logp.mean()).backward()  # gradients reach the model's weights
        """
        if "restarts" in batch and tensor_device(self) is None:
            raise NotServedError(
                f"batch['restarts']: framework {self.framework!r} takes sequences without restarts:"
                " pass their lengths as batch['seq_lens']."
            )
        if check:
            check_batch(self, batch)
        with self._model_lock, self.output_checker.name_part_in_errors():
            evaluation: Evaluation = self.backend.evaluate(batch, entropy)
            return evaluation

    def raw_action(self, actions: Actions) -> Array:
        """Convert recorded actions of the environment to raw actions `[B, width]`.

        `evaluate` scores raw actions, so you need this method for data that another policy or a
        person has recorded.

        Args:
            actions: A vector environment's batch, a list of single actions, or one action, which
                gives a batch of one row. Arrays or tensors.

        Raises:
            ActionError: An action is not in the space; the message names its path.
            NotServedError: A plugin's codec has no inverse.

        Example:
            >>> policy = rlcatalog.build(spaces.Box(-1, 1, (2,)), spaces.Discrete(3, start=5))
            >>> policy.raw_action([5, 7])
            array([[0],
                   [2]])
        """
        return raw_actions(self, actions)

    def initial_state(self, batch_size: int, *, on_device: bool = False) -> Any:
        """Return the state at the start of `batch_size` episodes.

        It is None if the policy neither has a memory nor reads past steps.

        Args:
            batch_size: Number of episodes.
            on_device: Whether to return tensors on the policy's device; PyTorch policies only.
                `act` takes both forms.
        """
        if on_device:
            return self._on_tensors().start(batch_size)
        return self._episode_states.start(batch_size)

    def restart(self, state: State | None, rows: Rows | Tensor) -> State | None:
        """Return a state in which new episodes begin in some rows, and the others continue.

        Args:
            state: The state of all rows.
            rows: The rows in which an episode begins, as indices `[k]` or booleans `[B]`; for a
                state of tensors, booleans.
        """
        if state is None:
            return None
        is_array_state = isinstance(state.history.t, np.ndarray)
        if is_array_state and not is_on_other_device(rows):
            return self._episode_states.restart(state, rows)  # type: ignore[arg-type]
        restarted: State = self._on_tensors().restart(state, rows)
        return restarted

    # --- tensors ----------------------------------------------------------------------------------

    def check(self) -> None:
        """Check the numbers of all steps on tensors since the last call.

        A step on tensors does not read its numbers, because that would wait for the device. Call
        this method once in a while, for example after each rollout: it waits once. A step on arrays
        is checked at once and needs no call.

        Raises:
            NonFiniteError: An observation, a past reward, a value estimate or a distribution's
                parameter was NaN or infinite. This and the following messages name the step and the
                row; on a GPU, the row only if the step's tensors are among the last 1,024 steps or
                64 MiB.
            ObservationError: An integer was outside the range of its Discrete or MultiDiscrete.
            ActionMaskError: A mask contained other numbers than 0 and 1, or a row of it allowed no
                action.
            ModelContractError: Past rewards were missing, or a third-party distribution drew an
                action outside the action space.

        Example:
            >>> policy = rlcatalog.build(env="CartPole-v1")
            >>> for _ in range(3):
            ...     step = policy.act(torch.zeros(8, 4))
            >>> policy.check()
        """
        if self._tensor_acting is not None:
            with self._model_lock:
                self._tensor_acting.checks.read()

    def _on_tensors(self) -> TensorActing:
        """Return what acts on tensors on the policy's device.

        Raises:
            NotServedError: The policy's framework does not act on tensors.
        """
        if self._tensor_acting is None:
            self._tensor_acting = TensorActing(self)
        return self._tensor_acting

    def stepper(
        self, n: int | VectorEnv[Any, Any, Any], autoreset: str | AutoresetMode | None = None
    ) -> Stepper:
        """Return an object that acts in several environments and keeps their states for you.

        Args:
            n: The vector environment, or the number of environments.
            autoreset: The autoreset mode, which says when the next episode begins. A vector
                environment has one, which is read if you leave it out; see `Stepper`.

        Example:
            >>> envs = gym.make_vec("CartPole-v1", 2)
            >>> stepper = rlcatalog.build(env=envs, config={"use_lstm": True}).stepper(envs)
            >>> step = stepper.step(envs.reset()[0])
            >>> obs, reward, terminated, truncated, _ = envs.step(step.action)
            >>> step = stepper.step(obs, done=terminated | truncated)
        """
        return Stepper(self, n, autoreset)

    # --- the object -------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return policy_sheet(self).text()

    def _repr_html_(self) -> str:
        return policy_sheet(self).html()

    def explain(self) -> Explanation:
        """Return the reasons why these parts were chosen.

        Example:
            >>> explanation = rlcatalog.build(env="CartPole-v1").explain()
            >>> explanation.as_dict()["model"]["chosen"]  # print(explanation) shows everything
            'fcnet'
        """
        return Explanation(self.resolution)

    def summary(self) -> Summary:
        """Return the model's layers, with their shapes and numbers of weights.

        Example:
            >>> policy = rlcatalog.build(env="CartPole-v1", config={"fcnet_hiddens": [8]})
            >>> summary = policy.summary()  # print(summary) shows a table
            >>> [(layer.name, layer.weights) for layer in summary.layers]
            [('fcnet: hidden 1 (tanh)', 40), ('fcnet: value', 9), ('fcnet: logits (linear)', 18)]
        """
        summary = summarize_layers(self.resolution)
        if summary is None:
            return summarize_weights(self)
        return summary

    def wrap_env(self, env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
        """Wrap an environment in the way that this policy expects.

        This applies the wrappers of installed plugins that match, with the policy's config; see
        `Catalog.wrap_env`. Action masks are moved into the observations if the policy's observation
        space has a mask.
        """
        non_default_config = self.resolution.config.given
        space_has_mask = self.masks.key is not None
        return self.catalog.wrap_env(env, non_default_config, move_masks=space_has_mask)

    @property
    def frozen_parts(self) -> tuple[str, ...]:
        """The names of the parts that do not learn: the config key `freeze_parts`."""
        return tuple(self.config[FREEZE_PARTS])

    def freeze_parts(self, *names: str) -> None:
        """Freeze parts of the model, so that they do not learn.

        Their weights and batch statistics no longer change in training, and their dropout is off. A
        saved policy contains the names of the parts, so they stay frozen when it is loaded.

        rlcatalog's PPO, A2C and PG can go on training at once. Your own optimiser skips the frozen
        weights, because they have no gradients; create a new one to leave them out.

        Args:
            *names: Names of parts, such as `"trunk"`; see `load_part`.

        Raises:
            ConfigError: The model has no such part; nothing is changed.

        Example:
            >>> policy = rlcatalog.build(env="CartPole-v1")
            >>> policy.freeze_parts("trunk")
            >>> policy.frozen_parts
            ('trunk',)
        """
        with self._model_lock:
            change_frozen_parts(self, list(dict.fromkeys((*self.frozen_parts, *names))))

    def unfreeze_parts(self, *names: str) -> None:
        """Let frozen parts learn again; without names, all of them.

        Args:
            *names: Names in `frozen_parts`.

        Raises:
            ConfigError: One of them is not frozen.
        """
        with self._model_lock:
            change_frozen_parts(self, names_without(self.frozen_parts, names or self.frozen_parts))

    def parameter_groups(self, lr_parts: Mapping[str, float] | None = None) -> list[dict[str, Any]]:
        """Return the trainable weights by part, for an optimiser of your own.

        Args:
            lr_parts: Learning rates by part, such as `{"trunk": 1e-5}`; the optimiser's own rate
                is for all other parts.

        Returns:
            List of a dict for each part that learns, with `"name"`, `"params"` (PyTorch's
            parameters or TensorFlow's variables) and, if it is given, `"lr"`. Optimisers of PyTorch
            take this list as it is.

        Raises:
            ConfigError: The model has no such part, or two of them contain the same weight.

        Example:
            >>> groups = rlcatalog.build(env="CartPole-v1").parameter_groups({"trunk": 1e-5})
            >>> [group["name"] for group in groups]
            ['trunk', 'head', 'value']
            >>> optimizer = torch.optim.Adam(groups, lr=3e-4)
        """
        return parameter_groups(self, lr_parts or {})

    def to(self, device: str) -> Policy:
        """Move the policy to a device (`"cpu"`, `"cuda"`, …; `"auto"`: a GPU if there is one) and
        return it.

        Raises:
            ConfigError: The framework does not find this device; the policy stays where it is.
        """
        with self._model_lock:
            self.device = self.backend.device_of(device)
            self.backend.to(self.device)
            self._tensor_acting = None  # its constants lie on the former device
        return self

    def random_state(self) -> dict[str, Array]:
        """Return the states of the random generators by name, so that they can be restored later.

        In PyTorch, policies sample from PyTorch's global generators. In TensorFlow, and if it is
        frozen, a policy has its own generator.
        """
        return dict(self.backend.random_state())

    def set_random_state(self, state: Mapping[str, Array]) -> None:
        """Restore the states that `random_state` returned, so that the same actions are sampled."""
        self.backend.set_random_state(state)

    def __deepcopy__(self, memo: dict[int, Any]) -> Policy:
        """Return a policy with the same parts and copied weights and statistics, on the same
        device.
        """
        with self._model_lock:
            return copy_policy(self, memo)

    def __reduce__(self) -> Any:
        """Pickle what `save` would write.

        The policy is restored on the CPU, and its parts are looked up by name.

        Raises:
            SavedPolicyError: A class of the running program is not registered, or cannot be
                imported.
        """
        with self._model_lock:
            return unpickle_policy, (type(self), pickle_policy(self))

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Save the policy to a folder, from which `rlcatalog.load` restores it.

        The folder contains the names and versions of the parts, the keys of the config that differ
        from their defaults, the weights, and the statistics of the filter. It contains no code and
        no pickles. A policy that was saved there before stays intact until this one is complete.

        A space of another package's class is written as a standard space that is encoded alike. If
        there is none, a SavedPolicyWarning says what to pass to `load`.

        Raises:
            SavedPolicyError: The config contains a class, a callable or another value that cannot
                be saved, or the files cannot be written.

        Example:
            >>> policy = rlcatalog.build(env="CartPole-v1")
            >>> policy.save("cartpole")
            >>> copy = rlcatalog.load("cartpole")
            >>> one, other = (p.act([[0.0] * 4], explore=False) for p in (policy, copy))
            >>> np.array_equal(one.dist_inputs, other.dist_inputs)
            True
        """
        save(self, directory)

    def export(self, path: str | os.PathLike[str], format: str | None = None) -> Interface:
        """Write a file that acts like this policy; `rlcatalog.Actor(path)` runs it.

        Before the file replaces an older one, it is compared with the policy on random
        observations. With `obs_groups`, the file takes only the entries that the policy
        sees, and computes no values.

        Args:
            path: The file, or the folder for a format that writes folders.
            format: Name of the format, such as `"onnx"`. If None, the path's suffix selects it.

        Returns:
            The inputs and outputs of the file.

        Raises:
            ConfigError: No format is named, and no format has the suffix.
            MissingPluginError: The package that provides the format is not usable here.
            NotServedError: The policy does something that cannot be exported; the message names the
                line.
            SavedPolicyError, FolderTakenError: The file or the folder cannot be written.

        Example:
            >>> interface = rlcatalog.build(env="CartPole-v1").export("cartpole.onnx")
            >>> [port.name for port in interface.outputs]
            ['action', 'raw_action', 'logp', 'dist_inputs', 'value']
        """
        with self._model_lock:
            # The framework's target "export", such as `rlcatalog_export.exporter.export`.
            export: Callable[[Policy, Any, str | None], Interface]
            export = load_extension(self.framework, "export")
            return export(self, path, format)

    def freeze(self, rows: int = 1, *, seed: int | None = None) -> Frozen:
        """Return a policy that acts faster, because its step is recorded as one graph.

        Use it to collect data, or to serve the policy. It works with a copy of the weights, so call
        `frozen.update()` when this policy has been trained. If this policy cannot be frozen, the
        result acts like this policy, at the same speed, and `frozen.reason` says why.

        Args:
            rows: Number of environments to act in. Other numbers also work, after another graph has
                been recorded for each of them.
            seed: Seed for its own random generator. None means a new seed each time.

        Example:
            >>> frozen = rlcatalog.build(env="CartPole-v1").freeze()
            >>> frozen.act([[0.0, 0.0, 0.0, 0.0]]).action.shape, frozen.reason
            ((1,), None)
        """
        return freeze_policy(self, rows, seed)

    def make_model(self) -> ModelV2:
        """Build another model like this policy's, with newly initialised weights.

        If the policy's model was passed as an instance, the result is a deep copy of this instance.
        """
        with copying_instances():
            return new_model(self)


def _stored_form(dist_class: Any) -> Any:
    """Return the class that rebuilds distributions from stored inputs; often it is the same."""
    cls, options = unbind(dist_class)
    # A user's distribution with RLlib's methods alone has no `stored`.
    if hasattr(cls, "stored"):
        stored_class = cls.stored(options)
        if stored_class is not None:
            return stored_class
    return dist_class
