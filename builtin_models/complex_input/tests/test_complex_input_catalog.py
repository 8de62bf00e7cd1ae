"""The complex-input network through the catalog: when it is chosen, what it explains, what it keeps
and refuses.
"""

from __future__ import annotations

import numpy as np
import pytest
import warm
from gymnasium import spaces

import rlcatalog
from rlcatalog import Match, ModelCatalog, ModelSpec, Rank, Stage
from rlcatalog.errors import (
    AmbiguousChoiceError,
    ConfigError,
    UnknownNameError,
    UnsupportedSpaceError,
)
from rlcatalog.spaces import Repeated
from rlcatalog_policy import load

FRAMEWORKS = ["torch", "tf"]
IMAGE, VECTOR = spaces.Box(0, 255, (4, 4, 3), np.uint8), spaces.Box(-1, 1, (3,), np.float32)
MIXED = spaces.Dict(
    {"camera": IMAGE, "speed": VECTOR, "units": Repeated(spaces.Tuple((VECTOR, VECTOR)), 3)}
)
ACTIONS = spaces.Discrete(3)
CONFIG = {"fcnet_hiddens": [5]}


# --- when it is chosen ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "image"),
    [
        (MIXED, "obs['camera']"),
        (spaces.Tuple((VECTOR, IMAGE)), "obs[1]"),
        (spaces.Dict({"a": spaces.Tuple((VECTOR, spaces.Dict({"b": IMAGE})))}), "obs['a'][1]['b']"),
        (spaces.Dict({"frames": Repeated(IMAGE, 2)}), "obs['frames'][:]"),
        (spaces.Tuple((spaces.Sequence(spaces.Dict({"b": IMAGE})),)), "obs[0][:]['b']"),
    ],
    ids=str,
)
def test_an_image_among_the_parts_decides_for_it(space, image, catalog):
    model = catalog.explain(space, ACTIONS, {"sequence_max_len": 2}).as_dict()["model"]
    assert (model["chosen"], model["distribution"]) == ("complex_input", "rlcatalog-complex-input")
    assert model["reason"] == f"gives the image {image} and each other part a separate net"
    ranks = {candidate["name"]: candidate["rank"] for candidate in model["candidates"]}
    assert ranks == {"complex_input": "GENERIC", "fcnet": "FALLBACK"}


@pytest.mark.parametrize(
    ("space", "why"),
    [
        (
            spaces.Dict({"a": VECTOR, "b": spaces.Discrete(3)}),
            "no part of the observation is an image",
        ),
        (
            spaces.Tuple((VECTOR, spaces.Box(0, 1, (2, 2, 2, 2)))),
            "no part of the observation is an image",
        ),
        (VECTOR, "takes Dict and Tuple observations; this is a box"),
        (IMAGE, "takes Dict and Tuple observations; this is a box"),
        (Repeated(IMAGE, 2), "takes Dict and Tuple observations; this is a repeated"),
    ],
    ids=str,
)
def test_others_it_leaves_and_can_be_named_for(space, why, catalog):
    model = catalog.explain(space, ACTIONS).as_dict()["model"]
    assert model["chosen"] == "fcnet"
    [reason] = [
        candidate["reason"]
        for candidate in model["candidates"]
        if candidate["name"] == "complex_input"
    ]
    assert reason.startswith(why)
    for framework in FRAMEWORKS:
        policy = rlcatalog.build(
            space, ACTIONS, {**CONFIG, "custom_model": "complex_input"}, framework, catalog=catalog
        )
        assert type(policy.model).__name__ == "ComplexInputNetwork"
        step = policy.act([space.sample() for _ in range(2)])
        assert step.dist_inputs.shape == (2, 3)
        assert np.isfinite(step.value).all()


def test_both_frameworks_export_the_class():
    from rlcatalog_tf import ComplexInputNetwork as TFNet
    from rlcatalog_torch import ComplexInputNetwork as TorchNet

    assert TorchNet.framework_of_class == "torch"
    assert TFNet.framework_of_class == "tf"


# --- what it explains -----------------------------------------------------------------------------


