// Values of the format that the driver spells in another way.
'use strict';
const { ReadPreference } = require('mongodb');
const { Malformed } = require('./failures');

const RETURN_DOCUMENT = { Before: 'before', After: 'after' };

function readPreferenceOf({ mode, tagSets, maxStalenessSeconds, hedge }) {
  const options = {};
  if (maxStalenessSeconds !== undefined) options.maxStalenessSeconds = maxStalenessSeconds;
  if (hedge !== undefined) options.hedge = hedge;
  return new ReadPreference(mode, tagSets, options);
}

// One row per argument, whatever the operation is.
const ARGUMENTS = {
  session: (id, entities) => entities.get(id, 'session'),
  readPreference: readPreferenceOf,
  returnDocument: (when) => {
    if (!(when in RETURN_DOCUMENT)) throw new Malformed(`returnDocument cannot be ${when}`);
    return RETURN_DOCUMENT[when];
  },
};

/** The arguments of an operation as the driver takes them. */
function argumentsOf(operation, entities) {
  return Object.fromEntries(Object.entries(operation.arguments ?? {}).map(([name, value]) =>
    [name, name in ARGUMENTS ? ARGUMENTS[name](value, entities) : value]));
}

module.exports = { argumentsOf, readPreferenceOf };
