"""Library sizes of generated cells: as in training cells under the same conditions, or predicted from the tokens."""

from ._empirical import JointLibrarySizes, LibrarySizeModel
from ._from_tokens import LibraryFromTokens, library_from_tokens
