from rlcatalog_compat.batches import MultiAgentBatch as MultiAgentBatch
from rlcatalog_compat.batches import SampleBatch as SampleBatch
