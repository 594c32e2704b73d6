// What an application does through the Node driver.
'use strict';
const assert = require('node:assert/strict');
const { after, before, beforeEach, test } = require('node:test');
const { MongoClient, ObjectId, Long, Decimal128, Int32, Double, Timestamp, Binary } = require('mongodb');
const { start } = require('./server');

let server, client, db, c;
before(async () => {
  server = await start();
  client = await new MongoClient(server.uri, { serverSelectionTimeoutMS: 10000 }).connect();
  db = client.db(`t_node_${process.pid}`);
  c = db.collection('c');
});
beforeEach(() => db.dropDatabase());
after(async () => {
  await db?.dropDatabase();
  await client?.close();
  await server?.stop();
});

test('types come back as they went in', async () => {
  const document = {
    _id: new ObjectId(), int: new Int32(5), double: new Double(5), long: Long.fromString('9007199254740993'),
    decimal: Decimal128.fromString('0.10'), date: new Date(1234567890123), text: 'žluťoučký 🐎', nothing: null,
    list: [1, [2, { three: 3 }]], bytes: new Binary(Buffer.from([1, 2, 3])), stamp: new Timestamp({ t: 7, i: 3 }),
    pattern: /^a.c$/i, truth: true,
  };
  await c.insertOne(document);
  const raw = { promoteValues: false, promoteLongs: false };
  assert.deepEqual(await c.findOne({ _id: document._id }, raw), { ...document, list: [new Int32(1), [new Int32(2),
    { three: new Int32(3) }]] });
});

test('create, read, update, delete', async () => {
  const { insertedCount } = await c.insertMany([{ _id: 1, n: 1 }, { _id: 2, n: 2 }, { _id: 3, n: 3 }]);
  assert.equal(insertedCount, 3);
  const updated = await c.updateMany({ n: { $gte: 2 } }, { $inc: { n: 10 }, $set: { big: true } });
  assert.deepEqual([updated.matchedCount, updated.modifiedCount, updated.upsertedCount], [2, 2, 0]);
  assert.deepEqual(await c.findOneAndUpdate({ _id: 1 }, { $set: { n: 5 } }, { returnDocument: 'after' }), { _id: 1, n: 5 });
  assert.deepEqual(await c.find({ big: true }, { projection: { n: 1 } }).sort({ n: -1 }).toArray(),
    [{ _id: 3, n: 13 }, { _id: 2, n: 12 }]);
  assert.equal((await c.replaceOne({ _id: 9 }, { x: 1 }, { upsert: true })).upsertedId, 9);
  assert.equal((await c.deleteMany({ _id: { $in: [1, 9] } })).deletedCount, 2);
  assert.equal(await c.countDocuments(), 2);
  assert.equal(await c.estimatedDocumentCount(), 2);
});

test('a bulk reports each of its errors', async () => {
  const operations = [{ insertOne: { document: { _id: 1 } } }, { insertOne: { document: { _id: 1 } } },
    { updateOne: { filter: { _id: 1 }, update: { $set: { a: 1 } } } }, { deleteOne: { filter: { _id: 5 } } },
    { replaceOne: { filter: { _id: 6 }, replacement: { b: 1 }, upsert: true } }];
  await assert.rejects(c.bulkWrite(operations, { ordered: false }), (error) => {
    assert.equal(error.code, 11000);
    assert.equal(error.writeErrors.length, 1);
    assert.equal(error.writeErrors[0].index, 1);
    assert.deepEqual([error.result.insertedCount, error.result.modifiedCount, error.result.upsertedCount], [1, 1, 1]);
    return true;
  });
});

test('a cursor streams in batches', async () => {
  await c.insertMany(Array.from({ length: 1500 }, (_, i) => ({ _id: i })));
  let expected = 0;
  for await (const document of c.find().sort({ _id: 1 }).batchSize(64)) assert.equal(document._id, expected++);
  assert.equal(expected, 1500);
  const cursor = c.find().batchSize(2);
  await cursor.next();
  await cursor.close();
});

test('aggregation', async () => {
  await c.insertMany([{ k: 'a', v: 1 }, { k: 'b', v: 2 }, { k: 'a', v: 3 }]);
  assert.deepEqual(await c.aggregate([{ $group: { _id: '$k', sum: { $sum: '$v' } } }, { $sort: { _id: 1 } }]).toArray(),
    [{ _id: 'a', sum: 4 }, { _id: 'b', sum: 2 }]);
});

test('indexes and a unique violation', async () => {
  await c.createIndexes([{ key: { email: 1 }, unique: true }, { key: { a: 1, b: -1 }, name: 'ab' }]);
  assert.deepEqual((await c.indexes()).map((index) => index.name), ['_id_', 'email_1', 'ab']);
  await c.insertOne({ email: 'x@example.com' });
  await assert.rejects(c.insertOne({ email: 'x@example.com' }), (error) => {
    assert.equal(error.code, 11000);
    assert.deepEqual([error.keyPattern, error.keyValue], [{ email: 1 }, { email: 'x@example.com' }]);
    return true;
  });
  await c.dropIndex('ab');
  assert.equal((await c.indexes()).length, 2);
});

