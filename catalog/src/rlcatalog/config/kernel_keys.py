"""Keys of the model config that the kernel and several parts read."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from rlcatalog.config.layer_names import activation_name, read_initializers

#: Annotation of a config key that takes a name, a callable or None.
NameOrCallable = Any
#: Annotation of a number of values.
_Size = Annotated[int, Meta(ge=1)]
#: Annotation of a config key with the arguments of the preceding initialiser.
InitConfig = Annotated[dict[str, Any] | None, Meta(description="arguments for that initialiser")]


class KernelConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Keys that several parts read. Packages declare additional keys."""

    custom_model: Annotated[Any, Meta(description="name or class of the model to use")] = None
    custom_model_config: Annotated[
        dict[str, Any], Meta(description="keyword arguments for the custom model")
    ] = {}
    memory: Annotated[
        Any,
        Meta(
            description="name, class or instance of the memory after the trunk, such as a recurrent"
            " layer"
        ),
    ] = None
    memory_config: Annotated[
        dict[str, Any], Meta(description="keyword arguments for that memory")
    ] = {}
    memory_first: Annotated[
        bool,
        Meta(
            description="put the memory before the dense layers with which the trunk ends, instead"
            " of after them"
        ),
    ] = False
    custom_action_dist: Annotated[
        Any,
        Meta(
            description="name or class of the action distribution to use; for a part of a Dict or"
            " Tuple, a dict from paths such as `action['drive']` to names or classes"
        ),
    ] = None
    custom_preprocessor: Annotated[
        Any, Meta(description="name or class of the preprocessor to use")
    ] = None
    observation_filter: Annotated[
        str, Meta(description="name of the filter between preprocessor and model")
    ] = "NoFilter"
    action_mask_key: Annotated[
        str | None,
        Meta(
            description="key or path of the action mask in Dict observations, or else its key in"
            " the environment's info. None: use no masks, whatever the environment gives"
        ),
    ] = "action_mask"
    _disable_preprocessor_api: Annotated[
        bool,
        Meta(
            description="pass Discrete and MultiDiscrete observations to the model as integers,"
            " not as one-hot vectors"
        ),
    ] = False
    _disable_action_flattening: Annotated[
        bool,
        Meta(
            description="pass past Tuple or Dict actions to the model as structures, not as one"
            " vector"
        ),
    ] = False
    embeddings: Annotated[
        _Size | dict[str, _Size] | None,
        Meta(
            description="path of a Discrete, MultiDiscrete or Text → in how many numbers a net"
            " embeds each of its ids; for an observation that is one of these, just the number."
            " Without it, ids become one-hot vectors"
        ),
    ] = None
    scale_integers: Annotated[
        bool,
        Meta(
            description="scale integers of a Box by their own bounds before a net reads them, so"
            " that a photograph is divided by 255 and a one-hot board is not; False: uint8 images"
            " are divided by 255, other integers stay as they are"
        ),
    ] = True
    image_layout: Annotated[
        Literal["hwc", "chw"] | None,
        Meta(
            description="whether an image's channels are its last axis or its first; None: by its"
            " shape and by the environment's wrappers"
        ),
    ] = None
    module_images: Annotated[
        Literal["framework", "as_is"],
        Meta(
            description="how a plain module receives images: with its framework's channel order"
            " and uint8 scaled to [0, 1], or as the environment returns them"
        ),
    ] = "framework"
    check_observations: Annotated[
        Literal["first", "always", "never"],
        Meta(description="when to check observations against their space"),
    ] = "first"
    action_bounds: Annotated[
        Literal["clip", "affine", "affine_all"],
        Meta(
            description="how raw Box actions are mapped into their bounds: `affine` scales them"
            " from [-1, 1] where both bounds are within ±1e6 and clips others, `affine_all` scales"
            " to all finite bounds, `clip` only clips"
        ),
    ] = "affine"
    init: Annotated[
        Literal["normc", "orthogonal", "fan_in_uniform"],
        Meta(
            description="initial weights and biases of all layers: as in RLlib, as in PPO of"
            " Stable-Baselines3, or as in PyTorch; an initialiser for certain layers wins"
        ),
    ] = "normc"
    vf_share_layers: Annotated[
        bool, Meta(description="share the trunk between policy and value")
    ] = True
    vf_memory: Annotated[
        Literal["own", "none"],
        Meta(
            description="with a memory and vf_share_layers=False: whether the value has a separate"
            " memory"
        ),
    ] = "own"
    critic: Annotated[
        dict[str, Any] | None,
        Meta(
            description="model config of a critic with its own trunk and memory, which estimates"
            " the values; None: the value belongs to the policy's model"
        ),
    ] = None
    obs_groups: Annotated[
        dict[str, list[str]] | None,
        Meta(
            description="with a critic: every entry of a Dict observation that each side sees, as"
            " {'policy': [...], 'critic': [...]}; a side without a list sees everything"
        ),
    ] = None
    free_log_std: Annotated[
        bool,
        Meta(
            description="make the second half of the outputs a trained vector that does not depend"
            " on the state"
        ),
    ] = False
    no_final_linear: Annotated[
        bool,
        Meta(
            description="use the last hidden layer, num_outputs wide and with its activation, as"
            " the output; no effect with a memory"
        ),
    ] = False
    freeze_parts: Annotated[
        list[str],
        Meta(
            description="parts of the model that do not learn, such as `trunk`, `memory`, `head`,"
            " `value`, `critic` or `critic.trunk`"
        ),
    ] = []
    post_fcnet_hiddens: Annotated[
        list[Annotated[int, Meta(ge=1)]], Meta(description="widths of dense layers after the trunk")
    ] = []
    post_fcnet_activation: Annotated[
        NameOrCallable, Meta(description="activation of the post_fcnet layers")
    ] = "relu"
    post_fcnet_weights_initializer: Annotated[
        NameOrCallable, Meta(description="weight initialiser")
    ] = None
    post_fcnet_weights_initializer_config: InitConfig = None
    post_fcnet_bias_initializer: Annotated[NameOrCallable, Meta(description="bias initialiser")] = (
        None
    )
    post_fcnet_bias_initializer_config: InitConfig = None
    max_seq_len: Annotated[
        int, Meta(ge=1, description="maximum length of training sequences, in time steps")
    ] = 20
    _time_major: Annotated[
        bool,
        Meta(
            description="pass sequences to recurrent models as [T, B, ...] instead of [B, T, ...]"
        ),
    ] = False

    def __post_init__(self) -> None:
        activation_name(self.post_fcnet_activation, "post_fcnet_activation")
        read_initializers(partial(getattr, self), "post_fcnet", "weights", "bias")


