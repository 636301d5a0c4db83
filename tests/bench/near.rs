//! What near dedupe costs beside tokenizing, with text already decoded.

use super::{Cost, Result, measured, median};
use goodput::algo::minhash::{Measure, MinHasher, aimed_similarity, bands_and_rows};
use goodput::dedupe::{
    BandHash, Documents, Dropped, Keep, NearInput, Policy, Shingling, SketchScratch, Sketcher,
    decide_near,
};
use goodput::source::{Entry, FoundFile, InputSpec, Reader, slices};
use goodput::spill::Spill;
use goodput::tokenizer::Tokenizer;
use rayon::prelude::*;
use std::io::Write;
use std::path::Path;

/// Documents a worker takes at a time.
const CHUNK: usize = 64;

/// Sketches of a chunk: shingle sets, then bands of all of them.
#[derive(Default)]
struct Sketches {
    sets: Vec<Vec<u64>>,
    bands: Vec<Vec<u64>>,
}

/// Measures on `threads` threads, in `rounds` rounds: tokenizing, sketching and deciding, of the texts of
/// `files`, each `copies` times with a word of its own every few hundred.
pub fn near(
    files: &[FoundFile],
    tokenizer: &Tokenizer,
    work: &Path,
    threads: usize,
    rounds: usize,
    copies: usize,
    out: &mut impl Write,
) -> Result<()> {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()?;
    let mut texts = decoded(files)?;
    let once = texts.len();
    for copy in 1..copies {
        for at in 0..once {
            let edited = edited(&texts[at], copy);
            texts.push(edited);
        }
    }
    let bytes: usize = texts.iter().map(String::len).sum();
    let (min_similarity, seed) = (0.8, 17);
    let (bands, rows) = bands_and_rows(aimed_similarity(min_similarity));
    let sketcher = Sketcher {
        hasher: MinHasher::new(seed, bands as usize, rows as usize),
        shingling: Shingling::DEFAULT,
    };
    let policy = Policy {
        min_similarity,
        measure: Measure::Jaccard,
        keep: Keep::First,
        max_bucket: 1_000,
    };
    let (mut tokenizing, mut sketching, mut deciding) = (Vec::new(), Vec::new(), Vec::new());
    let (mut dropped, mut verified) = (0u64, 0);
    for _ in 0..rounds {
        tokenizing.push(measured(|| {
            pool.install(|| {
                texts
                    .par_chunks(CHUNK)
                    .try_for_each_init(Vec::new, |ids, texts| {
                        texts.iter().try_for_each(|text| {
                            tokenizer.encode_into(text, ids).map_err(|e| e.to_string())
                        })
                    })
            })
        })?);
        let mut sketches: Vec<Sketches> = Vec::new();
        sketching.push(measured(|| {
            sketches = pool.install(|| {
                texts
                    .par_chunks(CHUNK)
                    .map_init(SketchScratch::default, |scratch, texts| {
                        let mut sketches = Sketches::default();
                        for text in texts {
                            let mut bands = Vec::new();
                            sketcher.sketch(text, &[], scratch, &mut bands);
                            sketches.sets.push(scratch.shingles.clone());
                            sketches.bands.push(bands);
                        }
                        sketches
                    })
                    .collect()
            });
            Ok(())
        })?);
        deciding.push(measured(|| {
            // All of it on the pool, which the bands need not travel to.
            let (found, gone) = pool
                .install(|| {
                    let mut gone = 0;
                    let each = sketches.iter().flat_map(|chunk| &chunk.bands).zip(0..);
                    let mut bands = each.flat_map(|(bands, place)| {
                        bands.iter().map(move |&hash| BandHash { hash, place })
                    });
                    let input = NearInput {
                        bands: &mut bands,
                        documents: Documents {
                            number: &|place| place,
                            shingles: &|number| {
                                let number = number as usize;
                                &sketches[number / CHUNK].sets[number % CHUNK]
                            },
                        },
                    };
                    let spill = Spill::new(work, 1 << 30);
                    decide_near(input, policy, &spill, |_: Dropped| gone += 1)
                        .map(|report| (report.pairs_verified, gone))
                })
                .map_err(|error| error.to_string())?;
            (verified, dropped) = (found, gone);
            Ok(())
        })?);
    }
    let core = |costs: &[Cost]| median(costs, |cost| cost.core);
    let (tokenize, sketch, decide) = (core(&tokenizing), core(&sketching), core(&deciding));
    writeln!(
        out,
        "near dedupe of decoded text, {threads} threads: {:.1} MB, {} documents, {bands} bands of {rows} rows; {dropped} went, \
         {verified} pairs verified\n  core seconds: tokenizing {tokenize:.2}, sketching {sketch:.2}, deciding {decide:.2}\n  \
         (sketching + deciding) / tokenizing = {:.2} (at most 1.5)",
        bytes as f64 / 1e6,
        texts.len(),
        (sketch + decide) / tokenize.max(0.01)
    )?;
    Ok(())
}

fn decoded(files: &[FoundFile]) -> Result<Vec<String>> {
    let spec = InputSpec::with_text("text");
    let mut texts = Vec::new();
    for file in files {
        for slice in slices(file, &spec, u64::MAX)? {
            let mut reader = Reader::open(file, &slice, &spec)?;
            while let Some(chunk) = reader.next_chunk()? {
                chunk.decode(&spec, &mut |entry| {
                    if let Entry::Document(document) = entry {
                        texts.push(document.text.to_string());
                    }
                });
            }
        }
    }
    Ok(texts)
}

/// The text with every 300th word another one.
fn edited(text: &str, copy: usize) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 100);
    for (at, word) in text.split_inclusive(' ').enumerate() {
        if at % 300 == 150 {
            out.push_str(&format!("edit{copy} "));
        } else {
            out.push_str(word);
        }
    }
    out
}
