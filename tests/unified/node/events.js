// Events of one client, which the driver reports of commands, connections and servers.
'use strict';
const { BSON } = require('mongodb');
const { asDriverSends } = require('./driver_differences');
const { Malformed, expect, expectNoOther } = require('./failures');
const { expectMatch } = require('./matching');

// The format's name of an event, its `eventType`, and the driver's name.
const EVENTS = {
  commandStartedEvent: ['command', 'commandStarted'],
  commandSucceededEvent: ['command', 'commandSucceeded'],
  commandFailedEvent: ['command', 'commandFailed'],
  poolCreatedEvent: ['cmap', 'connectionPoolCreated'],
  poolReadyEvent: ['cmap', 'connectionPoolReady'],
  poolClearedEvent: ['cmap', 'connectionPoolCleared'],
  poolClosedEvent: ['cmap', 'connectionPoolClosed'],
  connectionCreatedEvent: ['cmap', 'connectionCreated'],
  connectionReadyEvent: ['cmap', 'connectionReady'],
  connectionClosedEvent: ['cmap', 'connectionClosed'],
  connectionCheckOutStartedEvent: ['cmap', 'connectionCheckOutStarted'],
  connectionCheckOutFailedEvent: ['cmap', 'connectionCheckOutFailed'],
  connectionCheckedOutEvent: ['cmap', 'connectionCheckedOut'],
  connectionCheckedInEvent: ['cmap', 'connectionCheckedIn'],
  serverDescriptionChangedEvent: ['sdam', 'serverDescriptionChanged'],
  topologyDescriptionChangedEvent: ['sdam', 'topologyDescriptionChanged'],
};

// The commands whose content the driver hides. A hello is one of them if it authenticates.
const SENSITIVE = new Set(['authenticate', 'saslStart', 'saslContinue', 'getnonce', 'createUser', 'updateUser',
  'copydbgetnonce', 'copydbsaslstart', 'copydb']);
const HELLO = new Set(['hello', 'ismaster', 'isMaster']);

// One row per field of an expected event.
const FIELDS = {
  command: (expected, event, entities) =>
    expectMatch(asDriverSends(expected, event.command), event.command, entities, 'command'),
  reply: (expected, event, entities) => expectMatch(expected, event.reply, entities, 'reply'),
  commandName: (expected, event) => expectMatch(expected, event.commandName, null, 'commandName'),
  databaseName: (expected, event) => expectMatch(expected, event.databaseName, null, 'databaseName'),
  hasServiceId: (expected, event) => expectMatch(expected, event.serviceId !== undefined, null, 'hasServiceId'),
  hasServerConnectionId: (expected, event) =>
    expectMatch(expected, event.serverConnectionId > 0, null, 'hasServerConnectionId'),
  previousDescription: (expected, event, entities) =>
    expectMatch(expected, event.previousDescription, entities, 'previousDescription'),
  newDescription: (expected, event, entities) => expectMatch(expected, event.newDescription, entities, 'newDescription'),
};

class Observer {
  constructor(client, { observeEvents = [], ignoreCommandMonitoringEvents = [], observeSensitiveCommands = false }) {
    this.events = [];
    // Of all commands, whether observed or not: for assertions on the sessions of the last two.
    this.started = [];
    this.connectionsInUse = 0;
    const ignored = new Set([...ignoreCommandMonitoringEvents, 'configureFailPoint']);
    const isHidden = (event) => ignored.has(event.commandName) ||
      (!observeSensitiveCommands && (SENSITIVE.has(event.commandName) || isRedactedHello(event)));
    for (const name of observeEvents) {
      if (!(name in EVENTS)) throw new Malformed(`the event ${name} is not supported`);
      const [type, ofDriver] = EVENTS[name];
      client.on(ofDriver, (event) => {
        if (type !== 'command' || !isHidden(event)) this.events.push({ type, name, event: snapshot(event) });
      });
    }
    client.on('commandStarted', (event) => { if (!isHidden(event)) this.started.push(snapshot(event)); });
    client.on('connectionCheckedOut', () => { this.connectionsInUse += 1; });
    client.on('connectionCheckedIn', () => { this.connectionsInUse -= 1; });
  }

  /** Compares with one element of a test's `expectEvents`. */
  expect({ client, eventType = 'command', events, ignoreExtraEvents = false, ...other }, entities) {
    expectNoOther(other, 'expectEvents');
    const actual = this.events.filter(({ type }) => type === eventType);
    const names = actual.map(({ name, event }) => event.commandName ? `${name} ${event.commandName}` : name);
    expect(ignoreExtraEvents ? actual.length >= events.length : actual.length === events.length,
      `${client} has ${actual.length} events, expected ${events.length}: ${names.join(', ')}`);
    events.forEach((expected, i) => inContext(`event ${i} of ${client} (${names[i]})`, () =>
      expectEvent(expected, actual[i], entities)));
  }

  count(expected, entities) {
    return this.events.filter((actual) => {
      try {
        expectEvent(expected, actual, entities);
        return true;
      } catch (error) {
        if (error instanceof Malformed) throw error;
        return false;
      }
    }).length;
  }
}

function expectEvent(expected, actual, entities) {
  const [[name, fields]] = Object.entries(expected);
  expect(actual.name === name, `is a ${actual.name}, expected a ${name}`);
  for (const [field, value] of Object.entries(fields)) {
    if (!(field in FIELDS)) throw new Malformed(`${name}.${field} is not supported`);
    FIELDS[field](value, actual.event, entities);
  }
}

function inContext(context, check) {
  try {
    check();
  } catch (error) {
    error.message = `${context}: ${error.message}`;
    throw error;
  }
}

/** The driver empties such a hello, and its reply. */
function isRedactedHello(event) {
  return HELLO.has(event.commandName) && Object.keys(event.command ?? event.reply ?? event.failure ?? {}).length === 0;
}

/** Copies a command or a reply as BSON: the driver may change them later, and BSON has exact types. */
function snapshot(event) {
  const copy = { ...event };
  for (const field of ['command', 'reply']) {
    if (!event[field]) continue;
    const bytes = BSON.serialize(event[field], { ignoreUndefined: false });
    copy[field] = BSON.deserialize(bytes, { promoteValues: false });
  }
  return copy;
}

module.exports = { Observer };
