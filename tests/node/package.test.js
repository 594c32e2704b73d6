// The npm package: made from the program under test, installed without a network, and used.
const assert = require('node:assert/strict');
const { execFileSync, spawn } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { after, before, test } = require('node:test');
const { MongoClient } = require('mongodb');

const ROOT = path.join(__dirname, '..', '..');
const BINARY = process.env.MARULA_BIN ?? path.join(ROOT, 'target', 'release', 'marula');

let folder;
let start;

before(() => {
  folder = fs.mkdtempSync(path.join(os.tmpdir(), 'marula-npm-'));
  const version = execFileSync(BINARY, ['--version'], { encoding: 'utf8' }).split(' ')[1];
  execFileSync(path.join(ROOT, 'packaging', 'make'), [BINARY, folder, version, 'npm'], { stdio: 'ignore' });
  const archive = path.join(folder, `marula-server-${version}.tgz`);
  execFileSync('npm', ['install', '--offline', '--no-audit', '--no-fund', '--loglevel=error', '--prefix', folder, archive]);
  // The package's own program is what is tested.
  delete process.env.MARULA_BIN;
  ({ start } = require(path.join(folder, 'node_modules', 'marula-server')));
});

after(() => fs.rmSync(folder, { recursive: true, force: true }));

function isRunning(pid) {
  try {
    return !/\) Z /.test(fs.readFileSync(`/proc/${pid}/stat`, 'utf8'));
  } catch {
    return false;
  }
}

async function waitUntil(condition) {
  const until = Date.now() + 30_000;
  while (!condition()) {
    assert.ok(Date.now() < until, 'waited too long');
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

test('a server in memory', async () => {
  const server = await start();
  const client = new MongoClient(server.uri);
  try {
    await client.db('test').collection('c').insertOne({ _id: 1 });
    assert.deepEqual(await client.db('test').collection('c').findOne(), { _id: 1 });
    const status = await client.db('admin').command({ serverStatus: 1 });
    assert.equal(status.storageEngine.persistent, false);
    assert.equal(Number(status.pid), server.pid);
  } finally {
    await client.close();
    await server.stop();
  }
  assert.ok(!isRunning(server.pid));
});

test('a replica set of one', async () => {
  const server = await start({ replicaSet: 'rs0' });
  const client = new MongoClient(server.uri);
  try {
    const c = client.db('test').collection('c');
    await c.insertOne({ _id: 0 });
    await client.withSession((session) => session.withTransaction(async () => {
      await c.insertOne({ _id: 1 }, { session });
    }));
    assert.equal(await c.countDocuments(), 2);
  } finally {
    await client.close();
    await server.stop();
  }
});

test('a start that fails says why', async () => {
  await assert.rejects(start({ args: ['--nonsense'] }), /--nonsense/);
});

test('it ends with its parent, and does not keep it alive', async () => {
  const script = `require(${JSON.stringify(path.join(folder, 'node_modules', 'marula-server'))}).start()
    .then((server) => console.log(server.pid));`;
  const said = execFileSync(process.execPath, ['-e', script], { encoding: 'utf8', timeout: 60_000 });
  await waitUntil(() => !isRunning(Number(said)));
  const parent = spawn(process.execPath, ['-e', `${script} setTimeout(() => {}, 600_000);`],
    { stdio: ['ignore', 'pipe', 'inherit'] });
  const pid = await new Promise((resolve) => parent.stdout.once('data', (data) => resolve(Number(data))));
  assert.ok(isRunning(pid));
  parent.kill('SIGKILL');
  await waitUntil(() => !isRunning(pid));
});

test('its command and its module', () => {
  const command = path.join(folder, 'node_modules', '.bin', 'marula');
  assert.match(execFileSync(command, ['--version'], { encoding: 'utf8' }), /^marula \d/);
  const module = path.join(folder, 'node_modules', 'marula-server', 'index.mjs');
  const script = `import(${JSON.stringify(module)}).then((all) => console.log(typeof all.start))`;
  assert.equal(execFileSync(process.execPath, ['-e', script], { encoding: 'utf8' }).trim(), 'function');
});
