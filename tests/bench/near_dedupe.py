#!/usr/bin/env python3
"""Compares near dedupe with that of datatrove and of text-dedup: the same documents, the same parameters.

Run by hand, on a machine that does nothing else:

    cargo build --release
    python3 tests/bench/near_dedupe.py [--threads N] [--files GLOB ...] [--tokenizer FILE]

The first run makes a virtual environment of its own in target/near-dedupe-venv. All three read one plain JSONL
file a thread, with an id and a text a line, make shingles of 5 words and 15 bands of 8 hashes, and write the
documents that are left, as JSONL (datatrove), Arrow (text-dedup) or Parquet with token ids and evidence (goodput,
which tokenizes every document, and writes what it turned away too).

What is dropped is not the same. datatrove and text-dedup take documents that share one band for duplicates, and
what those share a band with too; goodput reads the pairs that share a band, compares their shingles, and drops a
document where it is similar to one that stays. So for each program it is counted, with the words as goodput reads
them, for how many dropped documents no kept document is similar enough (at least .8), and how many kept documents
are similar to a kept one that stands before them.
"""

import collections
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rivals import PROGRAM, Stopwatch, enter_venv, messages_kept_in, read_arguments, show

# The folder holds a file with the name of a package, which must be found and not that file.
sys.path = [folder for folder in sys.path if Path(folder).resolve() != Path(__file__).resolve().parent]

PACKAGES = ["datatrove==0.10.1", "orjson==3.13.0", "regex==2026.11.19", "spacy==3.8.18", "xxhash==3.8.2"]
PACKAGES += ["zstandard==0.25.0", "click==8.5.1", "click-option-group==0.5.10", "datasets==5.2.0", "ftfy==6.3.1"]
PACKAGES += ["bitarray==3.12.3", "psutil==7.2.2", "pybloom-live==4.0.0", "rich==13.9.4", "scipy==1.17.1"]
PACKAGES += ["tokenizers==0.23.3"]
# Its dependencies hold Spark, TensorFlow and Sphinx, which this part of it does not use.
ALONE = ["text-dedup==0.4.0"]
WORDS, BANDS, ROWS, SIMILARITY = 5, 15, 8, 0.8
SCRIPTS_WITHOUT_SPACES = ["Han", "Hiragana", "Katakana", "Thai", "Lao", "Khmer", "Myanmar"]


