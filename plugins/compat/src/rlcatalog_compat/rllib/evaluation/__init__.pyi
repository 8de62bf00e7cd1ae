from rlcatalog_compat.batches import MultiAgentBatch as MultiAgentBatch
from rlcatalog_compat.batches import SampleBatch as SampleBatch
from . import postprocessing as postprocessing
from . import sample_batch as sample_batch
