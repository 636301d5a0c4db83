//! `goodput inspect`

use super::CliError;
use crate::engine::{self, EngineError};
use crate::plan::TokenizerSource as Named;
use crate::shard::{Manifest, ReadRejects, ReadShard};
use crate::terminal;
use crate::tokenizer::{Tokenizer, TokenizerSource};
use std::fmt::Write;
use std::path::PathBuf;

/// Show documents with their tokens coloured by usefulness, or what was turned away and why.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  goodput inspect out/web-mix
  goodput inspect out/web-mix --id part-00.jsonl:1234 --tokens 2000
  goodput inspect out/web-mix --rejects --reason near_duplicate
  goodput inspect out/web-mix --colour always | less -R")]
pub struct Inspect {
    /// Output folder of a finished run.
    out: PathBuf,
    /// Show rejected documents.
    #[arg(long)]
    rejects: bool,
    /// Stretches of documents to show; a long document stands in several rows.
    #[arg(long, value_name = "N", default_value_t = 3)]
    documents: u64,
    /// Tokens to show of each.
    #[arg(long, value_name = "N", default_value_t = 120)]
    tokens: usize,
    /// Show every document whose id is this.
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Show only documents of this source.
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// With --rejects, show only documents turned away for this reason.
    #[arg(long, value_name = "NAME", requires = "rejects")]
    reason: Option<String>,
    /// Colours, or a bar behind each token where there are none.
    #[arg(long, value_name = "WHEN", default_value = "auto", value_parser = ["auto", "always", "never"])]
    colour: String,
    /// The pipeline file, where it is not where the run found it.
    #[arg(long, value_name = "FILE")]
    pipeline: Option<PathBuf>,
}

/// Eight steps from useless to useful.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The same as background colours of the 256-colour palette: grey, then ever stronger green.
const COLOURS: [u8; 8] = [236, 238, 58, 64, 70, 71, 77, 83];

fn step(usefulness: f32) -> usize {
    ((usefulness * 8.0) as usize).min(7)
}

impl Inspect {
    /// Prints the documents.
    pub fn run(self) -> Result<(), CliError> {
        let path = self.out.join("manifest.json");
        let text = std::fs::read_to_string(&path).map_err(|error| {
            CliError::Request(format!(
                "{}: {error}; 'inspect' takes the output folder of a finished run",
                path.display()
            ))
        })?;
        let manifest = Manifest::parse(&text)
            .map_err(|error| CliError::Request(format!("{} {error}", path.display())))?;
        let tokenizer = self.tokenizer(&manifest)?;
        let colour = match self.colour.as_str() {
            "always" => true,
            "never" => false,
            _ => terminal::stdout_has_colour(),
        };
        let mut text = String::new();
        if manifest.estimator.is_some() {
            self.legend(&manifest, colour, &mut text);
        }
        let shown = if self.rejects {
            self.show_rejects(&manifest, &tokenizer, colour, &mut text)?
        } else {
            self.show_rows(&manifest, &tokenizer, colour, &mut text)?
        };
        if shown == 0 {
            let what = if self.rejects
                && !manifest
                    .files
                    .iter()
                    .any(|file| file.path.starts_with("rejects/"))
            {
                "the pipeline keeps no rejects (output.rejects: none)"
            } else {
                "no document matches"
            };
            return Err(CliError::Request(format!("{}: {what}", self.out.display())));
        }
        terminal::print(&text)?;
        Ok(())
    }

    /// The tokenizer of the run, proved by its fingerprint.
    fn tokenizer(&self, manifest: &Manifest) -> Result<Tokenizer, CliError> {
        let builtin = TokenizerSource::Builtin(manifest.tokenizer.name.clone());
        let source = if crate::tokenizer::BUILTINS
            .iter()
            .any(|builtin| builtin.name == manifest.tokenizer.name)
        {
            builtin
        } else {
            match engine::plan_of(&self.out, self.pipeline.as_deref())?
                .tokenizer
                .source
            {
                Named::File { resolved, .. } => TokenizerSource::File(resolved),
                Named::Builtin(name) => TokenizerSource::Builtin(name),
            }
        };
        let tokenizer = Tokenizer::load(&source, super::cache_folder().as_deref())
            .map_err(EngineError::from)?;
        if tokenizer.fingerprint() != manifest.tokenizer.fingerprint {
            return Err(CliError::Request(format!(
                "the tokenizer '{}' has changed since the run; name the pipeline with the right one with --pipeline",
                tokenizer.name()
            )));
        }
        Ok(tokenizer)
    }

    fn legend(&self, manifest: &Manifest, colour: bool, text: &mut String) {
        let name = manifest
            .estimator
            .as_ref()
            .map_or("", |estimator| estimator.name.as_str());
        let _ = write!(text, "usefulness ({name})  0 ");
        for (bar, shade) in BARS.iter().zip(COLOURS) {
            if colour {
                let _ = write!(text, "\x1b[48;5;{shade}m  \x1b[0m");
            } else {
                text.push(*bar);
            }
        }
        text.push_str(" 1\n\n");
    }

    fn wanted(&self, id: &str, source: &str) -> bool {
        self.id.as_deref().is_none_or(|wanted| wanted == id)
            && self.source.as_deref().is_none_or(|wanted| wanted == source)
    }

