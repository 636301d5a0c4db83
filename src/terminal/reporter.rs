//! Shows the engine's reports as they come: bars, lines or JSON on stderr, the run's log, metrics.

use super::facts::{Facts, Phase};
use super::log::{Events, Log, Places};
use super::metrics::Server;
use super::{ProgressMode, json_line, one_entry, printable_line, say};
use crate::engine::{Flow, Progress, Unit};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use std::io::{self, IsTerminal};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tracing::Level;
use tracing::level_filters::LevelFilter;

/// Time between two lines of a phase.
const LINE_EVERY: Duration = Duration::from_secs(30);
/// Time between two looks of a bar.
const BAR_EVERY: Duration = Duration::from_millis(200);

/// Where this program's log events go: the reporter that keeps a log, while it lives.
static LISTENS: Mutex<Weak<Shared>> = Mutex::new(Weak::new());

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the reporter's threads share.
pub(super) struct Shared {
    mode: ProgressMode,
    /// Log events of this level and above are said.
    said: LevelFilter,
    began: Instant,
    facts: Mutex<Facts>,
    bar: Mutex<Option<ProgressBar>>,
    log: Mutex<Log>,
    /// Set when the reporter ends; wakes the thread that shows what goes on.
    ended: (Mutex<bool>, Condvar),
    /// Writes lines to the terminal.
    line: fn(&str),
}