def test_explain_lists_each_part_with_its_net(catalog):
    config = {**CONFIG, "post_fcnet_hiddens": [7, 6], "no_final_linear": True}
    shapes = catalog.explain(MIXED, ACTIONS, config).as_dict()["shapes"]
    assert [(row["stage"], row["shape"]) for row in shapes[2:-2]] == [
        ("complex_input: obs['camera']: fcnet: hidden 1 (tanh)", [5]),
        ("complex_input: obs['speed']: fcnet: hidden 1 (tanh)", [5]),
        ("complex_input: obs['units'][:][0]: fcnet: hidden 1 (tanh)", [5]),
        ("complex_input: obs['units'][:][1]: fcnet: hidden 1 (tanh)", [5]),
        ("complex_input: obs['units']: average of the items, length", [11]),
        ("complex_input: concatenated features", [21]),
        ("complex_input: post_fcnet 1 (relu)", [7]),
        ("complex_input: value", []),
        ("complex_input: logits (relu)", [3]),
    ]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, ["scaled to [0, 1]", "scaled to [0, 1]"]),
        ({"image_scale": 0.5}, ["", "scaled to [0, 1]"]),
    ],
    ids=["by bounds", "image_scale is given"],
)
def test_explain_says_what_scales_each_part(config, said):
    """A factor for images replaces the scaling by their bounds, and leaves the other parts."""
    camera = spaces.Box(0, 255, (84, 84, 3), np.uint8)
    space = spaces.Dict({"camera": camera, "items": spaces.Box(0, 9, (3,), np.int64)})
    explanation = rlcatalog.build(space, spaces.Discrete(2), config, "torch").explain()
    assert [leaf["scaling"] for leaf in explanation.as_dict()["plan"]] == said


def test_a_net_that_does_not_tell_its_shapes(fresh_catalog):
    catalog = fresh_catalog()
    catalog.register(ModelSpec("silent", {"torch": "nowhere:Silent"}, "says nothing"))
    config = {**CONFIG, "input_nets": {"obs['speed']": "silent"}, "post_fcnet_hiddens": [7]}
    shapes = {
        row["stage"]: row["shape"]
        for row in catalog.explain(MIXED, ACTIONS, config).as_dict()["shapes"]
    }
    assert shapes["complex_input: obs['speed']: silent: output"] is None
    assert shapes["complex_input: concatenated features"] is None
    assert shapes["complex_input: post_fcnet 1 (relu)"] == [7]


def test_sizes_that_only_the_preprocessor_knows(catalog):
    space = spaces.Dict({"frames": spaces.Sequence(IMAGE)})
    preprocessor = catalog.preprocessor_for(space, catalog.parse_config({"sequence_max_len": 2}))
    model = catalog.model_v2(preprocessor.observation_space, ACTIONS, 3, CONFIG, "torch")
    assert model.hidden.outputs == 6


# --- the nets that are named ----------------------------------------------------------------------


def refusal(catalog, kind, names):
    with pytest.raises(kind) as caught:
        catalog.resolve(MIXED, ACTIONS, {**CONFIG, "input_nets": names})
    return str(caught.value)


def test_an_unknown_path_is_refused_with_the_known_ones(catalog):
    assert refusal(catalog, ConfigError, {"obs['camra']": "fcnet"}) == (
        "input_nets: \"obs['camra']\" is not a part of the observation. Did you mean"
        " \"obs['camera']\"? Parts: obs['camera'], obs['speed'], obs['units'][:][0],"
        " obs['units'][:][1]."
    )
    assert "obs['units']\" is not a part" in refusal(
        catalog, ConfigError, {"obs['units']": "fcnet"}
    )


def test_an_unknown_name_is_refused_with_the_known_ones(catalog):
    said = refusal(catalog, UnknownNameError, {"obs['camera']": "fnet"})
    assert said.startswith(
        "input_nets: for \"obs['camera']\": Unknown model 'fnet'. Did you mean 'fcnet'?"
    )
    assert "Known: complex_input, fcnet." in said


def test_a_model_that_is_no_trunk_is_refused(fresh_catalog):
    catalog = fresh_catalog()
    catalog.register(ModelSpec("recall", {"torch": "nowhere:Recall"}, "a memory", slot="memory"))
    said = refusal(catalog, ConfigError, {"obs['speed']": "recall"})
    assert said == (
        "input_nets: for \"obs['speed']\": 'recall' is a memory, not a trunk."
        " Name a model that takes observations as input."
    )


def test_a_wrong_type_is_refused(catalog):
    with pytest.raises(ConfigError, match=r"'input_nets'.*expected 'str', got 'int'"):
        catalog.parse_config({"input_nets": {"obs['speed']": 3}})


def test_a_tie_says_how_to_name_one(fresh_catalog):
    catalog = fresh_catalog()
    as_good = lambda request: Match(Rank.GENERIC, "I say so")  # noqa: E731
    for name in ("twin", "other_twin"):
        catalog.register(ModelSpec(name, {"torch": "nowhere:Twin"}, "as good", match=as_good))
    with pytest.raises(AmbiguousChoiceError, match="equally well") as caught:
        catalog.resolve(MIXED, ACTIONS, {**CONFIG, "custom_model": "complex_input"})
    assert "To choose a net for this part only, set input_nets={\"obs['camera']\": name}." in str(
        caught.value
    )


