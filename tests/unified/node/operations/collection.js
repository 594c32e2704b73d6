// Operations of a collection.
'use strict';
const { openChangeStream, openCursor } = require('./cursor');
const { plainResult } = require('../results');

// name: [the arguments that must be there, the call]
module.exports = {
  aggregate: [['pipeline'], (c, { pipeline, ...options }) => c.aggregate(pipeline, options).toArray()],
  bulkWrite: [['requests'], async (c, { requests, ...options }) => plainResult(await c.bulkWrite(requests, options))],
  count: [['filter'], (c, { filter, ...options }) => c.count(filter, options)],
  countDocuments: [['filter'], (c, { filter, ...options }) => c.countDocuments(filter, options)],
  createChangeStream: [['pipeline'], (c, { pipeline, ...options }) => openChangeStream(c.watch(pipeline, options))],
  createFindCursor: [['filter'], (c, { filter, ...options }) => openCursor(c.find(filter, options))],
  createIndex: [['keys'], (c, { keys, ...options }) => c.createIndex(keys, options)],
  createSearchIndex: [['model'], (c, { model }) => c.createSearchIndex(model)],
  createSearchIndexes: [['models'], (c, { models }) => c.createSearchIndexes(models)],
  deleteMany: [['filter'], (c, { filter, ...options }) => c.deleteMany(filter, options)],
  deleteOne: [['filter'], (c, { filter, ...options }) => c.deleteOne(filter, options)],
  distinct: [['fieldName', 'filter'], (c, { fieldName, filter, ...options }) => c.distinct(fieldName, filter, options)],
  dropIndex: [['name'], (c, { name, ...options }) => c.dropIndex(name, options)],
  dropIndexes: [[], (c, options) => c.dropIndexes(options)],
  dropSearchIndex: [['name'], (c, { name }) => c.dropSearchIndex(name)],
  estimatedDocumentCount: [[], (c, options) => c.estimatedDocumentCount(options)],
  find: [['filter'], (c, { filter, ...options }) => c.find(filter, options).toArray()],
  findOne: [['filter'], (c, { filter, ...options }) => c.findOne(filter, options)],
  findOneAndDelete: [['filter'], (c, { filter, ...options }) => c.findOneAndDelete(filter, options)],
  findOneAndReplace: [['filter', 'replacement'], (c, { filter, replacement, ...options }) =>
    c.findOneAndReplace(filter, replacement, options)],
  findOneAndUpdate: [['filter', 'update'], (c, { filter, update, ...options }) =>
    c.findOneAndUpdate(filter, update, options)],
  insertMany: [['documents'], (c, { documents, ...options }) => c.insertMany(documents, options)],
  insertOne: [['document'], (c, { document, ...options }) => c.insertOne(document, options)],
  listIndexes: [[], (c, options) => c.listIndexes(options).toArray()],
  listIndexNames: [[], async (c, options) => (await c.listIndexes(options).toArray()).map(({ name }) => name)],
  listSearchIndexes: [[], (c, { name, aggregationOptions }) => c.listSearchIndexes(name, aggregationOptions).toArray()],
  rename: [['to'], (c, { to, ...options }) => c.rename(to, options)],
  replaceOne: [['filter', 'replacement'], async (c, { filter, replacement, ...options }) =>
    plainResult(await c.replaceOne(filter, replacement, options))],
  updateMany: [['filter', 'update'], async (c, { filter, update, ...options }) =>
    plainResult(await c.updateMany(filter, update, options))],
  updateOne: [['filter', 'update'], async (c, { filter, update, ...options }) =>
    plainResult(await c.updateOne(filter, update, options))],
  updateSearchIndex: [['name', 'definition'], (c, { name, definition }) => c.updateSearchIndex(name, definition)],
};
