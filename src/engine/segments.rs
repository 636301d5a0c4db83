//! The segments of the chain, prepared one after another.

use super::corpus::Corpus;
use super::decide::Decisions;
use super::edit::Edit;
use super::inputs::{Inputs, Task};
use super::memory::LongDocuments;
use super::prepare::{Earlier, Prepare, Step};
use super::progress::{Progress, Unit};
use super::{EngineError, Stop};
use crate::algo::hash;
use crate::tokenizer::Tokenizer;
use serde_json::json;
use std::cell::OnceCell;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// What all segments are prepared from.
pub struct Segments<'a> {
    /// Files and how to read them.
    pub inputs: &'a Inputs,
    /// The same cut of them for every segment.
    pub tasks: &'a [Task],
    /// Text to ids.
    pub tokenizer: &'a Tokenizer,
    /// The chain of stages, the tokenizer first.
    pub chain: &'a [Step],
    /// The stages as they enter the keys of the work folder, the first one first.
    pub described: &'a [serde_json::Value],
    /// Where the chain is cut.
    pub ranges: Vec<Range<usize>>,
    /// Keep documents whose keyed hash is below this; `None` for all.
    pub sample_below: Option<u64>,
    /// Seed of the pipeline.
    pub seed: u64,
    /// Whether texts are kept.
    pub keep_text: bool,
    /// What documents that are longer than a chunk may take.
    pub long: &'a LongDocuments,
    /// The work folder.
    pub work: &'a Path,
    /// The documents in each segment, filled one after another.
    pub corpora: Vec<OnceCell<Arc<Corpus>>>,
}

impl Segments<'_> {
    /// The segment that begins at a place of the chain; the first one is none of them.
    pub fn beginning_at(&self, place: usize) -> Option<usize> {
        let later = self.ranges.iter().enumerate().skip(1);
        later
            .rev()
            .find(|(_, range)| range.start == place)
            .map(|(number, _)| number)
    }

    /// Prepares the first segment; `key` is of everything that shapes it.
    pub fn first(
        &self,
        key: &str,
        progress: &dyn Progress,
        stop: &Stop,
    ) -> Result<&Arc<Corpus>, EngineError> {
        self.prepare(0, key, None, progress, stop)
    }

    /// Prepares a later segment, from what the one before it left: what its stages decided, and what the last of
    /// them cuts. `key` was of the segment before; it becomes that of this one.
    pub fn next<'a>(
        &'a self,
        number: usize,
        decisions: Decisions<'a>,
        edit: Option<Edit>,
        key: &mut String,
        progress: &dyn Progress,
        stop: &Stop,
    ) -> Result<Decisions<'a>, EngineError> {
        // The stages before are in it by what they did.
        let stages: Vec<_> = self.ranges[number]
            .clone()
            .map(|at| &self.described[at - 1])
            .collect();
        let edited = edit.as_ref().map(|edit| format!("{:032x}", edit.digest()));
        let parts = json!([key, stages, format!("{:032x}", decisions.digest()), edited]);
        *key = format!("{:032x}", hash::content(parts.to_string().as_bytes()));
        let earlier = Earlier {
            corpus: decisions.corpus(),
            decisions: &decisions,
            edit: edit.as_ref(),
        };
        let corpus = self.prepare(number, key, Some(earlier), progress, stop)?;
        Ok(decisions.next(corpus))
    }

    fn prepare(
        &self,
        number: usize,
        key: &str,
        earlier: Option<Earlier<'_>>,
        progress: &dyn Progress,
        stop: &Stop,
    ) -> Result<&Arc<Corpus>, EngineError> {
        let phase = Prepare {
            inputs: self.inputs,
            tokenizer: self.tokenizer,
            chain: self.chain,
            segment: self.ranges[number].clone(),
            earlier,
            more_follow: number + 1 < self.ranges.len(),
            sample_below: self.sample_below,
            seed: self.seed,
            keep_text: self.keep_text,
            long: self.long,
        };
        let name = if number == 0 {
            "prepare"
        } else {
            "prepare again"
        };
        progress.begin(name, self.inputs.bytes(), Unit::Bytes);
        let folder = self.work.join(format!("prepare-{key}"));
        let tasks = phase.run(self.tasks, &folder, progress, stop)?;
        progress.end();
        let before = number
            .checked_sub(1)
            .and_then(|before| self.corpora[before].get().cloned());
        Ok(self.corpora[number].get_or_init(|| Arc::new(Corpus::new(tasks, self.inputs, before))))
    }
}

#[cfg(test)]
#[expect(
    clippy::single_range_in_vec_init,
    reason = "a chain of one segment is a list of one range"
)]
mod tests {
    use super::*;
    use crate::engine::Silent;
    use crate::engine::corpus::{CutRow, FAILED, NO_STAGE};
    use crate::engine::edit::NumberedCut;
    use crate::engine::inputs::{Input, InputFile};
    use crate::plan::OnError;
    use crate::record::{Document, Language, Notes, Verdict};
    use crate::source::{InputSpec, find_files};
    use crate::spill::Spill;
    use crate::stages::Stage;
    use crate::tokenizer::TokenizerSource;

