"""Compares the n-gram models with KenLM's on the same token streams. Run by hand:

    python3 tests/bench/kenlm.py --kenlm KENLM/build/bin [--data ../shared/data] [--order 3] [--threads 2]

KENLM is the unpacked source archive of the Python package `kenlm`, built with cmake. Token ids are written as
words, a document as a line, so that both programs see the same stream. Printed, from one run:
- time to fit: `lmplz` on the general and on the reference stream, pruning off, beside the fit of a run, which makes
  the models of all folds and calibrates them too;
- time to ask, in memory, on one thread, in turn: KenLM's probing model in its own benchmark beside ours
  (`ngram_query.rs`), which asks two models for each token, and also works out usefulness from what they say;
- perplexity of the reference model on the validation documents, by both, over the tokens that both know.
"""

import argparse
import json
import math
import os
import re
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "goodput"


def pipeline(folder, name, inputs, tokenizer, stages):
    path = folder / f"{name}.yaml"
    path.write_text(
        f"version: 1\nname: {name}\nseed: 17\n"
        f"inputs: [{{ path: '{inputs}', source: {name}, id: id }}]\n"
        f"tokenizer: {{ file: '{tokenizer}' }}\n{stages}"
        f"order: {{ strategy: shuffle }}\npack: {{ method: none }}\noutput: {{ path: {name}, rejects: none }}\n"
    )
    return path


def run(*arguments, **keywords):
    return subprocess.run([str(a) for a in arguments], check=True, **keywords)


def goodput(path, threads):
    run(PROGRAM, "run", path, "--threads", threads, "--progress", "off", stdout=subprocess.DEVNULL)
    out = path.with_suffix("")
    phases = json.loads((out / "run.json").read_text())["phases"]
    return out, {phase["phase"]: phase["wall_seconds"] for phase in phases}


def write_stream(out, path):
    """The ids of each document as a line of words."""
    documents = tokens = 0
    with path.open("w") as stream:
        for shard in sorted((out / "shards").glob("*.parquet")):
            for batch in pq.ParquetFile(shard).iter_batches(512, columns=["input_ids"]):
                for ids in batch.column(0).to_pylist():
                    stream.write(" ".join(map(str, ids)) + "\n")
                    documents += 1
                    tokens += len(ids)
    return documents, tokens


def lmplz(bin_folder, stream, arpa, order, threads):
    start = time.monotonic()
    cores = ",".join(map(str, range(threads)))
    with stream.open() as text, arpa.open("w") as out:
        run(
            "taskset", "-c", cores, bin_folder / "lmplz", "-o", order, "-S", "4G", "-T", arpa.parent,
            "--discount_fallback", stdin=text, stdout=out, stderr=subprocess.DEVNULL,
        )
    return time.monotonic() - start


def kenlm_logs(bin_folder, model, stream):
    """ln p of each word of each line, None where it is unknown; the end of a line is left out."""
    with stream.open() as text:
        said = run(
            bin_folder / "query", "-v", "word", model, stdin=text, capture_output=False,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        ).stdout
    logs, line = [], []
    for entry in said.split("\t"):
        if entry.startswith("</s>="):
            logs.append(line)
            line = []
        elif "=" in entry:
            unknown, _, log10 = entry.split("=")[1].split(" ")
            line.append(None if unknown == "0" else float(log10) * math.log(10))
    return logs


