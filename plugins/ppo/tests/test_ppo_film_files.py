"""Films as files: their frames, colours and rates, and what cannot be written."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from films import frames

from rlcatalog.errors import ConfigError, MissingExtraError, NotServedError
from rlcatalog.plugins import install_hint
from rlcatalog_ppo import video
from rlcatalog_ppo.video import Film


def write_film(path, images):
    """Write a film; return its frames as they are read back, and their rate."""
    film = Film(path)
    for image in images:
        film.add(image)
    film.write()
    return frames(path)


@pytest.mark.parametrize(
    ("name", "shape", "shape_in_film"),
    [
        # H.264 needs even sizes.
        ("a.mp4", (20, 31, 3), (20, 32, 3)),
        ("b.MP4", (21, 30, 3), (22, 30, 3)),
        ("c.gif", (5, 3, 3), (5, 3, 3)),
        ("d.mp4", (16, 20, 3), (16, 20, 3)),
    ],
)
def test_frame_is_padded_with_its_edge(name, shape, shape_in_film, tmp_path):
    # A black image with a white edge below and at the right.
    frame = np.zeros(shape, np.uint8)
    frame[:, -1] = 250
    frame[-1] = 250

    images, _ = write_film(tmp_path / name, [frame, frame, frame])

    assert [image.shape for image in images] == [shape_in_film] * 3
    height, width, _ = shape
    image = images[1]  # with slightly other colours, because a film is compressed
    assert image[-1, -1].min() > 200  # the white edge goes on
    assert image[1, width - 1].min() > 150  # nothing is stretched: it is where it was
    assert image[: height - 2, : width - 2].max() < 60  # the rest is black


def test_padding_of_a_film_has_the_colour_of_its_edge(tmp_path):
    green = (120, 250, 10)

    images, _ = write_film(tmp_path / "film.mp4", [np.full((21, 31, 3), green, np.uint8)])

    padding = images[0][21:, 31:].astype(int)
    assert padding.shape == (1, 1, 3)
    assert np.abs(padding - green).max() < 20


def test_film_has_thirty_frames_per_second_by_default(tmp_path):
    _, rate = write_film(tmp_path / "film.mp4", [np.zeros((16, 16, 3), np.uint8)])

    assert rate == 30


@pytest.mark.parametrize("rate", [Fraction(1, 8), Fraction(30000, 1001)])
def test_film_has_the_rate_of_its_environment(rate, tmp_path):
    film = Film(tmp_path / "film.mp4")
    film.fps = float(rate)
    film.add(np.zeros((16, 16, 3), np.uint8))
    film.write()

    assert frames(film.path)[1] == rate


def test_film_creates_its_folder(tmp_path):
    path = tmp_path / "some" / "where" / "film.gif"

    write_film(path, [np.zeros((4, 6, 3), np.uint8)])

    assert path.is_file()
    Film(path)  # the folder may exist


def test_gif_has_the_colours_of_each_frame(tmp_path):
    """A GIF has 256 colours, so that each frame has its own palette."""
    images = [np.full((21, 31, 3), (40 * t, 250, 10), np.uint8) for t in range(4)]

    gif_images, _ = write_film(tmp_path / "film.gif", images)

    for gif_image, image in zip(gif_images, images, strict=True):
        assert gif_image.shape == (21, 31, 3)
        assert np.abs(gif_image.astype(int) - image).max() < 20


def test_gif_has_frames_of_random_colours(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (2, 4, 6, 3)).astype(np.uint8)

    gif_images, _ = write_film(tmp_path / "film.gif", images)

    for gif_image, image in zip(gif_images, images, strict=True):
        difference = np.abs(gif_image.astype(int) - image)
        assert difference.max() < 40
        assert difference.mean() < 12


@pytest.mark.parametrize(
    ("frame", "description"),
    [
        (np.zeros((4, 4), np.uint8), "uint8 [4, 4]"),
        (np.zeros((4, 4, 4), np.uint8), "uint8 [4, 4, 4]"),
        (np.zeros((0, 4, 3), np.uint8), "uint8 [0, 4, 3]"),
        (np.zeros((4, 4, 3)), "float64 [4, 4, 3]"),
        (np.zeros((4, 4, 3, 1), np.uint8), "uint8 [4, 4, 3, 1]"),
        (None, "None"),
    ],
    ids=["grey", "four-colours", "empty", "float", "four-axes", "none"],
)
def test_frame_that_is_not_an_image_is_an_error(frame, description, tmp_path):
    film = Film(tmp_path / "film.gif")

    with pytest.raises(NotServedError, match="--video: frame 1: expected uint8") as caught:
        film.add(frame)

    assert str(caught.value).endswith(f" [height, width, 3], found {description}.")
    # The first image that is added determines the size.
    film.add(np.zeros((4, 6, 3), np.uint8))
    assert film.frames == 1


@pytest.mark.parametrize(
    ("second_frame", "message"),
    [
        (np.zeros((6, 4, 3), np.uint8), "found uint8 [6, 4, 3]"),
        (np.zeros((4, 6, 3), np.int8), "found int8 [4, 6, 3]"),
        ("x", "found 'x'"),
    ],
    ids=["shape", "dtype", "text"],
)
def test_frame_that_differs_from_the_first_is_an_error(second_frame, message, tmp_path):
    film = Film(tmp_path / "film.gif")
    film.add(np.zeros((4, 6, 3), np.uint8))

    with pytest.raises(NotServedError, match=r"frame 2: expected uint8 \[4, 6, 3\]") as caught:
        film.add(second_frame)

    assert message in str(caught.value)
    assert film.frames == 1


# --- files that cannot be written -----------------------------------------------------------------


def test_film_that_is_not_written_leaves_the_old_file(tmp_path):
    path = tmp_path / "film.mp4"
    path.write_text("the old film")
    film = Film(path)

    film.add(np.zeros((16, 16, 3), np.uint8))  # an error ends the run before film.write()

    assert path.read_text() == "the old film"
    assert [file.name for file in tmp_path.iterdir()] == ["film.mp4"]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("film.avi", r"a file that ends in \.mp4 or \.gif"),
        ("film", r"a file that ends in \.mp4 or \.gif"),
        ("folder.mp4", r"folder\.mp4 is a folder"),
        ("file/film.mp4", "its folder cannot be created"),
    ],
)
def test_film_with_an_impossible_path_is_an_error(path, message, tmp_path):
    (tmp_path / "folder.mp4").mkdir()
    (tmp_path / "file").touch()

    with pytest.raises(ConfigError, match=message):
        Film(tmp_path / path)


def test_film_in_a_folder_without_write_access_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(video.os, "access", lambda path, mode: path != tmp_path)

    with pytest.raises(ConfigError, match="its folder is not writable"):
        Film(tmp_path / "film.mp4")


def test_film_without_the_encoder_names_the_extra(monkeypatch):
    # No module can be found, so neither can the encoder.
    monkeypatch.setattr(video, "find_spec", lambda name: None)

    with pytest.raises(MissingExtraError, match=re.escape(install_hint("rlcatalog-ppo[video]"))):
        Film(Path("film.mp4"))
