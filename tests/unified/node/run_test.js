// Runs one test of a file: its initial data, entities and operations, then its events and outcome.
'use strict';
const { Entities } = require('./entities');
const { Failure, Malformed, Mismatch, expectNoOther } = require('./failures');
const { expectSame } = require('./matching');
const operations = require('./operations');

// No test waits this long for anything that still happens.
const LIMIT_MS = 30000;

async function runTest(server, file, test) {
  const { description, operations: list, expectEvents = [], outcome = [], runOnRequirements, skipReason, ...other } = test;
  expectNoOther(other, 'test');
  checkSchema(file);
  const entities = new Entities(server);
  let step = 'the initial data';
  const work = async () => {
    await server.killAllSessions();
    for (const collection of file.initialData ?? []) await server.fill(collection);
    await entities.create(file.createEntities);
    if (file.initialData) entities.advanceClusterTime(server.client.topology.clusterTime);
    for (const [i, operation] of list.entries()) {
      step = `operation ${i} (${operation.name})`;
      await runOperation(step, operation, entities);
    }
    step = 'the events';
    for (const expected of expectEvents) entities.observer(expected.client).expect(expected, entities);
    step = 'the outcome';
    for (const { databaseName, collectionName, documents } of outcome) {
      expectSame(documents, await server.documents({ databaseName, collectionName }), `outcome ${collectionName}`);
    }
  };
  try {
    await withLimit(work(), () => step);
  } finally {
    for (const name of entities.failPoints) await server.disableFailPoint(name);
    await entities.close();
  }
}

async function runOperation(step, operation, entities) {
  try {
    await operations.run(operation, entities);
  } catch (error) {
    const message = `${step}: ${error.name}: ${error.message}`;
    throw new (error instanceof Failure ? error.constructor : Mismatch)(message, { cause: error });
  }
}

/** Version 1 of the format; a field that a later minor version adds is an unknown field here. */
function checkSchema(file) {
  const { schemaVersion, description, tests, runOnRequirements, createEntities, initialData, _yamlAnchors,
    ...other } = file;
  if (!/^1\.\d+(\.\d+)?$/.test(schemaVersion)) throw new Malformed(`schemaVersion ${schemaVersion} is not supported`);
  expectNoOther(other, 'file');
}

async function withLimit(work, step) {
  let timer;
  const limit = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Mismatch(`${step()}: not done within ${LIMIT_MS} ms`)), LIMIT_MS);
  });
  try {
    await Promise.race([work, limit]);
  } finally {
    clearTimeout(timer);
  }
}

module.exports = { runTest };
