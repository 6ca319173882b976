/* Checks 7 to 9 of tokenwatt_site/trust/verify.py, as far as the page says that they are done here: journal, trials, requests.
   And each trial judged, as goodput.py and validity.py do. Requests are columns (verify-files.js); a list of them is a list
   of their places. Knows no page. */
(function (scope) {
  "use strict";

  var json = scope.TokenwattJson, refuse = json.refuse, files = scope.TokenwattFiles, integer = files.integer;
  var draws = scope.TokenwattWorkload, engine = scope.TokenwattEngine;
  var MAX_TRIALS = 2000, MAX_PLANNED_ROWS = 4000000, CLOCK_SLACK_NS = 1000000;
  var MAX_LAG_NS = 1000000, MAX_CLOCK_STEP_NS = 1000000, MAX_CLOCK_OFFSET_NS = 1000000, MIN_WINDOW_NS = 120000000000;
  var MAX_WORKERS = 1024;
  var OK = 0, CENSORED = 8, SIMULATED_ENGINE = "tokenwatt-simulated";
  var FAILURES = [null, "http_error", "stream_error", "disconnected", "timed_out", "no_usage", "short_output", "not_sent", null];

  function known(value) { return value === value; }

  function at(line, what) { refuse("journal line " + line.seq + " (" + line.event + ") " + what); }

  /* Without what is null: a field that a file leaves out is null to who reads it. */
  function lean(value) {
    if (value === null || typeof value !== "object") { return value; }
    if (Array.isArray(value)) { return value.map(lean); }
    var made = Object.create(null);
    Object.keys(value).forEach(function (key) { if (value[key] !== null) { made[key] = lean(value[key]); } });
    return made;
  }

  /* ---------- (7) the journal ---------- */

  function checkJournal(document, journal, windows, data) {
    var opens = journal.filter(function (line) { return line.event === "open"; });
    if (opens.length !== 1 || opens[0] !== journal[0]) { refuse("journal does not begin with its only open line"); }
    var told = journal[0].data;
    files.expect("journal line 0: configuration", told.configuration, document.configuration);
    var given = told.publisher_nonce === undefined ? null : told.publisher_nonce;
    files.expect("journal line 0: seed_rule", told.seed_rule, given === null ? data.seedRule : data.publishedSeedRule);
    if (told.keyid !== undefined) { files.expect("journal line 0: keyid", told.keyid, document.signatures[0].keyid); }
    files.expect("journal line 0: spec", lean(told.spec), lean(document.spec));
    json.unhex(told.nonce, 32, "journal line 0: nonce");
    if (given !== null && !(typeof given === "string" && /^([0-9a-f]{2}){16,64}$/.test(given))) {
      refuse("journal line 0: publisher_nonce is not 32 to 128 hexadecimal digits");
    }
    var planned = 0, starts = journal.filter(function (line) { return line.event === "trial_start"; });
    starts.forEach(function (line) {
      var band = bandOf(windows, line);
      planned += band.lead_in + band.scored + band.tail;
    });
    if (starts.length > MAX_TRIALS || planned > MAX_PLANNED_ROWS) { refuse("journal has more trials than are read"); }
    var repeats = integer(document.spec.protocol, "repeats", 1, 100), measured = measuredRepeats(journal);
    var ended = endedRepeats(journal, repeats);
    if (document.status === "complete"
      && (journal[journal.length - 1].event !== "close" || measured.size !== repeats || ended.size !== repeats)) {
      refuse("says complete, which the journal does not show");
    }
    journal.forEach(function (line) {
      if (line.event === "launch" || line.event === "trial_end") { replicasOf(line, replicaCount(document.spec)); }
    });
    checkLaunches(journal, replicaCount(document.spec));
    checkConditions(document, journal);
    var hashes = new Map();
    starts.forEach(function (line) {
      var band = bandOf(windows, line), repeat = line.data.repeat, key = repeat + "/" + band.low_urps;
      if (!hashes.has(key)) { hashes.set(key, draws.realisationHash(windows.realisation(repeat, band))); }
      if (line.data.realisation !== repeat || line.data.realisation_hash !== hashes.get(key)) {
        at(line, "names rows that are not the draw for repeat " + repeat);
      }
    });
  }

  function bandOf(windows, line) {
    var band = windows.bandFrom(line.data.band);
    if (band === undefined) { at(line, "is of a band where none begins"); }
    return band;
  }

  /* The repeats of which a trial ended. Trials are new, and each ends before anything else does. */
  function measuredRepeats(journal) {
    var started = 0, measured = new Set(), running = null;
    journal.forEach(function (line) {
      var repeat = line.data.repeat, number = line.data.trial;
      if (line.event === "trial_end") {
        if (!running || running.data.repeat !== repeat || running.data.trial !== number) { at(line, "ends a trial that is not running"); }
        measured.add(repeat);
        running = null;
      } else if (running && line.event !== "interrupted" && line.event !== "launch") {
        at(line, "follows the start of a trial that has no end");
      } else if (line.event === "trial_start") {
        if (!Number.isInteger(repeat) || number !== started + 1) { at(line, "starts a trial that is not the next"); }
        running = line;
        started++;
      } else {
        running = null;
      }
    });
    return measured;
  }

  function endedRepeats(journal, repeats) {
    var ended = new Set(), launched = null;
    journal.forEach(function (line) {
      var repeat = line.data.repeat;
      if (line.event === "launch") {
        if (!Number.isInteger(repeat) || repeat < 1 || repeat > repeats) { at(line, "is for a repeat that is not in the plan"); }
        launched = repeat;
      } else if (line.event === "interrupted") {
        launched = null;
      } else if (["idle", "trial_start", "repeat_end"].includes(line.event)) {
        if (launched === null || repeat !== launched) { at(line, "is of another repeat than was launched"); }
        if (line.event === "repeat_end") { ended.add(launched); launched = null; }
      }
    });
    return ended;
  }

  /* How many addresses a spec asks apart. */
  function replicaCount(spec) { return spec.endpoint.urls ? spec.endpoint.urls.length : 1; }

  /* What the replicas said at a launch, or after a trial, where null did not answer; empty where one engine is asked. */
  function replicasOf(line, count) {
    var told = line.data.replicas, launch = line.event === "launch";
    if (count === 1) {
      if (told !== undefined) { at(line, "tells of replicas, and one engine is asked"); }
      return [];
    }
    var text = function (value) { return value === null || typeof value === "string"; };
    var whole = Array.isArray(told) && told.length === count && told.every(function (one) {
      if (one === null) { return !launch; }
      return typeof one === "object" && text(one.engine) && text(one.version) && text(one.build) && text(one.started)
        && Array.isArray(one.models) && one.models.every(function (name) { return typeof name === "string"; });
    });
    if (!whole) { at(line, "does not tell of the " + count + " replicas that are asked"); }
    return told;
  }

  /* Whether a replica was not there any more after a trial, or was another than at the launch; what is not told says nothing. */
  function hasChanged(before, after) {
    return before.some(function (was, i) {
      var now = after[i], other = function (name) { return was[name] !== null && now[name] !== null && was[name] !== now[name]; };
      return now === null || ["engine", "version", "build", "started"].some(other)
        || JSON.stringify(was.models) !== JSON.stringify(now.models);
    });
  }

  /* No two repeats are of one engine process, where it tells its start. */
  function checkLaunches(journal, count) {
    var last = new Map(), repeatOf = new Map();
    journal.forEach(function (line) { if (line.event === "launch") { last.set(line.data.repeat, line); } });
    last.forEach(function (line, repeat) {
      var told = replicasOf(line, count).map(function (one) { return one.started; });
      (count === 1 ? [line.data.engine_started] : told).forEach(function (started, place) {
        if (started === null || started === undefined) { return; }
        var process = place + "/" + started;
        if (repeatOf.has(process)) { at(line, "is of the same engine process as repeat " + repeatOf.get(process)); }
        repeatOf.set(process, repeat);
      });
    });
  }

  /* What the run says of engine, stamps, read-back and self-test stands in the journal; nothing is added to token ids. */
  function checkConditions(document, journal) {
    var launches = journal.filter(function (line) { return line.event === "launch"; }), told = document.conditions;
    if (!launches.length) { refuse("journal tells of no launch"); }
    var endpoint = document.spec.endpoint, kind = endpoint.prompt || (endpoint.api === "chat" ? "text" : "ids");
    launches.forEach(function (line) {
      if (kind === "ids" && line.data.chat_overhead !== 0) { at(line, "adds tokens to prompts of token ids, which go in as they are"); }
    });
    var simulated = launches.some(function (line) { return line.data.engine === SIMULATED_ENGINE; });
    var ends = journal.filter(function (line) { return line.event === "trial_end"; });
    var kernel = ends.length > 0 && ends.every(function (line) { return line.data.stamps === "kernel"; });
    var tests = [].concat.apply([], Array.from(launchesOf(journal).values())).map(function (line) {
      integer(line.data.self_test, "events_per_s", 0);
      return line.data.self_test;
    });
    var least = tests.reduce(function (a, b) { return b.events_per_s < a.events_per_s ? b : a; });
    files.expect("simulated", document.simulated, simulated);
    files.expect("conditions.stamps", told.stamps, kernel ? "kernel" : "user space");
    files.expect("conditions.read_back", lean(told.read_back), lean(launches[launches.length - 1].data.read_back));
    files.expect("conditions.self_test", lean(told.self_test), lean(least));
    var workers = ends.reduce(function (most, line) { return Math.max(most, offsetBounds(line).length); }, 0);
    files.expect("conditions.workers", told.workers || null, workers || null);
  }

  /* How far the clocks of several client processes may have been off; empty where one sent alone. */
  function offsetBounds(line) {
    var found = line.data.offset_bounds_ns;
    if (found === undefined) { return []; }
    var plain = Array.isArray(found) && found.every(function (bound) { return Number.isInteger(bound) && bound >= 0; });
    if (!plain || found.length === 1 || found.length > MAX_WORKERS) { at(line, "tells no bounds of clocks"); }
    return found;
  }

  function lost(line) {
    var found = line.data.lost;
    if (found !== undefined && found !== null && typeof found !== "string") { at(line, "does not say in words who was lost"); }
    return typeof found === "string";
  }

  /* ---------- (8) trials ---------- */

  /* By repeat the launches that count: the last, and those that it goes on from. */
  function launchesOf(journal) {
    var found = new Map();
    journal.forEach(function (line) {
      if (line.event !== "launch") { return; }
      var before = line.data.continues === true && found.get(line.data.repeat) || [];
      found.set(line.data.repeat, before.concat([line]));
    });
    return found;
  }

  function readTrials(spec, journal, records, windows) {
    var grouped = new Map(), ends = new Map(), launches = launchesOf(journal), found = [], i, key, list;
    for (i = 0; i < records.length; i++) {
      key = records.repeat[i] + "/" + records.trial[i];
      list = grouped.get(key);
      if (list === undefined) { grouped.set(key, [i]); } else { list.push(i); }
    }
    journal.forEach(function (line) {
      if (line.event === "trial_end") { ends.set(line.data.repeat + "/" + line.data.trial, line); }
    });
    journal.forEach(function (line) {
      var name = line.data.repeat + "/" + line.data.trial, end = ends.get(name);
      if (line.event !== "trial_start" || end === undefined) { return; }
      var band = bandOf(windows, line), own = launches.get(line.data.repeat);
      if (own === undefined) { at(line, "is of a repeat that has no launch"); }
      var before = own.filter(function (launch) { return launch.seq < line.seq; });
      var launch = before.length ? before[before.length - 1] : own[own.length - 1], test = launch.data.self_test;
      var drawn = windows.realisation(line.data.repeat, band), rate = integer(line.data, "rate_urps", 1);
      var count = replicaCount(spec), replicas = replicasOf(launch, count), after = replicasOf(end, count);
      var trial = {
        repeat: integer(line.data, "repeat", 0), number: integer(line.data, "trial", 0), rateUrps: rate, started: line.at,
        epochNs: integer(end.data, "epoch_ns", 0), alive: end.data.engine_alive === true && !hasChanged(replicas, after), abandoned: line.seq < own[0].seq,
        overhead: integer(launch.data, "chat_overhead", 0), cpuPpm: integer(end.data, "client_cpu_ppm", 0),
        clockStepNs: integer(end.data, "clock_step_ns", 0), lost: lost(end), offsetBounds: offsetBounds(end),
        held: { events: integer(test, "events_per_s", 0), requests: integer(test, "requests_urps", 0) },
        band: band, drawn: drawn, due: engine.dueNs(drawn.elapsed, rate), records: grouped.get(name) || []
      };
      grouped.delete(name);
      trial.scored = trial.records.slice(drawn.scored[0], drawn.scored[1]);
      trial.window = [trial.due[drawn.scored[0]], trial.due[drawn.scored[1] - 1]];
      trial.scoredEndNs = trial.scored.reduce(function (most, i) { return Math.max(most, records.end[i]); }, 0);
      checkPlan(trial, records);
      if (trial.alive && !trial.lost && decide(judgements(spec.setup.slo, trial, records)) === "UNDECIDED") {
        refuse(nameOf(trial) + " stops before its verdict was certain, and the engine lived");
      }
      found.push(trial);
    });
    if (grouped.size) { refuse("requests belong to trials that the journal does not name"); }
    return found;
  }

  function nameOf(trial) { return "repeat " + trial.repeat + ", trial " + trial.number; }

  function checkPlan(trial, records) {
    var drawn = trial.drawn;
    trial.records.forEach(function (i, position) {
      if (position >= trial.due.length || records.row[i] !== position || records.due[i] !== trial.due[position]
        || records.promptAsked[i] !== drawn.nIn[position] || records.outputAsked[i] !== drawn.nOut[position]) {
        refuse(nameOf(trial) + ": row " + position + " is not the one that was planned");
      }
    });
    var wanted = trial.due.findIndex(function (due) { return due >= trial.scoredEndNs; });
    if (trial.records.length < (wanted < 0 ? trial.due.length : wanted)) {
      refuse(nameOf(trial) + " lacks rows that came due before it ended");
    }
  }

  /* ---------- (9) what cannot have happened ---------- */

  function checkRequests(r) {
    for (var i = 0; i < r.length; i++) {
      var fault = faultOf(r, i);
      if (fault) { refuse("request " + i + " (repeat " + r.repeat[i] + ", trial " + r.trial[i] + ") " + fault); }
    }
  }

  function faultOf(r, i) {
    var due = r.due[i], sent = r.sent[i], first = r.first[i], last = r.last[i], end = r.end[i], dialled = r.dialled[i];
    if (dialled < due - CLOCK_SLACK_NS) { return "was dialled for before it was due"; }
    if (r.connected[i] < dialled) { return "was connected before it was dialled for"; }
    if (due < 0 || r.uncertainty[i] < 0) { return "has a negative time"; }
    if (sent < due - CLOCK_SLACK_NS) { return "was sent before it was due"; }
    if (end < sent - CLOCK_SLACK_NS) { return "ended before it was sent"; }
    if (known(first)) {
      if (!known(sent) || first < sent - CLOCK_SLACK_NS) { return "was answered before it was sent"; }
      if (!known(last) || last < first) { return "had its last token before its first"; }
      if (end < last - CLOCK_SLACK_NS) { return "ended before its last token"; }
    }
    var prompt = r.promptTokens[i], output = r.outputTokens[i], complete = r.status[i] === OK;
    if (r.events[i] < 0 || prompt < 0 || r.cached[i] < 0 || output < 0 || r.firstTokens[i] < 0) { return "has a negative count"; }
    if ((known(prompt) || complete) && (r.cached[i] || 0) > (prompt || 0)) { return "had more cached prompt tokens than prompt tokens"; }
    if (r.firstTokens[i] > output) { return "had more tokens in its first event than in all"; }
    if (complete && (!known(sent) || !known(first) || !known(last) || (output || 0) < r.outputAsked[i])) {
      return "is called complete, and lacks a time or tokens";
    }
    return null;
  }

  function checkEpochs(trials, r) {
    trials.slice(1).forEach(function (trial, index) {
      var before = trials[index], ended = before.records.reduce(function (most, i) { return Math.max(most, r.end[i]); }, 1);
      if (trial.epochNs < before.epochNs + ended) { refuse(nameOf(trial) + " begins before the one before it ended"); }
    });
  }

  /* ---------- judging ---------- */

  /* The nearest integer to a quotient, of two that are as near the even one. */
  function nearest(dividend, divisor) {
    var below = Math.floor(dividend / divisor), twice = 2 * (dividend - below * divisor);
    return twice > divisor || (twice === divisor && below % 2 !== 0) ? below + 1 : below;
  }

  /* NaN where it is undefined. */
  var METRIC = {
    ttft: function (r, i) { return r.first[i] - r.due[i]; },
    ttft_from_send: function (r, i) { return r.first[i] - r.sent[i]; },
    tpot: function (r, i) {
      var steps = r.outputTokens[i] - r.firstTokens[i], span = r.last[i] - r.first[i];
      return steps > 0 && known(span) ? nearest(span, steps) : NaN;
    },
    e2e: function (r, i) { return r.status[i] === OK ? r.end[i] - r.due[i] : NaN; }
  };

  function limitNs(objective) { return nearest(objective.limit_ms * 1000000, 1); }

  function sorted(values) { return Float64Array.from(values).sort(); }

  /* The q quantile of n values of which `ascending` are the lowest; null: beyond what is known. */
  function atQuantile(ascending, n, q) {
    var position = Math.max(engine.rank(q, n), 1) - 1;
    return position < ascending.length ? ascending[position] : null;
  }

  /* The values of a metric over those that ended well, ascending. */
  function values(metric, r, scored) {
    var of = METRIC[metric];
    return sorted(scored.filter(function (i) { return r.status[i] === OK; }).map(function (i) { return of(r, i); }).filter(known));
  }

  function least(objective, r, i) {
    var first = r.first[i];
    if (objective.metric === "e2e" || !known(first)) { return objective.metric === "tpot" ? 0 : r.end[i] - r.due[i]; }
    if (objective.metric === "ttft") { return first - r.due[i]; }
    var steps = r.outputAsked[i] - (r.firstTokens[i] || 1), last = known(r.last[i]) ? r.last[i] : first;
    return steps > 0 ? Math.floor((last - first) / steps) : 0;
  }

  function judge(objective, r, scored, pending) {
    var limit = limitNs(objective), of = METRIC[objective.metric], ended = [], failed = 0, without = 0, late = 0, still = 0;
    scored.forEach(function (i) {
      if (r.status[i] === CENSORED) {
        still++;
        late += least(objective, r, i) > limit ? 1 : 0;
      } else if (r.status[i] !== OK) {
        failed++;
      } else if (known(of(r, i))) {
        ended.push(of(r, i));
      } else {
        without++;
      }
    });
    var undecided = still - late + pending, n = ended.length + failed + still + pending;
    var misses = failed + late + ended.filter(function (value) { return value > limit; }).length;
    var allowed = n - engine.rank(objective.quantile, n);
    return {
      objective: objective, n: n, undefined: without, misses: misses, allowed: allowed,
      valueNs: undecided === 0 ? atQuantile(sorted(ended), n, objective.quantile) : null,
      outcome: misses > allowed ? "FAIL" : undecided === 0 ? "PASS" : "UNDECIDED"
    };
  }

  function judgements(slo, trial, r) {
    var pending = trial.drawn.scored[1] - trial.drawn.scored[0] - trial.scored.length;
    return slo.map(function (objective) { return judge(objective, r, trial.scored, pending); });
  }

  function decide(judged) {
    var outcomes = judged.map(function (one) { return one.outcome; });
    return outcomes.includes("FAIL") ? "FAIL" : outcomes.includes("UNDECIDED") ? "UNDECIDED" : "PASS";
  }

  /* Whether one request meets every objective; an undefined metric is no miss. */
  function meetsAll(slo, r, i) {
    return r.status[i] === OK && slo.every(function (objective) { return !(METRIC[objective.metric](r, i) > limitNs(objective)); });
  }

  /* ---------- validity ---------- */

  function p99(list) { return sorted(list)[Math.max(engine.rank(0.99, list.length), 1) - 1]; }

  function lagNs(r, i) { return (known(r.sent[i]) ? r.sent[i] : r.end[i]) - r.due[i]; }

  /* The p99 uncertainty of the stamps of first tokens; null: there are none. */
  function stampNs(trial, r) {
    var stamps = trial.records.filter(function (i) { return known(r.first[i]); }).map(function (i) { return r.uncertainty[i]; });
    return stamps.length ? p99(stamps) : null;
  }

  /* Half of what the client held, in 1e-6 requests/s; exact, since a search stops right there. */
  function highestLoadUrps(trial) {
    var mean = BigInt(trial.drawn.meanOut * 4503599627370496), shift = 4503599627370496n;
    var byEvents = BigInt(trial.held.events) * 1000000n * shift / (2n * mean), byRequests = BigInt(trial.held.requests) / 2n;
    return Number(byEvents < byRequests ? byEvents : byRequests);
  }

  /* Whether this trial is no measurement of the engine, by the limits that the method page lists. */
  function isInvalid(spec, trial, r, judged) {
    if (trial.abandoned || !trial.alive || trial.lost || trial.rateUrps > highestLoadUrps(trial)) { return true; }
    if (trial.offsetBounds.some(function (bound) { return bound > MAX_CLOCK_OFFSET_NS; })) { return true; }
    return isLate(spec, trial, r) || hasOtherTokens(trial, r) || isTooShort(spec, trial) || isUnloaded(trial, r, judged);
  }

  function isLate(spec, trial, r) {
    var limits = spec.setup.slo.filter(function (o) { return o.metric === "ttft"; }).map(limitNs);
    var share = limits.length ? Math.floor(5 * Math.min.apply(null, limits) / 1000) : MAX_LAG_NS, limit = Math.max(MAX_LAG_NS, share);
    var all = trial.records, sent = all.filter(function (i) { return known(r.sent[i]) || r.status[i] === CENSORED; }).length;
    if (1000 * sent < 995 * all.length) { return true; }
    // Every trial has requests: the first one's due time is before its end.
    if (p99(all.map(function (i) { return lagNs(r, i); })) > limit) { return true; }
    var latest = Math.max(Math.floor((trial.window[1] - trial.window[0]) / 100), limit);
    if (lagNs(r, all[all.length - 1]) > latest) { return true; }
    return trial.clockStepNs > MAX_CLOCK_STEP_NS || stampNs(trial, r) > share;
  }

  function hasOtherTokens(trial, r) {
    var shortest = trial.overhead ? trial.overhead + 1 : 0, prompted = 0, excess = 0, off = false;
    var before = draws.sentBefore(trial.drawn);
    trial.records.forEach(function (i, position) {
      var found = r.promptTokens[i], asked = Math.max(r.promptAsked[i], shortest);
      off = off || r.outputTokens[i] > r.outputAsked[i];
      if (!known(found)) { return; }
      off = off || (found > 0 && Math.abs(found - asked) > Math.max(2, Math.floor(asked / 100)));
      prompted += found;
      excess += Math.max(0, (r.cached[i] || 0) - before[position] - trial.overhead);
    });
    return off || 100 * excess > prompted;
  }

  function isTooShort(spec, trial) {
    if (spec.protocol.mode === "demo") { return false; }
    if (trial.drawn.highestUrps !== null) { return trial.rateUrps > trial.drawn.highestUrps; }
    var limits = spec.setup.slo.filter(function (o) { return o.metric === "tpot"; }).map(limitNs), lengths = spec.setup.output_tokens;
    var longest = lengths.kind === "fixed" ? lengths.tokens : lengths.max;
    var fill = limits.length ? 2 * longest * Math.min.apply(null, limits) : 0;
    return trial.window[1] - trial.window[0] < MIN_WINDOW_NS || trial.window[0] < fill;
  }

  function isUnloaded(trial, r, judged) {
    if (judged.some(function (one) { return one.n === 0; })) { return true; }
    if (decide(judged) === "FAIL") { return false; }
    if (trial.due[trial.due.length - 1] < trial.scoredEndNs) { return true; }
    var others = trial.records.filter(function (i) {
      return (r.row[i] < trial.drawn.scored[0] || r.row[i] >= trial.drawn.scored[1]) && r.status[i] !== CENSORED;
    });
    return 100 * others.filter(function (i) { return r.status[i] !== OK; }).length > others.length;
  }

  scope.TokenwattTrials = {
    OK: OK, CENSORED: CENSORED, FAILURES: FAILURES, METRIC: METRIC, known: known, checkJournal: checkJournal,
    readTrials: readTrials, launchesOf: launchesOf, replicaCount: replicaCount, replicasOf: replicasOf, checkRequests: checkRequests, checkEpochs: checkEpochs, judgements: judgements, decide: decide,
    meetsAll: meetsAll, isInvalid: isInvalid, atQuantile: atQuantile, values: values, lagNs: lagNs, stampNs: stampNs, p99: p99,
    nearest: nearest, nameOf: nameOf
  };
})(globalThis);
