"""Files: pickles of plain data alone, folders that are whole or not there, cells that arrive in chunks."""

from ._chunked_cells import ChunkedFile, digest_of
from ._whole_files import all_or_nothing, reach_the_disk

__all__ = ["ChunkedFile", "all_or_nothing", "digest_of", "reach_the_disk"]
