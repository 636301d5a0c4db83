//! What a threshold would drop of a finished folder, from its rows.

use super::{EngineError, Stop};
use crate::algo::quantise::{byte_of, certain};
use crate::audit::{
    Audit, Bounds, Change, Changes, Identity, RejectedThreshold, SourceThreshold, Threshold,
};
use crate::plan::global::SELECT_REASONS;
use crate::shard::{Manifest, ReadRejects, ReadShard};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// Reads shards and rejects of `out` once, calls `changed` for each document on which pipeline and
/// threshold disagree, in the order of shards, then rejects, and sums up. Holds one batch of rows.
///
/// # Errors
/// When a file is damaged, there are no scores, or `changed` fails.
pub fn threshold(
    out: &Path,
    manifest: &Manifest,
    audit: &Audit,
    threshold: f64,
    stop: &Stop,
    changed: &mut dyn FnMut(Change<'_>) -> io::Result<()>,
) -> Result<Threshold, EngineError> {
    let Some(mut found) = Threshold::of(audit, threshold) else {
        return Err(EngineError::Request(format!(
            "{}: its pipeline has no 'score' stage, so no threshold applies",
            out.display()
        )));
    };
    let mut counted = Counted {
        threshold,
        uncertain: certain(threshold),
        sources: BTreeMap::new(),
        rejected: BTreeMap::new(),
        changes: Changes::default(),
    };
    let begins_with = |folder: &'static str| {
        let of = move |file: &&crate::shard::FileEntry| file.path.starts_with(folder);
        manifest.files.iter().filter(of)
    };
    let mut failed = Ok(());
    for file in begins_with("shards/") {
        stop.check()?;
        ReadShard::open(&out.join(&file.path))?.rows(&mut |row| {
            failed = counted.row(&row, changed);
            failed.is_ok()
        })?;
        std::mem::replace(&mut failed, Ok(()))?;
    }
    for file in begins_with("rejects/") {
        stop.check()?;
        ReadRejects::open(&out.join(&file.path))?.rows(&mut |row| {
            failed = counted.reject(&row, changed);
            failed.is_ok()
        })?;
        std::mem::replace(&mut failed, Ok(()))?;
    }
    counted.into(&mut found);
    if begins_with("rejects/").next().is_none() {
        found.rejected = None;
    }
    found.identities = identities(&found, audit);
    Ok(found)
}

/// Sums of one source.
#[derive(Default)]
struct Source {
    kept: crate::audit::Amount,
    dropped: crate::audit::Amount,
    emitted_tokens: u64,
    tokens_below: Bounds<u64>,
}

struct Counted {
    threshold: f64,
    uncertain: (u16, u16),
    sources: BTreeMap<String, Source>,
    rejected: BTreeMap<(String, String, String), RejectedThreshold>,
    changes: Changes,
}

impl Counted {
    fn is_below(&self, score: f32) -> bool {
        f64::from(score) < self.threshold
    }

