//! The HTML pages: what they hold, that data stays text, and what a browser makes of them.

use crate::reporting::{NASTY, markup};
use crate::support::{Folder, Numbers};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// A dataset whose names are hostile, and logs of a baseline at three budgets and of a group that failed twice.
fn measured() -> Folder {
    let folder = Folder::new();
    let mut numbers = Numbers(11);
    let texts: Vec<String> = (0..120).map(|_| numbers.words(40)).collect();
    let short = vec!["too short".to_string()];
    folder.documents("in.jsonl", &[&texts[..], &short].concat());
    let good: Vec<String> = (0..40).map(|_| numbers.words(40)).collect();
    folder.documents("good.jsonl", &good);
    let quoted = |text: &str| json!(text).to_string();
    folder.pipeline(&format!(
        "name: {}\ninputs:\n  - {{ path: in.jsonl, source: {} }}\nstages:\n  - length: {{ min_tokens: 100 }}\n  \
         - score: {{ estimator: ngram_excess, reference: good.jsonl }}\npack: {{ method: concat, sequence_tokens: 256 }}\n",
        quoted(NASTY[0]),
        quoted(&NASTY[..5].concat()),
    ));
    folder.run(&[]);
    let mut runs = String::new();
    let mut add = |name: &str, group: &str, seed: u64, more: &str| {
        runs += &format!(
            "  - {{ name: {}, group: {}, seed: {seed}, logs: {name}.jsonl{more} }}\n",
            quoted(&format!("{name} {}", NASTY[1])),
            quoted(group)
        );
    };
    for steps in [10, 20, 40] {
        for seed in 1..=3 {
            let name = format!("base-{steps}-{seed}");
            let loss = 3.0 - 0.02 * steps as f64 + 0.001 * seed as f64;
            folder.write(&format!("{name}.jsonl"), log(steps, loss, &[]));
            add(&name, NASTY[2], seed, "");
        }
    }
    for seed in 1..=3 {
        let name = format!("chosen-{seed}");
        folder.write(
            &format!("{name}.jsonl"),
            log(20, 2.5 + 0.002 * seed as f64, &[7, 13]),
        );
        add(&name, NASTY[3], seed, ", dataset: { path: out, epochs: 9 }");
    }
    folder.write(
        "measure.yaml",
        format!(
            "version: 1\nname: {}\nmodel: {{ parameters: 1e6, flop_convention: six_n }}\n\
             hardware: {{ chips: 1, peak_teraflops: 1, price_per_chip_hour: 2 }}\n\
             progress: {{ baseline: {} }}\nruns:\n{runs}",
            quoted(NASTY[0]),
            quoted(NASTY[2]),
        ),
    );
    folder
}

/// Events of a run: so many steps, failures after some of them, each of which a later attempt repeats, and a last
/// evaluation on both held-out sets.
fn log(steps: u64, loss: f64, failures: &[u64]) -> String {
    let mut at = 1000;
    let mut attempt = 1;
    let mut text = String::new();
    let mut write = |at: u64, mut event: Value, attempt: u64| {
        event["ts"] = json!(at);
        event["attempt"] = json!(attempt);
        text += &(event.to_string() + "\n");
    };
    write(at, json!({ "kind": "job_start" }), attempt);
    at += 20;
    write(at, json!({ "kind": "init", "dur_s": 20 }), attempt);
    let mut failures = failures.iter();
    let mut failure = failures.next();
    let mut step = 1;
    while step <= steps {
        at += 10;
        write(
            at,
            json!({ "kind": "step", "step": step, "tokens": 512, "loss": 2.5, "dur_s": 10 }),
            attempt,
        );
        if failure == Some(&step) {
            failure = failures.next();
            write(
                at + 1,
                json!({ "kind": "failure", "tag": NASTY[0] }),
                attempt,
            );
            attempt += 1;
            at += 600;
            write(at, json!({ "kind": "job_start" }), attempt);
            step -= 2;
        }
        step += 1;
    }
    for (split, loss) in [("target", loss), ("general", loss + 0.1)] {
        at += 5;
        let event = json!({ "kind": "eval", "split": split, "step": steps, "loss": loss, "dur_s": 5, "tokens": 1000, "bytes": 4000 });
        write(at, event, attempt);
    }
    text
}

