//! `marula-bench`: the table of `make bench`. The published comparisons are `marula bench`.

use std::process::ExitCode;

fn main() -> ExitCode {
    marula_bench::table::main()
}
