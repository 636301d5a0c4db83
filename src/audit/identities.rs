//! The sums that must close in every run.

use super::Audit;
use serde::{Deserialize, Serialize};

/// Two sums that must be equal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// What is claimed.
    pub name: String,
    /// Left side.
    pub left: i64,
    /// Right side.
    pub right: i64,
    /// Whether they are equal.
    pub holds: bool,
}

impl Identity {
    /// One line for people.
    pub fn line(&self) -> String {
        format!(
            "{} {}: {} = {}",
            if self.holds { "holds" } else { "FAILS" },
            self.name,
            self.left,
            self.right
        )
    }

    /// Claims that both sides are equal.
    pub fn new(name: &str, left: u64, right: i64) -> Identity {
        let left = left as i64;
        Identity {
            name: name.to_string(),
            left,
            right,
            holds: left == right,
        }
    }

    /// Computes all identities of a ledger from its rows.
    pub fn of(audit: &Audit) -> Vec<Identity> {
        let read = Audit::total(&audit.read);
        let kept = Audit::total(&audit.kept);
        let rejected = Audit::total_loss(&audit.rejected);
        let failed = Audit::total_loss(&audit.failed);
        let edited = Audit::total_loss(&audit.edited);
        let sum = |parts: &[u64]| parts.iter().sum::<u64>() as i64;
        vec![
            Identity::new(
                "tokens read = kept + rejected + failed + edited",
                read.tokens,
                sum(&[kept.tokens, rejected.tokens, failed.tokens]) + edited.tokens,
            ),
            Identity::new(
                "positions emitted = tokens + special tokens + padding",
                audit.emitted.positions,
                sum(&[
                    audit.emitted.tokens,
                    audit.emitted.special_tokens,
                    audit.emitted.padding,
                ]),
            ),
            Identity::new(
                "tokens emitted = kept + repeated",
                audit.emitted.tokens,
                sum(&[kept.tokens, audit.emitted.repeated_tokens]),
            ),
            Identity::new(
                "records in files = documents read + quarantined + left out",
                audit.records_in_files,
                sum(&[
                    read.documents,
                    audit.quarantined_records(),
                    audit.records_left_out,
                ]),
            ),
            Identity::new(
                "documents read = kept + rejected + failed",
                read.documents,
                sum(&[kept.documents, rejected.documents, failed.documents]),
            ),
        ]
    }
}
