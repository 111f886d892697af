"""What a configuration costs, what its candidates allow, and which one to deploy.

ceilings.py     the best any reordering of a pool reaches, and where there is something to gain
prices.py       prices with a date, and the arithmetic of cost
"""

from __future__ import annotations
