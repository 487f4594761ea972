"""File formats: pickles restricted to plain data, atomic writes of folders, and files written in chunks."""

from . import _plain_data as plain_data
from ._plain_data import MODEL_FILE, check_file, only_plain_data, read_plainly
from ._whole_files import (
    UNREADABLE,
    ChunkedFile,
    all_or_nothing,
    append_rows,
    digest_of,
    new_zarr,
    write_quietly,
)
