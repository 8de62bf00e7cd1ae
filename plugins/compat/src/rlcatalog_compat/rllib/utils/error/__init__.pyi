from rlcatalog.errors import UnsupportedSpaceError as UnsupportedSpaceException
from rlcatalog_compat.helpers import EnvError as EnvError
