"""Random numbers of frozen policies, whose state a checkpoint holds."""

import pytest

from rlcatalog_export.noise_blocks import NoiseBlocks


@pytest.mark.parametrize(("size", "at"), [(2**40, 0), (4096, 4097)])
def test_the_state_of_a_frozen_policys_numbers_is_bounded(size, at):
    noise = NoiseBlocks(1)
    noise.take(10)
    state = noise.state()
    noise.set_state(state)
    state[-2:] = size, at
    with pytest.raises(
        ValueError, match=f"the state of a block of {size} numbers with {at} of them used"
    ):
        noise.set_state(state)
