"""Threads: one default catalog, no registration lost, lookups beside registrations, acts that
return their own values.

Threads take turns every few operations here; by default most of these calls would end before the
next thread runs.
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
from rlcatalog.provided import declarations
from rlcatalog_torch import FullyConnectedNetwork, TorchModelV2

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

THREADS = 16
OBS, ACTIONS = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(4)
MEMORY = {"use_lstm": True, "lstm_cell_size": 4, "lstm_use_prev_action": True, "max_seq_len": 5}
MODELS = {
    "torch": ("torch", {}), "torch-lstm": ("torch", MEMORY),
    "torch-filter": ("torch", {"observation_filter": "MeanStdFilter"}),
    "tf": ("tf", {}), "tf-lstm": ("tf", MEMORY),
}  # fmt: skip


@pytest.fixture(autouse=True)
def frequent_switches():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def no_default():
    """There is no default catalog yet, and this test's is no other's."""
    default_catalog.cache_clear()
    yield
    default_catalog.cache_clear()


def together(work, threads=THREADS):
    """Run `work(i)` in so many threads, which begin at once; return what each returned."""
    barrier = Barrier(threads)

    def begin(i):
        barrier.wait()
        return work(i)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(begin, range(threads)))


def classes(count):
    return [type(f"Model{i}", (FullyConnectedNetwork,), {}) for i in range(count)]


def test_default_catalog_is_the_same_for_all_threads(no_default):
    assert len({id(catalog) for catalog in together(lambda i: default_catalog())}) == 1


def test_registrations_of_all_threads_are_kept(no_default):
    models = classes(THREADS)
    together(lambda i: ModelCatalog.register_custom_model(f"model_{i}", models[i]))
    names = {
        component.name
        for component in default_catalog().components("model")
        if component.in_process
    }
    assert names == {f"model_{i}" for i in range(THREADS)}


def test_catalogs_built_in_parallel_have_all_plugins():
    catalogs = [
        catalog
        for made in together(lambda i: [Catalog(environ={}) for _ in range(5)], 8)
        for catalog in made
    ]
    listings = {
        tuple((r.distribution, r.status, r.error) for r in catalog.plugins) for catalog in catalogs
    }
    assert listings == {
        tuple((r.distribution, "loaded", None) for r in Catalog(environ={}).plugins)
    }


def chosen(catalog, config):
    return catalog.resolve(OBS, ACTIONS, config, "torch").choices["trunk"].component


@pytest.mark.parametrize("rounds", [5, pytest.param(200, marks=pytest.mark.attack)])
def test_lookups_find_models_while_others_are_registered(catalog, rounds):
    """Half of the threads register, each one name again and again, and find what they registered;
    half look up.
    """
    models = classes(rounds)

    def work(i):
        for turn in range(rounds):
            if i % 2:
                assert chosen(catalog, {"fcnet_hiddens": [i]}).name == "fcnet"
                assert len(catalog.components()) >= len(catalog.plugins)
                catalog.parse_config({})
            else:
                catalog.register_model(f"model_{i}", models[turn])
                found = chosen(catalog, {"custom_model": f"model_{i}"})
                assert found.load("torch") is models[turn]

    together(work)
    assert sum(component.in_process for component in catalog.components("model")) == THREADS // 2


def test_lookups_work_while_frameworks_and_codecs_are_added(catalog):
    def work(i):
        for turn in range(30):
            if i % 4 == 0:
                framework = FrameworkSpec(
                    f"acme{i}x{turn}", {"backend": "a:B", "ops": "a:C"}, "", module="acme"
                )
                codec = ActionCodecSpec(
                    f"acme{i}x{turn}", {"numpy": "a:B"}, "", kinds=(f"acme.Space{i}x{turn}",)
                )
                assert framework.enter()
                assert codec.enter()
                assert framework_name(f"acme{i}x{turn}") == f"acme{i}x{turn}"
                assert declarations["action_codec"][f"acme.Space{i}x{turn}"] is codec
                framework.leave()
                codec.leave()
            else:
                assert framework_name("tf2") == "tf"
                assert (
                    type(action_codec(SpaceInfo.read(ACTIONS, "action"))).__name__
                    == "DiscreteCodec"
                )

    together(work)


def policy_of(name):
    framework, config = MODELS[name]
    policy = rlcatalog.build(OBS, ACTIONS, {"fcnet_hiddens": [8], **config}, framework)
    if policy.filter is not None:
        policy.preprocess([OBS.sample() for _ in range(9)], update=True)
    return policy


def said(policy, obs, state=None):
    """Return all that acting says of a batch, as arrays."""
    step = policy.act(obs, state, explore=False)
    memory = () if step.state is None else step.state.memory
    return [step.action, step.raw_action, step.logp, step.value, step.dist_inputs, *memory]


def evaluated(policy, obs, raw, state):
    views = {} if state is None else state.seen
    batch = {"obs": policy.preprocess(obs), "raw_action": raw, "views": views}
    found = policy.evaluate(batch)
    return [
        part.detach().numpy() if hasattr(part, "detach") else part.numpy()
        for part in (found.logp, found.value)
    ]


@pytest.mark.parametrize(
    ("acts", "name"),
    [
        pytest.param(acts, name, marks=pytest.mark.attack if acts > 20 or name == "tf-lstm" else ())
        for acts in (20, 1_000)
        for name in MODELS
    ],
)
def test_act_returns_each_thread_its_own_results(name, acts):
    """Each thread acts on observations of its own; what it is told is what it was told alone."""
    policy, rng = policy_of(name), np.random.default_rng(0)
    batches = [rng.uniform(-1, 1, (1 + i % 3, 3)).astype(np.float32) for i in range(THREADS)]
    begun = [policy.act(obs, explore=False).state for obs in batches]
    alone = [said(policy, obs, state) for obs, state in zip(batches, begun, strict=True)]
    scored = [
        evaluated(policy, *one)
        for one in zip(batches, [parts[1] for parts in alone], begun, strict=True)
    ]
    values = [
        policy.values(policy.preprocess(obs), state)
        for obs, state in zip(batches, begun, strict=True)
    ]

    def work(i):
        wrong = 0
        for turn in range(acts):
            found = said(policy, batches[i], begun[i])
            wrong += any(
                not np.allclose(new, old, atol=1e-6)
                for new, old in zip(found, alone[i], strict=True)
            )
            if turn % 5 == 0:
                again = policy.values(policy.preprocess(batches[i]), begun[i])
                wrong += not np.allclose(again, values[i], atol=1e-6)
            if turn % 10 == 0:
                rescored = evaluated(policy, batches[i], alone[i][1], begun[i])
                wrong += any(
                    not np.allclose(n, o, atol=1e-5)
                    for n, o in zip(rescored, scored[i], strict=True)
                )
        return wrong

    assert sum(together(work)) == 0


class Lingering(TorchModelV2):
    """Takes its time between the pass and the reading of its value, and checks that no other pass
    comes between.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.layer = nn.Linear(3, 4)

    def forward(self, input_dict, state, seq_lens):
        self.mark = input_dict["obs_flat"].sum(1)
        for _ in range(50):
            pass
        return self.layer(input_dict["obs_flat"]), state

    def value_function(self):
        for _ in range(50):
            pass
        return self.mark


