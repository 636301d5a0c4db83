//! Finds items of evaluation sets in documents, and removes them where that is wanted.

use super::{ItemName, Learner, Learnt, Stage, StageKind, WantedTexts};
use crate::algo::overlap::{OverlapBuilder, OverlapIndex, OverlapRules};
use crate::record::{
    Document, Kind, Notes, OptionError, OptionSpec, Options, Overlap, Reason, Spec, Verdict,
};
use std::ops::Range;

/// What the table says.
pub(super) const KIND: StageKind = StageKind {
    spec: Spec {
        name: "decontaminate",
        summary: "Finds items of evaluation sets in the documents; reports them, cuts them out or rejects the document",
        details: "Each file of `evaluation` is a set, each record an item. Words are what stands between white space, \
            in lower case and with all punctuation dropped (`Don't` is `dont`), so case, punctuation and layout make \
            no difference (Brown et al. 2020, appendix C). An item of `ngram_words` words or more is known by its \
            different n-grams, a shorter one as a whole. A document holds an item when it holds at least the share \
            `min_overlap` of these n-grams, or the short item as a run of its words. Hashes only propose: every match \
            is decided on the words.\n\
            \n\
            An n-gram in more than `max_items_per_ngram` items of different text is a template's (`Answer the \
            following question …`) and does not count, nor does one that stands in a text of `allow`. A set of which \
            no item can be found for these reasons is refused.\n\
            \n\
            In scripts that are written without spaces (Han, Hiragana, Katakana, Thai, Lao, Khmer, Myanmar) every \
            character is a word, so 13 words say less there than in English: more may be found by chance, and \
            `ngram_words` should be larger for sets in these languages alone.\n\
            \n\
            Every stretch found is a row of `contamination/part-00000.parquet`, whatever the policy: the document, the \
            bytes of its text as the stage saw it, the set, the item and its overlap. N-grams that overlap or touch \
            make one stretch; it begins and ends at borders of words, with their punctuation. `remove_span` cuts just \
            these stretches: words of the item beside them, too few for an n-gram, stay.\n\
            \n\
            What it can't find: a paraphrase, a translation, an item with a word changed in every 13, an excerpt \
            of fewer words than an n-gram. On 300 documents with 60 GSM8K and HumanEval questions planted each way, it \
            finds 60 of 60 verbatim, 60 of 60 in lower case without punctuation, 60 of 60 in other lines, 59 of 60 of \
            which three fifths were planted, and flags none of the 60 without one.\n\
            \n\
            Memory: about 20 bytes for each word of the sets, and a few hundred for each item and different word; \
            texts of `allow` take none.",
        options: &[
            OptionSpec {
                name: "evaluation",
                kind: Kind::Globs,
                default: None,
                doc: "Files of evaluation sets, in any format that inputs may have; each file is a set.",
            },
            OptionSpec {
                name: "text_fields",
                kind: Kind::TextList,
                default: Some("[text]"),
                doc: "Fields that make the text of an item, joined in this order, e.g. `[question, choices]`; of a list of \
                    texts or numbers, such as choices, all are. An item must have the first one; others may be null.",
            },
            OptionSpec {
                name: "id_field",
                kind: Kind::Text,
                default: Some("null"),
                doc: "The field that names an item; without one it is named by its file and its place in it.",
            },
            OptionSpec {
                name: "allow",
                kind: Kind::Globs,
                default: Some("null"),
                doc: "Files of texts that may stand anywhere, such as licences and famous speeches, text under `text`: \
                    n-grams and short items that stand in one of them do not count.",
            },
            OptionSpec {
                name: "policy",
                kind: Kind::Choice(&["report", "remove_span", "remove_document"]),
                default: Some("remove_document"),
                doc: "What becomes of a document that holds an item: `report` only writes the evidence, \
                    `remove_span` cuts the stretches found out of the text, `remove_document` rejects it.",
            },
            OptionSpec {
                name: "ngram_words",
                kind: Kind::Integer { min: 1, max: 64 },
                default: Some("13"),
                doc: "Words of an n-gram.",
            },
            OptionSpec {
                name: "min_item_words",
                kind: Kind::Integer { min: 1, max: 64 },
                default: Some("5"),
                doc: "Words that an item needs to be looked for; one with fewer would be found by chance, is left out \
                    and counted in the ledger.",
            },
            OptionSpec {
                name: "min_overlap",
                kind: Kind::Number { min: 0.0, max: 1.0 },
                default: Some("0.1"),
                doc: "Share of an item's n-grams, from 0 to 1, from which on a document holds it; one exactly at it \
                    does, and with 0 a single n-gram is enough.",
            },
            OptionSpec {
                name: "max_items_per_ngram",
                kind: Kind::Integer {
                    min: 1,
                    max: 1_000_000,
                },
                default: Some("10"),
                doc: "Items of different text that an n-gram may stand in; one in more does not count.",
            },
        ],
        example: "{ evaluation: data/eval/*.jsonl.zst, policy: remove_document }",
    },
    reasons: &[Reason::contaminated(
        "contaminated",
        "It holds an item of an evaluation set (`remove_span`: and was cut, or nothing else was left); the value is the \
         largest overlap, above 0 and up to 1.",
    )],
    notes: &[
        "documents_with_an_item",
        "evaluation_items",
        "evaluation_items_too_short",
        "evaluation_items_without_a_key",
        "evaluation_records_unread",
        "ngrams_in_many_items",
        "ngrams_allowed",
    ],
    build,
};

