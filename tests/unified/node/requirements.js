// Whether a test is meant for this server: `runOnRequirements` and `skipReason`.
'use strict';
const { expectMatch } = require('./matching');
const { Mismatch, Malformed } = require('./failures');

// One row per field; each returns whether the server has what is required.
const FIELDS = {
  minServerVersion: (version, server) => compare(server.version, version) >= 0,
  maxServerVersion: (version, server) => compare(server.version, version) <= 0,
  topologies: (names, server) => names.includes(server.topology) ||
    // Since 3.6 each shard is a replica set.
    (server.topology === 'sharded' && names.includes('sharded-replicaset')),
  serverless: (wanted) => wanted !== 'require',
  auth: (wanted) => !wanted,
  csfle: (wanted) => !wanted,
  serverParameters: (expected, server) => {
    try {
      expectMatch(expected, server.parameters, null, 'serverParameters');
      return true;
    } catch (error) {
      if (error instanceof Mismatch) return false;
      throw error;
    }
  },
};

/** A list is met if one of its elements is. */
function isMet(requirements, server) {
  return requirements === undefined || requirements.some((requirement) =>
    Object.entries(requirement).every(([field, value]) => {
      if (!(field in FIELDS)) throw new Malformed(`the requirement ${field} is not supported`);
      return FIELDS[field](value, server);
    }));
}

function isForServer(file, test, server) {
  return !test.skipReason && isMet(file.runOnRequirements, server) && isMet(test.runOnRequirements, server);
}

function compare(one, other) {
  const [a, b] = [one, other].map((version) => version.split('.').map(Number));
  for (let i = 0; i < 3; i++) {
    if ((a[i] ?? 0) !== (b[i] ?? 0)) return (a[i] ?? 0) - (b[i] ?? 0);
  }
  return 0;
}

module.exports = { isForServer };
