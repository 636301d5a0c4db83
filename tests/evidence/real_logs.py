"""Trains a tiny model under several trainers for their logs, which lie in tests/logs and are read by the tests. Run by
hand, once; needs PyTorch, numpy before 2, tensorboard, transformers and accelerate:

    python3 tests/evidence/real_logs.py FOLDER

Where a package is missing its trainer is left out. `versions.json` in the folder names what was used. Lightning is not
among them: with Python 3.11 it does not import beside Debian's PyTorch 1.13.
"""

import importlib.metadata
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

import torch

ROWS, LENGTH, VOCABULARY = 8, 32, 64


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Embedding(VOCABULARY, 32), torch.nn.Linear(32, VOCABULARY))

    def forward(self, input_ids, labels=None):
        logits = self.inner(input_ids[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.transpose(1, 2), input_ids[:, 1:])
        return {"loss": loss, "logits": logits}


def texts(count, seed):
    """Numbers of which each follows from the one before, but for one in eight."""
    chance = torch.Generator().manual_seed(seed)
    ids = torch.randint(VOCABULARY, (count, LENGTH), generator=chance)
    for at in range(1, LENGTH):
        follows = torch.rand(count, generator=chance) < 7 / 8
        ids[follows, at] = (5 * ids[follows, at - 1] + 1) % VOCABULARY
    return ids


def steps(first, last):
    """A plain loop: step, loss, seconds."""
    torch.manual_seed(17)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(first, last + 1):
        began = time.time()
        loss = model(texts(ROWS, step))["loss"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)
        yield step, loss.item(), time.time() - began


def plain(folder):
    """Thirty steps, and a second process that goes on from the twentieth, in both formats."""
    from torch.utils.tensorboard import SummaryWriter

    with (folder / "events.jsonl").open("w") as log:
        for attempt, (first, last) in enumerate([(1, 30), (21, 60)], 1):
            event = lambda kind, **more: log.write(
                json.dumps({"run": "tiny", "attempt": attempt, "ts": time.time(), "kind": kind} | more) + "\n"
            )
            where = folder / f"tensorboard-{attempt}"
            writer = SummaryWriter(where)
            event("job_start")
            if attempt == 2:
                event("ckpt_restore", step=20, dur_s=0.0)
            for step, loss, seconds in steps(first, last):
                event("step", step=step, tokens=ROWS * LENGTH, loss=loss, dur_s=seconds)
                writer.add_scalar("train/tokens", step * ROWS * LENGTH, step)
                writer.add_scalar("train/loss", loss, step)
                if step % 20 == 0:
                    began = time.time()
                    time.sleep(0.05)
                    event("ckpt_save", step=step, dur_s=time.time() - began)
            event("job_end" if attempt == 2 else "failure")
            writer.close()
            # The name that the writer chooses holds that of the machine.
            [file] = where.iterdir()
            (folder / "tensorboard").mkdir(exist_ok=True)
            file.rename(folder / "tensorboard" / f"events.out.tfevents.{attempt}")
            where.rmdir()
            time.sleep(1.0)


class Texts(torch.utils.data.Dataset):
    def __init__(self, count, seed):
        self.ids = texts(count, seed)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, at):
        return {"input_ids": self.ids[at], "labels": self.ids[at]}


def hugging_face(folder):
    from transformers import Trainer, TrainingArguments

    with tempfile.TemporaryDirectory() as work:
        arguments = TrainingArguments(
            work,
            max_steps=60,
            per_device_train_batch_size=ROWS,
            logging_steps=5,
            evaluation_strategy="steps",
            eval_steps=20,
            save_steps=60,
            learning_rate=1e-2,
            include_num_input_tokens_seen=True,
            report_to=[],
            use_cpu=True,
        )
        Trainer(Model(), arguments, train_dataset=Texts(ROWS * 60, 1), eval_dataset=Texts(32, 2)).train()
        shutil.copy(Path(work) / "checkpoint-60/trainer_state.json", folder / "trainer_state.json")


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for trainer in [plain, hugging_face]:
        try:
            trainer(folder)
        except ImportError as error:
            print(f"{trainer.__name__}: left out: {error}")
    names = ["torch", "tensorboard", "transformers", "accelerate"]
    versions = {}
    for name in names:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    (folder / "versions.json").write_text(json.dumps(versions, indent=1) + "\n")


if __name__ == "__main__":
    main()
