//! Merging inputs that are in one order.

use std::collections::HashSet;

use marula_bson::Doc;
use marula_db::RecordKey;
use marula_error::Result;

use super::work::{Env, Step};
use super::{Emit, Found};
use crate::plan::{SortMerge, Stats};

/// What a merge remembers while it runs.
#[derive(Default)]
pub(crate) struct Merging {
    /// The next row of each input.
    heads: Vec<Head>,
    given: HashSet<RecordKey>,
}

/// The next row of an input.
enum Head {
    /// It is not known yet.
    Unknown,
    Row(Row),
    /// There is none.
    End,
}

struct Row {
    key: Vec<u8>,
    record: RecordKey,
    doc: Vec<u8>,
    is_fetched: bool,
}

impl SortMerge {
    pub(super) fn work(
        &mut self,
        stats: &mut Stats,
        env: &mut Env<'_>,
        out: &mut dyn FnMut(Found<'_>) -> Result<Emit>,
    ) -> Result<Step> {
        let SortMerge { pattern, inputs, merging: Merging { heads, given } } = self;
        heads.resize_with(inputs.len(), || Head::Unknown);
        if let Some(number) = heads.iter().position(|head| matches!(head, Head::Unknown)) {
            let head = &mut heads[number];
            let step = inputs[number].work(env, &mut |found| {
                let mut key = Vec::new();
                pattern.write_key(found.doc, &mut key)?;
                *head = Head::Row(Row {
                    key,
                    record: RecordKey::new(found.record),
                    doc: found.doc.as_bytes().to_vec(),
                    is_fetched: found.is_fetched,
                });
                Ok(Emit::Taken)
            })?;
            if step == Step::Eof {
                *head = Head::End;
            }
            return Ok(Step::NeedTime);
        }
        let rows = heads.iter().enumerate().filter_map(|(number, head)| match head {
            Head::Row(row) => Some((number, row)),
            Head::Unknown | Head::End => None,
        });
        let Some((number, row)) = rows.min_by(|(_, a), (_, b)| a.key.cmp(&b.key)) else {
            return Ok(Step::Eof);
        };
        stats.dups_tested += 1;
        if given.contains(&row.record) {
            stats.dups_dropped += 1;
            heads[number] = Head::Unknown;
            return Ok(Step::NeedTime);
        }
        let doc = Doc::trusted(&row.doc);
        let record = row.record.as_bytes();
        let answer = out(Found {
            doc,
            record,
            entry: None,
            is_fetched: row.is_fetched,
            ahead: None,
            score: None,
        })?;
        if answer != Emit::Full
            && let Head::Row(row) = std::mem::replace(&mut heads[number], Head::Unknown)
        {
            given.insert(row.record);
        }
        Ok(Step::Advanced(answer))
    }

    /// Whether every input has ended.
    pub(super) fn is_spent(&self) -> bool {
        let heads = &self.merging.heads;
        !heads.is_empty() && heads.iter().all(|head| matches!(head, Head::End))
    }
}
