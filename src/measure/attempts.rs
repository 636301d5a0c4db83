//! Events of a run's files become attempts: processes, one after another.

use super::Category;
use crate::logs::{Event, EventKind, Log, RowsRead, Span, Tokens};
use std::collections::BTreeMap;
use std::fmt;

/// Shortest silence, in microseconds, that may be an outage: a minute.
const SHORTEST_OUTAGE_MICROS: i64 = 60_000_000;
/// A silence is an outage above so many median steps.
const OUTAGE_STEPS: i64 = 10;
/// Clocks of two machines may differ by so much, in microseconds.
const CLOCK_SKEW_MICROS: i64 = 1_000_000;
/// Beyond any clock, and so far below the largest number that sums of a few cannot overflow.
pub(super) const LONGEST_MICROS: i64 = 100_000_000_000_000_000;
/// Beyond any training.
const LARGEST_STEP: i64 = 1_000_000_000_000_000;
/// Lines that are named one by one of each kind of problem.
const LINES_NAMED: usize = 5;

/// Why logs cannot be measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The log, as it was found.
    pub file: String,
    /// Line from 1; 0 where none is meant.
    pub line: u64,
    /// What is wrong, what was expected, and the way out.
    pub message: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file, self.message),
            line => write!(f, "{}:{line}: {}", self.file, self.message),
        }
    }
}

/// Optimizer steps that a log tells of together.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Number of the file.
    pub file: usize,
    /// Line in it.
    pub line: u64,
    /// When the last of them ended, in microseconds since 1970.
    pub at_micros: Option<i64>,
    /// How long they took, where the log says.
    pub span_micros: Option<i64>,
    /// The last step before them; -1 before step 0.
    pub after: i64,
    /// The last of them.
    pub step: i64,
    /// Steps whose update was skipped or no number.
    pub lost_steps: i64,
    /// Token places, where known.
    pub tokens: Option<f64>,
    /// Floating-point operations, where the log counts them.
    pub flop: Option<f64>,
    /// Mean loss in nats a token, where the log says.
    pub loss: Option<f64>,
    /// Which rows they read, where the log says.
    pub read: RowsRead,
}

impl Row {
    /// How many steps.
    pub fn steps(&self) -> i64 {
        self.step - self.after
    }
}

/// What an evaluation found.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// Number of the file.
    pub file: usize,
    /// Line in it.
    pub line: u64,
    /// Which data.
    pub split: String,
    /// Which source's part of them; `None` for the whole.
    pub source: Option<String>,
    /// What the log calls the data themselves: their checksum.
    pub dataset: Option<String>,
    /// Whether the loss is weighted.
    pub is_weighted: bool,
    /// After which optimizer step; that of the step line before it where it does not say.
    pub step: u64,
    /// Mean loss in nats a token; may be no number.
    pub loss: f64,
    /// Tokens that it is the mean of.
    pub tokens: Option<u64>,
    /// UTF-8 bytes of their text.
    pub bytes: Option<u64>,
}

/// What a log tells of the learning rate.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schedule {
    /// Steps that it was made for.
    pub total_steps: Option<u64>,
    /// The highest learning rate.
    pub peak: Option<f64>,
    /// The last one.
    pub last: Option<f64>,
}

/// Something else that took time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy {
    /// What.
    pub category: Category,
    /// From, in microseconds since 1970.
    pub start: i64,
    /// To.
    pub end: i64,
}

/// One process, from its first sign of life to its last.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attempt {
    /// First sign of life, in microseconds since 1970, where there is a clock.
    pub start: Option<i64>,
    /// Last sign of life.
    pub end: Option<i64>,
    /// Its steps, in order.
    pub rows: Vec<Row>,
    /// What else took time.
    pub busy: Vec<Busy>,
    /// Signs of life besides.
    marks: Vec<i64>,
    /// Place of the first event: file, line.
    pub first: (usize, u64),
    /// Place of the last event: file, line.
    pub last: (usize, u64),
    /// Whether the log says that it failed.
    pub failed: bool,
    /// Whether the log says that it ended.
    pub ended: bool,
    /// Whether the log says that it began.
    pub began: bool,
    /// Whether it was told from the one before by a silence alone.
    pub after_silence: bool,
    /// The last step that is in a checkpoint, where the log says.
    pub saved_step: Option<i64>,
    /// Seconds spent in checkpoints that were written, one by one, in microseconds.
    pub saves: Vec<i64>,
}

