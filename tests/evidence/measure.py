"""Figures from scores: areas under the curve with their intervals, strata, placebo, recall."""

import numpy as np


def auc(good, bad):
    """Chance that a good document scores above a bad one, ties half; NaN where a side is empty."""
    good, bad = np.asarray(good, dtype=float), np.sort(np.asarray(bad, dtype=float))
    if not len(good) or not len(bad):
        return float("nan")
    below = np.searchsorted(bad, good, "left") + np.searchsorted(bad, good, "right")
    return float(below.mean() / 2 / len(bad))


def interval(good, bad, seed, draws=1000):
    """95 % bootstrap interval of the area, over documents of both sides."""
    good, bad, chance = np.asarray(good), np.asarray(bad), np.random.default_rng(seed)
    areas = [auc(chance.choice(good, len(good)), chance.choice(bad, len(bad))) for _ in range(draws)]
    return tuple(np.quantile(areas, [0.025, 0.975]))


def stratified_auc(scores, labels, strata):
    """The area over pairs of the same stratum alone."""
    total, pairs = 0.0, 0
    for stratum in np.unique(strata):
        inside = strata == stratum
        good, bad = scores[inside & (labels == 1)], scores[inside & (labels == 0)]
        if len(good) and len(bad):
            total += auc(good, bad) * len(good) * len(bad)
            pairs += len(good) * len(bad)
    return total / pairs if pairs else float("nan")


def permuted(scores, strata, seed):
    """The scores dealt out again among the documents of each stratum."""
    chance, dealt = np.random.default_rng(seed), scores.copy()
    for stratum in np.unique(strata):
        places = np.flatnonzero(strata == stratum)
        dealt[places] = scores[chance.permutation(places)]
    return dealt


def quartiles(values):
    """0 to 3: the quarter of the values that each lies in."""
    return np.searchsorted(np.quantile(values, [0.25, 0.5, 0.75]), values)


def threshold(clean, false_drops):
    """The score that at most this share of the clean documents lie below."""
    return float(np.sort(np.asarray(clean))[int(false_drops * len(clean))])


def windowed(values, reach):
    """Means over `reach` values on each side, inside the document."""
    sums, place = np.concatenate([[0.0], np.cumsum(values)]), np.arange(len(values))
    first, last = np.maximum(place - reach, 0), np.minimum(place + reach + 1, len(values))
    return (sums[last] - sums[first]) / (last - first)
