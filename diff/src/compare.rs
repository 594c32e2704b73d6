//! Compares the replies of two servers.
//!
//! Equal bytes are the same reply. Otherwise the parts that no two servers can share are removed
//! (generated ids and times, an open order) and the rest is compared again.

use std::time::{SystemTime, UNIX_EPOCH};

use marula_bson::calendar::Civil;
use marula_bson::{DocBuf, ObjectId, Value, ValueBuf};

use crate::case::{Case, failure};
use crate::sequences::multikey;
use crate::tree::Tree;
use crate::values::is_of_case;

/// The only field of a reply with a plan: it has the marks of arrays.
const PLAN: &str = "plan";

/// The first replies of a case that differ.
pub(crate) struct Difference {
    /// The kind of the difference: `results`, `marks`, `reply`, `message` and its code, or the two
    /// codes.
    pub(crate) class: String,
    pub(crate) replies: [Tree; 2],
    /// The number of the replies in the case.
    pub(crate) at: usize,
}

/// Compares the replies of a case. `loose` ignores texts of errors.
pub(crate) fn compare(case: &Case, replies: [&[DocBuf]; 2], loose: bool) -> Option<Difference> {
    let [ours, theirs] = replies;
    ours.iter()
        .zip(theirs)
        .enumerate()
        .find_map(|(at, (ours, theirs))| difference(case, at, [ours, theirs], loose))
}

fn difference(
    case: &Case,
    at: usize,
    [ours, theirs]: [&DocBuf; 2],
    loose: bool,
) -> Option<Difference> {
    if ours == theirs {
        return None;
    }
    let replies = [ours, theirs].map(|reply| normal(case, Tree::of_doc(reply.as_doc())));
    if replies[0] == replies[1] {
        return None;
    }
    let [(our_code, our_text), (their_code, their_text)] =
        [failure(&replies[0]), failure(&replies[1])];
    let class = if our_code != their_code {
        format!("code {our_code} for {their_code}")
    } else if our_text != their_text {
        format!("message {our_code}")
    } else if our_code != 0 {
        "reply".to_owned()
    } else if replies.iter().all(|reply| reply.get(PLAN).is_some()) {
        "marks".to_owned()
    } else {
        "results".to_owned()
    };
    if loose && class.starts_with("message") {
        return None;
    }
    Some(Difference { class, replies, at })
}

/// Returns whether a reply is the one that a difference shows.
pub(crate) fn is_same(case: &Case, reply: &DocBuf, shown: &Tree) -> bool {
    normal(case, Tree::of_doc(reply.as_doc())) == *shown
}

/// Returns the failure in a reply as a difference shows it.
pub(crate) fn failure_shown(case: &Case, reply: &DocBuf) -> (i32, String) {
    failure(&normal(case, Tree::of_doc(reply.as_doc())))
}

