// Operations of a session.
'use strict';

// name: [the arguments that must be there, the call]
module.exports = {
  abortTransaction: [[], (session, options) => session.abortTransaction(options)],
  commitTransaction: [[], (session, options) => session.commitTransaction(options)],
  endSession: [[], (session) => session.endSession()],
  startTransaction: [[], (session, options) => session.startTransaction(options)],
  withTransaction: [['callback'], (session, { callback, ...options }, { run }) => session.withTransaction(async () => {
    for (const operation of callback) {
      const { error } = await run(operation);
      // Also if the operation expects it: whether to try again is decided by the driver.
      if (error) throw error;
    }
  }, options)],
};
