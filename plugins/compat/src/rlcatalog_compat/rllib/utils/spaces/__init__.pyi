from . import flexdict as flexdict
from . import repeated as repeated
from . import simplex as simplex
from . import space_utils as space_utils
