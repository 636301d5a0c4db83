//! Where the chain of stages is cut: what comes after an edit sees other texts.

use super::{Plan, StagePlan, StageRef};
use std::ops::Range;

/// How a stage looks at the documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// One at a time.
    Each,
    /// One at a time, and it may cut their texts.
    EachEdits,
    /// All that reach it.
    All,
    /// All that reach it, and it cuts their texts.
    AllEdits,
}

fn way(stage: &StagePlan) -> Way {
    match (stage.kind, stage.edits) {
        (StageRef::Document(_), false) => Way::Each,
        (StageRef::Document(_), true) => Way::EachEdits,
        (_, false) => Way::All,
        (_, true) => Way::AllEdits,
    }
}

impl Plan {
    /// The segments of the chain, by places in it: 0 is the tokenizer, the stages come after it, numbered from 1.
    ///
    /// Within a segment every document has one text. A stage that cuts texts by what all documents hold ends its
    /// segment. One that cuts texts document by document goes on in the segment of the stages before it, unless a
    /// stage is among these that sees all documents and may have turned some away: then it begins a new one. The
    /// last segment is empty where an edit is the last stage.
    pub fn segments(&self) -> Vec<Range<usize>> {
        segments(&self.stages.iter().map(way).collect::<Vec<_>>())
    }

    /// Whether some stage may change texts.
    pub fn edits(&self) -> bool {
        self.stages.iter().any(|stage| stage.edits)
    }
}

fn segments(ways: &[Way]) -> Vec<Range<usize>> {
    let mut segments = Vec::new();
    let (mut start, mut edited, mut seen_all) = (0, false, false);
    for (at, &way) in ways.iter().enumerate() {
        if edited || (seen_all && way == Way::EachEdits) {
            segments.push(start..at + 1);
            (start, seen_all) = (at + 1, false);
        }
        edited = way == Way::AllEdits;
        seen_all |= matches!(way, Way::All | Way::AllEdits);
    }
    segments.push(start..ways.len() + 1);
    if edited {
        segments.push(ways.len() + 1..ways.len() + 1);
    }
    segments
}

#[cfg(test)]
#[expect(
    clippy::single_range_in_vec_init,
    reason = "a chain of one segment is a list of one range"
)]
mod tests {
    use super::Way::{All, AllEdits, Each, EachEdits};
    use super::segments;

    #[test]
    fn a_segment_ends_where_texts_change() {
        assert_eq!(segments(&[]), [0..1]);
        assert_eq!(segments(&[Each, All, Each, All]), [0..5]);
        assert_eq!(segments(&[EachEdits, Each, EachEdits, All, Each]), [0..6]);
        assert_eq!(segments(&[All, Each, EachEdits, All]), [0..3, 3..5]);
        assert_eq!(segments(&[AllEdits]), [0..2, 2..2]);
        assert_eq!(
            segments(&[Each, AllEdits, Each, AllEdits, AllEdits, EachEdits, All]),
            [0..3, 3..5, 5..6, 6..8]
        );
    }
}
