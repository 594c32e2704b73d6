//! Runs generated documents, filters, updates and pipelines on Marula and on mongod, and compares
//! the replies.
//!
//! A *case* is a few documents and one command; a *round* is the cases of one seed. Replies are
//! compared byte for byte. A case with a difference is reduced to its smallest form, grouped, and
//! printed as text for mongosh. Everything is derived from the seed, so that a round can be
//! repeated. Start reading in `case`, then `values`.

mod accepted;
mod accumulators;
mod beside;
mod case;
mod collections;
mod compare;
mod expressions;
mod filters;
mod joins;
mod marks;
mod merges;
mod metadata;
mod options;
mod pipelines;
mod places;
mod projections;
mod random;
mod rearranged;
mod repeated;
mod report;
mod reports;
mod sequences;
mod server;
mod shell;
mod shrink;
mod tails;
mod texts;
mod times;
mod tree;
mod two_mistakes;
mod updates;
mod uuids;
mod values;
mod variables;
mod windows;

use std::process::ExitCode;
use std::time::Instant;

use marula_bson::DocBuf;

use crate::accepted::{accepted, accepted_as};
use crate::case::{Case, KINDS};
use crate::compare::{Difference, compare, is_same};
use crate::rearranged::{REARRANGED, as_written};
use crate::report::Report;
use crate::server::{Broken, Server, ask};
use crate::two_mistakes::has_two_mistakes;

const USAGE: &str = "\
marula-diff --marula PLACE --mongod PLACE [--cases 20000] [--seed 1] [--kinds find,update] [--loose] [--listed] [--tries 600]
marula-diff --marula PLACE --smoke
  PLACE    a program, started with a fresh folder, or mongodb://host:port
  --kinds  of find, update, findAndModify, aggregate, expression, indexed, getMore, applyOps, restart,
           collection, place, text, report, code, metadata, repeated, tail, variable; and time, which is
           run only if it is named
  --loose  passes over differences in the text of errors
  --listed prints what is accepted, too
  --smoke  a few rounds of every kind, Marula against another Marula";

/// The words of docs/differences.md for a difference that a case shows only after another one.
pub(crate) const CONSEQUENCE: &str =
    "A difference that appears only after a listed one in the same collection";

/// The words of docs/differences.md for a case that the other server does not survive.
pub(crate) const ENDS_MONGOD: &str = "A case that ends mongod itself counts as listed";

struct Options {
    marula: String,
    mongod: String,
    cases: usize,
    seed: u64,
    kinds: Vec<&'static str>,
    loose: bool,
    listed: bool,
    smoke: bool,
    tries: usize,
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        marula: String::new(),
        mongod: String::new(),
        cases: 20_000,
        seed: 1,
        // Cases with limits of time wait, and depend on what else the machine does: by name only.
        kinds: KINDS.into_iter().filter(|kind| *kind != "time").collect(),
        loose: false,
        listed: false,
        smoke: false,
        tries: 600,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        let number =
            |text: String| text.parse::<u64>().map_err(|_| format!("not a number: '{text}'"));
        match word.as_str() {
            "--marula" => options.marula = value()?,
            "--mongod" => options.mongod = value()?,
            "--cases" => options.cases = number(value()?)? as usize,
            "--seed" => options.seed = number(value()?)?,
            "--tries" => options.tries = number(value()?)? as usize,
            "--kinds" => {
                let list = value()?;
                let find = |name: &str| KINDS.into_iter().find(|kind| *kind == name);
                let kinds: Option<Vec<_>> = list.split(',').map(find).collect();
                options.kinds = kinds.ok_or(format!("a kind of '{list}' is unknown"))?;
            }
            "--loose" => options.loose = true,
            "--listed" => options.listed = true,
            "--smoke" => options.smoke = true,
            _ => return Err(format!("unknown option '{word}'\n{USAGE}")),
        }
    }
    if options.marula.is_empty() {
        return Err(format!("--marula is missing\n{USAGE}"));
    }
    if options.mongod.is_empty() && !options.smoke {
        return Err("give a mongod 6.0 to compare with: MONGOD=/path/to/mongod or \
                    MONGOD=mongodb://host:port (`tools/setup mongod` prints one)"
            .to_owned());
    }
    if options.smoke {
        options.cases = options.cases.min(1500);
    }
    Ok(options)
}

