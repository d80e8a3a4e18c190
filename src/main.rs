//! The `fencepost` binary: parse, dispatch, print the error, exit code.
fn main() {}
