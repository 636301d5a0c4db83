"""Trains on the shards of an output folder in their order and writes events: train.py OUT LOG"""

import json
import sys
import time
import zlib

import numpy as np
import pyarrow.parquet as pq
import torch

out, log, rows_a_step = sys.argv[1], open(sys.argv[2], "a", buffering=1), 8
manifest = json.load(open(f"{out}/manifest.json"))


def tell(kind, **more):
    print(json.dumps({"ts": time.time(), "kind": kind, **more}), file=log)


def steps():
    rows = []
    for path in [file["path"] for file in manifest["files"] if file["path"].startswith("shards/")]:
        for part in pq.ParquetFile(f"{out}/{path}").iter_batches(256, columns=["position", "input_ids"]):
            rows += part.to_pylist()
            while len(rows) >= rows_a_step:
                yield rows[:rows_a_step]
                rows = rows[rows_a_step:]


tell("job_start", tag=f"dataset={manifest['checksum']}")
vocabulary = manifest["tokenizer"]["vocabulary_size"]
model = torch.nn.Sequential(torch.nn.Embedding(vocabulary, 64), torch.nn.Linear(64, vocabulary))  # yours in its place
optimizer = torch.optim.AdamW(model.parameters())
for step, rows in enumerate(steps(), 1):
    began = time.time()
    ids = torch.tensor([row["input_ids"] for row in rows])
    loss = torch.nn.functional.cross_entropy(model(ids[:, :-1]).transpose(1, 2), ids[:, 1:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    read = sum(zlib.crc32(np.asarray(row["input_ids"], "<u4")) for row in rows)
    tell("step", step=step, tokens=ids.numel(), loss=loss.item(), dur_s=time.time() - began,
         row=rows[0]["position"], rows=len(rows), ids_crc32=read)  # fmt: skip
tell("job_end")
