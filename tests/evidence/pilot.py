"""A pilot run: trains a small language model on a random order of a scored corpus, measures how far the loss of each
token falls between an early and a late step, on documents that it was not trained on, and hands that to
`goodput calibrate`. Run by hand; needs PyTorch (Debian: python3-torch, libopenblas0-pthread), pyarrow, tokenizers
and zstandard:

    cargo build --release
    python3 tests/evidence/pilot.py [--steps N] [--work FOLDER]

Two pilots are trained, since what falls depends on what is trained on: one on the corpus as it is, one on the
reference text. Both are measured on the same documents of the corpus. The table and the expected calibration error
are those of `goodput calibrate`; beside them stands the rank correlation of usefulness with the fall, token by
token and by document, and that of a random number.
"""

import argparse
import json
import math
import random
import subprocess
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from small_model import DATA, END, ROW, SmallModel, losses, make_tokenizer

ROOT = Path(__file__).resolve().parents[2]
BATCH = 16


def run(program, folder, name, stages, share):
    pattern = "mix" if name == "corpus" else "reference"
    path = folder / f"{name}.yaml"
    path.write_text(
        f"version: 1\nname: {name}\nseed: 17\n"
        f"inputs: [{{ path: '{DATA}/{pattern}/*.jsonl.zst', source: {name}, id: id }}]\n"
        f"tokenizer: {{ file: tokenizer.json, end_token: '{END}' }}\nstages: {stages}\n"
        f"order: {{ strategy: shuffle }}\npack: {{ method: none }}\noutput: {{ path: {name}, rejects: none }}\n"
    )
    command = [program, "run", path, "--progress", "off", "--replace", "--sample", str(share)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return folder / name


def documents(out):
    """(id, token ids, usefulness or None) in the order of the shards, without special tokens."""
    for shard in sorted((out / "shards").glob("*.parquet")):
        file = pq.ParquetFile(shard)
        columns = [name for name in ["doc_id", "input_ids", "usefulness"] if name in file.schema_arrow.names]
        for batch in file.iter_batches(256, columns=columns):
            for row in batch.to_pylist():
                yield row["doc_id"], row["input_ids"][:-1], (row.get("usefulness") or [None])[:-1]


def rows_of(stream, end, rows):
    """That many rows of documents one after another."""
    taken = []
    for _, ids, _ in stream:
        taken += [*ids, end]
        if len(taken) >= rows * (ROW + 1):
            break
    if len(taken) < rows * (ROW + 1):
        raise SystemExit(f"{len(taken):,} tokens are too few for {rows} rows of {ROW + 1}; lower --steps")
    return torch.tensor(taken[: rows * (ROW + 1)]).view(rows, ROW + 1)


def token_losses(model, held_out, end):
    """Losses of every token of each document; the first of a row is predicted from the end token."""
    model.eval()
    found = []
    with torch.no_grad():
        for _, ids, _ in held_out:
            values = []
            for begin in range(0, len(ids), ROW - 1):
                part = torch.tensor([[end, *ids[begin : begin + ROW - 1]]])
                values += losses(model, part)[0].tolist()
            found.append(values)
    model.train()
    return found


def train(data, steps, early, held_out, end, vocabulary, seed):
    """Losses of the held-out documents at the early and the last step."""
    torch.manual_seed(seed)
    model = SmallModel(vocabulary)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.1, betas=(0.9, 0.95))
    began, measured = time.monotonic(), []
    for step in range(steps):
        warm = min(1, (step + 1) / 50)
        for group in optimizer.param_groups:
            group["lr"] = 2e-3 * warm * (0.1 + 0.9 * (1 + math.cos(math.pi * step / steps)) / 2)
        loss = losses(model, data[step * BATCH : (step + 1) * BATCH]).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step + 1 in (early, steps):
            measured.append(token_losses(model, held_out, end))
            print(f"  step {step + 1}: training loss {loss.item():.3f} nats, {time.monotonic() - began:.0f} s", flush=True)
    return measured


def ranks(values):
    """Mean ranks, so that ties count as ties."""
    order = sorted(range(len(values)), key=values.__getitem__)
    found, at = [0.0] * len(values), 0
    while at < len(order):
        end = at
        while end + 1 < len(order) and values[order[end + 1]] == values[order[at]]:
            end += 1
        for place in range(at, end + 1):
            found[order[place]] = (at + end) / 2
        at = end + 1
    return found


