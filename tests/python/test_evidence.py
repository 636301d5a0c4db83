"""The figures of tests/evidence, on cases worked by hand."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "evidence"))
import measure
import texts

WORDS = "one two three four five six seven eight nine ten eleven twelve thirteen"


def test_area_counts_pairs_and_ties_as_half():
    assert measure.auc([3, 1], [2, 1, 0]) == pytest.approx((3 + 1.5) / 6)
    assert np.isnan(measure.auc([], [1]))


def test_strata_compare_only_their_own_pairs():
    scores, labels = np.array([5.0, 6.0, 1.0, 2.0]), np.array([1, 0, 0, 1])
    assert measure.stratified_auc(scores, labels, np.array([0, 0, 1, 1])) == 0.5
    dealt = measure.permuted(scores, np.array([0, 0, 1, 1]), seed=1)
    assert sorted(dealt[:2]) == [5, 6] and sorted(dealt[2:]) == [1, 2]


def test_the_bound_drops_at_most_the_share():
    clean = np.arange(100)
    assert np.sum(clean < measure.threshold(clean, 0.02)) == 2


def test_windows_end_with_the_document():
    assert measure.windowed([1.0, 2.0, 6.0], 1).tolist() == [1.5, 3.0, 4.0]


def test_thirteen_shared_words_are_an_overlap_and_twelve_are_not():
    overlap = texts.Overlap([f"Before it, {WORDS}; and after."])
    assert overlap.shares(f"other start {WORDS.upper()}!")
    assert not overlap.shares("other start " + WORDS.rsplit(" ", 1)[0] + " fourteen")


def test_a_short_text_overlaps_as_a_whole():
    overlap = texts.Overlap(["three short words"])
    assert overlap.shares("Three, short words.") and not overlap.shares("three short words more")


def test_passages_hold_every_line_but_short_rests():
    lines = "".join(f"line {number} of the text\n" for number in range(40))
    parts = list(texts.passages([texts.Text("a", lines, "g")], 200))
    assert "".join(part.text for part in parts) == lines
    assert len({part.id for part in parts}) == len(parts) > 1