test('collections', async () => {
  await db.createCollection('made', { capped: true, size: 4096 });
  await c.insertOne({});
  assert.deepEqual((await db.listCollections({}, { nameOnly: true }).toArray()).map((info) => info.name).sort(), ['c', 'made']);
  await c.rename('d');
  assert.equal(await db.collection('d').countDocuments(), 1);
  assert.equal(await db.dropCollection('d'), true);
  assert.equal((await db.stats()).collections, 1);
});

test('distinct, explain, time limits and errors', async () => {
  await c.insertMany([{ a: 1 }, { a: 2 }, { a: 1 }]);
  assert.deepEqual(await c.distinct('a'), [1, 2]);
  assert.equal((await c.find({ a: 1 }).explain('queryPlanner')).queryPlanner.winningPlan.stage, 'COLLSCAN');
  assert.equal((await c.find({ a: 1 }, { maxTimeMS: 5000 }).toArray()).length, 2);
  await assert.rejects(c.find({ $nope: 1 }).toArray(), { code: 2, codeName: 'BadValue' });
  await assert.rejects(db.command({ nope: 1 }), { code: 59, codeName: 'CommandNotFound' });
});

for (const compressor of ['snappy', 'zlib']) {
  test(`messages compressed with ${compressor}`, async () => {
    const compressed = await new MongoClient(server.uri, { compressors: [compressor] }).connect();
    const other = compressed.db(db.databaseName).collection('c');
    const documents = Array.from({ length: 500 }, (_, i) => ({ _id: i, text: 'again and '.repeat(50) }));
    await other.insertMany(documents);
    assert.deepEqual(await other.find().sort({ _id: 1 }).toArray(), documents);
    await compressed.close();
  });
}

test('a session', async () => {
  await client.withSession(async (session) => {
    await c.insertOne({ _id: 1 }, { session });
    assert.deepEqual(await c.findOne({ _id: 1 }, { session }), { _id: 1 });
  });
});

test('a hundred operations at once', async () => {
  await c.insertOne({ _id: 1, n: 0 });
  await Promise.all(Array.from({ length: 100 }, () => c.updateOne({ _id: 1 }, { $inc: { n: 1 } })));
  assert.equal((await c.findOne({ _id: 1 })).n, 100);
});

for (const mechanism of ['DEFAULT', 'SCRAM-SHA-1', 'SCRAM-SHA-256']) {
  test(`a user signs in with ${mechanism}`, async () => {
    await db.command({ createUser: 'ada.b', pwd: 'pässwörd', roles: ['readWrite'] });
    try {
      const options = (password) => ({ auth: { username: 'ada.b', password }, authSource: db.databaseName,
        authMechanism: mechanism });
      const own = await new MongoClient(server.uri, options('pässwörd')).connect();
      const { authInfo } = await own.db('admin').command({ connectionStatus: 1 });
      assert.deepEqual(authInfo.authenticatedUsers, [{ user: 'ada.b', db: db.databaseName }]);
      await own.db(db.databaseName).collection('c').insertOne({ _id: 1 });
      await own.close();
      const stranger = new MongoClient(server.uri, options('wrong'));
      await assert.rejects(stranger.connect(), { code: 18 });
      await stranger.close();
    } finally {
      await db.command({ dropAllUsersFromDatabase: 1 });
    }
  });
}

test('a change stream tells what happens, by events too, and goes on from a token', async () => {
  await c.insertOne({ _id: 0 });
  const stream = c.watch([{ $match: { 'documentKey._id': { $ne: 9 } } }], { fullDocument: 'updateLookup', maxAwaitTimeMS: 50 });
  assert.equal(await stream.tryNext(), null);
  await c.insertMany([{ _id: 1, a: 1 }, { _id: 9 }]);
  await c.updateOne({ _id: 1 }, { $inc: { a: 1 }, $set: { 'b.c': [1] } });
  await c.deleteOne({ _id: 0 });
  const events = [await stream.next(), await stream.next(), await stream.next()];
  assert.deepEqual(events.map((event) => event.operationType), ['insert', 'update', 'delete']);
  assert.deepEqual(events[1].updateDescription, { updatedFields: { a: 2, b: { c: [1] } }, removedFields: [], truncatedArrays: [] });
  assert.deepEqual(events[1].fullDocument, { _id: 1, a: 2, b: { c: [1] } });
  await stream.close();
  const again = db.watch([], { resumeAfter: events[1]._id, maxAwaitTimeMS: 50 });
  const heard = [];
  await new Promise((resolve, reject) => {
    again.on('error', reject);
    again.on('change', (event) => {
      heard.push(event);
      if (heard.length === 1) c.insertOne({ _id: 2 }).catch(reject);
      if (heard.length === 2) resolve();
    });
  });
  await again.close();
  assert.deepEqual(heard.map((event) => [event.operationType, event.documentKey._id]), [['delete', 0], ['insert', 2]]);
});
