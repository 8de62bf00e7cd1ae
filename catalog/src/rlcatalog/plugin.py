"""Declarations of the kernel itself: the action codecs it brings."""

from __future__ import annotations

from rlcatalog.plugins import ActionCodecSpec, hookimpl


def _codec(name: str, target: str, summary: str, kinds: tuple[str, ...] = ()) -> ActionCodecSpec:
    return ActionCodecSpec(name, {"numpy": f"rlcatalog.actions.{target}"}, summary, kinds=kinds or (name,))


@hookimpl
def rlcatalog_action_codecs() -> list[ActionCodecSpec]:
    return [
        _codec("discrete", "kinds:DiscreteCodec", "one of n values"),
        _codec("multi_discrete", "kinds:MultiDiscreteCodec", "several choices at once"),
        _codec("multi_binary", "kinds:MultiBinaryCodec", "bits"),
        _codec("box", "kinds:BoxCodec", "numbers, or whole numbers, between bounds"),
        _codec("simplex", "kinds:SimplexCodec", "probability vectors"),
        _codec("composite", "composites:CompositeCodec", "the codecs of a Tuple's or Dict's parts", ("tuple", "dict")),
    ]
