/* Checks 1 to 6 of tokenwatt_site/trust/verify.py: from bytes to a signed document and the evidence that it names, decoded.
   Knows no page. */
(function (scope) {
  "use strict";

  var json = scope.TokenwattJson, refuse = json.refuse;
  var RUN_SCHEMA = "tokenwatt/run/1", PAYLOAD_TYPE = "application/vnd.tokenwatt.run.v1+json";
  var MAX_COMPRESSED_BYTES = 67108864, MAX_EVIDENCE_BYTES = 134217728, MAX_LINE_BYTES = 1048576;
  var MAX_ROWS = 2000000, MAX_LINES = 20000, MAX_BOARDS = 512;
  var EVENTS = ["open", "launch", "idle", "trial_start", "trial_end", "repeat_end", "under_load", "accuracy_start",
    "accuracy_end", "interrupted", "close"];

  function show(value) { return String(value === undefined ? "nothing" : JSON.stringify(value)).slice(0, 120); }

  function expect(field, found, expected) {
    if (json.canonical(found) !== json.canonical(expected)) {
      refuse(field + " is " + show(found) + ", expected " + show(expected));
    }
  }

  function whole(value, least, most) { return Number.isInteger(value) && value >= least && value <= most; }

  function integer(owner, name, least, most) {
    var value = owner[name];
    if (!whole(value, least, most === undefined ? Number.MAX_SAFE_INTEGER : most)) {
      refuse(name + " is " + show(value) + ", expected an integer of at least " + least);
    }
    return value;
  }

  function exact(value) {
    if (!Number.isSafeInteger(value)) { refuse("holds a time beyond 2^53"); }
    return value;
  }

  /* ---------- the document and its signature ---------- */

  function signedBytes(document) {
    var rest = Object.create(null);
    Object.keys(document).forEach(function (key) { if (key !== "signatures") { rest[key] = document[key]; } });
    return json.encode(json.canonical(rest));
  }

  function expectRun(document) {
    if (document === null || typeof document !== "object" || Array.isArray(document) || !("run_schema" in document)) {
      refuse("is no run file: a JSON object with \"run_schema\"");
    }
    if (document.run_schema !== RUN_SCHEMA) {
      refuse("has the format " + show(document.run_schema) + ", expected " + show(RUN_SCHEMA));
    }
  }

  function pae(kind, body) {
    var head = json.encode("DSSEv1 " + json.encode(kind).length + " " + kind + " " + body.length + " ");
    var made = new Uint8Array(head.length + body.length);
    made.set(head);
    made.set(body, head.length);
    return made;
  }

  var P = (1n << 255n) - 19n, ORDER_8_Y = 0x7a03ac9277fdc74ec6cc392cfa53202a0f67100d760b3cba4fd84d3d706a17c7n;
  var SMALL_ORDER_Y = [0n, 1n, P - 1n, P, P + 1n, ORDER_8_Y, P - ORDER_8_Y];

  /* Whether this encodes a point of order 1, 2, 4 or 8, under which anyone can sign. */
  function isSmallOrder(publicKey) {
    var y = BigInt("0x" + json.hex(publicKey.slice().reverse())) & ((1n << 255n) - 1n);
    return SMALL_ORDER_Y.includes(y);
  }

  async function verified(publicKey, sig, message) {
    var key = await crypto.subtle.importKey("raw", publicKey, { name: "Ed25519" }, false, ["verify"]);
    return crypto.subtle.verify({ name: "Ed25519" }, key, sig, message);
  }

  /* Refuse what its holder did not sign as a run; return the key's id. */
  async function checkSignature(document, body) {
    var signatures = document.signatures;
    if (!Array.isArray(signatures) || signatures.length !== 1) { refuse("has not exactly one signature"); }
    var one = signatures[0] || {};
    if (Object.keys(one).sort().join() !== "keyid,public_key,sig") { refuse("has a signature of other fields"); }
    var publicKey = json.unhex(one.public_key, 32, "signatures.0.public_key"), sig = json.unhex(one.sig, 64, "signatures.0.sig");
    var id = "ed25519:" + json.sha256(publicKey).slice(0, 32);
    if (one.keyid !== id) { refuse("names the key " + show(one.keyid) + "; the one beside it is " + id); }
    if (isSmallOrder(publicKey)) { refuse("is signed with a key of small order, under which anyone can sign"); }
    var fits = false;
    try { fits = await verified(publicKey, sig, pae(PAYLOAD_TYPE, body)); } catch (error) { /* no point of the curve */ }
    if (!fits) {
      refuse("has a signature that does not fit: it was changed after signing, or signed as something else or with another key");
    }
    return id;
  }

  /* Why this browser cannot verify; null: it can. By the first vector of RFC 8032 and four bytes of gzip's own. */
  async function lacking() {
    if (!scope.crypto || !crypto.subtle) {
      return "the page came over plain http, where browsers switch their cryptography off; use https, localhost or the disk";
    }
    if (!scope.DecompressionStream) { return "this browser cannot unpack gzip (DecompressionStream)"; }
    var key = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
    var sig = "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b";
    try {
      var holds = await verified(json.unhex(key, 32, "key"), json.unhex(sig, 64, "sig"), new Uint8Array(0));
      var flipped = await verified(json.unhex(key, 32, "key"), json.unhex(sig, 64, "sig"), new Uint8Array(1));
      return holds && !flipped ? null : "this browser's Ed25519 is not right";
    } catch (error) {
      return "this browser does not know Ed25519 (Chrome 137, Firefox 129, Safari 17 and later do)";
    }
  }

  function configurationId(setup) {
    var lean = Object.assign(Object.create(null), setup), gate = setup.accuracy_gate;
    // Fields that are younger than some ids are no part of them where they are null.
    if (lean.conversation === null) { delete lean.conversation; }
    if (gate && gate.asked === null) {
      lean.accuracy_gate = Object.assign(Object.create(null), gate);
      delete lean.accuracy_gate.asked;
    }
    var model = setup.accelerator.model, boards = model.toUpperCase() === "CPU" ? "cpu" : setup.accelerator.count + "x " + model;
    var slug = (setup.model.name + " " + boards + " " + setup.engine.name).toLowerCase().replace(/[^a-z0-9]+/g, "-");
    slug = slug.replace(/^-|-$/g, "").slice(0, 51).replace(/-$/, "");
    return (slug || "configuration") + "-" + json.sha256(json.encode(json.canonical(lean))).slice(0, 12);
  }

  /* ---------- evidence ---------- */

  /* The entries of a run's evidence, their form checked before any of it is fetched. */
  function entries(document) {
    var found = document.evidence, roles = {}, total = 0;
    if (!Array.isArray(found)) { refuse("has no list of evidence"); }
    found.forEach(function (entry) {
      json.unhex(entry.sha256, 32, "evidence: sha256");
      if (entry.path !== "evidence/" + entry.sha256 + ".jsonl.gz") {
        refuse("has evidence at " + show(entry.path) + ", which is not the address of its digest");
      }
      if (typeof entry.role !== "string" || roles[entry.role]) { refuse("has the evidence " + show(entry.role) + " twice"); }
      roles[entry.role] = true;
      total += integer(entry, "bytes", 0);
      integer(entry, "lines", 0);
    });
    if (!roles.journal || !roles.requests) { refuse("lacks journal or requests among its evidence"); }
    if (total > MAX_EVIDENCE_BYTES) { refuse("has " + total.toLocaleString("en-US") + " bytes of evidence, more than is read"); }
    return found;
  }

  async function unpack(packed, entry) {
    if (packed.length > MAX_COMPRESSED_BYTES) { refuse("is larger than is read"); }
    if (packed[0] === 31 && packed[1] === 139 && packed[3]) { refuse("has names or comments in its gzip header"); }
    // Some servers say of such a file that it is gzip'd on the way, and browsers then unpack it.
    if (packed.length === entry.bytes && !(packed[0] === 31 && packed[1] === 139)) { return packed; }
    var made = new Uint8Array(entry.bytes), at = 0;
    var reader = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip")).getReader();
    try {
      for (;;) {
        var part = await reader.read();
        if (part.done) { break; }
        if (at + part.value.length > made.length) {
          reader.cancel().catch(function () { /* it is refused already */ });
          refuse("inflates beyond the " + entry.bytes.toLocaleString("en-US") + " bytes that were signed");
        }
        made.set(part.value, at);
        at += part.value.length;
      }
    } catch (error) {
      if (error instanceof json.Refused) { throw error; }
      refuse("is not one whole gzip member");
    }
    if (at < made.length) {
      refuse("inflates to " + at.toLocaleString("en-US") + " bytes, signed were " + entry.bytes.toLocaleString("en-US"));
    }
    return made;
  }

  function lineFeeds(bytes) {
    var found = 0;
    for (var at = bytes.indexOf(10); at >= 0; at = bytes.indexOf(10, at + 1)) { found++; }
    return found;
  }

  /* The uncompressed bytes of one piece, checked against its digest, size and line count. */
  async function piece(packed, entry) {
    try {
      var bytes = await unpack(packed, entry), digest = await json.fileDigest(bytes);
      if (digest !== entry.sha256) { refuse("has the digest " + digest + ", signed was " + entry.sha256); }
      if (lineFeeds(bytes) !== entry.lines) { refuse("has another number of lines than was signed"); }
      return bytes;
    } catch (error) {
      if (error instanceof json.Refused) { error.message = "evidence " + entry.role + " " + error.message; }
      throw error;
    }
  }

  /* An array of integers in its only spelling into `row`, null as NaN; false: it is spelt otherwise. */
  function plainRow(bytes, at, end, row) {
    if (bytes[at] !== 91 || bytes[end - 1] !== 93) { return false; }
    at++;
    for (var column = 0; column < row.length; column++) {
      var byte = bytes[at];
      if (byte === 110) {
        if (bytes[at + 1] !== 117 || bytes[at + 2] !== 108 || bytes[at + 3] !== 108) { return false; }
        row[column] = NaN;
        at += 4;
      } else {
        var sign = 1, value = 0, digits = 0, first;
        if (byte === 45) { sign = -1; at++; }
        first = bytes[at];
        for (; bytes[at] >= 48 && bytes[at] <= 57; at++) { value = 10 * value + bytes[at] - 48; digits++; }
        if (digits < 1 || digits > 15 || (first === 48 && (digits > 1 || sign < 0))) { return false; }
        row[column] = sign * value;
      }
      if (bytes[at] !== (column === row.length - 1 ? 93 : 44)) { return false; }
      at++;
    }
    return at === end;
  }

  function strictRow(bytes, row) {
    var told = json.load(bytes, MAX_LINE_BYTES), text = new TextDecoder().decode(bytes);
    // 1.0 is a fraction to who told them apart when it was written.
    if (!Array.isArray(told) || told.length !== row.length || /[.eE]/.test(text)) { refuse("is no array of " + row.length + " integers"); }
    told.forEach(function (value, column) {
      if (value !== null && !Number.isSafeInteger(value)) { refuse("column " + column + " is no integer"); }
      row[column] = value === null ? NaN : value;
    });
  }

  /* Read a header and rows of integers; `each` is called with every row, whose array is used again for the next. */
  function table(bytes, columns, nullable, role, each) {
    if (bytes[bytes.length - 1] !== 10) { refuse(role + ": the last line is cut"); }
    var start = bytes.indexOf(10) + 1, header = json.load(bytes.subarray(0, start - 1), MAX_LINE_BYTES);
    if (lineFeeds(bytes) - 1 > MAX_ROWS) { refuse(role + ": has more rows than are read"); }
    expect(role + ": columns", header.columns, columns);
    var row = new Float64Array(columns.length), line = 2;
    while (start < bytes.length) {
      var end = bytes.indexOf(10, start);
      try {
        if (!plainRow(bytes, start, end, row)) { strictRow(bytes.subarray(start, end), row); }
        for (var column = 0; column < row.length; column++) {
          if (row[column] !== row[column] && !nullable[column]) { refuse("column " + column + " is null"); }
        }
        each(row);
      } catch (error) {
        if (error instanceof json.Refused) { error.message = role + ": line " + line + " " + error.message; }
        throw error;
      }
      start = end + 1;
      line++;
    }
    return header;
  }

  var REQUEST_COLUMNS = ["repeat", "trial", "row", "due_ns-previous_due_ns", "dialled_ns-due_ns", "connected_ns-dialled_ns",
    "sent_ns-due_ns", "first_ns-due_ns", "last_ns-first_ns", "end_ns-due_ns", "prompt_asked", "prompt_tokens", "cached_tokens",
    "output_asked", "output_tokens", "first_tokens", "events", "uncertainty_ns", "status"];
  var FIELDS = ["repeat", "trial", "row", "due", "dialled", "connected", "sent", "first", "last", "end", "promptAsked",
    "promptTokens", "cached", "outputAsked", "outputTokens", "firstTokens", "events", "uncertainty", "status"];
  var REQUEST_NULLABLE = [0, 0, 0, 0, 1, 1, 1, 1, 1, 0, 0, 1, 1, 0, 1, 1, 0, 0, 0];

  /* Requests as columns, by the names of FIELDS; all times count from the start of the trial. NaN was not seen. */
  function requests(bytes) {
    var count = Math.max(lineFeeds(bytes) - 1, 0), found = { length: count }, i = 0, repeat, trial, previous = 0;
    FIELDS.forEach(function (name) { found[name] = new Float64Array(count); });
    var plus = function (base, difference) { return difference === difference ? exact(base + difference) : NaN; };
    var header = table(bytes, REQUEST_COLUMNS, REQUEST_NULLABLE, "requests", function (row) {
      if (row[0] !== repeat || row[1] !== trial) { repeat = row[0]; trial = row[1]; previous = 0; }
      var due = previous = exact(previous + row[3]);
      if (!(row[18] >= 0 && row[18] <= 8)) { refuse("has an unknown status"); }
      if (row[8] === row[8] && row[7] !== row[7]) { refuse("has a last token without a first"); }
      if (row[5] === row[5] && row[4] !== row[4]) { refuse("was connected without being dialled"); }
      for (var column = 0; column < row.length; column++) { found[FIELDS[column]][i] = row[column]; }
      found.due[i] = due;
      found.dialled[i] = plus(due, row[4]);
      found.connected[i] = plus(found.dialled[i], row[5]);
      found.sent[i] = plus(due, row[6]);
      found.first[i] = plus(due, row[7]);
      found.last[i] = plus(found.first[i], row[8]);
      found.end[i] = exact(due + row[9]);
      i++;
    });
    expect("requests: header", header, { format: "tokenwatt/requests/2", columns: REQUEST_COLUMNS });
    return found;
  }

  /* The lines of a journal whose chain is whole and ends at `head`. */
  function journal(bytes, head) {
    if (bytes[bytes.length - 1] !== 10) { refuse("journal: the last line is cut"); }
    if (lineFeeds(bytes) > MAX_LINES) { refuse("journal: has more lines than are read"); }
    var lines = [], prev = "0".repeat(64), start = 0;
    while (start < bytes.length) {
      var end = bytes.indexOf(10, start), raw = bytes.subarray(start, end), place = "journal: line " + (lines.length + 1) + " ";
      var line = json.load(raw, MAX_LINE_BYTES);
      if (line === null || typeof line !== "object" || Object.keys(line).sort().join() !== "at,data,event,prev,seq"
        || typeof line.at !== "string" || !EVENTS.includes(line.event) || typeof line.data !== "object"
        || line.data === null || Array.isArray(line.data)) {
        refuse(place + "is no journal line");
      }
      if (line.seq !== lines.length || line.prev !== prev || json.canonical(line) !== new TextDecoder().decode(raw)) {
        refuse(place + "breaks the chain: a line was dropped, added or changed");
      }
      lines.push(line);
      prev = json.sha256(raw);
      start = end + 1;
    }
    if (prev !== head) { refuse("journal: ends at " + prev + ", signed was " + show(head)); }
    return lines;
  }

  var POWER_COLUMNS = ["at_ns-previous_at_ns", "board", "power_mw", "energy_mj", "instant_mw", "dram_ppm", "sm_mhz", "memory_mhz",
    "reasons", "celsius"];
  var POWER_NULLABLE = [0, 0, 1, 1, 1, 1, 1, 1, 1, 1];

  /* What an instrument read: {scope, periodNs, averagingNs, boards, samples}; of each board {at, power, energy}. */
  function power(bytes) {
    var at = 0, samples = [], start = bytes.indexOf(10);
    var header = json.load(bytes.subarray(0, start < 0 ? bytes.length : start), MAX_LINE_BYTES);
    if (header.format !== "tokenwatt/power/2") { refuse("power: has another format"); }
    if (!Array.isArray(header.boards) || header.boards.length > MAX_BOARDS) { refuse("power: has no list of boards"); }
    var averaging = header.averaging_ns === null ? null : integer(header, "averaging_ns", 0);
    header.boards.forEach(function () { samples.push({ at: [], power: [], energy: [] }); });
    table(bytes, POWER_COLUMNS, POWER_NULLABLE, "power", function (row) {
      var board = samples[row[1]];
      if (board === undefined) { refuse("is of a board that the header does not name"); }
      if (row[0] < 0) { refuse("goes back in time"); }
      at = exact(at + row[0]);
      board.at.push(at);
      board.power.push(row[2]);
      board.energy.push(row[3]);
    });
    return {
      scope: header.scope, periodNs: integer(header, "period_ns", 0), averagingNs: averaging, boards: header.boards,
      samples: samples
    };
  }

  scope.TokenwattFiles = {
    signedBytes: signedBytes, expectRun: expectRun, pae: pae, isSmallOrder: isSmallOrder, checkSignature: checkSignature,
    lacking: lacking, configurationId: configurationId, entries: entries, piece: piece, requests: requests, journal: journal,
    power: power, integer: integer, expect: expect, show: show, exact: exact
  };
})(globalThis);