def rank_correlation(a, b):
    """Spearman's."""
    a, b = (torch.tensor(ranks(values), dtype=torch.float64) for values in (a, b))
    a, b = a - a.mean(), b - b.mean()
    scale = (a.norm() * b.norm()).item()
    return (a @ b).item() / scale if scale else 0.0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=ROOT / "target/release/goodput", type=Path)
    parser.add_argument("--steps", default=400, type=int, help=f"of {BATCH} rows of {ROW} tokens")
    parser.add_argument("--early", default=40, type=int, help="step of the early loss")
    parser.add_argument("--held-out", default=600, type=int, help="documents whose losses are measured")
    parser.add_argument("--longest", default=4000, type=int, help="tokens of the longest of them")
    parser.add_argument("--vocabulary", default=4096, type=int)
    parser.add_argument("--share", default=0.3, type=float, help="share of the corpus to score")
    parser.add_argument("--work", type=Path, help="folder of the runs, kept; temporary when absent")
    options = parser.parse_args()
    if not 0 < options.early < options.steps:
        parser.error(f"--early must be from 1 to {options.steps - 1}, below --steps, is {options.early}")
    temporary = None if options.work else tempfile.TemporaryDirectory()
    folder = (options.work or Path(temporary.name)).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    patterns = [DATA / "mix/*.zst", DATA / "reference/*.zst"]
    tokenizer = make_tokenizer(folder / "tokenizer.json", options.vocabulary, patterns)
    end, vocabulary = tokenizer.token_to_id(END), tokenizer.get_vocab_size()
    score = f"[{{ score: {{ estimator: ngram_excess, reference: '{DATA}/reference/*.jsonl.zst' }} }}]"
    corpus = run(options.program, folder, "corpus", score, options.share)
    reference = run(options.program, folder, "reference", "[]", 1)
    everything = [document for document in documents(corpus) if document[1]]
    # The last ones of the shuffled order are measured; the pilot reads the first.
    held_out = [document for document in everything if len(document[1]) <= options.longest][-options.held_out :]
    measured = {key for key, _, _ in held_out}
    streams = {
        "corpus": (document for document in everything if document[0] not in measured),
        "reference": documents(reference),
    }
    manifest = json.loads((corpus / "manifest.json").read_text())
    fingerprint = manifest["tokenizer"]["fingerprint"]
    for name, stream in streams.items():
        print(f"pilot on {name}: {options.steps} steps, {options.steps * BATCH * ROW:,} tokens", flush=True)
        data = rows_of(stream, end, options.steps * BATCH)
        early, late = train(data, options.steps, options.early, held_out, end, vocabulary, 17)
        lists = pa.list_(pa.float32())
        table = pa.table(
            {
                "doc_id": [key for key, _, _ in held_out],
                "loss_early": pa.array(early, lists),
                "loss_late": pa.array(late, lists),
            }
        ).replace_schema_metadata({"goodput.tokenizer_fingerprint": fingerprint})
        pq.write_table(table, folder / f"{name}.parquet")
        command = [options.program, "calibrate", corpus, "--losses", folder / f"{name}.parquet"]
        command += ["--pilot", f"small-on-{name}", "--output", folder / f"{name}.calibration.json"]
        print(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        falls = [[a - b for a, b in zip(*pair, strict=True)] for pair in zip(early, late, strict=True)]
        usefulness = [values for _, _, values in held_out]
        flat = lambda nested: [value for values in nested for value in values]
        mean = lambda nested: [sum(values) / len(values) for values in nested]
        chance = random.Random(17)
        random_tokens = [chance.random() for _ in flat(falls)]
        random_documents = [chance.random() for _ in falls]
        print(
            f"rank correlation with the fall of the loss: by token {rank_correlation(flat(usefulness), flat(falls)):+.3f} "
            f"(random {rank_correlation(random_tokens, flat(falls)):+.3f}), by document "
            f"{rank_correlation(mean(usefulness), mean(falls)):+.3f} "
            f"(random {rank_correlation(random_documents, mean(falls)):+.3f})\n",
            flush=True,
        )


if __name__ == "__main__":
    main()
