//! `goodput inspect`

use super::CliError;
use super::inspect_html::Html;
use crate::engine::{self, EngineError};
use crate::plan::TokenizerSource as Named;
use crate::score::TokenExplanation;
use crate::shard::{Manifest, ReadRejects, ReadShard, RowRead};
use crate::terminal::{self, printable, printable_line};
use crate::tokenizer::{Tokenizer, TokenizerSource};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::PathBuf;

/// Show documents with their tokens coloured by usefulness, or what was turned away and why.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  goodput inspect out/web-mix
  goodput inspect out/web-mix --id part-00.jsonl:1234 --tokens 2000
  goodput inspect out/web-mix --rejects --reason near_duplicate
  goodput inspect out/web-mix --colour always | less -R
  goodput inspect out/web-mix --documents 20 --tokens 500 --format html --output documents.html
  goodput inspect out/web-mix --explain web-mix.model --documents 1

Columns of --explain: 'useful' is the usefulness as the shards hold it, in steps of 1/255 and after
a calibration; 'product' is what the model computes before both, left * able * want. left is the
probability that the corpus' model still misses, able falls from 1 to 0 where the reference's model
cannot predict the token, want is above 0.5 where the excess around it is above tau. s_p and s_q are
the surprisals by the two models in nats, excess their mean difference as want sees it, ctx the tokens
of context that each used.

Classes go by the smallest of the three factors, the first of equal ones in this order:
  learnable   each factor is 0.5 or more
  known       left is the smallest: the corpus' model expects the token already
  noise       able is the smallest: the reference's model cannot predict it either
  off_target  want is the smallest: the text around it is not like the reference")]
