//! The only room that prints. Results go to stdout, all else to stderr.
#![expect(clippy::print_stderr, reason = "this room is the door to the terminal")]

use crate::engine::{Progress, Unit};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ProgressMode {
    /// A bar where stderr is a terminal, else plain lines.
    Auto,
    /// A bar.
    Bar,
    /// A line now and then.
    Plain,
    /// One JSON object a line.
    Json,
    /// Nothing but warnings and errors.
    Off,
}

/// Writes a result for people to stdout: whatever stands in it, names from files among them, cannot
/// command the terminal. A reader that has gone away is no error.
///
/// # Errors
/// When stdout cannot be written for another reason.
pub fn print(text: &str) -> io::Result<()> {
    write(&printable(text))
}

/// Writes a result for programs to stdout: byte by byte as it is, but for a terminal as [`print()`] does.
///
/// # Errors
/// As [`print()`].
pub fn print_data(text: &str) -> io::Result<()> {
    match io::stdout().is_terminal() {
        true => print(text),
        false => write(text),
    }
}

/// Writes a result with colours to stdout. Its parts must have gone through [`printable`].
///
/// # Errors
/// As [`print()`].
pub fn print_coloured(text: &str) -> io::Result<()> {
    write(text)
}

/// Text that cannot command a terminal: control characters would move the cursor or worse, and marks of
/// direction reorder the line, so U+FFFD stands for each. Line ends and tabs stay.
pub fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if is_command(c) { '\u{fffd}' } else { c })
        .collect()
}

/// A name, an id or the like, [`printable`] and on one line.
pub fn printable_line(text: &str) -> String {
    printable(text).replace(['\n', '\t'], "\u{fffd}")
}

