"""Policies are pickled and deep-copied: they act alike, own their numbers, and agree with what is
saved.
"""

import copy
import pickle

import numpy as np
import pytest
import warm
from action_kinds import ACTIONS
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary
from torch import nn

import rlcatalog
from rlcatalog.errors import ActionMaskError, ObservationError, SavedPolicyError
from rlcatalog_torch import FullyConnectedNetwork, TorchModelV2

frameworks = pytest.mark.parametrize("framework", ["torch", "tf"])
pytestmark = pytest.mark.usefixtures("one_thread", "seeded")
OBS = Box(-20, 20, (3,), np.float32)
SMALL = {"fcnet_hiddens": [8]}
CONFIGS = {
    "plain": {}, "filtered": {"observation_filter": "MeanStdFilter"},
    "a memory": {"use_lstm": True, "lstm_cell_size": 4, "lstm_use_prev_action": True},
}  # fmt: skip


class Registered(TorchModelV2, nn.Module):
    """A model at the top level of a module."""

    def __init__(self, obs_space, action_space, num_outputs, model_config, name):
        TorchModelV2.__init__(self, obs_space, action_space, num_outputs, model_config, name)
        nn.Module.__init__(self)
        self.net = FullyConnectedNetwork(obs_space, action_space, num_outputs, model_config, "net")

    def forward(self, input_dict, state, seq_lens):
        return self.net(input_dict, state, seq_lens)

    def value_function(self):
        return self.net.value_function()


def observations(n=6):
    return np.random.default_rng(1).uniform(-1, 1, (n, 3)).astype(np.float32)


def same(one, other):
    obs, state, others = observations(), None, None
    for _ in range(2):
        mine, theirs = one.act(obs, state, explore=False), other.act(obs, others, explore=False)
        for name in ("raw_action", "logp", "value", "dist_inputs"):
            np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name))
        state, others = mine.state, theirs.state
    np.testing.assert_array_equal(one.preprocess(obs), other.preprocess(obs))


@pytest.mark.grid
@frameworks
@pytest.mark.parametrize("name", CONFIGS)
def test_copies_act_alike_and_own_their_numbers(name, framework, tmp_path):
    policy = rlcatalog.build(OBS, ACTIONS["dict"][0], {**SMALL, **CONFIGS[name]}, framework)
    policy.preprocess(5 * observations(50), update=True)
    policy.save(tmp_path)
    saved = rlcatalog.load(tmp_path)
    for made in (copy.deepcopy(policy), pickle.loads(pickle.dumps(policy))):
        same(policy, made)
        same(saved, made)
        before = policy.model.get_weights()
        made.model.set_weights(
            {name: array + 1 for name, array in made.model.get_weights().items()}
        )
        made.preprocess(7 * observations(50), update=True)
        for name, array in policy.model.get_weights().items():
            np.testing.assert_array_equal(array, before[name])
        same(policy, saved)


def test_a_policy_is_unpickled_in_another_process(tmp_path):
    policy = rlcatalog.build(OBS, Discrete(3), SMALL, "torch")
    (tmp_path / "policy").write_bytes(pickle.dumps(policy))
    code = (
        "import pickle, sys, numpy; policy = pickle.load(open(sys.argv[1], 'rb'));"
        "print(policy.act(numpy.ones((2, 3), 'f4'), explore=False).dist_inputs.tolist())"
    )
    run = warm.run(["-c", code, str(tmp_path / "policy")], tmp_path)
    assert run.returncode == 0, run.stderr
    expected = policy.act(np.ones((2, 3), np.float32), explore=False).dist_inputs
    np.testing.assert_allclose(eval(run.stdout), expected, rtol=1e-6)