def write_documents(files, threads, folder):
    """One file a thread, and (id, text) of every document in order."""
    import zstandard

    documents = []
    for file in files:
        with zstandard.open(file, "rt", encoding="utf-8") as lines:
            records = (json.loads(line) for line in lines if line.strip())
            documents += [(record["id"], record["text"]) for record in records]
    paths = []
    for thread in range(threads):
        path = folder / f"documents-{thread}.jsonl"
        begin, end = (len(documents) * at // threads for at in (thread, thread + 1))
        with path.open("w") as out:
            for key, text in documents[begin:end]:
                out.write(json.dumps({"id": key, "text": text}, ensure_ascii=False) + "\n")
        paths.append(path)
    return documents, paths


def run_datatrove(paths, threads, folder):
    """Seconds, and ids of the documents kept."""
    from datatrove.executor.local import LocalPipelineExecutor
    from datatrove.pipeline.dedup import MinhashDedupCluster, MinhashDedupFilter, MinhashDedupSignature
    from datatrove.pipeline.dedup.minhash import MinhashConfig, MinhashDedupBuckets
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.writers.jsonl import JsonlWriter

    at = lambda name: str(folder / "datatrove" / name)
    names = folder / "paths.txt"
    names.write_text("\n".join(os.path.relpath(path, "/") for path in paths) + "\n")
    reader = lambda: JsonlReader("/", paths_file=str(names))
    config = MinhashConfig(n_grams=WORDS, num_buckets=BANDS, hashes_per_bucket=ROWS)
    writer = JsonlWriter(at("kept"), output_filename="${rank}.jsonl", compression=None)
    steps = {
        "signatures": (threads, [reader(), MinhashDedupSignature(at("signatures"), config=config)]),
        "buckets": (BANDS, [MinhashDedupBuckets(at("signatures"), at("buckets"), config=config)]),
        "clusters": (1, [MinhashDedupCluster(at("buckets"), at("remove"), config=config)]),
        "filter": (threads, [reader(), MinhashDedupFilter(at("remove")), writer]),
    }
    watch = Stopwatch()
    for name, (tasks, pipeline) in steps.items():
        step = Stopwatch()
        # Forked workers, unlike those of a server, are children whose processor time is known.
        LocalPipelineExecutor(
            pipeline, tasks=tasks, workers=min(threads, tasks), logging_dir=at("logs-" + name), start_method="fork"
        ).run()
        show(name, step.stop())
    seconds = watch.stop()
    lines = (line for path in Path(at("kept")).glob("*.jsonl") for line in path.open())
    return seconds, {json.loads(line)["id"] for line in lines}


def run_text_dedup(paths, threads, folder):
    """Seconds, and ids of the documents kept."""
    out = folder / "text-dedup"
    command = [sys.executable, "-m", "text_dedup.minhash", "--path", "json", "--split", "train", "--column", "text"]
    command += ["--data_files", str(folder / "documents-*.jsonl"), "--output", out, "--cache_dir", folder / "cache"]
    command += ["--ngram", WORDS, "--num_perm", BANDS * ROWS, "--b", BANDS, "--r", ROWS]
    command += ["--hash_func", "xxh3", "--hash_bits", 32, "--num_proc", threads]
    watch = Stopwatch()
    subprocess.run([str(part) for part in command], check=True, stdout=sys.stderr)
    seconds = watch.stop()
    from datasets import load_from_disk

    return seconds, set(load_from_disk(str(out))["id"])


def run_goodput(paths, tokenizer, threads, folder):
    """Seconds, and ids of the documents kept."""
    pipeline = {
        "version": 1,
        "name": "bench",
        "seed": 17,
        "inputs": [{"path": [str(path) for path in paths], "source": "bench", "id": "id"}],
        "tokenizer": {"file": tokenizer},
        "stages": [{"near_dedupe": {"shingle_words": WORDS, "bands": BANDS, "rows": ROWS}}],
        "order": {"strategy": "shuffle"},
        "pack": {"method": "none"},
        "output": {"path": str(folder / "out"), "rejects": "tokens"},
    }
    path = folder / "bench.yaml"
    path.write_text(json.dumps(pipeline, indent=1))
    command = [PROGRAM, "run", path, "--threads", str(threads), "--progress", "off"]
    watch = Stopwatch()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    seconds = watch.stop()
    for phase in json.loads((folder / "out" / "run.json").read_text())["phases"]:
        show(phase["phase"], (phase["wall_seconds"], phase["core_seconds"]))
    import pyarrow.parquet as pq

    shards = sorted((folder / "out" / "shards").glob("*.parquet"))
    return seconds, {key for shard in shards for key in pq.read_table(shard, columns=["doc_id"])["doc_id"].to_pylist()}


def shingles(text, word):
    """Hashes of the shingles of a text."""
    words = word.findall(text.lower())
    runs = {" ".join(words[at : at + WORDS]) for at in range(len(words) - WORDS + 1)} or {" ".join(words)}
    return {hashlib.blake2b(run.encode(), digest_size=8).digest() for run in runs}


def similar_pairs(documents):
    """Pairs of documents (places in order) that are similar, found by shingles that few documents hold."""
    import regex

    # Runs of letters, marks, numbers and underscores; a character of a script without spaces is a word.
    alone = "[" + "".join(rf"\p{{{script}}}" for script in SCRIPTS_WITHOUT_SPACES) + "]"
    word = regex.compile(rf"{alone}|(?:(?!{alone})[\p{{L}}\p{{M}}\p{{N}}_])+")
    sets = [shingles(text, word) for _, text in documents]
    holders = collections.defaultdict(list)
    for at, held in enumerate(sets):
        # Two sets as similar as this share one of the least shingles of each: a prefix filter by a fixed order.
        for shingle in sorted(held)[: len(held) - int(SIMILARITY * len(held)) + 1]:
            holders[shingle].append(at)
    candidates = set()
    for group in holders.values():
        candidates.update((a, b) for place, b in enumerate(group) for a in group[:place])
    pairs = []
    for a, b in candidates:
        shared = len(sets[a] & sets[b])
        if shared >= SIMILARITY * (len(sets[a]) + len(sets[b]) - shared):
            pairs.append((a, b))
    return pairs


def judge(documents, pairs, kept):
    """Dropped documents without a similar kept one, and kept ones with a similar kept one before them."""
    stays = [key in kept for key, _ in documents]
    excused = {a for a, b in pairs if stays[b]} | {b for a, b in pairs if stays[a]}
    dropped_alone = sum(not stays[at] and at not in excused for at in range(len(documents)))
    kept_twice = len({max(a, b) for a, b in pairs if stays[a] and stays[b]})
    return dropped_alone, kept_twice


def main():
    arguments, files = read_arguments(__doc__)
    enter_venv("near-dedupe-venv", PACKAGES, ALONE)
    tokenizer = str(Path(arguments.tokenizer).resolve())
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        documents, paths = write_documents(files, arguments.threads, folder)
        size = sum(path.stat().st_size for path in paths)
        print(f"{len(documents):,} documents, {size / 1e6:.1f} MB of JSONL, {arguments.threads} threads", flush=True)
        results = {}
        print("goodput")
        results["goodput"] = run_goodput(paths, tokenizer, arguments.threads, folder)
        print("datatrove 0.10.1")
        with messages_kept_in(folder / "datatrove.log"):
            results["datatrove"] = run_datatrove(paths, arguments.threads, folder)
        print("text-dedup 0.4.0", flush=True)
        with messages_kept_in(folder / "text-dedup.log"):
            results["text-dedup"] = run_text_dedup(paths, arguments.threads, folder)
        pairs = similar_pairs(documents)
        print(f"{len(pairs):,} pairs of documents are similar")
        ours = results["goodput"][0]
        for name, (seconds, kept) in results.items():
            alone, twice = judge(documents, pairs, kept)
            show(name, seconds, f", {seconds[0] / ours[0]:.1f} and {seconds[1] / ours[1]:.1f} times goodput's")
            print(f"    {len(kept):,} kept; dropped with no similar document kept: {alone:,}; kept twice: {twice:,}")


if __name__ == "__main__":
    main()