fn main() -> ExitCode {
    let run = options().and_then(|options| {
        let verb: &[&str] = &["serve"];
        let (other, other_verb) =
            if options.smoke { (&options.marula, verb) } else { (&options.mongod, &[][..]) };
        let mut servers = [
            Server::new("marula", &options.marula, verb)?,
            Server::new(if options.smoke { "marula-2" } else { "mongod" }, other, other_verb)?,
        ];
        servers[0].write_beside();
        Session { servers, options, report: Report::default(), is_tainted: false, setup: None }
            .run()
    });
    match run {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("diff: {error}");
            ExitCode::from(2)
        }
    }
}

struct Session {
    servers: [Server; 2],
    options: Options,
    report: Report,
    /// Whether an earlier case of the round had an explained difference: the servers' collections
    /// may differ since, in what dropping all documents does not reset.
    is_tainted: bool,
    /// The documents in both servers, by the address of the list; a round shares one.
    setup: Option<std::rc::Rc<Vec<tree::Tree>>>,
}

/// The number of seeds after which both servers begin again: mongod gets slower with the
/// collections that it has dropped, by a factor of three within 50 seeds.
const SEEDS_OF_A_SERVER: u64 = 10;

impl Session {
    /// Runs the rounds; returns true if every difference is explained.
    fn run(mut self) -> Result<bool, String> {
        let begin = Instant::now();
        let mut seed = self.options.seed;
        while self.report.total() < self.options.cases {
            for kind in self.options.kinds.clone() {
                self.round(kind, seed)?;
            }
            seed += 1;
            if (seed - self.options.seed).is_multiple_of(SEEDS_OF_A_SERVER) {
                for server in &mut self.servers {
                    server.recover()?;
                }
            }
        }
        let seconds = begin.elapsed().as_secs_f64();
        println!("{}", self.report.summary());
        println!(
            "seeds {} to {}, {:.0} cases per second",
            self.options.seed,
            seed - 1,
            self.report.total() as f64 / seconds
        );
        Ok(self.report.is_clean())
    }

    fn round(&mut self, kind: &'static str, seed: u64) -> Result<(), String> {
        let cases = case::round(kind, seed);
        let origin = format!("seed {seed}");
        self.setup = None;
        self.is_tainted = false;
        let mut commands: Vec<DocBuf> = Vec::new();
        let mut ends = Vec::new();
        for (number, case) in cases.iter().enumerate() {
            if number == 0 || case.writes() {
                commands.extend(case.setup(number == 0 || case.is_sequence()));
            }
            let start = commands.len();
            commands.extend(case.question());
            ends.push((start, commands.len()));
            self.report.ran(kind);
        }
        let Ok(replies) = ask(&mut self.servers, &commands) else {
            return self.one_by_one(&cases, &origin);
        };
        for (case, (start, end)) in cases.iter().zip(ends) {
            let these = [&replies[0][start..end], &replies[1][start..end]];
            if let Some(difference) = compare(case, these, self.options.loose) {
                self.found(case, &difference, &origin)?;
            }
        }
        Ok(())
    }

    /// Repeats a round in which a server crashed, to find the case.
    fn one_by_one(&mut self, cases: &[Case], origin: &str) -> Result<(), String> {
        for server in &mut self.servers {
            server.recover()?;
        }
        for case in cases {
            match self.try_case(case) {
                Ok(Some(difference)) => self.found(case, &difference, origin)?,
                Ok(None) => {}
                Err(broken) => self.crashed(case, &broken, origin)?,
            }
        }
        Ok(())
    }

    fn crashed(&mut self, case: &Case, broken: &Broken, origin: &str) -> Result<(), String> {
        let ending = self.servers[broken.server].recover()?;
        let name = self.servers[broken.server].name;
        let other = 1 - broken.server;
        self.servers[other].recover()?;
        if broken.server == 1 && !self.options.smoke {
            self.report.accept(ENDS_MONGOD);
            return Ok(());
        }
        self.report.add_crash(case, name, &format!("{ending} ({})", broken.error), origin);
        Ok(())
    }

