//! The near dedupe of a plan: its options as what sketches and decides, and the guard.

use super::EngineError;
use super::corpus::Corpus;
use super::options::to_json;
use crate::algo::minhash::{Measure, MinHasher};
use crate::dedupe::{
    Amount, Dropped, Guard, Keep, Loss, NearReport, Part, Policy, Shingling, Sketcher, each_cluster,
};
use crate::plan::StagePlan;
use crate::plan::global;
use crate::record::{OptionError, Options};
use crate::spill::Spill;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What makes the sketches.
///
/// # Errors
/// When options exclude each other.
pub fn sketcher(seed: u64, options: &Options) -> Result<Sketcher, OptionError> {
    let (bands, rows) = global::bands_and_rows(options)?;
    Ok(Sketcher {
        hasher: MinHasher::new(seed, bands as usize, rows as usize),
        shingling: Shingling::of(options)?,
    })
}

/// Bands and rows of options that [`sketcher`] was made from.
pub fn bands_and_rows(options: &Options) -> (usize, usize) {
    let (bands, rows) =
        global::bands_and_rows(options).expect("judged before the sketches were made");
    (bands as usize, rows as usize)
}

/// All of the options that shapes a sketch, the seed apart.
pub fn sketch_key(options: &Options) -> Value {
    let all = to_json(options);
    let shingles: Vec<&Value> = ["shingle_words", "shingle_tokens", "shingle_characters"]
        .iter()
        .map(|option| &all[*option])
        .collect();
    json!(["near_dedupe", shingles, bands_and_rows(options)])
}

/// How it chooses, as the evidence says it, e.g. `near_dedupe keep first`.
pub fn rule(label: &str, options: &Options) -> String {
    let by = match global::measure(options) {
        Measure::Jaccard => "",
        Measure::Containment => " by containment",
    };
    format!("{label} keep {}{by}", options.text("keep"))
}

/// When a document goes.
pub fn policy(options: &Options) -> Policy {
    Policy {
        min_similarity: options.number("min_similarity"),
        measure: global::measure(options),
        keep: match options.text("keep") {
            "none" => Keep::None,
            _ => Keep::First,
        },
        max_bucket: options.integer("max_bucket") as u32,
    }
}

/// What the ledger notes of it.
pub fn notes(report: &NearReport, short: u64) -> BTreeMap<String, u64> {
    let counts = [
        short,
        report.buckets,
        report.pairs_verified,
        report.skipped_full_bucket,
    ];
    global::noted(global::NEAR_DEDUPE_NOTES, &counts)
}

