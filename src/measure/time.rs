//! Where the time of a run went: wall = productive + badput by category + unattributed, in whole
//! microseconds, exactly.
//!
//! Compared with `ml-goodput-measurement` 0.2.3 on the same events (`tests/bench/ml_goodput.py`): equal for a
//! training without interruption (99.01 %), with replayed steps (70.92 %; it counts the last step before the
//! crash, whose end it does not know, as recovery) and with a slow first step (94.79 %). It finds a disruption
//! only where a step is recorded twice, so an outage that is resumed at the next step counts as productive
//! there: 99.64 % where 35.59 % is true. And what is recorded after the last step is no loss there (94.86 %
//! with a last checkpoint, 93.46 % is true).

use super::attempts::{Attempt, Busy, LONGEST_MICROS, Row, Trace};
use std::collections::BTreeMap;

/// Step lines of a run from which its median step is taken for the usual one.
const LINES_FOR_USUAL: usize = 5;

/// What time was lost to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Category {
    /// Setting up a process.
    Init,
    /// Preparing data before the first step.
    Prep,
    /// Compiling.
    Compile,
    /// Waiting for data.
    DataWait,
    /// Waiting for a checkpoint to be written.
    CheckpointSave,
    /// Reading a checkpoint.
    CheckpointRestore,
    /// Evaluating.
    Evaluation,
    /// Steps that were done again later, skipped, or no numbers.
    WastedProgress,
    /// Between two processes.
    Recovery,
    /// Anything else that the log names.
    Custom,
}

impl Category {
    /// Every category, in the order in which they are shown.
    pub const ALL: [Category; 10] = [
        Category::Init,
        Category::Prep,
        Category::Compile,
        Category::DataWait,
        Category::CheckpointSave,
        Category::CheckpointRestore,
        Category::Evaluation,
        Category::WastedProgress,
        Category::Recovery,
        Category::Custom,
    ];

    /// Its name in a report.
    pub fn name(self) -> &'static str {
        match self {
            Category::Init => "init",
            Category::Prep => "prep",
            Category::Compile => "compile",
            Category::DataWait => "data_wait",
            Category::CheckpointSave => "checkpoint_save",
            Category::CheckpointRestore => "checkpoint_restore",
            Category::Evaluation => "evaluation",
            Category::WastedProgress => "wasted_progress",
            Category::Recovery => "recovery",
            Category::Custom => "custom",
        }
    }
}

/// A sum of time, in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// From first to last.
    pub wall: i64,
    /// In steps that count.
    pub productive: i64,
    /// Lost, by what.
    pub badput: BTreeMap<Category, i64>,
    /// Of which nothing is known. Negative would be a bug; it is shown, never cut off.
    pub unattributed: i64,
}

impl Spent {
    /// Lost to anything that is known.
    pub fn lost(&self) -> i64 {
        self.badput.values().sum()
    }

    /// Whether wall = productive + badput + unattributed, and no part is negative.
    pub fn closes(&self) -> bool {
        self.wall == self.productive + self.lost() + self.unattributed
            && self.productive >= 0
            && self.unattributed >= 0
            && self.badput.values().all(|&lost| lost >= 0)
    }

    fn add(&mut self, other: &Spent) {
        self.wall += other.wall;
        self.productive += other.productive;
        self.unattributed += other.unattributed;
        for (category, micros) in &other.badput {
            *self.badput.entry(*category).or_default() += micros;
        }
    }

    fn lose(&mut self, category: Category, micros: i64) {
        if micros != 0 {
            *self.badput.entry(category).or_default() += micros;
        }
    }
}

