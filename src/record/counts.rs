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
