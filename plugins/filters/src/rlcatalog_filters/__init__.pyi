from .encoded_filter import EncodedMeanStdFilter as EncodedMeanStdFilter
from .mean_std import MeanStdFilter as MeanStdFilter, NoFilter as NoFilter
from .running_stat import RunningStat as RunningStat