const WITH_AN_ITEM: usize = 0;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Policy {
    Report,
    RemoveSpan,
    RemoveDocument,
}

/// Lists of files: their places in [`Learner::wanted`].
const EVALUATION: usize = 0;

struct Decontaminate {
    wanted: Vec<WantedTexts>,
    rules: OverlapRules,
    min_overlap: f64,
    policy: Policy,
    /// Names of the evaluation sets, by number.
    sets: Vec<String>,
    /// The list whose texts are being given.
    list: usize,
    /// As long as items come in.
    builder: Option<OverlapBuilder>,
    index: OverlapIndex,
    /// Files of `allow`, and whether something of an item stands in one.
    allowed: Vec<(String, bool)>,
}

fn build(options: &Options) -> Result<Box<dyn Stage>, OptionError> {
    let text_fields = options.list("text_fields");
    if text_fields.is_empty() {
        return Err(OptionError::new(
            "text_fields",
            "at least one field, e.g. [text]",
            "an empty list",
        ));
    }
    let rules = OverlapRules {
        ngram_words: options.integer("ngram_words") as usize,
        min_text_words: options.integer("min_item_words") as usize,
        max_texts_per_ngram: options.integer("max_items_per_ngram") as usize,
    };
    let mut wanted = vec![WantedTexts {
        option: "evaluation",
        globs: options.list("evaluation").to_vec(),
        text_fields: text_fields.to_vec(),
        text_option: Some("text_fields"),
        id_field: options.text_if_given("id_field").map(str::to_string),
    }];
    let allow = options.list("allow");
    if !allow.is_empty() {
        wanted.push(WantedTexts {
            option: "allow",
            globs: allow.to_vec(),
            text_fields: vec!["text".to_string()],
            text_option: None,
            id_field: None,
        });
    }
    Ok(Box::new(Decontaminate {
        wanted,
        rules,
        min_overlap: options.number("min_overlap"),
        policy: match options.text("policy") {
            "report" => Policy::Report,
            "remove_span" => Policy::RemoveSpan,
            _ => Policy::RemoveDocument,
        },
        sets: Vec::new(),
        list: EVALUATION,
        builder: Some(OverlapBuilder::new(rules)),
        index: OverlapBuilder::new(rules).build(),
        allowed: Vec::new(),
    }))
}