/// Steps and tokens of an attempt or a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Done {
    /// Steps that were done.
    pub steps: i64,
    /// Of these done again later.
    pub replayed_steps: i64,
    /// Of these skipped or no numbers, and not done again.
    pub lost_steps: i64,
    /// Of these in steps whose duration is known: steps that count, and what they took.
    pub timed_steps: i64,
    /// Token places of the timed steps that count.
    pub timed_tokens: f64,
    /// Time of the timed steps that count, in microseconds.
    pub timed_micros: i64,
    /// Token places of all steps.
    pub tokens: f64,
    /// Token places of the steps that count.
    pub good_tokens: f64,
    /// Floating-point operations of the steps that count, as far as the log counts them.
    pub good_flop: f64,
    /// Steps that count on whose line the log does not count operations.
    pub steps_without_flop: i64,
}

impl Done {
    fn add(&mut self, other: &Done) {
        self.steps += other.steps;
        self.replayed_steps += other.replayed_steps;
        self.lost_steps += other.lost_steps;
        self.timed_steps += other.timed_steps;
        self.timed_tokens += other.timed_tokens;
        self.timed_micros += other.timed_micros;
        self.tokens += other.tokens;
        self.good_tokens += other.good_tokens;
        self.good_flop += other.good_flop;
        self.steps_without_flop += other.steps_without_flop;
    }
}

/// How the time of a run is split.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TimeSplit {
    /// Of each attempt; the silence before one is part of it, as recovery.
    pub attempts: Vec<(Spent, Done)>,
    /// Of the whole; `None` where the log has no clock.
    pub spent: Option<Spent>,
    /// Steps and tokens of the whole.
    pub done: Done,
    /// What was inferred.
    pub inferred: Vec<String>,
}

/// Splits the time of a run. `tokens_per_step` stands in where a row does not say;
/// `counts_time_between` says whether the time between attempts is part of the wall clock.
pub fn split(trace: &Trace, tokens_per_step: Option<f64>, counts_time_between: bool) -> TimeSplit {
    let mut result = TimeSplit::default();
    let mut whole = Spent::default();
    // Steps after this one are done again in a later attempt.
    let mut kept_up_to = vec![i64::MAX; trace.attempts.len()];
    for at in (1..trace.attempts.len()).rev() {
        let own = trace.attempts[at]
            .rows
            .first()
            .map_or(i64::MAX, |row| row.after);
        kept_up_to[at - 1] = kept_up_to[at].min(own);
    }
    let lines: usize = trace
        .attempts
        .iter()
        .map(|attempt| attempt.rows.len())
        .sum();
    for (at, attempt) in trace.attempts.iter().enumerate() {
        let mut splitter = Splitter {
            attempt,
            kept_up_to: kept_up_to[at],
            median: trace.median_step_micros.unwrap_or(0),
            tokens_per_step,
            knows_usual: lines >= LINES_FOR_USUAL,
            spent: Spent::default(),
            done: Done::default(),
            inferred: &mut result.inferred,
        };
        splitter.split(trace.has_clock);
        let (mut spent, done) = (splitter.spent, splitter.done);
        let before = at.checked_sub(1).and_then(|at| trace.attempts[at].end);
        if let (true, true, Some(before), Some(start)) =
            (trace.has_clock, counts_time_between, before, attempt.start)
        {
            spent.wall += start - before;
            spent.lose(Category::Recovery, start - before);
        }
        whole.add(&spent);
        result.done.add(&done);
        result.attempts.push((spent, done));
    }
    if trace.has_clock {
        result.spent = Some(whole);
    }
    result
}

struct Splitter<'a> {
    attempt: &'a Attempt,
    kept_up_to: i64,
    median: i64,
    tokens_per_step: Option<f64>,
    /// Whether there are step lines enough to say how long a step usually takes.
    knows_usual: bool,
    spent: Spent,
    done: Done,
    inferred: &'a mut Vec<String>,
}

