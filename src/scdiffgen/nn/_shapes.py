"""Shape annotations shared by the parts of the network, checked in test runs."""

from jaxtyping import Float
from torch import Tensor

Genes = Float[Tensor, "cells genes"]  # one number per gene: counts (CSR or dense), values, scores
Sums = Float[Tensor, "cells sums"]
Slots = Float[Tensor, "cells slots dim"]
Tokens = Float[Tensor, "cells tokens dim"]
Hidden = Float[Tensor, "cells tokens readout_dim"]
Levels = Float[Tensor, " cells *levels"]  # noise levels or library sizes: one per cell, or one per modality
CellVector = Float[Tensor, "cells conditioning_dim"]
Vectors = Float[Tensor, " cells *vectors conditioning_dim"]  # embedded conditions: one vector with "adaln", or several
ConditionNumbers = Float[Tensor, "cells n_conditions"] | None
"""Number (dose) of each embedded condition, 0 if it has none; needed if numbers rotate queries and keys."""