    fn show_rows(
        &self,
        manifest: &Manifest,
        tokenizer: &Tokenizer,
        colour: bool,
        text: &mut String,
    ) -> Result<u64, CliError> {
        let mut shown = 0;
        let begins = u32::from(manifest.tokenizer.begin_token.is_some());
        for file in manifest
            .files
            .iter()
            .filter(|file| file.path.starts_with("shards/"))
        {
            if shown >= self.documents {
                break;
            }
            let mut shard =
                ReadShard::open(&self.out.join(&file.path)).map_err(EngineError::from)?;
            shard
                .rows(&mut |row| {
                    for segment in &row.segments {
                        if shown >= self.documents || !self.wanted(segment.doc_id, segment.source) {
                            continue;
                        }
                        let tokens = segment
                            .tokens
                            .unwrap_or(row.input_ids.len() as u32 - row.special_tokens)
                            as usize;
                        let start = segment
                            .row_start
                            .unwrap_or(if segment.doc_token_start == 0 {
                                begins
                            } else {
                                0
                            }) as usize;
                        let score = segment
                            .score
                            .map_or(String::new(), |score| format!("  score {score:.3}"));
                        let from = if segment.doc_token_start > 0 {
                            format!(" from token {}", segment.doc_token_start)
                        } else {
                            String::new()
                        };
                        let _ = writeln!(
                            text,
                            "{}  source {}  row {}  {tokens} tokens{from}{score}",
                            printable_line(segment.doc_id),
                            segment.source,
                            row.position
                        );
                        let usefulness = row
                            .usefulness
                            .as_ref()
                            .map(|all| &all[start..start + tokens]);
                        self.tokens(
                            &row.input_ids[start..start + tokens],
                            usefulness,
                            tokenizer,
                            colour,
                            text,
                        );
                        shown += 1;
                    }
                    shown < self.documents
                })
                .map_err(EngineError::from)?;
        }
        Ok(shown)
    }

    fn show_rejects(
        &self,
        manifest: &Manifest,
        tokenizer: &Tokenizer,
        colour: bool,
        text: &mut String,
    ) -> Result<u64, CliError> {
        let mut shown = 0;
        for file in manifest
            .files
            .iter()
            .filter(|file| file.path.starts_with("rejects/"))
        {
            if shown >= self.documents {
                break;
            }
            let mut rejects =
                ReadRejects::open(&self.out.join(&file.path)).map_err(EngineError::from)?;
            rejects
                .rows(&mut |row| {
                    if !self.wanted(row.doc_id, row.source)
                        || self
                            .reason
                            .as_deref()
                            .is_some_and(|reason| reason != row.reason)
                    {
                        return true;
                    }
                    let kept = row.kept_id.map_or(String::new(), |kept| {
                        format!("  kept instead: {}", printable_line(kept))
                    });
                    let score = row
                        .score
                        .map_or(String::new(), |score| format!("  score {score:.3}"));
                    let _ = writeln!(
                        text,
                        "{}  source {}  {} tokens  {}: {} ({}){kept}{score}",
                        printable_line(row.doc_id),
                        row.source,
                        row.tokens,
                        row.stage,
                        row.reason,
                        row.value
                    );
                    if let Some(ids) = &row.input_ids {
                        self.tokens(ids, row.usefulness.as_deref(), tokenizer, colour, text);
                    }
                    shown += 1;
                    shown < self.documents
                })
                .map_err(EngineError::from)?;
        }
        Ok(shown)
    }

    fn tokens(
        &self,
        ids: &[u32],
        usefulness: Option<&[f32]>,
        tokenizer: &Tokenizer,
        colour: bool,
        text: &mut String,
    ) {
        let shown = ids.len().min(self.tokens);
        match usefulness {
            None => text.push_str(&printable(&tokenizer.decode(&ids[..shown]))),
            Some(usefulness) => {
                for (id, &usefulness) in ids[..shown].iter().zip(usefulness) {
                    let token = printable(&tokenizer.token_text(*id));
                    let at = step(usefulness);
                    if colour {
                        // A colour must not run to the end of the line.
                        let token = token.replace('\n', "\x1b[0m\n");
                        let _ = write!(text, "\x1b[48;5;{}m{token}\x1b[0m", COLOURS[at]);
                    } else {
                        let _ = write!(text, "{token}{}", BARS[at]);
                    }
                }
            }
        }
        if shown < ids.len() {
            let _ = write!(text, " … {} more tokens", ids.len() - shown);
        }
        text.push_str("\n\n");
    }
}

/// An id or the like on one line.
pub(super) fn printable_line(text: &str) -> String {
    printable(text).replace(['\n', '\t'], "\u{fffd}")
}

/// Control characters would move the cursor or worse, and marks of direction reorder the line.
fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if is_command(c) { '\u{fffd}' } else { c })
        .collect()
}

fn is_command(c: char) -> bool {
    (c.is_control() && c != '\n' && c != '\t')
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_steps_cover_zero_to_one() {
        assert_eq!([0.0, 0.124, 0.125, 0.99, 1.0].map(step), [0, 0, 1, 7, 7]);
    }

    #[test]
    fn text_cannot_command_the_terminal() {
        assert_eq!(printable("a\x1b[2J\nb\tc\r"), "a\u{fffd}[2J\nb\tc\u{fffd}");
        assert_eq!(printable_line("a\nb\u{202e}"), "a\u{fffd}b\u{fffd}");
    }
}