impl Splitter<'_> {
    fn infer(&mut self, sentence: &str) {
        if !self.inferred.iter().any(|said| said == sentence) {
            self.inferred.push(sentence.to_string());
        }
    }

    fn split(&mut self, has_clock: bool) {
        let attempt = self.attempt;
        let (true, Some(start), Some(end)) = (has_clock, attempt.start, attempt.end) else {
            for (number, row) in attempt.rows.iter().enumerate() {
                let micros = row.span_micros.unwrap_or(0);
                let micros = micros - self.warm_up(number, row, micros);
                self.count(row, micros, row.span_micros.is_some());
            }
            // Of a wall clock that nobody knows no part is known.
            self.spent = Spent::default();
            return;
        };
        self.spent.wall = end - start;
        let busy = flatten(&attempt.busy, start, end);
        for segment in &busy {
            self.spent
                .lose(segment.category, segment.end - segment.start);
        }
        let mut next_busy = 0;
        let mut before = start;
        let mut first_step = None;
        for (number, row) in attempt.rows.iter().enumerate() {
            let at = row.at_micros.unwrap_or(before).clamp(before, end);
            let (from, timed) = match row.span_micros {
                Some(span) => {
                    let from = at - span;
                    if from < before && span > 0 {
                        let cut = before - from;
                        if cut > span / 10 && cut > 1_000 {
                            self.infer(
                                "steps that say they took longer than the clock between their lines are counted as \
                                 long as that clock",
                            );
                        }
                    }
                    (from.max(before), true)
                }
                None if number > 0 => {
                    self.infer("the duration of steps is inferred from the clock of their lines");
                    (before, true)
                }
                None => {
                    let usual = self.median.saturating_mul(row.steps()).min(LONGEST_MICROS);
                    if start < at {
                        self.infer("the first steps of a process are taken to have lasted as long as the median step");
                    }
                    ((at - usual).max(before), at - usual >= before)
                }
            };
            first_step.get_or_insert(from);
            while busy
                .get(next_busy)
                .is_some_and(|segment| segment.end <= from)
            {
                next_busy += 1;
            }
            let taken: i64 = busy[next_busy..]
                .iter()
                .take_while(|segment| segment.start < at)
                .map(|segment| segment.end.min(at) - segment.start.max(from))
                .sum();
            let micros = at - from - taken;
            let warm_up = self.warm_up(number, row, micros);
            self.spent.lose(Category::Compile, warm_up);
            self.count(row, micros - warm_up, timed);
            before = at;
        }
        let accounted = self.spent.productive + self.spent.lost();
        self.spent.unattributed = self.spent.wall - accounted;
        // What comes before the first step, and is nothing else, sets the process up.
        let explicit = attempt
            .busy
            .iter()
            .any(|busy| busy.category == Category::Init);
        if let (false, Some(first)) = (explicit, first_step) {
            let taken: i64 = busy
                .iter()
                .take_while(|segment| segment.start < first)
                .map(|segment| segment.end.min(first) - segment.start)
                .sum();
            let setting_up = first - start - taken;
            if setting_up > 0 {
                self.infer("time before the first step of a process that the log does not explain is taken for init");
                self.spent.lose(Category::Init, setting_up);
                self.spent.unattributed -= setting_up;
            }
        }
    }

    /// How much longer the first steps of a process took than is usual, where that is more than a step: nobody
    /// recorded that they were compiled or warmed up.
    fn warm_up(&mut self, number: usize, row: &Row, micros: i64) -> i64 {
        let told = self
            .attempt
            .busy
            .iter()
            .any(|busy| busy.category == Category::Compile);
        if number > 0 || told || !self.knows_usual {
            return 0;
        }
        let usual = self.median.saturating_mul(row.steps()).min(LONGEST_MICROS);
        let over = micros - usual;
        if over <= self.median {
            return 0;
        }
        self.infer(
            "what the first step line of a process took beyond the median step is taken for compilation and warming up",
        );
        over
    }

    /// Counts the steps of a row and the time that they took.
    fn count(&mut self, row: &Row, micros: i64, timed: bool) {
        let steps = row.steps();
        let replayed = (row.step - self.kept_up_to.max(row.after)).clamp(0, steps);
        let lost = row.lost_steps.min(steps - replayed);
        let useless = replayed + lost;
        // Steps of one line are taken to be equally long; the remainder of the division is productive.
        let wasted = match steps {
            0 => 0,
            steps => (i128::from(micros) * i128::from(useless) / i128::from(steps)) as i64,
        };
        if useless > 0 && useless < steps && micros > 0 {
            self.infer("of a line that holds steps that count and steps that do not, each step has an equal share");
        }
        self.spent.productive += micros - wasted;
        self.spent.lose(Category::WastedProgress, wasted);
        let tokens = row
            .tokens
            .or(self.tokens_per_step.map(|tokens| tokens * steps as f64))
            .unwrap_or(0.0);
        let good_of = |amount: f64| match steps {
            0 => 0.0,
            steps => amount * (steps - useless) as f64 / steps as f64,
        };
        let good = good_of(tokens);
        match row.flop {
            Some(flop) => self.done.good_flop += good_of(flop),
            None => self.done.steps_without_flop += steps - useless,
        }
        self.done.steps += steps;
        self.done.replayed_steps += replayed;
        self.done.lost_steps += lost;
        self.done.tokens += tokens;
        self.done.good_tokens += good;
        if timed {
            self.done.timed_steps += steps - useless;
            self.done.timed_tokens += good;
            self.done.timed_micros += micros - wasted;
        }
    }
}

