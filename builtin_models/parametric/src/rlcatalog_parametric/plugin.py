"""Plugin declarations: when the head is chosen, what it reads from the observation,
and its stages.
"""

from __future__ import annotations

from dataclasses import replace

from rlcatalog import Match, ModelSpec, Rank, Request, Stage, hookimpl


def match(request: Request) -> Match:
    """Match observations that contain embeddings of the actions, or an action mask."""
    from rlcatalog_parametric.config import embeddings_key

    wanted, config = request.config["use_parametric"], request.config
    if wanted is False:
        return Match(None, "use_parametric is False")
    key = embeddings_key(request.obs, request.action, config, request.mask_key)
    found = [f"embeddings of the actions in obs[{key!r}]"] if key is not None else []
    if request.mask_key is not None:
        found.append(
            f"an action mask in obs{''.join(f'[{step!r}]' for step in request.mask_key.split('.'))}"
        )
    if wanted is None:
        if not found:
            return Match(
                None, "the observation has neither an action mask nor embeddings of the actions"
            )
        if request.preprocessor is None:
            return Match(None, "takes encoded observations")
        if config["custom_preprocessor"] is not None:
            return Match(None, "a custom_preprocessor is set, which encodes the whole observation")
        if config["custom_model"] is not None:
            return Match(
                None,
                f"a custom_model is set; set use_parametric=True to read {' and '.join(found)}"
                " anyway",
            )
    why = " and ".join(found) or "use_parametric is set"
    return Match(Rank.SPECIFIC if wanted or key is not None else Rank.GENERIC, why)


def claims(request: Request) -> list[str]:
    """Return the keys of the embeddings and, if models see it, of the mask."""
    from rlcatalog.errors import ConfigError
    from rlcatalog_parametric.config import layout

    assert request.action is not None
    found = layout(request.obs, request.action, request.config)
    if not found.claims and request.mask_key is None:
        masks, embeddings = (
            request.config["action_mask_key"],
            request.config["action_embeddings_key"],
        )
        raise ConfigError(
            f"parametric: {request.obs.path} has neither an action mask"
            f" (action_mask_key={masks!r}) nor, for a Discrete action space, embeddings of the"
            f" actions (action_embeddings_key={embeddings!r}); found {request.obs.describe()} and"
            f" the action space {request.action.describe()}. Remove use_parametric."
        )
    if found.claims and request.preprocessor is None:
        raise ConfigError(
            "parametric needs encoded observations: pass "
            "ModelCatalog.get_preprocessor_for_space(space).observation_space."
        )
    return found.claims


def describe(request: Request) -> list[Stage]:
    """Return the model's stages and their shapes."""
    from rlcatalog_parametric.config import layout, plan
    from rlcatalog_parametric.mask_columns import ShownMask

    assert request.action is not None
    found = layout(request.obs, request.action, request.config)
    # The width of a custom trunk is known only once it is built; the stages do not depend on it.
    outputs = plan(request.config, found, request.trunk_width or 1, request.num_outputs)
    if found.mask is not None:
        ShownMask(request.action, request.obs.children[request.obs.keys.index(found.mask)])
    if outputs.logits is None:
        return [
            Stage("features", None if request.trunk_width is None else (request.trunk_width,), 0)
        ]
    stages = [replace(stage, whole=request.trunk_width is not None) for stage in outputs.stages()]
    if found.embeddings is not None:
        stages[-1:] = [
            replace(stages[-1], name="intent (linear)", shape=(found.size,)),
            Stage("logits (dot products)", (found.actions,), 0),
        ]
    if found.mask is not None or found.listed:
        stages.append(Stage("masked", (request.num_outputs or 0,), 0))
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
            reads=("action_mask_key", "check_observations", "vf_share_layers"),
            examples="rlcatalog_parametric.examples:examples",
        )
    ]
