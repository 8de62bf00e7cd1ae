"""Threads that use one catalog or one policy.

Python switches between threads every microsecond here. By default most of these calls would end
before the next thread runs.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
from gymnasium import spaces
from torch import nn

import rlcatalog
from rlcatalog import ActionCodecSpec, Catalog, FrameworkSpec, ModelCatalog, SpaceInfo
from rlcatalog.actions import action_codec
from rlcatalog.catalog import default_catalog
from rlcatalog.frameworks import framework_name
from rlcatalog_torch import FullyConnectedNetwork, TorchModelV2

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

THREADS = 16
THREE_FEATURES = spaces.Box(-1, 1, (3,), np.float32)
FOUR_ACTIONS = spaces.Discrete(4)
LSTM = {"use_lstm": True, "lstm_cell_size": 4, "lstm_use_prev_action": True, "max_seq_len": 5}
#: Name → framework and config.
MODELS = {
    "torch": ("torch", {}),
    "torch-lstm": ("torch", LSTM),
    "torch-filter": ("torch", {"observation_filter": "MeanStdFilter"}),
    "tf": ("tf", {}),
    "tf-lstm": ("tf", LSTM),
}


@pytest.fixture(autouse=True)
def frequent_switches():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def no_default_catalog():
    """There is no default catalog before the test, and none of the test's after it."""
    default_catalog.cache_clear()
    yield
    default_catalog.cache_clear()


def run_in_threads(work, threads=THREADS):
    """Run `work(i)` for each i in a thread; all begin at once. Return the results in order."""
    barrier = Barrier(threads)

    def wait_and_work(i):
        barrier.wait()
        return work(i)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(wait_and_work, range(threads)))


def define_models(count):
    return [type(f"Model{i}", (FullyConnectedNetwork,), {}) for i in range(count)]


# --- catalogs -------------------------------------------------------------------------------------


def test_default_catalog_is_the_same_for_all_threads(no_default_catalog):
    catalogs = run_in_threads(lambda i: default_catalog())
    assert len({id(catalog) for catalog in catalogs}) == 1


def test_registrations_of_all_threads_are_kept(no_default_catalog):
    models = define_models(THREADS)

    run_in_threads(lambda i: ModelCatalog.register_custom_model(f"model_{i}", models[i]))

    parts = default_catalog().parts("model")
    registered = {part.name for part in parts if part.in_process}
    assert registered == {f"model_{i}" for i in range(THREADS)}


def list_plugins(catalog):
    return [(record.distribution, record.status, record.error) for record in catalog.plugins]


def test_catalogs_built_in_parallel_have_all_plugins():
    expected = list_plugins(Catalog(environ={}))
    assert {status for _, status, _ in expected} == {"loaded"}

    def build_catalogs(i):
        return [Catalog(environ={}) for _ in range(5)]

    for catalogs in run_in_threads(build_catalogs, threads=8):
        for catalog in catalogs:
            assert list_plugins(catalog) == expected


def choose_model(catalog, config):
    return catalog.resolve(THREE_FEATURES, FOUR_ACTIONS, config, "torch").choices["trunk"].part


@pytest.mark.parametrize("rounds", [5, pytest.param(200, marks=pytest.mark.slow)])
def test_lookups_find_models_while_others_are_registered(catalog, rounds):
    models = define_models(rounds)

    def register_and_look_up(name):
        for model in models:
            catalog.register_model(name, model)
            assert choose_model(catalog, {"custom_model": name}).load("torch") is model

    def look_up(hidden_units):
        for _ in range(rounds):
            assert choose_model(catalog, {"fcnet_hiddens": [hidden_units]}).name == "fcnet"
            # No part is missing meanwhile: there are more parts than plugins.
            assert len(catalog.parts()) >= len(catalog.plugins)
            catalog.parse_config({})

    def work(i):
        if i % 2 == 0:
            register_and_look_up(f"model_{i}")
        else:
            look_up(hidden_units=i)

    run_in_threads(work)

    # Half of the threads have registered one name each.
    registered = [part for part in catalog.parts("model") if part.in_process]
    assert len(registered) == THREADS // 2


# `catalog` is requested so that the tables of frameworks and codecs are filled.
@pytest.mark.usefixtures("catalog")  # which fills the tables of frameworks and codecs
def test_lookups_work_while_frameworks_and_codecs_are_added():
    def add_and_remove(name):
        targets = {"backend": "a:B", "ops": "a:C"}
        framework = FrameworkSpec(name, targets, "", module="acme")
        codec = ActionCodecSpec(name, {"numpy": "a:B"}, "", kinds=(f"acme.Space{name}",))
        assert framework.enter()
        assert codec.enter()
        assert framework_name(name) == name
        assert ActionCodecSpec.table.specs[f"acme.Space{name}"] is codec
        framework.leave()
        codec.leave()

    def look_up():
        assert framework_name("tf2") == "tf"
        codec = action_codec(SpaceInfo.read(FOUR_ACTIONS, "action"))
        assert type(codec).__name__ == "DiscreteCodec"

    def work(i):
        for turn in range(30):
            if i % 4 == 0:
                add_and_remove(f"acme{i}x{turn}")
            else:
                look_up()

    run_in_threads(work)


