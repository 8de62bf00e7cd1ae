"""State of the random numbers of frozen policies, which checkpoints contain."""

import pytest

from rlcatalog_export.noise_blocks import NoiseBlocks


@pytest.mark.parametrize(
    ("size", "used"),
    [
        pytest.param(2**40, 0, id="block-too-large"),
        pytest.param(4096, 4097, id="more-used-than-there-are"),
    ],
)
def test_set_state_rejects_an_impossible_block(size, used):
    noise = NoiseBlocks(1)
    noise.take(10)
    state = noise.state()
    noise.set_state(state)  # an unchanged state is accepted

    # A state ends with the size of the last block, and how many of its numbers are used.
    state[-2] = size
    state[-1] = used
    with pytest.raises(ValueError, match=f"{size} numbers with {used} of them used"):
        noise.set_state(state)
