/*
 * Leave optional content out when the header Brownout-Optional says so.
 *
 * A page often has parts it can do without: recommendations, comments, ratings. Whoever stands in
 * front of the application (an Evenkeel agent) decides for each request which of them are
 * computed, so that mandatory content stays fast when there is more load than capacity. This
 * package reads that decision and tells what became of it. It decides nothing itself: without the
 * header, or with one it does not understand, every part is computed.
 */
'use strict';

const { AsyncLocalStorage } = require('node:async_hooks');

const REQUEST_HEADER = 'Brownout-Optional';
const REQUEST_HEADER_KEY = REQUEST_HEADER.toLowerCase();
const RESPONSE_HEADER = 'Brownout-Served';
const VALUE_BYTES_MAX = 4096;

// What lets a cache keep a lean page, or confirm one later. The last three are for caches that
// heed them before Cache-Control (RFC 9213, Edge Architecture, nginx).
const CACHEABLE = [
  'ETag',
  'Last-Modified',
  'CDN-Cache-Control',
  'Surrogate-Control',
  'X-Accel-Expires',
];

const storage = new AsyncLocalStorage();

/** Middleware for express, connect and node:http. */
function brownout() {
  return function brownoutMiddleware(request, response, next) {
    const decided = new Brownout(Decision.read(linesOf(request)));
    request.brownout = decided;
    markWhenItLeaves(response, decided);
    return storage.run(decided, next);
  };
}

/** Whether this optional part is to be computed for the request being served; outside, always. */
function optional(part = '') {
  return storage.getStore()?.optional(part) ?? true;
}

/** The decision on the request being served. */
function current() {
  return storage.getStore();
}

/** The headers that tell inner services to obey the decision on the request being served. */
function outgoingHeaders() {
  return storage.getStore()?.outgoingHeaders() ?? {};
}

/**
 * Writes into the head of the response, as it leaves, what was served, and for caches.
 * What the application says itself of what it served stays.
 */
let mark;

/** The decision on one request; remembers which parts the application was refused. */
class Brownout {
  #asked = false;
  #refused = new Set();
  #promisedFull = false;

  constructor(decision) {
    this.decision = decision;
  }

  /** Whether this optional part is to be computed; without a name, the page's only one. */
  optional(part = '') {
    this.#asked = true;
    const allowed = this.#promisedFull || this.decision.allows(part);
    if (!allowed) this.#refused.add(part);
    return allowed;
  }

  get refused() {
    return [...this.#refused];
  }

  outgoingHeaders() {
    return this.decision.value === null ? {} : { [REQUEST_HEADER]: this.decision.value };
  }

  static {
    mark = (decided, response) => {
      const own = response.getHeader(RESPONSE_HEADER);
      const lean = decided.#refused.size > 0 || !Decision.read(asLines(own)).item;
      // Caches may keep what is not marked, so from here on it has to be full.
      decided.#promisedFull = !lean;
      if (own === undefined && decided.#asked) {
        response.setHeader(RESPONSE_HEADER, lean ? '?0' : '?1');
      }
      if (!lean) return;
      for (const name of CACHEABLE) response.removeHeader(name);
      response.setHeader('Cache-Control', 'no-store');
    };
  }
}

/** Which optional parts are computed: a Boolean item with parameters, RFC 9651. */
class Decision {
  /**
   * @param {boolean} item Whether the parts are that have no word of their own.
   * @param {ReadonlyMap<string, boolean>} parts The parts that have, by name.
   * @param {string | null} value The header it was read from.
   */
  constructor(item, parts, value) {
    this.item = item;
    this.parts = parts;
    this.value = value;
    Object.freeze(this);
  }

  allows(part = '') {
    return this.parts.get(part) ?? this.item;
  }