pub struct Inspect {
    /// Output folder of a finished run.
    out: PathBuf,
    /// Show rejected documents.
    #[arg(long)]
    rejects: bool,
    /// Stretches of documents to show; a long document stands in several rows.
    #[arg(long, value_name = "N", default_value_t = 3)]
    documents: u64,
    /// Tokens to show of each, as text or HTML; JSON has them all.
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
    /// Say of each token why it has its usefulness, by the model that `goodput fit` writes: surprisals and
    /// context used by both models, the factors, and whether the token is known, noise, off target or learnable.
    #[arg(long, value_name = "MODEL")]
    explain: Option<PathBuf>,
    /// How documents are shown: text for a terminal, one HTML page that needs nothing else, or one JSON document.
    #[arg(long, value_name = "HOW", default_value = "text", value_parser = ["text", "html", "json"])]
    format: String,
    /// Write to this file instead of stdout.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
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
        let manifest = super::manifest_of(&self.out, "inspect")?;
        self.judge_names()?;
        let tokenizer = self.tokenizer(&manifest)?;
        let colour = match self.colour.as_str() {
            "always" => true,
            "never" => false,
            _ => self.output.is_none() && terminal::stdout_has_colour(),
        };
        let html = self.format == "html";
        let json = self.format == "json";
        let explainer = match &self.explain {
            Some(model) => Some(engine::Explainer::open(model, &manifest)?),
            None => None,
        };
        let explained = match &explainer {
            Some(explainer) if !self.rejects => self.explain_rows(&manifest, explainer)?,
            _ => BTreeMap::new(),
        };
        let mut writer = Writer {
            inspect: &self,
            tokenizer: &tokenizer,
            colour,
            text: String::new(),
            html: html.then(Html::new),
            json: json.then(Vec::new),
            explainer: explainer.as_ref().filter(|_| self.rejects),
            explained,
            failed: Ok(()),
            shown: 0,
        };
        if manifest.estimator.is_some() && !html && !json && explainer.is_none() {
            self.legend(&manifest, colour, &mut writer.text);
        }
        if self.rejects {
            self.show_rejects(&manifest, &mut writer)?;
        } else {
            self.show_rows(&manifest, &mut writer)?;
        }
        let Writer {
            text,
            html,
            json,
            failed,
            shown,
            ..
        } = writer;
        failed?;
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
        let text = match (html, json) {
            (Some(html), _) => html.page(&manifest, self.rejects),
            (_, Some(documents)) => {
                let all = json!({ "dataset": manifest.checksum, "documents": documents });
                format!("{all}\n")
            }
            _ => text,
        };
        match &self.output {
            Some(path) => {
                let ours = |there: &[u8]| {
                    [&b"<!"[..], b"{\"dataset\"", b"usefulness ("]
                        .iter()
                        .any(|begin| there.starts_with(begin))
                };
                super::refuse_foreign(path, "nothing that 'inspect' wrote", &ours)?;
                std::fs::write(path, text).map_err(|error| {
                    CliError::Request(format!("--output: {}: {error}", path.display()))
                })?;
            }
            None if self.format != "text" => terminal::print_data(&text)?,
            None => terminal::print_coloured(&text)?,
        }
        Ok(())
    }

    /// Refuses a source or reason that the ledger does not have, with those that it has.
    fn judge_names(&self) -> Result<(), CliError> {
        if self.source.is_none() && self.reason.is_none() {
            return Ok(());
        }
        let (ledger, _) = super::ledger_of(&self.out, "inspect")?;
        let sources: BTreeSet<&str> = ledger.read.iter().map(|row| row.source.as_str()).collect();
        let rejected = ledger.rejected.iter();
        let reasons: BTreeSet<&str> = rejected.map(|row| row.reason.as_str()).collect();
        for (option, asked, known) in [
            ("source", &self.source, sources),
            ("reason", &self.reason, reasons),
        ] {
            let Some(asked) = asked.as_deref().filter(|asked| !known.contains(asked)) else {
                continue;
            };
            let known: Vec<&str> = known.into_iter().collect();
            let has = match known.is_empty() {
                true => "none".to_string(),
                false => printable_line(&known.join(", ")),
            };
            return Err(CliError::Request(format!(
                "--{option}: {} has no {option} '{asked}'; it has: {has}",
                self.out.display()
            )));
        }
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
        let _ = write!(text, "usefulness ({})  0 ", printable_line(name));
        for (bar, shade) in BARS.iter().zip(COLOURS) {
            if colour {
                let _ = write!(text, "\x1b[48;5;{shade}m  \x1b[0m");
            } else {
                text.push(*bar);
            }
        }
        text.push_str(" 1\n\n");
    }

    /// Explanations of the documents that will be shown, by id.
    fn explain_rows(
        &self,
        manifest: &Manifest,
        explainer: &engine::Explainer,
    ) -> Result<BTreeMap<String, Vec<TokenExplanation>>, CliError> {
        let mut ids = BTreeSet::new();
        let mut shown = 0;
        for file in &manifest.files {
            if !file.path.starts_with("shards/") || shown >= self.documents {
                continue;
            }
            let mut shard =
                ReadShard::open(&self.out.join(&file.path)).map_err(EngineError::from)?;
            let visit = &mut |row: RowRead<'_>| {
                for (segment, place) in row.stretches() {
                    if shown < self.documents
                        && !place.is_empty()
                        && self.wanted(segment.doc_id, segment.source)
                    {
                        shown += 1;
                        ids.insert(segment.doc_id.to_string());
                    }
                }
                shown < self.documents
            };
            shard.rows(visit).map_err(EngineError::from)?;
        }
        let whole = engine::whole_documents(&self.out, manifest, &ids)?;
        let explain = |(id, tokens): (String, Vec<u32>)| {
            let explained = explainer.explain(&id, &tokens)?;
            Ok((id, explained))
        };
        whole.into_iter().map(explain).collect()
    }

    fn wanted(&self, id: &str, source: &str) -> bool {
        self.id.as_deref().is_none_or(|wanted| wanted == id)
            && self.source.as_deref().is_none_or(|wanted| wanted == source)
    }

    fn show_rows(&self, manifest: &Manifest, writer: &mut Writer<'_>) -> Result<(), CliError> {
        for file in manifest
            .files
            .iter()
            .filter(|file| file.path.starts_with("shards/"))
        {
            if writer.shown >= self.documents {
                break;
            }
            let mut shard =
                ReadShard::open(&self.out.join(&file.path)).map_err(EngineError::from)?;
            shard
                .rows(&mut |row| {
                    for (segment, place) in row.stretches() {
                        // A begin token that is the last of a row has a segment without tokens.
                        if writer.shown >= self.documents
                            || place.is_empty()
                            || !self.wanted(segment.doc_id, segment.source)
                        {
                            continue;
                        }
                        let score = segment
                            .score
                            .map_or(String::new(), |score| format!("  score {score:.3}"));
                        let from = if segment.doc_token_start > 0 {
                            format!(" from token {}", segment.doc_token_start)
                        } else {
                            String::new()
                        };
                        let head = format!(
                            "  source {}  row {}  {} tokens{from}{score}",
                            printable_line(segment.source),
                            row.position,
                            place.len()
                        );
                        let stretch = Stretch {
                            doc_id: segment.doc_id,
                            first_token: segment.doc_token_start as usize,
                            ids: Some(&row.input_ids[place.clone()]),
                            usefulness: row.usefulness.as_ref().map(|all| &all[place.clone()]),
                            excess_nats: row.excess_nats.as_ref().map(|all| &all[place]),
                            explained: None,
                        };
                        let about = json!({
                            "source": segment.source,
                            "position": row.position,
                            "copy": segment.copy,
                            "score": segment.score,
                        });
                        writer.stretch(&head, about, &stretch);
                    }
                    writer.shown < self.documents
                })
                .map_err(EngineError::from)?;
        }
        Ok(())
    }

    fn show_rejects(&self, manifest: &Manifest, writer: &mut Writer<'_>) -> Result<(), CliError> {
        for file in manifest
            .files
            .iter()
            .filter(|file| file.path.starts_with("rejects/"))
        {
            if writer.shown >= self.documents {
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
                    let release = row.kept_release.map_or(String::new(), |release| {
                        format!(" of the release {}", printable_line(release))
                    });
                    let kept = row.kept_id.map_or(String::new(), |kept| {
                        format!("  kept instead: {}{release}", printable_line(kept))
                    });
                    let score = row
                        .score
                        .map_or(String::new(), |score| format!("  score {score:.3}"));
                    let head = format!(
                        "  source {}  {} tokens  {}: {} ({}){kept}{score}",
                        printable_line(row.source),
                        row.tokens,
                        printable_line(row.stage),
                        printable_line(row.reason),
                        row.value
                    );
                    let stretch = Stretch {
                        doc_id: row.doc_id,
                        first_token: 0,
                        ids: row.input_ids.as_deref(),
                        usefulness: row.usefulness.as_deref(),
                        excess_nats: None,
                        explained: None,
                    };
                    let about = json!({
                        "source": row.source,
                        "stage": row.stage,
                        "reason": row.reason,
                        "value": row.value,
                        "kept_instead": row.kept_id,
                        "kept_release": row.kept_release,
                        "score": row.score,
                    });
                    writer.stretch(&head, about, &stretch);
                    writer.shown < self.documents
                })
                .map_err(EngineError::from)?;
        }
        Ok(())
    }
}