    fn found(&mut self, case: &Case, difference: &Difference, origin: &str) -> Result<(), String> {
        if self.report.is_known(case, &difference.class) {
            return Ok(());
        }
        let mut broken = None;
        let tries = self.options.tries;
        let smallest = shrink::shrink(case, tries, &mut |smaller| match self.try_case(smaller) {
            Ok(Some(found)) => found.class == difference.class,
            Ok(None) => false,
            Err(error) => {
                let _ = self.servers.iter_mut().try_for_each(|server| server.recover().map(drop));
                broken = Some((smaller.clone(), error));
                false
            }
        });
        if let Some((case, error)) = broken {
            self.crashed(&case, &error, origin)?;
        }
        match self.try_case(&smallest) {
            Ok(Some(found)) => {
                let mut words = self.explanation(&smallest, &found);
                if words.is_none() && self.is_of_order(case, difference) {
                    words = Some(two_mistakes::WORDS);
                }
                self.report_difference(&smallest, &found, words, origin);
            }
            Ok(None) if self.is_tainted => self.report.accept(CONSEQUENCE),
            Ok(None) => {
                let words = self.explanation(case, difference);
                self.report_difference(case, difference, words, &format!("{origin}, only once"));
            }
            Err(broken) => self.crashed(&smallest, &broken, origin)?,
        }
        Ok(())
    }

    /// Returns whether a case as generated has two mistakes, of which each server reports another.
    /// The smallest case may have lost what shows it.
    fn is_of_order(&mut self, case: &Case, difference: &Difference) -> bool {
        let of_order = has_two_mistakes(case, difference, &mut |simpler| self.answers(simpler));
        of_order.unwrap_or_default()
    }

    /// Counts a difference that these words explain; reports another one.
    fn report_difference(
        &mut self,
        case: &Case,
        difference: &Difference,
        words: Option<&'static str>,
        origin: &str,
    ) {
        let Some(words) = words else { return self.report.add(case, difference, origin) };
        self.is_tainted = true;
        self.report.accept(words);
        if self.options.listed {
            report::print(case, difference, &format!("{origin}, {words}"));
        }
    }

    /// Returns the words that explain a difference, if it is known.
    fn explanation(&mut self, case: &Case, difference: &Difference) -> Option<&'static str> {
        let rearranged = accepted_as(REARRANGED, case, difference);
        if rearranged.is_some() {
            match self.comes_of_rearranging(case, difference) {
                Ok(true) => return rearranged,
                Ok(false) => {}
                Err(_) => {
                    let _ =
                        self.servers.iter_mut().try_for_each(|server| server.recover().map(drop));
                }
            }
        }
        let listed = accepted_as(accepted(), case, difference);
        if listed.is_some() {
            return listed;
        }
        match has_two_mistakes(case, difference, &mut |simpler| self.answers(simpler)) {
            Ok(is_of_order) => is_of_order.then_some(two_mistakes::WORDS),
            Err(_) => {
                let _ = self.servers.iter_mut().try_for_each(|server| server.recover().map(drop));
                None
            }
        }
    }

    /// Returns whether a difference disappears, or only an otherwise known one remains, if no stage
    /// is moved; and Marula's result stays the same.
    fn comes_of_rearranging(
        &mut self,
        case: &Case,
        difference: &Difference,
    ) -> Result<bool, Broken> {
        let kept = as_written(case);
        let [ours, theirs] = self.answers(&kept)?;
        if let Some(left) = compare(&kept, [&ours, &theirs], self.options.loose) {
            return Ok(accepted_as(accepted(), &kept, &left).is_some());
        }
        let is_found = difference.class == "results";
        Ok(!is_found
            || ours
                .get(difference.at)
                .is_some_and(|ours| is_same(&kept, ours, &difference.replies[0])))
    }

    /// Runs one case from an empty start.
    fn try_case(&mut self, case: &Case) -> Result<Option<Difference>, Broken> {
        let [ours, theirs] = self.answers(case)?;
        Ok(compare(case, [&ours, &theirs], self.options.loose))
    }

    /// Returns the replies of both servers to a case from an empty start.
    fn answers(&mut self, case: &Case) -> Result<[Vec<DocBuf>; 2], Broken> {
        // Indexes of the previous case must be dropped, too.
        let fresh = !matches!(case.kind, "find" | "expression");
        let mut commands = case.setup(fresh);
        let start = commands.len();
        commands.extend(case.question());
        Ok(ask(&mut self.servers, &commands)?.map(|mut replies| replies.split_off(start)))
    }
}
