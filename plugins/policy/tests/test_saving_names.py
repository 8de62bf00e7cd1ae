"""Saved policies: names are pinned, so loading never chooses anew."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

import rlcatalog
from rlcatalog import ActionDistSpec, Catalog, Match, ModelSpec, PreprocessorSpec, Rank
from rlcatalog.plugins.discovery import scan
from rlcatalog_policy import loading
from rlcatalog_preprocessors.arrays import NoPreprocessor
from rlcatalog_torch import Categorical, FullyConnectedNetwork


def catalog_of(*more, names=("fcnet", "categorical", "gaussian", "preprocessors")):
    return Catalog([*(point for point in scan() if point.name in names), *more], environ={})


def observations(space, n=5, seed=0):
    space.seed(seed)
    return [space.sample() for _ in range(n)]


def anything(request):
    return Match(Rank.SPECIFIC, "takes anything")


class Impostor(FullyConnectedNetwork):
    """What a lookup made today would choose."""


class ImpostorDist(Categorical):
    """The same, for actions."""


class ImpostorCodec(NoPreprocessor):
    """The same, for observations."""


MODEL = {"torch": "made_up_parts:Impostor"}
DIST = {"torch": "made_up_parts:ImpostorDist"}
CODEC = {"numpy": "made_up_parts:ImpostorCodec"}
FCNET, CATEGORICAL = "rlcatalog-fcnet/fcnet", "rlcatalog-categorical/categorical"
NONE = "rlcatalog-preprocessors/none"


@pytest.fixture
def impostors(module, entry_point, plugin):
    """Entry point of a plugin that would win every lookup: by rank, or under the names of others."""
    module(Impostor=Impostor, ImpostorDist=ImpostorDist, ImpostorCodec=ImpostorCodec)

    def size(action, config):
        return action.n

    def make(override):
        names = ("fcnet", "categorical", "none") if override else ("better", "better", "better")
        victims = (FCNET, CATEGORICAL, NONE) if override else (None, None, None)
        return entry_point(
            "impostors",
            plugin(
                rlcatalog_models=[ModelSpec(names[0], MODEL, "", match=anything, overrides=victims[0])],
                rlcatalog_action_dists=[
                    ActionDistSpec(names[1], DIST, "", match=anything, overrides=victims[1], size=size)
                ],
                rlcatalog_preprocessors=[
                    PreprocessorSpec(names[2], CODEC, "", match=lambda r: anything(r) if r.obs.kind == "box" else None,
                                     overrides=victims[2])
                ],
            ),
        )  # fmt: skip

    return make


BOX, TWO = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2)


@pytest.mark.parametrize("override", [False, True], ids=["better rank", "override"])
def test_loading_never_chooses_anew(directory, impostors, override, same_policy):
    policy = rlcatalog.build(BOX, TWO, {"fcnet_hiddens": [4]}, catalog=catalog_of())
    policy.save(directory)
    today = catalog_of(impostors(override))
    chosen = rlcatalog.build(BOX, TWO, catalog=today)
    assert (type(chosen.model), chosen.dist_class, type(chosen.preprocessor)) == (Impostor, ImpostorDist, ImpostorCodec)
    back = loading.load(directory, catalog=today)
    assert type(back.model) is FullyConnectedNetwork
    assert back.dist_class is Categorical
    assert type(back.preprocessor) is NoPreprocessor
    same_policy(policy, back, observations(BOX))


@pytest.mark.parametrize("override", [False, True], ids=["better rank", "override"])
def test_codecs_of_children_are_pinned(directory, impostors, override, same_policy):
    nested = spaces.Tuple([spaces.Dict({"a": BOX}), BOX])
    policy = rlcatalog.build(nested, TWO, {"fcnet_hiddens": [4]}, catalog=catalog_of())
    policy.save(directory)
    back = loading.load(directory, catalog=catalog_of(impostors(override)))
    assert type(back.preprocessor.children[1]) is NoPreprocessor
    assert type(back.preprocessor.children[0].children[0]) is NoPreprocessor
    same_policy(policy, back, observations(nested))


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ({"custom_model": "fcnet"}, lambda policy: type(policy.model) is FullyConnectedNetwork),
        ({"custom_action_dist": "categorical"}, lambda policy: policy.dist_class is Categorical),
        ({"custom_preprocessor": "none"}, lambda policy: type(policy.preprocessor) is NoPreprocessor),
    ],
    ids=["model", "distribution", "preprocessor"],
)
@pytest.mark.filterwarnings("ignore:custom_preprocessor is deprecated:DeprecationWarning")
def test_a_name_in_the_config_means_what_it_meant(directory, impostors, config, found):
    policy = rlcatalog.build(BOX, TWO, config, catalog=catalog_of())
    assert found(policy)
    policy.save(directory)
    assert found(loading.load(directory, catalog=catalog_of(impostors(True))))


def test_a_class_registered_under_a_plugins_name_does_not_slip_in(directory):
    policy = rlcatalog.build(BOX, TWO, {}, catalog=catalog_of())
    policy.save(directory)
    today = catalog_of()
    today.register_model("fcnet", Impostor)
    assert type(loading.load(directory, catalog=today).model) is FullyConnectedNetwork


def test_a_slot_that_was_empty_stays_empty(directory, module, entry_point, plugin):
    rlcatalog.build(BOX, TWO, {}, catalog=catalog_of()).save(directory)
    module(Memory=Impostor)
    memory = ModelSpec("memory", {"torch": "made_up_parts:Memory"}, "", match=anything, slot="memory")
    today = catalog_of(entry_point("memories", plugin(rlcatalog_models=[memory])))
    assert today.resolve(BOX, TWO).choices["memory"].component is not None
    assert loading.load(directory, catalog=today).resolution.choices["memory"].component is None
