/* Strict JSON, its canonical bytes (RFC 8785) and SHA-256, as tokenwatt_site/canonical.py has them: what one of the two
   refuses the other refuses, by the vectors in tests/fixtures/strict-json.vectors.json. Knows no page. */
(function (scope) {
  "use strict";

  var MAX_DOCUMENT_BYTES = 2097152, MAX_DEPTH = 32, LIMIT = 9007199254740992;
  var UNFIT = /(?!\n)[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{Co}\p{Cn}]/u;
  var CHUNK = /[^"\\\x00-\x1f]*/y, HEX = /[0-9a-fA-F]{4}/y;
  var NUMBER = /-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?/y;
  var ESCAPES = { '"': '"', "\\": "\\", "/": "/", b: "\b", f: "\f", n: "\n", r: "\r", t: "\t" };

  /* What a file is refused for. Any other error is of this code, or of values that nobody thought of. */
  class Refused extends Error {}

  function refuse(what) { throw new Refused(what); }

  /* Why a text may not stand in a file of ours; null: it may. */
  function textFault(text) {
    if (/^[\x20-\x7e]*$/.test(text)) { return null; }
    var found = UNFIT.exec(text);
    if (found) {
      var code = found[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
      return "holds the character U+" + code + ", which is invisible or a control";
    }
    return text.normalize("NFC") === text ? null : "is not in Unicode normalisation form C";
  }

  function decode(bytes, limit) {
    if (bytes.length > limit) { refuse("is larger than " + limit.toLocaleString("en-US") + " bytes"); }
    var text;
    try {
      text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    } catch (error) {
      refuse("is not UTF-8");
    }
    if (text.startsWith("\ufeff")) { refuse("starts with a byte order mark"); }
    return text;
  }

  function parse(text) {
    var at = 0, depth = 0;

    function fail(what) { refuse("is not valid JSON: " + what + " at character " + at); }

    function blank() {
      while (at < text.length && " \t\n\r".includes(text[at])) { at++; }
    }

    function expect(mark) {
      blank();
      if (text[at] !== mark) { fail(JSON.stringify(mark) + " is missing"); }
      at++;
    }

    function string() {
      var made = "", mark;
      at++;
      for (;;) {
        CHUNK.lastIndex = at;
        var chunk = CHUNK.exec(text)[0];
        made += chunk;
        at += chunk.length;
        mark = text[at];
        if (mark === '"') { at++; break; }
        if (mark !== "\\") { fail("a string has no end"); }
        mark = text[at + 1];
        if (mark === "u") {
          HEX.lastIndex = at + 2;
          var hex = HEX.exec(text);
          if (!hex) { fail("an escape is none"); }
          made += String.fromCharCode(parseInt(hex[0], 16));
          at += 6;
        } else if (mark !== undefined && Object.prototype.hasOwnProperty.call(ESCAPES, mark)) {
          made += ESCAPES[mark];
          at += 2;
        } else {
          fail("an escape is none");
        }
      }
      var fault = textFault(made);
      if (fault) { refuse("a text " + fault); }
      return made;
    }

    function number() {
      NUMBER.lastIndex = at;
      var found = NUMBER.exec(text);
      if (!found) { fail("a value is missing"); }
      at += found[0].length;
      var value = Number(found[0]), whole = found[1] === undefined && found[2] === undefined;
      if (value === 0 && found[0][0] === "-") { refuse("holds -0, which has two readings"); }
      if ((whole && found[0].length > 17) || !(Math.abs(value) < LIMIT)) {
        refuse("holds the number " + found[0].slice(0, 24) + ", expected |number| < 2^53");
      }
      return value;
    }

    function deeper() {
      depth++;
      if (depth > MAX_DEPTH) { refuse("is nested deeper than " + MAX_DEPTH); }
      at++;
      blank();
    }

    function array() {
      var made = [];
      deeper();
      if (text[at] === "]") { at++; depth--; return made; }
      for (;;) {
        made.push(value());
        blank();
        if (text[at] === "]") { at++; depth--; return made; }
        expect(",");
      }
    }

    function object() {
      // Without a prototype: a key may be named as anything.
      var made = Object.create(null);
      deeper();
      if (text[at] === "}") { at++; depth--; return made; }
      for (;;) {
        blank();
        if (text[at] !== '"') { fail("a key is missing"); }
        var key = string();
        if (key in made) { refuse("holds the key " + JSON.stringify(key.slice(0, 80)) + " twice"); }
        if (key === "__proto__") { refuse("holds the forbidden key \"__proto__\""); }
        expect(":");
        made[key] = value();
        blank();
        if (text[at] === "}") { at++; depth--; return made; }
        expect(",");
      }
    }

    function value() {
      blank();
      var mark = text[at];
      if (mark === "{") { return object(); }
      if (mark === "[") { return array(); }
      if (mark === '"') { return string(); }
      for (var pair of [["true", true], ["false", false], ["null", null]]) {
        if (text.startsWith(pair[0], at)) { at += pair[0].length; return pair[1]; }
      }
      return number();
    }

    var whole = value();
    blank();
    if (at < text.length) { fail("something follows the value"); }
    return whole;
  }

  /* Parse bytes that every conforming reader understands in the same way. */
  function load(bytes, limit) { return parse(decode(bytes, limit || MAX_DOCUMENT_BYTES)); }

  /* RFC 8785. String() and JSON.stringify write numbers and texts as it asks. */
  function canonical(value) {
    if (value === null || typeof value === "boolean") { return String(value); }
    if (typeof value === "number") {
      if (!Number.isFinite(value)) { refuse("holds a number that JSON has not"); }
      return String(value);
    }
    if (typeof value === "string") { return JSON.stringify(value); }
    if (Array.isArray(value)) { return "[" + value.map(canonical).join(",") + "]"; }
    // Array.sort compares UTF-16 code units, as is asked.
    return "{" + Object.keys(value).sort().map(function (key) {
      return JSON.stringify(key) + ":" + canonical(value[key]);
    }).join(",") + "}";
  }

  function encode(text) { return new TextEncoder().encode(text); }

  function hex(bytes) {
    return Array.from(bytes, function (byte) { return byte.toString(16).padStart(2, "0"); }).join("");
  }

  /* The bytes of so many pairs of digits; `field` is told where it is something else. */
  function unhex(text, length, field) {
    if (typeof text !== "string" || text.length !== 2 * length || !/^[0-9a-f]*$/.test(text)) {
      refuse(field + " is not " + 2 * length + " hexadecimal digits");
    }
    return Uint8Array.from(text.match(/../g), function (pair) { return parseInt(pair, 16); });
  }

  var K = new Uint32Array(64), START = new Uint32Array(8);
  (function () {
    // FIPS 180-4: the first 32 bits of the fractions of cube and square roots of the first primes.
    for (var n = 2, found = 0; found < 64; n++) {
      for (var d = 2; d * d <= n && n % d; d++) { /* look for a divisor */ }
      if (d * d <= n) { continue; }
      if (found < 8) { START[found] = Math.floor(Math.sqrt(n) % 1 * 4294967296); }
      K[found++] = Math.floor(Math.cbrt(n) % 1 * 4294967296);
    }
  })();
  var W = new Uint32Array(64);

  function turn(x, n) { return x >>> n | x << 32 - n; }

  /* SHA-256 as 8 words of 32 bits. For what is short and many: crypto.subtle takes a turn of the event loop each. */
  function sha256Words(bytes) {
    var blocks = (bytes.length + 72) >> 6, padded = new Uint8Array(blocks << 6), state = START.slice();
    padded.set(bytes);
    padded[bytes.length] = 128;
    var view = new DataView(padded.buffer);
    view.setUint32(padded.length - 8, Math.floor(bytes.length / 536870912));
    view.setUint32(padded.length - 4, bytes.length << 3);
    for (var block = 0; block < padded.length; block += 64) {
      var i, s0, s1;
      for (i = 0; i < 16; i++) { W[i] = view.getUint32(block + 4 * i); }
      for (i = 16; i < 64; i++) {
        s0 = turn(W[i - 15], 7) ^ turn(W[i - 15], 18) ^ W[i - 15] >>> 3;
        s1 = turn(W[i - 2], 17) ^ turn(W[i - 2], 19) ^ W[i - 2] >>> 10;
        W[i] = W[i - 16] + s0 + W[i - 7] + s1;
      }
      var a = state[0], b = state[1], c = state[2], d = state[3];
      var e = state[4], f = state[5], g = state[6], h = state[7];
      for (i = 0; i < 64; i++) {
        s1 = turn(e, 6) ^ turn(e, 11) ^ turn(e, 25);
        s0 = turn(a, 2) ^ turn(a, 13) ^ turn(a, 22);
        var one = h + s1 + (e & f ^ ~e & g) + K[i] + W[i] | 0, two = s0 + (a & b ^ a & c ^ b & c) | 0;
        h = g; g = f; f = e; e = d + one | 0; d = c; c = b; b = a; a = one + two | 0;
      }
      state[0] += a; state[1] += b; state[2] += c; state[3] += d;
      state[4] += e; state[5] += f; state[6] += g; state[7] += h;
    }
    return state;
  }

  function sha256(bytes) {
    return Array.from(sha256Words(bytes), function (word) { return word.toString(16).padStart(8, "0"); }).join("");
  }

  /* The same of a whole file, off this thread. */
  async function fileDigest(bytes) {
    return hex(new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)));
  }

  scope.TokenwattJson = {
    Refused: Refused, refuse: refuse, textFault: textFault, load: load, parse: parse, canonical: canonical, encode: encode,
    hex: hex, unhex: unhex, sha256: sha256, sha256Words: sha256Words, fileDigest: fileDigest
  };
})(globalThis);
