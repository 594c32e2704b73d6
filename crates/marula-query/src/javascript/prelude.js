// The realm that server-side code finds: BSON's types as objects, and MongoDB's global functions.
//
// Evaluates to a function of `native`, the functions that Rust lends, which answers what Rust needs to
// recognise and to make the objects. An object's class is told by an inherited property under the symbol
// `kind`, its content by an own one under `payload`; neither is seen by `for`, `Object.keys` or JSON.
(function (native) {
    'use strict';

    const kind = Symbol('kind');
    const payload = Symbol('payload');
    const ints = Symbol('ints');
    const original = Symbol('original');
    // What documents that come from outside inherit from.
    const document = Object.defineProperty({}, Symbol.toStringTag, {value: 'BSON'});
    const code = Symbol('code');
    const TO_JSON_DEPTH_MAX = 100;
    const TO_JSON_LINE_MAX = 80;

    function hide(target, members) {
        for (const name of Reflect.ownKeys(members)) {
            const member = Object.getOwnPropertyDescriptor(members, name);
            member.enumerable = false;
            Object.defineProperty(target, name, member);
        }
        return target;
    }

    function fail(number, message) {
        const error = new Error(message);
        Object.defineProperty(error, code, {value: number});
        throw error;
    }

    // A function that may be called with or without `new`, and the objects it makes.
    function define(name, make, methods, kindName) {
        const type = function (...args) {
            return make(args, Object.create(type.prototype));
        };
        Object.defineProperty(type, 'name', {value: name});
        hide(type.prototype, methods);
        Object.defineProperty(type.prototype, Symbol.toStringTag, {value: name});
        if (kindName) Object.defineProperty(type.prototype, kind, {value: kindName});
        hide(globalThis, {[name]: type});
        return type;
    }

    function hold(object, content) {
        Object.defineProperty(object, payload, {value: content});
        return object;
    }

    function contentOf(object, want, method) {
        if (object === null || typeof object !== 'object' || object[kind] !== want) {
            fail(2, method + ' must be called on a ' + want);
        }
        return object[payload];
    }

    // ---- numbers

    const INT64_MIN = -(2n ** 63n);
    const INT64_MAX = 2n ** 63n - 1n;

    function longOfNumber(number) {
        if (!Number.isInteger(number) || number < -(2 ** 63) || number >= 2 ** 63) {
            fail(2, 'number passed to NumberLong must be representable as an int64_t');
        }
        return BigInt(number);
    }

    function longOf(value) {
        if (typeof value === 'object' && value !== null && value[kind] === 'NumberLong') {
            return value[payload];
        }
        if (typeof value === 'object' && value !== null && value[kind] === 'NumberInt') {
            return BigInt(value[payload]);
        }
        if (typeof value === 'string') {
            if (!/^[+-]?[0-9]+$/.test(value)) fail(2, 'could not convert string to long long');
            const number = BigInt(value.replace('+', ''));
            if (number < INT64_MIN || number > INT64_MAX) {
                fail(2, 'could not convert string to long long');
            }
            return number;
        }
        if (typeof value === 'number') return longOfNumber(value);
        if (typeof value === 'boolean') return value ? 1n : 0n;
        return 0n;
    }

    const NumberLong = define('NumberLong', function (args, object) {
        if (args.length === 0) return hold(object, 0n);
        if (args.length === 1) return hold(object, longOf(args[0]));
        if (args.length !== 3) fail(2, 'NumberLong needs 0, 1 or 3 arguments');
        const high = BigInt(Number(args[1]) >>> 0);
        const low = BigInt(Number(args[2]) >>> 0);
        return hold(object, BigInt.asIntN(64, (high << 32n) + low));
    }, {
        toNumber() { return Number(contentOf(this, 'NumberLong', 'toNumber')); },
        valueOf() { return Number(contentOf(this, 'NumberLong', 'valueOf')); },
        toString() {
            const number = contentOf(this, 'NumberLong', 'toString');
            const small = number >= -2147483648n && number <= 2147483647n;
            return small ? 'NumberLong(' + number + ')' : 'NumberLong("' + number + '")';
        },
        tojson() { return this.toString(); },
        toJSON() { return {$numberLong: String(contentOf(this, 'NumberLong', 'toJSON'))}; },
        compare(other) {
            const mine = contentOf(this, 'NumberLong', 'compare');
            if (typeof other !== 'object' || other === null || other[kind] !== 'NumberLong') {
                fail(2, 'NumberLong.compare() argument must be a NumberLong');
            }
            const theirs = other[payload];
            return mine < theirs ? -1 : mine > theirs ? 1 : 0;
        },
        get floatApprox() { return Number(contentOf(this, 'NumberLong', 'floatApprox')); },
        get top() { return Number(BigInt.asUintN(32, contentOf(this, 'NumberLong', 'top') >> 32n)); },
        get bottom() { return Number(BigInt.asUintN(32, contentOf(this, 'NumberLong', 'bottom'))); },
        get exactValueString() { return String(contentOf(this, 'NumberLong', 'exactValueString')); },
    }, 'NumberLong');

    const NumberInt = define('NumberInt', function (args, object) {
        if (args.length > 1) fail(2, 'NumberInt takes 0 or 1 arguments');
        return hold(object, args.length === 0 ? 0 : Number(args[0]) | 0);
    }, {
        toNumber() { return contentOf(this, 'NumberInt', 'toNumber'); },
        valueOf() { return contentOf(this, 'NumberInt', 'valueOf'); },
        toString() { return 'NumberInt(' + contentOf(this, 'NumberInt', 'toString') + ')'; },
        tojson() { return this.toString(); },
        toJSON() { return contentOf(this, 'NumberInt', 'toJSON'); },
    }, 'NumberInt');

    function decimalOf(value) {
        if (typeof value === 'number') return native.decimalOfNumber(value);
        let text = value;
        if (typeof value === 'object' && value !== null) {
            if (value[kind] === 'NumberDecimal') return value[payload];
            if (value[kind] === 'NumberLong' || value[kind] === 'NumberInt') text = String(value[payload]);
        }
        if (typeof text !== 'string') fail(2, 'Unable to write Decimal128 value.');
        const [problem, decimal] = native.decimalOfText(text);
        if (problem) fail(2, problem);
        return decimal;
    }

    const NumberDecimal = define('NumberDecimal', function (args, object) {
        if (args.length > 1) fail(2, 'NumberDecimal takes 0 or 1 arguments');
        return hold(object, args.length === 0 ? '0' : decimalOf(args[0]));
    }, {
        toString() { return 'NumberDecimal("' + contentOf(this, 'NumberDecimal', 'toString') + '")'; },
        tojson() { return this.toString(); },
        toJSON() { return {$numberDecimal: contentOf(this, 'NumberDecimal', 'toJSON')}; },
        equals(other) { return native.compare(exported, this, other) === 0; },
    }, 'NumberDecimal');

    // ---- identifiers, bytes, moments

    const ObjectId = define('ObjectId', function (args, object) {
        if (args.length === 0) return hold(object, native.objectId());
        const text = typeof args[0] === 'string' ? args[0] : '';
        if (args.length > 1 || text.length !== 24) fail(10448, 'invalid object id: length');
        if (!/^[0-9a-fA-F]{24}$/.test(text)) fail(10430, 'invalid object id: not hex');
        return hold(object, text.toLowerCase());
    }, {
        get str() { return contentOf(this, 'ObjectId', 'str'); },
        toString() { return 'ObjectId("' + contentOf(this, 'ObjectId', 'toString') + '")'; },
        tojson() { return this.toString(); },
        toJSON() { return {$oid: contentOf(this, 'ObjectId', 'toJSON')}; },
        valueOf() { return contentOf(this, 'ObjectId', 'valueOf'); },
        isObjectId: true,
        getTimestamp() {
            return new Date(parseInt(contentOf(this, 'ObjectId', 'getTimestamp').slice(0, 8), 16) * 1000);
        },
        equals(other) {
            return contentOf(this, 'ObjectId', 'equals') === (other && other[payload]);
        },
    }, 'ObjectId');
    hide(ObjectId, {
        fromDate(date) {
            if (!(date instanceof Date)) {
                throw Error('Cannot create ObjectId from ' + typeof date + ': ' + tojson(date));
            }
            const seconds = Math.floor(date.getTime() / 1000) >>> 0;
            return ObjectId(seconds.toString(16).padStart(8, '0') + '0000000000000000');
        },
    });

    function binary(subtype, hex) {
        const object = hold(Object.create(BinData.prototype), [subtype, hex]);
        return hideFixed(object, {len: hex.length / 2, type: subtype});
    }

    function hideFixed(target, members) {
        for (const name of Object.keys(members)) {
            Object.defineProperty(target, name, {value: members[name]});
        }
        return target;
    }

    function subtypeOf(number) {
        if (typeof number !== 'number' || !(number >= 0 && number <= 255)) {
            fail(2, 'BinData subtype must be a Number between 0 and 255 inclusive');
        }
        return Math.floor(number);
    }

    function checkHex(text) {
        if (text.length % 2 !== 0) fail(2, 'BinData hex string must be an even length');
        const wrong = /[^0-9a-fA-F]/.exec(text);
        if (wrong) {
            const shown = wrong[0].charCodeAt(0).toString(16).padStart(2, '0');
            fail(9, 'The character \\x' + shown + ' failed to parse from hex.');
        }
        return text.toLowerCase();
    }

    function uuidText(hex) {
        return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)]
            .join('-');
    }

    const BinData = define('BinData', function (args) {
        if (args.length !== 2) fail(2, 'BinData takes 2 arguments -- BinData(subtype,data)');
        const subtype = subtypeOf(args[0]);
        if (typeof args[1] !== 'string') fail(2, 'BinData data must be a String');
        const hex = native.hexOfBase64(args[1]);
        if (hex === null) fail(10270, 'invalid base64');
        return binary(subtype, hex);
    }, {
        base64() { return native.base64OfHex(contentOf(this, 'BinData', 'base64')[1]); },
        hex() { return contentOf(this, 'BinData', 'hex')[1]; },
        length() { return contentOf(this, 'BinData', 'length')[1].length / 2; },
        subtype() { return contentOf(this, 'BinData', 'subtype')[0]; },
        toString() {
            const [subtype, hex] = contentOf(this, 'BinData', 'toString');
            return subtype === 4 && hex.length === 32
                ? 'UUID("' + uuidText(hex) + '")'
                : 'BinData(' + subtype + ',"' + this.base64() + '")';
        },
        tojson() { return this.toString(); },
        toJSON() {
            const [subtype] = contentOf(this, 'BinData', 'toJSON');
            return {$binary: this.base64(), $type: subtype.toString(16).padStart(2, '0')};
        },
    }, 'BinData');

    hide(globalThis, {
        HexData(subtype, text) {
            if (arguments.length !== 2) fail(2, 'HexData needs 2 arguments');
            if (typeof subtype !== 'number') fail(2, 'HexData subtype must be a Number');
            if (typeof text !== 'string') fail(2, 'HexData data must be a String');
            return binary(subtypeOf(subtype), checkHex(text));
        },
        MD5(text) {
            if (arguments.length !== 1) fail(2, 'MD5 needs 1 argument');
            text = String(text);
            if (text.length !== 32) fail(2, 'MD5 string must have 32 characters');
            return binary(5, checkHex(text));
        },
        UUID(text) {
            if (arguments.length > 1) fail(2, 'UUID needs 0 or 1 arguments');
            if (arguments.length === 0) return binary(4, native.uuid());
            text = String(text);
            if (!/^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$/.test(text)) {
                fail(207, 'Invalid UUID string: ' + text);
            }
            return binary(4, text.replaceAll('-', '').toLowerCase());
        },
    });

    function timestampPart(value, name) {
        if (typeof value !== 'number') fail(2, 'Timestamp ' + name + ' must be a number');
        if (!(value >= 0 && value <= 4294967295)) {
            fail(2, 'Timestamp ' + name +
                ' must be non-negative and not greater than 4294967295, got ' + value);
        }
        return Math.floor(value);
    }

    const Timestamp = define('Timestamp', function (args, object) {
        if (args.length !== 0 && args.length !== 2) fail(2, 'Timestamp needs 0 or 2 arguments');
        const [t, i] = args.length === 0 ? [0, 0] : args;
        object.t = timestampPart(t, 'time (seconds)');
        object.i = timestampPart(i, 'increment');
        return object;
    }, {
        toJSON() { return {$timestamp: {t: this.t, i: this.i}}; },
        getTime() { return this.t; },
        getInc() { return this.i; },
        toString() { return 'Timestamp(' + this.t + ', ' + this.i + ')'; },
        tojson() { return this.toString(); },
        toStringIncomparable() { return this.toString(); },
    }, 'Timestamp');

    // ---- references and code: plain documents with a name of their own

    const DBRef = define('DBRef', function (args, object) {
        if (args.length !== 2 && args.length !== 3) fail(2, 'DBRef needs 2 or 3 arguments');
        if (typeof args[0] !== 'string') fail(2, 'DBRef 1st parameter must be a string');
        object.$ref = args[0];
        object.$id = args[1];
        if (args.length === 3) {
            if (typeof args[2] !== 'string') fail(2, 'DBRef 3rd parameter must be a string');
            object.$db = args[2];
        }
        return object;
    }, {
        getRef() { return this.$ref; },
        getCollection() { return this.$ref; },
        getId() { return this.$id; },
        getDb() { return this.$db; },
        toString() {
            const db = this.$db === undefined ? '' : ', ' + tojson(this.$db);
            return 'DBRef(' + tojson(this.$ref) + ', ' + tojson(this.$id) + db + ')';
        },
        tojson() { return this.toString(); },
    });

    const DBPointer = define('DBPointer', function (args, object) {
        if (args.length !== 2) fail(2, 'DBPointer needs 2 arguments');
        if (typeof args[0] !== 'string') fail(2, 'DBPointer 1st parameter must be a string');
        if (!args[1] || args[1][kind] !== 'ObjectId') {
            fail(2, 'DBPointer 2nd parameter must be an ObjectId');
        }
        object.ns = args[0];
        object.id = args[1];
        return object;
    }, {
        getCollection() { return this.ns; },
        getId() { return this.id; },
        toString() { return 'DBPointer(' + tojson(this.ns) + ', ' + tojson(this.id) + ')'; },
        tojson() { return this.toString(); },
    }, 'DBPointer');

    define('Code', function (args, object) {
        if (args.length > 2) fail(2, 'Code needs 0, 1 or 2 arguments');
        if (args.length > 0 && typeof args[0] !== 'string') fail(2, 'code must be a string');
        if (args.length > 1 && (typeof args[1] !== 'object' || args[1] === null)) {
            fail(2, 'scope must be an object');
        }
        object.code = args.length > 0 ? args[0] : '';
        if (args.length > 1) object.scope = args[1];
        return object;
    }, {
        toString() {
            const scope = JSON.stringify(this.scope || {});
            return 'Code({"code":' + JSON.stringify(this.code) + ',"scope":' + scope + '"})';
        },
    });

    // ---- the ends of the order: each is one object, and calling it answers itself

    function end(name, json) {
        const single = function () { return single; };
        const methods = hide(Object.create(Function.prototype), {
            constructor: single,
            tojson() { return tojson(json); },
            toJSON() { return json; },
            toString() { return '[object ' + name + ']'; },
            [Symbol.toStringTag]: name,
            [Symbol.hasInstance](value) { return value === single; },
            [kind]: name,
        });
        Object.defineProperty(single, 'name', {value: name});
        Object.setPrototypeOf(single, methods);
        hide(globalThis, {[name]: single});
        return single;
    }

    const MinKey = end('MinKey', {$minKey: 1});
    const MaxKey = end('MaxKey', {$maxKey: 1});

    // ---- printing

    function quote(text) {
        return JSON.stringify(text);
    }

    function print(value, indent, line, depth) {
        switch (typeof value) {
            case 'string': return quote(value);
            case 'number': return String(value);
            case 'boolean': return String(value);
            case 'undefined': return 'undefined';
            case 'function': return value[kind] ? value.tojson() : String(value);
            case 'object': break;
            default: throw Error("tojson can't handle type " + typeof value);
        }
        if (value === null) return 'null';
        if (typeof value.tojson === 'function' && value.tojson !== tojson) {
            return value.tojson(indent, line, depth);
        }
        if (value instanceof Error) return String(value);
        const list = Array.isArray(value);
        if (depth > TO_JSON_DEPTH_MAX) return list ? '[Array]' : '[Object]';
        if (list && value.length === 0) return '[ ]';
        const [open, close] = list ? '[]' : '{}';
        const end = line ? ' ' : '\n';
        // On one line an array drops the indentation, and an object repeats it. Everywhere the closing
        // bracket is indented by all but the first character of the parts' indentation.
        const inner = line ? (list ? '' : indent) : indent + '\t';
        const parts = [];
        if (list) {
            for (let i = 0; i < value.length; i++) parts.push(inner + print(value[i], inner, line, depth + 1));
        } else {
            for (const name in value) {
                parts.push(inner + '"' + name + '" : ' + print(value[name], inner, line, depth + 1));
            }
        }
        return open + end + (parts.join(',' + end) || inner) + end + inner.slice(1) + close;
    }

    function tojson(value, indent, line, depth) {
        indent = String(indent || '');
        const text = print(value, indent, line, depth || 0);
        const isOpen = typeof value === 'object' && indent === '' && (line == null || line == true);
        return isOpen && text.length < TO_JSON_LINE_MAX ? text.replace(/[\t\r\n]+/g, ' ') : text;
    }
    hide(tojson, {MAX_DEPTH: TO_JSON_DEPTH_MAX});

    function tojsononeline(value) {
        return tojson(value, ' ', true);
    }

    function sortDoc(value) {
        if (Array.isArray(value)) return value.map(sortDoc);
        if (typeof value !== 'object' || value === null || value[kind]) return value;
        const parent = Object.getPrototypeOf(value);
        if (parent !== Object.prototype && parent !== document) return value;
        const sorted = {};
        for (const name of Object.keys(value).sort()) sorted[name] = sortDoc(value[name]);
        return sorted;
    }

    // ---- assertions

    function doassert(message) {
        throw Error(typeof message === 'function' ? message() : message);
    }

    function shown(message) {
        return message === undefined ? '' : ' : ' + (typeof message === 'string' ? message : tojson(message));
    }

    function equal(a, b) {
        return a === b || (!(a === undefined || b === undefined) && native.compare(exported, a, b) === 0);
    }

    function compared(name, holds) {
        return function (a, b, message) {
            if (!holds(a, b)) doassert(tojson(a) + ' is not ' + name + ' ' + tojson(b) + shown(message));
        };
    }

    function assert(truth, message) {
        if (!truth) doassert('assert failed' + shown(message));
    }
    hide(assert, {
        eq: compared('equal to', equal),
        docEq: compared('equal to', (a, b) => equal(sortDoc(a), sortDoc(b))),
        neq: compared('different from', (a, b) => !equal(a, b)),
        lt: compared('less than', (a, b) => a < b),
        lte: compared('less than or eq', (a, b) => a <= b),
        gt: compared('greater than', (a, b) => a > b),
        gte: compared('greater than or eq', (a, b) => a >= b),
        contains: compared('in', (a, list) => list.some((item) => equal(a, item))),
        includes: compared('holding', (text, part) => text.includes(part)),
        isnull(value, message) {
            if (value !== null && value !== undefined) doassert('supposed to be null' + shown(message));
        },
        between(a, b, c, message, inclusive) {
            const inside = inclusive === false ? a < b && b < c : a <= b && b <= c;
            if (!inside) doassert(tojson(b) + ' is not between ' + tojson(a) + ' and ' + tojson(c) + shown(message));
        },
        close(a, b, message, places) {
            if (Math.abs(a - b) > Math.pow(10, -(places === undefined ? 4 : places))) {
                doassert(a + ' is not equal to ' + b + shown(message));
            }
        },
        throws(call, args, message) {
            try {
                call.apply(null, args || []);
            } catch (error) {
                return error;
            }
            return doassert('did not throw exception' + shown(message));
        },
        doesNotThrow(call, args) { return call.apply(null, args || []); },
    });

    // ---- dates

    const ISO_DATE = new RegExp('^(\\d{4})-?(\\d{2})-?(\\d{2})' +
        '(?:[T ](\\d{2})(?::?(\\d{2})(?::?(\\d{2})(\\.\\d+)?)?)?(?:Z|([+-])(\\d{2}):?(\\d{2})?)?)?$');

    function ISODate(text) {
        if (text === undefined) return new Date();
        const parts = ISO_DATE.exec(text);
        if (!parts) throw Error('invalid ISO date: ' + text);
        const [, year, month, day, hour, minute, second, fraction, sign, zoneHour, zoneMinute] = parts;
        const date = new Date(0);
        date.setUTCFullYear(Number(year), Number(month) - 1, Number(day));
        const ms = fraction ? Math.round(Number('0' + fraction) * 1000) : 0;
        date.setUTCHours(Number(hour || 0), Number(minute || 0), Number(second || 0), ms);
        if (!sign) return date;
        const offset = (Number(zoneHour) * 60 + Number(zoneMinute || 0)) * 60000;
        return new Date(date.getTime() - (sign === '+' ? offset : -offset));
    }

    const dateText = Function.prototype.call.bind(Date.prototype.toString);
    hide(Date.prototype, {
        // The name of the time zone follows its offset; the engine knows the offset alone.
        toString() {
            const text = dateText(this);
            return text.endsWith('GMT+0000') ? text + ' (UTC)' : text;
        },
        tojson() {
            if (Number.isNaN(this.getTime())) return 'ISODate("0NaN-NaN-NaNTNaN:NaN:NaNZ")';
            return 'ISODate("' + this.toISOString().replace('.000Z', 'Z') + '")';
        },
    });
    hide(Date, {
        timeFunc(call, times) {
            const start = new Date();
            for (let i = 0; i < (times || 1); i++) call();
            return new Date().getTime() - start.getTime();
        },
    });

    // ---- additions to JavaScript's own objects

    function merge(into, from, deep) {
        for (const name of Object.keys(from)) {
            const value = from[name];
            const both = deep && typeof value === 'object' && value !== null &&
                typeof into[name] === 'object' && into[name] !== null;
            into[name] = both ? merge(merge({}, into[name], true), value, true) : value;
        }
        return into;
    }

    hide(Object, {
        extend(into, from) { return merge(into, from, false); },
        merge(a, b) { return merge(merge({}, a, false), b, false); },
        deepMerge(a, b) { return merge(merge({}, a, true), b, true); },
        keySet(object) { return Object.keys(object); },
        bsonsize(object) { return native.bsonSize(exported, object); },
    });
    hide(Array, {
        contains(list, item) { return list.some((other) => other == item); },
        unique(list) { return list.filter((item, i) => list.indexOf(item) === i); },
        shuffle(list) {
            for (let i = 0; i < list.length - 1; i++) {
                const j = i + Math.floor(Math.random() * (list.length - i));
                [list[i], list[j]] = [list[j], list[i]];
            }
            return list;
        },
        tojson(list, indent, line, depth) { return print(list, indent || '', line === true, depth || 0); },
        sum(list) { return list.length === 0 ? null : list.reduce((a, b) => a + b); },
        avg(list) { return list.length === 0 ? null : Array.sum(list) / list.length; },
        stdDev(list) {
            const average = Array.avg(list);
            return Math.sqrt(list.reduce((sum, item) => sum + (item - average) ** 2, 0) / list.length);
        },
    });
    hide(String.prototype, {
        ltrim() { return this.trimStart(); },
        rtrim() { return this.trimEnd(); },
        pad(length, right, fill) {
            return right ? this.padEnd(length, fill) : this.padStart(length, fill);
        },
    });
    hide(Number.prototype, {
        toPercentStr() { return (this * 100).toFixed(2) + '%'; },
        zeroPad(width) { return String(this).padStart(width, '0'); },
    });
    hide(RegExp, {
        escape(text) { return text.replace(/[-[\]{}()*+?.,\\^$|#\s]/g, '\\$&'); },
    });
    hide(RegExp.prototype, {
        tojson() { return String(this); },
        toJSON() { return {$regex: this.source, $options: this.flags}; },
    });

    // ---- global functions

    hide(globalThis, {
        tojson, tojsononeline, sortDoc, doassert, assert, ISODate,
        tojsonObject(value, indent, line, depth) {
            return print(value, String(indent || ''), line, depth || 0);
        },
        // What code prints goes nowhere: there is no output in the language.
        print() {},
        printjson() {},
        printjsononeline() {},
        gc() {},
        isString(value) { return typeof value === 'string'; },
        isNumber(value) { return typeof value === 'number'; },
        isObject(value) { return typeof value === 'object'; },
        version() { return native.version; },
        buildInfo() { return {version: native.version}; },
        getJSHeapLimitMB() { return native.heapMegabytes; },
        hex_md5(text) {
            if (arguments.length !== 1 || typeof text !== 'string') {
                fail(10261, 'hex_md5 takes a single string argument -- hex_md5(string)');
            }
            return native.md5(text);
        },
        sleep(ms) {
            if (arguments.length !== 1 || typeof ms !== 'number') {
                fail(16259, 'sleep takes a single numeric argument -- sleep(milliseconds)');
            }
            native.sleep(ms);
        },
        bsonWoCompare(a, b) {
            if (arguments.length !== 2) fail(2, 'bsonWoCompare needs 2 arguments');
            return native.compare(exported, a, b);
        },
        bsonUnorderedFieldsCompare(a, b) {
            if (arguments.length !== 2) fail(2, 'bsonUnorderedFieldsCompare needs 2 arguments');
            return native.compare(exported, sortDoc(a), sortDoc(b));
        },
        bsonBinaryEqual(a, b) {
            if (arguments.length !== 2) fail(2, 'bsonBinaryEqual needs 2 arguments');
            return native.identical(exported, a, b);
        },
        bsonObjToArray(object) { return Object.values(object); },
    });

    // The engine does not look whether it must end while it walks an array, and an array of four billion
    // holes takes no memory. No array that long can be filled, so the functions that walk one refuse it.
    const ARRAY_LENGTH_MAX = 16 * 1024 * 1024;
    const apply = Function.prototype.call.bind(Function.prototype.apply);
    const describeOwn = Object.getOwnPropertyDescriptor;
    const prototypeOf = Object.getPrototypeOf;
    const isArray = Array.isArray;

    // Looks whether to end before a walk of many steps, so that many walks end in time.
    const STEPS_MIN = 4096;
    function checkBefore(steps) {
        if (steps > STEPS_MIN) native.check();
    }

    // Puts `run`, which is given `this` and the arguments, in the place of a function of the language.
    function guard(target, name, run) {
        const {[name]: guarded} = {[name](...args) { return run(this, args); }};
        Object.defineProperty(guarded, 'length', {value: target[name].length});
        hide(target, {[name]: guarded});
    }

    function compareTexts(a, b) {
        const [left, right] = [String(a), String(b)];
        return left < right ? -1 : left > right ? 1 : 0;
    }

    function checkLength(list) {
        if (list === null || list === undefined) return;
        if (!isArray(list) && typeof list === 'object') {
            for (let at = list; at !== null; at = prototypeOf(at)) {
                const own = describeOwn(at, 'length');
                if (own === undefined) continue;
                if ('value' in own && typeof own.value !== 'object') break;
                throw new TypeError('the length of an array-like object must be a plain number');
            }
        }
        if (list.length > ARRAY_LENGTH_MAX) throw new RangeError('invalid array length');
    }

    for (const name of Object.getOwnPropertyNames(Array.prototype)) {
        const walk = Array.prototype[name];
        if (typeof walk !== 'function' || ['constructor', 'push', 'pop', 'at'].includes(name)) continue;
        guard(Array.prototype, name, (list, args) => {
            checkLength(list);
            if (list !== null && list !== undefined) checkBefore(list.length);
            // Its own order compares texts that nobody sees.
            if (name === 'sort' && args.length === 0) return apply(walk, list, [compareTexts]);
            return apply(walk, list, args);
        });
    }
    hide(Array.prototype, {[Symbol.iterator]: Array.prototype.values});
    const typedArray = prototypeOf(Int8Array.prototype);
    for (const name of ['fill', 'indexOf', 'lastIndexOf', 'includes', 'reverse', 'set', 'copyWithin', 'sort', 'join']) {
        const walk = typedArray[name];
        guard(typedArray, name, (list, args) => {
            if (ArrayBuffer.isView(list)) checkBefore(list.length);
            return apply(walk, list, args);
        });
    }

    // Neither does it while it looks for one string in another, which may take as many steps as both are long, multiplied.
    // Where that is much, it looks for the other's front in one part of the text at a time; and where that front is
    // found again and again, the text is walked once, by the automaton of Knuth, Morris and Pratt.
    const SEARCH_MAX = 2 ** 20;
    const HEAD_LENGTH = 16;
    const STEP = SEARCH_MAX / HEAD_LENGTH;
    const indexOf = Function.prototype.call.bind(String.prototype.indexOf);
    const lastIndexOf = Function.prototype.call.bind(String.prototype.lastIndexOf);
    const startsWith = Function.prototype.call.bind(String.prototype.startsWith);
    const codeAt = Function.prototype.call.bind(String.prototype.charCodeAt);
    const slice = Function.prototype.call.bind(String.prototype.slice);
    const isLong = (text, part) => typeof part === 'string' && text.length * part.length > SEARCH_MAX;

    // Calls `see` with the places of `part`, which is not empty, from `from` on; it answers where to go on, if at all.
    function search(text, part, from, see) {
        const head = slice(part, 0, HEAD_LENGTH);
        const last = text.length - part.length;
        let compared = 0;
        for (let begin = from; begin <= last; begin = Math.max(begin + STEP, from)) {
            const piece = slice(text, begin, begin + STEP + head.length - 1);
            for (let at = indexOf(piece, head, from - begin); at >= 0; at = indexOf(piece, head, from - begin)) {
                const place = begin + at;
                if (place > last) return;
                if (head.length < part.length) {
                    from = place + 1;
                    compared += part.length;
                    if (compared > text.length + SEARCH_MAX) return walk(text, part, place, see);
                    checkBefore(part.length);
                    if (!startsWith(text, part, place)) continue;
                }
                from = see(place);
                if (from === undefined) return;
            }
        }
    }

    function walk(text, part, from, see) {
        // How much of the front of `part` is also the end of what has matched so far.
        const borders = new Int32Array(part.length);
        for (let at = 1, border = 0; at < part.length; at++) {
            while (border > 0 && codeAt(part, at) !== codeAt(part, border)) border = borders[border - 1];
            if (codeAt(part, at) === codeAt(part, border)) border++;
            borders[at] = border;
        }
        for (let at = from, matched = 0; at < text.length; at++) {
            while (matched > 0 && codeAt(text, at) !== codeAt(part, matched)) matched = borders[matched - 1];
            if (codeAt(text, at) === codeAt(part, matched)) matched++;
            if (matched < part.length) continue;
            const next = see(at + 1 - matched);
            if (next === undefined) return;
            matched = next > at ? 0 : borders[matched - 1];
        }
    }

    function find(text, part, from) {
        if (!isLong(text, part)) return indexOf(text, part, from);
        let found = -1;
        search(text, part, from, place => { found = place; });
        return found;
    }

    function findLast(text, part, from) {
        let last = -1;
        if (part.length > HEAD_LENGTH) {
            search(text, part, 0, place => {
                if (place > from) return undefined;
                last = place;
                return place + 1;
            });
            return last;
        }
        for (let end = Math.min(from, text.length - part.length) + 1; end > 0 && last < 0; end -= STEP) {
            const begin = Math.max(0, end - STEP);
            const found = lastIndexOf(slice(text, begin, end + part.length - 1), part);
            if (found >= 0) last = begin + found;
        }
        return last;
    }

    // Calls `see` with each place of `part`.
    function findAll(text, part, most, see) {
        let seen = 0;
        search(text, part, 0, place => {
            see(place);
            seen++;
            return seen < most ? place + part.length : undefined;
        });
    }

    // What stands for `$&` and the like in a replacement.
    function expand(replacement, text, part, at) {
        if (typeof replacement === 'function') return String(replacement(part, at, text));
        let out = '';
        let from = 0;
        const pattern = String(replacement);
        for (let mark = indexOf(pattern, '$', 0); mark >= 0; mark = indexOf(pattern, '$', from)) {
            const meant = {$: '$', '&': part, '`': slice(text, 0, at), "'": slice(text, at + part.length)}[pattern[mark + 1]];
            out += slice(pattern, from, mark) + (meant === undefined ? '$' : meant);
            from = mark + (meant === undefined ? 1 : 2);
        }
        return out + slice(pattern, from);
    }

    function substitute(text, part, replacement, most) {
        let out = '';
        let from = 0;
        findAll(text, part, most, at => {
            out += slice(text, from, at) + expand(replacement, text, part, at);
            from = at + part.length;
        });
        return out + slice(text, from);
    }

    function cut(text, part, limit) {
        const pieces = [];
        let from = 0;
        findAll(text, part, Infinity, at => {
            pieces[pieces.length] = slice(text, from, at);
            from = at + part.length;
        });
        pieces[pieces.length] = slice(text, from);
        return limit === undefined ? pieces : pieces.slice(0, limit >>> 0);
    }

    const patient = {
        indexOf: (text, part, from) => find(text, part, Math.max(0, Math.trunc(from) || 0)),
        lastIndexOf: (text, part, from) => findLast(text, part, from === undefined ? Infinity : Math.trunc(from) || 0),
        includes: (text, part, from) => find(text, part, Math.max(0, Math.trunc(from) || 0)) >= 0,
        replace: (text, part, by) => substitute(text, part, by, 1),
        replaceAll: (text, part, by) => substitute(text, part, by, Infinity),
        split: (text, part, limit) => cut(text, part, limit),
    };
    for (const name of Object.keys(patient)) {
        const swift = String.prototype[name];
        guard(String.prototype, name, (self, args) => {
            if (self === null || self === undefined) return apply(swift, self, args);
            const text = typeof self === 'string' ? self : String(self);
            const part = args[0];
            if (typeof part === 'object' && part !== null && !(part instanceof RegExp)) args[0] = String(part);
            checkBefore(text.length);
            return isLong(text, args[0]) ? patient[name](text, ...args) : apply(swift, text, args);
        });
    }
    for (const name of ['trim', 'trimStart', 'trimEnd', 'localeCompare', 'normalize', 'startsWith', 'endsWith']) {
        const swift = String.prototype[name];
        guard(String.prototype, name, (self, args) => {
            if (typeof self === 'string') checkBefore(self.length);
            return apply(swift, self, args);
        });
    }

    // It repeats a text one character at a time. A long result is put together from parts; one that is too long is refused.
    const STRING_LENGTH_MAX = 2 ** 30 - 1;
    const repeat = Function.prototype.call.bind(String.prototype.repeat);
    function repeatTo(length, text) {
        const part = repeat(text, Math.ceil(SEARCH_MAX / text.length));
        let result = '';
        for (; length >= part.length; length -= part.length) {
            checkBefore(part.length);
            result += part;
        }
        return result + slice(part, 0, length);
    }
    const isLongResult = length => length > SEARCH_MAX && length <= STRING_LENGTH_MAX;
    for (const [name, join] of [
        ['repeat', null], ['padStart', (text, padding) => padding + text], ['padEnd', (text, padding) => text + padding],
    ]) {
        const swift = String.prototype[name];
        guard(String.prototype, name, (self, args) => {
            const [number, filler = ' '] = args;
            if (typeof self !== 'string' || typeof number !== 'number') return apply(swift, self, args);
            const length = join ? Math.trunc(number) : self.length * Math.trunc(number);
            if (!isLongResult(length)) return apply(swift, self, args);
            if (!join) return repeatTo(length, self);
            const missing = length - self.length;
            if (typeof filler !== 'string' || filler === '' || !isLongResult(missing)) return apply(swift, self, args);
            return join(self, repeatTo(missing, filler));
        });
    }

    // What this engine has and server-side JavaScript does not know, or could not be bounded.
    const ProxyType = Proxy;
    const {defineProperty: defineMember, deleteProperty: deleteMember} = Reflect;
    const unknown = ['Proxy', 'Reflect', 'WeakRef', 'FinalizationRegistry', 'Atomics', 'SharedArrayBuffer', 'Iterator',
        'queueMicrotask', 'performance', 'navigator', 'DOMException', 'btoa', 'atob'];
    for (const name of unknown) delete globalThis[name];

    const DateType = Date;
    const RegExpType = RegExp;
    const timeOf = Function.prototype.call.bind(Date.prototype.getTime);
    const sourceOf = Function.prototype.call.bind(Function.prototype.toString);
    const wellFormed = Function.prototype.call.bind(String.prototype.toWellFormed);

    const symbolsOf = Object.getOwnPropertySymbols;
    const concat = Function.prototype.call.bind(Array.prototype.concat);
    const arrayOf = Array.from;
    const SetType = Set;
    const addTo = Function.prototype.call.bind(Set.prototype.add);
    const removeFrom = Function.prototype.call.bind(Set.prototype.delete);

    // What BSON an object is other than a document or an array: its name, then its content.
    function describe(value) {
        switch (value[kind]) {
            case 'NumberLong':
            case 'NumberInt':
            case 'NumberDecimal':
            case 'ObjectId':
                return [value[kind], value[payload]];
            case 'BinData': return ['BinData', value[payload][0], value[payload][1]];
            case 'Timestamp': return ['Timestamp', Number(value.t), Number(value.i)];
            // One whose parts were replaced is a document.
            case 'DBPointer':
                return typeof value.ns === 'string' && value.id && value.id[kind] === 'ObjectId'
                    ? ['DBPointer', value.ns, value.id[payload]]
                    : undefined;
            case 'MinKey':
            case 'MaxKey':
                return [value[kind]];
        }
        if (typeof value === 'function') return ['Code', sourceOf(value)];
        if (value instanceof DateType) return ['Date', timeOf(value)];
        if (value instanceof RegExpType) return ['RegExp', String(value.source), String(value.flags)];
        return undefined;
    }

    // The language puts names that are numbers before the others. A document keeps the order in which
    // it got its fields, so one with such names answers for itself.
    function ordered(fields, names) {
        const order = new SetType(names);
        return new ProxyType(fields, {
            ownKeys(target) { return concat(arrayOf(order), symbolsOf(target)); },
            defineProperty(target, name, member) {
                if (typeof name === 'string') addTo(order, name);
                return defineMember(target, name, member);
            },
            deleteProperty(target, name) {
                removeFrom(order, name);
                return deleteMember(target, name);
            },
        });
    }

    const exported = {
        ints, original, code, document, reference: DBRef.prototype, describe, ordered, wellFormed, binary,
        long(number) { return hold(Object.create(NumberLong.prototype), number); },
        decimal(text) { return hold(Object.create(NumberDecimal.prototype), text); },
        objectId(text) { return hold(Object.create(ObjectId.prototype), text); },
        timestamp: Timestamp,
        pointer: DBPointer,
        date(ms) { return new DateType(ms); },
        regex(source, flags) { return new RegExpType(source, flags); },
        minKey: MinKey,
        maxKey: MaxKey,
        // Makes the global function of mapReduce's map; what it is given gathers in the list that this answers.
        emitter() {
            const pairs = [];
            globalThis.emit = function emit(...pair) {
                if (pair.length !== 2) fail(31220, 'emit takes 2 args');
                pairs[pairs.length] = pair[0];
                pairs[pairs.length] = pair[1];
            };
            return pairs;
        },
    };
    return exported;
})
