// The named objects of one test: clients, databases, collections, sessions, cursors, saved results.
'use strict';
const { GridFSBucket, MongoClient } = require('mongodb');
const { Observer } = require('./events');
const { Malformed, expectNoOther } = require('./failures');
const { readPreferenceOf } = require('./options');

// The intervals at which the driver checks a server: after it closed a connection, or reported that
// it shuts down. Many tests wait for such a check; the defaults are half a second and ten seconds.
const FAST_DISCOVERY = { minHeartbeatFrequencyMS: 20, heartbeatFrequencyMS: 500 };

class Entities {
  constructor(server) {
    this.server = server;
    this.byId = new Map();
    this.observers = new Map();
    // The names of the fail points that the test enabled.
    this.failPoints = new Set();
  }

  add(id, kind, value) {
    if (this.byId.has(id)) throw new Malformed(`the entity ${id} exists already`);
    this.byId.set(id, { kind, value });
  }

  /** Returns an entity's value; with `kind`, only if it is of that kind. */
  get(id, kind) {
    const entity = this.byId.get(id);
    if (!entity) throw new Malformed(`there is no entity ${id}`);
    if (kind && entity.kind !== kind) throw new Malformed(`${id} is a ${entity.kind}, not a ${kind}`);
    return entity.value;
  }

  kindOf(id) {
    this.get(id);
    return this.byId.get(id).kind;
  }

  observer(client) {
    this.get(client, 'client');
    return this.observers.get(client);
  }

  /** Creates the entities of a list; later ones may refer to earlier ones. */
  async create(list = []) {
    for (const item of list) {
      const [[kind, { id, ...fields }]] = Object.entries(item);
      if (!(kind in CREATED)) throw new Malformed(`entities of the kind ${kind} are not supported`);
      this.add(id, kind, await CREATED[kind](this, fields, id));
    }
  }

  /** The sessions of a test see at least its initial data. */
  advanceClusterTime(time) {
    if (!time) return;
    for (const { kind, value } of this.byId.values()) {
      if (kind === 'session') value.advanceClusterTime(time);
    }
  }

  async close() {
    const values = (kind) => [...this.byId.values()].filter((entity) => entity.kind === kind).map(({ value }) => value);
    for (const client of values('client')) await client.close(true);
  }
}

// One row per kind of entity.
const CREATED = {
  async client(entities, fields, id) {
    const { uriOptions, serverApi, observeEvents, ignoreCommandMonitoringEvents, observeSensitiveCommands,
      // All routers are one here. Tests that need a second one are in the list of those left out.
      useMultipleMongoses, ...other } = fields;
    expectNoOther(other, id);
    const options = { ...FAST_DISCOVERY, monitorCommands: true, ...uriOptions, ...(serverApi && { serverApi }) };
    const client = new MongoClient(entities.server.uri, options);
    entities.observers.set(id, new Observer(client,
      { observeEvents, ignoreCommandMonitoringEvents, observeSensitiveCommands }));
    return client.connect();
  },

  database(entities, { client, databaseName, databaseOptions, ...other }, id) {
    expectNoOther(other, id);
    return entities.get(client, 'client').db(databaseName, concerns(databaseOptions));
  },

  collection(entities, { database, collectionName, collectionOptions, ...other }, id) {
    expectNoOther(other, id);
    return entities.get(database, 'database').collection(collectionName, concerns(collectionOptions));
  },

  session(entities, { client, sessionOptions, ...other }, id) {
    expectNoOther(other, id);
    const { defaultTransactionOptions, ...options } = sessionOptions ?? {};
    if (defaultTransactionOptions) options.defaultTransactionOptions = concerns(defaultTransactionOptions);
    return entities.get(client, 'client').startSession(options);
  },

  bucket(entities, { database, bucketOptions, ...other }, id) {
    expectNoOther(other, id);
    return new GridFSBucket(entities.get(database, 'database'), concerns(bucketOptions));
  },
};

function concerns(options = {}) {
  return options.readPreference ? { ...options, readPreference: readPreferenceOf(options.readPreference) } : options;
}

module.exports = { Entities };
