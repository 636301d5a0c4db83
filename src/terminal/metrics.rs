//! Metrics of a run for Prometheus: the text format 0.0.4 over HTTP, a thread that ends with the run.
//!
//! `std::net` and a page of text do it; an exporter crate would bring an async runtime and an HTTP stack
//! for an answer a few times a minute.

use super::facts::{Facts, Phase, place_of};
use super::printable_line;
use super::reporter::Shared;
use crate::engine::{anonymous_bytes, core_seconds};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time between two looks whether somebody asks.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Time that one who asks may take.
const REQUEST_TIME: Duration = Duration::from_secs(2);
/// Bytes that a request may have.
const REQUEST_BYTES: usize = 8192;

/// Where metrics are served: `PORT`, `:PORT` or `HOST:PORT`. Port 0 is any that is free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsAddress {
    host: Option<String>,
    port: u16,
}

impl FromStr for MetricsAddress {
    type Err = String;
    fn from_str(text: &str) -> Result<MetricsAddress, String> {
        let wrong = || {
            "must be PORT, :PORT or HOST:PORT with a port from 0 to 65535, e.g. 9184 or [::1]:9184"
                .to_string()
        };
        let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
        // An IPv6 address without brackets has colons of its own.
        if host.contains(':') && !(host.starts_with('[') && host.ends_with(']'))
            || port.is_empty()
            || !port.bytes().all(|byte| byte.is_ascii_digit())
        {
            return Err(wrong());
        }
        Ok(MetricsAddress {
            host: (!host.is_empty()).then(|| host.to_string()),
            port: port.parse().map_err(|_| wrong())?,
        })
    }
}

/// Takes the address, on this machine's own loopback where it names no host.
///
/// # Errors
/// When it cannot be had, such as a port that is in use, in words that end in a way out.
pub fn listen(address: &MetricsAddress) -> Result<TcpListener, String> {
    let shown = match &address.host {
        Some(host) => format!("{host}:{}", address.port),
        None => format!("{}:{}", Ipv4Addr::LOCALHOST, address.port),
    };
    let found: Vec<SocketAddr> = shown
        .to_socket_addrs()
        .map_err(|error| format!("{shown}: {error}; name a host of this machine"))?
        .collect();
    TcpListener::bind(found.as_slice()).map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => {
            format!(
                "{shown} is in use by another program; name another port, or 0 for any that is free"
            )
        }
        ErrorKind::PermissionDenied => {
            format!("{shown} may not be used: {error}; name a port above 1023")
        }
        _ => format!("{shown} cannot be used: {error}; name an address of this machine"),
    })
}

