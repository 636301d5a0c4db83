//! What every format is turned into.

/// Bad lines that are kept with their text; the rest is counted.
const BAD_LINES_KEPT: usize = 20;
/// Characters of a bad line that are kept.
const CHARACTERS_KEPT: usize = 80;

/// What an event tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventKind {
    /// A process began.
    JobStart,
    /// A process ended as it was meant to.
    JobEnd,
    /// Setting up: imports, process groups, building the model.
    Init,
    /// Preparing data before the first step.
    Prep,
    /// Compiling.
    Compile,
    /// Training waited for data.
    DataWait,
    /// Optimizer steps up to this one.
    Step,
    /// Training waited for a checkpoint to be written.
    CheckpointSave,
    /// A checkpoint was read; its step, where given, is the one that training goes on from.
    CheckpointRestore,
    /// An evaluation.
    Evaluation,
    /// Anything else that training waited for; `tag` says what.
    Custom,
    /// A process failed.
    Failure,
    /// Something was written: all that it tells is that the process was alive.
    Mark,
}

impl EventKind {
    /// The words of the event format, in the order in which one would explain them.
    pub const WORDS: &'static [(&'static str, EventKind)] = &[
        ("job_start", EventKind::JobStart),
        ("job_end", EventKind::JobEnd),
        ("init", EventKind::Init),
        ("prep", EventKind::Prep),
        ("compile", EventKind::Compile),
        ("data_wait", EventKind::DataWait),
        ("step", EventKind::Step),
        ("ckpt_save", EventKind::CheckpointSave),
        ("ckpt_restore", EventKind::CheckpointRestore),
        ("eval", EventKind::Evaluation),
        ("custom", EventKind::Custom),
        ("failure", EventKind::Failure),
    ];
}

/// How long something took, in microseconds. Negative where a log says so; `measure` refuses it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Span {
    /// The log does not say.
    #[default]
    Unknown,
    /// The whole event; of a step event all steps since the one before.
    Whole(i64),
    /// One step, on average or as a sample.
    PerStep(i64),
}

/// Token places that were processed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Tokens {
    /// The log does not say.
    #[default]
    Unknown,
    /// Since the step event before.
    Event(u64),
    /// Of one step.
    PerStep(u64),
    /// Since the beginning of training.
    Total(u64),
    /// Sequences since the beginning of training.
    TotalSequences(u64),
    /// A second and chip.
    PerSecondPerChip(f64),
}

/// What a step event read of a dataset, as the trainer tells it: of the rows since the step event before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowsRead {
    /// Position of the first row.
    pub first: Option<u64>,
    /// How many rows.
    pub rows: Option<u64>,
    /// Sum of the CRC-32 of each row's token ids, as little-endian 32-bit numbers.
    pub ids_crc32: Option<u64>,
}

/// One thing that a log tells.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Line from 1; of formats without lines the record or entry from 1.
    pub line: u64,
    /// What it tells of.
    pub kind: EventKind,
    /// Name of the run, where the log has it.
    pub run: Option<String>,
    /// Number of the attempt, where the log has it.
    pub attempt: Option<u64>,
    /// When it *ended*, in microseconds since 1970; time zones that a log leaves out are taken for UTC.
    pub at_micros: Option<i64>,
    /// How long it took up to then.
    pub span: Span,
    /// The last optimizer step that it covers.
    pub step: Option<u64>,
    /// Token places that were processed.
    pub tokens: Tokens,
    /// Floating-point operations of the event, where the trainer counts them.
    pub flops: Option<f64>,
    /// Mean loss in nats a token; may be NaN or infinite.
    pub loss: Option<f64>,
    /// Which data an evaluation's loss is of.
    pub split: Option<String>,
    /// UTF-8 bytes of the text that the loss is of.
    pub bytes: Option<u64>,
    /// Steps of this event whose update was skipped or was not a number.
    pub lost_steps: u64,
    /// Learning rate of the step.
    pub learning_rate: Option<f64>,
    /// Optimizer steps that the schedule was made for.
    pub total_steps: Option<u64>,
    /// Which rows were read.
    pub read: RowsRead,
    /// A word more.
    pub tag: Option<String>,
}

impl Event {
    /// An event of which nothing but its kind is known.
    pub fn new(line: u64, kind: EventKind) -> Event {
        Event {
            line,
            kind,
            run: None,
            attempt: None,
            at_micros: None,
            span: Span::Unknown,
            step: None,
            tokens: Tokens::Unknown,
            flops: None,
            loss: None,
            split: None,
            bytes: None,
            lost_steps: 0,
            learning_rate: None,
            total_steps: None,
            read: RowsRead::default(),
            tag: None,
        }
    }
}

/// A line that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// Line from 1; of formats without lines the record or entry from 1.
    pub line: u64,
    /// What is wrong with it.
    pub message: String,
}

/// What was read from one file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Log {
    /// In the order of the file.
    pub events: Vec<Event>,
    /// The first lines that could not be read.
    pub bad_lines: Vec<BadLine>,
    /// Lines that could not be read.
    pub bad_line_count: u64,
    /// Lines (or records) read.
    pub line_count: u64,
    /// What was inferred, a sentence each, none twice.
    pub inferred: Vec<String>,
}

impl Log {
    /// Notes a line that could not be read, with the beginning of what stood there.
    pub fn bad_line(&mut self, line: u64, message: &str, text: &str) {
        self.bad_line_count += 1;
        if self.bad_lines.len() < BAD_LINES_KEPT {
            let mut shown: String = text.trim().chars().take(CHARACTERS_KEPT).collect();
            if text.trim().chars().nth(CHARACTERS_KEPT).is_some() {
                shown.push('…');
            }
            let message = match shown.is_empty() {
                true => message.to_string(),
                false => format!("{message}: '{shown}'"),
            };
            self.bad_lines.push(BadLine { line, message });
        }
    }

    /// Says what was inferred, once.
    pub fn infer(&mut self, sentence: &str) {
        if !self.inferred.iter().any(|said| said == sentence) {
            self.inferred.push(sentence.to_string());
        }
    }
}
