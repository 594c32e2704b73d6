// What programs see that tail the oplog, through a library of theirs with a driver of its own (3.6).
'use strict';
const assert = require('node:assert/strict');
const { after, before, test } = require('node:test');
const { MongoClient } = require('mongodb');
const { MongoOplog } = require('mongo-oplog2');
const { start } = require('./server');

let server, client, db;
before(async () => {
  server = await start(['--replSet', 'rs0']);
  client = await new MongoClient(server.uri, { serverSelectionTimeoutMS: 10000 }).connect();
  db = client.db('tailed');
});
after(async () => {
  await client?.close();
  await server?.stop();
});

function tailing(options) {
  const port = new URL(server.uri).port;
  const oplog = new MongoOplog(`mongodb://127.0.0.1:${port}/local`, options);
  const seen = [];
  oplog.on('op', ({ op, ns, o, o2 }) => seen.push({ op, ns, o, o2 }));
  oplog.on('error', (error) => seen.push(error));
  return { oplog, seen };
}

async function until(condition) {
  for (let waited = 0; !condition(); waited += 20) {
    assert.ok(waited < 10000, 'waited in vain');
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

test('mongo-oplog2 reports every change, and tails again after a stop', async () => {
  const { oplog, seen } = tailing({ ns: 'tailed.*' });
  await oplog.tail();
  const posts = db.collection('posts');
  await posts.insertMany([{ _id: 1, a: 1 }, { _id: 2, a: [1, 2] }]);
  await posts.updateOne({ _id: 1 }, { $set: { a: 2, b: { c: 1 } } });
  await posts.updateOne({ _id: 2 }, { $push: { a: 3 } });
  await posts.replaceOne({ _id: 1 }, { z: 1 });
  await posts.deleteOne({ _id: 2 });
  await db.collection('others').insertOne({ _id: 5 });
  await posts.drop();
  await until(() => seen.length >= 10);
  const changes = seen.map(({ op, ns, o, o2 }) => [op, ns.replace('tailed.', ''), op === 'c' ? Object.keys(o)[0] : o, o2?._id]);
  assert.deepEqual(changes, [
    ['c', '$cmd', 'create', undefined],
    ['i', 'posts', { _id: 1, a: 1 }, 1],
    ['i', 'posts', { _id: 2, a: [1, 2] }, 2],
    ['u', 'posts', { $v: 2, diff: { u: { a: 2 }, i: { b: { c: 1 } } } }, 1],
    ['u', 'posts', { $v: 2, diff: { sa: { a: true, u2: 3 } } }, 2],
    ['u', 'posts', { _id: 1, z: 1 }, 1],
    ['d', 'posts', { _id: 2 }, undefined],
    ['c', '$cmd', 'create', undefined],
    ['i', 'others', { _id: 5 }, 5],
    ['c', '$cmd', 'drop', undefined],
  ]);

  await oplog.stop();
  await db.collection('others').insertOne({ _id: 6 });
  await oplog.tail();
  await db.collection('others').insertOne({ _id: 7 });
  await until(() => seen.at(-1).o?._id === 7);
  await oplog.destroy();
});
