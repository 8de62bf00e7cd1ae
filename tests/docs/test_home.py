"""The home page: its sentence, its films, and the policy that plays in it."""

from __future__ import annotations

import re
from pathlib import Path

import gymnasium as gym
import pytest
from site_films import FILMS, LARGEST, LARGEST_GARDENER, subjects

import rlcatalog

ROOT = Path(__file__).resolve().parents[2]
HOME = (ROOT / "docs/index.md").read_text(encoding="utf-8")
POLICY = ROOT / "docs/_static/live/cartpole.onnx"


def test_sentence_has_at_most_fifteen_words():
    sentence = HOME.partition("{.lead}\n")[2].partition("\n\n")[0]
    assert 5 < len(sentence.split()) <= 15


@pytest.mark.parametrize("name", subjects())
def test_film_is_small_and_has_a_still_picture(name):
    most = LARGEST_GARDENER if name == "gardener" else LARGEST
    assert 10_000 < (FILMS / f"{name}.mp4").stat().st_size <= most
    assert (FILMS / f"{name}.webp").stat().st_size < 50_000


def test_films_are_at_most_ten_seconds_long():
    av = pytest.importorskip("av", reason="needs rlcatalog-ppo[video], which is not installed here")
    for name in subjects():
        with av.open(FILMS / f"{name}.mp4") as film:
            assert 1 < film.duration / av.time_base <= 10.1, name


def test_films_are_all_listed():
    assert {path.stem for path in FILMS.glob("*.mp4")} == set(subjects())


def test_files_of_the_page_exist():
    paths = re.findall(r'(?:src|poster|data-policy)="([^"]+)"', HOME)
    assert len(paths) == 5
    for path in paths:
        assert (ROOT / "docs" / path).is_file(), path


def test_policy_of_the_page_holds_its_pole_for_500_steps():
    pytest.importorskip("onnxruntime", reason="needs rlcatalog-export, which is not installed here")
    actor = rlcatalog.Actor(POLICY)
    env = gym.make("CartPole-v1")
    for seed in range(5):
        obs, _ = env.reset(seed=seed)
        steps = 0
        is_over = False
        while not is_over:
            action = actor.act([obs], explore=False).action[0]
            obs, _, terminated, truncated, _ = env.step(action)
            is_over = terminated or truncated
            steps += 1
        assert steps == 500
    env.close()
