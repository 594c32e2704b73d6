//! `marula check-config`: what becomes of each option of a configuration file, all in one go.

use std::process::ExitCode;

use marula_server::options::AtStartup;

use crate::Failure;
use crate::cli::CheckConfigArgs;
use crate::config_file;
use crate::settings::Settings;

/// Lists the options; fails when one would stop a start.
pub(crate) fn run(args: &CheckConfigArgs) -> Result<ExitCode, Failure> {
    let mut settings = Settings::default();
    let (mut warnings, mut failures) = (0_usize, 0_usize);
    let mut fail = |name: &str, failure: &str| {
        failures += 1;
        println!("error    {name}: {failure}");
    };
    for (name, value) in config_file::options(&args.file)? {
        let before = settings.warnings.len();
        let parameter = name.strip_prefix("setParameter.");
        let parsed = parameter.map_or(Ok(()), |name| AtStartup::parse(name, &value).map(|_| ()));
        match settings.set(&name, &value).and(parsed) {
            Err(failure) => fail(&name, &failure),
            Ok(()) => match settings.warnings.get(before) {
                Some(warning) => {
                    warnings += 1;
                    println!("ignored  {name}: {}", warning.why);
                }
                None => println!("ok       {name}"),
            },
        }
    }
    if let Err(failure) = settings.check() {
        fail("together", &failure);
    }
    println!("{failures} errors, {warnings} options without effect");
    Ok(if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
