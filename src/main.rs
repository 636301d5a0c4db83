//! The `goodput` program: arguments, then [`goodput::cli`], then the exit code.

use clap::Parser;
use goodput::{cli, terminal};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match cli::run(cli::Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            terminal::say(&format!("error: {error}"));
            ExitCode::from(error.exit_code())
        }
    }
}