  /** Reads the header's lines; none, several or a malformed one: everything is computed. */
  static read(lines) {
    if (lines.length !== 1 || lines[0].length > VALUE_BYTES_MAX) return FULL;
    const value = trimSpaces(lines[0]);
    if (!value.startsWith('?0') && !value.startsWith('?1')) return FULL;
    const parts = readParameters(value);
    return parts === null ? FULL : new Decision(value[1] === '1', parts, value);
  }
}

const FULL = new Decision(true, new Map(), null);

const KEY = /[a-z*][a-z0-9_\-.*]*/;
// One alternative for each type of RFC 9651, section 3.3. Each begins with another character and
// none can match in two ways, so the time is linear in the length of the value.
const BARE_ITEM = new RegExp(
  [
    /\?[01]/, // Boolean
    /-?(?:[0-9]{1,12}\.[0-9]{1,3}|[0-9]{1,15})/, // Decimal, Integer
    /"(?:[ !#-[\]-~]|\\["\\])*"/, // String
    /[A-Za-z*][A-Za-z0-9!#$%&'*+\-.^_`|~:/]*/, // Token
    /:[A-Za-z0-9+/]*={0,2}:/, // Byte Sequence
    /@-?[0-9]{1,15}/, // Date
    /%"(?:[ !#$&-~]|%[0-9a-f]{2})*"/, // Display String
  ]
    .map((type) => type.source)
    .join('|'),
);
const PARAMETER = `; *(${KEY.source})(?:=(${BARE_ITEM.source}))?`;

/** The Boolean ones by name, or null if anything is malformed. The last of a name wins. */
function readParameters(value) {
  const parts = new Map();
  const parameter = new RegExp(PARAMETER, 'y');
  parameter.lastIndex = 2;
  while (parameter.lastIndex < value.length) {
    const found = parameter.exec(value);
    if (found === null) return null;
    const [, name, bareItem = '?1'] = found;
    if (bareItem === '?0' || bareItem === '?1') parts.set(name, bareItem === '?1');
    else if (bareItem.startsWith('%') && !isDisplayString(bareItem)) return null;
    else parts.delete(name); // it decides nothing
  }
  return parts;
}

function isDisplayString(bareItem) {
  try {
    decodeURIComponent(bareItem.slice(1));
    return true;
  } catch {
    return false;
  }
}

/** Only spaces: trim() takes tabs and line ends too. */
function trimSpaces(line) {
  let begin = 0;
  let end = line.length;
  while (begin < end && line[begin] === ' ') begin += 1;
  while (end > begin && line[end - 1] === ' ') end -= 1;
  return line.slice(begin, end);
}

/** Each line of the header: request.headers has them joined, which is not the same. */
function linesOf(request) {
  const joined = request.headers[REQUEST_HEADER_KEY];
  if (joined === undefined) return [];
  const raw = request.rawHeaders ?? [];
  const lines = raw.filter((_, at) => at % 2 === 1 && isRequestHeader(raw[at - 1]));
  return lines.length === 0 ? asLines(joined) : lines; // requests made by hand have no raw ones
}

function isRequestHeader(name) {
  return name.length === REQUEST_HEADER.length && name.toLowerCase() === REQUEST_HEADER_KEY;
}

function asLines(header) {
  if (header === undefined) return [];
  return Array.isArray(header) ? header.map(String) : [String(header)];
}

function markWhenItLeaves(response, decided) {
  const { writeHead } = response;
  response.writeHead = function writeMarkedHead(status, ...rest) {
    if (response.headersSent) return writeHead.call(response, status, ...rest); // which throws
    const [message, headers] = typeof rest[0] === 'string' ? rest : [undefined, rest[0] ?? rest[1]];
    setHeaders(response, headers);
    mark(decided, response);
    return writeHead.call(response, status, ...(message === undefined ? [] : [message]));
  };
}

/** Those given to writeHead(), an object or a flat list of names and values, join the others. */
function setHeaders(response, headers) {
  if (!Array.isArray(headers)) {
    for (const [name, value] of Object.entries(headers ?? {})) {
      response.setHeader(name, value);
    }
    return;
  }
  const pairs = headers.every(Array.isArray) ? headers : pairsOf(headers);
  for (const [name] of pairs) response.removeHeader(name);
  for (const [name, value] of pairs) response.appendHeader(name, value);
}

function pairsOf(flat) {
  const names = flat.filter((_, at) => at % 2 === 0);
  return names.map((name, at) => [name, flat[2 * at + 1]]);
}

module.exports = brownout;
Object.assign(brownout, { brownout, optional, current, outgoingHeaders, Decision });
