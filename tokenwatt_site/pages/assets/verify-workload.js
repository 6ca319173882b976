/* The rows of a workload, drawn again from its definition, as tokenwatt_site/draws.py, workload.py and windows.py draw them.
   What is shipped with the site (normal quantiles, chosen windows) is held against the hash that the setup names: with
   other tables another hash comes out. Knows no page. */
(function (scope) {
  "use strict";

  var json = scope.TokenwattJson, refuse = json.refuse, files = scope.TokenwattFiles;
  var GENERATOR = "tokenwatt/workload/1", CELLS = 1024, GAP_UNIT = 1048576n, LENGTH_UNIT = 65536n;
  var HIGHEST_URPS = 100000000000, MAX_ROWS = 50000, MAX_RUN_ROWS = 500000, LONG_RUN_SCORED = 200000, LONG_RUN_EDGE = 2000, WINDOW_DRAW = 1;

  /* ---------- ln and exp in 2^-BITS: far beyond the 50 digits of Python's, so both round to the same integers ---------- */
  var BITS = 224n, ONE = 1n << BITS;

  /* 2 artanh(above / below) = ln((below + above) / (below - above)). */
  function artanh2(above, below) {
    var t = (above << BITS) / below, square = t * t >> BITS, sum = 0n;
    for (var n = 1n; t !== 0n; n += 2n) {
      sum += t / n;
      t = t * square >> BITS;
    }
    return 2n * sum;
  }

  var LN2 = artanh2(1n, 3n);

  /* ln of a quotient of at least 1. */
  function ln(above, below) {
    var twos = 0n;
    while (above >= 2n * below) { below *= 2n; twos++; }
    return twos * LN2 + artanh2(above - below, above + below);
  }

  function exp(x) {
    var halved = x >> 8n, term = ONE, sum = ONE;
    for (var n = 1n; term !== 0n && term !== -1n; n++) {
      term = (term * halved >> BITS) / n;
      sum += term;
    }
    for (var i = 0; i < 8; i++) { sum = sum * sum >> BITS; }
    return sum;
  }

  function rounded(value) { return value + (ONE >> 1n) >> BITS; }

  /* ---------- tables ---------- */

  function lengthTable(lengths, normalQuantiles) {
    if (lengths.kind === "fixed") {
      return new Array(CELLS + 1).fill(BigInt(files.integer(lengths, "tokens", 1)) * LENGTH_UNIT);
    }
    if (lengths.kind !== "lognormal") { refuse("has lengths of a kind that is not drawn: " + files.show(lengths.kind)); }
    var median = BigInt(files.integer(lengths, "median", 1)), p90 = BigInt(files.integer(lengths, "p90", lengths.median + 1));
    var least = BigInt(files.integer(lengths, "min", 1)) << BITS, most = BigInt(files.integer(lengths, "max", 1)) << BITS;
    var sigma = ln(p90, median) * 1000000n / 1281552n;
    return normalQuantiles.map(function (quantile) {
      var tokens = median * exp(sigma * BigInt(quantile) >> 40n);
      tokens = tokens < least ? least : tokens > most ? most : tokens;
      return rounded(tokens * LENGTH_UNIT);
    });
  }

  function gapTable() {
    var made = [];
    for (var i = 0n; i <= CELLS; i++) { made.push(rounded(ln(2n * BigInt(CELLS), BigInt(CELLS) + i) * GAP_UNIT)); }
    return made;
  }

  function listDigest(list) { return json.sha256(json.encode("[" + list.join(",") + "]")); }

  /* ---------- draws ---------- */
  var LN2_FINE = rounded(LN2 << 40n);

  function interpolate(table, word) {
    var cell = Number(word >> 54n), low = table[cell];
    return low + ((table[cell + 1] - low) * (word >> 22n & 0xffffffffn) >> 32n);
  }

  function exponential(gaps, word) {
    var u = word + 1n;
    if (u === 1n << 64n) { return 0; }
    var k = BigInt(64 - u.toString(2).length);
    return Number(k * LN2_FINE / GAP_UNIT + interpolate(gaps, (u << k) - (1n << 63n) << 1n));
  }

  function tokens(table, word) { return Number((interpolate(table, word) + (LENGTH_UNIT >> 1n)) / LENGTH_UNIT); }

  /* The workload of a setup, its hash checked. `data` is what the site ships: see pages/verification.py. */
  function workload(setup, data) {
    var named = setup.workload, definition = {
      generator: GENERATOR, name: named.name, version: named.version, input_tokens: setup.input_tokens,
      output_tokens: setup.output_tokens, arrival: "poisson"
    };
    var made = { name: named.name, version: named.version, hash: named.hash, conversation: setup.conversation || null };
    made.gaps = gapTable();
    made.inputs = lengthTable(setup.input_tokens, data.normalQuantiles);
    made.outputs = lengthTable(setup.output_tokens, data.normalQuantiles);
    definition.input_table = listDigest(made.inputs);
    definition.output_table = listDigest(made.outputs);
    definition.gap_table = listDigest(made.gaps);
    if (made.conversation) { definition.conversation = setup.conversation; }
    var hash = json.sha256(json.encode(json.canonical(definition)));
    if (hash !== named.hash) { refuse("setup.workload.hash is not that of the workload's definition, " + hash); }
    var known = data.workloads[named.name];
    if (known !== undefined && known !== hash) { refuse("the workload " + named.name + " has lengths of its own"); }
    return made;
  }

  /* Rows as columns {gap, nIn, nOut, stream}, as many as `count` from `first` on in draw `number`. */
  function rows(drawn, number, first, count) {
    var made = {
      gap: new Float64Array(count), nIn: new Float64Array(count), nOut: new Float64Array(count), stream: new Float64Array(count)
    };
    var head = GENERATOR + "|" + drawn.name + "|" + drawn.version + "|" + number + "|";
    for (var i = 0; i < count; i++) {
      var words = json.sha256Words(json.encode(head + (first + i)));
      made.gap[i] = exponential(drawn.gaps, BigInt(words[0]) << 32n | BigInt(words[1]));
      made.nIn[i] = tokens(drawn.inputs, BigInt(words[2]) << 32n | BigInt(words[3]));
      made.nOut[i] = tokens(drawn.outputs, BigInt(words[4]) << 32n | BigInt(words[5]));
      made.stream[i] = i;
    }
    return made;
  }

  /* Rows as turns of conversations: prompts begin with what was said before. */
  function turns(made, conversation) {
    var spread = conversation.spread, block = spread * conversation.turns, said = new Map();
    for (var i = 0; i < made.gap.length; i++) {
      var stream = Math.floor(i / block) * spread + i % spread;
      var before = said.has(stream) ? said.get(stream) : conversation.shared_prefix_tokens;
      said.set(stream, before + made.nIn[i] + made.nOut[i]);
      made.nIn[i] += before;
      made.stream[i] = stream;
    }
    return conversation.shared_prefix_tokens;
  }

  function realisation(number, made, sharedPrefix, band, highestUrps) {
    var elapsed = new Float64Array(made.gap.length), sum = 0, from = band.lead_in, to = band.lead_in + band.scored;
    var askedIn = 0, askedOut = 0;
    for (var i = 0; i < elapsed.length; i++) { elapsed[i] = files.exact(sum += made.gap[i]); }
    for (i = from; i < to; i++) { askedIn += made.nIn[i]; askedOut += made.nOut[i]; }
    return {
      number: number, gap: made.gap, elapsed: elapsed, nIn: made.nIn, nOut: made.nOut, stream: made.stream, scored: [from, to],
      sharedPrefix: sharedPrefix, highestUrps: highestUrps, meanIn: askedIn / band.scored, meanOut: askedOut / band.scored
    };
  }

  function realisationHash(one) {
    var told = Array.from(one.gap, function (gap, i) {
      return "[" + gap + "," + one.nIn[i] + "," + one.nOut[i] + "," + one.stream[i] + "]";
    });
    return json.sha256(json.encode(
      "{\"number\":" + one.number + ",\"rows\":[" + told.join(",") + "],\"shared_prefix\":" + one.sharedPrefix + "}"
    ));
  }

  /* For each row how many tokens its prompt begins with that an earlier one had. */
  function sentBefore(one) {
    var longest = new Map();
    return Array.from(one.nIn, function (length, i) {
      var stream = one.stream[i], known = longest.get(stream) || 0;
      longest.set(stream, Math.max(length, known));
      return Math.min(length, Math.max(i ? one.sharedPrefix : 0, known));
    });
  }

  function chosen(drawn, spec, data) {
    var found = data.chosen[drawn.name], protocol = spec.protocol;
    if (found === undefined || found.workload_hash !== drawn.hash) {
      refuse("the spec gives no rows, and " + drawn.name + " has no chosen windows");
    }
    var tpot = found.slo.filter(function (o) { return o.metric === "tpot"; });
    var limit = Math.min.apply(null, tpot.map(function (o) { return o.limit_ms; }));
    if (!spec.setup.slo.some(function (o) { return o.metric === "tpot" && o.limit_ms <= limit; })) {
      refuse("the chosen windows of " + drawn.name + " are for a TPOT limit of " + limit + " ms or less");
    }
    var last = found.bands[found.bands.length - 1], highest = highestUrps(last);
    found.bands.forEach(function (band) {
      if (protocol.repeats > band.first_rows.length) { refuse("has more repeats than there are chosen windows"); }
    });
    if (protocol.start_rate * 1e6 > highest) { refuse("protocol.start_rate is above the rates that windows were chosen for"); }
    return found.bands;
  }

  function highestUrps(band) { return Math.min(band.high_urps + Math.floor(band.high_urps / 10), HIGHEST_URPS); }

  /* All that a spec may measure on: {workload, bands, realisation(repeat, band)}. */
  function windows(spec, data) {
    var drawn = workload(spec.setup, data), protocol = spec.protocol, kept = new Map(), bands;
    if (protocol.scored === null || protocol.scored === undefined) {
      bands = chosen(drawn, spec, data);
    } else {
      var own = { low_urps: 0, high_urps: HIGHEST_URPS + 1, first_rows: [] };
      ["lead_in", "scored", "tail"].forEach(function (name) {
        own[name] = files.integer(protocol, name, name === "lead_in" ? 0 : 1);
      });
      if (own.lead_in + own.scored + own.tail > Math.min(MAX_ROWS, MAX_RUN_ROWS / protocol.repeats)) { refuse("protocol has more rows than are drawn"); }
      bands = [own];
    }
    return {
      workload: drawn, bands: bands,
      bandFrom: function (low) { return bands.find(function (band) { return band.low_urps === low; }); },
      realisation: function (repeat, band) {
        var key = repeat + "/" + band.low_urps;
        if (!kept.has(key)) {
          var count = band.lead_in + band.scored + band.tail, made, shared = 0, highest = null;
          if (band.first_rows.length) {
            if (repeat > band.first_rows.length) { refuse("has more repeats than there are chosen windows"); }
            made = rows(drawn, WINDOW_DRAW, band.first_rows[repeat - 1], count);
            highest = highestUrps(band);
          } else {
            made = rows(drawn, repeat, 0, count);
            if (drawn.conversation) { shared = turns(made, drawn.conversation); }
          }
          kept.set(key, realisation(repeat, made, shared, band, highest));
        }
        return kept.get(key);
      }
    };
  }

  /* What stands for the long run, drawn in parts: call it until it returns the realisation. */
  function longRun(drawn) {
    var band = { lead_in: LONG_RUN_EDGE, scored: LONG_RUN_SCORED, tail: LONG_RUN_EDGE }, count = LONG_RUN_SCORED + 2 * LONG_RUN_EDGE;
    var made = { gap: new Float64Array(count), nIn: new Float64Array(count), nOut: new Float64Array(count), stream: new Float64Array(count) };
    var at = 0, STEP = 12000;
    return function () {
      var part = rows(drawn, 0, at, Math.min(STEP, count - at));
      ["gap", "nIn", "nOut"].forEach(function (name) { made[name].set(part[name], at); });
      for (var i = 0; i < part.gap.length; i++) { made.stream[at + i] = at + i; }
      at += part.gap.length;
      if (at < count) { return null; }
      return realisation(0, made, drawn.conversation ? turns(made, drawn.conversation) : 0, band, null);
    };
  }

  scope.TokenwattWorkload = {
    lengthTable: lengthTable, gapTable: gapTable, workload: workload, rows: rows, windows: windows, longRun: longRun,
    realisationHash: realisationHash, sentBefore: sentBefore
  };
})(globalThis);
