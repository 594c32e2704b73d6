// What a person types into mongosh, and what they read there.
'use strict';
const assert = require('node:assert/strict');
const { execFile } = require('node:child_process');
const { mkdtempSync, rmSync } = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { after, before, test } = require('node:test');
const { start } = require('./server');

const mongosh = path.join(process.env.NODE_PATH || path.join(__dirname, 'node_modules'), '.bin', 'mongosh');
const database = `t_sh_${process.pid}`;
// A home of its own: mongosh keeps history and settings there.
const home = mkdtempSync(path.join(os.tmpdir(), 'marula-mongosh-'));
let server;
before(async () => { server = await start(); });
after(async () => {
  await type('db.dropDatabase()');
  rmSync(home, { recursive: true, force: true });
  await server?.stop();
});

// Types lines into a shell, as at the prompt, and returns what it printed, without prompts.
function type(...lines) {
  return typeInto(server.uri, ...lines);
}

function typeInto(address, ...lines) {
  const uri = address.replace('/?', `/${database}?`);
  return new Promise((resolve, reject) => {
    const child = execFile(mongosh, ['--quiet', '--norc', uri], { env: { ...process.env, HOME: home }, timeout: 60000 },
      (error, stdout, stderr) => (error ? reject(new Error(`${error.message}\n${stdout}${stderr}`)) : resolve(stdout)));
    child.stdin.end(`${lines.join('\n')}\nexit\n`);
  }).then((text) => text.replaceAll(/^.*?> /gm, ''));
}

// Runs a script and returns its last value.
function run(script) {
  return runAt(server.uri, script);
}

function runAt(address, script) {
  const uri = address.replace('/?', `/${database}?`);
  return new Promise((resolve, reject) => {
    execFile(mongosh, ['--quiet', '--norc', '--json=relaxed', uri, '--eval', script],
      { env: { ...process.env, HOME: home }, timeout: 60000 },
      (error, stdout, stderr) => (error ? reject(new Error(`${error.message}\n${stdout}${stderr}`)) : resolve(JSON.parse(stdout))));
  });
}

test('documents are written, shown and counted', async () => {
  const text = await type(
    'db.people.insertOne({ _id: 1, name: "Ada", born: 1815 })',
    'db.people.insertMany([{ _id: 2, name: "Alan", born: 1912 }, { _id: 3, name: "Grace", born: 1906 }])',
    'db.people.find({ born: { $gt: 1900 } }, { name: 1 }).sort({ born: 1 })',
    'db.people.updateOne({ _id: 1 }, { $set: { field: "mathematics" } })',
    'db.people.countDocuments()');
  assert.match(text, /acknowledged: true, insertedId: 1/);
  assert.match(text, /\[ \{ _id: 3, name: 'Grace' \}, \{ _id: 2, name: 'Alan' \} \]/);
  assert.match(text, /matchedCount: 1,\s+modifiedCount: 1/);
  assert.match(text, /^3$/m);
});

test('show dbs, show collections, use', async () => {
  const text = await type('db.shown.insertOne({ a: 1 })', 'show dbs', 'show collections', 'use another', 'db.getName()');
  assert.match(text, new RegExp(`^${database}\\s+[1-9][\\d.]* ([KM]i)?B$`, 'm'));
  assert.match(text, /^shown$/m);
  assert.match(text, /switched to db another/);
});

test('a script of statistics and administration', async () => {
  const stats = await run('db.counted.insertMany([{}, {}, {}]); db.stats()');
  assert.equal(stats.db, database);
  assert.equal(stats.ok, 1);
  assert.equal((await run('db.counted.stats()')).count, 3);
  assert.equal((await run('db.serverStatus()')).ok, 1);
  assert.match((await run('db.version()')), /^6\.0\./);
  assert.equal((await run('db.hello()')).isWritablePrimary, true);
  assert.equal((await run('db.counted.validate({ full: true })')).valid, true);
});

