#!/usr/bin/env python3
"""Time and peak memory of one pipeline on corpora of 1, 3 and 10 GB of text, with one budget.

    cargo build --release
    python3 tests/bench/scale.py FOLDER [--gigabytes 1 3 10] [--memory 2GiB] [--threads 2]

FOLDER is made, and its corpora and outputs are removed as it goes on. The text is that of ../shared/data/mix again and
again: in nine of ten rounds every fifth word of a document is another word of it, so that the documents stay; in the
tenth only a first line differs, so that near copies abound. It lies there as zstd, which the program `zstd` makes.

The pipeline tokenizes, drops exact and near duplicates, fits and scores `ngram_excess`, selects, shuffles and packs.
Memory is anonymous memory, as the system counts it, looked at every 20 ms. Seconds of cores say more than those of the
clock where the machine was not alone.
"""

import argparse
import json
import re
import shutil
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data"
PROGRAM = ROOT / "target" / "release" / "goodput"
PIPELINE = """version: 1
name: scale
seed: 17
inputs: [{{ path: "{folder}/*.jsonl.zst", source: mix, id: id, max_document_bytes: 16 MiB }}]
tokenizer: {{ file: "{data}/tokenizers/gpt2/tokenizer.json", end_token: "<|endoftext|>" }}
stages:
  - exact_dedupe: {{}}
  - near_dedupe: {{ min_similarity: 0.8 }}
  - score: {{ estimator: ngram_excess, reference: "{data}/reference/*.jsonl.zst", fit_tokens: 20_000_000, model_ngrams: 8_000_000 }}
  - select: {{ keep_share_of_tokens: 0.8, by: score }}
order: {{ strategy: shuffle }}
pack: {{ method: best_fit, sequence_tokens: 2048 }}
output: {{ path: "{out}", rejects: none }}
"""


def documents():
    """The texts of the mix, in order."""
    found = []
    for path in sorted((DATA / "mix").glob("*.jsonl.zst")):
        lines = subprocess.run(["zstd", "-dcq", path], check=True, stdout=subprocess.PIPE).stdout
        found += [json.loads(line)["text"] for line in lines.decode().split("\n") if line.strip()]
    return [text for text in found if text]


def edited(text, round_number):
    if round_number % 10 == 9:
        return f"Copy {round_number}.\n{text}"
    words = text.split(" ")
    places = range(round_number % 5, len(words), 5)
    others = [words[(at * 7 + round_number * 13) % len(words)] + str(round_number) for at in places]
    words[round_number % 5 :: 5] = others
    return " ".join(words)


def grow(texts, folder, target_bytes):
    """Writes about so many bytes of text, in files of about 64 MB, and returns how many they were."""
    folder.mkdir(parents=True)
    written, number, round_number, file, in_file = 0, 0, 0, None, 0
    while written < target_bytes:
        for at, text in enumerate(texts):
            if file is None:
                path = folder / f"{number:05}.jsonl.zst"
                file = subprocess.Popen(["zstd", "-q", "-3", "-o", path], stdin=subprocess.PIPE)
                number, in_file = number + 1, 0
            text = edited(text, round_number)
            bytes_here = len(text.encode())
            written, in_file = written + bytes_here, in_file + bytes_here
            file.stdin.write(json.dumps({"id": f"{round_number}/{at}", "text": text}).encode() + b"\n")
            if in_file >= 64_000_000:
                close(file)
                file = None
            if written >= target_bytes:
                break
        round_number += 1
    if file is not None:
        close(file)
    return written


def close(file):
    file.stdin.close()
    if file.wait() != 0:
        raise SystemExit("zstd failed")


def measured(program, pipeline, arguments):
    """Runs to the end: seconds on the clock, largest anonymous memory in bytes."""
    began, peak = time.monotonic(), 0
    run = subprocess.Popen([program, "run", pipeline, "--progress", "plain", *arguments], stdout=subprocess.DEVNULL)
    while run.poll() is None:
        try:
            found = re.search(r"RssAnon:\s+(\d+)", Path(f"/proc/{run.pid}/status").read_text())
            peak = max(peak, int(found.group(1)) << 10 if found else 0)
        except FileNotFoundError:
            pass
        time.sleep(0.02)
    if run.returncode != 0:
        raise SystemExit(f"the run ended with {run.returncode}")
    return time.monotonic() - began, peak


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gigabytes", type=float, nargs="+", default=[1, 3, 10])
    parser.add_argument("--memory", default="2GiB")
    parser.add_argument("--threads", default="2")
    parser.add_argument("--program", type=Path, default=PROGRAM)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True)
    texts = documents()
    print("| text | documents | tokens | minutes | core minutes | core seconds a GB | largest memory | work |")
    print("|---|---|---|---|---|---|---|---|")
    for gigabytes in arguments.gigabytes:
        folder, out = arguments.folder / "corpus", arguments.folder / "out"
        text_bytes = grow(texts, folder, gigabytes * 1e9)
        pipeline = arguments.folder / "scale.yaml"
        pipeline.write_text(PIPELINE.format(folder=folder, data=DATA, out=out))
        wall, peak = measured(arguments.program, pipeline, ["--memory", arguments.memory, "--threads", arguments.threads, "--keep-work"])
        record, ledger = (json.loads((out / name).read_text()) for name in ("run.json", "audit.json"))
        read = [row["counts"] if "counts" in row else row for row in ledger["read"]]
        total = {name: sum(row[name] for row in read) for name in ("documents", "tokens")}
        work = sum(path.stat().st_size for path in (out / "work").rglob("*") if path.is_file())
        core = record["core_seconds"]
        print(
            f"| {text_bytes / 1e9:.1f} GB | {total['documents']:,} | {total['tokens'] / 1e6:,.0f} million | {wall / 60:.1f} "
            f"| {core / 60:.1f} | {core / text_bytes * 1e9:.0f} | {peak / 2**20:.0f} MiB | {work / 1e9:.1f} GB |",
            flush=True,
        )
        for phase in record["phases"]:
            print(f"    {phase['phase']}: {phase['wall_seconds']:.0f} s, {phase['core_seconds']:.0f} core s", flush=True)
        shutil.rmtree(folder)
        shutil.rmtree(out)
    shutil.rmtree(arguments.folder)


if __name__ == "__main__":
    main()
