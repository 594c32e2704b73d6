// MongoDB's unified tests through the Node driver, against a server that runs already:
//
//     node run.js --suite FOLDER --uri mongodb://… --way set
//         [--areas sessions,…] [-k words] [--prove-list]
//
// `tests/unified/run.py` starts the servers and calls this. A test passes, or its file leaves it
// out on this kind of server, or `../left_out.json` has it with a reason. Any other test fails the
// run, as does a pattern of the list that matches no test, and a number of passed tests below the
// minimum. `--prove-list` also runs the tests of the list; each that passes fails the run.
'use strict';
const { parseArgs } = require('node:util');
const { filesOf } = require('./files');
const { LeftOut } = require('./left_out');
const { isForServer } = require('./requirements');
const { runTest } = require('./run_test');
const { selfTest } = require('./self_test');
const { Server } = require('./server');

const AREAS = [
  'causal_consistency', 'change_streams/unified', 'collection_management', 'command_monitoring', 'crud/unified', 'gridfs',
  'index_management', 'read_write_concern/operation', 'read_write_concern/write-concern-errors', 'retryable_reads/unified',
  'retryable_writes/unified', 'run_command/unified', 'sessions', 'transactions/unified',
  'transactions-convenient-api/unified', 'versioned-api',
];

// The minimum of passed tests: if the server is taken for another kind, most tests are left out.
const PASSED_AT_LEAST = { set: 1200, mongos: 1195, '8.0': 1265 };

class Tally {
  passed = 0;
  bySpecification = 0;
  byList = 0;
  failed = 0;

  add(other) {
    for (const field of Object.keys(this)) this[field] += other[field];
  }

  toString() {
    return `${this.passed} passed, ${this.bySpecification} left out by the specification, ` +
      `${this.byList} left out by the list, ${this.failed} failed`;
  }
}

async function runArea(server, area, { suite, words, proveList }, list) {
  const tally = new Tally();
  for (const [name, file] of filesOf(suite, area)) {
    for (const test of file.tests) {
      const title = `${name}: ${test.description}`;
      if (!title.toLowerCase().includes(words.toLowerCase())) continue;
      const isLeftOut = list.has(title);
      if (!isForServer(file, test, server)) tally.bySpecification += 1;
      else if (isLeftOut && !proveList) tally.byList += 1;
      else tally[await outcome(server, title, file, test, isLeftOut)] += 1;
    }
  }
  return tally;
}

/** Returns the field of the tally that a test counts for; prints why it is not the expected one. */
async function outcome(server, title, file, test, mustFail) {
  const error = await runTest(server, file, test).then(() => null, (reason) => reason);
  if (mustFail && error) return 'byList';
  if (!mustFail && !error) return 'passed';
  console.log(`FAILED ${title}\n       ${error ? `${error.name}: ${error.message}` : 'is in the list, but it passes'}`);
  return 'failed';
}

async function main() {
  const { values: { suite, uri, way, areas, k: words, 'prove-list': proveList } } = parseArgs({ options: {
    suite: { type: 'string' }, uri: { type: 'string' }, way: { type: 'string' },
    areas: { type: 'string', default: '' }, k: { type: 'string', short: 'k', default: '' },
    'prove-list': { type: 'boolean', default: false },
  } });
  const isWhole = !areas && !words;
  const server = await Server.connect(uri);
  const all = new Tally();
  const list = new LeftOut(way);
  const problems = isWhole ? await selfTest(server, suite, list) : [];
  for (const area of areas ? areas.split(',') : AREAS) {
    const tally = await runArea(server, area, { suite, words, proveList }, list);
    console.log(`  ${area}: ${tally}`);
    all.add(tally);
  }
  if (isWhole) {
    for (const pattern of list.unused()) problems.push(`the list has "${pattern}", which is no test`);
    if (all.passed < PASSED_AT_LEAST[way]) problems.push(`at least ${PASSED_AT_LEAST[way]} must pass`);
  }
  problems.forEach((problem) => console.log(problem));
  console.log(String(all));
  await server.close();
  process.exit(all.failed > 0 || problems.length > 0 ? 1 : 0);
}

main();
