"""Configs that nobody means to write: each builds, or is refused with a message that names its key.

Nothing here imports a framework: a lookup needs none.

Crosses: all packages.
"""

import ast
import random
import time
import warnings

import odd_values
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Sequence, Text, Tuple

import rlcatalog
from rlcatalog.config.rllib_keys import IGNORED, REFUSED, RENAMED
from rlcatalog.errors import CatalogError, ConfigError, shown

SPACES = [
    (Box(-1, 1, (4,)), Discrete(2)),
    (Box(0, 255, (42, 42, 3), np.uint8), Box(-1, 1, (3,))),
    (Dict(a=Box(-1, 1, (3,)), b=Discrete(4), action_mask=MultiBinary(3)), Discrete(3)),
    (Tuple([Discrete(3), Box(0, 1, (2, 2))]), Tuple([Discrete(2), Box(-1, 1, (2,))])),
    (Dict(a=Text(4), b=Sequence(Discrete(3))), MultiDiscrete([2, 3])),
    (Dict(avail_actions=Box(-1, 1, (4, 3)), a=Box(-1, 1, (2,))), Discrete(4)),
]
#: Of each switch, what turns it on; drawn often, since others do nothing without it.
SWITCHES = {
    "use_lstm": True, "use_attention": True, "use_autoregressive": True,
    "observation_filter": "MeanStdFilter", "free_log_std": True, "no_final_linear": True,
    "vf_share_layers": False, "custom_preprocessor": "onehot", "custom_model": "visionnet",
    "custom_action_dist": "deterministic", "sequence_max_len": 2, "text_max_length": 2,
    "conv_filters": [[4, [3, 3], 2]], "post_fcnet_hiddens": [2],
    "fcnet_weights_initializer": "uniform", "lstm_weights_initializer": "uniform",
    "conv_kernel_initializer": "uniform",
}  # fmt: skip
#: What one config may take, in seconds of this process.
AT_MOST = 1.0


@pytest.fixture(scope="module")
def catalog():
    return rlcatalog.default_catalog()


def config(rng, keys):
    """Draw a config: some switches, some keys with values of any kind, now and then a key of
    another time or none.
    """
    if rng.random() < 0.03:
        return odd_values.value(rng)
    found = {
        name: SWITCHES[name] for name in rng.sample(sorted(SWITCHES), rng.choice([0, 0, 1, 2, 4]))
    }
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        drawn = rng.random()
        if drawn < 0.85:
            name = rng.choice(keys)
        elif drawn < 0.95:
            name = rng.choice(
                [*RENAMED, *IGNORED, *REFUSED, "model", "fcnet_hidden", "use_lstmm", "resnet_x"]
            )
        else:
            name = odd_values.key(rng)
        found[name] = odd_values.value(rng)
    return found


def names_in(asked):
    """Return what an error may call its cause by: a key, or the name of a part that a
    key asks for.
    """
    if not isinstance(asked, dict):
        return []
    values = [part for v in asked.values() for part in (v.values() if type(v) is dict else [v])]
    names = [
        *(key for key in asked if type(key) is str and key),
        *filter(lambda v: isinstance(v, str), values),
    ]
    return [(str.__repr__(name[:100])[1:-1] or "''").lower() for name in names]


def fault(catalog, seed, tries=2):
    """Try one config; say what is wrong with how it ended, or None.

    A slow one is slow each time it is tried.
    """
    rng = random.Random(f"config {seed}")
    asked, (obs, action) = config(rng, sorted(catalog.schema.keys)), rng.choice(SPACES)
    began = time.process_time()
    said = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            catalog.explain(obs, action, asked, "torch").as_dict()
    except CatalogError as error:
        said = str(error)
    except BaseException as error:
        return f"seed {seed}: {type(error).__name__} is raw"
    if (took := time.process_time() - began) > AT_MOST:
        # A first import, or a collection of what other tests left, may fall into one config's time.
        return fault(catalog, seed, tries - 1) if tries else f"seed {seed}: took {took:.1f} s"
    if said is None:
        return None
    if "model config" not in said and not any(map(said.lower().__contains__, names_in(asked))):
        return f"seed {seed}: names none of {names_in(asked)}: {said}"
    if len(said) > 4_000 or not said.isprintable():
        return f"seed {seed}: no readable message of {len(said)} characters: {said[:300]!r}"
    return None


def attack(catalog, seeds):
    faults = [found for seed in seeds if (found := fault(catalog, seed))]
    assert not faults, f"{len(faults)} of {len(seeds)}:\n" + "\n".join(faults[:20])


def test_a_config_of_any_kind_is_used_or_refused_by_its_key(catalog):
    attack(catalog, [*range(250), 4314])  # whose preprocessor raises at every attribute


@pytest.mark.attack
@pytest.mark.parametrize("part", range(10))
def test_ten_thousand_configs_are_used_or_refused_by_their_keys(catalog, part):
    attack(catalog, range(part * 1_000, (part + 1) * 1_000))


def test_a_message_shows_any_value_on_one_short_line():
    rng = random.Random("shown")
    for _ in range(300):
        value = odd_values.value(rng)
        text = shown(value)
        assert len(text) <= 300
        assert text.isprintable()


@pytest.mark.parametrize(
    "value",
    [
        [],
        (),
        (1,),
        {},
        {"b": 1, "a": [None]},
        {3},
        "it's",
        b"x",
        -1.5,
        [64, 64],
        {"a": ({"b": "c"}, [1e9])},
    ],
)
def test_a_short_value_is_shown_as_python_writes_it(value):
    assert ast.literal_eval(shown(value)) == value
    assert shown(value) == repr(value)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("normal", {"std": -1.0}), ("uniform", {"a": 1}), ("normc", {"std": -2})],
)
def test_arguments_no_initialiser_can_use_are_refused_by_their_key(catalog, name, arguments):
    config = {"fcnet_weights_initializer": name, "fcnet_weights_initializer_config": arguments}
    with pytest.raises(
        ConfigError, match=r"'fcnet_weights_initializer_config': .* needs (std >= 0|a <= b), found"
    ):
        catalog.parse_config(config)


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_an_initialiser_of_the_users_that_raises_is_named(catalog, framework):
    pytest.importorskip({"torch": "torch", "tf": "tensorflow"}[framework])
    with pytest.raises(
        ConfigError,
        match=r"the initialiser <function raises at .* raised ZeroDivisionError: called",
    ):
        rlcatalog.build(
            *SPACES[0], {"fcnet_weights_initializer": odd_values.raises}, framework, catalog=catalog
        )
