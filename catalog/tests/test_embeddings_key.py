"""The config key `embeddings`: what it names, what is chosen for it, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

import rlcatalog
from rlcatalog.errors import (
    ConfigError,
    NotServedError,
    OneHotWarning,
    UnsupportedSpaceError,
)
from rlcatalog.observations import Preprocessor
from rlcatalog.spaces import Repeated, SpaceInfo, embedding_size

PAIR = spaces.Box(-1, 1, (2,), np.float32)
IMAGE = spaces.Box(0, 255, (8, 8, 3), np.uint8)
SHOP = spaces.Dict(
    {
        "item": spaces.Discrete(500),
        "price": PAIR,
        "shelf": spaces.Dict({"tags": spaces.MultiDiscrete([3, 4])}),
        "name": spaces.Text(5, charset="abc"),
    }
)
TWO_ACTIONS = spaces.Discrete(2)


def explain(space, embeddings, **config):
    return rlcatalog.explain(space, TWO_ACTIONS, {"embeddings": embeddings, **config})


def codecs_by_path(space, embeddings, **config):
    """Return the name of the codec of each part of an observation."""
    parts = explain(space, embeddings, **config).resolution.preprocessor.parts()
    return {path: part.name for path, part in parts}


# --- which leaves are encoded as ids --------------------------------------------------------------


def test_named_leaves_travel_as_ids():
    names = codecs_by_path(SHOP, {"item": 8, "obs['shelf']['tags']": 2})

    assert names["obs['item']"] == "index"
    assert names["obs['shelf']['tags']"] == "index"
    assert names["obs['name']"] == "text"


def test_other_leaves_become_one_hots():
    names = codecs_by_path(SHOP, {"name": 8})

    assert names["obs['item']"] == "onehot"


def test_number_names_an_observation_of_one_leaf():
    assert codecs_by_path(spaces.Discrete(5), 8) == {"obs": "index"}


def test_number_names_the_leaf_beside_a_mask():
    space = spaces.Dict({"action_mask": spaces.MultiBinary(2), "item": spaces.Discrete(5)})

    assert codecs_by_path(space, 8)["obs['item']"] == "index"


@pytest.mark.parametrize(
    ("embeddings", "size"),
    [
        pytest.param(None, None, id="none"),
        pytest.param({"item": 4}, 4, id="short-path"),
        pytest.param({"obs['item']": 4}, 4, id="python-path"),
        pytest.param({"other": 4}, None, id="another-leaf"),
        pytest.param(4, 4, id="number"),
    ],
)
def test_embedding_size_reads_both_spellings(embeddings, size):
    leaf = SpaceInfo.read(spaces.Discrete(5), "obs['item']")

    assert embedding_size(embeddings, leaf) == size


def test_embedding_size_is_none_for_what_contains_leaves():
    assert embedding_size(4, SpaceInfo.read(SHOP)) is None


# --- which net embeds -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "embeddings", "trunk"),
    [
        pytest.param(SHOP, {"item": 8}, "fcnet", id="vector"),
        pytest.param(spaces.Discrete(5), 8, "fcnet", id="single-leaf"),
        pytest.param(
            spaces.Dict({"eye": IMAGE, "item": spaces.Discrete(5)}),
            {"item": 8},
            "complex_input",
            id="beside-an-image",
        ),
        pytest.param(
            spaces.Dict({"price": PAIR, "units": Repeated(spaces.Discrete(5), 2)}),
            {"units[:]": 8},
            "complex_input",
            id="items-of-a-list",
        ),
        pytest.param(Repeated(spaces.Discrete(5), 2), 8, "complex_input", id="list"),
    ],
)
def test_default_trunk_embeds(space, embeddings, trunk):
    assert explain(space, embeddings).as_dict()["model"]["chosen"] == trunk


def test_mask_leaves_the_trunk_a_single_leaf():
    space = spaces.Dict({"action_mask": spaces.MultiBinary(2), "item": spaces.Discrete(5)})
    config = {"embeddings": {"item": 8}, "fcnet_hiddens": [4]}

    policy = rlcatalog.build(space, TWO_ACTIONS, config, "torch")

    shapes = {name: array.shape for name, array in policy.model.get_weights().items()}
    assert shapes["trunk.input_embedding.tables.0.weight"] == (5, 8)
    assert policy.act([{"action_mask": np.int8([0, 1]), "item": 4}]).action == [1]


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_critic_embeds_what_its_group_shows(framework):
    config = {
        "embeddings": {"item": 8, "shelf.tags": 2},
        "fcnet_hiddens": [4],
        "critic": {"fcnet_hiddens": [6]},
        "obs_groups": {"policy": ["item", "price"], "critic": ["name", "price", "shelf"]},
    }

    policy = rlcatalog.build(SHOP, TWO_ACTIONS, config, framework)

    shapes = {name: array.shape for name, array in policy.model.get_weights().items()}
    assert shapes["policy.input_embedding.tables.0.weight"] == (500, 8)
    assert shapes["critic.input_embedding.tables.0.weight"] == (7, 2)  # 3 and 4 tags
    step = policy.act([SHOP.sample()])
    assert np.isfinite(step.value).all()


# --- what explain shows ---------------------------------------------------------------------------


def test_plan_shows_the_ids_of_each_leaf():
    plan = explain(SHOP, {"item": 8, "shelf.tags": 2, "name": 4}).as_dict()["plan"]

    notes = {leaf["path"]: leaf["embedding"] for leaf in plan}
    assert notes == {
        "obs['item']": "500 ids, embedded in 8 numbers",
        "obs['price']": "",
        "obs['shelf']['tags']": "7 ids of 2 entries, each embedded in 2 numbers",
        "obs['name'].values": "3 characters, embedded in 4 numbers, averaged",
        "obs['name'].mask": "",
    }


def test_plan_shows_the_ids_inside_a_list():
    space = spaces.Dict({"units": Repeated(spaces.Dict({"kind": spaces.Discrete(5)}), 2)})
    plan = explain(space, {"units[:].kind": 8}).as_dict()["plan"]

    notes = [leaf["embedding"] for leaf in plan]
    assert notes == ["", "obs['units'][:]['kind']: 5 ids, embedded in 8 numbers"]


def test_text_shows_the_table():
    text = explain(SHOP, {"item": 8}, fcnet_hiddens=[4]).text()

    assert "fcnet: embedding of obs['item'] (table of 500 x 8)" in text
    assert "discrete, 0:1, 500 ids, embedded in 8 numbers" in text


def test_many_one_hots_warn_of_embeddings():
    space = spaces.Dict({"item": spaces.Discrete(20_000), "price": PAIR})

    with pytest.warns(OneHotWarning, match=r"Set embeddings=\{\"obs\['item'\]\": 64\}"):
        rlcatalog.default_catalog().resolve(space, TWO_ACTIONS)


def test_embedded_ids_do_not_warn(recwarn):
    rlcatalog.default_catalog().resolve(spaces.Discrete(20_000), TWO_ACTIONS, {"embeddings": 4})

    assert [warning for warning in recwarn if warning.category is OneHotWarning] == []


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "embeddings", "error", "message"),
    [
        pytest.param(SHOP, {"itm": 8}, ConfigError, "'itm' is not a part of", id="unknown-path"),
        pytest.param(SHOP, {"price": 8}, ConfigError, "which has no ids to look up", id="box"),
        pytest.param(SHOP, {"shelf": 8}, ConfigError, "which has no ids to look up", id="dict"),
        pytest.param(SHOP, {"item": 0}, ConfigError, "'embeddings' .*>= 1", id="size-0"),
        pytest.param(SHOP, {"item": "8"}, ConfigError, "'embeddings'", id="text-as-size"),
        pytest.param(
            SHOP,
            {"item": 8, "obs['item']": 4},
            ConfigError,
            "are the same leaf",
            id="named-twice",
        ),
        pytest.param(SHOP, 8, ConfigError, "a number is for an observation that", id="number"),
        pytest.param(PAIR, 8, ConfigError, "which has no ids to look up", id="number-for-a-box"),
        pytest.param(
            spaces.Discrete(2**24 + 2), 8, UnsupportedSpaceError, "ids up to ±16,777,217", id="huge"
        ),
        pytest.param(
            spaces.Discrete(3, start=-(2**24) - 1),
            8,
            UnsupportedSpaceError,
            "ids up to ±16,777,217",
            id="far-below-zero",
        ),
        pytest.param(
            spaces.Dict({"one": spaces.OneOf([PAIR, spaces.Discrete(3)])}),
            {"one[1]": 8},
            NotServedError,
            r"inside obs\['one'\]",
            id="one-of",
        ),
        pytest.param(
            spaces.Dict({"graph": spaces.Graph(spaces.Discrete(3), None)}),
            {"obs['graph'].nodes[:]": 8},
            NotServedError,
            r"inside obs\['graph'\]",
            id="graph",
        ),
    ],
)
def test_leaf_that_cannot_be_embedded_is_refused(space, embeddings, error, message):
    with pytest.raises(error, match=message):
        explain(space, embeddings, graph_max_nodes=3)


def test_unknown_path_lists_the_parts():
    with pytest.raises(ConfigError) as caught:
        explain(SHOP, {"itm": 8})

    assert "Did you mean 'item'?" in str(caught.value)
    assert "obs['shelf']['tags']" in str(caught.value)


def test_largest_id_that_float32_represents_is_served():
    assert explain(spaces.Discrete(2**24 + 1), 1).as_dict()["model"]["chosen"] == "fcnet"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_custom_preprocessor_is_refused(catalog):
    class Halves(Preprocessor):
        def _init_shape(self, obs_space, options):
            return (1,)

        def transform(self, observation):
            return np.float32([observation / 2])

    catalog.register_preprocessor("halves", Halves)
    config = {"embeddings": 8, "custom_preprocessor": "halves"}

    with pytest.raises(ConfigError, match="a custom_preprocessor encodes the whole"):
        catalog.resolve(spaces.Discrete(5), TWO_ACTIONS, config)


@pytest.mark.parametrize(
    ("space", "embeddings", "path"),
    [
        pytest.param(SHOP, {"item": 8}, "item", id="leaf"),
        pytest.param(SHOP, {"name": 8}, "name", id="text"),
        pytest.param(
            spaces.Dict({"units": Repeated(spaces.Dict({"kind": spaces.Discrete(3)}), 2)}),
            {"units[:].kind": 8},
            "units",
            id="inside-a-list",
        ),
    ],
)
def test_filter_of_ids_is_refused(space, embeddings, path):
    with pytest.raises(ConfigError, match=r"changes the ids of .*filter_exclude="):
        explain(space, embeddings, observation_filter="MeanStdFilter", filter_include=[path, "obs"])


def test_filter_leaves_ids_alone():
    space = spaces.Dict({"item": spaces.Discrete(5), "price": PAIR})
    data = explain(space, {"item": 8}, observation_filter="MeanStdFilter").as_dict()

    assert data["filtered"] == ["obs['price']"]


def test_scaling_leaves_ids_alone():
    space = spaces.Dict({"item": spaces.Discrete(5), "level": spaces.Box(0, 9, (1,), np.int64)})
    plan = explain(space, {"item": 8}).as_dict()["plan"]

    assert [leaf["scaling"] for leaf in plan] == ["", "scaled to [0, 1]"]


def test_plain_module_does_not_embed():
    torch = pytest.importorskip("torch")

    with pytest.raises(ConfigError, match="does not look ids up in a table"):
        explain(spaces.Discrete(5), 8, custom_model=torch.nn.Linear)


def test_class_in_rllibs_form_may_embed_them_itself():
    from rlcatalog_torch import TorchModelV2

    class OwnNet(TorchModelV2):
        pass

    data = explain(SHOP, {"item": 8}, custom_model=OwnNet).as_dict()

    views = {view["name"]: view for view in data["model_sees"]}
    assert views["obs['item']"] == {"name": "obs['item']", "shape": [], "dtype": "int64"}


def test_critic_cannot_have_other_embeddings():
    with pytest.raises(ConfigError, match="'embeddings' is about both"):
        explain(SHOP, {"item": 8}, critic={"embeddings": {"item": 4}})
