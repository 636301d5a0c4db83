#!/usr/bin/env python3
"""Compares goodput with datatrove: the same files, the same tokenizer, as many processes as threads.

Run by hand, on a machine that does nothing else:

    cargo build --release
    python3 tests/bench/datatrove.py [--threads N] [--files GLOB ...] [--tokenizer FILE]

The first run makes a virtual environment of its own in target/datatrove-venv and installs datatrove and
spaCy there. Both programs read JSONL, apply the quality and repetition rules of MassiveText, drop near
duplicates (5-word shingles, 14 bands of 8 hashes) and write token ids.

They do not do quite the same. datatrove tokenizes only what is left, removes whatever shares one band, and
writes text between its steps and flat ids at the end. goodput tokenizes every document, because its ledger
counts what is turned away too; it compares the shingles of each pair before it removes one; and it packs
rows and writes evidence. So the documents kept are printed for both.

Seconds are of the clock; those of the processors stand beside them, and say more where the machine was not
alone. Without --files it takes ../shared/data/mix, without --tokenizer GPT-2's from ../shared.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rivals import PROGRAM, Stopwatch, enter_venv, messages_kept_in, read_arguments, show

# This file has the name of the package, which must be found and not this file.
sys.path = [folder for folder in sys.path if Path(folder).resolve() != Path(__file__).resolve().parent]

PACKAGES = ["datatrove==0.10.1", "spacy==3.8.18", "orjson==3.13.0", "regex==2026.11.19"]
# xxhash 4 takes no text, which datatrove gives it.
PACKAGES += ["tokenizers==0.23.3", "xxhash==3.8.2", "zstandard==0.25.0"]
END = "<|endoftext|>"
# More tasks than workers, so that one long file does not hold up the end of a step.
TASKS_PER_WORKER = 4


def run_datatrove(files, tokenizer, workers, folder):
    """Seconds by step, and documents kept."""
    # Each worker tokenizes on its own core.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from datatrove.executor.local import LocalPipelineExecutor
    from datatrove.pipeline.dedup import MinhashDedupCluster, MinhashDedupFilter, MinhashDedupSignature
    from datatrove.pipeline.dedup.minhash import MinhashConfig, MinhashDedupBuckets
    from datatrove.pipeline.filters import GopherQualityFilter, GopherRepetitionFilter
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.tokens import DocumentTokenizer
    from datatrove.pipeline.writers.jsonl import JsonlWriter

    at = lambda name: str(folder / name)
    paths = folder / "paths.txt"
    paths.write_text("\n".join(os.path.relpath(file, "/") for file in files) + "\n")
    config = MinhashConfig(n_grams=5, num_buckets=14, hashes_per_bucket=8)
    tasks = min(workers * TASKS_PER_WORKER, len(files))
    steps = {
        "read and filters": (
            tasks,
            [
                JsonlReader("/", paths_file=str(paths)),
                GopherQualityFilter(),
                GopherRepetitionFilter(),
                JsonlWriter(at("filtered"), output_filename="${rank}.jsonl", compression=None),
            ],
        ),
        "signatures": (tasks, [JsonlReader(at("filtered")), MinhashDedupSignature(at("signatures"), config=config)]),
        "buckets": (config.num_buckets, [MinhashDedupBuckets(at("signatures"), at("buckets"), config=config)]),
        "clusters": (1, [MinhashDedupCluster(at("buckets"), at("remove"), config=config)]),
        "drop and tokenize": (
            tasks,
            [
                JsonlReader(at("filtered")),
                MinhashDedupFilter(at("remove")),
                DocumentTokenizer(at("tokens"), tokenizer, eos_token=END, shuffle_documents=False),
            ],
        ),
    }
    seconds = {}
    for name, (tasks_of_step, pipeline) in steps.items():
        watch = Stopwatch()
        logs = at("logs-" + name.replace(" ", "-"))
        at_once = min(workers, tasks_of_step)
        # Forked workers, unlike those of a server, are children whose processor time is known.
        executor = LocalPipelineExecutor(
            pipeline, tasks=tasks_of_step, workers=at_once, logging_dir=logs, start_method="fork"
        )
        executor.run()
        seconds[name] = watch.stop()
        show(name, seconds[name])
    # Eight bytes of the index stand for one document.
    kept = sum(path.stat().st_size // 8 for path in (folder / "tokens").rglob("*.index"))
    return seconds, kept


def run_goodput(files, tokenizer, threads, folder):
    """Seconds by phase, and documents kept."""
    pipeline = {
        "version": 1,
        "name": "bench",
        "seed": 17,
        "inputs": [{"path": [str(file) for file in files], "source": "bench", "id": "id"}],
        "tokenizer": {"file": tokenizer, "end_token": END},
        "stages": [
            {"gopher_quality": {}},
            {"gopher_repetition": {}},
            {"near_dedupe": {"shingle_words": 5, "bands": 14, "rows": 8}},
        ],
        "order": {"strategy": "shuffle"},
        "pack": {"method": "best_fit", "sequence_tokens": 2048},
        "output": {"path": str(folder / "out"), "rejects": "none"},
    }
    path = folder / "bench.yaml"
    path.write_text(json.dumps(pipeline, indent=1))
    watch = Stopwatch()
    command = [PROGRAM, "run", path, "--threads", str(threads), "--progress", "off"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    seconds = watch.stop()
    phases = json.loads((folder / "out" / "run.json").read_text())["phases"]
    for phase in phases:
        show(phase["phase"], (phase["wall_seconds"], phase["core_seconds"]))
    audit = json.loads((folder / "out" / "audit.json").read_text())
    kept = sum(row["documents"] for row in audit["kept"])
    read = {name: sum(row[name] for row in audit["read"]) for name in ["documents", "bytes", "tokens"]}
    return seconds, kept, read


def main():
    arguments, files = read_arguments(__doc__)
    enter_venv("datatrove-venv", PACKAGES)
    tokenizer = str(Path(arguments.tokenizer).resolve())
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        print(f"{len(files)} files, {arguments.threads} threads")
        print(f"{PACKAGES[0]}, {PACKAGES[1]}")
        with messages_kept_in(folder / "datatrove.log"):
            steps, kept_by_datatrove = run_datatrove(files, tokenizer, arguments.threads, folder)
        theirs = [sum(times) for times in zip(*steps.values())]
        show("total", theirs, f", {kept_by_datatrove:,} documents kept")
        print("goodput")
        ours, kept, read = run_goodput(files, tokenizer, arguments.threads, folder)
        show("total", ours, f", {kept:,} documents kept")
        print(f"of {read['documents']:,} documents, {read['bytes'] / 1e6:.1f} MB of text, {read['tokens']:,} tokens")
        print(f"ratio {theirs[0] / ours[0]:.1f} by the clock, {theirs[1] / ours[1]:.1f} by the processors")


if __name__ == "__main__":
    main()
