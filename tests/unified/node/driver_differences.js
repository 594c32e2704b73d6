// Commands in which the driver is known to differ from the specification. Without these rules, many
// tests of other things would have to be left out.
'use strict';

const WTIMEOUT_OF_COMMIT = 10000;
const ENDS_TRANSACTION = new Set(['commitTransaction', 'abortTransaction']);
const BUCKET = /(^|\.)fs\.(files|chunks)$/;

/** Returns what the driver sends where the specification wants `expected`. */
function asDriverSends(expected, actual) {
  const [name] = Object.keys(actual);
  // The specification has a time limit only when a commit is repeated. The driver always sends one.
  const { writeConcern } = expected;
  const hasLimit = Number(actual.writeConcern?.wtimeout) === WTIMEOUT_OF_COMMIT;
  if (ENDS_TRANSACTION.has(name) && hasLimit && writeConcern?.w && !writeConcern.wtimeout) {
    return { ...expected, writeConcern: { ...writeConcern, wtimeout: WTIMEOUT_OF_COMMIT } };
  }
  // The filters of a bucket: { _id: { $eq: id } } in the specification, { _id: id } in the driver.
  return BUCKET.test(actual[name]) ? withoutEq(expected) : expected;
}

function withoutEq(value) {
  if (Array.isArray(value)) return value.map(withoutEq);
  if (typeof value !== 'object' || value === null || value._bsontype) return value;
  const entries = Object.entries(value);
  if (entries.length === 1 && entries[0][0] === '$eq') return entries[0][1];
  return Object.fromEntries(entries.map(([key, inner]) => [key, withoutEq(inner)]));
}

module.exports = { asDriverSends };