def test_a_class_of_the_program_travels_by_where_it_is_imported_from():
    catalog = rlcatalog.Catalog()

    class Local(Registered):
        """A model inside a function."""

    catalog.register_model("top", Registered)
    catalog.register_model("local", Local)
    policy = rlcatalog.build(OBS, Discrete(3), {**SMALL, "custom_model": "top"}, catalog=catalog)
    # Though another that is registered cannot be imported.
    same(policy, pickle.loads(pickle.dumps(policy)))
    policy = rlcatalog.build(OBS, Discrete(3), {**SMALL, "custom_model": "local"}, catalog=catalog)
    same(policy, copy.deepcopy(policy))
    with pytest.raises(
        SavedPolicyError,
        match=r"model 'local': the class .*Local cannot be imported from .*top level",
    ):
        pickle.dumps(policy)
    policy = rlcatalog.build(
        OBS, Discrete(3), {**SMALL, "custom_model": Registered}, catalog=catalog
    )
    same(policy, copy.deepcopy(policy))
    with pytest.raises(
        SavedPolicyError, match=r"Registered is in the config itself, .*Register it"
    ):
        pickle.dumps(policy)


def test_weights_of_another_dtype_are_refused():
    policy = rlcatalog.build(OBS, Discrete(3), SMALL, "torch")
    policy.model.double()
    with pytest.raises(SavedPolicyError, match="float64 instead of float32"):
        copy.deepcopy(policy)


# --- a single observation -------------------------------------------------------------------------

NESTED = Dict(a=Discrete(3), b=OBS)


IMAGE = Box(0, 255, (9, 9, 3), np.uint8)
SINGLE = [
    (OBS, np.zeros(3, np.float32)),
    (OBS, np.zeros(3)),
    (OBS, [0.0, 0.0, 0.0]),
    (Discrete(3), 1),
    (Discrete(3), np.int64(2)),
    (NESTED, {"a": 1, "b": np.zeros(3, np.float32)}),
    (IMAGE, np.zeros((9, 9, 3), np.uint8)),
]


def test_so_does_one_with_a_mask():
    space = Dict({"x": OBS, "action_mask": Dict({"a": MultiBinary(2)})})
    policy = rlcatalog.build(space, Dict({"a": Discrete(2), "b": OBS}), SMALL)
    one = {"x": np.zeros(3, np.float32), "action_mask": {"a": np.ones(2, np.int8)}}
    assert len(policy.act([one]).logp) == 1
    with pytest.raises(
        ActionMaskError,
        match=r"expected shape .* This is a single observation: pass a batch of one",
    ):
        policy.act(one)
    wrong = {**one, "action_mask": {"a": np.ones(3, np.int8)}}
    with pytest.raises(ActionMaskError, match=r"expected shape \(1, 2\); found shape \(1, 3\)\.$"):
        policy.act([wrong])


@pytest.mark.parametrize(("space", "obs"), SINGLE)
def test_a_single_observation_gets_a_hint(space, obs):
    policy = rlcatalog.build(space, Discrete(2), {} if space is IMAGE else SMALL)
    for early in (True, False):
        for call in (policy.act, policy.preprocess):
            with pytest.raises(
                ObservationError,
                match=r"This is a single observation: pass a batch of one, \[obs\]",
            ):
                call(obs)
        if early:
            # From here on, observations are not checked any more.
            assert len(policy.act([obs]).logp) == 1
    encoded = policy.preprocess([obs])[0]
    for call in (policy.act_encoded, policy.values):
        with pytest.raises(
            ObservationError, match=r"This is a single observation: add an axis, encoded\[None\]"
        ):
            call(encoded)
    with pytest.raises(
        ObservationError, match=r"This is a single observation: add an axis, obs\[None\]"
    ):
        policy.evaluate({"obs": encoded, "raw_action": np.zeros((1, 1), np.int64)})


def test_what_is_no_observation_at_all_gets_none():
    policy = rlcatalog.build(OBS, Discrete(2), SMALL)
    with pytest.raises(ObservationError) as raised:
        policy.act(np.zeros((2, 5), np.float32))
    assert "single" not in str(raised.value)
