//! A token source in memory, for the tests of estimators.

use super::{
    DocumentScores, Estimator, Fit, FitError, FitInput, ModelOrigin, TokenDocument, TokenScores,
    TokenSource,
};
use crate::algo::hash;

pub(super) struct Corpus {
    pub(super) documents: Vec<Vec<u32>>,
    /// Fold keys; by content where absent.
    pub(super) fold_keys: Option<Vec<u64>>,
    pub(super) parts: usize,
    /// Texts of the documents; empty where no test needs them.
    pub(super) texts: Vec<String>,
    /// Ids, likewise.
    pub(super) ids: Vec<String>,
}

impl Corpus {
    pub(super) fn new(documents: Vec<Vec<u32>>) -> Self {
        Corpus {
            documents,
            fold_keys: None,
            parts: 1,
            texts: Vec::new(),
            ids: Vec::new(),
        }
    }

    /// Documents of one token for each byte of their texts, whose ids are their numbers.
    pub(super) fn of_texts(texts: &[&str]) -> Self {
        let tokens = |text: &&str| text.bytes().map(u32::from).collect();
        Corpus {
            texts: texts.iter().map(|text| text.to_string()).collect(),
            ids: (0..texts.len()).map(|number| number.to_string()).collect(),
            ..Corpus::new(texts.iter().map(tokens).collect())
        }
    }

    pub(super) fn document(&self, number: usize) -> TokenDocument<'_> {
        let tokens = &self.documents[number];
        let content = hash::content(bytemuck::cast_slice(tokens));
        let by_content = hash::keyed(1, "fold", content as u64);
        TokenDocument {
            number: number as u64,
            sample_key: hash::keyed(1, "sample", number as u64),
            fold_key: self
                .fold_keys
                .as_ref()
                .map_or(by_content, |keys| keys[number]),
            content,
            tokens,
            id: self.ids.get(number).map_or("", String::as_str),
            text: self.texts.get(number).map_or("", String::as_str),
        }
    }
}

impl TokenSource for Corpus {
    fn parts(&self) -> usize {
        self.parts
    }
    fn tokens(&self) -> u64 {
        self.documents
            .iter()
            .map(|tokens| tokens.len() as u64)
            .sum()
    }
    fn read(&self, part: usize, visit: &mut dyn FnMut(TokenDocument<'_>)) -> std::io::Result<()> {
        let n = self.documents.len();
        for number in n * part / self.parts..n * (part + 1) / self.parts {
            visit(self.document(number));
        }
        Ok(())
    }
}

pub(super) fn fit(
    fit: &dyn Fit,
    corpus: &Corpus,
    reference: Option<&Corpus>,
    vocabulary_size: u32,
) -> Result<Box<dyn Estimator>, FitError> {
    fit_within(fit, corpus, reference, vocabulary_size, 1 << 30)
}

pub(super) fn origin() -> ModelOrigin {
    ModelOrigin {
        tokenizer_fingerprint: "made for tests".to_string(),
        seed: 17,
        folds_by_component: false,
        calibration: None,
    }
}

pub(super) fn fit_within(
    fit: &dyn Fit,
    corpus: &Corpus,
    reference: Option<&Corpus>,
    vocabulary_size: u32,
    memory_bytes: u64,
) -> Result<Box<dyn Estimator>, FitError> {
    fit_input(
        fit,
        corpus,
        [reference, None],
        vocabulary_size,
        memory_bytes,
    )
}

/// With a negative set.
pub(super) fn fit_against(
    fit: &dyn Fit,
    corpus: &Corpus,
    reference: Option<&Corpus>,
    negative: Option<&Corpus>,
    vocabulary_size: u32,
) -> Result<Box<dyn Estimator>, FitError> {
    fit_input(fit, corpus, [reference, negative], vocabulary_size, 1 << 30)
}

fn fit_input(
    fit: &dyn Fit,
    corpus: &Corpus,
    named: [Option<&Corpus>; 2],
    vocabulary_size: u32,
    memory_bytes: u64,
) -> Result<Box<dyn Estimator>, FitError> {
    let [reference, negative] = named.map(|named| named.map(|corpus| corpus as &dyn TokenSource));
    let work = tempfile::tempdir()?;
    let estimator = fit.fit(&FitInput {
        corpus,
        reference,
        negative,
        vocabulary_size,
        seed: 17,
        origin: &origin(),
        file_checksums: &[],
        table: None,
        calibration: None,
        work: work.path(),
        memory_bytes,
    });
    assert_eq!(
        std::fs::read_dir(work.path())?.count(),
        0,
        "intermediate files are removed"
    );
    estimator
}

/// What each document scored, bit by bit comparable.
pub(super) fn score_all(
    estimator: &dyn Estimator,
    corpus: &Corpus,
) -> Vec<(DocumentScores, ScoredTokens)> {
    let mut out = TokenScores::default();
    (0..corpus.documents.len())
        .map(|number| {
            let document = estimator
                .score(&corpus.document(number), &mut out)
                .expect("scores");
            (
                document,
                ScoredTokens {
                    usefulness: out.usefulness.clone(),
                    excess_nats: out.excess_nats.clone(),
                },
            )
        })
        .collect()
}

#[derive(Debug, PartialEq)]
pub(super) struct ScoredTokens {
    pub(super) usefulness: Vec<f32>,
    pub(super) excess_nats: Vec<f32>,
}