fn is_command(c: char) -> bool {
    (c.is_control() && c != '\n' && c != '\t')
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Says something beside the result.
pub fn say(text: &str) {
    eprintln!("{}", printable(text));
}

/// Whether stdout shows colours: a terminal, and nobody set `NO_COLOR`.
pub fn stdout_has_colour() -> bool {
    io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

struct Phase {
    name: String,
    unit: Unit,
    total: u64,
    done: u64,
    began: Instant,
    told: Instant,
    bar: Option<ProgressBar>,
}

/// Shows the engine's reports.
pub struct Reporter {
    mode: ProgressMode,
    began: Instant,
    phase: Mutex<Option<Phase>>,
    log: Mutex<Vec<String>>,
}

/// Seconds between plain lines.
const PLAIN_EVERY: Duration = Duration::from_secs(5);

impl Reporter {
    /// A reporter for this terminal.
    pub fn new(mode: ProgressMode) -> Reporter {
        let mode = match mode {
            ProgressMode::Auto if io::stderr().is_terminal() => ProgressMode::Bar,
            ProgressMode::Auto => ProgressMode::Plain,
            other => other,
        };
        Reporter {
            mode,
            began: Instant::now(),
            phase: Mutex::new(None),
            log: Mutex::new(Vec::new()),
        }
    }

    /// What was reported, a line each: the text of `run.log`.
    pub fn log(&self) -> String {
        self.log.lock().map(|log| log.concat()).unwrap_or_default()
    }

    fn note(&self, text: &str) {
        let text = printable(text);
        if let Ok(mut log) = self.log.lock() {
            log.push(format!(
                "{:>10.3}s  {text}\n",
                self.began.elapsed().as_secs_f64()
            ));
        }
    }

    fn tell(&self, phase: &Phase, event: &str) {
        let seconds = phase.began.elapsed().as_secs_f64();
        match self.mode {
            ProgressMode::Json => eprintln!(
                "{}",
                serde_json::json!({ "event": event, "phase": phase.name, "done": phase.done, "total": phase.total,
                    "unit": unit_name(phase.unit), "seconds": seconds })
            ),
            ProgressMode::Plain if event == "end" && phase.done == 0 => {
                // A phase that counts nothing.
                eprintln!("{:<20} {seconds:.1} s", phase.name);
            }
            ProgressMode::Plain if event == "end" => {
                eprintln!(
                    "{:<20} {} in {seconds:.1} s",
                    phase.name,
                    amount(phase.done, phase.unit)
                );
            }
            ProgressMode::Plain if event == "progress" => {
                let share = if phase.total > 0 {
                    format!(" of {}", amount(phase.total, phase.unit))
                } else {
                    String::new()
                };
                eprintln!(
                    "{:<20} {}{share} after {seconds:.0} s",
                    phase.name,
                    amount(phase.done, phase.unit)
                );
            }
            _ => {}
        }
    }
}

fn unit_name(unit: Unit) -> &'static str {
    match unit {
        Unit::Bytes => "bytes",
        Unit::Documents => "documents",
        Unit::Tokens => "tokens",
        Unit::Rows => "rows",
    }
}

fn amount(number: u64, unit: Unit) -> String {
    match unit {
        Unit::Bytes => format!("{:.1} MB", number as f64 / 1e6),
        _ => format!("{} {}", crate::audit::grouped(number), unit_name(unit)),
    }
}

impl Progress for Reporter {
    fn begin(&self, name: &str, total: u64, unit: Unit) {
        self.note(&format!("{name} begins"));
        let bar = (self.mode == ProgressMode::Bar).then(|| {
            let shown = if unit == Unit::Bytes {
                "{bytes}/{total_bytes} {bytes_per_sec}"
            } else {
                "{human_pos}/{human_len} {per_sec}"
            };
            let template = if total > 0 {
                format!("{{prefix:<20}} {{bar:30}} {shown} {{eta}}")
            } else {
                "{prefix:<20} {spinner} {elapsed}".to_string()
            };
            let style = ProgressStyle::with_template(&template)
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            let bar =
                ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr_with_hz(8))
                    .with_style(style)
                    .with_prefix(name.to_string());
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        let now = Instant::now();
        let phase = Phase {
            name: name.to_string(),
            unit,
            total,
            done: 0,
            began: now,
            told: now,
            bar,
        };
        self.tell(&phase, "begin");
        if let Ok(mut current) = self.phase.lock() {
            *current = Some(phase);
        }
    }

    fn advance(&self, by: u64) {
        let Ok(mut current) = self.phase.lock() else {
            return;
        };
        let Some(phase) = current.as_mut() else {
            return;
        };
        phase.done += by;
        if let Some(bar) = &phase.bar {
            bar.inc(by);
        }
        if phase.told.elapsed() >= PLAIN_EVERY {
            phase.told = Instant::now();
            self.tell(phase, "progress");
        }
    }

    fn end(&self) {
        let Ok(mut current) = self.phase.lock() else {
            return;
        };
        if let Some(phase) = current.take() {
            if let Some(bar) = &phase.bar {
                bar.finish_and_clear();
            }
            self.tell(&phase, "end");
            self.note(&format!(
                "{} ends, {} in {:.3} s",
                phase.name,
                amount(phase.done, phase.unit),
                phase.began.elapsed().as_secs_f64()
            ));
        }
    }

    fn warn(&self, text: &str) {
        self.note(&format!("warning: {text}"));
        let line = match self.mode {
            ProgressMode::Json => {
                serde_json::json!({ "event": "warning", "text": text }).to_string()
            }
            _ => format!("warning: {}", printable(text)),
        };
        match self
            .phase
            .lock()
            .ok()
            .as_ref()
            .and_then(|phase| phase.as_ref()?.bar.as_ref())
        {
            Some(bar) => bar.suspend(|| eprintln!("{line}")),
            None => eprintln!("{line}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_command_the_terminal() {
        assert_eq!(printable("a\x1b[2J\nb\tc\r"), "a\u{fffd}[2J\nb\tc\u{fffd}");
        assert_eq!(printable("\u{9b}31m\u{7f}"), "\u{fffd}31m\u{fffd}");
        assert_eq!(printable_line("a\nb\u{202e}"), "a\u{fffd}b\u{fffd}");
    }
}