def compare_look_ups(given, folder, streams, tokens, scored):
    """Rates of both in turn, of the general model."""
    # Their benchmark reads word numbers and asks for all of them, on one thread, without reading text.
    numbers = folder / "numbers"
    model = folder / "mix.bin"
    with streams["mix"].open() as text, numbers.open("wb") as out:
        run(given.kenlm / "kenlm_benchmark", "-m", model, "--vocab", stdin=text, stdout=out,
            stderr=subprocess.DEVNULL)
    run(PROGRAM, "fit", scored, "--output", folder / "mix.model", "--progress", "off", stdout=subprocess.DEVNULL)
    asked, ours, ours_scored = [], [], []
    for _ in range(given.rounds):
        with numbers.open("rb") as words:
            said = run(given.kenlm / "kenlm_benchmark", "-m", model, "--query", "-t", 1, "-b", 16_000_000,
                       stdin=words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
        asked.append(tokens["mix"] / float(re.search(r"Excluding load, CPU: ([0-9.]+)", said)[1]) / 1e6)
        said = run("cargo", "bench", "-q", "--bench", "ngram_query", "--", folder / "mix.model", folder / "mix",
                   "--rounds", 1, cwd=ROOT, stdout=subprocess.PIPE, text=True).stdout
        rates = re.search(r"asked ([0-9.]+), scored ([0-9.]+)", said)
        ours.append(2 * float(rates[1]))
        ours_scored.append(2 * float(rates[2]))
    theirs, mine, whole = (statistics.median(rates) for rates in (asked, ours, ours_scored))
    print(f"ask, one thread, medians of {given.rounds} rounds, million tokens and models a second: KenLM probing "
          f"{theirs:.2f}, ours {mine:.2f}, ratio {mine / theirs:.1f}; with usefulness {whole:.2f}, ratio "
          f"{whole / theirs:.1f}", flush=True)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--kenlm", type=Path, required=True)
    arguments.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    arguments.add_argument("--order", type=int, default=3)
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--rounds", type=int, default=5, help="of look-ups; 0 leaves them out")
    given = arguments.parse_args()
    data, tokenizer = given.data.resolve(), given.data.resolve() / "tokenizers/gpt2/tokenizer.json"
    score = (
        "stages:\n  - score: { estimator: ngram_excess, reference: '%s/reference/*.jsonl.zst', order: %d,\n"
        "      fit_tokens: 2_000_000_000, model_ngrams: 2_000_000_000 }\n" % (data, given.order)
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        streams, tokens = {}, {}
        for source in ["mix", "reference", "validation"]:
            out, _ = goodput(pipeline(folder, source, f"{data}/{source}/*.jsonl.zst", tokenizer, ""), given.threads)
            streams[source] = folder / f"{source}.txt"
            documents, tokens[source] = write_stream(out, streams[source])
            print(f"{source}: {documents} documents, {tokens[source]:,} tokens", flush=True)

        scored = pipeline(folder, "scored", f"{data}/mix/*.jsonl.zst", tokenizer, score)
        _, phases = goodput(scored, given.threads)
        fit_seconds = {s: lmplz(given.kenlm, streams[s], folder / f"{s}.arpa", given.order, given.threads)
                       for s in ["mix", "reference"]}
        ours, theirs = phases["fit"], sum(fit_seconds.values())
        print(f"fit, order {given.order}, {given.threads} threads: lmplz {fit_seconds['mix']:.1f} s + "
              f"{fit_seconds['reference']:.1f} s; ours, 5 models and their calibration, {ours:.1f} s; "
              f"ratio {theirs / ours:.2f}", flush=True)

        for source in ["mix", "reference"]:
            run(given.kenlm / "build_binary", "-s", "probing", folder / f"{source}.arpa", folder / f"{source}.bin",
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if given.rounds:
            compare_look_ups(given, folder, streams, tokens, scored)

        # The reference model, on documents that it was not fitted on.
        held_out = pipeline(folder, "held", f"{data}/validation/*.jsonl.zst", tokenizer, score)
        run(PROGRAM, "run", held_out, "--progress", "off", stdout=subprocess.DEVNULL)
        run(PROGRAM, "fit", held_out, "--output", folder / "held.model", "--progress", "off",
            stdout=subprocess.DEVNULL)
        explained = run(PROGRAM, "inspect", folder / "held", "--explain", folder / "held.model", "--format", "json",
                        "--documents", 100_000, stdout=subprocess.PIPE, text=True).stdout
        ours_by_ids = {}
        for document in json.loads(explained)["documents"]:
            ids = " ".join(str(token["id"]) for token in document["tokens"])
            ours_by_ids[ids] = [-token["surprisal_target_nats"] for token in document["tokens"]]
        logs = kenlm_logs(given.kenlm, folder / "reference.bin", streams["validation"])
        pairs = []
        for line, theirs in zip(streams["validation"].read_text().splitlines(), logs, strict=True):
            ours = ours_by_ids[line]
            assert len(ours) == len(theirs)
            pairs += [(a, b) for a, b in zip(ours, theirs) if b is not None]
        mine, kens = (math.exp(-sum(p[i] for p in pairs) / len(pairs)) for i in (0, 1))
        print(f"perplexity of the reference model on {len(pairs):,} tokens of validation: KenLM {kens:.3f}, "
              f"ours {mine:.3f}; {100 * (mine / kens - 1):+.2f} %")


if __name__ == "__main__":
    main()