impl Shared {
    fn now(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Reads what is known at this moment.
    pub fn look<T>(&self, read: impl FnOnce(&Facts, f64) -> T) -> T {
        read(&locked(&self.facts), self.now())
    }

    /// Says lines, above the bar where there is one.
    fn say(&self, text: &str) {
        let bar = locked(&self.bar).clone();
        match bar {
            Some(bar) => bar.suspend(|| (self.line)(text)),
            None => (self.line)(text),
        }
    }

    fn note(&self, level: &str, text: &str) {
        let written = locked(&self.log).line(self.now(), level, text);
        self.or_say(written);
    }

    /// A log that cannot be written does not end a run.
    fn or_say(&self, written: io::Result<()>) {
        if let Err(error) = written {
            self.say_warning(&format!(
                "run.log lacks a line: {error}; see to the output folder"
            ));
        }
    }

    fn say_warning(&self, text: &str) {
        match self.mode {
            ProgressMode::Json => {
                self.say(&json_line(&json!({ "event": "warning", "text": text })));
            }
            _ => self.say(&format!("warning: {}", one_entry(text))),
        }
    }

    /// What this program's code logs.
    fn event(&self, level: Level, text: &str) {
        let word = level.as_str().to_ascii_lowercase();
        self.note(&word, text);
        if LevelFilter::from_level(level) > self.said {
            return;
        }
        match self.mode {
            ProgressMode::Json => self.say(&json_line(
                &json!({ "event": "log", "level": word, "text": text, "at_seconds": self.now() }),
            )),
            _ => self.say(&format!("{word}: {}", one_entry(text))),
        }
    }

    fn phase_line(phase: &Phase, words: &str) -> String {
        format!("{:<20} {words}", phase.name)
    }

    /// How far the phase is, at a moment when a line is due.
    fn tell(&self, facts: &Facts, event: &str, phase: &Phase) -> Option<String> {
        match (self.mode, event) {
            (ProgressMode::Json, event) => Some(json_line(&facts.event(event, phase, self.now()))),
            (ProgressMode::Plain, "progress") => Some(Self::phase_line(
                phase,
                &(phase.words(self.now()) + &facts.kept_words()),
            )),
            (ProgressMode::Plain | ProgressMode::Bar, "end") => {
                Some(Self::phase_line(phase, &phase.end_words(self.now())))
            }
            _ => None,
        }
    }

    /// What stages have kept, once a phase has ended.
    fn tell_kept(&self) {
        let lines = locked(&self.facts).news();
        for line in lines {
            self.note("info", line.trim());
            if matches!(self.mode, ProgressMode::Plain | ProgressMode::Bar) {
                self.say(&format!("  {line}"));
            }
        }
    }

    fn refresh(&self, bar: &ProgressBar) {
        let Some((done, words)) = self.look(|facts, now| {
            let phase = facts.phase.as_ref()?;
            Some((
                phase.done.min(phase.total.max(1)),
                phase.words(now) + &facts.kept_words(),
            ))
        }) else {
            return;
        };
        bar.set_message(printable_line(&words));
        bar.set_position(done);
        bar.tick();
    }

    /// Shows what goes on until the reporter ends: the engine's threads only count.
    fn watch(&self, lines_every: Duration) {
        let every = match self.mode {
            ProgressMode::Bar => BAR_EVERY,
            _ => lines_every.min(Duration::from_secs(1)),
        };
        let mut told = (String::new(), 0.0, self.now());
        loop {
            let ended = locked(&self.ended.0);
            let waited = self
                .ended
                .1
                .wait_timeout_while(ended, every, |ended| !*ended);
            if *waited.unwrap_or_else(PoisonError::into_inner).0 {
                return;
            }
            if self.mode == ProgressMode::Bar {
                let bar = locked(&self.bar).clone();
                bar.iter().for_each(|bar| self.refresh(bar));
                continue;
            }
            let due = self.look(|facts, now| {
                let phase = facts.phase.as_ref()?;
                if (told.0.as_str(), told.1) != (phase.name.as_str(), phase.began) {
                    told = (phase.name.clone(), phase.began, told.2.max(phase.began));
                }
                if now - told.2 < lines_every.as_secs_f64() {
                    return None;
                }
                told.2 = now;
                self.tell(facts, "progress", phase)
            });
            due.iter().for_each(|line| self.say(line));
        }
    }
}

/// Shows the engine's reports, and keeps the log of the run.
pub struct Reporter {
    shared: Arc<Shared>,
    watch: Option<JoinHandle<()>>,
    /// Ends with the reporter.
    server: Option<Server>,
}

impl Reporter {
    /// A reporter for this terminal. What it keeps of the run names only such paths as `places` allows.
    /// With `verbose` 1, what the engine decides is said as well, with 2 also which files it works on.
    pub fn new(mode: ProgressMode, verbose: u8, places: Places) -> Reporter {
        let mode = match mode {
            ProgressMode::Auto if io::stderr().is_terminal() => ProgressMode::Bar,
            ProgressMode::Auto => ProgressMode::Plain,
            other => other,
        };
        let reporter = Reporter::with(mode, verbose, places, LINE_EVERY, say);
        *locked(&LISTENS) = Arc::downgrade(&reporter.shared);
        // The log has what is decided in any case. A process has one such listener, its first.
        let _ = tracing::subscriber::set_global_default(Events {
            most: match verbose {
                0 | 1 => LevelFilter::INFO,
                _ => LevelFilter::DEBUG,
            },
            to: |level, text| {
                let listens = locked(&LISTENS).upgrade();
                listens.iter().for_each(|shared| shared.event(level, text));
            },
        });
        reporter
    }

    fn with(
        mode: ProgressMode,
        verbose: u8,
        places: Places,
        lines_every: Duration,
        line: fn(&str),
    ) -> Reporter {
        let shared = Arc::new(Shared {
            mode,
            said: match verbose {
                0 => LevelFilter::OFF,
                1 => LevelFilter::INFO,
                _ => LevelFilter::DEBUG,
            },
            began: Instant::now(),
            facts: Mutex::new(Facts::default()),
            bar: Mutex::new(None),
            log: Mutex::new(Log::new(places)),
            ended: (Mutex::new(false), Condvar::new()),
            line,
        });
        let watch = (mode != ProgressMode::Off).then(|| {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || shared.watch(lines_every))
        });
        Reporter {
            shared,
            watch,
            server: None,
        }
    }

