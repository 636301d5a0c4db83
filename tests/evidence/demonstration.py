"""A demonstration: small language models trained on random, selected, ordered and rejected text of one pool, and how far
each comes on held-out text for the tokens that it reads. Run by hand; needs PyTorch (Debian: python3-torch,
libopenblas0-pthread), pyarrow, tokenizers and zstandard:

    cargo build --release
    python3 tests/evidence/demonstration.py --work FOLDER            # under two hours on two quiet cores
    python3 tests/evidence/demonstration.py --work FOLDER --small    # about five minutes
    python3 tests/evidence/demonstration.py --work FOLDER --device cuda --width 768 --layers 12 --heads 12 \\
        --budgets 30000000,100000000,300000000 --pool-share 1

What a run finished is kept: the same command goes on where it was stopped. The pipelines do all that touches the data:
one removes duplicates, what overlaps the target's held-out text, and `validation_share` of the groups that are left,
which is the general held-out text; the others select and order what remains. Every run reads its shards in order and
writes events; `goodput measure` reads them. The report goes to demonstration.md in the work folder, its page to demonstration.html.
"""

import argparse
import concurrent.futures
import json
import math
import multiprocessing
import os
import statistics
import subprocess
import time
import zlib
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
from small_model import DATA, END, ROW, SmallModel, losses, make_tokenizer, records

ROOT = Path(__file__).resolve().parents[2]
# Student's t for 95 % on both sides, by degrees of freedom.
T_95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
ARMS = ["random", "selected", "curriculum", "bottom"]


