//! `getDiagnosticData`: the state of the server and of its machine at one point in time.
//!
//! The numbers of the machine are read from `/proc`; a part whose file cannot be read is omitted.

use std::fs;

use marula_bson::{DocWriter, Value, long};
use marula_error::Result;

use super::{Auth, Command, Outcome, replication, server_status};
use crate::context::Context;
use crate::host;
use crate::request::Request;

pub(super) static COMMAND: Command = Command {
    name: "getDiagnosticData",
    help: "Returns the state of the server and of its machine at one point in time.",
    admin_only: true,
    // The privileges of the commands whose results are included: serverStatus, replSetGetStatus,
    // and collStats of the oplog.
    auth: Auth::Content(|_, check| {
        use crate::auth::check::Target;
        check.needs(Target::Cluster, &["serverStatus", "replSetGetStatus"]);
        check.needs_on("local", "oplog.rs", &["collStats"]);
        Ok(())
    }),
    run,
    ..Command::DEFAULT
};

fn run(ctx: &mut Context<'_>, request: &Request<'_>, reply: &mut DocWriter<'_>) -> Result<Outcome> {
    let mut data = reply.begin_doc("data");
    let now = |ctx: &Context<'_>| Value::DateTime(ctx.server.now_ms());
    data.append("start", now(ctx));
    let mut part = data.begin_doc("serverStatus");
    part.append("start", now(ctx));
    server_status::write(ctx, request, &mut part);
    part.append("end", now(ctx));
    drop(part);
    if ctx.server.options.repl_set.is_some() {
        let mut part = data.begin_doc("replSetGetStatus");
        part.append("start", now(ctx));
        replication::write_status(ctx, &mut part)?;
        part.append("end", now(ctx));
    }
    let mut part = data.begin_doc("systemMetrics");
    part.append("start", now(ctx));
    write_machine(ctx, &mut part);
    part.append("end", now(ctx));
    drop(part);
    data.append("end", now(ctx));
    Ok(Outcome::Done)
}

fn write_machine(ctx: &Context<'_>, out: &mut DocWriter<'_>) {
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
    write_processors(&read("/proc/stat"), &mut out.begin_doc("cpu"));
    let mut memory = out.begin_doc("memory");
    for line in read("/proc/meminfo").lines() {
        let mut words = line.split_whitespace();
        if let (Some(name), Some(kb), Some("kB")) =
            (words.next(), number(words.next()), words.next())
        {
            memory.append(format!("{}_kb", name.trim_end_matches(':')).as_str(), kb);
        }
    }
    drop(memory);
    let mut mounts = out.begin_doc("mounts");
    let path = ctx.server.options.dbpath.as_deref().unwrap_or(".");
    if let Some((used, total)) = host::file_system(path) {
        let mut mount = mounts.begin_doc(path);
        mount.append("capacity", long(total)).append("available", long(total.saturating_sub(used)));
        mount.append("free", long(total.saturating_sub(used)));
    }
    drop(mounts);
    let mut vmstat = out.begin_doc("vmstat");
    for line in read("/proc/vmstat").lines() {
        let mut words = line.split_whitespace();
        if let (Some(name), Some(count)) = (words.next(), number(words.next()))
            && ["pswpin", "pswpout", "pgfault", "pgmajfault"].contains(&name)
        {
            vmstat.append(name, count);
        }
    }
}

/// Writes the times of the processors, and the number of processes.
fn write_processors(stat: &str, out: &mut DocWriter<'_>) {
    const TIMES: &[&str] = &[
        "user_ms",
        "nice_ms",
        "system_ms",
        "idle_ms",
        "iowait_ms",
        "irq_ms",
        "softirq_ms",
        "steal_ms",
        "guest_ms",
        "guest_nice_ms",
    ];
    /// The kernel's unit of time is a hundredth of a second.
    const MS_PER_TICK: i64 = 10;
    let processors = stat.lines().filter(|line| {
        line.strip_prefix("cpu")
            .is_some_and(|rest| rest.starts_with(|digit: char| digit.is_ascii_digit()))
    });
    out.append("num_cpus", i32::try_from(processors.count()).unwrap_or(i32::MAX));
    for line in stat.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("cpu") => {
                for (name, ticks) in TIMES.iter().zip(words) {
                    out.append(*name, number(Some(ticks)).unwrap_or(0).saturating_mul(MS_PER_TICK));
                }
            }
            Some(name @ ("ctxt" | "btime" | "processes" | "procs_running" | "procs_blocked")) => {
                out.append(name, number(words.next()).unwrap_or(0));
            }
            _ => {}
        }
    }
}

fn number(word: Option<&str>) -> Option<i64> {
    word?.parse().ok()
}

#[cfg(test)]
mod tests {
    use marula_bson::DocBuf;

    use super::*;

    #[test]
    fn processors_are_read_from_the_kernels_table() {
        let stat = "cpu  1 2 3 4\ncpu0 1 0 0 0\ncpu1 0 2 3 4\nctxt 77\nbtime 5\n";
        let found = DocBuf::build(|out| write_processors(stat, out));
        let found = found.as_doc();
        assert_eq!(found.get("num_cpus"), Some(Value::Int32(2)));
        assert_eq!(found.get("system_ms"), Some(Value::Int64(30)));
        assert_eq!(found.get("ctxt"), Some(Value::Int64(77)));
    }
}