/// A run as its logs tell it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// In the order of time.
    pub attempts: Vec<Attempt>,
    /// Median duration of a step, where there are clocks or durations.
    pub median_step_micros: Option<i64>,
    /// Whether every step has a time of day.
    pub has_clock: bool,
    /// Tokens of a step as the log tells them: the median.
    pub tokens_per_step: Option<f64>,
    /// Whether these are counts, not products of a rate and a time.
    pub tokens_are_counts: bool,
    /// What was inferred, a sentence each.
    pub inferred: Vec<String>,
    /// What should be looked at, a sentence each.
    pub warnings: Vec<String>,
    /// Dataset that the log names.
    pub dataset: Option<(String, usize, u64)>,
    /// The last evaluation of each split and part.
    pub evaluations: Vec<Evaluation>,
    /// What the log tells of the learning rate.
    pub schedule: Schedule,
    /// The last finite training loss.
    pub last_loss: Option<f64>,
}

/// What must be known besides the logs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Known {
    pub(super) chips: Option<u64>,
    pub(super) sequence_tokens: Option<u64>,
}

/// An event with its file.
#[derive(Clone, Debug)]
struct Item {
    file: usize,
    event: Event,
}

/// Makes attempts of the logs. `names` are those of the files.
pub(super) fn trace(names: &[String], logs: Vec<Log>, known: Known) -> Result<Trace, Vec<Refusal>> {
    let mut builder = Builder {
        names,
        known,
        trace: Trace::default(),
        refusals: Vec::new(),
        total: None,
    };
    for log in &logs {
        for sentence in &log.inferred {
            builder.infer(sentence.clone());
        }
    }
    let items: Vec<Vec<Item>> = logs
        .into_iter()
        .enumerate()
        .map(|(file, log)| {
            let item = |event| Item { file, event };
            log.events.into_iter().map(item).collect()
        })
        .collect();
    builder.losses(&items);
    let groups = builder.groups(items);
    let stride = stride(&groups);
    for group in groups {
        builder.attempt(group, stride);
    }
    builder.medians();
    builder.silences();
    builder.order();
    builder.tokens();
    match builder.refusals.is_empty() {
        true => Ok(builder.trace),
        false => Err(builder.refusals),
    }
}

struct Builder<'a> {
    names: &'a [String],
    known: Known,
    trace: Trace,
    refusals: Vec<Refusal>,
    /// Tokens since the beginning of training at the step line before, of the same process.
    total: Option<f64>,
}

