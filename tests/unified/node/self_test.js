// Whether the runner can be trusted: the format's own tests, and tests that are broken on purpose.
//
// The suite has a folder of files that a runner must pass, and one of files that it must fail. The
// latter are mostly malformed; here are passing tests with a changed expectation in addition.
'use strict';
const { fileOf, filesOf } = require('./files');
const { Mismatch } = require('./failures');
const { isForServer } = require('./requirements');
const { runTest } = require('./run_test');

const FORMAT = 'unified-test-format';

// Tests that pass, and a change to each after which it must not. A change returns false if the test
// has nothing to change.
const BROKEN = [
  ['poc-crud.json', 'an outcome', ({ outcome }) => outcome?.[0].documents.push({ _id: 99 })],
  ['poc-crud.json', 'a result', ({ operations }) => changeEach(operations, 'expectResult', () => ({ deletedCount: 99 }))],
  ['poc-command-monitoring.json', 'a missing event', ({ expectEvents }) => expectEvents?.[0].events.pop()],
  ['poc-command-monitoring.json', 'a field of a command', ({ expectEvents: [{ events }] }) =>
    Object.assign(events[0].commandStartedEvent.command, { batchSize: 77 })],
  ['poc-sessions.json', 'a session', ({ expectEvents: [{ events }] }) =>
    Object.assign(events[0].commandStartedEvent.command, { lsid: { id: 1 } })],
  ['poc-transactions.json', 'an error', ({ operations }) =>
    changeEach(operations, 'expectError', () => ({ errorCode: -1 }))],
  ['poc-change-streams.json', 'an event of a stream', ({ operations }) =>
    changeEach(operations, 'expectResult', () => ({ operationType: 'drop' }))],
  ['ignoreResultAndError.json', 'an ignored error', ({ operations }) =>
    changeEach(operations, 'ignoreResultAndError', () => false)],
];

/** Returns the mistakes of the runner, or of the server. */
async function selfTest(server, suite, list) {
  const problems = [];
  const check = async (name, file, isExpected) => {
    for (const test of file.tests) {
      const title = `${name}: ${test.description}`;
      if (!isForServer(file, test, server) || list.has(title)) continue;
      const error = await runTest(server, file, test).then(() => null, (reason) => reason);
      if (!isExpected(error)) problems.push(`self-test: ${title}: ${error?.message ?? 'passed, though it must fail'}`);
    }
  };
  for (const [name, file] of filesOf(suite, `${FORMAT}/valid-pass`)) await check(name, file, (error) => error === null);
  for (const [name, file] of filesOf(suite, `${FORMAT}/valid-fail`)) await check(name, file, (error) => error !== null);
  for (const [name, what, change] of BROKEN) {
    const file = fileOf(suite, `${FORMAT}/valid-pass/${name}`);
    const tests = file.tests.filter(change);
    if (tests.length === 0) problems.push(`self-test: ${name} has no test to change ${what} of`);
    await check(`${name} with ${what} changed`, { ...file, tests }, (error) => error instanceof Mismatch);
  }
  return problems;
}

/** Changes a field of all operations that have it; returns whether there is one. */
function changeEach(operations, field, change) {
  const found = operations.filter((operation) => operation[field]);
  for (const operation of found) operation[field] = change();
  return found.length > 0;
}

module.exports = { selfTest };