/// Disjoint segments in order: where several things overlap, the one that began last has the time, of those
/// the shortest. Cut to `start..end`.
fn flatten(busy: &[Busy], start: i64, end: i64) -> Vec<Busy> {
    let mut sorted: Vec<Busy> = busy
        .iter()
        .map(|busy| Busy {
            start: busy.start.clamp(start, end),
            end: busy.end.clamp(start, end),
            ..*busy
        })
        .filter(|busy| busy.start < busy.end)
        .collect();
    sorted.sort_by_key(|busy| (busy.start, busy.end, busy.category));
    let mut borders: Vec<i64> = sorted
        .iter()
        .flat_map(|busy| [busy.start, busy.end])
        .collect();
    borders.sort_unstable();
    borders.dedup();
    let mut segments: Vec<Busy> = Vec::new();
    let mut open: Vec<Busy> = Vec::new();
    let mut next = 0;
    for pair in borders.windows(2) {
        open.retain(|busy| busy.end > pair[0]);
        while let Some(busy) = sorted.get(next).filter(|busy| busy.start <= pair[0]) {
            open.push(*busy);
            next += 1;
        }
        let innermost = open
            .iter()
            .max_by_key(|busy| (busy.start, std::cmp::Reverse(busy.end), busy.category));
        if let Some(busy) = innermost {
            segments.push(Busy {
                category: busy.category,
                start: pair[0],
                end: pair[1],
            });
        }
    }
    segments
}

#[cfg(test)]
mod tests {
    use super::super::attempts::{Known, Refusal, trace};
    use super::*;
    use crate::logs::{Log, find};
    use crate::record::Options;
    use proptest::prelude::*;

    fn log(text: &str) -> Log {
        let kind = find("events").expect("listed");
        let reader = (kind.build)(&Options::default()).expect("no options");
        let mut log = Log::default();
        reader.read(&mut text.as_bytes(), &mut log).expect("read");
        assert_eq!(log.bad_line_count, 0, "{:?}", log.bad_lines);
        log
    }

    fn traced(files: &[&str]) -> Result<Trace, Vec<Refusal>> {
        let names: Vec<String> = (0..files.len()).map(|at| format!("{at}.jsonl")).collect();
        trace(
            &names,
            files.iter().map(|text| log(text)).collect(),
            Known::default(),
        )
    }

    fn refused(files: &[&str]) -> Vec<String> {
        let refusals = traced(files).expect_err("refused");
        refusals.iter().map(ToString::to_string).collect()
    }

    fn spent(text: &str) -> (Trace, TimeSplit) {
        let trace = traced(&[text]).expect("measurable");
        let split = split(&trace, None, true);
        for (spent, _) in &split.attempts {
            assert!(spent.closes(), "{spent:?}");
        }
        assert!(split.spent.as_ref().is_none_or(Spent::closes));
        (trace, split)
    }

