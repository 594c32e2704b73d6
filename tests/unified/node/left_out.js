// The list of tests that are left out, with reasons: `../left_out.json`.
//
// A pattern matches "folder/file.json: description"; `*` matches any text. An entry with `as` is
// only for these ways of running the server.
'use strict';
const ENTRIES = require('../left_out.json');

class LeftOut {
  constructor(way) {
    const entries = ENTRIES.filter(({ as }) => !as || as.includes(way));
    this.patterns = entries.flatMap(({ node }) => node).map((text) => ({ text, regex: regexOf(text), used: false }));
  }

  has(title) {
    const found = this.patterns.filter(({ regex }) => regex.test(title));
    for (const pattern of found) pattern.used = true;
    return found.length > 0;
  }

  unused() {
    return this.patterns.filter(({ used }) => !used).map(({ text }) => text);
  }
}

function regexOf(pattern) {
  const literal = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
  return new RegExp(`^${pattern.split('*').map(literal).join('.*')}$`);
}

module.exports = { LeftOut };