test('indexes and explain', async () => {
  assert.equal(await run('db.i.createIndex({ a: 1 })'), 'a_1');
  assert.deepEqual((await run('db.i.getIndexes()')).map((index) => index.name), ['_id_', 'a_1']);
  assert.equal((await run('db.i.find({ a: 1 }).explain().queryPlanner.winningPlan.inputStage')).stage, 'IXSCAN');
});

test('db.currentOp() shows an operation, and db.killOp() ends it', async () => {
  await run('db.slow.insertOne({ _id: 1 })');
  const ended = run(`try { db.slow.find({ $where: 'sleep(600000) || true' }).comment('watched').toArray() }
    catch (error) { error.codeName }`);
  const [[found], others] = await run(`let found = [];
    while (found.length === 0) found = db.currentOp({ 'command.comment': 'watched' }).inprog;
    const others = db.currentOp({ 'command.comment': 'nobody' }).inprog;
    db.killOp(found[0].opid);
    [found, others]`);
  assert.equal(await ended, 'Interrupted');
  assert.deepEqual(others, []);
  assert.deepEqual([found.ns, found.op, found.active], [`${database}.slow`, 'query', true]);
  assert.equal(found.command.find, 'slow');
  assert.match(found.appName, /^mongosh/);
  assert.equal(typeof found.secs_running, 'number');
  // The statement that asks is an operation, too.
  assert.match(await type('db.currentOp()'), /ns: 'admin\.\$cmd\.aggregate',\s+command: \{\s+aggregate: 1/);
});

test('show users, show roles, show profile, show log global', async () => {
  const text = await type(
    'db.createUser({ user: "ada", pwd: "p", roles: ["readWrite"] }).ok',
    'db.createRole({ role: "looker", privileges: [], roles: ["read"] }).ok',
    'show users', 'show roles', 'show profile',
    'db.setProfilingLevel(2).was', 'db.profiled.insertOne({ _id: 1 }).acknowledged',
    'db.profiled.find({ $where: "sleep(20) || true" }).toArray()', 'db.setProfilingLevel(0).was', 'show profile',
    'db.dropAllUsers().n', 'db.dropAllRoles().n', 'show users', 'show logs', 'show log global', 'show log nonsense');
  assert.match(text, /_id: '.*\.ada',\s+userId: UUID\('.*'\),\s+user: 'ada',\s+db: '.*',\s+roles: \[ \{ role: 'read/);
  assert.match(text, /role: 'readWrite',\s+db: '.*',\s+isBuiltin: true/);
  assert.match(text, /_id: '.*\.looker',\s+role: 'looker',[^]*isBuiltin: false,\s+inheritedRoles: \[ \{ role: 'read'/);
  assert.match(text, /^db\.system\.profile is empty/m);
  assert.match(text, new RegExp(`^query\\s+${database}\\.profiled \\d+ms`, 'm'));
  assert.match(text, /^\[ 'global', 'startupWarnings' \]$/m);
  assert.match(text, /"id":23016,.*"msg":"Waiting for connections"/);
  assert.match(text, /MongoServerError.*No log named 'nonsense'/);
});

test('rs.status() and rs.conf() of a replica set of one', { skip: Boolean(process.env.MARULA_TEST_URI) }, async () => {
  const set = await start(['--replSet', 'rs9']);
  try {
    const [status, conf] = await runAt(set.uri, `
      // Marula has done it by itself.
      try { rs.initiate() } catch (error) { if (error.codeName !== 'AlreadyInitialized') throw error }
      while (!db.hello().isWritablePrimary) sleep(20);
      [rs.status(), rs.conf()]`);
    const host = new URL(set.uri).host;
    assert.deepEqual([status.set, status.myState, status.term, status.ok], ['rs9', 1, 1, 1]);
    assert.equal(status.members.length, 1);
    const [member] = status.members;
    assert.deepEqual([member._id, member.name, member.health], [0, host, 1]);
    assert.deepEqual([member.stateStr, member.self], ['PRIMARY', true]);
    assert.ok(member.uptime >= 0);
    assert.deepEqual(status.optimes.appliedOpTime, member.optime);
    assert.deepEqual([conf._id, conf.version, conf.protocolVersion], ['rs9', 1, 1]);
    assert.deepEqual(conf.members, [{ _id: 0, host, arbiterOnly: false, buildIndexes: true, hidden: false, priority: 1,
      tags: {}, secondaryDelaySecs: 0, votes: 1 }]);
    assert.equal(conf.settings.electionTimeoutMillis, 10000);
    const refused = await type('rs.status()', 'rs.conf()');
    assert.equal(refused.match(/MongoServerError\[NoReplicationEnabled\]: not running with --replSet/g).length, 2);
  } finally {
    await set.stop();
  }
});

test('a mistake is told in words', async () => {
  const text = await type('db.m.insertOne({ _id: 1 })', 'db.m.insertOne({ _id: 1 })', 'db.m.find({ $nope: 1 })');
  assert.match(text, /MongoServerError.*E11000 duplicate key error collection: .*\.m index: _id_ dup key: \{ _id: 1 \}/);
  assert.match(text, /MongoServerError.*unknown top level operator: \$nope/);
});

test('help of the shell and of the server', async () => {
  assert.match(await type('help'), /show databases/i);
  const commands = (await run('db.adminCommand({ listCommands: 1 })')).commands;
  for (const name of ['find', 'insert', 'update', 'delete', 'aggregate']) assert.ok(commands[name].help, name);
});

test('a cursor of many documents goes on with it', async () => {
  const text = await type('db.many.insertMany(Array.from({ length: 30 }, (_, i) => ({ _id: i }))).acknowledged',
    'db.many.find()', 'it');
  assert.match(text, /Type "it" for more/);
  assert.match(text, /_id: 29/);
});

test('aggregation, bulk and findAndModify', async () => {
  const script = `db.b.bulkWrite([{ insertOne: { document: { _id: 1, v: 1 } } },
    { updateOne: { filter: { _id: 2 }, update: { $set: { v: 5 } }, upsert: true } }]);
    db.b.findOneAndUpdate({ _id: 1 }, { $inc: { v: 1 } });
    db.b.aggregate([{ $group: { _id: null, sum: { $sum: '$v' } } }]).toArray()`;
  assert.deepEqual(await run(script), [{ _id: null, sum: 7 }]);
});

test('sh.status() shows a distributed store', { skip: Boolean(process.env.MARULA_SERVE || process.env.MARULA_TEST_URI) }, async () => {
  const cluster = await start(['--storage-engine', 'sim']);
  try {
    const text = await typeInto(cluster.uri, 'sh.enableSharding("x")', 'sh.shardCollection("x.c", { a: 1 })', 'sh.status()',
      'sh.getBalancerState()', 'sh.startBalancer()', 'sh.addShard("a/b:1")', 'sh.disableBalancing("x.c")',
      'use x', 'db.c.getShardDistribution()');
    assert.match(text, /collectionsharded: 'x\.c'/);
    assert.match(text, /_id: 'sim',\s+host: 'sim\/localhost:0',\s+state: 1,\s+healthy: true/);
    assert.match(text, /active mongoses\s+\[ \{ '6\.0\.27': 1 \} \]/);
    assert.match(text, /'x\.c': \{\s+shardKey: \{ a: 1 \},\s+unique: false/);
    assert.match(text, /chunkMetadata: \[ \{ shard: 'sim', nChunks: 1 \} \]/);
    assert.match(text, /^false$/m);
    assert.match(text, /the balancer cannot be started: each server of the store 'sim' has all data/);
    assert.match(text, /addShard is not possible: the store 'sim' places the data/);
    assert.match(text, /config\.collections shows the state of the distributed store/);
    assert.match(text, /Shard sim at sim\/localhost:0/);
  } finally {
    await cluster.stop();
  }
});
