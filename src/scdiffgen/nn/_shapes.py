"""Shapes that most parts of the network share; a test run checks them."""

from jaxtyping import Float
from torch import Tensor

Genes = Float[Tensor, "cells genes"]  # one number a gene: counts (CSR or dense), values, scores
Sums = Float[Tensor, "cells sums"]
Slots = Float[Tensor, "cells slots dim"]
Tokens = Float[Tensor, "cells tokens dim"]
Hidden = Float[Tensor, "cells tokens readout_dim"]
Levels = Float[Tensor, " cells *levels"]  # noise levels or library sizes: one a cell, or one for each modality
CellVector = Float[Tensor, "cells conditioning_dim"]
Vectors = Float[Tensor, " cells *vectors conditioning_dim"]  # embedded conditions: one vector with "adaln", or several
ConditionNumbers = Float[Tensor, "cells n_conditions"] | None
"""The number of each embedded condition, 0 where it has none; needed where numbers rotate queries and keys."""
