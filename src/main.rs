//! The `fencepost` binary: parse, dispatch, print the error, exit code.

use clap::Parser;
use fencepost::cli::Cli;
use std::process::ExitCode;

/// The binary's own choice; the library sets none.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // A usage error ends inside `parse` with exit code 2; `--help` and `--version` with 0.
    let exit = Cli::parse().run().unwrap_or_else(|error| {
        eprintln!("fencepost: {error}");
        error.exit()
    });
    ExitCode::from(exit as u8)
}
