"""The types that old scripts import from here for their annotations."""

from typing import Dict, List, NamedTuple, Optional, Tuple, Union  # noqa: F401, UP035

BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = list
