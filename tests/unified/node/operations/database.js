// Operations of a database.
'use strict';
const { NAMESPACE_NOT_FOUND, unless } = require('../failures');
const { openChangeStream, openCursor } = require('./cursor');

// name: [the arguments that must be there, the call]
module.exports = {
  aggregate: [['pipeline'], (db, { pipeline, ...options }) => db.aggregate(pipeline, options).toArray()],
  createChangeStream: [['pipeline'], (db, { pipeline, ...options }) => openChangeStream(db.watch(pipeline, options))],
  createCollection: [['collection'], (db, { collection, ...options }) => db.createCollection(collection, options)],
  createCommandCursor: [['command'], (db, args) => openCursor(commandCursor(db, args))],
  // Drivers ignore that there is no such collection; this one leaves that to its caller.
  dropCollection: [['collection'], (db, { collection, ...options }) =>
    unless(NAMESPACE_NOT_FOUND, db.dropCollection(collection, options))],
  listCollectionNames: [[], async (db, { filter, ...options }) =>
    (await db.listCollections(filter, { ...options, nameOnly: true }).toArray()).map(({ name }) => name)],
  listCollectionObjects: [[], (db, { filter, ...options }) => db.listCollections(filter, options).toArray()],
  listCollections: [[], (db, { filter, ...options }) => db.listCollections(filter, options).toArray()],
  modifyCollection: [['collection'], (db, { collection, session, ...fields }) =>
    db.command({ collMod: collection, ...fields }, { session })],
  // `commandName` is for languages whose documents have no order.
  runCommand: [['command'], (db, { command, commandName, ...options }) => db.command(command, options)],
  runCursorCommand: [['command'], (db, args) => commandCursor(db, args).toArray()],
};

function commandCursor(db, { command, commandName, batchSize, maxTimeMS, comment, ...options }) {
  const cursor = db.runCursorCommand(command, options);
  if (batchSize !== undefined) cursor.setBatchSize(batchSize);
  if (maxTimeMS !== undefined) cursor.setMaxTimeMS(maxTimeMS);
  if (comment !== undefined) cursor.setComment(comment);
  return cursor;
}
