// What the Node driver offers once the feature compatibility version is 8.0.
'use strict';
const assert = require('node:assert/strict');
const { after, before, test } = require('node:test');
const { MongoClient } = require('mongodb');
const { start } = require('./server');

let server;
before(async () => { server = await start(); });
after(() => server?.stop());

async function connected(use) {
  const client = await new MongoClient(server.uri, { serverSelectionTimeoutMS: 10000 }).connect();
  try {
    return await use(client);
  } finally {
    await client.close();
  }
}

const skip = process.env.MARULA_TEST_URI || /mongod/.test(process.env.MARULA_SERVE || '') ? 'it changes the server' : false;

test('writes to several collections at once', { skip }, async () => {
  const models = [
    { name: 'insertOne', namespace: 'versions.a', document: { _id: 1, x: 1 } },
    { name: 'insertOne', namespace: 'versions.a', document: { _id: 2, x: 2 } },
    { name: 'insertOne', namespace: 'versions.b', document: { _id: 1 } },
    { name: 'updateOne', namespace: 'versions.a', filter: { _id: 2 }, update: { $inc: { x: 5 } } },
    { name: 'replaceOne', namespace: 'versions.b', filter: { _id: 7 }, replacement: { y: 1 }, upsert: true },
    { name: 'deleteMany', namespace: 'versions.a', filter: { x: 1 } },
  ];
  await connected(async (client) => {
    // The driver refuses what 6.0 does not have, before anything is sent.
    await assert.rejects(client.bulkWrite(models));
    await client.db('admin').command({ setFeatureCompatibilityVersion: '8.0', confirm: true });
  });
  await connected(async (client) => {
    const done = await client.bulkWrite(models, { verboseResults: true });
    assert.deepEqual([done.insertedCount, done.modifiedCount, done.upsertedCount, done.deletedCount], [3, 1, 1, 1]);
    assert.equal(done.updateResults.get(4).upsertedId, 7);
    assert.deepEqual(await client.db('versions').collection('a').find().toArray(), [{ _id: 2, x: 7 }]);
    const again = [models[2], { name: 'insertOne', namespace: 'versions.b', document: { _id: 8 } }];
    await assert.rejects(client.bulkWrite(again, { ordered: false }), (error) => {
      assert.equal(error.writeErrors.get(0).code, 11000);
      return true;
    });
    assert.equal(await client.db('versions').collection('b').countDocuments(), 3);
  });
});