    fn step(ts: f64, step: u64) -> String {
        format!("{{\"ts\":{ts},\"kind\":\"step\",\"step\":{step},\"dur_s\":10}}\n")
    }

    fn seconds(split: &TimeSplit, category: Category) -> f64 {
        let whole = split.spent.as_ref().expect("a clock");
        whole
            .badput
            .get(&category)
            .map_or(0.0, |&micros| micros as f64 / 1e6)
    }

    fn share(split: &TimeSplit) -> f64 {
        let whole = split.spent.as_ref().expect("a clock");
        whole.productive as f64 / whole.wall as f64
    }

    /// 20 s of initialisation, 200 steps of 10 s, an outage of an hour after step 100.
    fn golden(step: impl Fn(f64, u64) -> String) -> String {
        let mut text =
            "{\"ts\":1000,\"kind\":\"job_start\"}\n{\"ts\":1020,\"kind\":\"init\",\"dur_s\":20}\n"
                .to_string();
        for number in 1..=200 {
            let outage = if number > 100 { 3600.0 } else { 0.0 };
            text += &step(1020.0 + 10.0 * number as f64 + outage, number);
        }
        text
    }

    #[test]
    fn an_outage_without_replayed_steps_is_found() {
        let without_duration =
            |ts: f64, step: u64| format!("{{\"ts\":{ts},\"kind\":\"step\",\"step\":{step}}}\n");
        for text in [golden(step), golden(without_duration)] {
            let (trace, split) = spent(&text);
            assert_eq!(trace.attempts.len(), 2, "one disruption");
            let whole = split.spent.as_ref().expect("a clock");
            assert_eq!(whole.wall, 5_620_000_000);
            assert_eq!(whole.productive, 2_000_000_000);
            assert!((share(&split) - 0.3559).abs() < 1e-3);
            assert_eq!(seconds(&split, Category::Recovery), 3600.0);
            assert_eq!(seconds(&split, Category::Init), 20.0);
            assert_eq!(whole.unattributed, 0);
            assert!(
                trace.inferred.iter().any(|said| said.contains("outage")),
                "an inferred gap says so"
            );
        }
    }

    #[test]
    fn a_silence_is_an_outage_above_a_minute_and_ten_steps() {
        let with_gap = |gap: f64| {
            let mut text = String::new();
            for number in 1..=20 {
                text += &step(
                    10.0 * number as f64 + if number > 10 { gap } else { 0.0 },
                    number,
                );
            }
            traced(&[&text]).expect("measurable").attempts.len()
        };
        // Ten steps are 100 s: exactly as long is none.
        assert_eq!(
            (with_gap(99.0), with_gap(100.0), with_gap(101.0)),
            (1, 1, 2)
        );
        let known = step(10.0, 1)
            + &step(20.0, 2)
            + "{\"ts\":520,\"kind\":\"eval\",\"dur_s\":500}\n"
            + &step(530.0, 3);
        assert_eq!(
            traced(&[&known]).expect("measurable").attempts.len(),
            1,
            "an evaluation is no silence"
        );
    }