fn normal(case: &Case, mut reply: Tree) -> Tree {
    if case.is_series() {
        sort_fields(&mut reply);
    }
    if let Tree::Doc(fields) = &mut reply {
        fields.retain(|(name, _)| !matches!(name.as_str(), "operationTime" | "$clusterTime"));
        if fields.iter().any(|(name, _)| name == "queryPlanner") {
            *fields = vec![(PLAN.to_owned(), multikey(&Tree::Doc(fields.clone())))];
        }
        if case.kind == "applyOps" && fields.iter().any(|(name, _)| name == "errmsg") {
            // docs/differences.md: the fields of such an error come in another order.
            fields.sort_by(|(a, _), (b, _)| a.cmp(b));
        }
        if fields.iter().any(|(name, _)| name == "keysPerIndex") {
            // Of a validation, only the errors are compared; the wording of the rest is each
            // server's own.
            fields.retain(|(name, _)| {
                matches!(name.as_str(), "valid" | "nrecords" | "nIndexes" | "keysPerIndex")
            });
        }
        if let Some((_, Tree::Array(results))) =
            fields.iter_mut().find(|(name, _)| case.kind == "code" && name == "results")
        {
            // The groups of a `mapReduce` come in any order.
            results.sort_by_cached_key(|item| item.to_doc().into_bytes());
        }
        for (name, value) in fields.iter_mut() {
            let Tree::Doc(cursor) = value else { continue };
            // docs/differences.md: mongod lists collections in the order of a hash table.
            let is_list = cursor.iter().any(|(name, ns)| {
                name == "ns" && ns.text().is_some_and(|ns| ns.ends_with("$cmd.listCollections"))
            });
            if name == "cursor" && (case.is_unordered() || is_list) {
                for (_, batch) in cursor.iter_mut() {
                    if let Tree::Array(items) = batch {
                        items.sort_by_cached_key(|item| item.to_doc().into_bytes());
                    }
                }
            }
        }
    }
    if let Tree::Doc(fields) = &mut reply
        && let Some((_, Tree::Doc(cursor))) = fields.iter_mut().find(|(name, _)| name == "cursor")
    {
        // The id of an open cursor is each server's own.
        for (_, id) in cursor.iter_mut().filter(|(name, _)| name == "id") {
            id.map_leaves(&|id| (id != Value::Int64(0)).then(|| Value::Int64(1).to_buf()));
        }
    }
    if let Tree::Doc(fields) = &mut reply {
        for (_, ids) in fields.iter_mut().filter(|(name, _)| name.starts_with("cursors")) {
            ids.map_leaves(&|id| (id != Value::Int64(0)).then(|| Value::Int64(1).to_buf()));
        }
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    reply.map_leaves(&|value| own(value, now));
    reply
}

/// Sorts the fields of all documents of a reply by their names.
pub(crate) fn sort_fields(tree: &mut Tree) {
    match tree {
        Tree::Leaf(_) => {}
        Tree::Array(items) => items.iter_mut().for_each(sort_fields),
        Tree::Doc(fields) => {
            fields.sort_by(|(a, _), (b, _)| a.cmp(b));
            fields.iter_mut().for_each(|(_, value)| sort_fields(value));
        }
    }
}

/// Replaces generated values by fixed ones.
fn own(value: Value<'_>, now: u64) -> Option<ValueBuf> {
    let is_now = |seconds: u64| seconds.abs_diff(now) < 86_400;
    match value {
        Value::ObjectId(id) if !is_of_case(id) => {
            Some(Value::ObjectId(ObjectId::from_bytes([9; 12])).to_buf())
        }
        Value::DateTime(ms) if ms > 0 && is_now(ms.cast_unsigned() / 1000) => {
            Some(Value::DateTime(9).to_buf())
        }
        // The UUID of a collection.
        Value::Binary(binary) if binary.subtype == 4 && binary.bytes.len() == 16 => {
            Some(Value::Null.to_buf())
        }
        Value::Timestamp(bits) if is_now(bits >> 32) => Some(Value::Timestamp(9).to_buf()),
        Value::String(text) => {
            let text = text.to_string();
            let known = without_own_id(&text)
                .or_else(|| without_own_time(&text, &is_now))
                .or_else(|| without_own_moment(&text, now))
                .or_else(|| without_own_name(&text))
                .or_else(|| without_own_port(&text))?;
            Some(Value::from(&known).to_buf())
        }
        _ => None,
    }
}

/// Returns the text of an error with a generated id replaced by a fixed one.
fn without_own_id(text: &str) -> Option<String> {
    let at = text.find("ObjectId('")? + "ObjectId('".len();
    let hex = text.get(at..at + 24)?;
    let id = ObjectId::parse_hex(hex).filter(|id| !is_of_case(*id))?;
    Some(text.replace(&id.to_string(), &"9".repeat(24)))
}

/// Replaces a moment of today as messages show one, such as `2026-11-27T12:20:18.925Z`.
fn without_own_moment(text: &str, now: u64) -> Option<String> {
    const CLOCK: &str = "T00:00:00.000Z";
    let today = Civil::of_ms(i64::try_from(now).ok()? * 1000);
    let today = format!("{:04}-{:02}-{:02}", today.year, today.month, today.day);
    let at = text.find(&today)? + today.len();
    let clock = text.get(at..at + CLOCK.len()).filter(|clock| clock.starts_with('T'))?;
    Some(text.replace(clock, CLOCK))
}

/// Replaces the number of a cursor, and the UUIDs of a collection and of a temporary one, in the
/// text of an error.
fn without_own_name(text: &str) -> Option<String> {
    const TEMPORARY: &str = "tmp.agg_out.";
    if let Some((before, rest)) = text.split_once(TEMPORARY)
        && let Some((_, rest)) = rest.split_once(' ')
    {
        return Some(format!("{before}{TEMPORARY}9 {rest}"));
    }
    if text.starts_with("cursor id ") && text.ends_with(" not found") {
        return Some("cursor id 9 not found".to_owned());
    }
    if let Some(rest) = text.strip_prefix("Index build failed: ")
        && let Some((_, rest)) = rest.split_once(": Collection ")
        && let Some((name, rest)) = rest.split_once(" ( ")
        && let Some((_, rest)) = rest.split_once(" )")
    {
        return Some(format!("Index build failed: 9: Collection {name} ( 9 ){rest}"));
    }
    let (front, rest) = text.split_once("UUID ")?;
    // Not the words of a mismatch, which has its UUIDs in fields.
    (rest.as_bytes().get(8) == Some(&b'-')).then(|| format!("{front}UUID 9"))
}

/// Replaces the port in a server's address.
fn without_own_port(text: &str) -> Option<String> {
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let port = text.strip_prefix(machine.trim())?.strip_prefix(':')?;
    port.parse::<u16>().ok().map(|_| "machine:9".to_owned())
}

/// Replaces current times.
fn without_own_time(text: &str, is_now: &dyn Fn(u64) -> bool) -> Option<String> {
    let (mut known, mut rest, mut found) = (String::new(), text, false);
    while let Some(at) = rest.find("Timestamp(").or_else(|| rest.find("new Date(")) {
        let begin = at + rest[at..].find('(')? + 1;
        let (inner, after) = rest[begin..].split_once(')')?;
        let seconds = match inner.split_once(", ") {
            Some((seconds, _)) => seconds.parse().ok(),
            None => inner.parse().ok().map(|ms: u64| ms / 1000),
        };
        known.push_str(&rest[..begin]);
        if seconds.is_some_and(is_now) {
            known.push('9');
            found = true;
        } else {
            known.push_str(inner);
        }
        rest = &rest[begin + inner.len()..];
        debug_assert!(rest.ends_with(after));
    }
    known.push_str(rest);
    found.then_some(known)
}