impl Builder<'_> {
    fn infer(&mut self, sentence: String) {
        if !self.trace.inferred.contains(&sentence) {
            self.trace.inferred.push(sentence);
        }
    }

    fn refuse(&mut self, (file, line): (usize, u64), message: String) {
        if self.refusals.len() < 100 {
            self.refusals.push(Refusal {
                file: self.names[file].clone(),
                line,
                message,
            });
        }
    }

    fn place(&self, (file, line): (usize, u64)) -> String {
        format!("{}:{line}", self.names[file])
    }

    /// What losses say, and which dataset the log names.
    fn losses(&mut self, files: &[Vec<Item>]) {
        let mut not_finite = Vec::new();
        let mut last_step = 0;
        for Item { file, event } in files.iter().flatten() {
            match (event.kind, event.loss) {
                (EventKind::Step | EventKind::Evaluation, Some(loss)) if !loss.is_finite() => {
                    not_finite.push((*file, event.line));
                }
                (EventKind::Step, Some(loss)) => self.trace.last_loss = Some(loss),
                _ => {}
            }
            if event.kind == EventKind::Step {
                last_step = event.step.unwrap_or(last_step);
                let schedule = &mut self.trace.schedule;
                if let Some(rate) = event.learning_rate.filter(|rate| rate.is_finite()) {
                    schedule.peak = Some(schedule.peak.map_or(rate, |peak| peak.max(rate)));
                    schedule.last = Some(rate);
                }
            }
            if event.total_steps.is_some() {
                self.trace.schedule.total_steps = event.total_steps;
            }
            if let (EventKind::Evaluation, Some(loss)) = (event.kind, event.loss) {
                self.evaluation(*file, event, loss, event.step.unwrap_or(last_step));
            }
            let named = word(event, "dataset=");
            if let (EventKind::JobStart, Some(name)) = (event.kind, named) {
                match &self.trace.dataset {
                    Some((earlier, ..)) if earlier != name => {
                        let message = format!(
                            "reads dataset {name}, but the run began with {earlier}; measure them as two runs"
                        );
                        self.refuse((*file, event.line), message);
                    }
                    _ => {
                        self.trace.dataset = Some((name.to_string(), *file, event.line));
                    }
                }
            }
        }
        if !not_finite.is_empty() {
            let places: Vec<String> = not_finite
                .iter()
                .take(LINES_NAMED)
                .map(|place| self.place(*place))
                .collect();
            let more = match not_finite.len() - places.len() {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            self.trace.warnings.push(format!(
                "the loss is not a number at {}{more}; such steps count as lost",
                places.join(", ")
            ));
        }
    }

    /// Keeps an evaluation, unless a later one of the same data is there already.
    fn evaluation(&mut self, file: usize, event: &Event, loss: f64, step: u64) {
        let found = Evaluation {
            file,
            line: event.line,
            split: event.split.clone().unwrap_or_else(|| "eval".to_string()),
            source: word(event, "source=").map(str::to_string),
            dataset: word(event, "dataset=").map(str::to_string),
            is_weighted: word(event, "weighted").is_some_and(str::is_empty),
            step,
            loss,
            tokens: match event.tokens {
                Tokens::Event(tokens) => Some(tokens),
                _ => None,
            },
            bytes: event.bytes,
        };
        let same = |known: &&mut Evaluation| {
            (&known.split, &known.source, known.is_weighted)
                == (&found.split, &found.source, found.is_weighted)
        };
        match self.trace.evaluations.iter_mut().find(same) {
            Some(known) if known.step > step => {}
            Some(known) => *known = found,
            None => self.trace.evaluations.push(found),
        }
    }

    /// Cuts the events into those of each process.
    fn groups(&mut self, files: Vec<Vec<Item>>) -> Vec<Vec<Item>> {
        let named = files
            .iter()
            .flatten()
            .all(|item| item.event.attempt.is_some());
        let mut sequences = Vec::new();
        if named {
            let mut attempts: BTreeMap<u64, Vec<Item>> = BTreeMap::new();
            for item in files.into_iter().flatten() {
                let attempt = item.event.attempt.unwrap_or(0);
                attempts.entry(attempt).or_default().push(item);
            }
            sequences.extend(attempts.into_values());
        } else {
            let mut files: Vec<Vec<Item>> = files
                .into_iter()
                .filter(|items| !items.is_empty())
                .collect();
            let first = |items: &Vec<Item>| items.iter().filter_map(|i| i.event.at_micros).min();
            if files.iter().all(|items| first(items).is_some()) {
                files.sort_by_key(first);
            }
            sequences = files;
        }
        let mut groups = Vec::new();
        for sequence in sequences {
            let sequence = self.in_order(sequence);
            self.split(sequence, &mut groups);
        }
        groups
    }

    /// By the clock, where that makes no step go back that does not in the file.
    fn in_order(&mut self, items: Vec<Item>) -> Vec<Item> {
        let mut clock = i64::MIN;
        let keys: Vec<i64> = items
            .iter()
            .map(|item| {
                clock = item.event.at_micros.unwrap_or(clock);
                clock
            })
            .collect();
        if keys.is_sorted() {
            return items;
        }
        let mut order: Vec<usize> = (0..items.len()).collect();
        order.sort_by_key(|&at| keys[at]);
        let descents = |order: &mut dyn Iterator<Item = usize>| {
            let steps: Vec<u64> = order
                .filter(|&at| items[at].event.kind == EventKind::Step)
                .filter_map(|at| items[at].event.step)
                .collect();
            steps.windows(2).filter(|pair| pair[1] < pair[0]).count()
        };
        let by_clock = descents(&mut order.iter().copied());
        let as_written = descents(&mut (0..items.len()));
        if by_clock <= as_written {
            self.infer("lines that were out of order are sorted by their clock".to_string());
            let mut slots: Vec<Option<Item>> = items.into_iter().map(Some).collect();
            return order
                .into_iter()
                .filter_map(|at| slots[at].take())
                .collect();
        }
        let mut before: Option<(i64, u64)> = None;
        for item in items.iter().filter(|i| i.event.kind == EventKind::Step) {
            let (Some(at), Some(step)) = (item.event.at_micros, item.event.step) else {
                continue;
            };
            if let Some((clock, earlier)) = before
                && at < clock
                && step > earlier
            {
                let message = format!(
                    "step {step} ends {} before step {earlier}: the clock went back; correct the times, or name the \
                     logs of each process as files of their own",
                    seconds(clock - at)
                );
                self.refuse((item.file, item.event.line), message);
            }
            before = Some((at, step));
        }
        items
    }

    /// A new process begins where the log says so, and where a step comes again.
    fn split(&mut self, items: Vec<Item>, groups: &mut Vec<Vec<Item>>) {
        let mut current: Vec<Item> = Vec::new();
        let mut last: Option<Event> = None;
        let mut ended = false;
        let mut copies = 0u64;
        for item in items {
            let event = &item.event;
            if let (EventKind::Step, Some(last)) = (event.kind, &last)
                && event.step == last.step
            {
                let same_moment = match (event.at_micros, last.at_micros) {
                    (Some(at), Some(before)) => (at - before).abs() <= CLOCK_SKEW_MICROS,
                    _ => event.loss.map(f64::to_bits) == last.loss.map(f64::to_bits),
                };
                if same_moment {
                    copies += 1;
                    continue;
                }
            }
            let again = match event.kind {
                EventKind::Step => last.as_ref().is_some_and(|last| event.step <= last.step),
                EventKind::JobStart | EventKind::CheckpointRestore => last.is_some(),
                _ => false,
            };
            if !current.is_empty() && (again || (ended && event.kind != EventKind::Mark)) {
                groups.push(std::mem::take(&mut current));
                (last, ended) = (None, false);
            }
            ended |= matches!(event.kind, EventKind::JobEnd | EventKind::Failure);
            if event.kind == EventKind::Step {
                last = Some(event.clone());
            }
            current.push(item);
        }
        if copies > 0 {
            self.infer(format!(
                "{copies} lines repeat a step at the same moment, as several ranks do: one of each is used"
            ));
        }
        if !current.is_empty() {
            groups.push(current);
        }
    }

    /// One process: its steps, and what else took time.
    fn attempt(&mut self, items: Vec<Item>, stride: i64) {
        let place = |item: &Item| (item.file, item.event.line);
        let mut attempt = Attempt {
            first: place(&items[0]),
            last: place(&items[items.len() - 1]),
            ..Attempt::default()
        };
        self.total = None;
        let mut resumed: Option<i64> = None;
        // End of the last event whose time of day is known.
        let mut cursor: Option<i64> = None;
        for item in &items {
            let event = &item.event;
            let step = event.step.and_then(|step| i64::try_from(step).ok());
            if event.step.is_some() && step.is_none_or(|step| step > LARGEST_STEP) {
                let message =
                    "the number of the step is beyond any training; correct or remove the line";
                self.refuse(place(item), message.to_string());
                continue;
            }
            if let Span::Whole(span) | Span::PerStep(span) = event.span
                && span < 0
            {
                let message = format!(
                    "a duration of {} is negative; correct or remove the line",
                    seconds(span)
                );
                self.refuse(place(item), message);
                continue;
            }
            let whole = match event.span {
                Span::Whole(span) => span,
                _ => 0,
            };
            if let Some(at) = event.at_micros {
                let start = at - whole;
                attempt.start = Some(attempt.start.map_or(start, |known| known.min(start)));
                if attempt.end.is_none_or(|known| at >= known) {
                    attempt.end = Some(at);
                    attempt.last = place(item);
                }
            }
            match event.kind {
                EventKind::Step => {
                    if let Some(step) = step {
                        self.row(&mut attempt, item, step, stride, resumed.take());
                    }
                }
                EventKind::JobStart => {
                    attempt.began = true;
                    resumed = step.or(resumed);
                }
                EventKind::JobEnd => attempt.ended = true,
                EventKind::Failure => attempt.failed = true,
                EventKind::Mark => {}
                kind => self.busy(&mut attempt, item, kind, &mut cursor, &mut resumed),
            }
            if let Some(at) = event.at_micros {
                attempt.marks.push(at);
                cursor = Some(cursor.map_or(at, |known: i64| known.max(at)));
            }
        }
        // An event that was put behind the last one may reach beyond it.
        if let (Some(end), Some(latest)) = (attempt.end, attempt.busy.iter().map(|b| b.end).max()) {
            attempt.end = Some(end.max(latest));
        }
        self.trace.attempts.push(attempt);
    }

    fn row(
        &mut self,
        attempt: &mut Attempt,
        item: &Item,
        step: i64,
        stride: i64,
        resumed: Option<i64>,
    ) {
        let event = &item.event;
        let after = match attempt.rows.last() {
            Some(row) => row.step,
            None => match resumed.filter(|&resumed| resumed < step) {
                Some(resumed) => resumed,
                None if step == 0 => -1,
                None => {
                    if stride > 1 && step > stride && !self.trace.attempts.is_empty() {
                        self.infer(format!(
                            "a process whose log does not say from which step it goes on is taken to begin {stride} \
                             steps, the usual distance of lines, before its first line"
                        ));
                    }
                    (step - stride).max(0)
                }
            },
        };
        let steps = step - after;
        let span_micros = match event.span {
            Span::Unknown => None,
            Span::Whole(span) => Some(span),
            Span::PerStep(span) => span
                .checked_mul(steps)
                .filter(|span| *span < LONGEST_MICROS),
        };
        let lost_steps = match event.loss {
            Some(loss) if !loss.is_finite() => steps,
            _ => i64::try_from(event.lost_steps).unwrap_or(steps).min(steps),
        };
        let before = attempt.rows.last();
        let tokens = match event.tokens {
            Tokens::Unknown => None,
            Tokens::Event(tokens) => Some(tokens as f64),
            Tokens::PerStep(tokens) => Some(tokens as f64 * steps as f64),
            Tokens::Total(total) => self.since_before(Some(total as f64), after),
            Tokens::TotalSequences(sequences) => {
                let tokens = self
                    .known
                    .sequence_tokens
                    .map(|tokens| tokens as f64 * sequences as f64);
                self.since_before(tokens, after)
            }
            Tokens::PerSecondPerChip(rate) => {
                let clock = before
                    .and_then(|row| row.at_micros)
                    .zip(event.at_micros)
                    .map(|(before, at)| at - before);
                span_micros
                    .or(clock)
                    .zip(self.known.chips)
                    .map(|(micros, chips)| rate * chips as f64 * micros as f64 / 1e6)
            }
        };
        if !matches!(event.tokens, Tokens::Unknown | Tokens::PerSecondPerChip(_)) {
            self.trace.tokens_are_counts = true;
        }
        let row = Row {
            file: item.file,
            line: event.line,
            at_micros: event.at_micros,
            span_micros,
            after,
            step,
            lost_steps,
            tokens,
            flop: event.flops.filter(|flop| flop.is_finite() && *flop > 0.0),
            loss: event.loss,
            read: event.read,
        };
        attempt.rows.push(row);
    }

    /// Tokens since the step line before, from a sum since the beginning of training.
    fn since_before(&mut self, total: Option<f64>, after: i64) -> Option<f64> {
        let before = match after {
            ..=0 => self.total.or(Some(0.0)),
            _ => self.total,
        };
        self.total = total;
        let tokens = total? - before?;
        (tokens > 0.0).then_some(tokens)
    }

    fn busy(
        &mut self,
        attempt: &mut Attempt,
        item: &Item,
        kind: EventKind,
        cursor: &mut Option<i64>,
        resumed: &mut Option<i64>,
    ) {
        let event = &item.event;
        let step = event.step.and_then(|step| i64::try_from(step).ok());
        let category = match kind {
            EventKind::Init => Category::Init,
            EventKind::Prep => Category::Prep,
            EventKind::Compile => Category::Compile,
            EventKind::DataWait => Category::DataWait,
            EventKind::CheckpointSave => Category::CheckpointSave,
            EventKind::CheckpointRestore => Category::CheckpointRestore,
            EventKind::Evaluation => Category::Evaluation,
            _ => Category::Custom,
        };
        match kind {
            EventKind::CheckpointRestore => *resumed = step.or(*resumed),
            EventKind::CheckpointSave => {
                attempt.saved_step = step.or(attempt.rows.last().map(|row| row.step));
            }
            _ => {}
        }
        let last_step = attempt.rows.last().map(|row| row.step);
        let (start, end) = match (event.at_micros, event.span, *cursor) {
            (Some(at), Span::Whole(span), _) => (at - span, at),
            // It began when the event before it ended, unless steps may lie between.
            (Some(at), _, Some(before))
                if step.is_none() || last_step.is_none() || step == last_step =>
            {
                self.infer(format!(
                    "'{}' without a duration is timed from the event before it",
                    category.name()
                ));
                (before.min(at), at)
            }
            (None, Span::Whole(span), Some(before)) => {
                self.infer(format!(
                    "'{}' without a clock is put behind the event before it",
                    category.name()
                ));
                *cursor = Some(before + span);
                (before, before + span)
            }
            _ => return,
        };
        if kind == EventKind::CheckpointSave && end > start {
            attempt.saves.push(end - start);
        }
        attempt.busy.push(Busy {
            category,
            start,
            end,
        });
    }
}