/// Answers until it is dropped.
pub(super) struct Server {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub fn start(listener: TcpListener, shared: Arc<Shared>) -> io::Result<Server> {
        listener.set_nonblocking(true)?;
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("metrics".to_string())
            .spawn(move || {
                loop {
                    match listener.accept() {
                        // One that hangs up or asks nonsense is its own affair.
                        Ok((stream, _)) => drop(answer(stream, &shared)),
                        Err(_) => {
                            if stopped.recv_timeout(LOOK_EVERY)
                                != Err(mpsc::RecvTimeoutError::Timeout)
                            {
                                return;
                            }
                        }
                    }
                }
            })?;
        Ok(Server {
            stop: Some(stop),
            thread: Some(thread),
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn answer(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(REQUEST_TIME))?;
    let request = request(&mut stream)?;
    let mut words = request.lines().next().unwrap_or("").split(' ');
    let (method, target, protocol) = (words.next(), words.next(), words.next());
    let path = target.and_then(|target| target.split('?').next());
    let (status, body) = match (method, path, protocol) {
        (_, _, None) => ("400 Bad Request", String::new()),
        (Some("GET" | "HEAD"), Some("/metrics"), _) => ("200 OK", shared.look(exposition)),
        (Some("GET" | "HEAD"), _, _) => ("404 Not Found", "see /metrics\n".to_string()),
        _ => ("405 Method Not Allowed", String::new()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    if method != Some("HEAD") {
        stream.write_all(body.as_bytes())?;
    }
    Ok(())
}

/// The head of a request, as far as it comes in time.
fn request(stream: &mut TcpStream) -> io::Result<String> {
    let end = Instant::now() + REQUEST_TIME;
    let mut bytes = Vec::new();
    let mut buffer = [0; 1024];
    while !bytes.windows(4).any(|four| four == b"\r\n\r\n") && bytes.len() < REQUEST_BYTES {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut buffer)? {
            0 => break,
            read => bytes.extend_from_slice(&buffer[..read]),
        }
    }
    Ok(String::from_utf8_lossy(&bytes).to_string())
}

/// A metric with its samples: labels and value.
struct Metric {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    samples: Vec<(Vec<(&'static str, String)>, String)>,
}

/// The page that is served.
fn exposition(facts: &Facts, now: f64) -> String {
    let phase = |name: &str| vec![("phase", name.to_string())];
    // The phase that is going on counts as well.
    let mut sums = facts.ended.clone();
    if let Some(running) = &facts.phase {
        let sum = sums.entry(running.name.clone()).or_default();
        sum.seconds += now - running.began;
        sum.tokens += running.tokens;
        if let Some(place) = place_of(running.unit) {
            sum.done[place] += running.done;
        }
    }
    let by_phase = |value: &dyn Fn(&super::facts::Ended) -> String| -> Vec<_> {
        sums.iter()
            .map(|(name, sum)| (phase(name), value(sum)))
            .collect()
    };
    let of_running = |value: &dyn Fn(&Phase) -> Option<String>| -> Vec<_> {
        let running = facts.phase.iter();
        running
            .filter_map(|running| Some((phase(&running.name), value(running)?)))
            .collect()
    };
    let by_stage = |value: &dyn Fn(&crate::engine::Flow) -> [u64; 2]| -> Vec<_> {
        // Labels are unique in a chain, but not what is left of them to show.
        let mut sums: BTreeMap<String, [u64; 2]> = BTreeMap::new();
        for (stage, flow) in &facts.flows {
            let [kept, removed] = value(flow);
            let sum = sums.entry(facts.label(*stage)).or_default();
            *sum = [sum[0] + kept, sum[1] + removed];
        }
        sums.into_iter()
            .flat_map(|(stage, values)| {
                let labels = |outcome: &str| {
                    vec![("stage", stage.clone()), ("outcome", outcome.to_string())]
                };
                [
                    (labels("kept"), values[0].to_string()),
                    (labels("removed"), values[1].to_string()),
                ]
            })
            .collect()
    };
    let metrics = [
        Metric {
            name: "goodput_build_info",
            kind: "gauge",
            help: "Version of the program.",
            samples: vec![(
                vec![("version", env!("CARGO_PKG_VERSION").to_string())],
                "1".to_string(),
            )],
        },
        Metric {
            name: "goodput_phase_running",
            kind: "gauge",
            help: "1 for the phase that is going on.",
            samples: of_running(&|_| Some("1".to_string())),
        },
        Metric {
            name: "goodput_phase_progress_ratio",
            kind: "gauge",
            help: "Part of the running phase that is done, where its whole is known.",
            samples: of_running(&|running| {
                let share = running.done as f64 / running.total as f64;
                (running.total > 0).then(|| share.min(1.0).to_string())
            }),
        },
        Metric {
            name: "goodput_phase_remaining_seconds",
            kind: "gauge",
            help: "Seconds left of the running phase at its mean speed, where they are known.",
            samples: of_running(&|running| Some(running.seconds_left(now)?.to_string())),
        },
        Metric {
            name: "goodput_phase_seconds_total",
            kind: "counter",
            help: "Seconds on the clock by phase.",
            samples: by_phase(&|sum| sum.seconds.to_string()),
        },
        Metric {
            name: "goodput_tokens_total",
            kind: "counter",
            help: "Tokens that went through each phase.",
            samples: by_phase(&|sum| sum.tokens.to_string()),
        },
        Metric {
            name: "goodput_bytes_total",
            kind: "counter",
            help: "Bytes of files that each phase is done with, as they lie on disk.",
            samples: by_phase(&|sum| sum.done[0].to_string()),
        },
        Metric {
            name: "goodput_documents_total",
            kind: "counter",
            help: "Documents that each phase is done with, where it counts them.",
            samples: by_phase(&|sum| sum.done[1].to_string()),
        },
        Metric {
            name: "goodput_rows_total",
            kind: "counter",
            help: "Rows that each phase is done with.",
            samples: by_phase(&|sum| sum.done[2].to_string()),
        },
        Metric {
            name: "goodput_stage_documents_total",
            kind: "counter",
            help: "Documents that reached each stage, by what came of them.",
            samples: by_stage(&|flow| [flow.documents_kept, flow.documents - flow.documents_kept]),
        },
        Metric {
            name: "goodput_stage_tokens_total",
            kind: "counter",
            help: "Tokens that reached each stage, by what came of them.",
            samples: by_stage(&|flow| {
                [
                    flow.tokens_kept,
                    // What an edit leaves may be more tokens than there were.
                    flow.tokens.saturating_sub(flow.tokens_kept),
                ]
            }),
        },
        Metric {
            name: "goodput_warnings_total",
            kind: "counter",
            help: "Warnings so far.",
            samples: vec![(Vec::new(), facts.warnings.to_string())],
        },
        Metric {
            name: "goodput_anonymous_memory_bytes",
            kind: "gauge",
            help: "Anonymous memory of the process, where the system tells.",
            samples: anonymous_bytes()
                .map(|bytes| (Vec::new(), bytes.to_string()))
                .into_iter()
                .collect(),
        },
        Metric {
            name: "process_cpu_seconds_total",
            kind: "counter",
            help: "Seconds of all cores, user and system.",
            samples: vec![(Vec::new(), core_seconds().to_string())],
        },
    ];
    let mut page = String::new();
    for metric in metrics.iter().filter(|metric| !metric.samples.is_empty()) {
        let _ = writeln!(page, "# HELP {} {}", metric.name, metric.help);
        let _ = writeln!(page, "# TYPE {} {}", metric.name, metric.kind);
        for (labels, value) in &metric.samples {
            let labels: Vec<String> = labels
                .iter()
                .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
                .collect();
            match labels.is_empty() {
                true => drop(writeln!(page, "{} {value}", metric.name)),
                false => drop(writeln!(
                    page,
                    "{}{{{}}} {value}",
                    metric.name,
                    labels.join(",")
                )),
            }
        }
    }
    page
}

/// A label's value as the text format has it.
fn escaped(value: &str) -> String {
    printable_line(value)
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_ports_or_hosts_with_ports() {
        let parsed = |text: &str| text.parse::<MetricsAddress>().ok();
        let address = |host: Option<&str>, port| {
            Some(MetricsAddress {
                host: host.map(String::from),
                port,
            })
        };
        assert_eq!(parsed("9184"), address(None, 9184));
        assert_eq!(parsed(":9184"), address(None, 9184));
        assert_eq!(parsed("0"), address(None, 0));
        assert_eq!(parsed("0.0.0.0:65535"), address(Some("0.0.0.0"), 65535));
        assert_eq!(parsed("[::1]:9184"), address(Some("[::1]"), 9184));
        for wrong in [
            "", ":", "host", "host:", "65536", "-1", "+1", "::1", "1:2:3", "a:b",
        ] {
            let error = wrong.parse::<MetricsAddress>().expect_err(wrong);
            assert!(error.contains("HOST:PORT"), "{error}");
        }
    }

    #[test]
    fn a_port_in_use_is_refused_with_a_way_out() {
        let first = listen(&"0".parse().expect("any")).expect("free");
        let address = first.local_addr().expect("bound");
        assert!(address.ip().is_loopback());
        let second = listen(&address.port().to_string().parse().expect("a port"));
        let error = second.expect_err("it is in use");
        assert!(
            error.contains("in use") && error.contains("another port"),
            "{error}"
        );
    }
}
