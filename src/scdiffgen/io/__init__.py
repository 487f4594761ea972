"""File formats: pickles restricted to plain data, atomic writes of folders, and files written in chunks."""

from . import _plain_data as plain_data
from ._plain_data import MODEL_FILE, check_file, only_plain_data, read_plainly
from ._whole_files import UNREADABLE, UNS_KEY, ChunkedFile, all_or_nothing, digest_of, finish_moves
