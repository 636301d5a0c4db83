//! What is wrong with a request, place by place.

use std::fmt;

/// Problems printed in full; the rest is counted.
const PROBLEMS_SHOWN: usize = 100;

/// One thing that is wrong with a pipeline file or with a `--set`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The pipeline file as the user named it, or the `--set` at fault.
    pub file: String,
    /// Line from 1; 0 where no line is meant.
    pub line: u32,
    /// Column from 1, in characters; 0 where no line is meant.
    pub column: u32,
    /// What is wrong, what was expected, and the way out.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.message),
            line => write!(f, "{}:{line}:{}: {}", self.file, self.column, self.message),
        }
    }
}

/// Every problem of a request, in the order of the file; those of `--set` last. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().take(PROBLEMS_SHOWN).enumerate() {
            let line_end = if index == 0 { "" } else { "\n" };
            write!(f, "{line_end}{problem}")?;
        }
        match self.0.len().saturating_sub(PROBLEMS_SHOWN) {
            0 => Ok(()),
            more => write!(f, "\nand {more} more problems"),
        }
    }
}

impl std::error::Error for Problems {}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(line: u32) -> Problem {
        Problem {
            file: "p.yaml".into(),
            line,
            column: 3,
            message: "bad".into(),
        }
    }

    #[test]
    fn a_problem_names_its_place_if_it_has_one() {
        assert_eq!(problem(2).to_string(), "p.yaml:2:3: bad");
        assert_eq!(problem(0).to_string(), "p.yaml: bad");
    }

    #[test]
    fn a_hundred_problems_are_shown_and_the_rest_counted() {
        let hundred = Problems((1..=100).map(problem).collect()).to_string();
        assert_eq!(hundred.lines().count(), 100);
        let more = Problems((1..=101).map(problem).collect()).to_string();
        assert_eq!(more.lines().count(), 101);
        assert!(more.ends_with("\nand 1 more problems"));
    }
}