/// A document, or the part of one that stands in a row.
pub(super) struct Stretch<'a> {
    pub(super) doc_id: &'a str,
    /// Where in the document it begins, in tokens.
    pub(super) first_token: usize,
    /// Token ids; absent where they were not kept.
    pub(super) ids: Option<&'a [u32]>,
    /// From 0 to 1, as many as ids; absent where nothing was scored.
    pub(super) usefulness: Option<&'a [f32]>,
    /// In nats, as many as ids, where they are stored.
    pub(super) excess_nats: Option<&'a [f32]>,
    /// As many as ids, where an explanation was asked for.
    pub(super) explained: Option<&'a [TokenExplanation]>,
}

/// Where documents go: onto a page, or into text for a terminal.
struct Writer<'a> {
    inspect: &'a Inspect,
    tokenizer: &'a Tokenizer,
    colour: bool,
    text: String,
    html: Option<Html>,
    json: Option<Vec<serde_json::Value>>,
    /// Explains documents that come whole.
    explainer: Option<&'a engine::Explainer>,
    /// Explanations of whole documents by id, of those that come in rows.
    explained: BTreeMap<String, Vec<TokenExplanation>>,
    failed: Result<(), EngineError>,
    shown: u64,
}

impl Writer<'_> {
    fn stretch(&mut self, head: &str, about: serde_json::Value, stretch: &Stretch<'_>) {
        self.shown += 1;
        let mut of_whole = None;
        if let (Some(explainer), Some(ids)) = (self.explainer, stretch.ids)
            && stretch.usefulness.is_some()
        {
            match explainer.explain(stretch.doc_id, ids) {
                Ok(explained) => of_whole = Some(explained),
                Err(error) => self.failed = Err(error),
            }
        }
        let of_rows = self.explained.get(stretch.doc_id).and_then(|all| {
            let first = stretch.first_token;
            all.get(first..first + stretch.ids.map_or(0, <[u32]>::len))
        });
        let explained = of_whole.as_deref().or(of_rows);
        let stretch = &Stretch {
            explained,
            ..*stretch
        };
        if let Some(documents) = &mut self.json {
            documents.push(document(about, stretch, self.tokenizer));
            return;
        }
        if let Some(html) = &mut self.html {
            html.stretch(head, stretch, self.inspect.tokens, self.tokenizer);
            return;
        }
        let _ = writeln!(self.text, "{}{head}", printable_line(stretch.doc_id));
        let Some(ids) = stretch.ids else {
            return;
        };
        let shown = ids.len().min(self.inspect.tokens);
        let text = &mut self.text;
        if let Some(explained) = stretch.explained {
            explain_lines(
                text,
                &ids[..shown],
                stretch.usefulness,
                explained,
                self.tokenizer,
            );
            if shown < ids.len() {
                let _ = writeln!(text, "… {} more tokens", ids.len() - shown);
            }
            text.push('\n');
            return;
        }
        match stretch.usefulness {
            None => text.push_str(&printable(&self.tokenizer.decode(&ids[..shown]))),
            Some(usefulness) => {
                for (id, &usefulness) in ids[..shown].iter().zip(usefulness) {
                    let token = printable(&self.tokenizer.token_text(*id));
                    let at = step(usefulness);
                    if self.colour {
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

/// A line for each token: its usefulness as stored, and the factors whose product it was before it was
/// calibrated and rounded.
fn explain_lines(
    text: &mut String,
    ids: &[u32],
    stored: Option<&[f32]>,
    explained: &[TokenExplanation],
    tokenizer: &Tokenizer,
) {
    let _ = writeln!(
        text,
        "{:<18} {:>6}  {:>7} = {:>5} * {:>5} * {:>5}  {:>7} {:>7} {:>7} {:>5}  class",
        "token", "useful", "product", "left", "able", "want", "s_p", "s_q", "excess", "ctx"
    );
    for (place, (&id, token)) in ids.iter().zip(explained).enumerate() {
        let stored = stored.and_then(|stored| stored.get(place));
        let stored = stored.map_or("-".to_string(), |usefulness| format!("{usefulness:.3}"));
        let spelled = format!("{:?}", tokenizer.token_text(id));
        let _ = writeln!(
            text,
            "{:<18} {stored:>6}  {:>7.3} = {:>5.3} * {:>5.3} * {:>5.3}  {:>7.3} {:>7.3} {:>+7.3} {:>5}  {}",
            printable_line(&spelled),
            token.usefulness,
            token.left,
            token.able,
            token.want,
            token.surprisal_general_nats,
            token.surprisal_target_nats,
            token.mean_excess_nats,
            format!(
                "{}/{}",
                token.context_general_tokens, token.context_target_tokens
            ),
            token.class()
        );
    }
}

/// A document, or the part of one that stands in a row, as JSON.
fn document(
    mut about: serde_json::Value,
    stretch: &Stretch<'_>,
    tokenizer: &Tokenizer,
) -> serde_json::Value {
    let token = |(place, &id): (usize, &u32)| {
        let mut token = json!({ "id": id, "text": tokenizer.token_text(id) });
        if let Some(explained) = stretch.explained {
            let one = &explained[place];
            let values = serde_json::to_value(one).unwrap_or_default();
            for (name, value) in values.as_object().into_iter().flatten() {
                token[name] = value.clone();
            }
            token["class"] = one.class().into();
        }
        if let Some(usefulness) = stretch.usefulness {
            token["usefulness"] = usefulness[place].into();
        }
        if let Some(excess) = stretch.excess_nats {
            token["excess_nats"] = excess[place].into();
        }
        token
    };
    about["doc_id"] = stretch.doc_id.into();
    about["first_token"] = stretch.first_token.into();
    about["tokens"] = match stretch.ids {
        Some(ids) => ids.iter().enumerate().map(token).collect(),
        None => serde_json::Value::Null,
    };
    about
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_steps_cover_zero_to_one() {
        assert_eq!([0.0, 0.124, 0.125, 0.99, 1.0].map(step), [0, 0, 1, 7, 7]);
    }
}