    #[test]
    fn steps_that_are_done_again_are_lost_by_the_attempt_that_did_them_first() {
        let mut text = String::new();
        for number in 1..=10 {
            text += &step(10.0 * number as f64, number);
        }
        // A new process at 200 s resumes after step 6.
        text += "{\"ts\":200,\"kind\":\"job_start\"}\n{\"ts\":230,\"kind\":\"ckpt_restore\",\"step\":6,\"dur_s\":5}\n";
        for number in 7..=12 {
            text += &step(230.0 + 10.0 * (number - 6) as f64, number);
        }
        let (trace, split) = spent(&text);
        assert_eq!(trace.attempts.len(), 2);
        assert_eq!(seconds(&split, Category::WastedProgress), 40.0);
        assert_eq!(
            split.attempts[0].0.badput[&Category::WastedProgress],
            40_000_000
        );
        assert!(
            !split.attempts[1]
                .0
                .badput
                .contains_key(&Category::WastedProgress)
        );
        assert_eq!(split.attempts[0].1.replayed_steps, 4);
        assert_eq!(seconds(&split, Category::Recovery), 100.0);
        assert_eq!(seconds(&split, Category::CheckpointRestore), 5.0);
        assert_eq!(seconds(&split, Category::Init), 25.0);
        assert_eq!(
            split.spent.as_ref().map(|whole| whole.productive),
            Some(120_000_000)
        );
        assert_eq!((split.done.steps, split.done.replayed_steps), (16, 4));
    }

    #[test]
    fn part_of_a_line_may_be_done_again() {
        let line = |ts: f64, step: u64| {
            format!("{{\"ts\":{ts},\"kind\":\"step\",\"step\":{step},\"dur_s\":30}}\n")
        };
        let text = line(30.0, 3)
            + &line(60.0, 6)
            + "{\"ts\":61,\"kind\":\"ckpt_restore\",\"step\":5}\n"
            + &line(91.0, 8);
        let (_, split) = spent(&text);
        assert_eq!(split.done.replayed_steps, 1);
        assert_eq!(seconds(&split, Category::WastedProgress), 10.0);
        assert!(
            split
                .inferred
                .iter()
                .any(|said| said.contains("equal share"))
        );
    }

    #[test]
    fn what_training_waited_for_is_taken_out_of_the_step_and_the_innermost_has_it() {
        let text = "{\"ts\":0,\"kind\":\"job_start\"}\n\
            {\"ts\":50,\"kind\":\"init\",\"dur_s\":50}\n{\"ts\":30,\"kind\":\"compile\",\"dur_s\":20}\n\
            {\"ts\":54,\"kind\":\"data_wait\",\"dur_s\":2}\n{\"ts\":60,\"kind\":\"step\",\"step\":1,\"dur_s\":10}\n\
            {\"ts\":63,\"kind\":\"ckpt_save\",\"dur_s\":3}\n{\"ts\":70,\"kind\":\"custom\",\"dur_s\":5,\"tag\":\"profiling\"}\n\
            {\"ts\":80,\"kind\":\"step\",\"step\":2,\"dur_s\":10}\n{\"ts\":82,\"kind\":\"job_end\"}\n";
        let (_, split) = spent(text);
        let whole = split.spent.as_ref().expect("a clock");
        assert_eq!(whole.wall, 82_000_000);
        assert_eq!(whole.productive, 18_000_000);
        assert_eq!(whole.unattributed, 4_000_000);
        let found: Vec<(&str, i64)> = whole
            .badput
            .iter()
            .map(|(c, t)| (c.name(), t / 1_000_000))
            .collect();
        assert_eq!(
            found,
            [
                ("init", 30),
                ("compile", 20),
                ("data_wait", 2),
                ("checkpoint_save", 3),
                ("custom", 5)
            ]
        );
    }

    #[test]
    fn a_slow_first_step_that_nothing_explains_was_compiled() {
        let with = |first: f64, more: &str| {
            let mut text = more.to_string()
                + &format!("{{\"ts\":{first},\"kind\":\"step\",\"step\":1,\"dur_s\":{first}}}\n");
            for number in 2..=6 {
                text += &step(first + 10.0 * (number - 1) as f64, number);
            }
            spent(&text).1
        };
        let split = with(50.0, "");
        assert_eq!(seconds(&split, Category::Compile), 40.0);
        assert_eq!(
            split.spent.as_ref().map(|whole| whole.productive),
            Some(60_000_000)
        );
        assert!(
            split
                .inferred
                .iter()
                .any(|said| said.contains("warming up"))
        );
        // Up to one step more is no sign of anything.
        assert_eq!(seconds(&with(20.0, ""), Category::Compile), 0.0);
        // Where the log tells of compiling it knows better.
        let told = with(50.0, "{\"ts\":5,\"kind\":\"compile\",\"dur_s\":5}\n");
        assert_eq!(seconds(&told, Category::Compile), 5.0);
        assert_eq!(told.spent.map(|whole| whole.productive), Some(95_000_000));
    }