    /// Answers those who ask for metrics, until the reporter ends.
    ///
    /// # Errors
    /// When the listener is of no use.
    pub fn serve(&mut self, listener: TcpListener) -> io::Result<SocketAddr> {
        let address = listener.local_addr()?;
        self.server = Some(Server::start(listener, Arc::clone(&self.shared))?);
        match self.shared.mode {
            ProgressMode::Json => self.shared.say(&json_line(
                &json!({ "event": "metrics", "address": address.to_string() }),
            )),
            ProgressMode::Off => {}
            _ => self
                .shared
                .say(&format!("metrics at http://{address}/metrics")),
        }
        if !address.ip().is_loopback() {
            self.warn(&format!(
                "metrics are shown to everybody who reaches {address}; name a port alone to show them on this machine only"
            ));
        }
        Ok(address)
    }

    /// Notes in the log why the run ended without its result.
    pub fn note_error(&self, error: &dyn std::error::Error) {
        self.shared.note("error", &error.to_string());
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.server = None;
        *locked(&self.shared.ended.0) = true;
        self.shared.ended.1.notify_all();
        if let Some(watch) = self.watch.take() {
            // It only shows; where it has panicked, that has been said.
            let _ = watch.join();
        }
        if let Some(bar) = locked(&self.shared.bar).take() {
            bar.finish_and_clear();
        }
    }
}

impl Progress for Reporter {
    fn begin(&self, name: &str, total: u64, unit: Unit) {
        let shared = &self.shared;
        shared.note("info", &format!("{name} begins"));
        let line = {
            let mut facts = locked(&shared.facts);
            facts.begin(name, total, unit, shared.now());
            let phase = facts.phase.as_ref().expect("it has just begun");
            shared.tell(&facts, "begin", phase)
        };
        line.iter().for_each(|line| shared.say(line));
        if shared.mode == ProgressMode::Bar {
            let template = match total {
                0 => "{prefix:<20} {spinner} {wide_msg}",
                _ => "{prefix:<20} {bar:10} {wide_msg}",
            };
            let style = ProgressStyle::with_template(template)
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            let target = ProgressDrawTarget::stderr_with_hz(8);
            let bar = ProgressBar::with_draw_target(Some(total.max(1)), target)
                .with_style(style)
                .with_prefix(printable_line(name));
            shared.refresh(&bar);
            *locked(&shared.bar) = Some(bar);
        }
    }

    fn advance(&self, by: u64) {
        locked(&self.shared.facts).advance(by, false);
    }

    fn found(&self, by: u64) {
        locked(&self.shared.facts).advance(by, true);
    }

    fn tokens(&self, tokens: u64) {
        locked(&self.shared.facts).tokens(tokens);
    }

    fn end(&self) {
        let shared = &self.shared;
        if let Some(bar) = locked(&shared.bar).take() {
            bar.finish_and_clear();
        }
        let (phase, line, words) = {
            let mut facts = locked(&shared.facts);
            let now = shared.now();
            let Some(phase) = facts.end(now) else {
                return;
            };
            let line = shared.tell(&facts, "end", &phase);
            let words = phase.end_words(now);
            (phase, line, words)
        };
        line.iter().for_each(|line| shared.say(line));
        shared.note("info", &format!("{} ends: {words}", phase.name));
        shared.tell_kept();
    }

    fn chain(&self, labels: &[&str]) {
        locked(&self.shared.facts).labels =
            labels.iter().map(|label| printable_line(label)).collect();
    }

    fn kept(&self, stage: u16, more: Flow) {
        locked(&self.shared.facts).kept(stage, more);
    }

    fn folder(&self, out: &Path) {
        let opened = locked(&self.shared.log).open(&out.join("run.log"));
        self.shared.or_say(opened);
    }

