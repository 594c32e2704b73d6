// The two ways a test fails by the runner's judgement. A test cannot expect either of them: they
// pass through `expectError` and `ignoreResultAndError`.
'use strict';

const NAMESPACE_NOT_FOUND = 26;

class Failure extends Error {
  get name() { return this.constructor.name; }
}

/** The driver or the server did something else than the test expects. */
class Mismatch extends Failure {}

/** The test itself is wrong, or uses a part of the format that this runner does not know. */
class Malformed extends Failure {}

function expect(condition, message) {
  if (!condition) throw new Mismatch(message);
}

/** Rejects fields without a meaning here, so that no part of a test is skipped unnoticed. */
function expectNoOther(fields, where) {
  const names = Object.keys(fields);
  if (names.length > 0) throw new Malformed(`${where}: ${names.join(', ')} is not supported`);
}

/** Waits for a command that may fail with this code. */
async function unless(code, done) {
  try {
    return await done;
  } catch (error) {
    if (error.code !== code) throw error;
    return undefined;
  }
}

module.exports = { NAMESPACE_NOT_FOUND, Failure, Mismatch, Malformed, expect, expectNoOther, unless };
