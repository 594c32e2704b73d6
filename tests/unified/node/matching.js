// Compares an actual value with an expected one that may contain the format's special operators.
//
// A root document may have more fields than expected; nested ones must have exactly the expected
// fields. Numbers match by value: a test file cannot say which BSON type an integer has.
'use strict';
const { inspect } = require('node:util');
const { BSON } = require('mongodb');
const { Malformed, Mismatch, expect } = require('./failures');

const { EJSON } = BSON;

/** Matches an operation's result, a command or a reply. `path` names it in messages. */
function expectMatch(expected, actual, entities, path) {
  const at = { path, entities, root: true };
  // The documents of a list at the root are root documents: a cursor returned them.
  if (Array.isArray(expected)) matchList(expected, actual, at, true);
  else matchValue(expected, actual, at);
}

/** Matches without extra fields and without operators: the documents of a collection. */
function expectSame(expected, actual, path) {
  matchValue(expected, actual, { path, entities: null, root: false });
}

function matchValue(expected, actual, at) {
  const operator = operatorOf(expected);
  if (operator) {
    if (!at.entities) throw new Malformed(`${at.path}: ${operator} is not allowed here`);
    OPERATORS[operator](expected[operator], actual, at);
  } else if (Array.isArray(expected)) {
    matchList(expected, actual, at, false);
  } else if (isDocument(expected)) {
    matchDocument(expected, actual, at);
  } else if (numberOf(expected) !== undefined) {
    expect(numberOf(expected) === numberOf(actual), differs(expected, actual, at));
  } else {
    expect(canonical(expected) === canonical(actual), differs(expected, actual, at));
  }
}

function matchList(expected, actual, at, root) {
  expect(Array.isArray(actual) && actual.length === expected.length, differs(expected, actual, at));
  expected.forEach((item, i) => matchValue(item, actual[i], { ...at, path: `${at.path}[${i}]`, root }));
}

function matchDocument(expected, actual, at) {
  expect(isDocument(actual), differs(expected, actual, at));
  for (const [key, value] of Object.entries(expected)) {
    const field = { ...at, path: `${at.path}.${key}`, root: false };
    expect(actual[key] !== undefined || allowsMissing(value), `${field.path} is missing in ${show(actual)}`);
    matchValue(value, actual[key], field);
  }
  if (at.root) return;
  const more = Object.keys(actual).filter((key) => actual[key] !== undefined && !(key in expected));
  expect(more.length === 0, `${at.path} has more fields: ${more.join(', ')} in ${show(actual)}`);
}

const OPERATORS = {
  $$exists: (wanted, actual, at) =>
    expect((actual !== undefined) === wanted, `${at.path} ${wanted ? 'is missing' : `exists: ${show(actual)}`}`),
  $$type: (types, actual, at) =>
    expect([types].flat().some((type) => typesOf(actual).includes(type)), differs({ $$type: types }, actual, at)),
  $$lte: (limit, actual, at) => expect(numberOf(actual) <= numberOf(limit), differs({ $$lte: limit }, actual, at)),
  $$matchesEntity: (id, actual, at) => matchValue(at.entities.get(id), actual, at),
  $$matchesHexBytes: (hex, actual, at) => {
    expect(actual instanceof Uint8Array, differs(hex, actual, at));
    expect(Buffer.from(actual).toString('hex') === hex.toLowerCase(), differs(hex, actual, at));
  },
  $$unsetOrMatches: (expected, actual, at) => { if (actual !== undefined) matchValue(expected, actual, at); },
  $$sessionLsid: (id, actual, at) => matchValue(at.entities.get(id, 'session').id, actual, { ...at, root: false }),
  $$matchAsDocument: (expected, actual, at) => matchValue(expected, parsed(actual, at), { ...at, root: false }),
  $$matchAsRoot: (expected, actual, at) => matchValue(expected, actual, { ...at, root: true }),
};

function operatorOf(expected) {
  if (!isDocument(expected)) return undefined;
  const special = Object.keys(expected).filter((key) => key.startsWith('$$'));
  if (special.length === 0) return undefined;
  if (special[0] in OPERATORS && Object.keys(expected).length === 1) return special[0];
  throw new Malformed(`${show(expected)} is not an operator of the format`);
}

function allowsMissing(expected) {
  return ['$$exists', '$$unsetOrMatches'].includes(operatorOf(expected));
}

function parsed(text, at) {
  try {
    return EJSON.parse(text, { relaxed: true });
  } catch {
    throw new Mismatch(`${at.path} is not extended JSON: ${show(text)}`);
  }
}

/** Also the driver's results, which are instances of its own classes. */
function isDocument(value) {
  return typeof value === 'object' && value !== null && !value._bsontype && !Array.isArray(value) &&
    !(value instanceof Date) && !(value instanceof RegExp) && !(value instanceof Uint8Array) && !(value instanceof Map);
}

function numberOf(value) {
  if (typeof value === 'number' || typeof value === 'bigint') return Number(value);
  return ['Int32', 'Double', 'Long'].includes(value?._bsontype) ? Number(value.toString()) : undefined;
}

/** The BSON types a value may have had: the driver returns numbers of three types as one. */
function typesOf(value) {
  switch (typeof value) {
    case 'undefined': return [];
    case 'string': return ['string'];
    case 'boolean': return ['bool'];
    case 'bigint': return ['long', 'number'];
    case 'number': return Number.isInteger(value) ? ['int', 'long', 'double', 'number'] : ['double', 'number'];
  }
  if (value === null) return ['null'];
  if (Array.isArray(value)) return ['array'];
  if (value instanceof Date) return ['date'];
  if (value instanceof RegExp) return ['regex'];
  if (value instanceof Uint8Array) return ['binData'];
  return BSON_TYPES[value._bsontype] ?? ['object'];
}

const BSON_TYPES = {
  Int32: ['int', 'number'], Long: ['long', 'number'], Double: ['double', 'number'], Decimal128: ['decimal', 'number'],
  ObjectId: ['objectId'], Binary: ['binData'], Timestamp: ['timestamp'], BSONRegExp: ['regex'], BSONSymbol: ['symbol'],
  Code: ['javascript', 'javascriptWithScope'], DBRef: ['dbPointer', 'object'], MinKey: ['minKey'], MaxKey: ['maxKey'],
};

function canonical(value) {
  return value === undefined ? undefined : EJSON.stringify({ value }, { relaxed: false });
}

function differs(expected, actual, at) {
  return `${at.path} is ${show(actual)}; expected ${show(expected)}`;
}

function show(value) {
  return inspect(value, { depth: 8, breakLength: Infinity }).slice(0, 600);
}

module.exports = { expectMatch, expectSame };
