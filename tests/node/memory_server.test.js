// mongodb-memory-server starts this program in place of a mongod that it would download: SYSTEM_BINARY.
'use strict';
const { test } = require('node:test');
const assert = require('node:assert/strict');
const path = require('node:path');
const { MongoClient } = require('mongodb');
const { MongoMemoryServer, MongoMemoryReplSet } = require('mongodb-memory-server-core');

const root = path.resolve(__dirname, '../..');
const program = process.env.MARULA_BIN || path.join(process.env.CARGO_TARGET_DIR || path.join(root, 'target'), 'release/marula');
const binary = { systemBinary: program, version: '6.0.27' };

async function roundTrip(uri) {
  const client = await MongoClient.connect(uri);
  try {
    await client.db('t').collection('c').insertOne({ _id: 1, x: 'y' });
    assert.deepEqual(await client.db('t').collection('c').findOne(), { _id: 1, x: 'y' });
    return await client.db('admin').command({ hello: 1 });
  } finally {
    await client.close();
  }
}

for (const storageEngine of ['ephemeralForTest', 'wiredTiger']) {
  test(`a server with ${storageEngine}`, async () => {
    const server = await MongoMemoryServer.create({ binary, instance: { storageEngine } });
    try {
      await roundTrip(server.getUri());
    } finally {
      await server.stop();
    }
  });
}

test('a server with access control, whose first user the library makes', async () => {
  const auth = { enable: true, customRootName: 'root', customRootPwd: 'secret' };
  const server = await MongoMemoryServer.create({ binary, instance: { storageEngine: 'wiredTiger' }, auth });
  try {
    await assert.rejects(roundTrip(server.getUri()), { code: 13 });
    await roundTrip(server.getUri().replace('//', '//root:secret@') + '?authSource=admin');
  } finally {
    await server.stop();
  }
});

test('a replica set', async () => {
  const set = await MongoMemoryReplSet.create({ binary, replSet: { name: 'rs7', count: 1, storageEngine: 'wiredTiger' } });
  try {
    const hello = await roundTrip(set.getUri());
    assert.equal(hello.setName, 'rs7');
    assert.ok(hello.isWritablePrimary);
    const client = await MongoClient.connect(set.getUri());
    await client.withSession((session) => session.withTransaction(() => client.db('t').collection('c').insertOne({ _id: 2 }, { session })));
    await client.close();
  } finally {
    await set.stop();
  }
});
