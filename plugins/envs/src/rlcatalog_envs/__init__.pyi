from .envpool import EnvPoolEnvs as EnvPoolEnvs
from .pettingzoo import ParallelGames as ParallelGames
