"""Random configs: each gives an explanation, or an error that names its key.

Nothing here imports a framework, because a lookup needs none.

Crosses: all packages.
"""

import random
import time
import warnings

import numpy as np
import odd_values
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
#: Switch → a value that turns it on. Drawn often, because other keys do nothing without it.
SWITCHES = {
    "use_lstm": True, "use_attention": True, "use_autoregressive": True,
    "observation_filter": "MeanStdFilter", "free_log_std": True, "no_final_linear": True,
    "vf_share_layers": False, "custom_preprocessor": "onehot", "custom_model": "visionnet",
    "custom_action_dist": "deterministic", "sequence_max_len": 2, "text_max_length": 2,
    "conv_filters": [[4, [3, 3], 2]], "post_fcnet_hiddens": [2],
    "fcnet_weights_initializer": "uniform", "lstm_weights_initializer": "uniform",
    "conv_kernel_initializer": "uniform",
}  # fmt: skip
#: The CPU time that one config may take, in seconds.
LONGEST = 1.0
#: How often a slow config is tried, because a first import may fall into its time.
TRIES = 3


@pytest.fixture(scope="module")
def catalog():
    return rlcatalog.default_catalog()


def draw_config(rng, keys):
    """Draw a config: some switches, and keys with odd values.

    Now and then a key is one of earlier versions of RLlib, or of none. Rarely, the config is no
    mapping.
    """
    if rng.random() < 0.03:
        return odd_values.draw_value(rng)
    switches = rng.sample(sorted(SWITCHES), rng.choice([0, 0, 1, 2, 4]))
    config = {name: SWITCHES[name] for name in switches}
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        config[draw_key(rng, keys)] = odd_values.draw_value(rng)
    return config


def draw_key(rng, keys):
    share = rng.random()
    if share < 0.85:
        return rng.choice(keys)
    if share < 0.95:
        misspelled = ["model", "fcnet_hidden", "use_lstmm", "resnet_x"]
        return rng.choice([*RENAMED, *IGNORED, *REFUSED, *misspelled])
    return odd_values.draw_key(rng)


def possible_causes(config):
    """Return the names by which an error may call its cause: keys, and names of parts."""
    if not isinstance(config, dict):
        return []
    texts = [key for key in config if type(key) is str and key]
    for value in config.values():
        parts = value.values() if type(value) is dict else [value]
        texts += [part for part in parts if isinstance(part, str)]
    # As a message shows them: the beginning, with escapes, in any case.
    return [(repr(text[:100])[1:-1] or "''").lower() for text in texts]


def explain_and_time(catalog, config, spaces):
    """Explain a config, and return the message of its error, or None, and the CPU time."""
    start = time.process_time()
    message = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            catalog.explain(*spaces, config, "torch").as_dict()
    except CatalogError as error:
        message = str(error)
    return message, time.process_time() - start


def find_fault(catalog, seed):
    """Try the config of a seed, and return what is wrong with how it ended, or None."""
    rng = random.Random(f"config {seed}")
    config = draw_config(rng, sorted(catalog.schema.keys))
    spaces = rng.choice(SPACES)
    for _ in range(TRIES):
        try:
            message, seconds = explain_and_time(catalog, config, spaces)
        except BaseException as error:
            return f"seed {seed}: {type(error).__name__} is no CatalogError"
        if seconds <= LONGEST:
            break
    else:
        return f"seed {seed}: took {seconds:.1f} s"
    if message is None:
        return None
    causes = possible_causes(config)
    if "model config" not in message and not any(cause in message.lower() for cause in causes):
        return f"seed {seed}: names none of {causes}: {message}"
    if len(message) > 4_000 or not message.isprintable():
        return f"seed {seed}: no readable message of {len(message)} characters: {message[:300]!r}"
    return None


def find_faults(catalog, seeds):
    faults = [find_fault(catalog, seed) for seed in seeds]
    return [fault for fault in faults if fault is not None]


def test_random_config_is_explained_or_an_error_names_its_key(catalog):
    assert find_faults(catalog, range(250)) == []


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_ten_thousand_configs_are_explained_or_errors_name_keys(catalog, part):
    assert find_faults(catalog, range(part * 1_000, (part + 1) * 1_000)) == []


# --- values in messages ---------------------------------------------------------------------------


def test_shown_is_one_short_line_for_odd_values():
    rng = random.Random("shown")
    for _ in range(300):
        text = shown(odd_values.draw_value(rng))
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
def test_shown_is_repr_for_short_values(value):
    assert shown(value) == repr(value)


# --- initialisers ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments", "advice"),
    [
        ("normal", {"std": -1.0}, "needs std >= 0"),
        ("normc", {"std": -2}, "needs std >= 0"),
        ("uniform", {"a": 1}, "needs a <= b"),  # b is 0.05 by default
    ],
)
def test_impossible_initialiser_arguments_are_rejected(catalog, name, arguments, advice):
    config = {"fcnet_weights_initializer": name, "fcnet_weights_initializer_config": arguments}
    with pytest.raises(ConfigError, match=advice) as caught:
        catalog.parse_config(config)
    assert "'fcnet_weights_initializer_config': " in str(caught.value)


@pytest.mark.parametrize("framework", ["torch", "tf"])
def test_initialiser_that_raises_is_named(catalog, framework):
    pytest.importorskip({"torch": "torch", "tf": "tensorflow"}[framework])

    def raise_error(*arguments):
        raise ZeroDivisionError("called")

    config = {"fcnet_weights_initializer": raise_error}
    with pytest.raises(ConfigError, match="raised ZeroDivisionError: called") as caught:
        rlcatalog.build(*SPACES[0], config, framework, catalog=catalog)
    assert "raise_error at " in str(caught.value)