# --- policies -------------------------------------------------------------------------------------


def build_policy(name):
    framework, config = MODELS[name]
    policy = rlcatalog.build(
        THREE_FEATURES, FOUR_ACTIONS, {"fcnet_hiddens": [8], **config}, framework
    )
    if policy.filter is not None:
        policy.preprocess([THREE_FEATURES.sample() for _ in range(9)], update=True)
    return policy


def act(policy, obs, state):
    """Return all results of acting on a batch, as arrays."""
    step = policy.act(obs, state, explore=False)
    memory = () if step.state is None else step.state.memory
    return [step.action, step.raw_action, step.logp, step.value, step.dist_inputs, *memory]


def compute_all(policy, obs, state):
    """Return the results of acting, value estimates, and an evaluation, as arrays."""
    values = policy.values(policy.preprocess(obs), state)
    return [*act(policy, obs, state), values, *evaluate(policy, obs, state)]


@pytest.mark.parametrize(
    ("name", "turns"),
    [
        ("torch", 10),
        ("torch-lstm", 10),
        ("torch-filter", 10),
        ("tf", 10),
        pytest.param("tf-lstm", 10, marks=pytest.mark.slow),
        pytest.param("torch-lstm", 500, marks=pytest.mark.slow),
        pytest.param("tf-lstm", 500, marks=pytest.mark.slow),
    ],
)
def test_act_returns_each_thread_its_own_results(name, turns):
    policy = build_policy(name)
    rng = np.random.default_rng(0)
    # Each thread has its own observations, of one to three rows, and its own state.
    observations = [rng.uniform(-1, 1, (1 + i % 3, 3)).astype(np.float32) for i in range(THREADS)]
    states = [policy.act(obs, explore=False).state for obs in observations]
    expected = [compute_all(policy, observations[i], states[i]) for i in range(THREADS)]

    def compute_repeatedly(i):
        for _ in range(turns):
            results = compute_all(policy, observations[i], states[i])
            for result, expected_result in zip(results, expected[i], strict=True):
                np.testing.assert_allclose(result, expected_result, rtol=0, atol=1e-5)

    run_in_threads(compute_repeatedly)


def evaluate(policy, obs, state):
    """Return densities and values of the most likely actions, as arrays."""
    raw_action = policy.act(obs, state, explore=False).raw_action
    views = {} if state is None else state.views
    batch = {"obs": policy.preprocess(obs), "raw_action": raw_action, "views": views}
    result = policy.evaluate(batch)
    if policy.framework == "torch":
        return [result.logp.detach().numpy(), result.value.detach().numpy()]
    return [result.logp.numpy(), result.value.numpy()]


class SlowSum(TorchModelV2):
    """A model whose value is the sum of the observation.

    It takes its time between the forward pass and the reading of its value.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.layer = nn.Linear(3, 4)

    def forward(self, input_dict, state, seq_lens):
        self.sums = input_dict["obs_flat"].sum(1)
        for _ in range(50):
            pass
        return self.layer(input_dict["obs_flat"]), state

    def value_function(self):
        for _ in range(50):
            pass
        return self.sums


def test_act_returns_values_of_its_own_forward_pass():
    policy = rlcatalog.build(THREE_FEATURES, FOUR_ACTIONS, {"custom_model": SlowSum}, "torch")

    def check_values(i):
        number = i / THREADS
        obs = np.full((2, 3), number, np.float32)
        for _ in range(50):
            np.testing.assert_allclose(policy.act(obs).value, 3 * number, rtol=1e-5, atol=1e-8)

    run_in_threads(check_values)


def test_filter_learns_from_every_thread():
    policy = rlcatalog.build(
        THREE_FEATURES, FOUR_ACTIONS, {"observation_filter": "MeanStdFilter"}, "torch"
    )
    two_rows = np.zeros((2, 3), np.float32)

    def learn(i):
        for _ in range(20):
            policy.preprocess(two_rows, update=True)

    run_in_threads(learn)

    # "n" counts the rows: two in each of 20 calls.
    assert policy.filter.get_state()["n"] == THREADS * 20 * 2


def test_steppers_of_one_policy_run_in_parallel():
    policy = build_policy("torch-lstm")
    rng = np.random.default_rng(1)
    # 20 steps of 2 rows for each thread.
    observations = rng.uniform(-1, 1, (THREADS, 20, 2, 3)).astype(np.float32)

    def compute_values(i):
        stepper = policy.stepper(2)
        return [stepper.step(obs, explore=False).value for obs in observations[i]]

    one_after_another = [compute_values(i) for i in range(THREADS)]
    in_parallel = run_in_threads(compute_values)

    np.testing.assert_allclose(in_parallel, one_after_another, atol=1e-6)
