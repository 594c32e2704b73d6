// The driver's results in the form of the specification.
'use strict';

/** Maps by position become documents. The driver's null for "no upsert" becomes a missing field. */
function plainResult(result) {
  if (result instanceof Map) {
    return Object.fromEntries([...result].map(([position, value]) => [String(position), plainResult(value)]));
  }
  if (typeof result !== 'object' || result === null) return result;
  // `didUpsert` is a field of this driver alone.
  const { didUpsert, ...fields } = result;
  if (fields.upsertedId === null) delete fields.upsertedId;
  for (const [name, value] of Object.entries(fields)) {
    if (value instanceof Map) fields[name] = plainResult(value);
  }
  return fields;
}

module.exports = { plainResult };
