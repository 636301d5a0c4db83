//! The pipelines that people start from: each says what it is for, loads, and runs on real text.
#![expect(clippy::print_stdout, reason = "a test that is skipped says why")]

use goodput::plan::{Overrides, load};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn all() -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(repository().join("pipelines"))
        .expect("the folder is in the repository")
        .map(|entry| entry.expect("it can be listed").path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "yaml")
        })
        .collect();
    files.sort();
    files
}

/// Runs a twentieth of a pipeline's documents and verifies the output.
fn runs_and_verifies(name: &str, data: &Path) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let out = folder.path().join("out");
    let goodput = |arguments: &[&str]| -> Output {
        Command::new(env!("CARGO_BIN_EXE_goodput"))
            .args(arguments)
            .env("WEB_DATA", data.join("mix"))
            .env("DOCS_DATA", data.join("mix"))
            .env("CODE_DATA", data.join("mix"))
            .env("MIX_DATA", data.join("mix"))
            .env("REFERENCE_DATA", data.join("reference"))
            .output()
            .expect("it starts")
    };
    let pipeline = repository().join("pipelines").join(name);
    let (pipeline, out) = (
        pipeline.to_str().expect("UTF-8"),
        out.to_str().expect("UTF-8"),
    );
    let ran = goodput(&[
        "run",
        pipeline,
        "--out",
        out,
        "--sample",
        "0.05",
        "--progress",
        "off",
    ]);
    assert!(ran.status.success(), "{name}: {ran:?}");
    let ledger = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(
        ledger.contains("5 of 5 identities hold"),
        "{name}: {ledger}"
    );
    let verified = goodput(&["verify", out]);
    assert!(verified.status.success(), "{name}: {verified:?}");
}

#[test]
fn each_says_what_it_is_for_and_loads() {
    assert!(all().len() >= 4);
    for path in all() {
        let text = std::fs::read_to_string(&path).expect("it can be read");
        assert!(text.starts_with("# What it is for: "), "{}", path.display());
        if let Err(problems) = load(&path, &Overrides::default()) {
            panic!("{problems}");
        }
    }
}

#[test]
fn quickstart_runs_on_the_sources_that_cargo_has_fetched() {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    if !home.is_some_and(|home| home.join("registry/src").exists()) {
        println!("skipped: cargo has fetched no sources");
        return;
    }
    runs_and_verifies("quickstart.yaml", Path::new("no data needed"));
}

#[test]
fn the_others_run_on_real_text() {
    let data = repository().join("../shared/data");
    if !data.exists() {
        println!("skipped: no shared data");
        return;
    }
    for path in all() {
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .expect("UTF-8");
        if name != "quickstart.yaml" {
            runs_and_verifies(name, &data);
        }
    }
}
