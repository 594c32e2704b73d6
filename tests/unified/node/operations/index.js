// Runs one operation of a test: finds its row, calls the driver, checks the result or the error.
'use strict';
const { inspect } = require('node:util');
const { Failure, Malformed, expect, expectNoOther } = require('../failures');
const { expectError } = require('../error_matching');
const { expectMatch } = require('../matching');
const { argumentsOf } = require('../options');
const { cursor } = require('./cursor');

// One table per kind of entity.
const TABLES = {
  bucket: require('./bucket'),
  client: require('./client'),
  collection: require('./collection'),
  cursor,
  database: require('./database'),
  session: require('./session'),
  testRunner: require('./test_runner'),
};

// Kinds of the results that other operations work on; all others are values to compare with.
const SAVED_AS = {
  createChangeStream: 'cursor', createCollection: 'collection', createCommandCursor: 'cursor', createFindCursor: 'cursor',
};

/**
 * Returns `{ result }`, or `{ error }` of an error that the test expects or ignores. Throws all
 * other errors as they are: in the callback of `withTransaction` the driver must see them.
 */
async function run(operation, entities) {
  const { name, object, arguments: _, expectError: expectedError, expectResult, saveResultAsEntity,
    ignoreResultAndError = false, ...other } = operation;
  expectNoOther(other, name);
  let result;
  try {
    result = await call(operation, entities);
  } catch (error) {
    if (error instanceof Failure || !(expectedError || ignoreResultAndError)) throw error;
    if (expectedError) expectError(expectedError, error, entities);
    return { error };
  }
  expect(!expectedError, `an error was expected, the result is ${inspect(result)}`);
  if (expectResult !== undefined) expectMatch(expectResult, result, entities, 'the result');
  if (saveResultAsEntity) entities.add(saveResultAsEntity, SAVED_AS[name] ?? 'value', result);
  return { result };
}

async function call(operation, entities) {
  const { name, object } = operation;
  const kind = object === 'testRunner' ? object : entities.kindOf(object);
  const row = TABLES[kind]?.[name];
  if (!row) throw new Malformed(`the operation ${name} of a ${kind} is not supported`);
  const [required, perform] = row;
  const given = argumentsOf(operation, entities);
  const missing = required.filter((argument) => given[argument] === undefined);
  if (missing.length > 0) throw new Malformed(`${name} has no ${missing.join(', ')}`);
  const target = object === 'testRunner' ? entities : entities.get(object);
  return perform(target, given, { run: (inner) => run(inner, entities) });
}

module.exports = { run };
