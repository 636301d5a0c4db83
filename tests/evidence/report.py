"""The report: tables from the scores, set into the text of report.in.md."""

from collections import Counter
from pathlib import Path

import measure
import numpy as np
import texts
import token_classes

FALSE_DROPS = 0.02


def table(head, rows):
    """A Markdown table; the first column is words, the others are figures."""
    lines = ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * (len(head) - 1)]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows])


def figure(value, digits=3):
    return "-" if value is None or np.isnan(value) else f"{value:.{digits}f}"


class Labelled:
    """The labelled set as arrays."""

    def __init__(self, prepared):
        documents = prepared["labelled"]
        self.ids = [text.id for text in documents]
        self.labels = np.array([text.metadata["quality"] for text in documents])
        self.domains = np.array([text.group for text in documents])
        self.quarters = measure.quartiles([len(text.text) for text in documents])

    def scores(self, scored):
        return np.array([scored.score[id] for id in self.ids])

    def sides(self, scores, inside=True):
        return scores[inside & (self.labels == 1)], scores[inside & (self.labels == 0)]


def areas(labelled, runs, seed):
    rows = []
    for name, (quality, *_) in runs.items():
        scores = labelled.scores(quality)
        good, bad = labelled.sides(scores)
        low, high = measure.interval(good, bad, seed)
        quarters = [figure(measure.auc(*labelled.sides(scores, labelled.quarters == quarter))) for quarter in range(4)]
        within = measure.stratified_auc(scores, labelled.labels, labelled.quarters)
        half = np.array([texts.key("half", id) < 0.5 for id in labelled.ids])
        halves = [figure(measure.auc(*labelled.sides(scores, side))) for side in (half, ~half)]
        rows.append([name, f"**{figure(measure.auc(good, bad))}**", f"{figure(low)} to {figure(high)}", *quarters,
                     figure(within), *halves])
    return table(["estimator", "AUC", "95 % interval", "shortest quarter", "second", "third", "longest", "same quarter",
                  "one half", "the other"], rows)


def domains(labelled, quality):
    scores = labelled.scores(quality)
    bad = sorted(set(labelled.domains[labelled.labels == 0]))
    rows = []
    for good in sorted(set(labelled.domains[labelled.labels == 1])):
        of_good = scores[(labelled.domains == good) & (labelled.labels == 1)]
        of_bad = [scores[(labelled.domains == name) & (labelled.labels == 0)] for name in bad]
        rows.append([f"{good} ({len(of_good)})", *[figure(measure.auc(of_good, other)) for other in of_bad]])
    counts = Counter(labelled.domains[labelled.labels == 0])
    return table(["good \\ bad", *[f"{name} ({counts[name]})" for name in bad]], rows)


def placebo(labelled, runs, seed):
    rows = []
    for name, (quality, *_) in runs.items():
        scores = labelled.scores(quality)
        real = measure.stratified_auc(scores, labelled.labels, labelled.quarters)
        dealt = [
            measure.stratified_auc(measure.permuted(scores, labelled.quarters, seed + draw), labelled.labels, labelled.quarters)
            for draw in range(200)
        ]
        rows.append([name, figure(real), figure(np.mean(dealt)), figure(np.quantile(dealt, 0.025)) + " to "
                     + figure(np.quantile(dealt, 0.975))])
    return table(["estimator", "AUC within quarters", "permuted, mean of 200", "95 % of them"], rows)


def recall(prepared, runs, near):
    kinds = list(dict.fromkeys(text.group for text in prepared["junk"]))
    rows, drops = [], {}
    for name, (_, *junk) in runs.items():
        if not junk:
            continue
        scored = junk[0]
        clean = [text for text in prepared["clean"] if text.id not in prepared["originals"]]
        bound = measure.threshold([scored.score[text.id] for text in clean], FALSE_DROPS)
        caught = lambda group: np.mean([scored.score[t.id] < bound for t in prepared["junk"] if t.group == group])
        rows.append([name, *[figure(caught(kind), 2) for kind in kinds]])
        drops[name] = {
            group: np.mean([scored.score[t.id] < bound for t in clean if t.group == group])
            for group in dict.fromkeys(text.group for text in clean)
        }
    ids = {kind: [text.id for text in prepared["junk"] if text.group == kind] for kind in kinds}
    rows.append(["(near_dedupe alone)", *[figure(np.mean([id in near.rejected for id in ids[kind]]), 2) for kind in kinds]])
    count = Counter(text.group for text in prepared["clean"])
    groups = list(next(iter(drops.values())))
    false = [[name, *[figure(drops[name][group]) for group in groups]] for name in drops]
    return (table(["estimator", *[f"{kind} ({len(ids[kind])})" for kind in kinds]], rows),
            table(["estimator", *[f"{group} ({count[group]})" for group in groups]], false))


