//! Explains usefulness: a fitted model of a file, held against a finished folder.

use super::EngineError;
use super::scores::{fold_key, fold_purpose};
use crate::algo::hash;
use crate::score::{self, Estimator, ModelOrigin, TokenDocument, TokenExplanation};
use crate::shard::{Manifest, ReadShard};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The model of a finished folder's estimator.
pub struct Explainer {
    estimator: Box<dyn Estimator>,
    origin: ModelOrigin,
}

impl Explainer {
    /// Opens a model that `goodput fit` made, which must be that of the folder.
    ///
    /// # Errors
    /// When it is damaged, or of another pipeline than the folder.
    pub fn open(model: &Path, manifest: &Manifest) -> Result<Explainer, EngineError> {
        let Some(entry) = &manifest.estimator else {
            return Err(EngineError::Request(
                "nothing to explain: the pipeline has no 'score' stage".to_string(),
            ));
        };
        let kind = score::TABLE
            .iter()
            .find(|kind| kind.spec.name == entry.name);
        let Some(load) = kind.and_then(|kind| kind.load) else {
            return Err(EngineError::Request(format!(
                "the estimator '{}' has no factors to explain",
                entry.name
            )));
        };
        let (origin, estimator) =
            load(model).map_err(|error| EngineError::Request(error.to_string()))?;
        let of_model = estimator.describe()["parameter_hash"].clone();
        let of_folder = &entry.fitted["parameter_hash"];
        if of_model != *of_folder || origin.tokenizer_fingerprint != manifest.tokenizer.fingerprint
        {
            return Err(EngineError::Request(format!(
                "{}: is another model (parameter hash {of_model}) than the folder was scored with ({of_folder}); \
                 make it with 'goodput fit' and the pipeline of the folder",
                model.display()
            )));
        }
        Ok(Explainer { estimator, origin })
    }

    /// Why each token of a document, given whole, got its usefulness before calibration.
    ///
    /// # Errors
    /// When the document cannot be scored.
    pub fn explain(
        &self,
        doc_id: &str,
        tokens: &[u32],
    ) -> Result<Vec<TokenExplanation>, EngineError> {
        let content = hash::content(bytemuck::cast_slice(tokens));
        let document = TokenDocument {
            number: 0,
            sample_key: 0,
            fold_key: fold_key(
                fold_purpose(self.origin.seed),
                self.origin.folds_by_component,
                hash::id_hash(doc_id),
                (content >> 64) as u64,
            ),
            content,
            tokens,
            id: doc_id,
            text: "",
        };
        self.estimator
            .explain(&document)
            .map_err(|error| EngineError::Failed(format!("document '{doc_id}': {error}")))?
            .ok_or_else(|| EngineError::Failed("the estimator explains nothing".to_string()))
    }
}

/// Tokens of whole documents of a folder, put together from all rows. An id that is not there is
/// left out. Memory holds these documents.
///
/// # Errors
/// When a shard cannot be read, or holds a document only in part.
pub fn whole_documents(
    out: &Path,
    manifest: &Manifest,
    ids: &BTreeSet<String>,
) -> Result<BTreeMap<String, Vec<u32>>, EngineError> {
    let mut stretches: BTreeMap<String, BTreeMap<u32, Vec<u32>>> = BTreeMap::new();
    for file in &manifest.files {
        if !file.path.starts_with("shards/") {
            continue;
        }
        ReadShard::open(&out.join(&file.path))?.rows(&mut |row| {
            for (segment, place) in row.stretches() {
                if segment.copy == 0 && ids.contains(segment.doc_id) {
                    let tokens = row.input_ids.get(place).unwrap_or_default().to_vec();
                    stretches
                        .entry(segment.doc_id.to_string())
                        .or_default()
                        .insert(segment.doc_token_start, tokens);
                }
            }
            true
        })?;
    }
    let join = |(id, stretches): (String, BTreeMap<u32, Vec<u32>>)| {
        let mut all: Vec<u32> = Vec::new();
        for (start, tokens) in stretches {
            if start as usize != all.len() {
                return Err(EngineError::Failed(format!(
                    "{}: document '{id}' lacks its tokens from {} to {start}; 'goodput verify' says what is damaged",
                    out.display(),
                    all.len()
                )));
            }
            all.extend(tokens);
        }
        Ok((id, all))
    };
    stretches.into_iter().map(join).collect()
}