impl Stage for Decontaminate {
    fn judge(&self, document: &mut Document, notes: &mut Notes) -> Result<Verdict, String> {
        let found = self.index.find(&document.text, self.min_overlap);
        if found.is_empty() {
            return Ok(Verdict::Keep);
        }
        notes.count(WITH_AN_ITEM);
        let value = found.iter().map(|held| held.overlap()).fold(0.0, f64::max);
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for held in &found {
            document.overlaps.push(Overlap {
                start: held.start as u64,
                end: held.end as u64,
                item: held.text,
                keys_held: held.held,
                keys: held.of,
            });
            // They come by their starts.
            match ranges.last_mut() {
                Some(last) if held.start <= last.end => last.end = last.end.max(held.end),
                _ => ranges.push(held.start..held.end),
            }
        }
        Ok(match self.policy {
            Policy::Report => Verdict::Keep,
            Policy::RemoveDocument => Verdict::Reject { reason: 0, value },
            Policy::RemoveSpan => Verdict::Cut {
                reason: 0,
                value,
                ranges,
            },
        })
    }

    fn edits(&self) -> bool {
        self.policy == Policy::RemoveSpan
    }

    fn learner(&mut self) -> Option<&mut dyn Learner> {
        Some(self)
    }
}

impl Decontaminate {
    /// All items are in.
    fn close(&mut self) {
        if let Some(builder) = self.builder.take() {
            self.index = builder.build();
        }
    }
}

impl Learner for Decontaminate {
    fn wanted(&self) -> Vec<WantedTexts> {
        self.wanted.clone()
    }

    fn begin_file(&mut self, list: usize, name: &str) {
        self.list = list;
        if list == EVALUATION {
            self.sets.push(name.to_string());
        } else {
            self.allowed.push((name.to_string(), false));
            self.close();
        }
    }

    fn take(&mut self, id: &str, text: &str) -> Result<(), String> {
        match &mut self.builder {
            Some(builder) => {
                let set = self.sets.len() as u32 - 1;
                builder.add(set, id, text).map_err(|_| {
                    "the sets have 4,294,967,295 words or more; name fewer files".to_string()
                })
            }
            None => {
                let holds = self.index.allow(text);
                if let Some((_, any)) = self.allowed.last_mut() {
                    *any |= holds;
                }
                Ok(())
            }
        }
    }

