'use strict';
// Starts a Marula server, a document database that speaks MongoDB's protocol, from Node.js:
//
//   const { start } = require('marula-server');
//   const server = await start();
//   const client = new MongoClient(server.uri);
//   …
//   await server.stop();
//
// The data is in memory unless `dbpath` names a folder. A server takes some milliseconds to start, so that every test can
// have one of its own. It ends with stop(), and however this process ends.

const { spawn } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');

/** The path of the program: that of this package, or $MARULA_BIN. */
function binary() {
  return process.env.MARULA_BIN || path.join(__dirname, 'bin', 'marula');
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** A running server. */
class Server {
  #child;
  #folder;

  constructor(child, folder, host, port, replicaSet) {
    this.#child = child;
    this.#folder = folder;
    this.host = host;
    this.port = port;
    this.pid = child.pid;
    const how = replicaSet === undefined ? 'directConnection=true' : `replicaSet=${replicaSet}`;
    this.uri = `mongodb://${host}:${port}/?${how}`;
  }

  /** What the server has logged so far. */
  log() {
    return readLog(this.#folder);
  }

  /** Ends the server and waits for it; what it has not finished within `timeoutMs` is killed. */
  async stop(timeoutMs = 30_000) {
    await end(this.#child, timeoutMs);
    fs.rmSync(this.#folder, { recursive: true, force: true });
  }

  async [Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose')]() {
    await this.stop();
  }
}

function readLog(folder) {
  try {
    return fs.readFileSync(path.join(folder, 'log'), 'utf8');
  } catch {
    return '';
  }
}

async function end(child, timeoutMs) {
  if (child.exitCode !== null || child.signalCode !== null || child.pid === undefined) return;
  const ended = new Promise((resolve) => child.once('exit', resolve));
  child.kill('SIGTERM');
  const timer = setTimeout(() => child.kill('SIGKILL'), timeoutMs);
  await ended;
  clearTimeout(timer);
}

/**
 * Starts a server and resolves once it accepts connections.
 *
 * `port` 0 takes a free one; `args` are further options of `marula serve`. `replicaSet` names a set whose only member the
 * server is, for transactions and change streams.
 */
async function start({ dbpath, port = 0, replicaSet, args = [], timeoutMs = 30_000 } = {}) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'marula-'));
  const ready = path.join(folder, 'ready');
  const words = ['serve', '--port', String(port), '--ready-file', ready, '--end-with-stdin'];
  words.push(...(dbpath === undefined ? ['--storage-engine', 'memory'] : ['--dbpath', dbpath]));
  if (replicaSet !== undefined) words.push('--replSet', replicaSet);
  const log = fs.openSync(path.join(folder, 'log'), 'w');
  // The server ends when its standard input is closed, which the end of this process does.
  const child = spawn(binary(), [...words, ...args], { stdio: ['pipe', log, log] });
  fs.closeSync(log);
  let failure;
  child.on('error', (error) => { failure = error; });
  // A server that ends by itself closes the pipe under us.
  child.stdin.on('error', () => {});
  // Neither keeps this process alive that is otherwise done.
  child.unref();
  child.stdin.unref();
  try {
    const until = Date.now() + timeoutMs;
    while (!fs.existsSync(ready)) {
      if (failure) throw failure;
      if (child.exitCode !== null || child.signalCode !== null) {
        throw new Error(`the server ended with ${child.exitCode ?? child.signalCode}: ${readLog(folder).trim()}`);
      }
      if (Date.now() > until) {
        throw new Error(`the server was not ready within ${timeoutMs} ms: ${readLog(folder).trim()}`);
      }
      await pause(1);
    }
    const [line] = fs.readFileSync(ready, 'ascii').split('\n');
    const colon = line.lastIndexOf(':');
    return new Server(child, folder, line.slice(0, colon), Number(line.slice(colon + 1)), replicaSet);
  } catch (error) {
    await end(child, timeoutMs);
    fs.rmSync(folder, { recursive: true, force: true });
    throw error;
  }
}

module.exports = { start, binary, Server };
