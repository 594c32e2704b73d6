// Operations of the runner itself: fail points, waiting, and assertions between operations.
'use strict';
const { setTimeout: sleep } = require('node:timers/promises');
const { expect } = require('../failures');
const { expectSame } = require('../matching');

const WAIT_MS = 10000;

const STATES = {
  none: ['NO_TRANSACTION'],
  starting: ['STARTING_TRANSACTION'],
  in_progress: ['TRANSACTION_IN_PROGRESS'],
  committed: ['TRANSACTION_COMMITTED', 'TRANSACTION_COMMITTED_EMPTY'],
  aborted: ['TRANSACTION_ABORTED'],
};

// name: [the arguments that must be there, the call]. The first argument is the test's entities.
module.exports = {
  createEntities: [['entities'], (all, { entities }) => all.create(entities)],

  failPoint: [['client', 'failPoint'], (all, { client, failPoint }) => enable(all, all.get(client, 'client'), failPoint)],
  targetedFailPoint: [['session', 'failPoint'], (all, { session, failPoint }) => {
    // The fail point is for the router that the session is pinned to. All routers are one here.
    expect(session.isPinned, 'targetedFailPoint: the session is not pinned');
    return enable(all, all.server.client, failPoint);
  }],

  waitForEvent: [['client', 'event', 'count'], async (all, { client, event, count }) => {
    const until = Date.now() + WAIT_MS;
    while (all.observer(client).count(event, all) < count) {
      expect(Date.now() < until, `${client} has not reported ${JSON.stringify(event)} ${count} times`);
      await sleep(5);
    }
  }],

  assertCollectionExists: [['databaseName', 'collectionName'], async ({ server }, { databaseName, collectionName }) =>
    expect((await server.collectionNames(databaseName)).includes(collectionName), `${collectionName} does not exist`)],
  assertCollectionNotExists: [['databaseName', 'collectionName'], async ({ server }, { databaseName, collectionName }) =>
    expect(!(await server.collectionNames(databaseName)).includes(collectionName), `${collectionName} exists`)],
  assertIndexExists: [['databaseName', 'collectionName', 'indexName'],
    async ({ server }, { databaseName, collectionName, indexName }) =>
      expect((await server.indexNames(databaseName, collectionName)).includes(indexName), `${indexName} does not exist`)],
  assertIndexNotExists: [['databaseName', 'collectionName', 'indexName'],
    async ({ server }, { databaseName, collectionName, indexName }) =>
      expect(!(await server.indexNames(databaseName, collectionName)).includes(indexName), `${indexName} exists`)],

  assertSessionDirty: [['session'], (_, { session }) => expect(session.serverSession.isDirty, 'the session is not dirty')],
  assertSessionNotDirty: [['session'], (_, { session }) => expect(!session.serverSession.isDirty, 'the session is dirty')],
  assertSessionPinned: [['session'], (_, { session }) => expect(session.isPinned, 'the session is not pinned')],
  assertSessionUnpinned: [['session'], (_, { session }) => expect(!session.isPinned, 'the session is pinned')],
  assertSessionTransactionState: [['session', 'state'], (_, { session: { transaction }, state }) =>
    expect(STATES[state].includes(transaction.state), `the transaction is ${transaction.state}, not ${state}`)],

  assertSameLsidOnLastTwoCommands: [['client'], (all, { client }) => {
    const [one, other] = lastTwoLsids(all.observer(client));
    expectSame(one, other, 'the lsid of the last command');
  }],
  assertDifferentLsidOnLastTwoCommands: [['client'], (all, { client }) => {
    const [one, other] = lastTwoLsids(all.observer(client));
    expect(!one.id.buffer.equals(other.id.buffer), 'the last two commands have the same lsid');
  }],
  assertNumberConnectionsCheckedOut: [['client', 'connections'], (all, { client, connections }) =>
    expectSame(connections, all.observer(client).connectionsInUse, 'the number of connections in use')],
};

async function enable(all, client, failPoint) {
  all.failPoints.add(failPoint.configureFailPoint);
  await client.db('admin').command(failPoint);
}

function lastTwoLsids(observer) {
  const lsids = observer.started.slice(-2).map(({ command }) => command.lsid);
  expect(lsids.length === 2 && lsids.every(Boolean), 'the last two commands do not have an lsid each');
  return lsids;
}
