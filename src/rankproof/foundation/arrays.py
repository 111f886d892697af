"""The array types the code speaks of; shapes stand in comments beside the fields."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Int = NDArray[np.int64]
Float = NDArray[np.float64]
Bool = NDArray[np.bool_]
Array = NDArray[Any]