    /// Cuts a word out wherever it stands.
    struct Cutter(&'static str);
    impl Stage for Cutter {
        fn judge(&self, document: &mut Document, _: &mut Notes) -> Result<Verdict, String> {
            let found = document.text.match_indices(self.0);
            let ranges: Vec<_> = found.map(|(at, word)| at..at + word.len()).collect();
            Ok(match ranges.len() {
                0 => Verdict::Keep,
                n => Verdict::Cut {
                    reason: 0,
                    value: n as f64,
                    ranges,
                },
            })
        }
        fn edits(&self) -> bool {
            true
        }
    }

    /// Names the language of every document.
    struct Names;
    impl Stage for Names {
        fn judge(&self, document: &mut Document, _: &mut Notes) -> Result<Verdict, String> {
            document.language = Language::new("xx").map(|language| (language, 0.5));
            Ok(Verdict::Keep)
        }
    }

    /// Keeps documents of that language of two tokens or more.
    struct Long;
    impl Stage for Long {
        fn judge(&self, document: &mut Document, _: &mut Notes) -> Result<Verdict, String> {
            match document.language {
                Some((language, 0.5)) if language.code() == "xx" => {}
                other => return Err(format!("{other:?}")),
            }
            Ok(match document.tokens.len() {
                0..2 => Verdict::Reject {
                    reason: 0,
                    value: document.tokens.len() as f64,
                },
                _ => Verdict::Keep,
            })
        }
    }

    /// Cuts half a character out, which is a bug.
    struct Wrong;
    impl Stage for Wrong {
        fn judge(&self, _: &mut Document, _: &mut Notes) -> Result<Verdict, String> {
            Ok(Verdict::Cut {
                reason: 0,
                value: 1.0,
                ranges: vec![0..1],
            })
        }
        fn edits(&self) -> bool {
            true
        }
    }

    struct Setting {
        folder: tempfile::TempDir,
        inputs: Inputs,
        tasks: Vec<Task>,
        tokenizer: Tokenizer,
    }

    fn setting(texts: &[&str]) -> Setting {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let lines: String = texts
            .iter()
            .map(|text| json!({ "text": text }).to_string() + "\n")
            .collect();
        std::fs::write(folder.path().join("in.jsonl"), lines).expect("written");
        let found = find_files(folder.path(), &["in.jsonl".to_string()]).expect("a file");
        let inputs = Inputs {
            inputs: vec![Input {
                source: "web".to_string(),
                spec: InputSpec::with_text("text"),
                on_error: OnError::Quarantine,
            }],
            files: found
                .into_iter()
                .map(|found| InputFile {
                    input: 0,
                    found,
                    places_are_rows: false,
                })
                .collect(),
        };
        let source = TokenizerSource::Builtin("o200k".to_string());
        Setting {
            folder,
            tasks: inputs.tasks(30).expect("slices"),
            inputs,
            tokenizer: Tokenizer::load(&source, None).expect("built in"),
        }
    }

    impl Setting {
        fn segments<'a>(
            &'a self,
            chain: &'a [Step],
            ranges: Vec<Range<usize>>,
            described: &'a [serde_json::Value],
        ) -> Segments<'a> {
            static LONG: LongDocuments = LongDocuments::unbounded();
            Segments {
                inputs: &self.inputs,
                tasks: &self.tasks,
                tokenizer: &self.tokenizer,
                chain,
                described,
                corpora: ranges.iter().map(|_| OnceCell::new()).collect(),
                ranges,
                sample_below: None,
                seed: 1,
                keep_text: true,
                long: &LONG,
                work: self.folder.path(),
            }
        }

