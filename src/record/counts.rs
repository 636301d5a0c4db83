//! The unit of every ledger row.

use serde::{Deserialize, Serialize};
use std::ops::{Add, AddAssign};

/// How much of something there is. All three are exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Documents.
    pub documents: u64,
    /// UTF-8 bytes of the documents' text.
    pub bytes: u64,
    /// Token ids of the documents' text, without special tokens.
    pub tokens: u64,
}

impl Counts {
    /// The counts of one document.
    pub fn one(bytes: u64, tokens: u64) -> Self {
        Counts {
            documents: 1,
            bytes,
            tokens,
        }
    }
}

impl Add for Counts {
    type Output = Counts;
    fn add(self, other: Counts) -> Counts {
        Counts {
            documents: self.documents + other.documents,
            bytes: self.bytes + other.bytes,
            tokens: self.tokens + other.tokens,
        }
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        *self = *self + other;
    }
}

/// How much less there is of something after an edit: before - after. Negative where there is more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// Documents that were edited. All are there afterwards too.
    pub documents: u64,
    /// UTF-8 bytes of the documents' text.
    pub bytes: i64,
    /// Token ids of the documents' text, without special tokens.
    pub tokens: i64,
}

impl Add for Difference {
    type Output = Difference;
    fn add(self, other: Difference) -> Difference {
        Difference {
            documents: self.documents + other.documents,
            bytes: self.bytes + other.bytes,
            tokens: self.tokens + other.tokens,
        }
    }
}

impl AddAssign for Difference {
    fn add_assign(&mut self, other: Difference) {
        *self = *self + other;
    }
}

impl From<Counts> for Difference {
    fn from(counts: Counts) -> Difference {
        Difference {
            documents: counts.documents,
            bytes: counts.bytes as i64,
            tokens: counts.tokens as i64,
        }
    }
}
