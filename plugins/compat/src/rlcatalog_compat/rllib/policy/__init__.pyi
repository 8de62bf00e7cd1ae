from . import rnn_sequencing as rnn_sequencing
from . import sample_batch as sample_batch
from . import trajectory_view as trajectory_view
from . import view_requirement as view_requirement
