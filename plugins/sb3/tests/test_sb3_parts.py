"""Parts of the model under Stable-Baselines3: frozen ones stay, and others have their own rates."""

from __future__ import annotations

import pytest
from part_weights import Normalized, copy_tensors, find_changes, names_of
from sb3_helpers import extractor_kwargs
from stable_baselines3 import A2C, DQN, PPO

from rlcatalog.errors import ConfigError
from rlcatalog_sb3 import CatalogPolicy

pytestmark = pytest.mark.usefixtures("one_thread", "seeded")

SMALL = {"fcnet_hiddens": [8], "vf_share_layers": True}
RATES = {"trunk": 1e-5}


def make_ppo(**policy_kwargs):
    return PPO(
        CatalogPolicy,
        "CartPole-v1",
        n_steps=32,
        batch_size=32,
        n_epochs=2,
        device="cpu",
        learning_rate=lambda progress: 1e-3 * progress,
        policy_kwargs={"model_config": SMALL, **policy_kwargs},
    )


def record_rates(optimizer):
    """Return a list to which each step of an optimiser adds the learning rates of its groups."""
    rates = []

    def record(optimizer, *_):
        rates.append([group["lr"] for group in optimizer.param_groups])

    optimizer.register_step_pre_hook(record)
    return rates


@pytest.mark.parametrize("cls", [PPO, A2C])
def test_frozen_trunk_keeps_all_bytes(cls):
    config = {"freeze_parts": ["trunk"], "vf_share_layers": True}
    algorithm = cls(
        CatalogPolicy,
        "CartPole-v1",
        n_steps=64,
        device="cpu",
        policy_kwargs={"model_config": config, "model": Normalized},
    )
    model = algorithm.policy.model
    before = copy_tensors(model)

    algorithm.learn(64)

    assert find_changes(model, before) == names_of(model, "head", "value")


def test_frozen_trunk_of_extractor_keeps_all_bytes():
    kwargs = extractor_kwargs({"fcnet_hiddens": [8], "freeze_parts": ["trunk"]}, net_arch=[8])
    algorithm = DQN(
        "MlpPolicy", "CartPole-v1", learning_starts=10, device="cpu", policy_kwargs=kwargs
    )
    extractor = algorithm.q_net.features_extractor
    before = copy_tensors(algorithm.q_net)

    algorithm.learn(40)

    changed = find_changes(algorithm.q_net, before)
    trunk = {f"features_extractor.trunk.{name}" for name in extractor.trunk.state_dict()}
    assert trunk
    assert changed == set(before) - trunk


def test_parts_frozen_later_are_in_saved_policy(tmp_path):
    algorithm = make_ppo()
    algorithm.policy.catalog_policy.freeze_parts("trunk")
    algorithm.policy.save(tmp_path / "policy.zip")

    loaded = CatalogPolicy.load(tmp_path / "policy.zip")

    assert loaded.catalog_policy.frozen_parts == ("trunk",)
    assert loaded.catalog_policy.config["fcnet_hiddens"] == [8]


def test_rates_of_parts_follow_schedule():
    algorithm = make_ppo(lr_parts=RATES)
    rates = record_rates(algorithm.policy.optimizer)

    algorithm.learn(64)

    # Two rollouts with two steps each: 32 and then 0 of 64 steps remain at their updates.
    rest, trunk = zip(*rates, strict=True)
    assert rest == pytest.approx([0.5e-3, 0.5e-3, 0.0, 0.0])
    assert trunk == pytest.approx([0.5e-5, 0.5e-5, 0.0, 0.0])


def test_part_with_rate_zero_stays():
    algorithm = make_ppo(lr_parts={"trunk": 0.0})
    model = algorithm.policy.model
    before = copy_tensors(model)

    algorithm.learn(32)
    algorithm.learn(32)  # at the first update of a run of one rollout, the schedule has ended

    assert find_changes(model, before) <= names_of(model, "head", "value")