impl Builder<'_> {
    /// How long a step takes; whether there is a clock; and steps that cannot be.
    fn medians(&mut self) {
        let rows = || self.trace.attempts.iter().flat_map(|attempt| &attempt.rows);
        self.trace.has_clock = rows().count() > 0 && rows().all(|row| row.at_micros.is_some());
        let told = rows()
            .filter(|row| row.steps() > 0)
            .filter_map(|row| Some(row.span_micros? / row.steps()))
            .collect();
        let by_clock = || {
            let pairs = self
                .trace
                .attempts
                .iter()
                .flat_map(|attempt| attempt.rows.windows(2));
            pairs
                .filter_map(|pair| {
                    Some((pair[1].at_micros? - pair[0].at_micros?) / pair[1].steps().max(1))
                })
                .collect()
        };
        let median_step = median(told).or_else(|| median(by_clock()));
        self.trace.median_step_micros = median_step;

        let mut stride: Vec<i64> = self
            .trace
            .attempts
            .iter()
            .flat_map(|attempt| attempt.rows.iter().skip(1).map(Row::steps))
            .collect();
        stride.sort_unstable();
        let Some(stride) = stride.get(stride.len().saturating_sub(1) / 2).copied() else {
            return;
        };
        let (mut wrong, mut holes) = (Vec::new(), Vec::new());
        for attempt in &self.trace.attempts {
            for pair in attempt.rows.windows(2) {
                let (before, row) = (&pair[0], &pair[1]);
                if row.steps() <= stride.saturating_mul(10) {
                    continue;
                }
                let clock = row
                    .at_micros
                    .zip(before.at_micros)
                    .map(|(at, before)| at - before);
                let possible = match (clock, median_step) {
                    (Some(clock), Some(median)) => clock / row.steps() >= median / 10,
                    _ => true,
                };
                let found = (before.step, row.step, (row.file, row.line));
                match possible {
                    true => holes.push(found),
                    false => wrong.push(found),
                }
            }
        }
        for (before, step, place) in wrong {
            let message = format!(
                "steps jump from {before} to {step} in less than a tenth of the time that so many steps take; two runs \
                 may be mixed in one log: name the logs of one run"
            );
            self.refuse(place, message);
        }
        for (before, step, place) in holes.into_iter().take(LINES_NAMED) {
            let place = self.place(place);
            self.trace.warnings.push(format!(
                "{place}: steps jump from {before} to {step}: the lines between are missing, and what happened there \
                 counts as steps"
            ));
        }
    }

    /// A long silence between two steps is an outage: the attempt is cut there.
    fn silences(&mut self) {
        let (true, Some(median)) = (self.trace.has_clock, self.trace.median_step_micros) else {
            return;
        };
        let shortest = SHORTEST_OUTAGE_MICROS.max(median.saturating_mul(OUTAGE_STEPS));
        let mut cut = Vec::new();
        let mut found = 0;
        for mut attempt in std::mem::take(&mut self.trace.attempts) {
            let holes = outages(&attempt, median, shortest);
            found += holes.len();
            let mut later: Vec<Attempt> = Vec::new();
            for (at, hole) in holes.into_iter().rev() {
                later.push(attempt.cut(at, hole));
            }
            cut.push(attempt);
            cut.extend(later.into_iter().rev());
        }
        if found > 0 {
            let gaps = if found == 1 { "gap" } else { "gaps" };
            self.infer(format!(
                "{found} {gaps} of more than {} without a sign of life inside a process: taken for an outage",
                seconds(shortest)
            ));
        }
        self.trace.attempts = cut;
    }

    /// Attempts in the order of time; one that begins before the one before has ended is refused.
    fn order(&mut self) {
        if !self.trace.has_clock {
            return;
        }
        self.trace
            .attempts
            .retain(|attempt| attempt.start.is_some());
        self.trace
            .attempts
            .sort_by_key(|attempt| (attempt.start, attempt.end));
        for at in 1..self.trace.attempts.len() {
            let (Some(end), Some(start)) = (
                self.trace.attempts[at - 1].end,
                self.trace.attempts[at].start,
            ) else {
                continue;
            };
            if start >= end {
                continue;
            }
            let (before, after) = (&self.trace.attempts[at - 1], &self.trace.attempts[at]);
            if end - start <= CLOCK_SKEW_MICROS {
                let message = format!(
                    "an attempt begins {} before the one before it ends: taken to begin at its end",
                    seconds(end - start)
                );
                self.trace.attempts[at].start = Some(end);
                self.infer(message);
                continue;
            }
            let message = format!(
                "attempts overlap: this one begins {} before the one that ends at {}; name the log of one rank only, or \
                 measure them as two runs",
                seconds(end - start),
                self.place(before.last)
            );
            let place = after.first;
            self.refuse(place, message);
        }
    }

    /// Tokens of a step, and of the rows that do not say.
    fn tokens(&mut self) {
        let rows = self.trace.attempts.iter().flat_map(|attempt| &attempt.rows);
        let mut found: Vec<f64> = rows
            .filter(|row| row.steps() > 0)
            .filter_map(|row| Some(row.tokens? / row.steps() as f64))
            .filter(|tokens| tokens.is_finite() && *tokens > 0.0)
            .collect();
        found.sort_by(f64::total_cmp);
        self.trace.tokens_per_step = found.get(found.len().saturating_sub(1) / 2).copied();
    }
}

