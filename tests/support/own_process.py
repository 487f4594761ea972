"""Processes of their own that need not import the package: they are forked from one that has."""

import multiprocessing
import os
import runpy
import sys
import traceback
from contextlib import redirect_stdout
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from pathlib import Path


def fork_server() -> ForkServerContext:
    """The server of this process, started when it is needed first; it only imports, and has one thread."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["scdiffgen.model", "distributed"])
    forkserver.ensure_running()  # others, such as Dask, then choose no more what it imports
    return context


def run_script(script: Path, *arguments: object, folder: Path) -> str:
    """Run a file as ``python FILE ARGUMENTS`` would; what it prints, which is kept in a folder."""
    printed = folder / f"{script.stem}.txt"
    process = fork_server().Process(target=_run, args=(str(script), list(map(str, arguments)), str(printed)))
    process.start()
    process.join()
    assert process.exitcode == 0, printed.read_text()[-2000:]
    return printed.read_text()


def _run(script: str, arguments: list[str], printed: str) -> None:
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path(script).parent))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))  # of processes that it starts
    with open(printed, "w") as file, redirect_stdout(file):
        try:
            runpy.run_path(script, run_name="__main__")
        except BaseException:
            traceback.print_exc(file=file)
            raise