def test_rates_of_parts_survive_load(tmp_path):
    algorithm = make_ppo(lr_parts=RATES).learn(32)
    algorithm.save(tmp_path / "model.zip")

    loaded = PPO.load(tmp_path / "model.zip", env=algorithm.get_env())
    rates = record_rates(loaded.policy.optimizer)
    loaded.learn(64)

    first_rest, first_trunk = rates[0]
    assert first_trunk / first_rest == pytest.approx(1e-5 / 1e-3)


def test_rate_of_unknown_part_is_refused():
    with pytest.raises(ConfigError, match="lr_parts: this model has no part"):
        make_ppo(lr_parts={"backbone": 1e-5})


# --- a critic of its own --------------------------------------------------------------------------

WITH_CRITIC = {"fcnet_hiddens": [8], "critic": {"fcnet_hiddens": [6]}}
STATISTICS_IN_CRITIC = {"fcnet_hiddens": [8], "critic": {"custom_model": Normalized}}
STATISTICS_IN_POLICY = {"custom_model": Normalized, "critic": {"fcnet_hiddens": [6]}}


@pytest.mark.parametrize("cls", [PPO, A2C])
@pytest.mark.parametrize(
    ("frozen_part", "config", "learning_parts"),
    [
        ("critic.trunk", STATISTICS_IN_CRITIC, ["trunk", "head", "critic.value"]),
        ("critic", STATISTICS_IN_CRITIC, ["trunk", "head"]),
        ("trunk", STATISTICS_IN_POLICY, ["head", "critic.trunk", "critic.value"]),
    ],
    ids=["critic.trunk", "critic", "trunk"],
)
def test_frozen_part_beside_a_critic_keeps_all_bytes(cls, frozen_part, config, learning_parts):
    algorithm = cls(
        CatalogPolicy,
        "CartPole-v1",
        n_steps=64,
        device="cpu",
        policy_kwargs={"model_config": {**config, "freeze_parts": [frozen_part]}},
    )
    model = algorithm.policy.model
    before = copy_tensors(model)

    algorithm.learn(64)

    assert find_changes(model, before) == names_of(model, *learning_parts)


def test_frozen_memory_of_a_critic_keeps_all_bytes():
    contrib = pytest.importorskip("rlcatalog_sb3.contrib", reason="sb3-contrib is not installed")
    gru = {"use_gru": True, "gru_cell_size": 4}
    config = {
        "fcnet_hiddens": [8],
        **gru,
        "critic": {"fcnet_hiddens": [6], **gru},
        "freeze_parts": ["critic.memory"],
    }
    algorithm = contrib.RecurrentPPO(
        contrib.CatalogRecurrentPolicy,
        "CartPole-v1",
        n_steps=64,
        device="cpu",
        policy_kwargs={"model_config": config},
    )
    model = algorithm.policy.model
    before = copy_tensors(model)

    algorithm.learn(64)

    learning_parts = ["trunk", "memory", "head", "critic.trunk", "critic.value"]
    assert find_changes(model, before) == names_of(model, *learning_parts)


@pytest.mark.parametrize("part", ["critic.trunk", "critic.value", "critic"])
def test_rates_of_a_critics_parts_follow_schedule(part):
    algorithm = make_ppo(model_config=WITH_CRITIC, lr_parts={part: 1e-5})
    optimizer = algorithm.policy.optimizer
    rates = record_rates(optimizer)

    algorithm.learn(64)

    weights = dict(algorithm.policy.model.named_parameters())
    weights_of_part = {id(weights[name]) for name in names_of(algorithm.policy.model, part)}
    assert {id(weight) for weight in optimizer.param_groups[1]["params"]} == weights_of_part
    # Two rollouts with two steps each: 32 and then 0 of 64 steps remain at their updates.
    rest, critic = zip(*rates, strict=True)
    assert rest == pytest.approx([0.5e-3, 0.5e-3, 0.0, 0.0])
    assert critic == pytest.approx([0.5e-5, 0.5e-5, 0.0, 0.0])
