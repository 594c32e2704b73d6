// Operations of a client.
'use strict';
const { openChangeStream } = require('./cursor');
const { plainResult } = require('../results');

const listDatabases = async (client, options) => (await client.db().admin().listDatabases(options)).databases;

// name: [the arguments that must be there, the call]
module.exports = {
  clientBulkWrite: [['models'], async (client, { models, ...options }) =>
    plainResult(await client.bulkWrite(models.map(model), options))],
  close: [[], (client) => client.close()],
  createChangeStream: [['pipeline'], (client, { pipeline, ...options }) =>
    openChangeStream(client.watch(pipeline, options))],
  dropDatabase: [['database'], (client, { database, ...options }) => client.db(database).dropDatabase(options)],
  listDatabaseNames: [[], async (client, options) =>
    (await listDatabases(client, { ...options, nameOnly: true })).map(({ name }) => name)],
  listDatabaseObjects: [[], listDatabases],
  listDatabases: [[], listDatabases],
};

/** `{ insertOne: { … } }` is `{ name: 'insertOne', … }` for the driver. */
function model(request) {
  const [[name, fields]] = Object.entries(request);
  return { name, ...fields };
}
