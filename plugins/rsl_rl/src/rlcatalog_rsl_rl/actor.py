"""Actor for rsl_rl that holds a policy of the catalog."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn

import torch
from gymnasium import spaces
from tensordict import TensorDict
from torch import Tensor, nn

import rlcatalog
from rlcatalog import Catalog, Policy
from rlcatalog.actions import entropy_of, params_given
from rlcatalog.errors import ConfigError, NoClosedFormError, NotServedError
from rlcatalog_policy import State
from rlcatalog_rsl_rl.spaces import ObservationGroups, Space, free_actions
from rlcatalog_rsl_rl.value_parameters import find_value_parameters
from rlcatalog_torch import (
    as_torch,
    flat_sample,
    keep_filter_in_state_dict,
)

#: Defaults of config keys, as rsl_rl's own nets are: the critic has layers of its own, a Gaussian's
#: standard deviations do not depend on the observation, and layers begin with PyTorch's values.
_DEFAULTS = {"vf_share_layers": False, "init": "fan_in_uniform"}
#: Settings of rsl_rl's own models → what to use instead.
_OWN_SETTINGS = {
    "hidden_dims": "set fcnet_hiddens in model_config",
    "activation": "set fcnet_activation in model_config",
    "obs_normalization": "set observation_filter='MeanStdFilter' in model_config",
    "distribution_cfg": "set custom_action_dist in model_config",
    "rnn_type": "set use_lstm, or memory, in model_config",
    "rnn_hidden_dim": "set lstm_cell_size in model_config",
    "rnn_num_layers": "set lstm_num_layers in model_config",
    "cnn_cfg": "set conv_filters in model_config",
}


class _ActingPass(NamedTuple):
    """What the actor has computed for a batch of observations while acting.

    Attributes:
        obs: The observations, which the critic is asked about next.
        actions: Raw actions as rsl_rl stores them, floats `[N, width]`.
        logp: Their log densities `[N]`.
        value: Value estimates `[N]`, or None without the critic's groups.
        dist_inputs: Parameters `[N, n]` that score the actions.
    """

    obs: TensorDict
    actions: Tensor
    logp: Tensor
    value: Tensor | None
    dist_inputs: Tensor


class _ScoringPass(NamedTuple):
    """A minibatch of an update, which is scored when its actions are known.

    Attributes:
        obs: The observations `[R]`, or `[T, S]` for pieces of episodes.
        masks: Which rows of the pieces are steps `[T, S]`; None without a memory.
        hidden_state: The memory before each piece, a tensor `[1, S, size]` for each of its parts.
    """

    obs: TensorDict
    masks: Tensor | None
    hidden_state: tuple[Tensor, ...]


class _Scores(NamedTuple):
    """What the update reads of a scored minibatch, in the shape `[R]` or `[T, n]`.

    Attributes:
        value: Value estimates with an axis of size 1 at the end.
        entropy: Entropies.
        dist_inputs: Parameters, with an axis at the end.
    """

    value: Tensor
    entropy: Tensor
    dist_inputs: Tensor


class CatalogActor(nn.Module):
    """Actor for `rsl_rl`'s PPO whose observations, model, memory, action masks and action
    distribution come from the catalog.

    `CatalogPPO` makes it from the runner's config:
    `"actor": {"class_name": "rlcatalog_rsl_rl:CatalogActor", "model_config": {...}}`.
    `CatalogCritic` reads the values of the same model, so that each minibatch needs one pass.

    Args:
        obs: A batch of the environment's observations.
        obs_groups: Groups by side, `{"actor": [...], "critic": [...]}`.
        obs_set: `"actor"`.
        output_dim: Number of raw values of an action; None accepts any.
        model_config: The model config.
        observation_space: The space of one observation; None reads it from `obs`.
        action_space: The space of one action; None means floats without bounds.
        catalog: The catalog that chooses the parts; None means the process's default catalog.

    Attributes:
        policy: The policy. `to_policy` returns it.

    Raises:
        NotServedError: The config needs past steps, or the side or the number of actions is wrong.
        ConfigError: A setting belongs to rsl_rl's own models.
    """

    def __init__(
        self,
        obs: TensorDict,
        obs_groups: Mapping[str, list[str]],
        obs_set: str,
        output_dim: int | None,
        model_config: Mapping[str, Any] | None = None,
        observation_space: Space | None = None,
        action_space: Space | None = None,
        catalog: Catalog | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        _check_settings(obs_set, settings)
        config = dict(model_config or {})
        critic_groups = obs_groups.get("critic", obs_groups["actor"])
        self._groups = ObservationGroups(obs, obs_groups["actor"], critic_groups, observation_space)
        if action_space is None:
            if output_dim is None:
                raise ConfigError("CatalogActor: pass output_dim, or an action_space.")
            action_space = free_actions(output_dim)
        config |= self._groups.config_keys(config)
        is_float_box = isinstance(action_space, spaces.Box) and action_space.dtype.kind == "f"
        self.policy: Policy = rlcatalog.build(
            self._groups.space,
            action_space,
            config,
            "torch",
            catalog=catalog,
            defaults={**_DEFAULTS, "free_log_std": is_float_box},
        )
        _check_policy(self.policy, output_dim)
        model: Any = self.policy.model
        # PyTorch finds the weights under this name.
        self.model: nn.Module = model
        self.is_recurrent = bool(self.policy.memory)
        self._rows = int(obs.batch_size[0])
        self._state: State | None = None
        self._acting: _ActingPass | None = None
        self._scoring: _ScoringPass | None = None
        self._scores: _Scores | None = None
        self._is_updating = False
        self._value_parameters: list[nn.Parameter] = []
        self.to(obs.device or "cpu")
        self._value_parameters = self._find_value_parameters(obs)
        keep_filter_in_state_dict(self, self.policy.filter)

    # --- weights ----------------------------------------------------------------------------------

    def _find_value_parameters(self, obs: TensorDict) -> list[nn.Parameter]:
        """Return the weights that only the value estimates depend on."""
        policy = self.policy
        rows = obs[:1]
        encoded = policy.preprocess(self._groups.select(rows))
        with torch.enable_grad():
            state = policy.initial_state(1, on_device=True)
            memory = () if state is None else state.memory
            inputs, states = policy.backend.inputs_of(encoded, {}, memory)
            _, _, value, dist_inputs, _ = policy.backend.step(inputs, states, None, explore=False)
            assert value is not None  # `_check_policy` has checked this
            return find_value_parameters(dist_inputs, value, self.model)

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield the weights that the actions depend on; `CatalogCritic` has the others."""
        others = {id(weight) for weight in self._value_parameters}
        named = super().named_parameters(prefix, recurse, remove_duplicate)
        for name, weight in named:
            if id(weight) not in others:
                yield name, weight

    def value_parameters(self) -> Iterator[nn.Parameter]:
        """Yield the weights that only the value estimates depend on."""
        yield from self._value_parameters

    def to(self, *arguments: Any, **options: Any) -> CatalogActor:
        """Move the policy to a device; new episodes begin there."""
        super().to(*arguments, **options)
        first_weight = next(self.model.parameters(), None)
        device = torch.device("cpu") if first_weight is None else first_weight.device
        self.policy.to(str(device))
        self._restart_all()
        return self

    # --- acting and scoring -----------------------------------------------------------------------

    def forward(
        self,
        obs: TensorDict,
        masks: Tensor | None = None,
        hidden_state: Tensor | tuple[Tensor, ...] | None = None,
        stochastic_output: bool = False,
    ) -> Tensor | None:
        """Return raw actions `[N, width]` for a batch of observations.

        In an update, rsl_rl reads no actions, and asks for the densities of stored ones next. The
        model runs then, and this returns None.

        Args:
            obs: The observations `[N]`, or padded pieces of episodes `[T, S]` in an update.
            masks: Which rows of the pieces are steps.
            hidden_state: The memory before each piece.
            stochastic_output: Whether to sample actions instead of taking the deterministic ones.
        """
        if self._is_updating:
            self._scoring = _ScoringPass(obs, masks, _parts_of(hidden_state))
            self._scores = None
            return None
        self._acting = self._act(obs, stochastic_output)
        return self._acting.actions

    def _act(self, obs: TensorDict, explore: bool) -> _ActingPass:
        """Choose actions, and keep the memory."""
        rows = int(obs.batch_size[0])
        if rows != self._rows:
            self._rows = rows
            self._restart_all()
        # Its arrays are tensors, like the observations.
        step: Any = self.policy.act(self._groups.select(obs), self._state, explore=explore)
        self._state = step.state
        actions = step.raw_action.float()
        return _ActingPass(obs, actions, step.logp, step.value, step.dist_inputs)

    def _score(self, batch: _ScoringPass, actions: Tensor) -> Any:
        """Return the `Evaluation` of raw actions `[R, width]`, a row for each observation."""
        policy = self.policy
        columns: dict[str, Any] = {"raw_action": actions}
        obs = batch.obs
        if batch.masks is not None:
            # The rows of one piece after the other, without the padding.
            is_step = batch.masks.transpose(0, 1)
            obs = obs.transpose(0, 1)[is_step]
            # rsl_rl has waited for the device to cut the pieces, so their lengths are there.
            columns["seq_lens"] = is_step.sum(1).cpu().numpy()
            columns["state"] = self._memory_of(batch.hidden_state)
        observations = self._groups.select(obs)
        columns["obs"] = policy.preprocess(observations)
        columns["mask"] = policy.action_mask(observations)
        # The observations are those that the policy has acted on and checked.
        return policy.evaluate(columns, check=False)

    def get_output_log_prob(self, outputs: Tensor) -> Tensor:
        """Return the log densities of raw actions: `[N]` for `[N, width]`, or `[T, n]` for
        `[T, n, width]` of an update.
        """
        if not self._is_updating:
            return self._logp_of_acting(outputs)
        batch = self._scoring
        assert batch is not None, "forward() comes first"
        if batch.masks is None:
            evaluation = self._score(batch, outputs)
            length = None
        else:
            length = len(outputs)
            evaluation = self._score(batch, outputs.transpose(0, 1).flatten(0, 1))
        dist_inputs = params_given(evaluation.dist, outputs.flatten(0, -2))
        self._scores = _Scores(
            value=_in_time(evaluation.value[:, None], length),
            entropy=_in_time(evaluation.entropy, length),
            dist_inputs=_in_time(dist_inputs, length),
        )
        return _in_time(evaluation.logp, length)

    def _logp_of_acting(self, actions: Tensor) -> Tensor:
        """Return the log densities of raw actions for the observations acted on last."""
        acting = self._last_acting()
        # rsl_rl detaches the actions first, which keeps their memory.
        are_own = actions.data_ptr() == acting.actions.data_ptr()
        if are_own and actions.shape == acting.actions.shape:
            return acting.logp
        if self.policy.action_codec.scalar:
            actions = actions[:, 0]
        logp: Tensor = self._dist(acting.dist_inputs).logp(actions)
        return logp

    def value_of(self, obs: TensorDict) -> Tensor:
        """Return value estimates `[N, 1]`, or `[T, n, 1]` in an update; `CatalogCritic` calls it.

        The observations are usually those of the last pass, which has computed the values.
        """
        if self._scores is not None and self._scoring is not None and self._scoring.obs is obs:
            return self._scores.value
        acting = self._acting
        if acting is not None and acting.obs is obs and acting.value is not None:
            return acting.value[:, None]
        encoded = self.policy.preprocess(self._groups.select(obs))
        values: Tensor = self.policy.values(encoded, self._state)
        return values[:, None]

    # --- the distribution of the last pass --------------------------------------------------------

    def _last_acting(self) -> _ActingPass:
        assert self._acting is not None, "forward() comes first"
        return self._acting

    def _dist(self, dist_inputs: Tensor) -> Any:
        """Return the distributions of stored parameters `[R, n]`."""
        return self.policy.stored_dist(dist_inputs, self.policy.model)

    @property
    def output_distribution_params(self) -> tuple[Tensor, ...]:
        """The parameters of the last pass's distributions, action masks included."""
        if self._scores is not None:
            return (self._scores.dist_inputs,)
        return (self._last_acting().dist_inputs,)

    @property
    def output_entropy(self) -> Tensor:
        """The entropies of the last pass's distributions, or their estimates."""
        if self._scores is not None:
            return self._scores.entropy
        entropy, _ = entropy_of(self._dist(self._last_acting().dist_inputs), flat_sample)
        return entropy

    @property
    def output_mean(self) -> Tensor:
        """The means of the last actions' distributions; NaN if they have none."""
        return self._moment("mean")

    @property
    def output_std(self) -> Tensor:
        """The standard deviations of the last actions' distributions; NaN if they have none."""
        return self._moment("stddev")

    def _moment(self, name: str) -> Tensor:
        acting = self._last_acting()
        try:
            moment: Tensor = getattr(as_torch(self._dist(acting.dist_inputs)), name)
        except (NoClosedFormError, NotImplementedError):
            return torch.full_like(acting.actions, torch.nan)
        return moment

    def get_kl_divergence(
        self, old_params: tuple[Tensor, ...], new_params: tuple[Tensor, ...]
    ) -> Tensor:
        """Return the divergence of stored distributions from others, in the parameters' shape
        without their last axis.

        Raises:
            NoClosedFormError: The distribution has no closed form for it; use the setting
                `"schedule": "fixed"`.
        """
        old = old_params[0]
        new = new_params[0]
        kl: Tensor = self._dist(old.flatten(0, -2)).kl(self._dist(new.flatten(0, -2)))
        return kl.view(old.shape[:-1])

    # --- memory -----------------------------------------------------------------------------------

    def get_hidden_state(self) -> tuple[Tensor, ...] | None:
        """Return the memory before the next step, a tensor `[1, N, size]` for each of its parts;
        None without a memory.
        """
        if self._state is None:
            return None
        memory: Any = self._state.memory  # tensors
        return tuple(part.reshape(1, self._rows, -1) for part in memory)

    def reset(
        self,
        dones: Tensor | None = None,
        hidden_state: Tensor | tuple[Tensor, ...] | None = None,
    ) -> None:
        """Begin new episodes where `dones` is 1, or everywhere; or restore a memory.

        Args:
            dones: Where an episode has ended, `[N]`; None means everywhere.
            hidden_state: The memory for all environments, from `get_hidden_state`.
        """
        # Observations that come now are new ones, even in a TensorDict that is overwritten.
        self._acting_obs_are_old()
        if self._state is None:
            return
        if dones is not None:
            self._state = self.policy.restart(self._state, dones.flatten() == 1)
        elif hidden_state is None:
            self._restart_all()
        else:
            memory: Any = self._memory_of(_parts_of(hidden_state))
            self._state = self._state._replace(memory=memory)

    def _acting_obs_are_old(self) -> None:
        """Forget the values of the observations acted on last."""
        if self._acting is not None:
            self._acting = self._acting._replace(value=None)

    def _restart_all(self) -> None:
        """Begin new episodes in all environments."""
        self._state = self.policy.initial_state(self._rows, on_device=True)

    def _memory_of(self, hidden_state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the memory `[S, ...]` of tensors `[1, S, size]`."""
        parts = []
        for part, initial in zip(hidden_state, self.policy.memory.initial, strict=True):
            parts.append(part[0].reshape(part.shape[1], *initial.shape))
        return tuple(parts)

    def detach_hidden_state(self, dones: Tensor | None = None) -> None:
        """Do nothing, because a memory carries no gradients."""

    # --- updates ----------------------------------------------------------------------------------

    @contextmanager
    def updating(self) -> Iterator[None]:
        """Context manager for an update, in which stored actions are scored."""
        self._is_updating = True
        try:
            yield
        finally:
            self._is_updating = False
            self._scoring = None
            self._scores = None

    def update_normalization(self, obs: TensorDict) -> None:
        """Let the filter learn from the observations of a rollout `[R]`."""
        if self.policy.filter is not None:
            self.policy.preprocess(self._groups.select(obs), update=True)

    # --- not carried ------------------------------------------------------------------------------

    def as_jit(self) -> nn.Module:
        """Refuse, because policies are exported by rlcatalog.

        Raises:
            NotServedError: Always.
        """
        _refuse_export("as_jit", "policy.pt2")

    def as_onnx(self, verbose: bool = False) -> nn.Module:
        """Refuse, because policies are exported by rlcatalog.

        Raises:
            NotServedError: Always.
        """
        _refuse_export("as_onnx", "policy.onnx")


def _refuse_export(method: str, path: str) -> NoReturn:
    raise NotServedError(
        f"CatalogActor.{method}: rsl_rl's exporters do not know this policy. Use"
        f" rlcatalog_rsl_rl.to_policy(runner).export({path!r})."
    )


def _check_settings(obs_set: str, settings: Mapping[str, Any]) -> None:
    """Raise an error for a side or a setting that the actor does not have."""
    if obs_set != "actor":
        raise NotServedError(
            f"CatalogActor: it is the 'actor' of PPO, not the {obs_set!r} of distillation. Use a"
            " model of rsl_rl there."
        )
    for name in settings:
        if name in _OWN_SETTINGS:
            raise ConfigError(
                f"actor[{name!r}]: this setting belongs to rsl_rl's own models. Instead,"
                f" {_OWN_SETTINGS[name]}."
            )
        raise ConfigError(f"actor[{name!r}]: unknown setting; CatalogActor takes 'model_config'.")


def _check_policy(policy: Policy, output_dim: int | None) -> None:
    """Raise an error for a policy that rsl_rl cannot train.

    Raises:
        NotServedError: It reads past steps, has no value or a loss of its own, or has another
            number of raw actions.
    """
    if policy.views or policy.memory.initial_past:
        explicit = policy.resolution.config.explicit
        keys = [key for key in explicit if "prev_" in key] or ["custom_model"]
        raise NotServedError(
            f"{policy.model_name} reads past steps, which rsl_rl does not store. Remove from"
            f" model_config: {', '.join(keys)}."
        )
    if not policy.has_value:
        raise NotServedError(
            f"{policy.model_name} has no value_function(), which PPO needs. Set critic={{}} in"
            " model_config."
        )
    if policy.overrides("custom_loss"):
        raise NotServedError(
            f"{policy.model_name}.custom_loss: rsl_rl does not add a model's loss to its own, so"
            " the model would train without it. Remove the method, or train with rlcatalog-ppo."
        )
    width = policy.action_codec.width
    if output_dim is not None and output_dim != width:
        raise NotServedError(
            f"the environment takes {output_dim} numbers for an action, but"
            f" {policy.action_space} has {width} raw values. Wrap the environment:"
            " CatalogEnv(env, action_space=...)."
        )


def _parts_of(hidden_state: Tensor | tuple[Tensor, ...] | None) -> tuple[Tensor, ...]:
    """Return the parts of a memory; rsl_rl passes a single one without a tuple."""
    if hidden_state is None:
        return ()
    if isinstance(hidden_state, Tensor):
        return (hidden_state,)
    return tuple(hidden_state)


def _in_time(rows: Tensor, length: int | None) -> Tensor:
    """Return rows `[n * T, ...]` of environments one after the other as `[T, n, ...]`; without a
    length, return them as they are.
    """
    if length is None:
        return rows
    return rows.view(-1, length, *rows.shape[1:]).transpose(0, 1)
