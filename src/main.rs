//! The `fencepost` binary: parse, dispatch, print the error, exit code.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

use clap::Parser;
use fencepost::cli::Cli;
use std::io::Write;
use std::process::ExitCode;

/// The binary's own choice; the library sets none.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // A usage error ends inside `parse` with exit code 2; `--help` and `--version` with 0.
    let exit = Cli::parse().run().unwrap_or_else(|error| {
        let text = error.to_string();
        // Without words: whoever read the result has gone. And a dead standard error keeps its exit code.
        if !text.is_empty() {
            let _ = writeln!(std::io::stderr(), "fencepost: {text}");
        }
        error.exit()
    });
    ExitCode::from(exit as u8)
}
