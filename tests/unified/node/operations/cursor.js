// Operations of cursors and change streams, and how they are opened.
'use strict';
const { Mismatch } = require('../failures');

// name: [the arguments that must be there, the call]
const cursor = {
  close: [[], (opened) => opened.close()],
  iterateOnce: [[], async (opened) => { await opened.tryNext(); }],
  iterateUntilDocumentOrError: [[], async (opened) => {
    const document = await opened.next();
    if (document === null) throw new Mismatch('the cursor ended without a document');
    return document;
  }],
};

/** The driver sends the command of a cursor with the first read; a test expects it at once. */
async function openCursor(unopened) {
  await unopened.cursorInit();
  return unopened;
}

async function openChangeStream(stream) {
  await openCursor(stream.cursor);
  return stream;
}

module.exports = { cursor, openChangeStream, openCursor };
