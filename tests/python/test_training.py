"""A trainer that reads the shards in order and writes events, and the demonstration made very small. Both need PyTorch,
which no package list here asks for: Debian's python3-torch, or any python named by GOODPUT_TORCH_PYTHON."""

import json
import os
import random
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import tokenizers
import world as worlds

HERE = Path(__file__).resolve().parent
# The packages of this environment, for an interpreter of the same version that has PyTorch.
ENVIRONMENT = os.environ | {"PYTHONPATH": sysconfig.get_path("purelib"), "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.fixture(scope="session")
def torch_python():
    needs = "import torch, numpy, pyarrow, tokenizers, zstandard"
    for python in [os.environ.get("GOODPUT_TORCH_PYTHON"), sys.executable, "/usr/bin/python3"]:
        if python and Path(python).exists():
            if subprocess.run([python, "-c", needs], env=ENVIRONMENT, capture_output=True).returncode == 0:
                return python
    pytest.skip("skipped: no PyTorch")


def measure(*arguments):
    done = subprocess.run([worlds.PROGRAM, "measure", *arguments, "--format", "json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["runs"]


@pytest.fixture
def small_output(tmp_path):
    """Rows of 64 tokens of a tokenizer of bytes, in several shards."""
    letters = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    model = tokenizers.models.BPE({letter: at for at, letter in enumerate(sorted(letters))}, [])
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    write(tmp_path / "in.jsonl", texts(random.Random(3), ["one", "two", "three", "four", "five", "six", "seven"], 60))
    pipeline = {
        "version": 1,
        "name": "small",
        "seed": 1,
        "inputs": [{"path": "in.jsonl", "source": "in", "id": "id"}],
        "tokenizer": {"file": "tokenizer.json"},
        "stages": [],
        "pack": {"method": "concat", "sequence_tokens": 64},
        "output": {"path": "out", "shard_tokens": 10_000},
    }
    # JSON is YAML.
    (tmp_path / "small.yaml").write_text(json.dumps(pipeline))
    subprocess.run([worlds.PROGRAM, "run", tmp_path / "small.yaml", "--progress", "off"], check=True, capture_output=True)
    return tmp_path / "out"


def test_the_trainer_of_the_readme_reads_in_order_and_is_measured(small_output, torch_python, tmp_path):
    trainer, log = HERE / "train.py", tmp_path / "train.jsonl"
    subprocess.run([torch_python, trainer, small_output, log], check=True, env=ENVIRONMENT)
    [run] = measure("--log", log, "--dataset", small_output)
    steps = json.loads((small_output / "manifest.json").read_text())["totals"]["rows"] // 8
    assert steps > 40
    assert run["dataset"]["is_named_in_log"] and run["steps"]["done"] == steps
    order = run["curriculum"]["reading_order"]
    assert order == {"lines_with_rows": steps, "lines_with_checksum": steps, "lines_that_differ": 0, "differences": []}
    # The same log with the tokens of two steps exchanged, as a trainer that shuffles would write it.
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    lines[2]["ids_crc32"], lines[4]["ids_crc32"] = lines[4]["ids_crc32"], lines[2]["ids_crc32"]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    [run] = measure("--log", log, "--dataset", small_output)
    order = run["curriculum"]["reading_order"]
    found = [(one["kind"], one["first_step"], one["tokens_of_step"]) for one in order["differences"]]
    assert found == [("skips", 2, 4), ("reads_again", 4, 2)]
    assert any("did not read the rows in the order" in warning for warning in run["warnings"])


def test_the_readme_shows_that_trainer():
    code = (HERE / "train.py").read_text().split("\n\n", 1)[1]
    assert code.strip() in (worlds.ROOT / "README.md").read_text()


def texts(chance, words, count):
    """Documents of sentences in which each word goes with the one before."""
    for _ in range(count):
        at, text = chance.randrange(len(words)), []
        for _ in range(120):
            at = (at + chance.choice([1, 1, 2, 7])) % len(words)
            text.append(words[at])
        yield " ".join(text)


def write(path, texts):
    path.write_text("".join(json.dumps({"id": f"{path.stem}/{at}", "text": text}) + "\n" for at, text in enumerate(texts)))
    return str(path)


def test_the_demonstration_goes_from_a_pool_to_a_report(torch_python, tmp_path):
    chance = random.Random(5)
    good = [f"{a}{b}" for a in ["ba", "ce", "di", "fo", "gu"] for b in ["lan", "mer", "nis", "por", "tul"]]
    other = [f"{a}{b}" for a in ["vx", "wq", "zj", "kh"] for b in ["01", "23", "45", "67"]]
    mixed = [*texts(chance, good, 150), *texts(chance, other, 450)]
    chance.shuffle(mixed)
    command = [torch_python, worlds.ROOT / "tests/evidence/demonstration.py", "--work", tmp_path / "work"]
    command += ["--program", worlds.PROGRAM, "--pool", write(tmp_path / "pool.jsonl", mixed)]
    command += ["--reference", write(tmp_path / "reference.jsonl", texts(chance, good, 200))]
    command += ["--target", write(tmp_path / "target.jsonl", texts(chance, good, 20))]
    command += "--budgets 2048,4096,8192 --seeds 1,2 --batch 4 --width 32 --layers 1 --heads 2 --vocabulary 320".split()
    command += "--pool-share 1 --keep-share 0.25 --validation-share 0.1 --eval-tokens 2000 --jobs 2".split()
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    report = (tmp_path / "work/demonstration.md").read_text()
    assert "Runs finished: 14 of 14." in report and "unfinished" not in report
    assert "Compute that `random` would have needed" in report and "| target | selected |" in report
    assert (tmp_path / "work/demonstration.html").read_text().lower().startswith("<!doctype html>")
    runs = measure(tmp_path / "work/measure.yaml")
    assert len(runs) == 14
    for run in runs:
        assert run["curriculum"]["reading_order"]["lines_that_differ"] == 0, run["name"]
    # Stopped after a run and started again, it makes what is missing alone.
    logs = {path: path.read_bytes() for path in (tmp_path / "work/logs").iterdir()}
    gone = tmp_path / "work/logs/bottom-4096-2.jsonl"
    gone.unlink()
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert done.stdout.count("finished before") == 13
    for path, before in logs.items():
        assert path == gone or path.read_bytes() == before
