"""Whether the scores prefer what a careful person would: runs the program on texts with known truth and writes
REPORT.md. On the shared sample without arguments; on anyone's text with them (see --help)."""

import argparse
import re
import shutil
import tempfile
from pathlib import Path

import product
import report
import texts

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
DATA = ROOT.parent / "shared" / "data"
QUALITY = ["corpus", "labelled"]
JUNK = ["corpus", "clean", "junk"]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--program", default=ROOT / "target/release/goodput", type=Path, help="the program to test")
    add("--compare", type=Path, help="another build of it, shown beside it")
    add("--corpus", nargs="+", default=[DATA / "mix/*.jsonl.zst"], help="JSONL files of raw text")
    add("--corpus-share", default=0.5, type=float, help="share of the corpus' documents to use")
    add("--reference", nargs="+", default=[DATA / "reference/*.jsonl.zst"], help="JSONL files of good text")
    add("--labelled", nargs="+", default=[DATA / "labelled/quality.jsonl.zst"], help="JSONL with metadata.quality 0 or 1")
    add("--clean", nargs="+", default=[DATA / "validation/*.jsonl.zst", DATA / "mix/books-en-00.jsonl.zst"],
        help="JSONL files of clean text, in which junk is hidden; with the good labelled texts")
    add("--foreign", nargs="+", default=[DATA / "labelled/language.jsonl.zst"], help="JSONL with texts by metadata.lang")
    add("--language", default="en", help="the language of the reference; texts of --foreign in it are left out")
    add("--tokenizer", default=DATA / "tokenizers/gpt2/tokenizer.json", type=Path)
    add("--estimators", nargs="+", help="default: all that need no file but a reference")
    add("--passage", default=2000, type=int, help="characters of a clean passage")
    add("--junk-share", default=0.02, type=float, help="junk of each kind per clean passage")
    add("--seed", default=17, type=int)
    add("--work", type=Path, help="folder of the runs, kept: those of the same plan are not done again; temporary when absent")
    add("--report", default=HERE / "REPORT.md", type=Path)
    options = parser.parse_args()
    if not 0 < options.junk_share <= 0.2:
        parser.error(f"--junk-share must be above 0 and at most 0.2, is {options.junk_share}")
    if not 0 < options.corpus_share <= 1:
        parser.error(f"--corpus-share must be above 0 and at most 1, is {options.corpus_share}")
    return options


def prepare(options, folder):
    """Writes the inputs of all runs. The fitting sets share no run of 13 words with the evaluation."""
    labelled = list(texts.read(options.labelled))
    for text in labelled:
        if text.metadata.get("quality") not in (0, 1):
            raise SystemExit(f"'{text.id}' in --labelled: 'metadata.quality' must be 0 or 1, "
                             f"is {text.metadata.get('quality')!r}")
        text.group = text.id.split("/")[0]
    good = [text for text in labelled if text.metadata["quality"] == 1]
    clean_documents = list(texts.read(options.clean)) + good
    clean = list(texts.passages(clean_documents, options.passage))
    foreign = [text for text in texts.read(options.foreign) if text.metadata.get("lang") != options.language]
    library = texts.tokenizer(options.tokenizer)
    count = round(options.junk_share * len(clean))
    junk, originals, replaced = texts.junk(clean, foreign, library, count, options.seed)
    clean = [text for text in clean if text.id not in replaced]
    evaluated = labelled + clean_documents + foreign
    overlap = texts.Overlap([text.text for text in evaluated])
    counts, kept = {}, {}
    for name, patterns, share in [("corpus", options.corpus, options.corpus_share), ("reference", options.reference, 1)]:
        drawn = [text for text in texts.read(patterns) if texts.key("corpus", text.id) < share]
        kept[name] = [text for text in drawn if not overlap.shares(text.text)]
        counts[name] = (len(drawn), len(kept[name]))
    kept["half"] = [text for text in kept["reference"] if texts.key("half", text.id) < 0.5]
    for name, documents in (kept | {"labelled": labelled, "clean": clean, "junk": junk}).items():
        texts.write(folder / f"{name}.jsonl", documents)
    return kept | {"labelled": labelled, "clean": clean, "junk": junk, "originals": originals, "counts": counts}


def run_all(options, folder, found):
    """Scores by estimator: name -> those of the quality run and of the junk run."""
    names = options.estimators or list(found)
    programs = [(name, options.program, name, "reference") for name in names]
    programs.insert(1, (f"{names[0]}, half the reference", options.program, names[0], "half"))
    if options.compare:
        programs.insert(1, (f"{names[0]}, compared", options.compare, names[0], "reference"))
    if "reference" not in found[names[0]]:
        raise SystemExit(f"the first estimator must be one with a reference, is '{names[0]}'")
    runs = {}
    for label, program, name, reference in programs:
        stage = {"estimator": name}
        if "reference" in found[name]:
            stage["reference"] = str(folder / f"{reference}.jsonl")
        both = []
        for kind, sources in [("quality", QUALITY), ("junk", JUNK)]:
            if (kind, reference) == ("junk", "half"):
                continue
            # Tokens are read of the first estimator, and of it with the other reference.
            rows = kind == "quality" and name == names[0] and program == options.program
            run = re.sub(r"\W+", "-", f"{label} {kind}")
            out = product.run(program, folder, run, sources, options.tokenizer, [{"score": stage}], options.seed, rows)
            both.append(product.read(out, ["labelled"] if rows else []))
            if not options.work:
                shutil.rmtree(out)
        runs[label] = both
    return runs


def main():
    options = arguments()
    folder = options.work or Path(tempfile.mkdtemp(prefix="goodput-evidence-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        prepared = prepare(options, folder)
        runs = run_all(options, folder, product.estimators(options.program))
        stages = [{"near_dedupe": {}}]
        out = product.run(options.program, folder, "near", ["clean", "junk"], options.tokenizer, stages, options.seed)
        near = product.read(out)
    finally:
        if not options.work:
            shutil.rmtree(folder)
    options.report.write_text(report.write(prepared, runs, near, options), encoding="utf-8")


if __name__ == "__main__":
    main()
