//! Training logs: whatever a trainer wrote becomes one stream of [`Event`]s.
//!
//! [`TABLE`] has a file for each format. A reader turns bytes into events, line by line, and says what it
//! could not read ([`BadLine`]) and what it had to infer; what the events mean together (attempts, lost
//! time, rates) is the business of `measure`. Nothing here panics or gives up on a damaged log: a line that
//! cannot be read is counted and the rest is used.

mod clock;
mod event;
mod events;
mod hf_trainer;
mod json;
mod lightning_csv;
mod lines;
mod megatron;
mod nanogpt;
mod olmo_core;
mod tensorboard;
mod torchtitan;
mod wandb;

#[cfg(test)]
mod tests;

pub use clock::micros_of_seconds;
pub use event::{BadLine, Event, EventKind, Log, RowsRead, Span, Tokens};

use crate::record::{OptionError, Options, Spec};
use std::io::BufRead;

/// A format of training logs.
pub struct LogKind {
    /// Name, options, example.
    pub spec: Spec,
    /// A small log of this format, as its documentation has it.
    pub sample: &'static [u8],
    /// Whether the first bytes of a file (up to [`HEAD_BYTES`]) look like this format and no other.
    pub recognises: fn(&Head<'_>) -> bool,
    /// Makes the reader.
    pub build: fn(&Options) -> Result<Box<dyn Reader>, OptionError>,
}

/// Reads a log of one format.
pub trait Reader: Send + Sync {
    /// Reads a whole file into `log`.
    ///
    /// # Errors
    /// What makes the file as a whole useless: it cannot be read, or it is no log of this format. The text
    /// says what was expected and the way out. A bad line is no error but goes to [`Log::bad_line`].
    fn read(&self, input: &mut dyn BufRead, log: &mut Log) -> Result<(), String>;
}

/// Bytes of a file that are looked at to guess its format.
pub const HEAD_BYTES: usize = 256 << 10;

/// The first bytes of a file.
pub struct Head<'a> {
    /// As they are.
    pub bytes: &'a [u8],
    /// As text, colours removed, what is no UTF-8 replaced.
    pub text: String,
}

impl<'a> Head<'a> {
    /// Of a file's first bytes.
    pub fn new(bytes: &'a [u8]) -> Head<'a> {
        Head {
            bytes,
            text: lines::plain(&String::from_utf8_lossy(bytes)),
        }
    }
}

/// Every format, in the order in which one would explain them.
pub static TABLE: &[&LogKind] = &[
    &events::KIND,
    &torchtitan::KIND,
    &megatron::KIND,
    &nanogpt::KIND,
    &olmo_core::KIND,
    &hf_trainer::KIND,
    &lightning_csv::KIND,
    &wandb::KIND,
    &tensorboard::KIND,
];

/// The specs of [`TABLE`].
pub fn specs() -> Vec<&'static Spec> {
    TABLE.iter().map(|kind| &kind.spec).collect()
}

/// The format of this name.
pub fn find(name: &str) -> Option<&'static LogKind> {
    TABLE.iter().find(|kind| kind.spec.name == name).copied()
}

/// The formats that recognise a file by its first bytes: one where all is well.
pub fn guess(head: &[u8]) -> Vec<&'static LogKind> {
    let head = Head::new(head);
    TABLE
        .iter()
        .filter(|kind| (kind.recognises)(&head))
        .copied()
        .collect()
}

/// Why bytes that are packed cannot be a log as they are.
pub fn packed(head: &[u8]) -> Option<&'static str> {
    match head {
        [0x1f, 0x8b, ..] => Some("is compressed with gzip; unpack it with 'gunzip'"),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some("is compressed with zstd; unpack it with 'unzstd'"),
        _ => None,
    }
}

/// What all formats have in common when they are explained.
pub(crate) const fn spec(
    name: &'static str,
    summary: &'static str,
    details: &'static str,
    options: &'static [crate::record::OptionSpec],
    example: &'static str,
) -> Spec {
    Spec {
        name,
        summary,
        details,
        options,
        example,
    }
}