#: Keys whose default decides what numbers mean: saved policies hold their values, so that they act
#: as they did when a later version has other defaults.
RULES = ("action_bounds", "image_layout", "scale_integers")
#: Keys that the kernel and the engines always read.
READ_BY_KERNEL = frozenset({
    "custom_model", "custom_action_dist", "custom_preprocessor", "observation_filter",
    "action_mask_key", "check_observations", "action_bounds", "_disable_action_flattening",
    "custom_model_config", "memory", "memory_config", "critic", "obs_groups", "freeze_parts",
    "embeddings",
})  # fmt: skip
#: The keys that the kernel reads if a memory was chosen.
READ_WITH_MEMORY = frozenset({"vf_share_layers", "vf_memory", "memory_first", "max_seq_len"})
#: Keys of a trunk that have no effect with a memory → what they need.
IDLE_WITH_MEMORY = {"no_final_linear": "no memory"}
#: Keys that have no effect beside a critic → what they need.
IDLE_WITH_CRITIC = {"vf_memory": "no critic"}
#: Keys about the observation, which each model of an agent gets in the same form.
ABOUT_OBSERVATION = frozenset({
    "_disable_preprocessor_api", "action_mask_key", "check_observations", "custom_preprocessor",
    "embeddings", "image_layout", "observation_filter", "scale_integers",
})  # fmt: skip
#: Keys about the observation, the action, or both sides of a model. A critic has the policy's
#: values.
SHARED_BY_SIDES = ABOUT_OBSERVATION | {
    "_disable_action_flattening", "action_bounds", "custom_action_dist", "freeze_parts", "init",
    "max_seq_len",
}  # fmt: skip
#: Keys about the last layers of a policy, or about its value, which a critic does not have.
NOT_IN_CRITIC = frozenset({
    "critic", "free_log_std", "no_final_linear", "obs_groups", "vf_memory", "vf_share_layers",
})  # fmt: skip
#: Keys that have no effect unless one of certain other keys is set → those other keys.
READ_BESIDE = {
    "custom_model_config": ("custom_model", "custom_preprocessor"),
    "memory_config": ("memory",),
    **{
        key: ("post_fcnet_hiddens",)
        for key in KernelConfig.__struct_fields__
        if key.startswith("post_fcnet_") and key != "post_fcnet_hiddens"
    },
}
