//! What the tests of strategies share: small corpora and options in short notation.

use super::{Item, Keys, OrderInput, Strategy, TABLE, build};
use crate::algo::hash;
use crate::record::{Kind, OptionError, Options, Value, Variant};
use crate::spill::Spill;
use std::io;

/// Documents, and the score of each by its number.
#[derive(Clone, Debug)]
pub struct Corpus {
    pub items: Vec<Item>,
    pub scores: Vec<f64>,
}

impl Keys for Corpus {
    fn value(&self, number: u64, key: &str) -> f64 {
        match key {
            "score" => self.scores[number as usize],
            "length_tokens" => {
                let item = self.items.iter().find(|item| item.number == number);
                item.expect("of this corpus").tokens as f64
            }
            other => panic!("no key '{other}' was asked for"),
        }
    }
}

impl Corpus {
    /// Documents of (score, tokens). Every third has the content of the one before it.
    pub fn new(documents: impl Iterator<Item = (f64, u64)>) -> Corpus {
        let mut corpus = Corpus {
            items: Vec::new(),
            scores: Vec::new(),
        };
        for (number, (score, tokens)) in documents.enumerate() {
            let number = number as u64;
            let content =
                hash::id_hash(&format!("content {}", number - u64::from(number % 3 == 2)));
            corpus.scores.push(score);
            corpus.items.push(Item {
                number,
                // Neither the reading order nor the order of the hashes.
                rank: number ^ 1,
                content: [content, content],
                id_hash: hash::id_hash(&format!("id {number}")),
                tokens,
                copy: 0,
            });
        }
        corpus
    }

    /// Documents of ten tokens with these scores.
    pub fn of_scores(scores: &[f64]) -> Corpus {
        Corpus::new(scores.iter().map(|&score| (score, 10)))
    }

    /// `n` documents of one token whose number is their rank by score.
    pub fn ranked(n: u64) -> Corpus {
        Corpus::new((0..n).map(|i| (i as f64, 1)))
    }

    pub fn tokens(&self) -> u64 {
        self.items.iter().map(|item| item.tokens).sum()
    }

    pub fn arranged_by(
        &self,
        strategy: &dyn Strategy,
        seed: u64,
        memory_bytes: usize,
    ) -> io::Result<Vec<u64>> {
        let arranged = self.items_arranged_by(strategy, seed, memory_bytes)?;
        Ok(arranged.iter().map(|item| item.number).collect())
    }

    pub fn items_arranged_by(
        &self,
        strategy: &dyn Strategy,
        seed: u64,
        memory_bytes: usize,
    ) -> io::Result<Vec<Item>> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let spill = Spill::new(folder.path(), memory_bytes);
        let input = OrderInput {
            items: Box::new(self.items.iter().map(|&item| Ok(item))),
            documents: self.items.len() as u64,
            tokens: self.tokens(),
            keys: self,
            seed,
            spill: &spill,
        };
        strategy.arrange(input)?.collect()
    }

    pub fn try_arranged(&self, choice: &Variant, memory_bytes: usize) -> io::Result<Vec<u64>> {
        self.arranged_by(&*build(choice).expect("builds"), 17, memory_bytes)
    }

    /// Numbers of the documents in their order, with memory enough.
    pub fn arranged(&self, choice: &Variant) -> Vec<u64> {
        self.try_arranged(choice, 1 << 24).expect("arranges")
    }
}

/// Whether every document is in `order` once.
pub fn assert_is_permutation(corpus: &Corpus, order: &[u64], of: &Variant) {
    let mut numbers = order.to_vec();
    numbers.sort_unstable();
    let expected: Vec<u64> = (0..corpus.items.len() as u64).collect();
    assert_eq!(numbers, expected, "{of:?}");
}

/// A strategy with options written `key=value`, the rest by default.
pub fn choice(name: &str, options: &str) -> Variant {
    let spec = &TABLE
        .iter()
        .find(|kind| kind.spec.name == name)
        .unwrap_or_else(|| panic!("no strategy '{name}'"))
        .spec;
    let mut given = Options::default();
    let written: Vec<(&str, &str)> = options
        .split_whitespace()
        .map(|option| option.split_once('=').expect("key=value"))
        .collect();
    for (key, _) in &written {
        assert!(
            spec.options.iter().any(|o| o.name == *key),
            "no option '{key}'"
        );
    }
    for option in spec.options {
        let text = written
            .iter()
            .find(|(key, _)| *key == option.name)
            .map(|(_, value)| *value)
            .or(option.default);
        let Some(text) = text else { continue };
        let value = match option.kind {
            Kind::Integer { min, max } => {
                let value = text.parse().expect("a whole number");
                assert!((min..=max).contains(&value), "{key}", key = option.name);
                Value::Integer(value)
            }
            Kind::Number { min, max } => {
                let value = text.parse().expect("a number");
                assert!((min..=max).contains(&value), "{key}", key = option.name);
                Value::Number(value)
            }
            Kind::Choice(words) => {
                assert!(words.contains(&text), "{text}");
                Value::Text(text.to_string())
            }
            Kind::SortKey => Value::Text(text.to_string()),
            ref other => panic!("not in short notation: {other:?}"),
        };
        given.set(option.name, value);
    }
    Variant {
        name: name.to_string(),
        options: given,
    }
}

/// [`choice`] with an `inner` one.
pub fn with_inner(name: &str, options: &str, inner: Variant) -> Variant {
    let mut outer = choice(name, options);
    outer.options.set("inner", Value::Variant(Box::new(inner)));
    outer
}

/// Why a strategy with these options is refused.
pub fn refusal(name: &str, options: &str) -> OptionError {
    match build(&choice(name, options)) {
        Ok(_) => panic!("{name} {options} is not refused"),
        Err(error) => error,
    }
}
