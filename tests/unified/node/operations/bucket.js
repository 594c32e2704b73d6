// Operations of a GridFS bucket.
'use strict';
const { Readable } = require('node:stream');
const { pipeline } = require('node:stream/promises');

// name: [the arguments that must be there, the call]
module.exports = {
  delete: [['id'], (bucket, { id, ...options }) => bucket.delete(id, options)],
  download: [['id'], (bucket, { id, ...options }) => bytesOf(bucket.openDownloadStream(id, options))],
  downloadByName: [['filename'], (bucket, { filename, ...options }) =>
    bytesOf(bucket.openDownloadStreamByName(filename, options))],
  rename: [['id', 'newFilename'], (bucket, { id, newFilename, ...options }) => bucket.rename(id, newFilename, options)],
  upload: [['filename', 'source'], async (bucket, { filename, source, ...options }) => {
    const stream = bucket.openUploadStream(filename, options);
    await pipeline(Readable.from([Buffer.from(source.$$hexBytes, 'hex')]), stream);
    return stream.id;
  }],
};

async function bytesOf(stream) {
  return Buffer.concat(await stream.toArray());
}
