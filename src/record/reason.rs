//! Why a document was turned away.

use serde::{Deserialize, Serialize};

/// What kind of loss a reason is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// The text stands elsewhere in the corpus.
    Duplicate,
    /// The tokens were judged not worth their compute.
    LowValue,
    /// The owner does not want it, whatever its worth.
    Policy,
    /// It shares text with an evaluation set.
    Contaminated,
    /// It was never drawn by the mixture.
    NotDrawn,
}

impl Class {
    /// The word that stands in the ledger.
    pub fn name(self) -> &'static str {
        match self {
            Class::Duplicate => "duplicate",
            Class::LowValue => "low_value",
            Class::Policy => "policy",
            Class::Contaminated => "contaminated",
            Class::NotDrawn => "not_drawn",
        }
    }
}

/// A word for the ledger, declared by the stage that uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason {
    /// Snake-case word, unique inside its stage.
    pub name: &'static str,
    /// What kind of loss it is.
    pub class: Class,
    /// One sentence: when it is given, and what the deciding value is, with its unit.
    pub doc: &'static str,
}

impl Reason {
    /// A reason of class `low_value`.
    pub const fn low_value(name: &'static str, doc: &'static str) -> Self {
        Reason {
            name,
            class: Class::LowValue,
            doc,
        }
    }
    /// A reason of class `policy`.
    pub const fn policy(name: &'static str, doc: &'static str) -> Self {
        Reason {
            name,
            class: Class::Policy,
            doc,
        }
    }
    /// A reason of class `duplicate`.
    pub const fn duplicate(name: &'static str, doc: &'static str) -> Self {
        Reason {
            name,
            class: Class::Duplicate,
            doc,
        }
    }
    /// A reason of class `contaminated`.
    pub const fn contaminated(name: &'static str, doc: &'static str) -> Self {
        Reason {
            name,
            class: Class::Contaminated,
            doc,
        }
    }
}
