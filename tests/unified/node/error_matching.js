// Compares an error of the driver with a test's `expectError`.
'use strict';
const { MongoBulkWriteError, MongoClientBulkWriteError, MongoOperationTimeoutError, MongoServerError } = require('mongodb');
const { Malformed, expect } = require('./failures');
const { expectMatch, expectSame } = require('./matching');
const { plainResult } = require('./results');

// Fields about the whole of a bulk write, not about the error that ended it.
const OF_BULK = new Set(['expectResult', 'writeErrors', 'writeConcernErrors']);

// One row per field of `expectError`.
const FIELDS = {
  // Says only that there is an error.
  isError: () => {},
  isClientError: (wanted, error) => expect(!(error instanceof MongoServerError) === wanted,
    `${wanted ? 'the server' : 'the driver'} raised ${shown(error)}`),
  isTimeoutError: (wanted, error) => expect((error instanceof MongoOperationTimeoutError) === wanted, shown(error)),
  errorContains: (part, error) => expect(error.message.toLowerCase().includes(part.toLowerCase()),
    `"${part}" is not in ${shown(error)}`),
  errorCode: (code, error) => expect(error.code === code, `the code is ${error.code}, not ${code}: ${shown(error)}`),
  errorCodeName: (name, error) => expect(codeName(error) === name,
    `the code's name is ${codeName(error)}, not ${name}: ${shown(error)}`),
  errorLabelsContain: (labels, error) => labels.forEach((label) =>
    expect(error.hasErrorLabel?.(label), `the label ${label} is missing: ${shown(error)}`)),
  errorLabelsOmit: (labels, error) => labels.forEach((label) =>
    expect(!error.hasErrorLabel?.(label), `has the label ${label}: ${shown(error)}`)),
  errorResponse: (expected, error, entities) => expectMatch(expected, error.errorResponse, entities, 'errorResponse'),
  expectResult: (expected, error, entities) => expectMatch(expected, resultOf(error), entities, 'the partial result'),
  writeErrors: (expected, error, entities) => {
    const actual = plainResult(error.writeErrors ?? new Map());
    expectSame(Object.keys(expected), Object.keys(actual), 'the positions of writeErrors');
    for (const [position, one] of Object.entries(expected)) {
      expectMatch(one, actual[position], entities, `writeErrors.${position}`);
    }
  },
  writeConcernErrors: (expected, error, entities) =>
    expectMatch(expected, error.writeConcernErrors, entities, 'writeConcernErrors'),
};

function expectError(expected, error, entities) {
  for (const [field, value] of Object.entries(expected)) {
    if (!(field in FIELDS)) throw new Malformed(`expectError.${field} is not supported`);
    FIELDS[field](value, OF_BULK.has(field) ? error : causeOf(error), entities);
  }
}

/** A bulk write of a client that an error ends has an error of its own around that one. */
function causeOf(error) {
  return error instanceof MongoClientBulkWriteError && error.cause ? error.cause : error;
}

/** A bulk write's error carries what was done before it. */
function resultOf(error) {
  if (error instanceof MongoBulkWriteError) return plainResult(error.result);
  return plainResult(error.partialResult);
}

/** A write concern error keeps its name inside the reply. */
function codeName(error) {
  return error.codeName ?? error.errorResponse?.codeName ?? error.result?.writeConcernError?.codeName;
}

function shown(error) {
  const labels = error.errorLabels?.length ? ` [${error.errorLabels.join(', ')}]` : '';
  return `${error.name}: ${error.message}${labels}`;
}

module.exports = { expectError };
