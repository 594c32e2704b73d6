// What Mongoose's guides on transactions and on change streams show, against a replica set of one node and a server without one.
'use strict';
const assert = require('node:assert/strict');
const { after, before, beforeEach, describe, test } = require('node:test');
const mongoose = require('mongoose');
const { start } = require('./server');

for (const [way, options] of [['a replica set', ['--replSet', 'rs0']], ['no replica set', []]]) {
  describe(`Mongoose, ${way}`, () => {
    let server, connection, Customer, Event;
    before(async () => {
      server = await start(options);
      connection = await mongoose.createConnection(server.uri, { dbName: 'mongoose_tests' }).asPromise();
      Customer = connection.model('Customer', new mongoose.Schema({ name: String, balance: Number, tags: [String] }));
      Event = connection.model('Event', new mongoose.Schema({ createdAt: Date }));
    });
    beforeEach(async () => {
      await connection.dropDatabase();
      await Customer.createCollection();
      await Event.createCollection();
    });
    after(async () => {
      await connection?.close();
      await server?.stop();
    });

    test('what a transaction has created is seen in its session alone until the commit', async () => {
      const session = await connection.startSession();
      session.startTransaction();
      await Customer.create([{ name: 'Test' }], { session });
      assert.equal(await Customer.findOne({ name: 'Test' }), null);
      assert.ok(await Customer.findOne({ name: 'Test' }).session(session));
      await session.commitTransaction();
      assert.ok(await Customer.findOne({ name: 'Test' }));
      await session.endSession();
    });

    test('a document that a session has read is saved in its transaction', async () => {
      const session = await connection.startSession();
      session.startTransaction();
      await Customer.create([{ name: 'foo' }], { session });
      const found = await Customer.findOne({ name: 'foo' }).session(session);
      assert.ok(found.$session());
      found.name = 'bar';
      await found.save();
      assert.equal(await Customer.findOne({ name: 'bar' }), null);
      await session.commitTransaction();
      assert.ok(await Customer.findOne({ name: 'bar' }));
      await session.endSession();
    });

    test('an aggregation in a transaction sees what it has created', async () => {
      const session = await connection.startSession();
      session.startTransaction();
      await Event.insertMany([{ createdAt: new Date('2018-06-01') }, { createdAt: new Date('2018-06-02') },
        { createdAt: new Date('2017-06-01') }, { createdAt: new Date('2017-05-31') }], { session });
      const month = { month: { $month: '$createdAt' }, year: { $year: '$createdAt' } };
      const counts = await Event.aggregate([{ $group: { _id: month, count: { $sum: 1 } } },
        { $sort: { count: -1, '_id.year': -1, '_id.month': -1 } }]).session(session);
      assert.deepEqual(counts, [{ _id: { month: 6, year: 2018 }, count: 2 }, { _id: { month: 6, year: 2017 }, count: 1 },
        { _id: { month: 5, year: 2017 }, count: 1 }]);
      await session.commitTransaction();
      await session.endSession();
    });

    test('withTransaction commits what succeeds and aborts what throws', async () => {
      const session = await connection.startSession();
      await session.withTransaction(() => Customer.create([{ name: 'kept' }], { session }));
      await assert.rejects(session.withTransaction(async () => {
        await Customer.create([{ name: 'dropped' }], { session });
        throw new Error('no');
      }), /no/);
      await session.endSession();
      assert.deepEqual((await Customer.find()).map((customer) => customer.name), ['kept']);
    });

    test('Connection.transaction sets documents back where it aborts', async () => {
      const customer = new Customer({ name: 'Will Riker', tags: ['a'] });
      await assert.rejects(connection.transaction(async (session) => {
        customer.tags.push('b');
        await customer.save({ session });
        assert.equal(customer.isNew, false);
        throw new Error('warp core breach');
      }), /warp core breach/);
      assert.equal(customer.isNew, true);
      assert.equal(await Customer.countDocuments(), 0);
      await connection.transaction((session) => customer.save({ session }));
      assert.equal(await Customer.countDocuments(), 1);
    });

    test('two transfers of one account: the later begins anew, and nothing is lost', async () => {
      await Customer.insertMany([{ name: 'A', balance: 100 }, { name: 'B', balance: 0 }]);
      const transfer = (amount) => connection.transaction(async (session) => {
        const from = await Customer.findOne({ name: 'A' }).session(session);
        from.balance -= amount;
        await from.save();
        await Customer.updateOne({ name: 'B' }, { $inc: { balance: amount } }, { session });
      });
      await Promise.all([transfer(10), transfer(20), transfer(30)]);
      const balances = (await Customer.find().sort('name')).map((customer) => customer.balance);
      assert.deepEqual(balances, [40, 60]);
    });

    test('watch tells of what happens to a model', async () => {
      const stream = Customer.watch([], { fullDocument: 'updateLookup', hydrate: true });
      const heard = [];
      const three = new Promise((resolve, reject) => {
        stream.on('error', reject);
        stream.on('change', (event) => heard.push(event) === 3 && resolve());
      });
      // It has a cursor once it has asked for the first batch.
      while (!stream.driverChangeStream?.resumeToken) await new Promise((resolve) => setTimeout(resolve, 10));
      const customer = await Customer.create({ name: 'Axl Rose' });
      customer.name = 'Axl';
      await customer.save();
      await customer.deleteOne();
      await three;
      await stream.close();
      assert.deepEqual(heard.map((event) => event.operationType), ['insert', 'update', 'delete']);
      assert.equal(heard[0].fullDocument.name, 'Axl Rose');
      assert.deepEqual(heard[1].updateDescription.updatedFields, { name: 'Axl' });
      assert.deepEqual(heard[2].documentKey._id, customer._id);
    });
  });
}