    #[test]
    fn skipped_steps_and_losses_that_are_no_number_are_lost() {
        let text = step(10.0, 1)
            + "{\"ts\":20,\"kind\":\"step\",\"step\":2,\"loss\":NaN,\"dur_s\":10}\n"
            + &step(30.0, 3);
        let (trace, split) = spent(&text);
        assert_eq!(seconds(&split, Category::WastedProgress), 10.0);
        assert_eq!(split.done.lost_steps, 1);
        assert!(
            trace.warnings[0].contains("0.jsonl:2"),
            "{:?}",
            trace.warnings
        );
    }

    #[test]
    fn without_a_clock_time_is_unknown() {
        let (trace, split) = spent(
            "{\"kind\":\"step\",\"step\":1,\"dur_s\":10}\n{\"kind\":\"step\",\"step\":2,\"dur_s\":10}\n",
        );
        assert!(!trace.has_clock && split.spent.is_none());
        assert_eq!(split.done.timed_micros, 20_000_000);
        // One line without a clock is enough.
        let (trace, _) = spent(
            &(step(10.0, 1) + "{\"kind\":\"step\",\"step\":2,\"dur_s\":10}\n" + &step(30.0, 3)),
        );
        assert!(!trace.has_clock);
    }

    #[test]
    fn named_attempts_may_stand_in_any_order() {
        let line = |attempt: u64, ts: f64, step: u64| {
            format!(
                "{{\"attempt\":{attempt},\"ts\":{ts},\"kind\":\"step\",\"step\":{step},\"dur_s\":10}}\n"
            )
        };
        let sorted = line(1, 10.0, 1) + &line(1, 20.0, 2) + &line(2, 110.0, 2) + &line(2, 120.0, 3);
        let mixed = line(2, 120.0, 3) + &line(1, 20.0, 2) + &line(2, 110.0, 2) + &line(1, 10.0, 1);
        let (a, b) = (spent(&sorted).1, spent(&mixed).1);
        assert_eq!(a.spent, b.spent);
        assert_eq!(a.done.replayed_steps, 1);
        assert_eq!(a.attempts.len(), 2);
    }

    #[test]
    fn lines_out_of_order_are_sorted_and_it_is_said() {
        let text = step(10.0, 1) + &step(30.0, 3) + &step(20.0, 2) + &step(40.0, 4);
        let (trace, split) = spent(&text);
        assert_eq!(trace.attempts.len(), 1);
        assert_eq!(split.done.steps, 4);
        assert!(
            trace
                .inferred
                .iter()
                .any(|said| said.contains("out of order"))
        );
    }

    #[test]
    fn a_clock_that_goes_back_a_negative_duration_and_a_jump_are_refused_with_their_lines() {
        let text = step(100.0, 1) + &step(110.0, 2) + &step(50.0, 3) + &step(60.0, 4);
        assert!(refused(&[&text])[0].starts_with("0.jsonl:3: step 3 ends 60 s before step 2"));
        let text = step(10.0, 1) + "{\"ts\":12,\"kind\":\"eval\",\"dur_s\":-2}\n";
        assert!(refused(&[&text])[0].starts_with("0.jsonl:2: a duration of -2 s is negative"));
        let mut text = String::new();
        for number in 1..=5 {
            text += &step(10.0 * number as f64, number);
        }
        text += &step(60.0, 5000);
        assert!(refused(&[&text])[0].starts_with("0.jsonl:6: steps jump from 5 to 5000"));
    }

