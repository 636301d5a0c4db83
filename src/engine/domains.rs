//! Which domain a document is of, so that usefulness is measured against reference text of its own kind.

use super::corpus::Corpus;
use crate::record::FieldValue;
use serde_json::Value;
use std::collections::BTreeSet;

/// Domains that a field may name. Sums are held for each.
const MOST_DOMAINS: usize = 1000;

/// The domain of each document of a corpus.
pub struct Domains {
    names: Vec<String>,
    by: By,
}

enum By {
    Nothing,
    /// By input, the place of its source among the names.
    Source(Vec<usize>),
    /// The place of the field.
    Field(usize),
}

impl Domains {
    /// No document has one.
    pub fn none() -> Domains {
        Domains {
            names: Vec::new(),
            by: By::Nothing,
        }
    }

    /// The name of its source.
    pub fn by_source(corpus: &Corpus) -> Domains {
        let names: BTreeSet<&String> = corpus.sources.iter().collect();
        let names: Vec<String> = names.into_iter().cloned().collect();
        let place = |source: &String| names.binary_search(source).unwrap_or(0);
        let by = By::Source(corpus.sources.iter().map(place).collect());
        Domains { names, by }
    }

    /// The text of a declared field; none where it is null.
    ///
    /// # Errors
    /// How many values there are at least, where they are too many.
    pub fn by_field(corpus: &Corpus, field: usize) -> Result<Domains, usize> {
        let mut names = BTreeSet::new();
        for number in 0..corpus.len() {
            if let Some(FieldValue::String(name)) = corpus.fields(number).into_iter().nth(field) {
                names.insert(name);
                if names.len() > MOST_DOMAINS {
                    return Err(names.len());
                }
            }
        }
        Ok(Domains {
            names: names.into_iter().collect(),
            by: By::Field(field),
        })
    }

    /// All names, sorted.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The place of a document's domain among the names.
    pub fn of(&self, corpus: &Corpus, number: u64) -> Option<usize> {
        match &self.by {
            By::Nothing => None,
            By::Source(places) => Some(places[usize::from(corpus.input(corpus.row(number)))]),
            By::Field(field) => match corpus.fields(number).into_iter().nth(*field)? {
                FieldValue::String(name) => self.names.binary_search(&name).ok(),
                _ => None,
            },
        }
    }
}

/// Names of domains that a warning shows.
const SHOWN_NAMES: usize = 5;

/// What is to be said where no domain of the corpus is one of the reference, so that every document is measured
/// against all of it. Each side: where its domains come from, and their names.
pub fn unmatched(
    (of_corpus, corpus): (&str, &[String]),
    (of_reference, reference): (&str, &[String]),
) -> Option<String> {
    if corpus.iter().any(|name| reference.contains(name)) {
        return None;
    }
    let shown = |names: &[String]| match names.len() {
        0 => "none".to_string(),
        n if n <= SHOWN_NAMES => names.join(", "),
        n => format!(
            "{} and {} more",
            names[..SHOWN_NAMES].join(", "),
            n - SHOWN_NAMES
        ),
    };
    Some(format!(
        "no domain of the corpus is one of the reference, so every document is measured against all of the reference: the \
         corpus has, by {of_corpus}: {}; the reference has, by {of_reference}: {}",
        shown(corpus),
        shown(reference)
    ))
}

/// Mean usefulness of held-out reference text, by domain where there is enough of it.
pub struct References<'a> {
    corpus: &'a Corpus,
    domains: &'a Domains,
    /// The global one first.
    values: Vec<f64>,
    /// By domain of the corpus, its place among the values.
    places: Vec<u16>,
}

impl<'a> References<'a> {
    /// From what an estimator says of itself; `None` where it has no u_ref above 0.
    pub fn new(corpus: &'a Corpus, domains: &'a Domains, fitted: &Value) -> Option<References<'a>> {
        let above_zero = |value: &Value| value.as_f64().filter(|u_ref| *u_ref > 0.0);
        let mut values = vec![above_zero(&fitted["u_ref"])?];
        let own = &fitted["u_ref_by_domain"];
        let place = |name: &String| match own.get(name).and_then(above_zero) {
            Some(u_ref) => {
                values.push(u_ref);
                (values.len() - 1) as u16
            }
            None => 0,
        };
        let places = domains.names().iter().map(place).collect();
        Some(References {
            corpus,
            domains,
            values,
            places,
        })
    }

    /// Which u_ref a document is measured against: the place of its domain's, else that of the global one.
    pub fn of(&self, number: u64) -> u16 {
        let domain = self.domains.of(self.corpus, number);
        domain.map_or(0, |domain| self.places[domain])
    }

    /// The u_ref at a place.
    pub fn value(&self, place: u16) -> f64 {
        self.values[usize::from(place)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_without_a_common_name_are_named_on_both_sides() {
        let names =
            |names: &str| -> Vec<String> { names.split_whitespace().map(str::to_string).collect() };
        let said = |corpus: &str, reference: &str| {
            unmatched(("source", &names(corpus)), ("kind", &names(reference)))
        };
        assert_eq!(said("books web", "laws web"), None);
        let told = said("books web", "laws").expect("a warning");
        assert!(
            told.contains("by source: books, web;") && told.ends_with("by kind: laws"),
            "{told}"
        );
        assert!(
            said("books", "")
                .expect("a warning")
                .ends_with("by kind: none")
        );
        let many = said("", "a b c d e f g").expect("a warning");
        assert!(many.ends_with("a, b, c, d, e and 2 more"), "{many}");
    }
}
