#!/usr/bin/env node
'use strict';
// `npx marula-server …` is `marula …`.
const { spawn } = require('node:child_process');
const os = require('node:os');
const { binary } = require('./index.js');

const child = spawn(binary(), process.argv.slice(2), { stdio: 'inherit' });
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => child.kill(signal));
child.on('error', (error) => { console.error(`marula: ${error.message}`); process.exit(1); });
child.on('exit', (code, signal) => process.exit(code ?? 128 + os.constants.signals[signal]));