    #[test]
    fn a_hole_that_the_clock_allows_is_said() {
        let line =
            |ts: f64, step: u64| format!("{{\"ts\":{ts},\"kind\":\"step\",\"step\":{step}}}\n");
        let mut text = String::new();
        for number in 1..=20 {
            text += &line(10.0 * number as f64, number);
        }
        text += &line(1000.0, 100);
        let (trace, split) = spent(&text);
        assert!(
            trace.warnings[0].contains("0.jsonl:21: steps jump from 20 to 100"),
            "{:?}",
            trace.warnings
        );
        assert_eq!(split.done.steps, 100);
    }

    #[test]
    fn attempts_that_overlap_are_refused_with_both_places() {
        let first = step(10.0, 1) + &step(20.0, 2) + &step(30.0, 3);
        let second = step(25.0, 3) + &step(35.0, 4);
        let refusals = refused(&[&first, &second]);
        assert!(
            refusals[0].starts_with("1.jsonl:1: attempts overlap: this one begins 15 s before"),
            "{refusals:?}"
        );
        assert!(refusals[0].contains("0.jsonl:3"));
        // Half a second is the clocks of two machines.
        let second = step(39.5, 4) + &step(49.5, 5);
        assert!(traced(&[&first, &second]).is_ok());
    }

    #[test]
    fn copies_of_a_line_by_several_ranks_are_used_once() {
        let text =
            step(10.0, 1) + &step(10.2, 1) + &step(20.0, 2) + &step(20.0, 2) + &step(30.0, 3);
        let (trace, split) = spent(&text);
        assert_eq!((trace.attempts.len(), split.done.steps), (1, 3));
        assert!(
            trace
                .inferred
                .iter()
                .any(|said| said.starts_with("2 lines repeat"))
        );
    }

    #[test]
    fn time_between_attempts_may_be_left_out() {
        let trace = traced(&[&golden(step)]).expect("measurable");
        let split = split(&trace, None, false);
        let whole = split.spent.expect("a clock");
        assert_eq!((whole.wall, whole.lost()), (2_020_000_000, 20_000_000));
    }

    #[test]
    fn tokens_are_those_of_the_lines_else_of_a_step() {
        let line = |ts: f64, step: u64, tokens: &str| {
            format!("{{\"ts\":{ts},\"kind\":\"step\",\"step\":{step}{tokens},\"dur_s\":10}}\n")
        };
        let text = line(10.0, 1, ",\"tokens\":100")
            + &line(20.0, 2, "")
            + &line(30.0, 3, ",\"tokens\":300");
        let trace = traced(&[&text]).expect("measurable");
        assert_eq!(trace.tokens_per_step, Some(100.0));
        assert_eq!(split(&trace, Some(50.0), true).done.tokens, 450.0);
    }

    proptest! {
        #[test]
        fn whatever_the_log_the_parts_add_up(
            events in prop::collection::vec((0u8..6, 0u32..3000, 0u32..200, 0u64..60), 1..60)
        ) {
            const KINDS: [&str; 6] = ["step", "step", "eval", "ckpt_save", "job_start", "data_wait"];
            let mut text = String::new();
            for (kind, ts, duration, step) in events {
                text += &format!(
                    "{{\"ts\":{ts},\"kind\":\"{}\",\"step\":{step},\"dur_s\":{}}}\n",
                    KINDS[kind as usize], f64::from(duration) / 7.0
                );
            }
            if let Ok(trace) = traced(&[&text]) {
                let split = split(&trace, Some(10.0), true);
                for (spent, done) in &split.attempts {
                    prop_assert!(spent.closes(), "{:?}", spent);
                    prop_assert!(done.replayed_steps + done.lost_steps <= done.steps);
                }
                if let Some(whole) = split.spent {
                    prop_assert!(whole.closes(), "{:?}", whole);
                    let first = trace.attempts.iter().filter_map(|a| a.start).min();
                    let last = trace.attempts.iter().filter_map(|a| a.end).max();
                    prop_assert_eq!(Some(whole.wall), last.zip(first).map(|(last, first)| last - first));
                }
            }
        }
    }
}
