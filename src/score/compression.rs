//! How little of a document's text repeats itself, by how far it can be compressed.

use super::parallel::{broadcast, check};
use super::unigram::parameter_hash;
use super::{
    DocumentScores, Estimator, EstimatorKind, Fit, FitError, FitInput, TokenDocument, TokenScores,
};
use crate::record::Spec;
use std::cell::RefCell;
use std::io;
use zstd::bulk::Compressor;

/// The estimator `compression`.
pub(super) const KIND: EstimatorKind = EstimatorKind {
    spec: Spec {
        name: "compression",
        summary: "The share of a document's bytes that is left after compression: text that repeats itself scores low",
        details: "score = compressed bytes / bytes of the text, at most 1; each token has its document's score. \
                  Compressed with zstd at level 3, each document by itself, as one frame without magic number, length \
                  and checksum. Difficulty and excess are 0. It is the inverse of the compression ratio of Yin et al. \
                  2024 (\"Entropy Law\"), who select what compresses least. Noise compresses least of all, so filter \
                  it out before. A text of less than about 200 bytes hardly compresses and scores near 1. \
                  The texts are kept in the work folder while the run lasts.",
        options: &[],
        example: "{}",
    },
    version: 1,
    needs_reference: false,
    needs_text: true,
    needs_id: false,
    has_difficulty: false,
    has_excess: false,
    load: None,
    build: |_| Ok(Box::new(CompressionFit)),
};

const LEVEL: i32 = 3;
/// What every frame begins with.
const MAGIC_BYTES: usize = 4;

struct CompressionFit;

impl Fit for CompressionFit {
    fn fit(&self, input: &FitInput<'_>) -> Result<Box<dyn Estimator>, FitError> {
        let mut description = serde_json::json!({
            "estimator": KIND.spec.name,
            "version": KIND.version,
            "compressor": format!("zstd {}", zstd::zstd_safe::version_string()),
            "level": LEVEL,
            "calibration": "uncalibrated (analytic)",
        });
        description["parameter_hash"] = parameter_hash(&description, input.seed, 0).into();
        Ok(Box::new(Compression {
            vocabulary_size: input.vocabulary_size,
            description,
        }))
    }
}

struct Compression {
    vocabulary_size: u32,
    description: serde_json::Value,
}

thread_local! {
    /// The compressor and its output, kept so that no document allocates.
    static SCRATCH: RefCell<Option<(Compressor<'static>, Vec<u8>)>> = const { RefCell::new(None) };
}

/// Bytes that `text` takes when it is compressed by itself.
fn compressed_bytes(text: &[u8]) -> io::Result<usize> {
    SCRATCH.with_borrow_mut(|scratch| {
        let (compressor, out) = match scratch {
            Some(scratch) => scratch,
            None => {
                let mut compressor = Compressor::new(LEVEL)?;
                compressor.include_contentsize(false)?;
                compressor.include_checksum(false)?;
                scratch.insert((compressor, Vec::new()))
            }
        };
        out.clear();
        out.reserve(zstd::zstd_safe::compress_bound(text.len()));
        Ok(compressor.compress_to_buffer(text, out)? - MAGIC_BYTES)
    })
}

impl Estimator for Compression {
    fn score(
        &self,
        document: &TokenDocument<'_>,
        out: &mut TokenScores,
    ) -> Result<DocumentScores, String> {
        check(document, self.vocabulary_size)?;
        let text = document.text.as_bytes();
        if text.is_empty() {
            return Err("the document has no text".to_string());
        }
        let bytes = compressed_bytes(text).map_err(|error| format!("zstd failed: {error}"))?;
        Ok(broadcast(
            (bytes as f64 / text.len() as f64).min(1.0),
            document,
            out,
        ))
    }

    fn describe(&self) -> serde_json::Value {
        self.description.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Corpus, fit, score_all};
    use super::*;

    fn scores(texts: &[&str]) -> Vec<f64> {
        let corpus = Corpus::of_texts(texts);
        let estimator = fit(&CompressionFit, &corpus, None, 256).expect("fits");
        let scored = score_all(&*estimator, &corpus);
        for (document, tokens) in &scored {
            let as_stored = document.score as f32;
            assert!(tokens.usefulness.iter().all(|&u| u == as_stored));
        }
        scored.iter().map(|(document, _)| document.score).collect()
    }

    /// Bytes by the Python package zstandard 0.25.0 (zstd 1.5.7) at level 3, without content size and
    /// checksum, less the 4 bytes of the magic number: 14 of 1,000, 38 of 2,000, 1,057 of 2,336, 11 of 6.
    #[test]
    fn golden_by_another_binding_of_zstd() {
        let squares: Vec<String> = (0..400).map(|i: u32| (i * i).to_string()).collect();
        let texts = [
            "a".repeat(1000),
            "The same sentence again. ".repeat(80),
            squares.join(" "),
            "Short.".to_string(),
        ];
        let found = scores(&texts.each_ref().map(String::as_str));
        assert_eq!(found, [14.0 / 1000.0, 38.0 / 2000.0, 1057.0 / 2336.0, 1.0]);
    }

    #[test]
    fn repeated_text_scores_below_varied_text_and_nothing_above_one() {
        let varied: String = (0..400u64)
            .map(|i| format!("{:x} ", crate::algo::hash::keyed(1, "words", i) >> 44))
            .collect();
        let repeated = "The same sentence again. ".repeat(80);
        let found = scores(&[&varied, &repeated, "x", "Short."]);
        assert!(found[1] < 0.05 && found[0] > 0.4, "{found:?}");
        assert_eq!(found[2..], [1.0, 1.0]);
    }

    #[test]
    fn a_score_does_not_depend_on_what_was_compressed_before() {
        let texts = ["One text of some words.", "Another text of other words."];
        let together = scores(&texts);
        assert_eq!(
            together,
            [scores(&texts[..1]), scores(&texts[1..])].concat()
        );
    }
}