def spread(prepared, runs):
    rows = []
    for name, (quality, *_) in runs.items():
        scores = np.array([quality.score[text.id] for text in prepared["corpus"]])
        cuts = np.quantile(scores, [0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95])
        rows.append([name, *[figure(cut, 4) for cut in cuts], figure(np.mean(scores < 0.01), 2)])
    return table(["estimator", "5 %", "10 %", "25 %", "50 %", "75 %", "90 %", "95 %", "share below .01"], rows)


def groups(prepared, runs, name_of, least=20):
    """Median score of groups of the corpus, as a share of the corpus' documents that score lower."""
    names = [name for name in runs if name != "random" and not name.endswith("half the reference")]
    counts = Counter(filter(None, map(name_of, prepared["corpus"])))
    rows = []
    for group, count in counts.items():
        if count < least:
            continue
        row = []
        for name in names:
            quality = runs[name][0]
            every = np.sort([quality.score[text.id] for text in prepared["corpus"]])
            own = [quality.score[text.id] for text in prepared["corpus"] if name_of(text) == group]
            row += [figure(np.median(own), 3), f"{np.searchsorted(every, np.median(own)) / len(every):.0%}"]
        rows.append([group, count, *row])
    rows.sort(key=lambda row: -float(row[2]))
    head = [part for name in names for part in (f"{name}: median", "rank")]
    return table(["group", "documents", *head], rows)


def scales(runs):
    """What the estimators with scales of their own found."""
    names = ["c95_nats", "c999_nats", "window_c95_nats", "window_c999_nats", "reference_median_excess_nats",
             "corpus_median_excess_nats", "tau_nats", "s_nats", "u_ref", "held_out_nats_by_target",
             "held_out_nats_by_general"]
    fitted = {name: quality.estimator["fitted"] for name, (quality, *_) in runs.items()}
    fitted = {name: found for name, found in fitted.items() if "tau_nats" in found}
    rows = [[name, *[figure(found.get(name), 3) for found in fitted.values()]] for name in names]
    return table(["", *[f"{name} (version {found['version']})" for name, found in fitted.items()]], rows)


def write(prepared, runs, near, options):
    default = next(iter(runs))
    quality = runs[default][0]
    labelled = Labelled(prepared)
    caught, false = recall(prepared, runs, near)
    with_half = runs[f"{default}, half the reference"][0]
    documents, classes = token_classes.classify(quality, with_half)
    head = ["texts", "tokens", *token_classes.CLASSES, "mean u"]
    parts = {
        "overlap": table(["fitting set", "documents drawn", "left after taking shared text out"],
                         [[name, *prepared["counts"][name]] for name in prepared["counts"]]),
        "areas": areas(labelled, runs, options.seed),
        "domains": domains(labelled, quality),
        "placebo": placebo(labelled, runs, options.seed),
        "recall": caught,
        "false_drops": false,
        "spread": spread(prepared, runs),
        "groups": groups(prepared, runs, lambda text: text.group),
        "classes": table(head, token_classes.shares(documents, classes, labelled)),
        "examples": token_classes.examples(documents, classes, labelled, texts.tokenizer(options.tokenizer)),
        "scales": scales(runs),
        "languages": groups(prepared, runs, lambda text: language(text)),
    }
    text = (Path(__file__).parent / "report.in.md").read_text(encoding="utf-8")
    for name, part in parts.items():
        text = text.replace("{{" + name + "}}", part)
    return text


def language(text):
    lang = text.metadata.get("lang")
    return f"{text.group}, {lang}" if lang else None