    fn row(
        &mut self,
        row: &crate::shard::RowRead<'_>,
        changed: &mut dyn FnMut(Change<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        for (segment, place) in row.stretches() {
            if place.end > row.input_ids.len() {
                return Err(io::Error::other(format!(
                    "row {} has a segment that leaves it; 'goodput verify' says what else is damaged",
                    row.position
                )));
            }
            let tokens = place.len() as u64;
            let score = segment.score.unwrap_or(0.0);
            let below = self.is_below(score);
            let uncertain = self.uncertain;
            if !self.sources.contains_key(segment.source) {
                self.sources
                    .insert(segment.source.to_string(), Source::default());
            }
            let source = self
                .sources
                .get_mut(segment.source)
                .expect("inserted above");
            source.emitted_tokens += tokens;
            for &usefulness in row.usefulness.iter().flat_map(|all| &all[place.clone()]) {
                let (least, most) = if row.usefulness_is_exact {
                    let below = f64::from(usefulness) < self.threshold;
                    (below, below)
                } else {
                    let byte = u16::from(byte_of(usefulness));
                    (byte < uncertain.0, byte < uncertain.1)
                };
                source.tokens_below.at_least += u64::from(least);
                source.tokens_below.at_most += u64::from(most);
            }
            if segment.copy > 0 {
                continue;
            }
            // A document may stand in several rows; its first token stands in one. A begin token that is the
            // last of a row has a segment without tokens.
            let first = u64::from(segment.doc_token_start == 0 && tokens > 0);
            source.kept.add(first, tokens);
            if below {
                source.dropped.add(first, tokens);
                if first == 1 {
                    self.changes.dropped += 1;
                    changed(Change {
                        change: "dropped",
                        doc_id: segment.doc_id,
                        source: segment.source,
                        score,
                    })?;
                }
            }
        }
        Ok(())
    }

    fn reject(
        &mut self,
        row: &crate::shard::RejectRead<'_>,
        changed: &mut dyn FnMut(Change<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        let key = [row.source, row.stage, row.reason].map(String::from);
        let [source, stage, reason] = key.clone();
        let sums = self
            .rejected
            .entry((source, stage, reason))
            .or_insert_with(|| {
                let [source, stage, reason] = key;
                RejectedThreshold {
                    source,
                    stage,
                    reason,
                    below: Default::default(),
                    not_below: Default::default(),
                    unscored: Default::default(),
                }
            });
        let tokens = u64::from(row.tokens);
        match row.score {
            None => sums.unscored.add(1, tokens),
            Some(score) if f64::from(score) < self.threshold => sums.below.add(1, tokens),
            Some(score) => {
                sums.not_below.add(1, tokens);
                if SELECT_REASONS
                    .iter()
                    .any(|reason| reason.name == row.reason)
                {
                    self.changes.admitted += 1;
                    changed(Change {
                        change: "admitted",
                        doc_id: row.doc_id,
                        source: row.source,
                        score,
                    })?;
                }
            }
        }
        Ok(())
    }

    fn into(mut self, found: &mut Threshold) {
        found.exact = true;
        let (mut kept, mut dropped) = (
            crate::audit::Amount::default(),
            crate::audit::Amount::default(),
        );
        found.emitted_tokens = 0;
        found.tokens_below = Bounds::default();
        // In the order of the pipeline file; a source that the ledger does not know makes a sum not close.
        let mut rows = Vec::new();
        let named: Vec<String> = found
            .by_source
            .iter()
            .map(|row| row.source.clone())
            .collect();
        let others: Vec<String> = self.sources.keys().cloned().collect();
        for name in named.into_iter().chain(others) {
            if rows.iter().any(|row: &SourceThreshold| row.source == name) {
                continue;
            }
            let sums = self.sources.remove(&name).unwrap_or_default();
            kept.add(sums.kept.documents, sums.kept.tokens);
            dropped.add(sums.dropped.documents, sums.dropped.tokens);
            found.emitted_tokens += sums.emitted_tokens;
            found.tokens_below.at_least += sums.tokens_below.at_least;
            found.tokens_below.at_most += sums.tokens_below.at_most;
            rows.push(SourceThreshold {
                source: name,
                kept: sums.kept,
                dropped: Some(sums.dropped),
                emitted_tokens: sums.emitted_tokens,
                tokens_below: sums.tokens_below,
            });
        }
        found.kept = kept;
        found.dropped = Bounds {
            at_least: dropped,
            at_most: dropped,
        };
        found.by_source = rows;
        found.rejected = Some(self.rejected.into_values().collect());
        found.changes = Some(self.changes);
    }
}

/// What the rows give must be what the ledger says, and what the histograms say must hold the exact figures.
fn identities(found: &Threshold, audit: &Audit) -> Vec<Identity> {
    let kept = Audit::total(&audit.kept);
    let mut identities = vec![
        Identity::new(
            "documents kept = those in the shards",
            kept.documents,
            found.kept.documents as i64,
        ),
        Identity::new(
            "tokens kept = those in the shards",
            kept.tokens,
            found.kept.tokens as i64,
        ),
        Identity::new(
            "tokens emitted = those in the shards",
            audit.emitted.tokens,
            found.emitted_tokens as i64,
        ),
    ];
    if let Some(rejected) = &found.rejected {
        let all = rejected
            .iter()
            .flat_map(|row| [row.below, row.not_below, row.unscored]);
        let (documents, tokens) = all.fold((0, 0), |sum, amount| {
            (sum.0 + amount.documents, sum.1 + amount.tokens)
        });
        let said = Audit::total_loss(&audit.rejected);
        identities.push(Identity::new(
            "documents rejected = those among the rejects",
            said.documents,
            documents as i64,
        ));
        identities.push(Identity::new(
            "tokens rejected = those among the rejects",
            said.tokens,
            tokens as i64,
        ));
    }
    identities
}
