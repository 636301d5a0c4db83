"""What the comparisons with other programs share: an environment with their packages, and a stopwatch."""

import argparse
import contextlib
import glob
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "data"
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
PROGRAM = TARGET / "release" / "goodput"


def enter_venv(name, packages, without_dependencies=()):
    """Goes on in a virtual environment of these packages, which is made where there is none.

    Packages `without_dependencies` are installed alone: some name hundreds of megabytes that the part that is
    compared does not use.
    """
    venv = TARGET / name
    done = venv / "installed.txt"
    wanted = "\n".join([*packages, *without_dependencies])
    if not done.exists() or done.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True)
        pip = [venv / "bin" / "python", "-m", "pip", "install", "-q"]
        subprocess.run([*pip, *packages], check=True)
        if without_dependencies:
            subprocess.run([*pip, "--no-deps", *without_dependencies], check=True)
        done.write_text(wanted)
    if Path(sys.prefix).resolve() != venv.resolve():
        python = str(venv / "bin" / "python")
        os.execv(python, [python, *sys.argv])


def read_arguments(text):
    """Threads and tokenizer as the command line says them, and the files."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--files", nargs="+", default=[str(SHARED / "mix" / "*.jsonl.zst")])
    parser.add_argument("--tokenizer", default=str(SHARED / "tokenizers" / "gpt2" / "tokenizer.json"))
    arguments = parser.parse_args()
    files = sorted({Path(file).resolve() for pattern in arguments.files for file in glob.glob(pattern)})
    if not files:
        parser.error("no files")
    return arguments, files


class Stopwatch:
    """Seconds of the clock, and of the processors in child processes that have ended."""

    def __init__(self):
        self.begin = time.perf_counter(), self.of_children()

    @staticmethod
    def of_children():
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    def stop(self):
        return time.perf_counter() - self.begin[0], self.of_children() - self.begin[1]


def show(name, seconds, more=""):
    wall, cpu = seconds
    print(f"  {name:<20}{wall:>9.1f} s{cpu:>9.1f} s of processors{more}", flush=True)


@contextlib.contextmanager
def messages_kept_in(path):
    """Sends what is written to stderr, also by child processes, to a file; shows its end on a failure."""
    sys.stderr.flush()
    stderr = os.dup(2)
    with open(path, "w") as log:
        os.dup2(log.fileno(), 2)
        try:
            yield
        except BaseException:
            os.write(stderr, path.read_bytes()[-4000:])
            raise
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