/// Refuses what takes away more than the stage's bounds: `dropped`, of the documents that `reaches` says reach it. `sources`
/// names the source of each input, `name_of` a document by number and, where it is none of this run, its release.
///
/// # Errors
/// Names each source and the largest cluster above its bound, with figures, examples and ways out.
pub fn guard(
    corpus: &Corpus,
    spill: &Spill,
    reaches: &dyn Fn(u64) -> bool,
    dropped: &mut dyn Iterator<Item = Dropped>,
    name_of: &dyn Fn(u64) -> (String, Option<String>),
    planned: &StagePlan,
    sources: &[String],
) -> Result<(), EngineError> {
    let options = &planned.options;
    let bounds = Guard {
        max_source_loss: options.number("max_source_loss"),
        max_cluster_loss: options.number("max_cluster_loss"),
        min_documents: options.integer("guard_min_documents"),
    };
    // Inputs may share a source: it goes by the first one's number.
    let source_of = |input: u16| {
        let name = &sources[input as usize];
        sources.iter().position(|other| other == name).unwrap_or(0)
    };
    let by_input: Vec<usize> = (0..sources.len() as u16).map(source_of).collect();
    let (mut whole, mut of_source) = (Amount::default(), vec![Amount::default(); sources.len()]);
    for (_, row) in corpus.rows().filter(|(number, _)| reaches(*number)) {
        whole.add(row.tokens);
        of_source[by_input[corpus.input(row) as usize]].add(row.tokens);
    }
    let mut lost_of_source = vec![Amount::default(); sources.len()];
    let mut sorter = spill.sorter("losses", |a: &Loss, b: &Loss| {
        (a.kept, a.source, a.number).cmp(&(b.kept, b.source, b.number))
    });
    for gone in dropped {
        let row = corpus.row(gone.number);
        let source = by_input[corpus.input(row) as usize];
        lost_of_source[source].add(row.tokens);
        sorter.push(Loss {
            kept: gone.kept,
            number: gone.number,
            similarity: gone.similarity,
            source: source as u32,
            tokens: row.tokens,
        })?;
    }
    let allowed = options.list("allow");
    let is_allowed = |name: &str| allowed.iter().any(|allowed| allowed == name);
    let mut largest: Option<(Amount, Part)> = None;
    let mut largest_of_source: Vec<Option<Part>> = vec![None; sources.len()];
    each_cluster(sorter.finish()?, |parts| {
        let mut all = Amount::default();
        for part in parts {
            all.documents += part.lost.documents;
            all.tokens += part.lost.tokens;
            let known = &mut largest_of_source[part.source as usize];
            if known
                .as_ref()
                .is_none_or(|known| known.lost.tokens < part.lost.tokens)
            {
                *known = Some(part.clone());
            }
        }
        if bounds.cluster_takes_too_much(all, whole)
            && !is_allowed(&name_of(parts[0].kept).0)
            && largest
                .as_ref()
                .is_none_or(|(known, _)| known.tokens < all.tokens)
        {
            largest = Some((all, parts[0].clone()));
        }
    })?;
    let examples = |part: &Part| -> String {
        let named = part
            .examples
            .iter()
            .map(|(number, similarity)| format!("'{}' ({similarity:.3})", corpus.id(*number)));
        named.collect::<Vec<_>>().join(", ")
    };
    let quoted = |number: u64| match name_of(number) {
        (id, None) => format!("'{id}'"),
        (id, Some(release)) => format!("'{id}' of the earlier release {release}"),
    };
    let mut found = Vec::new();
    for (source, name) in sources.iter().enumerate() {
        let (lost, of) = (lost_of_source[source], of_source[source]);
        if !bounds.source_loses_too_much(lost, of) || is_allowed(name) {
            continue;
        }
        let most = largest_of_source[source]
            .as_ref()
            .map_or(String::new(), |part| {
                format!(
                    "; {} of these documents go because of {}, such as {} (similarity)",
                    part.lost.documents,
                    quoted(part.kept),
                    examples(part)
                )
            });
        found.push(format!(
            "source '{name}' would lose {}, more than 'max_source_loss' ({}){most}. If that is right, add '{name}' to 'allow'",
            figures(lost, of),
            bounds.max_source_loss
        ));
    }
    if let Some((lost, part)) = largest {
        let (kept, _) = name_of(part.kept);
        found.push(format!(
            "because of document {} would go {}, more than 'max_cluster_loss' ({}), such as {} (similarity). If that is \
             right, add '{kept}' to 'allow'",
            quoted(part.kept),
            figures(lost, whole),
            bounds.max_cluster_loss,
            examples(&part)
        ));
    }
    if found.is_empty() {
        return Ok(());
    }
    Err(EngineError::Failed(format!(
        "stage '{}' stops the run: {}. If a template makes documents similar that are no copies, raise 'min_similarity', or \
         cut the template out before",
        planned.label,
        found.join("; and ")
    )))
}

fn figures(lost: Amount, whole: Amount) -> String {
    let percent = |part: u64, of: u64| 100.0 * part as f64 / of.max(1) as f64;
    format!(
        "{} of {} documents ({:.1} %) and {} of {} tokens ({:.1} %)",
        lost.documents,
        whole.documents,
        percent(lost.documents, whole.documents),
        lost.tokens,
        whole.tokens,
        percent(lost.tokens, whole.tokens)
    )
}
