from rlcatalog_compat.arrays import discount_cumsum as discount
from rlcatalog_compat.arrays import discount_cumsum as discount_cumsum