        fn spill(&self) -> Spill {
            Spill::new(&self.folder.path().join("spill"), 1 << 20)
        }
    }

    fn texts(corpus: &Corpus) -> Vec<&str> {
        (0..corpus.len())
            .filter_map(|number| corpus.text(number))
            .collect()
    }

    fn ends(corpus: &Corpus) -> Vec<(u16, u16)> {
        let rows = corpus.rows();
        rows.map(|(_, row)| (row.verdict_stage, row.verdict_reason))
            .collect()
    }

    #[test]
    fn a_stage_cuts_and_the_next_one_sees_what_is_left() {
        let setting = setting(&[
            "one two",
            "cut one cut two",
            "cut cut ",
            "cut one",
            "ä cut ",
        ]);
        let chain = [
            Step::Later,
            Step::Judge(Box::new(Names)),
            Step::Judge(Box::new(Cutter("cut "))),
            Step::Judge(Box::new(Long)),
        ];
        let segments = setting.segments(&chain, vec![0..4], &[]);
        let corpus = segments
            .first("a", &Silent, &Stop::new())
            .expect("prepared");
        assert_eq!(
            texts(corpus),
            ["one two", "one two", "cut cut ", "one", "ä "]
        );
        assert_eq!(corpus.row(0).content, corpus.row(1).content);
        assert_eq!(
            ends(corpus),
            [(NO_STAGE, 0), (NO_STAGE, 0), (2, 0), (3, 0), (NO_STAGE, 0)]
        );
        let edits: Vec<_> = corpus
            .tasks
            .iter()
            .zip(&corpus.bases)
            .flat_map(|(task, base)| task.edits.values().iter().map(move |edit| (base, edit)))
            .map(|(base, edit)| {
                (
                    base + edit.document,
                    edit.cuts,
                    edit.bytes,
                    edit.nothing_left,
                )
            })
            .collect();
        assert_eq!(
            edits,
            [(1, 2, 8, 0), (2, 2, 0, 1), (3, 1, 4, 0), (4, 1, 4, 0)]
        );
        for (number, row) in corpus.rows() {
            let (task, at) = corpus.locate(number);
            let edits = corpus.tasks[task].edits_of(at as u64).iter();
            let cut: i64 = edits.map(|edit| edit.tokens).sum();
            assert_eq!(i64::from(row.tokens_read), i64::from(row.tokens) + cut);
        }
    }

    #[test]
    fn a_cut_inside_a_character_fails_the_document() {
        let setting = setting(&["äöü", "abc"]);
        let chain = [Step::Later, Step::Judge(Box::new(Wrong))];
        let segments = setting.segments(&chain, vec![0..2], &[]);
        let corpus = segments
            .first("a", &Silent, &Stop::new())
            .expect("prepared");
        assert_eq!(ends(corpus), [(1, FAILED), (NO_STAGE, 0)]);
        assert_eq!(texts(corpus), ["äöü", "bc"]);
    }

    #[test]
    fn a_later_segment_takes_each_document_up_where_it_was_left() {
        let read = [
            "cut one more two",
            "three",
            "cut one all gone",
            "one more two",
        ];
        let setting = setting(&read);
        let chain = [
            Step::Later,
            Step::Judge(Box::new(Names)),
            Step::Judge(Box::new(Cutter("cut "))),
            Step::Later,
            Step::Judge(Box::new(Cutter("more "))),
            Step::Judge(Box::new(Long)),
        ];
        let described = vec![json!("a stage"); 5];
        let segments = setting.segments(&chain, vec![0..4, 4..6], &described);
        let (stop, spill) = (Stop::new(), setting.spill());
        let first = segments.first("a", &Silent, &stop).expect("prepared");
        let decisions = Decisions::new(first, false, spill.clone()).expect("decided");
        // The stage in the middle cuts "one " out of the first, and all there is out of the third.
        let cuts = [(0, 0..4), (2, 0..12)].map(|(number, range)| {
            let cut = CutRow {
                start: range.start,
                end: range.end,
                kept: 3,
            };
            Ok(NumberedCut { number, cut })
        });
        let edit = Edit::create((3, 0), true, 4, cuts.into_iter(), 2, &spill).expect("written");
        let mut key = "a".to_string();
        let decisions = segments
            .next(1, decisions, Some(edit), &mut key, &Silent, &stop)
            .expect("prepared");
        assert_ne!(key, "a");
        let corpus = decisions.corpus();
        assert_eq!(texts(corpus), ["two", "three", "one all gone", "one two"]);
        let fates: Vec<_> = (0..4).map(|number| decisions.fate(number).stage).collect();
        assert_eq!(fates, [5, 5, 3, NO_STAGE]);
        assert_eq!(decisions.fate(2).value, 12.0);
        assert_eq!(corpus.row(0).tokens_read, first.row(0).tokens_read);
        for (number, text) in read.iter().enumerate() {
            let (task, at) = corpus.locate(number as u64);
            let edited = corpus.edited(task, at, text.to_string());
            assert_eq!(edited.as_deref(), corpus.text(number as u64));
        }
    }

    #[test]
    fn a_file_that_changes_between_segments_ends_the_run() {
        let setting = setting(&["one two", "three four"]);
        let chain = [Step::Later, Step::Later];
        let described = [json!("a stage")];
        let segments = setting.segments(&chain, vec![0..2, 2..2], &described);
        let (stop, spill) = (Stop::new(), setting.spill());
        let first = segments.first("a", &Silent, &stop).expect("prepared");
        let decisions = Decisions::new(first, false, spill).expect("decided");
        let path = setting.folder.path().join("in.jsonl");
        let changed = std::fs::read_to_string(&path)
            .expect("read")
            .replace("three", "3");
        std::fs::write(&path, changed).expect("written");
        let mut key = String::new();
        let next = segments.next(1, decisions, None, &mut key, &Silent, &stop);
        let error = next.err().expect("an error").to_string();
        assert!(
            error.contains("in.jsonl: had 41 bytes when it was found and now has 37"),
            "{error}"
        );
    }
}