def test_act_returns_values_of_its_own_forward_pass():
    policy = rlcatalog.build(OBS, ACTIONS, {"custom_model": Lingering}, "torch")

    def work(i):
        obs = np.full((2, 3), i / THREADS, np.float32)
        return all(np.allclose(policy.act(obs).value, 3 * i / THREADS) for _ in range(50))

    assert all(together(work))


def test_filter_learns_from_every_thread():
    policy = rlcatalog.build(OBS, ACTIONS, {"observation_filter": "MeanStdFilter"}, "torch")
    together(
        lambda i: [policy.preprocess(np.zeros((2, 3), np.float32), update=True) for _ in range(20)]
    )
    assert policy.filter.get_state()["n"] == THREADS * 20 * 2


def test_steppers_of_one_policy_run_in_parallel():
    """A stepper is one thread's own; several of one policy are not in each other's way."""
    policy = policy_of("torch-lstm")
    rng = np.random.default_rng(1)
    walks = rng.uniform(-1, 1, (THREADS, 20, 2, 3)).astype(np.float32)

    def walk(i):
        stepper = policy.stepper(2)
        return np.stack([stepper.step(obs, explore=False).value for obs in walks[i]])

    alone = [walk(i) for i in range(THREADS)]
    np.testing.assert_allclose(np.stack(together(walk)), np.stack(alone), atol=1e-6)
