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


def catalog_of(*more, names=("fcnet", "categorical", "gaussian", "preprocessors"), **options):
    return Catalog(
        [*(point for point in scan() if point.name in names), *more], environ={}, **options
    )


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


@pytest.fixture
def impostors(module, entry_point, plugin):
    """Make a catalog with parts that win every lookup of today: preferred ones, or the program's
    under their names.
    """
    module(Impostor=Impostor, ImpostorDist=ImpostorDist, ImpostorCodec=ImpostorCodec)

    def make(of):
        names = (
            ("fcnet", "categorical", "none") if of == "program" else ("better", "better", "better")
        )
        model = ModelSpec(names[0], MODEL, "", match=anything)
        dist = ActionDistSpec(
            names[1], DIST, "", match=anything, size=lambda action, config: action.n
        )
        codec = PreprocessorSpec(names[2], CODEC, "", match=anything, kinds=("box",))
        if of == "program":
            catalog = catalog_of()
            for spec in (model, dist, codec):
                catalog.register(spec)
            return catalog
        hooks = {"models": [model], "action_dists": [dist], "preprocessors": [codec]}
        point = entry_point(
            "impostors", plugin(**{f"rlcatalog_{name}": specs for name, specs in hooks.items()})
        )
        return catalog_of(point, prefer=["impostors"])

    return make


BOX, TWO = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2)


@pytest.mark.parametrize("of", ["plugin", "program"])
def test_loading_never_chooses_anew(directory, impostors, of, same_policy):
    policy = rlcatalog.build(BOX, TWO, {"fcnet_hiddens": [4]}, catalog=catalog_of())
    policy.save(directory)
    today = impostors(of)
    chosen = rlcatalog.build(BOX, TWO, catalog=today)
    assert (type(chosen.model), chosen.dist_class, type(chosen.preprocessor)) == (
        Impostor,
        ImpostorDist,
        ImpostorCodec,
    )
    back = loading.load(directory, catalog=today)
    assert type(back.model) is FullyConnectedNetwork
    assert back.dist_class is Categorical
    assert type(back.preprocessor) is NoPreprocessor
    same_policy(policy, back, observations(BOX))


@pytest.mark.parametrize("of", ["plugin", "program"])
def test_codecs_of_children_are_pinned(directory, impostors, of, same_policy):
    nested = spaces.Tuple([spaces.Dict({"a": BOX}), BOX])
    policy = rlcatalog.build(nested, TWO, {"fcnet_hiddens": [4]}, catalog=catalog_of())
    policy.save(directory)
    back = loading.load(directory, catalog=impostors(of))
    assert type(back.preprocessor.children[1]) is NoPreprocessor
    assert type(back.preprocessor.children[0].children[0]) is NoPreprocessor
    same_policy(policy, back, observations(nested))


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ({"custom_model": "fcnet"}, lambda policy: type(policy.model) is FullyConnectedNetwork),
        ({"custom_action_dist": "categorical"}, lambda policy: policy.dist_class is Categorical),
        (
            {"custom_preprocessor": "none"},
            lambda policy: type(policy.preprocessor) is NoPreprocessor,
        ),
    ],
    ids=["model", "distribution", "preprocessor"],
)
def test_a_name_in_the_config_means_what_it_meant(directory, impostors, config, found):
    policy = rlcatalog.build(BOX, TWO, config, catalog=catalog_of())
    assert found(policy)
    policy.save(directory)
    for of in ("plugin", "program"):
        assert found(loading.load(directory, catalog=impostors(of)))


def test_a_class_registered_under_a_plugins_name_does_not_slip_in(directory):
    policy = rlcatalog.build(BOX, TWO, {}, catalog=catalog_of())
    policy.save(directory)
    today = catalog_of()
    today.register_model("fcnet", Impostor)
    assert type(loading.load(directory, catalog=today).model) is FullyConnectedNetwork


def test_a_slot_that_was_empty_stays_empty(directory, module, entry_point, plugin):
    rlcatalog.build(BOX, TWO, {}, catalog=catalog_of()).save(directory)
    module(Memory=Impostor)
    memory = ModelSpec(
        "memory", {"torch": "made_up_parts:Memory"}, "", match=anything, slot="memory"
    )
    today = catalog_of(
        entry_point("memories", plugin(rlcatalog_models=[memory])), prefer=["memories"]
    )
    assert today.resolve(BOX, TWO).choices["memory"].component is not None
    assert loading.load(directory, catalog=today).resolution.choices["memory"].component is None
