from rlcatalog import Filter as Filter
from rlcatalog_filters import MeanStdFilter as MeanStdFilter
from rlcatalog_filters import RunningStat as RunningStat
