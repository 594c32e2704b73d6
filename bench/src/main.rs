//! `marula-bench`: the published comparisons, and the table of `make bench`.

use std::process::ExitCode;

fn main() -> ExitCode {
    marula_bench::cli::main()
}