def options_of(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder of the runs, kept")
    parser.add_argument("--program", default=ROOT / "target/release/goodput", type=Path)
    parser.add_argument("--pool", default=str(DATA / "mix/*.jsonl.zst"), help="files to select from")
    parser.add_argument("--reference", default=str(DATA / "reference/*.jsonl.zst"), help="text like the target")
    parser.add_argument("--target", default=str(DATA / "validation/*.jsonl.zst"), help="held-out text of the target")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1")
    parser.add_argument("--jobs", default=os.cpu_count(), type=int, help="runs at a time, a thread each")
    parser.add_argument("--budgets", default="250000,750000,2250000", help="token places of a run, three or more")
    parser.add_argument("--seeds", default="17,18,19", help="of data and initialisation")
    parser.add_argument("--vocabulary", default=4096, type=int)
    parser.add_argument("--width", default=128, type=int)
    parser.add_argument("--layers", default=3, type=int)
    parser.add_argument("--heads", default=4, type=int)
    parser.add_argument("--batch", default=16, type=int, help=f"rows of {ROW} tokens of a step")
    parser.add_argument("--learning-rate", default=2e-3, type=float, help="the highest; it ends at a tenth")
    parser.add_argument("--pool-share", default=0.6, type=float, help="share of the pool's documents")
    parser.add_argument("--document-characters", default=2_000, type=int, help="what is read of a document of the pool")
    parser.add_argument("--keep-share", default=0.2, type=float, help="share of the tokens that an arm may choose from")
    parser.add_argument("--validation-share", default=0.03, type=float, help="of the groups of similar documents")
    parser.add_argument("--eval-tokens", default=60_000, type=int, help="of each held-out set")
    parser.add_argument("--report-only", action="store_true", help="trains nothing, reports what is finished")
    parser.add_argument("--small", action="store_true", help="smaller budgets, model and pool: about five minutes")
    options = parser.parse_args(arguments)
    if options.small:
        options.budgets, options.pool_share, options.eval_tokens = "60000,120000,240000", 0.15, 20_000
        options.width, options.layers, options.vocabulary = 64, 2, 2048
    options.budgets = sorted({int(budget) for budget in options.budgets.split(",")})
    options.seeds = [int(seed) for seed in options.seeds.split(",")]
    if len(options.budgets) < 3 or options.budgets[0] < options.batch * ROW:
        parser.error(f"--budgets must be three or more, each a step of {options.batch * ROW:,} tokens or more")
    options.work = options.work.resolve()
    return options


def arms_of(options):
    """(arm, budget): the baseline at every budget, the others where their losses are likely to lie between its."""
    low, middle = options.budgets[0], options.budgets[-2]
    return [("random", budget) for budget in options.budgets] + [
        ("selected", low),
        ("selected", middle),
        ("curriculum", middle),
        ("bottom", middle),
    ]


def pipeline(options, name, seed, inputs, fields, stages, order, pack, output, work=None):
    """Runs a pipeline and gives its output folder. A finished one is found complete."""
    out = options.work / name
    document = {
        "version": 1,
        "name": name,
        "seed": seed,
        "inputs": [{"path": inputs, "source": "pool", "id": "id", "fields": fields}],
        "tokenizer": {"file": str(options.work / "tokenizer.json"), "end_token": END},
        "stages": stages,
        "order": order,
        "pack": pack,
        "output": {"path": str(out), "rejects": "none"} | output,
    }
    path = options.work / f"{name}.yaml"
    # JSON is YAML.
    path.write_text(json.dumps(document, indent=1))
    command = [options.program, "run", path, "--progress", "off", "--replace"]
    command += ["--work", options.work / work, "--keep-work"] if work else []
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{path}: {done.stderr.strip()}")
    return out


def table(out, folder, columns):
    """Columns of all files of a folder of the output."""
    tables = (pq.read_table(path, columns=columns) for path in sorted((out / folder).glob("*.parquet")))
    return [row for table in tables for row in table.to_pylist()]


def make_data(options):
    """Makes tokenizer, pool and held-out text, and the datasets of the arms."""
    options.work.mkdir(parents=True, exist_ok=True)
    if not (options.work / "tokenizer.json").exists():
        make_tokenizer(options.work / "tokenizer.new", options.vocabulary, [options.pool, options.reference])
        (options.work / "tokenizer.new").rename(options.work / "tokenizer.json")
    sample = options.work / "sample.jsonl"
    if not sample.exists():
        # By document, so that the same share is the same documents.
        inside = lambda record: zlib.crc32(str(record["id"]).encode()) / 2**32 < options.pool_share
        write(sample, (record for record in records(options.pool) if inside(record)))
    score = {"score": {"estimator": "ngram_excess", "reference": options.reference}}
    cleaning = [
        {"exact_dedupe": {}},
        {"near_dedupe": {}},
        {"decontaminate": {"evaluation": options.target, "policy": "remove_document"}},
        score,
    ]
    by_score, unpacked = {"strategy": "sorted", "by": "score"}, {"method": "none"}
    held_out = {"validation_share": options.validation_share}
    clean = pipeline(options, "clean", options.seeds[0], str(sample), {}, cleaning, by_score, unpacked, held_out)
    pool = options.work / "pool.jsonl"
    if not pool.exists():
        # What the first run kept, and the other end of its scores as a field to select by.
        scores = {row["doc_id"]: row["by_score"] for row in table(clean, "order", ["doc_id", "by_score"])}
        kept = (record for record in records(sample) if record["id"] in scores)
        low = lambda record: -scores[record["id"]]
        # Rows are read document by document: one of a whole book would fill steps alone.
        cut = lambda record: record["text"][: options.document_characters]
        write(pool, ({"id": record["id"], "text": cut(record), "low": low(record)} for record in kept))
    target = pipeline(options, "target", 1, options.target, {}, [], {"strategy": "shuffle"}, unpacked, {})
    rows = {"method": "concat", "sequence_tokens": ROW}
    datasets = {}
    for seed in options.seeds:
        positions = {}
        for arm in ARMS:
            select = {"keep_share_of_tokens": 1.0 if arm == "random" else options.keep_share}
            select["by"] = "low" if arm == "bottom" else "score"
            orders = {("shuffle", None): {"strategy": "shuffle"}}
            if arm == "curriculum":
                # The first three tenths of what a run reads go from easy to hard.
                wanted = {budget for name, budget in arms_of(options) if name == arm}
                easy = {"strategy": "sorted", "by": "difficulty"}
                shares = {budget: min(1.0, 0.3 * budget / positions["selected"]) for budget in wanted}
                orders = {
                    ("warmup", budget): {"strategy": "warmup", "share": share, "inner": easy}
                    for budget, share in shares.items()
                }
            for (_, budget), order in orders.items():
                name = f"{arm}-{seed}" if budget is None else f"{arm}-{budget}-{seed}"
                stages = [score, {"select": select}]
                out = pipeline(options, name, seed, str(pool), {"low": "float"}, stages, order, rows, {}, f"work-{seed}")
                manifest = json.loads((out / "manifest.json").read_text())
                positions[arm] = manifest["totals"]["positions"]
                most = max(b for a, b in arms_of(options) if a == arm)
                if positions[arm] < most:
                    raise SystemExit(
                        f"{out}: {positions[arm]:,} token places are fewer than the {most:,} that a run reads; raise "
                        "--pool-share or --keep-share, or lower --budgets"
                    )
                datasets[arm, budget, seed] = out
    return clean, target, datasets


def write(path, lines):
    """A JSONL file, whole or not at all."""
    with path.with_suffix(".new").open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    path.with_suffix(".new").rename(path)


def held_out_rows(documents, end, limit):
    """Rows of a document each time from the end token on, where the loss counts, tokens and bytes: whole documents of
    at most 4,000 tokens until there are enough."""
    rows, tokens, size = [], 0, 0
    for ids, count in documents:
        if tokens >= limit:
            break
        if not 0 < len(ids) <= 4_000:
            continue
        rows += [[end, *ids[at : at + ROW - 1]] for at in range(0, len(ids), ROW - 1)]
        tokens, size = tokens + len(ids), size + count
    lengths = torch.tensor([len(row) - 1 for row in rows])
    padded = torch.tensor([row + [end] * (ROW - len(row)) for row in rows])
    return padded, torch.arange(ROW - 1) < lengths[:, None], tokens, size


def held_out_sets(options, clean, target, end):
    bytes_of = {str(record["id"]): len(record["text"].encode()) for record in records(options.target)}
    rows = table(target, "shards", ["doc_id", "input_ids"])
    of_target = ((row["input_ids"][:-1], bytes_of[row["doc_id"]]) for row in rows)
    columns = ["input_ids", "text_bytes", "special_tokens", "doc_id"]
    found = sorted(table(clean, "validation", columns), key=lambda row: zlib.crc32(row["doc_id"].encode()))
    of_general = ((row["input_ids"][:-1], row["text_bytes"]) for row in found if row["special_tokens"] and row["text_bytes"])
    return {
        "target": held_out_rows(of_target, end, options.eval_tokens),
        "general": held_out_rows(of_general, end, options.eval_tokens),
    }


def rows_in_order(out, batch):
    """(row, input_ids) batch by batch as the manifest names the shards."""
    manifest = json.loads((out / "manifest.json").read_text())
    rows = []
    for name in (file["path"] for file in manifest["files"] if file["path"].startswith("shards/")):
        for part in pq.ParquetFile(out / name).iter_batches(batch, columns=["position", "input_ids"]):
            for position, ids in zip(part["position"].to_pylist(), part["input_ids"].to_pylist(), strict=True):
                rows.append((position, ids))
                if len(rows) == batch:
                    yield rows
                    rows = []


def evaluate(model, held_out, device):
    """Sum of nats over the tokens of a held-out set."""
    padded, counts, _, _ = held_out
    model.eval()
    total = 0.0
    with torch.no_grad():
        for at in range(0, len(padded), 32):
            values = losses(model, padded[at : at + 32].to(device)).double().cpu()
            total += (values * counts[at : at + 32]).sum().item()
    model.train()
    return total


def train(options, run, dataset, budget, seed, held_out, vocabulary):
    """One run: its events are there under their name when it is finished."""
    path = options.work / "logs" / f"{run}.jsonl"
    if path.exists():
        return f"{run}: finished before"
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    device = torch.device(options.device)
    began = time.time()
    with path.with_suffix(".new").open("w") as log:

        def event(kind, **more):
            log.write(json.dumps({"run": run, "attempt": 1, "ts": time.time(), "kind": kind} | more) + "\n")
            log.flush()

        checksum = json.loads((dataset / "manifest.json").read_text())["checksum"]
        steps = budget // (options.batch * ROW)
        event("job_start", tag=f"dataset={checksum}", total_steps=steps)
        model = SmallModel(vocabulary, options.width, options.layers, options.heads).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=options.learning_rate, weight_decay=0.1, betas=(0.9, 0.95))
        event("init", dur_s=time.time() - began)
        for step, rows in zip(range(1, steps + 1), rows_in_order(dataset, options.batch)):
            at = time.time()
            warm = min(1, step / max(1, min(50, steps // 5)))
            rate = options.learning_rate * warm * (0.1 + 0.9 * (1 + math.cos(math.pi * step / steps)) / 2)
            for group in optimizer.param_groups:
                group["lr"] = rate
            ids = torch.tensor([ids for _, ids in rows])
            loss = losses(model, ids.to(device)).mean()
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            event(
                "step",
                step=step,
                tokens=ids.numel(),
                loss=loss.item(),
                dur_s=time.time() - at,
                learning_rate=rate,
                row=rows[0][0],
                rows=len(rows),
                ids_crc32=sum(zlib.crc32(np.asarray(ids, "<u4")) for _, ids in rows),
            )
        for split, part in held_out.items():
            at = time.time()
            nats = evaluate(model, part, device)
            told = {"loss": nats / part[2], "tokens": part[2], "bytes": part[3], "dur_s": time.time() - at}
            event("eval", step=steps, split=split, **told)
        event("job_end")
    path.with_suffix(".new").rename(path)
    return f"{run}: {time.time() - began:.0f} s"


def measure_file(options, datasets):
    """What `goodput measure` is asked: the time and order of each run, and how far it came beside `random`."""
    parameters = parameters_of(options)
    runs = []
    finished = [run for run in runs_of(options) if (options.work / "logs" / f"{run[0]}.jsonl").exists()]
    for name, arm, budget, seed in finished:
        runs.append(
            {
                "name": name,
                "group": arm,
                "seed": seed,
                "logs": f"logs/{name}.jsonl",
                "model": {
                    "parameters": parameters,
                    "layers": options.layers,
                    "heads": options.heads,
                    "head_dimension": options.width // options.heads,
                    "sequence_tokens": ROW,
                },
                "dataset": {"path": str(dataset_of(datasets, arm, budget, seed))},
            }
        )
    document = {"version": 1, "name": "demonstration", "runs": runs}
    if len({budget for _, arm, budget, _ in finished if arm == "random"}) == len(options.budgets):
        document["progress"] = {"baseline": "random"}
    path = options.work / "measure.yaml"
    path.write_text(json.dumps(document, indent=1))
    return path


def parameters_of(options):
    model = SmallModel(vocabulary_of(options), options.width, options.layers, options.heads)
    return sum(parameter.numel() for parameter in model.parameters())


def vocabulary_of(options):
    model = json.loads((options.work / "tokenizer.json").read_text())
    return len(model["model"]["vocab"])


def runs_of(options):
    """(name, arm, budget, seed), the first seed of every arm first."""
    return [(f"{arm}-{budget}-{seed}", arm, budget, seed) for seed in options.seeds for arm, budget in arms_of(options)]


def dataset_of(datasets, arm, budget, seed):
    return datasets.get((arm, budget, seed)) or datasets[arm, None, seed]


def results(options):
    """Bits per byte by run and split, of the runs that are finished."""
    found = {}
    for name, arm, budget, seed in runs_of(options):
        path = options.work / "logs" / f"{name}.jsonl"
        if path.exists():
            for line in path.read_text().splitlines():
                event = json.loads(line)
                if event["kind"] == "eval":
                    bits = event["loss"] * event["tokens"] / (math.log(2) * event["bytes"])
                    found[arm, budget, seed, event["split"]] = bits
    return found


def interval(values):
    """Mean and half of the 95 % interval; the latter from two values on."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, None
    return mean, T_95[len(values) - 1] * statistics.stdev(values) / math.sqrt(len(values))


def with_interval(values):
    mean, half = interval(values)
    return f"{mean:.4f}" if half is None else f"{mean:.4f} ± {half:.4f}"


def verdict(pairs):
    """What differences from the baseline say, in words."""
    mean, half = interval(pairs)
    if half is None or len(pairs) < 3:
        return "too few seeds"
    if abs(mean) <= half:
        return f"not told apart; {half:.4f} would be"
    return "better" if mean < 0 else "worse"


def progress_lines(progress):
    """What `goodput measure` says of how far the arms came for their compute."""
    lines = [
        "## Compute that `random` would have needed, over what was spent",
        "",
        "m is 1 for `random`; the curve goes through its budgets on a logarithmic scale. Net m also pays for the selection: the "
        "core seconds of the arm's pipeline at 1e11 operations a second. p is corrected for the number of comparisons (Holm).",
        "",
        "| text | arm | FLOP | m | 95 % interval | p | least m that would be found | net m | verdict |",
        "| --- | --- | ---: | ---: | --- | ---: | ---: | ---: | --- |",
    ]
    number = lambda value, form: "" if value is None else format(value, form)
    for part in progress["sets"]:
        for one in part["comparisons"]:
            between = one["interval"] and "{:.3f} to {:.3f}".format(*one["interval"])
            cells = [part["role"], one["group"], number(one["budget"], ".3g"), number(one["multiplier"], ".3f")]
            cells += [between or one.get("no_interval_because", ""), number(one["holm_p_value"], ".3f")]
            cells += [number(one["minimum_detectable_multiplier"], ".3f"), number(one["net_multiplier"], ".3f")]
            lines.append(f"| {' | '.join(cells)} | {one['verdict'].replace('_', ' ')} |")
    for title, key in [("Concluded:", "concluded"), ("Not concluded:", "not_concluded")]:
        if progress[key]:
            lines += ["", title, "", *(f"- {sentence}" for sentence in progress[key])]
    return [*lines, ""]


def report(options, clean, found, measured):
    manifest = json.loads((clean / "manifest.json").read_text())
    held = manifest["validation"]
    names = runs_of(options)
    done = [run for run in names if (run[1], run[2], run[3], "target") in found]
    parameters = parameters_of(options)
    lines = [
        "# What small models learn from random, selected and rejected text of one pool",
        "",
        "Made by `tests/evidence/demonstration.py`. A model of "
        f"{parameters:,} parameters ({options.layers} layers of {options.width}), rows of {ROW} tokens, {options.batch} a "
        f"step, vocabulary {vocabulary_of(options):,}, a cosine to a tenth of the learning rate that ends with the run, "
        f"device `{options.device}`, PyTorch {torch.__version__.split('+')[0]}; of the pool a share of {options.pool_share} was "
        f"taken{', with `--small`' if options.small else ''}.",
        "",
        f"Runs finished: {len(done)} of {len(names)}"
        + ("." if len(done) == len(names) else "; **what is missing below is unfinished, not zero**."),
        "",
        f"The pool: {manifest['totals']['kept']['documents']:,} documents, {manifest['totals']['kept']['tokens']:,} tokens, "
        "after duplicates, what overlaps the target's held-out text, and "
        f"{held['held_out']['documents']:,} documents held out as general text (`validation_share: {held['share']}`, groups by "
        f"{held['groups']}). Target: held-out text of the kinds of the reference, other books and sections. "
        f"`selected` reads at random from the {options.keep_share:.0%} of the tokens with the highest scores, `bottom` from "
        "those with the lowest, `curriculum` is `selected` with its first three tenths from easy to hard.",
        "",
        "Seeds pair the runs: the arms of a seed begin with the same weights and read the same number of tokens. Differences are "
        f"of pairs; ± is the 95 % interval by Student's t over seeds {', '.join(map(str, options.seeds))}. It does not know "
        "of other pools, sizes or held-out texts, and each verdict is of its comparison alone, not corrected for their number.",
        "",
    ]
    for split in ["target", "general"]:
        lines += [f"## Bits per byte on {split} text", "", "| arm | tokens | seeds | bits per byte | less that of random | verdict |"]
        lines += ["| --- | ---: | ---: | ---: | ---: | --- |"]
        for arm, budget in arms_of(options):
            values = {seed: found.get((arm, budget, seed, split)) for seed in options.seeds}
            values = {seed: value for seed, value in values.items() if value is not None}
            if not values:
                lines.append(f"| {arm} | {budget:,} | 0 | unfinished | | |")
                continue
            pairs = [
                value - found["random", budget, seed, split]
                for seed, value in values.items()
                if arm != "random" and ("random", budget, seed, split) in found
            ]
            told = f"{with_interval(pairs)} | {verdict(pairs)}" if pairs else "|"
            lines.append(f"| {arm} | {budget:,} | {len(values)} | {with_interval(list(values.values()))} | {told} |")
        lines.append("")
    lines += ["## What `goodput measure` says of the runs", ""]
    lines += ["| arm | tokens | runs | read in the manifest's order | forecast data goodput g | productive time |"]
    lines += ["| --- | ---: | ---: | --- | ---: | ---: |"]
    for arm, budget in arms_of(options):
        wanted = {name for name, a, b, _ in names if (a, b) == (arm, budget)}
        runs = [run for run in measured["runs"] if run["name"] in wanted]
        if runs:
            orders = [run["curriculum"]["reading_order"] for run in runs]
            told = sum(order["lines_with_checksum"] for order in orders)
            wrong = sum(order["lines_that_differ"] for order in orders)
            order = f"yes, {told:,} steps by checksum" if not wrong else f"no, {wrong:,} of {told:,} steps differ"
            forecast = statistics.fmean(run["dataset"]["data_goodput"] for run in runs)
            productive = statistics.fmean(run["time"]["productive_share"] for run in runs)
            lines.append(f"| {arm} | {budget:,} | {len(runs)} | {order} | {forecast:.4f} | {productive:.1%} |")
    lines.append("")
    if measured.get("progress"):
        lines += progress_lines(measured["progress"])
    path = options.work / "demonstration.md"
    path.write_text("\n".join(lines))
    return path


def main(arguments=None):
    options = options_of(arguments)
    clean, target, datasets = make_data(options)
    (options.work / "logs").mkdir(exist_ok=True)
    tokenizer = json.loads((options.work / "tokenizer.json").read_text())
    end = tokenizer["model"]["vocab"].get(END, 0)
    held_out = held_out_sets(options, clean, target, end)
    context = multiprocessing.get_context("spawn")
    waiting = [] if options.report_only else runs_of(options)
    with concurrent.futures.ProcessPoolExecutor(options.jobs, mp_context=context) as pool:
        vocabulary = vocabulary_of(options)
        runs = [
            pool.submit(train, options, name, dataset_of(datasets, arm, budget, seed), budget, seed, held_out, vocabulary)
            for name, arm, budget, seed in waiting
        ]
        for done in concurrent.futures.as_completed(runs):
            print(done.result(), flush=True)
    if not results(options):
        raise SystemExit(f"{options.work / 'logs'}: no run is finished yet")
    asked, told = measure_file(options, datasets), {}
    for form in ["json", "html"]:
        done = subprocess.run([options.program, "measure", asked, "--format", form], capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"measure: {done.stderr.strip()}")
        told[form] = done.stdout
    (options.work / "demonstration.html").write_text(told["html"])
    print(report(options, clean, results(options), json.loads(told["json"])))


if __name__ == "__main__":
    main()
