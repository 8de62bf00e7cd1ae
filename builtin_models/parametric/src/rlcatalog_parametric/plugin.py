"""Plugin declarations: when the head is chosen, what it reads from the observation,
and its stages.
"""

from __future__ import annotations

from dataclasses import replace

from rlcatalog import Match, ModelSpec, Rank, Request, Stage, hookimpl


def match(request: Request) -> Match:
    """Match observations that contain embeddings of the actions, or an action mask."""
    from rlcatalog_parametric.config import embeddings_key

    use_parametric = request.config["use_parametric"]
    if use_parametric is False:
        return Match(rank=None, why="use_parametric is False")
    key = embeddings_key(request.obs, request.action, request.config, request.mask_key)
    inputs = []
    if key is not None:
        inputs.append(f"embeddings of the actions in obs[{key!r}]")
    if request.mask_key is not None:
        inputs.append(f"an action mask in {_path_of_mask(request.mask_key)}")
    if use_parametric is None:
        objection = _why_not_by_itself(request, inputs)
        if objection is not None:
            return Match(rank=None, why=objection)
    is_specific = use_parametric or key is not None
    rank = Rank.SPECIFIC if is_specific else Rank.GENERIC
    return Match(rank, " and ".join(inputs) or "use_parametric is set")


def _path_of_mask(key: str) -> str:
    """Return the path of an action mask, whose key may be a path in either spelling."""
    if key.startswith("obs["):
        return key
    steps = [f"[{step!r}]" for step in key.split(".")]
    return "obs" + "".join(steps)


def _why_not_by_itself(request: Request, inputs: list[str]) -> str | None:
    """Return why only `use_parametric=True` chooses the head; None if it is chosen anyway.

    Args:
        request: The request.
        inputs: What the head would read from the observation.
    """
    if not inputs:
        return "the observation has neither an action mask nor embeddings of the actions"
    if request.preprocessor is None:
        return "takes encoded observations"
    if request.config["custom_preprocessor"] is not None:
        return "a custom_preprocessor is set, which encodes the whole observation"
    if request.config["custom_model"] is not None:
        return (
            f"a custom_model is set; set use_parametric=True to read {' and '.join(inputs)} anyway"
        )
    return None


def claims(request: Request) -> list[str]:
    """Return the keys of the embeddings and, if models see it, of the mask."""
    from rlcatalog.errors import ConfigError
    from rlcatalog_parametric.config import layout

    assert request.action is not None
    keys = layout(request.obs, request.action, request.config).claims
    if not keys and request.mask_key is None:
        mask_key = request.config["action_mask_key"]
        embeddings_key = request.config["action_embeddings_key"]
        raise ConfigError(
            f"parametric: {request.obs.path} has neither an action mask"
            f" (action_mask_key={mask_key!r}) nor, for a Discrete action space, embeddings of the"
            f" actions (action_embeddings_key={embeddings_key!r}); found {request.obs.describe()}"
            f" and the action space {request.action.describe()}. Remove use_parametric."
        )
    if keys and request.preprocessor is None:
        raise ConfigError(
            "parametric needs encoded observations: pass "
            "ModelCatalog.get_preprocessor_for_space(space).observation_space."
        )
    return keys


def describe(request: Request) -> list[Stage]:
    """Return the model's stages and their shapes."""
    from rlcatalog_parametric.config import layout, plan_layers
    from rlcatalog_parametric.mask_columns import VisibleMask

    assert request.action is not None
    inputs = layout(request.obs, request.action, request.config)
    # The width of a custom trunk is known only once it is built. The stages' names and shapes do
    # not depend on it, so 1 stands for it.
    trunk_width = request.trunk_width
    is_width_known = trunk_width is not None
    outputs = plan_layers(request.config, inputs, trunk_width or 1, request.num_outputs)
    if inputs.mask_key is not None:
        # Called for its check: it raises an error if the head cannot read the mask.
        VisibleMask(request.action, request.obs.children[request.obs.keys.index(inputs.mask_key)])
    if outputs.logits is None:
        shape = None if trunk_width is None else (trunk_width,)
        return [Stage("features", shape, weights=0)]
    stages = [replace(stage, whole=is_width_known) for stage in outputs.stages()]
    if inputs.embeddings_key is not None:
        # The last layer's output is the intent, from which dot products make the logits.
        stages[-1] = replace(stages[-1], name="intent (linear)", shape=(inputs.size,))
        stages.append(Stage("logits (dot products)", (inputs.actions,), weights=0))
    if inputs.mask_key is not None or inputs.is_list:
        stages.append(Stage("masked", (request.num_outputs or 0,), weights=0))
    return stages


@hookimpl
def rlcatalog_models() -> list[ModelSpec]:
    return [
        ModelSpec(
            name="parametric",
            targets={
                "torch": "rlcatalog_parametric.torch:ParametricActionsHead",
                "tf": "rlcatalog_parametric.tf:ParametricActionsHead",
            },
            summary="action masks and embeddings of the available actions, around any trunk or"
            " memory",
            slot="head",
            switch="use_parametric",
            match=match,
            claims=claims,
            describe=describe,
            config="rlcatalog_parametric.config:ParametricConfig",
            reads=("action_mask_key", "check_observations", "init", "vf_share_layers"),
            examples="rlcatalog_parametric.examples:examples",
        )
    ]
