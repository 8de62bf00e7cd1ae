"""`Policy`: the parts that one lookup chose, built into one object."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

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
from rlcatalog_policy.encoder import Batch, Encoder, Masks, check_encoded, host_values
from rlcatalog_policy.extensions import load_extension
from rlcatalog_policy.frozen_wrapper import Frozen, freeze_policy
from rlcatalog_policy.history import Rewards, Rows, Views
from rlcatalog_policy.model_parts import (
    FREEZE_PARTS,
    change_frozen_parts,
    names_without,
    parameter_groups,
)
from rlcatalog_policy.non_finite import check_rows
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
from rlcatalog_policy.training_batch import check_batch

if TYPE_CHECKING:
    import gymnasium
    from gymnasium.vector import AutoresetMode, VectorEnv

    from rlcatalog.actions import Mask
    from rlcatalog.catalog import Catalog
    from rlcatalog_export import Interface


class Policy:
    """Preprocessor, filter, model, action distribution and action codec as one object, created by
    `rlcatalog.build`.

    Attributes:
        observation_space: The environment's observation space.
        action_space: The environment's action space.
        encoder: Encodes observations and reads action masks; it needs no model.
        preprocessor: Encodes observations.
        filter: The filter after the preprocessor, or None.
        encoded_space: The space of observations as the model sees them: encoded and filtered.
        model: The model.
        dist_class: The class of the policy's action distributions, called as
            `dist_class(inputs, model)`.
        stored_dist: The same for `step.dist_inputs` (as tensors of the framework), called as
            `stored_dist(dist_inputs, model)`.
        action_codec: Maps raw actions to the environment's actions.
        config: The complete model config.
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
            if getattr(type(model), method) is not getattr(ModelV2, method):
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

        Args:
            obs: A vector environment's observations (a batch), or a list of single observations.
                Entries that only a critic sees (`obs_groups`) may be missing; `step.value` is then
                None.
            state: The state that the last `act` returned; None if all episodes are starting.
            prev_reward: Rewards `[B]` of the last step, for models that request them.
            mask: Batched action mask in Gymnasium's format, such as `[B, n]` for Discrete (see
                `ActionMasks.matrix`). By default, the mask in the observations is used, if the
                space has one. None allows every action.
            explore: Whether to sample. If False, take the deterministic action: the most likely
                choice, or for numbers usually the mean (`ActionDistribution.deterministic_sample`).

        Raises:
            ObservationError: An observation is not in the space.
            ActionMaskError: The mask has the wrong shape, or a row allows no action.
            NonFiniteError: An input, a value estimate or a distribution's parameter is NaN or
                infinite.

        Example:
            >>> policy = rlcatalog.build(env="CartPole-v1")
            >>> step = policy.act([[0.0, 0.0, 0.0, 0.0], [0.1, 0.0, 0.0, 0.0]])
            >>> step.action.shape, step.logp.shape, step.value.shape
            ((2,), (2,), (2,))
        """
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
    ) -> Step:
        """Choose actions as `act` does, from encoded observations (see `preprocess`), which a
        training loop stores.

        Masks are not read from encoded observations. If the observation space has one, pass it
        (`mask=policy.action_mask(obs)`), or pass `mask=None` to allow every action.

        Observations can also be tensors; `mask` is then a boolean tensor `[B, m]`. In this case,
        the step's `raw_action`, `logp`, `value` and `dist_inputs` are tensors on the policy's
        device, without gradients; `action` and `state` still contain NumPy arrays. On devices other
        than the CPU there is no NaN check, because the check would have to wait for the device.

        With `policy_only`, a critic of its own (`critic` in the config) is left out: the columns
        that only it sees may have any values, and `step.value` is None.

        Raises:
            ActionMaskError: The observation space has a mask, but none is given; or the mask has
                the wrong shape, or a row allows no action.
            NotServedError: `policy_only` is set, but the policy has no critic of its own.
        """
        if policy_only:
            check_critic_can_be_left_out(self)
        mask_rows = self.encoder.resolve_mask(encoded, mask)
        return take_step(
            self, self.backend, encoded, state, prev_reward, mask_rows, explore, policy_only
        )

    def adapt(self, raw: TensorTree) -> Any:
        """Return the environment's actions `[B, ...]` for raw actions, such as a distribution's
        sample.

        Args:
            raw: What `sample`, `rsample` or `deterministic_sample` of the policy's distribution
                returned, or `step.raw_action`, as arrays or tensors on any device: `[B]` for a
                single Discrete, otherwise `[B, width]`. For a Tuple or Dict, either the structure
                of its children's raw actions, or all columns `[B, width]`. One raw action without
                the batch axis gives a batch of one row.

        Returns:
            Arrays in the form that a vector environment takes; every action is in the space.

        Raises:
            ActionError: These are not raw actions of the space; the message names the path.

        Example:
            >>> policy = rlcatalog.build(env="Pendulum-v1")  # its torque is within [-2, 2]
            >>> policy.adapt(torch.tensor([[0.5], [3.0]]))
            array([[1.],
                   [2.]], dtype=float32)
        """
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
        """Return value estimates `[B]` without acting, such as for an episode's last observation.

        They have the model's precision, float32 or float64; they are a tensor if the observations
        are. No action is drawn, and no action mask is needed. The arguments are the same as those
        of `act_encoded`; the state is not changed.

        Raises:
            NotServedError: The model has no value branch.
            NonFiniteError: A value is NaN or infinite.
        """
        if not self.has_value:
            raise NotServedError(f"values: {self.model_name} has no value_function().")
        check_encoded(encoded.shape, self.preprocessor.shape, "encoded")
        before = self._resume(encoded, state, prev_reward)
        with self._model_lock, self.output_checker.name_part_in_errors():
            values = self.backend.values(encoded, before.views, before.memory)
        array = host_values(values)
        if array is not None:
            check_rows(
                array,
                what="its value estimate",
                why="look at its observation, and at the model's weights",
            )
        return values

    def preprocess(self, obs: Batch, *, update: bool | Array = False) -> Array:
        """Encode and filter a batch of observations: `[B, *encoded shape]`.

        Args:
            obs: A batch of observations, or a list of single observations.
            update: Whether the filter first learns from the observations; booleans `[B]` select
                rows.

        Raises:
            ObservationError: An observation is not in the space.
            NonFiniteError: An observation contains NaN or infinity; the filter then learns nothing
                from the batch.

        Example:
            >>> policy = rlcatalog.build(spaces.Discrete(3), spaces.Discrete(2))
            >>> policy.preprocess([0, 2])
            array([[1., 0., 0.],
                   [0., 0., 1.]], dtype=float32)
        """
        encoded = self.encoder.transform_batch(obs)
        if self.filter is None:
            return encoded
        with self._model_lock:  # filtering reads statistics and writes new ones
            return self.encoder.filter_batch(encoded, update)

    def action_mask(self, obs: Batch, *, idle: Array | None = None) -> Array | None:
        """Return the action masks in a batch of observations, boolean `[B, m]`, or None if there
        are none.

        Args:
            obs: A batch of observations, or a list of single observations.
            idle: Rows in which no action will be taken, booleans `[B]`; in these rows, everything
                is allowed.
        """
        return self.masks.of(obs, idle)

    def as_module(self) -> Any:
        """Return the model and the action distribution as one module of the framework, which shares
        the weights.

        `dist, value = module(obs, mask)` takes encoded observations `[B, ...]` and boolean masks
        `[B, m]` as tensors, on the model's device; without masks, `module(obs)` is enough. `dist`
        is the distribution of raw actions, and `value` contains the value estimates `[B]`, or is
        None; gradients from both reach the weights. In PyTorch it is an `nn.Module`, in TensorFlow
        a `tf.Module` with `trainable_variables`.

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

        Args:
            batch: Arrays or tensors. `"obs"`: encoded observations `[B, ...]` from `preprocess`.
                `"raw_action"`: `[B, width]`, from `act`, or from `raw_action` for an environment's
                actions. `"mask"`, for masked actions: from `action_mask`; if the observation space
                has a mask, None allows every action. `"views"`, for models that request views:
                `step.state.views` from acting, row by row. Models with a memory read unpadded
                sequences: `"seq_lens"` `[S]`, the lengths of consecutive sequences of rows, and
                `"state"`, the memory `[S, ...]` at the start of each (none: new episodes).
                `"dist_inputs"`, from `act`: if present, the divergence is also computed.
            check: Whether to check the batch first; rows that a learner reads repeatedly need only
                one check.
            entropy: Whether to compute the entropy; skipping it saves time if the loss does not use
                it.

        Raises:
            MissingColumnError, ObservationError, ActionError, ActionMaskError, NonFiniteError: See
                `check_batch`.
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
        if check:
            check_batch(self, batch)
        with self._model_lock, self.output_checker.name_part_in_errors():
            evaluation: Evaluation = self.backend.evaluate(batch, entropy)
            return evaluation

    def raw_action(self, actions: Actions) -> Array:
        """Return the raw actions `[B, width]` that `evaluate` scores, for an environment's recorded
        actions.

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

    def initial_state(self, batch_size: int) -> Any:
        """Return the state at the start of `batch_size` episodes, or None if the policy has no
        state.
        """
        return self._episode_states.start(batch_size)

    def restart(self, state: State | None, rows: Rows) -> State | None:
        """Return a state with new episodes in some rows, by indices `[k]` or booleans `[B]`."""
        if state is None:
            return None
        return self._episode_states.restart(state, rows)

    def stepper(
        self, n: int | VectorEnv[Any, Any, Any], autoreset: str | AutoresetMode | None = None
    ) -> Stepper:
        """Return an object that acts in several environments and keeps their states.

        Args:
            n: Number of environments, or the vector environment itself.
            autoreset: When the next episodes begin; see `Stepper`.

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
        """Apply the environment wrappers that match, with this policy's config; see
        `Catalog.wrap_env`.

        Action masks are moved into the observations if the policy's observation space has a mask.
        """
        non_default_config = self.resolution.config.given
        space_has_mask = self.masks.key is not None
        return self.catalog.wrap_env(env, non_default_config, move_masks=space_has_mask)

    @property
    def frozen_parts(self) -> tuple[str, ...]:
        """The names of the parts that do not learn: the config key `freeze_parts`."""
        return tuple(self.config[FREEZE_PARTS])

    def freeze_parts(self, *names: str) -> None:
        """Freeze parts of the model: their weights, batch statistics and dropout no longer change
        in training. Saved policies hold the names.

        Training with rlcatalog's PPO, A2C and PG can go on at once. An optimiser of your own skips
        weights without gradients; create a new one to leave the weights out.

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
        return self

    def random_state(self) -> dict[str, Array]:
        """Return the states of the random generators by name: PyTorch's generators, or only this
        policy's own.
        """
        return dict(self.backend.random_state())

    def set_random_state(self, state: Mapping[str, Array]) -> None:
        """Restore the random generators' states, as returned by `random_state`, to repeat the same
        actions.
        """
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
        """Write the parts' names and versions, the non-default config, weights and filter
        statistics; no pickles.

        A policy saved there earlier stays intact until this one is complete. Spaces of other
        packages' classes are written as standard spaces that are encoded alike; if there is none, a
        SavedPolicyWarning says what `load` will need.

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
        """Write a file that computes this policy's actions from observations, without the policy.

        The file is first compared with the policy on random observations. `rlcatalog.Actor(path)`
        acts from it. With `obs_groups`, the file takes only the entries that the policy sees, and
        computes no values.

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
        """Return a frozen policy, whose step is recorded as one graph: it acts faster, for
        collecting data and serving.

        It shares this policy's weights; call `frozen.update()` when they have changed. If no
        installed package can freeze this policy, the result acts like this policy, and
        `frozen.reason` says why.

        Args:
            rows: Number of environments to act in. Other numbers also work, each at a one-time
                cost.
            seed: Seed for its random generator; None for a new seed each time.

        Example:
            >>> frozen = rlcatalog.build(env="CartPole-v1").freeze()
            >>> frozen.act([[0.0, 0.0, 0.0, 0.0]]).action.shape, frozen.reason
            ((1,), None)
        """
        return freeze_policy(self, rows, seed)

    def make_model(self) -> ModelV2:
        """Build another model like this policy's, with freshly initialised weights; instances are
        deep-copied.
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
