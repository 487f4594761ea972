"""Files: pickles of plain data alone, folders that are whole or not there, cells that arrive in chunks."""

from . import _plain_data as plain_data
from ._checked_files import MODEL_FILE, check_file, only_plain_data, read_plainly
from ._chunked_cells import ChunkedFile, digest_of
from ._whole_files import all_or_nothing, reach_the_disk

__all__ = [
    "MODEL_FILE",
    "ChunkedFile",
    "all_or_nothing",
    "check_file",
    "digest_of",
    "only_plain_data",
    "plain_data",
    "reach_the_disk",
    "read_plainly",
]