fn page(folder: &Folder, arguments: &[&str]) -> String {
    let ran = folder.goodput(&[arguments, &["--format", "html"]].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    ran.stdout
}

/// Every element is closed, in order.
fn is_closed(page: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = page;
    while let Some(at) = rest.find('<') {
        rest = &rest[at + 1..];
        let end = rest.find('>').expect("a tag ends");
        let tag = &rest[..end];
        rest = &rest[end + 1..];
        let name = tag.split_whitespace().next().expect("a name");
        if let Some(name) = name.strip_prefix('/') {
            assert_eq!(
                open.pop(),
                Some(name),
                "closed before {}",
                &rest[..rest.len().min(80)]
            );
        } else if !tag.ends_with('/') && !["!doctype", "meta", "br"].contains(&name) {
            open.push(name);
        }
        if name == "style" {
            rest = &rest[rest.find("</style>").expect("closed")..];
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn the_page_of_a_measurement_holds_every_part_and_names_stay_text() {
    let folder = measured();
    let page = page(&folder, &["measure", "measure.yaml"]);
    assert!(page.starts_with("<!doctype html>\n") && page.ends_with("</html>\n"));
    is_closed(&page);
    for part in [
        "All runs",
        "Progress beside",
        "Target text",
        "General text",
        "From raw tokens to progress",
        "Where the time went",
        "Time by attempt",
        "What the steps read",
        "mean usefulness",
        "Rate and cost",
        "length / too_few_tokens",
        "raw: processed",
        "good: in steps that count",
        "done again by a later attempt",
        "the baseline needs so many for the same loss on target text",
        "class=\"plot\"",
        "class=\"curve",
        "class=\"whisker",
        "<details",
    ] {
        assert!(page.contains(part), "{part}");
    }
    // A picture has words for those who do not see it, and links stay on the page.
    assert_eq!(
        page.matches("class=\"plot\"").count(),
        page.matches("role=\"img\"").count()
    );
    assert_eq!(
        page.matches(" href=\"").count(),
        page.matches(" href=\"#").count()
    );
    for link in page.split(" href=\"#").skip(1) {
        let id = link.split('"').next().expect("quoted");
        assert_eq!(page.matches(&format!(" id=\"{id}\"")).count(), 1, "{id}");
    }
    let (elements, attributes) = markup(&page);
    for never in [
        "script",
        "img",
        "link",
        "iframe",
        "object",
        "svg/onload",
        "s",
    ] {
        assert!(!elements.contains(never), "<{never}>");
    }
    let loads = |name: &&String| {
        name.starts_with("on") || ["src", "srcdoc", "action"].contains(&name.as_str())
    };
    assert_eq!(attributes.iter().find(loads), None);
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
    assert!(
        !page.contains("NaN") && !page.contains("inf "),
        "no number is none"
    );
}

#[test]
fn a_run_without_clock_tokens_or_data_says_what_is_unknown() {
    let folder = Folder::new();
    folder.write(
        "trainer_state.json",
        "{\"log_history\":[{\"step\":10,\"loss\":2.5},{\"step\":20,\"loss\":2.4}],\"global_step\":20,\"max_steps\":20}",
    );
    let page = page(&folder, &["measure", "--log", "trainer_state.json"]);
    is_closed(&page);
    assert!(
        page.contains("<h3>Where the time went</h3>\n<p>Unknown: "),
        "{page}"
    );
    assert!(page.contains("how many tokens a step has") && !page.contains("100.00 %"));
}

/// What the page is shown in by a browser: a window of its own each, of both widths.
fn harness(pages: &[&str]) -> String {
    let frames: String = pages
        .iter()
        .flat_map(|page| [360, 1280].map(|width| (page, width)))
        .map(|(page, width)| {
            format!(
                "<iframe src=\"{page}\" style=\"width:{width}px;height:800px;border:0\"></iframe>\n"
            )
        })
        .collect();
    format!(
        "<!doctype html><title>pages</title><pre id=\"seen\"></pre>\n<script>\n\
         addEventListener('message',e=>{{document.getElementById('seen').textContent+=JSON.stringify(e.data)+'\\n'}})\n\
         </script>\n{frames}"
    )
}

/// Tells its frame what became of a page once it is loaded. It stands first, so that it sees every error.
const PROBE: &str = "<script>\n\
const seen={errors:0,alerts:0,loads:0};\n\
window.alert=()=>{seen.alerts++};\n\
addEventListener('error',()=>{seen.errors++},true);\n\
addEventListener('load',()=>setTimeout(()=>{\n\
for(const d of document.querySelectorAll('details'))d.open=true;\n\
const root=document.documentElement;\n\
seen.loads=performance.getEntriesByType('resource').length;\n\
seen.width=innerWidth;seen.needs=root.scrollWidth;\n\
seen.strange=document.querySelectorAll('img,link,iframe,object,embed,[onload],[onerror],[onmouseover]').length;\n\
seen.title=document.title;\n\
parent.postMessage(seen,'*')},100))\n\
</script>\n";

fn chromium() -> Option<Command> {
    let names = [
        "/usr/bin/chromium",
        "/usr/bin/chromium-browser",
        "/usr/bin/google-chrome",
    ];
    let found = names.into_iter().find(|name| Path::new(name).exists())?;
    let mut command = Command::new(found);
    command.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--enable-logging=stderr",
        "--virtual-time-budget=20000",
    ]);
    Some(command)
}

#[test]
fn a_browser_shows_the_pages_without_errors_requests_or_overflow_and_prints_them() {
    if chromium().is_none() {
        // `cargo test -- --nocapture` shows it; the job that has to run this installs the browser.
        use std::io::Write;
        let _ = writeln!(std::io::stderr(), "skipped: no chromium on this machine");
        return;
    }
    let folder = measured();
    let pages = [
        ("measure.html", page(&folder, &["measure", "measure.yaml"])),
        ("audit.html", page(&folder, &["audit", "out"])),
        ("duplicates.html", page(&folder, &["audit", "out", "--duplicates"])),
        ("documents.html", page(&folder, &["inspect", "out", "--documents", "20"])),
        // What shows that the probe sees what it looks for.
        (
            "control.html",
            "<!doctype html><html><head></head><body><p style=\"width:2000px\">wide</p><img src=\"http://127.0.0.1:9/x.png\" \
             onerror=\"alert(1)\"><script>nothing.at.all</script></body></html>"
                .to_string(),
        ),
    ];
    for (name, page) in &pages {
        folder.write(name, page.replacen("<head>", &format!("<head>{PROBE}"), 1));
    }
    let names: Vec<&str> = pages.iter().map(|(name, _)| *name).collect();
    folder.write("harness.html", harness(&names));
    let address = |name: &str| format!("file://{}", folder.path(name).display());
    let run = |arguments: &[String]| {
        let mut command = chromium().expect("found above");
        command.arg(format!(
            "--user-data-dir={}",
            folder.path("profile").display()
        ));
        command.args(arguments);
        let ran = command.output().expect("the browser starts");
        assert!(ran.status.success(), "{ran:?}");
        ran
    };
    let ran = run(&["--dump-dom".to_string(), address("harness.html")]);
    let shown = String::from_utf8_lossy(&ran.stdout);
    let seen = shown
        .split("<pre id=\"seen\">")
        .nth(1)
        .expect("the harness");
    let seen: Vec<Value> = seen
        .split("</pre>")
        .next()
        .expect("closed")
        .lines()
        .map(|line| {
            serde_json::from_str(
                &line
                    .replace("&lt;", "<")
                    .replace("&gt;", ">")
                    .replace("&amp;", "&"),
            )
            .expect("JSON")
        })
        .collect();
    assert_eq!(seen.len(), 2 * pages.len(), "{shown}");
    let widths: BTreeSet<u64> = seen
        .iter()
        .filter_map(|page| page["width"].as_u64())
        .collect();
    assert_eq!(widths, BTreeSet::from([360, 1280]));
    let (control, own): (Vec<&Value>, Vec<&Value>) =
        seen.iter().partition(|page| page["title"] == "");
    assert_eq!(control.len(), 2);
    for page in control {
        for trouble in ["errors", "alerts", "loads", "strange"] {
            assert!(page[trouble].as_u64() > Some(0), "{trouble} {page}");
        }
        assert_eq!(
            page["needs"].as_u64().map(|needs| needs >= 2000),
            Some(true),
            "{page}"
        );
    }
    for page in own {
        for trouble in ["errors", "alerts", "loads", "strange"] {
            assert_eq!(page[trouble], 0, "{trouble} {page}");
        }
        // A bar to scroll down takes of the width.
        assert!(page["needs"].as_u64() <= page["width"].as_u64(), "{page}");
    }
    let log = String::from_utf8_lossy(&ran.stderr);
    let from_pages: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("CONSOLE") && !line.contains("control.html"))
        .collect();
    assert!(from_pages.is_empty(), "{from_pages:?}");

    for name in ["measure.html", "audit.html"] {
        let print = folder.path(&format!("{name}.pdf"));
        run(&[format!("--print-to-pdf={}", print.display()), address(name)]);
        let bytes = std::fs::read(&print).expect("printed");
        assert!(
            bytes.starts_with(b"%PDF") && bytes.len() > 10_000,
            "{name}: {} bytes",
            bytes.len()
        );
    }
}
