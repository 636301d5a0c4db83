//! What a fitted `ngram_excess` costs per token, in memory: two models asked; and usefulness worked
//! out from what they say.
//!
//! ```text
//! cargo bench --bench ngram_query -- MODEL OUT [--rounds N] [--tokens N]
//! ```
//!
//! MODEL is a file that `goodput fit` made, OUT the output folder of a run with the same tokenizer:
//! its documents are read into memory, about N tokens of them (all when absent), then asked about and
//! scored on one thread. The fastest round is printed; each token asks two models.

use goodput::algo::ngram_table::STEPS_PER_NAT;
use goodput::score::{self, TokenDocument, TokenScores};
use goodput::shard::ReadShard;
use std::error::Error;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

// The allocator of the program, so that what runs in here costs what it costs there.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let (mut paths, mut rounds, mut most) = (Vec::new(), 5usize, u64::MAX);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--rounds" => rounds = arguments.next().ok_or("--rounds N")?.parse()?,
            "--tokens" => most = arguments.next().ok_or("--tokens N")?.parse()?,
            // What cargo says to every benchmark.
            "--bench" => {}
            _ => paths.push(PathBuf::from(argument)),
        }
    }
    let [model, out] = &paths[..] else {
        return Err("give MODEL and OUT".into());
    };
    let kind = score::TABLE
        .iter()
        .find(|kind| kind.spec.name == "ngram_excess")
        .ok_or("no ngram_excess")?;
    let load = kind.load.ok_or("its models are not files")?;
    let (_, estimator) = load(model)?;
    let documents = documents(out, most)?;
    let tokens: u64 = documents.iter().map(|ids| ids.len() as u64).sum();
    let models = score::ngram_models_of_file(model)?;
    let q = models.models() - 1;
    let mut codes = [Vec::new(), Vec::new()];
    let mut scores = TokenScores::default();
    let (mut asked, mut scored) = (f64::MAX, f64::MAX);
    let mut sums = [0.0; 2];
    for _ in 0..rounds {
        let start = Instant::now();
        let mut steps = 0u64;
        for (number, ids) in (0usize..).zip(&documents) {
            models.surprisals([number % q, q], ids, &mut codes);
            steps += codes[0].iter().map(|&code| u64::from(code)).sum::<u64>();
        }
        asked = asked.min(start.elapsed().as_secs_f64());
        let start = Instant::now();
        let mut nats = 0.0;
        for (number, ids) in (0u64..).zip(&documents) {
            let document = TokenDocument {
                number,
                sample_key: 0,
                fold_key: number.wrapping_mul(0x9E37_79B9_7F4A_7C15),
                content: 0,
                tokens: ids,
                id: "",
                text: "",
            };
            nats += estimator.score(&document, &mut scores)?.difficulty * ids.len() as f64;
        }
        scored = scored.min(start.elapsed().as_secs_f64());
        sums = [steps as f64 / STEPS_PER_NAT, nats];
    }
    let millions = tokens as f64 / 1e6;
    writeln!(
        io::stdout(),
        "{tokens} tokens, million tokens a second: asked {:.3}, scored {:.3}; mean surprisal {:.4} and {:.4} nats",
        millions / asked,
        millions / scored,
        sums[0] / tokens as f64,
        sums[1] / tokens as f64,
    )?;
    Ok(())
}

/// The ids of each row of the shards, about `most` tokens.
fn documents(out: &Path, most: u64) -> Result<Vec<Vec<u32>>> {
    let mut shards: Vec<PathBuf> = std::fs::read_dir(out.join("shards"))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<_>>()?;
    shards.sort();
    let (mut documents, mut tokens) = (Vec::new(), 0);
    for shard in shards {
        ReadShard::open(&shard)?.rows(&mut |row| {
            documents.push(row.input_ids.to_vec());
            tokens += row.input_ids.len() as u64;
            tokens < most
        })?;
        if tokens >= most {
            break;
        }
    }
    Ok(documents)
}
