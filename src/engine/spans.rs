//! Repeated stretches of tokens, from the tokens of the documents to cuts in their texts.

use super::corpus::{Corpus, CutRow};
use super::decide::Decisions;
use super::edit::{Edit, NumberedCut};
use super::{EngineError, Stop};
use crate::dedupe::{self, RankedTokens, Span, SpanReport, SpanRule};
use crate::record::Options;
use crate::spill::Spill;
use crate::tokenizer::Tokenizer;
use rayon::prelude::*;
use std::io;
use std::ops::Range;

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
struct SpanCut {
    number: u64,
    cut: CutRow,
}

/// Documents whose cuts are found at a time.
const BATCH_DOCUMENTS: usize = 1_024;

/// Dedupe by stretches of tokens at `stage`. Returns what is to be cut, and what was done.
///
/// # Errors
/// When intermediate files cannot be written or read, somebody asks to stop, or the tokenizer does not say where in
/// the text of a document its tokens stand.
pub fn span_dedupe(
    decisions: &Decisions<'_>,
    stage: u16,
    options: &Options,
    tokenizer: &Tokenizer,
    spill: &Spill,
    stop: &Stop,
) -> Result<(Edit, SpanReport), EngineError> {
    let corpus = decisions.corpus();
    let rule = SpanRule {
        min_tokens: options.integer("min_tokens") as u32,
        keep_first: options.text("keep") == "first",
    };
    let tokens = |rank: u64| -> &[u32] {
        let number = decisions.number_at(rank);
        match decisions.reaches(number, stage) {
            true => corpus.tokens(number),
            false => &[],
        }
    };
    let ranked = RankedTokens {
        documents: corpus.len(),
        tokens: &tokens,
        go_on: &|| stop.check().map_err(io::Error::other),
    };
    // The sort of the cuts beside those that find them.
    let shared = spill.share(2);
    let mut sorter = shared.sorter("span-cuts", |a: &SpanCut, b: &SpanCut| {
        (a.number, a.cut.start).cmp(&(b.number, b.cut.start))
    });
    let mut batch: Vec<Vec<Span>> = Vec::new();
    let mut failed: Option<EngineError> = None;
    let mut close = |batch: &mut Vec<Vec<Span>>| -> io::Result<()> {
        let cuts: Vec<Result<Vec<SpanCut>, String>> = batch
            .par_iter()
            .map(|spans| cuts_of(decisions, corpus, tokenizer, spans))
            .collect();
        batch.clear();
        for cuts in cuts {
            match cuts {
                Ok(cuts) => cuts.into_iter().try_for_each(|cut| sorter.push(cut))?,
                Err(error) => {
                    failed.get_or_insert(EngineError::Failed(error));
                }
            }
        }
        Ok(())
    };
    let report = dedupe::decide_spans(ranked, rule, &shared, |span| {
        match batch.last_mut() {
            Some(last) if last[0].rank == span.rank => last.push(span),
            _ => {
                if batch.len() == BATCH_DOCUMENTS {
                    close(&mut batch)?;
                }
                batch.push(vec![span]);
            }
        }
        Ok(())
    });
    stop.check()?;
    let report = report?;
    close(&mut batch)?;
    if let Some(error) = failed {
        return Err(error);
    }
    let most = sorter.len();
    let cuts = sorter.finish()?.map(|cut| {
        let SpanCut { number, cut } = cut?;
        Ok(NumberedCut { number, cut })
    });
    // Spans that touch stand in different places of the document that keeps them, even where it is one.
    let edit = Edit::create((stage, 0), false, corpus.len(), cuts, most, spill)?;
    Ok((edit, report))
}

/// The cuts in one document.
fn cuts_of(
    decisions: &Decisions<'_>,
    corpus: &Corpus,
    tokenizer: &Tokenizer,
    spans: &[Span],
) -> Result<Vec<SpanCut>, String> {
    let number = decisions.number_at(spans[0].rank);
    let text = corpus
        .text(number)
        .expect("texts are kept where spans are cut");
    let ranges = tokenizer
        .byte_ranges(text, corpus.tokens(number))
        .map_err(|error| {
            format!(
                "document '{}' holds repeated spans, which cannot be cut out: {error}",
                corpus.id(number)
            )
        })?;
    let mut cuts = Vec::with_capacity(spans.len());
    // Spans that touch are cut as one stretch: a character that two of them share goes.
    for run in spans.chunk_by(|before, after| before.end == after.start) {
        let tokens = run[0].start as usize..run[run.len() - 1].end as usize;
        let whole = whole_characters(text, &ranges, tokens);
        let mut start = whole.start;
        for (at, span) in run.iter().enumerate() {
            let end = match run.get(at + 1) {
                Some(next) => {
                    border_below(text, ranges[next.start as usize].start).clamp(start, whole.end)
                }
                None => whole.end,
            };
            if start < end {
                cuts.push(SpanCut {
                    number,
                    cut: CutRow {
                        start: start as u64,
                        end: end as u64,
                        kept: decisions.number_at(span.kept_rank),
                    },
                });
            }
            start = end;
        }
    }
    Ok(cuts)
}

/// The border of characters at a byte, or the last one before it.
fn border_below(text: &str, at: usize) -> usize {
    (0..=at.min(text.len()))
        .rev()
        .find(|&at| text.is_char_boundary(at))
        .unwrap_or(0)
}

/// The bytes of the characters that stand wholly in a stretch of tokens: none of a token beside it.
fn whole_characters(text: &str, ranges: &[Range<usize>], tokens: Range<usize>) -> Range<usize> {
    let before = match tokens.start {
        0 => 0,
        start => ranges[start - 1].end,
    };
    let after = ranges
        .get(tokens.end)
        .map_or(text.len(), |range| range.start);
    let start = ranges[tokens.start].start.max(before);
    let end = ranges[tokens.end - 1].end.min(after);
    let start = (start..=text.len())
        .find(|&at| text.is_char_boundary(at))
        .unwrap_or(text.len());
    start..border_below(text, end).max(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_hold_whole_characters_and_nothing_of_the_tokens_beside() {
        // Bytes: a 0..1, é 1..3, 語 3..6, b 6..7.
        let text = "aé語b";
        let halves = [0..2, 2..4, 4..6, 6..7];
        assert_eq!(whole_characters(text, &halves, 0..4), 0..7);
        assert_eq!(whole_characters(text, &halves, 1..4), 3..7);
        assert_eq!(whole_characters(text, &halves, 0..2), 0..3);
        assert!(whole_characters(text, &halves, 1..2).is_empty());
        // Tokens that share a character, as the slow engine tells it.
        let shared = [0..1, 1..3, 1..3, 3..7];
        assert_eq!(whole_characters(text, &shared, 0..2), 0..1);
        assert_eq!(whole_characters(text, &shared, 2..4), 3..7);
        assert_eq!(whole_characters(text, &shared, 1..3), 1..3);
    }
}
