// The server under test, through a client of the runner's own that no test observes.
'use strict';
const { MongoClient } = require('mongodb');
const { NAMESPACE_NOT_FOUND, unless } = require('./failures');

const MAJORITY = { writeConcern: { w: 'majority' } };
const INTERRUPTED = 11601;

class Server {
  static async connect(uri) {
    const server = new Server();
    server.uri = uri;
    server.client = await new MongoClient(uri, { serverSelectionTimeoutMS: 10000 }).connect();
    server.admin = server.client.db('admin');
    server.version = (await server.admin.command({ buildInfo: 1 })).version;
    server.parameters = await server.admin.command({ getParameter: '*' });
    const hello = await server.admin.command({ hello: 1 });
    server.topology = hello.setName ? 'replicaset' : hello.msg === 'isdbgrid' ? 'sharded' : 'single';
    return server;
  }

  /** A failed test may leave a transaction open, which would block the next one's `drop`. */
  async killAllSessions() {
    await unless(INTERRUPTED, this.admin.command({ killAllSessions: [] }));
  }

  /** Puts a collection into its initial state. */
  async fill({ databaseName, collectionName, documents, createOptions }) {
    const database = this.client.db(databaseName);
    const collection = database.collection(collectionName);
    await unless(NAMESPACE_NOT_FOUND, collection.drop(MAJORITY));
    if (createOptions || documents.length === 0) {
      await database.createCollection(collectionName, { ...createOptions, ...MAJORITY });
    }
    if (documents.length > 0) await collection.insertMany(documents, MAJORITY);
  }

  async documents({ databaseName, collectionName }) {
    const options = { sort: { _id: 1 }, readPreference: 'primary', readConcern: { level: 'local' } };
    return this.client.db(databaseName).collection(collectionName).find({}, options).toArray();
  }

  async collectionNames(databaseName) {
    return (await this.client.db(databaseName).listCollections({}, { nameOnly: true }).toArray()).map(({ name }) => name);
  }

  async indexNames(databaseName, collectionName) {
    if (!(await this.collectionNames(databaseName)).includes(collectionName)) return [];
    return (await this.client.db(databaseName).collection(collectionName).listIndexes().toArray()).map(({ name }) => name);
  }

  async disableFailPoint(name) {
    await this.admin.command({ configureFailPoint: name, mode: 'off' });
  }

  async close() {
    await this.client.close();
  }
}

module.exports = { Server };
