// A server of the suite's own on a free port of the loopback, or the one in MARULA_TEST_URI. As tests/server.py.
'use strict';
const { spawn } = require('node:child_process');
const fs = require('node:fs');
const net = require('node:net');
const os = require('node:os');
const path = require('node:path');

function serveCommand() {
  if (process.env.MARULA_SERVE) return process.env.MARULA_SERVE.split(' ');
  const target = process.env.CARGO_TARGET_DIR || path.join(__dirname, '..', '..', 'target');
  return [process.env.MARULA_BIN || path.join(target, 'release', 'marula'), 'serve'];
}

// Below the ports that systems give to outgoing connections, as in tests/server.py.
const PORTS = [20000, 32768];
const givenPorts = new Set();

function isFree(port) {
  return new Promise((resolve) => {
    const probe = net.createServer();
    probe.on('error', () => resolve(false));
    probe.listen(port, '127.0.0.1', () => probe.close(() => resolve(true)));
  });
}

async function freePort() {
  for (;;) {
    const port = PORTS[0] + Math.floor(Math.random() * (PORTS[1] - PORTS[0]));
    if (givenPorts.has(port)) continue;
    givenPorts.add(port);
    if (await isFree(port)) return port;
  }
}

function connects(port) {
  return new Promise((resolve) => {
    const socket = net.connect(port, '127.0.0.1', () => { socket.destroy(); resolve(true); });
    socket.on('error', () => resolve(false));
  });
}

// Returns { uri, stop }. `options` are further ones of the command line.
async function start(options = []) {
  if (process.env.MARULA_TEST_URI && options.length === 0) return { uri: process.env.MARULA_TEST_URI, stop: async () => {} };
  const port = await freePort();
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'marula-node-'));
  const [program, ...words] = serveCommand();
  const child = spawn(program, [...words, '--dbpath', folder, '--port', String(port), '--bind_ip', '127.0.0.1', ...options],
    { stdio: 'ignore' });
  let ended = null;
  child.on('exit', (code, signal) => { ended = `${code ?? signal}`; });
  child.on('error', (error) => { ended = error.message; });
  process.on('exit', () => child.kill('SIGKILL'));
  for (let waited = 0; !(await connects(port)); waited += 20) {
    if (ended !== null || waited > 20000) throw new Error(`the server did not start: ${ended}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  const stop = async () => {
    const before = ended;
    child.kill('SIGKILL');
    fs.rmSync(folder, { recursive: true, force: true });
    if (before !== null) throw new Error(`the server ended during the tests: ${before}`);
  };
  return { uri: `mongodb://127.0.0.1:${port}/?directConnection=true`, stop };
}

module.exports = { start };