def test_the_named_net_is_taken(fresh_catalog):
    catalog = fresh_catalog()
    stages = lambda request: [Stage("all zeros", (2,))]  # noqa: E731
    catalog.register(ModelSpec("zeros", {"torch": "nowhere:Zeros"}, "zeros", describe=stages))
    config = {**CONFIG, "input_nets": {"obs['units'][:][1]": "zeros"}}
    shapes = {
        row["stage"]: row["shape"]
        for row in catalog.explain(MIXED, ACTIONS, config).as_dict()["shapes"]
    }
    assert shapes["complex_input: obs['units'][:][1]: zeros: all zeros"] == [2]
    assert shapes["complex_input: obs['units']: average of the items, length"] == [8]


# --- saving ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_saved_policy_never_chooses_again(framework, fresh_catalog, tmp_path):
    policy = rlcatalog.build(
        MIXED, ACTIONS, {**CONFIG, "vf_share_layers": False}, framework, catalog=fresh_catalog()
    )
    observations = [MIXED.sample() for _ in range(4)]
    expected = policy.act(observations, explore=False)
    policy.save(tmp_path / "saved")
    later = fresh_catalog()
    later.register(
        ModelSpec(
            "better",
            {"torch": "a:B", "tf": "a:B"},
            "new",
            match=lambda r: Match(Rank.SPECIFIC, "I am new"),
        )
    )
    assert "better" in later.explain(MIXED, ACTIONS, CONFIG, framework).as_dict()["model"]["chosen"]
    again = load(tmp_path / "saved", catalog=later)
    assert set(again.config["input_nets"].values()) == {"rlcatalog-fcnet/fcnet"}
    found = again.act(observations, explore=False)
    np.testing.assert_array_equal(found.dist_inputs, expected.dist_inputs)
    np.testing.assert_array_equal(found.value, expected.value)


# --- refusals, before a framework is imported -----------------------------------------------------


def test_no_final_linear_needs_layers_of_the_models_own(catalog):
    with pytest.raises(ConfigError) as caught:
        catalog.resolve(MIXED, ACTIONS, {**CONFIG, "no_final_linear": True})
    assert str(caught.value) == (
        "no_final_linear uses the last post_fcnet layer as the output, but post_fcnet_hiddens is"
        " empty. Set post_fcnet_hiddens, or no_final_linear=False."
    )


def test_observations_that_are_not_encoded_are_refused(catalog):
    expected = (
        "complex_input needs encoded observations, not observations of Dict(a: Discrete(2)): pass"
        " ModelCatalog.get_preprocessor_for_space(space).observation_space."
    )
    space = spaces.Dict({"a": spaces.Discrete(2)})
    # The catalog encodes them.
    model = catalog.model_v2(space, ACTIONS, 3, {"custom_model": "complex_input"})
    assert model.obs_space.original_space is space
    from rlcatalog_torch import ComplexInputNetwork

    with pytest.raises(UnsupportedSpaceError) as caught:
        ComplexInputNetwork(space, ACTIONS, 3, {}, "net")
    assert str(caught.value) == expected


def test_an_observation_without_values_is_refused(catalog):
    space = spaces.Dict({"a": spaces.Box(0, 1, (0,)), "b": Repeated(VECTOR, 0)})
    with pytest.raises(UnsupportedSpaceError, match=r"^obs: Dict\(a: .*\) has no values\.$"):
        catalog.resolve(space, ACTIONS, {"custom_model": "complex_input"})


BAD = """
import sys
import gymnasium as gym
import numpy as np
import rlcatalog
from rlcatalog.errors import CatalogError

space = gym.spaces.Dict(
    {"a": gym.spaces.Box(0, 255, (84, 84, 3), np.uint8), "b": gym.spaces.Discrete(3)}
)
catalog = rlcatalog.default_catalog()
for actions, config in [
    (2, {"input_nets": {"obs['c']": "fcnet"}}),
    (2, {"input_nets": {"obs['b']": "nobody"}}),
    (2, {"no_final_linear": True}),
    (3, {"free_log_std": True}),
]:
    for framework in ("torch", "tf"):
        box = gym.spaces.Discrete(actions)
        try:
            rlcatalog.build(space, box, config, framework)
        except CatalogError as error:
            print(type(error).__name__, sorted({"torch", "tensorflow"} & set(sys.modules)))
        else:
            print(config, "was accepted")
"""


def test_a_wrong_config_is_refused_before_a_framework_is_imported(tmp_path):
    done = warm.run(["-c", BAD], tmp_path, frameworks=False)
    kinds = ["ConfigError", "UnknownNameError", "ConfigError", "ConfigError"]
    assert done.stdout.splitlines() == [f"{kind} []" for kind in kinds for _ in range(2)]


def test_rllibs_way_in():
    preprocessor = ModelCatalog.get_preprocessor_for_space(MIXED)
    config = {**CONFIG, "input_nets": {"obs['camera']": "fcnet"}}
    model = ModelCatalog.get_model_v2(
        preprocessor.observation_space, ACTIONS, 3, config, framework="torch"
    )
    assert type(model).__name__ == "ComplexInputNetwork"
