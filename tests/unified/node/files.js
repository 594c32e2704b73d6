// The test files of an area: a folder of the suite.
'use strict';
const fs = require('node:fs');
const path = require('node:path');
const { BSON: { EJSON } } = require('mongodb');

function* filesOf(suite, area) {
  for (const name of fs.readdirSync(path.join(suite, 'test', area)).sort()) {
    if (name.endsWith('.json')) yield [`${area}/${name}`, fileOf(suite, `${area}/${name}`)];
  }
}

function fileOf(suite, name) {
  return EJSON.parse(fs.readFileSync(path.join(suite, 'test', name), 'utf8'), { relaxed: true });
}

module.exports = { fileOf, filesOf };