impl Attempt {
    /// One of which nothing but its steps is known.
    #[cfg(test)]
    pub(super) fn of_rows(rows: Vec<Row>) -> Attempt {
        Attempt {
            rows,
            ..Attempt::default()
        }
    }

    /// Cuts at a silence before the row `at`; what comes after it is returned.
    fn cut(&mut self, at: usize, (from, to): (i64, i64)) -> Attempt {
        let rows = self.rows.split_off(at);
        let (busy, later_busy) = self.busy.iter().partition(|busy| busy.end <= from);
        let (marks, later_marks) = self.marks.iter().partition(|mark| **mark <= from);
        let place = |row: &Row| (row.file, row.line);
        let later = Attempt {
            start: Some(to),
            end: self.end,
            first: place(&rows[0]),
            last: self.last,
            failed: self.failed,
            ended: self.ended,
            began: false,
            after_silence: true,
            saved_step: self.saved_step,
            saves: Vec::new(),
            rows,
            busy: later_busy,
            marks: later_marks,
        };
        (self.busy, self.marks) = (busy, marks);
        (self.end, self.failed, self.ended) = (Some(from), false, false);
        self.last = self.rows.last().map_or(self.first, place);
        later
    }
}

/// The rows before which nothing was heard for longer than `shortest`, each with the first such silence.
fn outages(attempt: &Attempt, median: i64, shortest: i64) -> Vec<(usize, (i64, i64))> {
    // When something is known to have happened: disjoint, in order.
    let busy = attempt.busy.iter().map(|busy| (busy.start, busy.end));
    let mut events: Vec<(i64, i64)> = busy
        .chain(attempt.marks.iter().map(|&mark| (mark, mark)))
        .collect();
    events.sort_unstable();
    let mut known: Vec<(i64, i64)> = Vec::with_capacity(events.len());
    for (start, end) in events {
        match known.last_mut().filter(|last| start <= last.1) {
            Some(last) => last.1 = last.1.max(end),
            None => known.push((start, end)),
        }
    }
    let mut found = Vec::new();
    for (at, pair) in attempt.rows.windows(2).enumerate() {
        let (Some(before), Some(end)) = (pair[0].at_micros, pair[1].at_micros) else {
            continue;
        };
        let usual = || median.saturating_mul(pair[1].steps()).min(LONGEST_MICROS);
        let until = end - pair[1].span_micros.unwrap_or_else(usual);
        if until - before <= shortest {
            continue;
        }
        let first = known.partition_point(|(_, end)| *end <= before);
        let between = known[first..]
            .iter()
            .copied()
            .take_while(|(start, _)| *start < until)
            .chain([(until, until)]);
        let mut reached = before;
        for (start, end) in between {
            if start - reached > shortest {
                found.push((at + 1, (reached, start)));
                break;
            }
            reached = reached.max(end);
        }
    }
    found
}

/// What follows `key` in one of the words of an event's tag.
fn word<'a>(event: &'a Event, key: &str) -> Option<&'a str> {
    let mut words = event.tag.as_deref()?.split_whitespace();
    words.find_map(|word| word.strip_prefix(key))
}

/// The usual distance of step lines inside a process, in steps; 1 where nobody knows.
fn stride(groups: &[Vec<Item>]) -> i64 {
    let mut found: Vec<i64> = Vec::new();
    for group in groups {
        let steps: Vec<i64> = group
            .iter()
            .filter(|item| item.event.kind == EventKind::Step)
            .filter_map(|item| i64::try_from(item.event.step?).ok())
            .collect();
        found.extend(steps.windows(2).map(|pair| pair[1] - pair[0]));
    }
    median(found).unwrap_or(1).max(1)
}

/// The lower median.
fn median(mut values: Vec<i64>) -> Option<i64> {
    values.sort_unstable();
    values.get(values.len().saturating_sub(1) / 2).copied()
}

/// A duration for a sentence.
pub(super) fn seconds(micros: i64) -> String {
    let seconds = micros as f64 / 1e6;
    match micros % 1_000_000 {
        0 => format!("{seconds} s"),
        _ => format!("{seconds:.3} s"),
    }
}
