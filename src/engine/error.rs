//! Why a run ended without its output.

use crate::plan::Problems;
use crate::score::FitError;
use crate::shard::PartError;
use crate::source::SourceError;
use crate::tokenizer::TokenizerError;
use std::io;

/// Why a run ended without its output.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The request was wrong; nothing was read.
    #[error("{0}")]
    Request(String),
    /// The pipeline file was wrong; nothing was read.
    #[error("{0}")]
    Problems(Problems),
    /// The run failed; says what happened and what to do.
    #[error("{0}")]
    Failed(String),
    /// Ctrl-C or a termination signal; what was finished is kept.
    #[error("stopped; what was finished is kept, and the same command goes on from there")]
    Interrupted,
    /// Reading or writing failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// An input could not be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The tokenizer could not be loaded.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// A model could not be fitted.
    #[error(transparent)]
    Fit(#[from] FitError),
    /// A Parquet file could not be written or read.
    #[error(transparent)]
    Part(#[from] PartError),
}

impl EngineError {
    /// The kind of the I/O error that it comes from, where it comes from one.
    pub fn io_kind(&self) -> Option<io::ErrorKind> {
        let first: &(dyn std::error::Error + 'static) = match self {
            EngineError::Io(error) | EngineError::Fit(FitError::Io(error)) => error,
            EngineError::Part(error) => error,
            EngineError::Source(error @ SourceError::Read { .. }) => error,
            _ => return None,
        };
        let kinds = std::iter::successors(Some(first), |error| {
            match error.downcast_ref::<io::Error>() {
                // An I/O error passes over the error that it wraps when it is asked for its source.
                Some(error) => error
                    .get_ref()
                    .map(|inner| inner as &(dyn std::error::Error + 'static)),
                None => error.source(),
            }
        })
        .filter_map(|error| error.downcast_ref::<io::Error>().map(io::Error::kind));
        // The outermost one that says more than that there was an error.
        kinds.reduce(|kind, inner| {
            if kind == io::ErrorKind::Other {
                inner
            } else {
                kind
            }
        })
    }

    /// 2 where the request was wrong, else 1.
    pub fn exit_code(&self) -> u8 {
        match self {
            EngineError::Request(_) | EngineError::Problems(_) | EngineError::Tokenizer(_) => 2,
            _ => 1,
        }
    }
}
