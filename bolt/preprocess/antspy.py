"""ANTsPy without statsmodels, which it imports for functions that are not used here: in three quarters of the time."""

import sys
from types import ModuleType

stand_ins = ["statsmodels", "statsmodels.api", "statsmodels.formula", "statsmodels.formula.api"]
stand_ins = [name for name in stand_ins if name not in sys.modules]
sys.modules.update({name: ModuleType(name) for name in stand_ins})
try:
    import ants
finally:  # also where ANTsPy is not installed
    for name in stand_ins:
        del sys.modules[name]

__all__ = ["ants"]