    fn finish(&mut self) -> Result<Learnt, String> {
        self.close();
        self.index.settle();
        let counts = self.index.sets();
        for (set, counts) in self.sets.iter().zip(&counts) {
            if counts.too_short + counts.without_key == counts.items {
                return Err(format!(
                    "{set}: none of its {} items can be looked for: {} have fewer words than 'min_item_words', {}, and of \
                     {} every n-gram is in more items than 'max_items_per_ngram', {}, or in a text of 'allow'; change one of \
                     these, name other fields with 'text_fields', or leave the file out",
                    counts.items,
                    counts.too_short,
                    self.rules.min_text_words,
                    counts.without_key,
                    self.rules.max_texts_per_ngram
                ));
            }
        }
        let sum = |of: fn(&crate::algo::overlap::SetCounts) -> u64| counts.iter().map(of).sum();
        let without_key: u64 = sum(|counts| counts.without_key);
        let mut warnings = Vec::new();
        if without_key > 0 {
            warnings.push(format!(
                "{without_key} items cannot be found, since every n-gram of theirs is in more items than \
                 'max_items_per_ngram', {}, or in a text of 'allow'; raise the one or shorten the other to look for them",
                self.rules.max_texts_per_ngram
            ));
        }
        for (name, _) in self.allowed.iter().filter(|(_, holds)| !holds) {
            warnings.push(format!(
                "{name}: nothing that is looked for stands in this file of 'allow', so it allows nothing; is it the text \
                 that you mean? Else leave it out"
            ));
        }
        let names = self.index.names().iter().map(|names| {
            let name = |name: &crate::algo::overlap::TextName| ItemName {
                set: self.sets[name.set as usize].clone(),
                id: name.id.clone(),
                items: name.items,
            };
            names.iter().map(name).collect()
        });
        Ok(Learnt {
            items: names.collect(),
            notes: vec![
                ("evaluation_items", sum(|counts| counts.items)),
                ("evaluation_items_too_short", sum(|counts| counts.too_short)),
                ("evaluation_items_without_a_key", without_key),
                ("ngrams_in_many_items", self.index.in_many_texts()),
                ("ngrams_allowed", self.index.allowed()),
            ],
            warnings,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{options, outcome, refusal};
    use super::*;
    use crate::record::{Value, without};

    fn text(text: &str) -> Value {
        Value::Text(text.to_string())
    }

    /// A stage with small n-grams that was given these items and allowed texts.
    fn taught(given: &[(&str, Value)], items: &[&str], allowed: &[&str]) -> Box<dyn Stage> {
        let mut all = vec![
            ("evaluation", Value::List(vec!["eval.jsonl".to_string()])),
            ("allow", Value::List(vec!["allow.txt".to_string()])),
            ("ngram_words", Value::Integer(3)),
            ("min_item_words", Value::Integer(2)),
        ];
        all.extend(given.iter().cloned());
        let mut stage = (KIND.build)(&options(&KIND, &all)).expect("these make sense");
        let learner = stage.learner().expect("it learns");
        assert_eq!(learner.wanted().len(), 2);
        learner.begin_file(0, "eval.jsonl");
        for (number, item) in items.iter().enumerate() {
            learner.take(&number.to_string(), item).expect("room");
        }
        learner.begin_file(1, "allow.txt");
        for text in allowed {
            learner.take("", text).expect("room");
        }
        learner.finish().expect("keys");
        stage
    }

    fn judged(stage: &dyn Stage, text: &str) -> (Verdict, Document) {
        let mut document = Document {
            text: text.to_string(),
            ..Document::default()
        };
        let verdict = stage.judge(&mut document, &mut Notes::default());
        (verdict.expect("no fault"), document)
    }

    const ITEM: &str = "Who ate all of the pies, and why?";

    #[test]
    fn a_document_with_an_item_is_rejected_by_default() {
        let stage = taught(&[], &[ITEM], &[]);
        let (verdict, document) = judged(stage.as_ref(), "so: who ate all of it");
        let value = 2.0 / 6.0;
        assert_eq!(outcome(&KIND, verdict), Some(("contaminated", value)));
        let overlap = Overlap {
            start: 4,
            end: 18,
            item: 0,
            keys_held: 2,
            keys: 6,
        };
        assert_eq!(document.overlaps, [overlap]);
        assert_eq!(judged(stage.as_ref(), "who ate it all").0, Verdict::Keep);
    }

    #[test]
    fn the_bound_of_the_overlap_is_inclusive() {
        let verdict = |bound: f64, text: &str| {
            let stage = taught(&[("min_overlap", Value::Number(bound))], &[ITEM], &[]);
            judged(stage.as_ref(), text).0
        };
        let half = "who ate all of the fish";
        assert_ne!(verdict(0.5, half), Verdict::Keep);
        assert_eq!(verdict(0.501, half), Verdict::Keep);
        assert_ne!(verdict(0.0, "who ate all"), Verdict::Keep);
        assert_ne!(verdict(1.0, ITEM), Verdict::Keep);
    }

    #[test]
    fn report_keeps_the_document_and_the_evidence() {
        let stage = taught(&[("policy", text("report"))], &[ITEM], &[]);
        let (verdict, document) = judged(stage.as_ref(), ITEM);
        assert_eq!((verdict, document.overlaps.len()), (Verdict::Keep, 1));
        assert!(!stage.edits());
    }

    #[test]
    fn remove_span_cuts_between_words_and_leaves_the_rest() {
        let given = [("policy", text("remove_span"))];
        let stage = taught(&given, &[ITEM, "of the pies, and fish", "to be"], &[]);
        assert!(stage.edits());
        let cut = |text: &str| match judged(stage.as_ref(), text).0 {
            Verdict::Cut { ranges, .. } => without(text, ranges.into_iter()).expect("in order"),
            other => panic!("{other:?}"),
        };
        assert_eq!(cut("Ah! «Who ate all of it» é"), "Ah!  it» é");
        // Two items that overlap are cut once.
        assert_eq!(cut("x who ate all of the pies and fish y"), "x  y");
        assert_eq!(cut("To be, or not; to be."), " or not; ");
        assert_eq!(cut(ITEM), "");
        assert_eq!(judged(stage.as_ref(), "to see").0, Verdict::Keep);
    }

    #[test]
    fn allowed_text_is_no_contamination() {
        let stage = taught(&[], &[ITEM, "to be"], &["to be who ate all of it"]);
        assert_eq!(
            judged(stage.as_ref(), "who ate all of, to be").0,
            Verdict::Keep
        );
        let (_, document) = judged(stage.as_ref(), ITEM);
        assert_eq!(
            (document.overlaps[0].keys_held, document.overlaps[0].keys),
            (4, 4)
        );
    }

    #[test]
    fn a_set_that_yields_no_key_is_refused_by_name() {
        let mut stage = (KIND.build)(&options(
            &KIND,
            &[("evaluation", Value::List(vec!["*".to_string()]))],
        ))
        .expect("these make sense");
        let learner = stage.learner().expect("it learns");
        learner.begin_file(0, "good.jsonl");
        learner.take("1", "an item of five words").expect("room");
        learner.begin_file(0, "bad.jsonl");
        learner.take("1", "too short").expect("room");
        let refused = learner.finish().expect_err("no key");
        assert!(
            refused.starts_with("bad.jsonl: none of its 1 items")
                && refused.contains("min_item_words"),
            "{refused}"
        );
    }

    #[test]
    fn no_field_of_text_is_refused() {
        let given = [
            ("evaluation", Value::List(vec!["*".to_string()])),
            ("text_fields", Value::List(Vec::new())),
        ];
        assert_eq!(refusal(&KIND, &given).option, "text_fields");
    }

    #[test]
    fn without_texts_it_keeps_everything() {
        let given = [("evaluation", Value::List(vec!["*".to_string()]))];
        let stage = (KIND.build)(&options(&KIND, &given)).expect("these make sense");
        assert_eq!(judged(stage.as_ref(), "anything at all").0, Verdict::Keep);
    }

    #[test]
    fn a_file_of_allowed_texts_that_allows_nothing_is_told() {
        let told = |allowed: &str| {
            let given = [
                ("evaluation", Value::List(vec!["*".to_string()])),
                ("allow", Value::List(vec!["*".to_string()])),
                ("ngram_words", Value::Integer(3)),
            ];
            let mut stage = (KIND.build)(&options(&KIND, &given)).expect("these make sense");
            let learner = stage.learner().expect("it learns");
            learner.begin_file(0, "eval.jsonl");
            learner.take("1", ITEM).expect("room");
            learner.begin_file(1, "allow.txt");
            learner.take("", "something else altogether").expect("room");
            learner.take("", allowed).expect("room");
            learner.finish().expect("keys").warnings
        };
        assert_eq!(told("so who ate all of it"), Vec::<String>::new());
        let [warning] = told("so who ate it").try_into().expect("one");
        assert!(warning.starts_with("allow.txt: nothing"), "{warning}");
    }

    #[test]
    fn counts_and_names_are_told() {
        let given = [
            ("evaluation", Value::List(vec!["*".to_string()])),
            ("max_items_per_ngram", Value::Integer(1)),
            ("ngram_words", Value::Integer(2)),
        ];
        let mut stage = (KIND.build)(&options(&KIND, &given)).expect("these make sense");
        let learner = stage.learner().expect("it learns");
        learner.begin_file(0, "a");
        learner.take("x", "one two three four five").expect("room");
        learner.take("y", "too few").expect("room");
        learner.take("v", "six seven eight nine ten").expect("room");
        learner.begin_file(0, "b");
        learner.take("z", "One two, three four five").expect("room");
        learner
            .take("w", "one two three four five six")
            .expect("room");
        let learnt = learner.finish().expect("each has a key");
        // The first text's n-grams all stand in the other text too.
        assert_eq!(
            learnt.notes,
            [
                ("evaluation_items", 5),
                ("evaluation_items_too_short", 1),
                ("evaluation_items_without_a_key", 2),
                ("ngrams_in_many_items", 4),
                ("ngrams_allowed", 0)
            ]
        );
        assert!(learnt.warnings[0].starts_with("2 items cannot be found"));
        let sets: Vec<&str> = learnt.items[0]
            .iter()
            .map(|name| name.set.as_str())
            .collect();
        assert_eq!(sets, ["a", "b"]);
    }
}
