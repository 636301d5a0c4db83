"""Runs the program and reads what it wrote."""

import json
import re
import subprocess
from dataclasses import dataclass

import numpy as np
import pyarrow.parquet as pq


@dataclass
class Scored:
    """Documents of a run by id, and what the estimator says of itself."""

    score: dict
    tokens: dict
    rejected: dict
    estimator: dict
    rows: list


def run(program, folder, name, sources, tokenizer, stages, seed, excess=False):
    """Runs a pipeline over `sources` (files named after them) and gives its output folder, or what it said."""
    pipeline = {
        "version": 1,
        "name": name,
        "seed": seed,
        "inputs": [{"path": str(folder / f"{source}.jsonl"), "source": source, "id": "id"} for source in sources],
        "tokenizer": {"file": str(tokenizer)},
        "stages": stages,
        "order": {"strategy": "shuffle"},
        "pack": {"method": "none"},
        "output": {"path": str(folder / name), "rejects": "tokens", "usefulness": "f32", "excess_nats": excess},
    }
    path = folder / f"{name}.yaml"
    # JSON is YAML.
    path.write_text(json.dumps(pipeline, indent=1))
    done = subprocess.run([program, "run", path, "--replace", "--progress", "off"], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr.strip()}")
    return folder / name


def estimators(program):
    """The estimators of the program that fit on text alone, with their options: tried on a small corpus."""
    text = subprocess.run([program, "stages", "score"], capture_output=True, text=True, check=True).stdout
    line = next(line for line in text.splitlines() if line.startswith("'estimator' is one of: "))
    names = line.removeprefix("'estimator' is one of: ").split(".")[0].split(", ")
    found = {}
    for name in names:
        text = subprocess.run([program, "stages", name], capture_output=True, text=True, check=True).stdout
        required = re.findall(r"^  (\w+) \([^)\n]*; required\)", text, flags=re.M)
        if set(required) <= {"reference"}:
            # A model can stand in place of the reference, so the option itself may say that it is optional.
            found[name] = ["reference"] if re.search(r"^  reference \(", text, flags=re.M) else []
    return found


def read(out, keep=()):
    """Scores of all documents, and the token rows of documents whose source is in `keep`."""
    scored = Scored({}, {}, {}, json.loads((out / "manifest.json").read_text()).get("estimator"), [])
    for path in sorted((out / "shards").glob("*.parquet")):
        columns = ["doc_id", "source", "doc_token_start", "score"]
        file = pq.ParquetFile(path)
        for batch in file.iter_batches(batch_size=2000):
            wide = [name for name in ["input_ids", "usefulness", "excess_nats"] if name in batch.schema.names]
            lengths = batch.column("input_ids").value_lengths().to_numpy()
            part = {name: batch.column(name).to_pylist() for name in columns if name in batch.schema.names}
            for row, (id, source) in enumerate(zip(part["doc_id"], part["source"])):
                scored.tokens[id] = scored.tokens.get(id, 0) + int(lengths[row])
                if "score" in part:
                    scored.score[id] = part["score"][row]
                if source in keep:
                    values = {name: np.asarray(batch.column(name)[row].values) for name in wide}
                    scored.rows.append((id, part["doc_token_start"][row], values))
    for path in sorted((out / "rejects").glob("*.parquet")):
        for row in pq.read_table(path, columns=["doc_id", "reason", "score", "tokens"]).to_pylist():
            scored.rejected[row["doc_id"]] = row["reason"]
            scored.tokens[row["doc_id"]] = row["tokens"]
            if row["score"] is not None:
                scored.score[row["doc_id"]] = row["score"]
    return scored
