"""Which class each token of the labelled set falls into, and why: known, noise, off-target, learnable."""

import measure
import numpy as np
import texts

CLASSES = ["learnable", "known", "noise", "off-target"]
MEANING = {
    "learnable": "`want` and `left * able` are a half or more",
    "known": "on target, `left * able` is below a half, and the same under another reference: the corpus' model expects it",
    "noise": "on target, `left * able` is below a half, and another under another reference, or 0: the reference can't predict it",
    "off-target": "`want` is below a half",
}


def by_document(rows):
    """Token columns of whole documents: id -> column -> values."""
    parts = {}
    for id, start, values in rows:
        parts.setdefault(id, []).append((start, values))
    return {
        id: {name: np.concatenate([values[name] for _, values in sorted(found, key=lambda part: part[0])]) for name in found[0][1]}
        for id, found in parts.items()
    }


def factors(document, fitted):
    """want, from the excess as defined; and left * able, what is left of u without it."""
    excess = document["excess_nats"].astype(float)
    want = 1 / (1 + np.exp(-np.clip((measure.windowed(excess, fitted["window_tokens"]) - fitted["tau_nats"]) / fitted["s_nats"], -16, 16)))
    return want, np.clip(document["usefulness"] / want, 0, 1)


def classify(first, second):
    """Class of every token by document.

    u and the excess alone don't tell a known token from noise. A second reference does: `left` does not
    depend on the reference, so that left * able stays the same for what is known and moves for noise, or is 0.
    """
    fitted, other = first.estimator["fitted"], second.estimator["fitted"]
    documents, others = by_document(first.rows), by_document(second.rows)
    found = {}
    for id, document in documents.items():
        want, rest = factors(document, fitted)
        _, again = factors(others[id], other)
        low = rest < 0.5
        same = (np.abs(rest - again) <= 1e-3 * rest) & (rest > 1e-6)
        classes = np.where(low & same, 1, np.where(low, 2, 0))
        found[id] = np.where(want < 0.5, 3, classes)
    return documents, found


def shares(documents, found, labelled):
    """Rows of the table: share of the tokens in each class, by label and domain."""
    rows = []
    sides = [("good", labelled.labels == 1), ("bad", labelled.labels == 0)]
    sides += [(domain, labelled.domains == domain) for domain in sorted(set(labelled.domains))]
    for name, inside in sides:
        classes = np.concatenate([found[id] for id, chosen in zip(labelled.ids, inside) if chosen])
        usefulness = np.concatenate([documents[id]["usefulness"] for id, chosen in zip(labelled.ids, inside) if chosen])
        rows.append([name, f"{len(classes):,}", *[f"{np.mean(classes == place):.1%}" for place in range(4)],
                     f"{usefulness.mean():.3f}"])
    return rows


def examples(documents, found, labelled, library, per_class=5, before=10):
    """Lines of Markdown: tokens of each class after the text that leads to them."""
    domain = dict(zip(labelled.ids, labelled.domains))
    lines = []
    for place, name in enumerate(CLASSES):
        lines += [f"**{name}**: {MEANING[name]}.", ""]
        shown = set()
        for id in sorted(found, key=lambda id: texts.key(name, id)):
            tokens = np.flatnonzero(found[id] == place)
            tokens = tokens[tokens >= before]
            if not len(tokens) or domain[id] in shown:
                continue
            token = tokens[int(texts.key("token", id) * len(tokens))]
            ids = documents[id]["input_ids"]
            context, own = library.decode(ids[token - before : token].tolist()), library.decode([int(ids[token])])
            # Half a character can't be shown.
            if "\ufffd" in context + own or not own.strip():
                continue
            u, excess = documents[id]["usefulness"][token], documents[id]["excess_nats"][token]
            lines.append(f"- {code(context)} → {code(own)}, u {u:.2f}, excess {excess:+.1f} nats ({domain[id]})")
            shown.add(domain[id])
            if len(shown) == per_class:
                break
        lines.append("")
    return "\n".join(lines).rstrip()


def code(text):
    """As a piece of code in Markdown, on one line."""
    text = text.replace("\n", "⏎").replace("`", "'")
    return f"`{text}`"