    fn warn(&self, text: &str) {
        locked(&self.shared.facts).warnings += 1;
        self.shared.note("warning", text);
        self.shared.say_warning(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::metrics::{MetricsAddress, listen};
    use std::io::{Read, Write};
    use std::net::TcpStream;

    fn reporter(mode: ProgressMode, every: Duration, line: fn(&str)) -> Reporter {
        Reporter::with(mode, 0, Places::default(), every, line)
    }

    #[test]
    fn a_long_phase_says_how_far_it_is_also_where_nothing_advances() {
        static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());
        let reporter = reporter(ProgressMode::Plain, Duration::from_millis(100), |line| {
            locked(&SAID).push(line.to_string());
        });
        reporter.begin("fit", 0, Unit::Tokens);
        std::thread::sleep(Duration::from_millis(450));
        reporter.end();
        let shared = Arc::downgrade(&reporter.shared);
        drop(reporter);
        assert_eq!(shared.strong_count(), 0, "its thread has ended");
        let said = locked(&SAID).clone();
        let during = said.iter().filter(|line| line.contains("so far")).count();
        assert!((1..=5).contains(&during), "{said:?}");
        assert!(
            said.last().is_some_and(|line| line.starts_with("fit ")),
            "{said:?}"
        );
    }

    #[test]
    fn a_short_phase_says_nothing_in_between() {
        static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());
        let reporter = reporter(ProgressMode::Plain, LINE_EVERY, |line| {
            locked(&SAID).push(line.to_string());
        });
        for _ in 0..3 {
            reporter.begin("select", 10, Unit::Documents);
            reporter.advance(10);
            reporter.end();
        }
        assert_eq!(locked(&SAID).len(), 3);
    }

    fn scrape(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.write_all(request.as_bytes()).expect("written");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        answer
    }

    #[test]
    fn metrics_are_served_while_the_reporter_lives_and_no_longer() {
        let mut reporter = reporter(ProgressMode::Off, LINE_EVERY, |_| {});
        let address: MetricsAddress = "0".parse().expect("any free port");
        let address = reporter
            .serve(listen(&address).expect("free"))
            .expect("serves");
        assert!(address.ip().is_loopback());
        reporter.chain(&["tokenize", "a \"b\"\\\n"]);
        reporter.begin("prepare", 1000, Unit::Bytes);
        reporter.advance(250);
        reporter.tokens(77);
        let flow = Flow {
            documents: 5,
            tokens: 50,
            documents_kept: 4,
            tokens_kept: 30,
        };
        reporter.kept(1, flow);
        reporter.warn("something");
        // One that connects and says nothing is in nobody's way for long.
        let silent = TcpStream::connect(address).expect("it listens");
        let answer = scrape(address, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        for line in [
            "# TYPE goodput_tokens_total counter",
            "goodput_tokens_total{phase=\"prepare\"} 77",
            "goodput_bytes_total{phase=\"prepare\"} 250",
            "goodput_phase_progress_ratio{phase=\"prepare\"} 0.25",
            "goodput_stage_tokens_total{stage=\"a \\\"b\\\"\\\\\u{fffd}\",outcome=\"kept\"} 30",
            "goodput_stage_documents_total{stage=\"a \\\"b\\\"\\\\\u{fffd}\",outcome=\"removed\"} 1",
            "goodput_warnings_total 1",
        ] {
            assert!(
                answer.lines().any(|found| found == line),
                "{line} in {answer}"
            );
        }
        for (request, status) in [
            ("GET /other HTTP/1.1\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
            ("nonsense\r\n\r\n", "400"),
        ] {
            let answer = scrape(address, request);
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status} ")),
                "{answer}"
            );
        }
        drop(silent);
        // A counter keeps what its phase came to.
        reporter.end();
        let answer = scrape(address, "GET /metrics HTTP/1.0\r\n\r\n");
        assert!(answer.contains("goodput_tokens_total{phase=\"prepare\"} 77\n"));
        assert!(!answer.contains("goodput_phase_running"));
        let shared = Arc::downgrade(&reporter.shared);
        drop(reporter);
        assert_eq!(shared.strong_count(), 0, "its threads have ended");
        assert!(TcpStream::connect(address).is_err());
    }
}
