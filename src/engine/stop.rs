//! A request to stop, and signs of life.

use super::EngineError;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A request to stop, seen by all workers between two pieces of work; and what they are at.
#[derive(Debug, Default)]
pub struct Stop {
    requested: AtomicBool,
    signs: AtomicU64,
    items: Mutex<BTreeMap<u64, (String, Instant)>>,
    next: AtomicU64,
}

/// Something that a worker is at, as long as this lives.
#[must_use]
pub struct Item<'a> {
    stop: &'a Stop,
    number: u64,
}

impl Drop for Item<'_> {
    fn drop(&mut self) {
        self.stop.alive();
        self.stop.with_items(|items| {
            items.remove(&self.number);
        });
    }
}

impl Stop {
    /// Nothing asks to stop.
    pub const fn new() -> Stop {
        Stop {
            requested: AtomicBool::new(false),
            signs: AtomicU64::new(0),
            items: Mutex::new(BTreeMap::new()),
            next: AtomicU64::new(0),
        }
    }

    /// Asks all workers to stop soon.
    pub fn request(&self) {
        self.requested.store(true, Ordering::Relaxed);
    }

    /// An error where somebody asked to stop. Whoever asks is alive.
    ///
    /// # Errors
    /// [`EngineError::Interrupted`].
    pub fn check(&self) -> Result<(), EngineError> {
        self.alive();
        if self.requested.load(Ordering::Relaxed) {
            Err(EngineError::Interrupted)
        } else {
            Ok(())
        }
    }

    /// Says that a piece of work was done.
    pub fn alive(&self) {
        self.signs.fetch_add(1, Ordering::Relaxed);
    }

    /// Says what a worker is at now, in words that complete "it is at", e.g. `reading a.jsonl`.
    pub fn at(&self, item: impl Into<String>) -> Item<'_> {
        self.alive();
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let item = (item.into(), Instant::now());
        self.with_items(|items| {
            items.insert(number, item);
        });
        Item { stop: self, number }
    }

    fn with_items<T>(&self, with: impl FnOnce(&mut BTreeMap<u64, (String, Instant)>) -> T) -> T {
        with(&mut self.items.lock().expect("no holder of the lock panics"))
    }

    /// Returns where nobody gave a sign of life and the process computed nothing for `timeout`: what it was at, and
    /// what to do. Looks once in a tenth of that time, at least every second.
    ///
    /// A step that is slow is at work: it takes the time of a core. Only one that waits, for a disk or a network
    /// that does not answer, takes none.
    pub fn stalled(&self, timeout: Duration) -> String {
        let look = (timeout / 10).min(Duration::from_secs(1));
        let mut last = (
            Instant::now(),
            self.signs.load(Ordering::Relaxed),
            core_seconds(),
        );
        loop {
            std::thread::sleep(look);
            let (signs, core) = (self.signs.load(Ordering::Relaxed), core_seconds());
            let waited = last.0.elapsed();
            if signs != last.1 || core - last.2 > IDLE_SHARE * waited.as_secs_f64() + CORE_TICK {
                last = (Instant::now(), signs, core);
            } else if waited >= timeout {
                return self.told(timeout);
            }
        }
    }

    fn told(&self, timeout: Duration) -> String {
        let mut at: Vec<String> = self.with_items(|items| {
            // The latest are the narrowest: a file, not the phase.
            let latest = items.values().rev().take(NAMED);
            latest
                .map(|(item, since)| format!("{item} (for {} s)", since.elapsed().as_secs()))
                .collect()
        });
        if at.is_empty() {
            at.push("nothing that has a name".to_string());
        }
        format!(
            "no progress for {} s: nothing was read, written or computed. It is at {}. See to the disk or the network \
             that this lies on; what was finished is kept, and the same command goes on from there. A longer \
             --stall-timeout waits longer",
            timeout.as_secs_f64(),
            at.join(", ")
        )
    }
}

/// Items that a message names.
const NAMED: usize = 3;
/// A process that takes less than this share of a core does nothing: what watches it takes a tenth of that.
const IDLE_SHARE: f64 = 0.02;
/// The system counts core seconds in steps of this.
const CORE_TICK: f64 = 0.01;

/// CPU seconds of this process so far; 0 where the system does not tell.
pub fn core_seconds() -> f64 {
    // Fields 14 and 15 after the name in parentheses: user and system time in ticks of 10 ms.
    let read = || -> Option<f64> {
        let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        Some((fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?) / 100.0)
    };
    read().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_named_as_long_as_it_lives() {
        let stop = Stop::new();
        let outer = stop.at("score");
        let inner = stop.at("reading a.jsonl");
        let told = stop.told(Duration::from_secs(1));
        assert!(
            told.contains("It is at reading a.jsonl (for 0 s), score (for 0 s)."),
            "{told}"
        );
        drop(inner);
        assert!(!stop.told(Duration::from_secs(1)).contains("a.jsonl"));
        drop(outer);
        assert!(
            stop.told(Duration::from_secs(1))
                .contains("nothing that has a name")
        );
    }
}
