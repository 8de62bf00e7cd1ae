"""Loading a policy uses the parts that it was saved with, even if a lookup would choose others
today.
"""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from small_catalogs import make_catalog

import rlcatalog
from rlcatalog import ActionDistSpec, Match, ModelSpec, PreprocessorSpec, Rank
from rlcatalog_policy import loading
from rlcatalog_preprocessors.arrays import NoPreprocessor
from rlcatalog_torch import Categorical, FullyConnectedNetwork

THREE_FEATURES = spaces.Box(-1, 1, (3,), np.float32)
TWO_ACTIONS = spaces.Discrete(2)


def sample_observations(space):
    space.seed(0)
    return [space.sample() for _ in range(5)]


def match_everything(request):
    return Match(Rank.SPECIFIC, "takes anything")


class RivalModel(FullyConnectedNetwork):
    """The model that a lookup chooses when the policy is loaded."""


class RivalDist(Categorical):
    """The distribution that a lookup chooses when the policy is loaded."""


class RivalPreprocessor(NoPreprocessor):
    """The preprocessor that a lookup chooses when the policy is loaded."""


def declare_rivals(*, model, dist, preprocessor):
    """Declare the three classes above under these names."""
    return [
        ModelSpec(model, {"torch": "made_up_parts:RivalModel"}, "", match=match_everything),
        ActionDistSpec(
            dist,
            {"torch": "made_up_parts:RivalDist"},
            "",
            match=match_everything,
            size=lambda action, config: action.n,
        ),
        PreprocessorSpec(
            preprocessor,
            {"numpy": "made_up_parts:RivalPreprocessor"},
            "",
            match=match_everything,
            kinds=("box",),
        ),
    ]


@pytest.fixture(params=["preferred-plugin", "registered-under-the-same-names"])
def catalog_of_rivals(request, module, entry_point, plugin):
    """A catalog whose lookups choose the three classes above."""
    module(RivalModel=RivalModel, RivalDist=RivalDist, RivalPreprocessor=RivalPreprocessor)
    if request.param == "preferred-plugin":
        model, dist, preprocessor = declare_rivals(
            model="better", dist="better", preprocessor="better"
        )
        hooks = plugin(
            rlcatalog_models=[model],
            rlcatalog_action_dists=[dist],
            rlcatalog_preprocessors=[preprocessor],
        )
        return make_catalog(entry_point("rivals", hooks), prefer=["rivals"])
    catalog = make_catalog()
    for spec in declare_rivals(model="fcnet", dist="categorical", preprocessor="none"):
        catalog.register(spec)
    return catalog


def test_build_chooses_the_rivals(catalog_of_rivals):
    # Otherwise the tests below would prove nothing.
    policy = rlcatalog.build(THREE_FEATURES, TWO_ACTIONS, catalog=catalog_of_rivals)

    assert type(policy.model) is RivalModel
    assert policy.dist_class is RivalDist
    assert type(policy.preprocessor) is RivalPreprocessor


def test_load_uses_the_saved_choices(directory, catalog_of_rivals, assert_same_policy):
    policy = rlcatalog.build(
        THREE_FEATURES, TWO_ACTIONS, {"fcnet_hiddens": [4]}, catalog=make_catalog()
    )
    policy.save(directory)

    # In this catalog, a new policy would have another model, distribution and preprocessor.
    loaded = loading.load(directory, catalog=catalog_of_rivals)

    assert type(loaded.model) is FullyConnectedNetwork
    assert loaded.dist_class is Categorical
    assert type(loaded.preprocessor) is NoPreprocessor
    assert_same_policy(policy, loaded, sample_observations(THREE_FEATURES))


def test_load_uses_the_saved_choices_for_nested_spaces(directory, catalog_of_rivals):
    nested = spaces.Tuple([spaces.Dict({"a": THREE_FEATURES}), THREE_FEATURES])
    rlcatalog.build(nested, TWO_ACTIONS, catalog=make_catalog()).save(directory)

    loaded = loading.load(directory, catalog=catalog_of_rivals)

    # A lookup would now choose RivalPreprocessor for both Boxes.
    of_dict, of_box = loaded.preprocessor.children
    assert type(of_dict.children[0]) is NoPreprocessor
    assert type(of_box) is NoPreprocessor


def test_custom_names_keep_their_meaning(directory, catalog_of_rivals):
    config = {
        "custom_model": "fcnet",
        "custom_action_dist": "categorical",
        "custom_preprocessor": "none",
    }
    rlcatalog.build(THREE_FEATURES, TWO_ACTIONS, config, catalog=make_catalog()).save(directory)

    loaded = loading.load(directory, catalog=catalog_of_rivals)

    assert type(loaded.model) is FullyConnectedNetwork
    assert loaded.dist_class is Categorical
    assert type(loaded.preprocessor) is NoPreprocessor


@pytest.fixture
def catalog_of_memories(module, entry_point, plugin):
    """A catalog with a preferred plugin, whose memory a lookup chooses for every observation."""
    module(Memory=RivalModel)
    targets = {"torch": "made_up_parts:Memory"}
    memory = ModelSpec("rival", targets, "", match=match_everything, slot="memory")
    memories = entry_point("memories", plugin(rlcatalog_models=[memory]))
    return make_catalog(memories, prefer=["memories"])


def test_lookup_chooses_the_new_memory(catalog_of_memories):
    # Otherwise the next test would prove nothing.
    assert (
        catalog_of_memories.resolve(THREE_FEATURES, TWO_ACTIONS).choices["memory"].part.name
        == "rival"
    )


def test_policy_without_memory_is_loaded_without_memory(directory, catalog_of_memories):
    policy = rlcatalog.build(THREE_FEATURES, TWO_ACTIONS, {}, catalog=make_catalog())
    policy.save(directory)

    loaded = loading.load(directory, catalog=catalog_of_memories)

    assert loaded.resolution.choices["memory"].part is None
