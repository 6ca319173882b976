/* The engine model's replay of a run, as tokenwatt_site/engine_model/long_run.py and claims/long_run.py have it: every
   boundary that the fit states is played at its passing and its failing rate, and what follows is worked out again. Only on
   request: it takes seconds. Knows no page. */
(function (scope) {
  "use strict";

  var json = scope.TokenwattJson, refuse = json.refuse, files = scope.TokenwattFiles, integer = files.integer;
  var draws = scope.TokenwattWorkload, engine = scope.TokenwattEngine, trials = scope.TokenwattTrials, claims = scope.TokenwattClaims;
  var MAX_MODEL_BYTES = 1048576, HIGHEST_URPS = 100000000000, EDGE_PPM = 500, MIN_REPEATS = 3, MAX_RMS = 0.03;
  var MIN_SPREAD_S = 1800, MAX_DRIFT = 0.03, NEAR = [0.8, 1.25], SLOWER = 0.01;
  var MINUTE_NS = 60000000000, WINDOW_NS = 600000000000, HOUR_NS = 3600000000000, MOST_WINDOWS = 1000000;
  var CURVE_PERMILLE = [600, 700, 800, 900, 950, 980, 1000, 1020, 1050, 1100];
  var PLAYED_ROWS = 200000, MOST_BUCKETS = 8388608;

  /* ---------- the fit ---------- */

  function engineOf(fit) {
    var family = fit.family, prices = fit.prices, kv = family.kv_tokens;
    if (family.prefill !== "chunked" && family.prefill !== "first") { refuse("engine-model: an unknown kind of prefill"); }
    return {
      prices: [integer(prices, "base_ps", 1, 1e13), integer(prices, "sequence_ps", 0, 1e13),
        integer(prices, "prompt_token_ps", 0, 1e12), integer(prices, "context_token_ps", 0, 1e9)],
      limits: [integer(family, "token_budget", 1, 1048576), integer(family, "max_batch", 1, 1048576),
        kv === null || kv === undefined ? 0 : integer(family, "kv_tokens", 1, Math.pow(2, 40)), family.prefill === "first" ? 1 : 0,
        family.replicas === undefined ? 1 : integer(family, "replicas", 1, 64)]
    };
  }

  function edgesOf(pass, fail) {
    return { pass: pass, fail: fail, boundary: engine.between(pass, fail) };
  }

  /* {fits: [{leftOut, engine, boundaries: Map(repeat, edges)}], windows95: edges or null}. */
  function readFit(bytes) {
    var told = json.load(bytes[bytes.length - 1] === 10 ? bytes.subarray(0, -1) : bytes, MAX_MODEL_BYTES);
    if (told.format !== "tokenwatt/engine-model/1" || !Array.isArray(told.fits) || !told.fits.length || told.fits.length > 101) {
      refuse("engine-model: has another format");
    }
    var windows = told.windows_95;
    return {
      fits: told.fits.map(function (fit) {
        var found = new Map();
        fit.boundaries.forEach(function (one) {
          found.set(integer(one, "repeat", 0, 100),
            edgesOf(integer(one, "pass_urps", 1, HIGHEST_URPS), integer(one, "fail_urps", 1, HIGHEST_URPS)));
        });
        return { leftOut: integer(fit, "left_out", 0, 100), engine: engineOf(fit), boundaries: found };
      }),
      windows95: windows === null ? null : edgesOf(integer(windows, 0, 1, HIGHEST_URPS), integer(windows, 1, 1, HIGHEST_URPS))
    };
  }

  /* The measured boundary of each repeat that has one, with the rows that it offered last. */
  function measuredOf(run) {
    var loads = new Map();
    run.trials.forEach(function (trial) { loads.set(trial.repeat, trial.drawn); });
    return run.derived.made.repeats.filter(function (one) { return one.boundary_urps !== null; }).map(function (one) {
      return { repeat: one.repeat, urps: one.boundary_urps, load: loads.get(one.repeat) };
    });
  }

  /* Whether a fit has every boundary that a correction of these repeats needs. */
  function isWhole(fit, repeats) {
    var full = fit.fits.find(function (one) { return one.leftOut === 0; });
    return full !== undefined && [0].concat(repeats).every(function (repeat) { return full.boundaries.has(repeat); })
      && (repeats.length < 2 || repeats.every(function (repeat) {
        return fit.fits.some(function (one) { return one.leftOut === repeat && one.boundaries.has(repeat); });
      }));
  }

  function expectFits(fit, repeats) {
    var left = repeats.length > 1 ? repeats : [];
    files.expect("engine-model: fits", fit.fits.map(function (one) { return one.leftOut; }), [0].concat(left));
    fit.fits.forEach(function (one) {
      var own = one.leftOut ? [one.leftOut] : [0].concat(repeats);
      files.expect("engine-model: boundaries", Array.from(one.boundaries.keys()).sort(function (a, b) { return a - b; }), own);
    });
  }

  /* ---------- plays ---------- */

  function isAdjacent(edges) {
    var apart = edges.fail - edges.pass;
    return apart > 0 && apart <= Math.max(1, Math.floor(edges.pass * EDGE_PPM / 1000000));
  }

  function slow(prices) {
    return prices.map(function (price) { return price + Math.floor(price / 100); });
  }

  /* Spans of a length, one from every minute on, and how many of them keep the SLO; null: none is whole. */
  function kept(slo, played, load, lengthNs) {
    var begin = played.due[load.scored[0]], end = played.due[load.scored[1] - 1];
    var spans = Math.floor((end - begin - lengthNs) / MINUTE_NS) + 1;
    if (!(spans > 0 && spans <= MOST_WINDOWS)) { return null; }
    var allowed = slo.map(function () { return new Map(); });
    var sums = slo.map(function (objective) {
      var miss = engine.missed(objective, played, load.nOut), n = load.nOut.length;
      var made = { misses: new Int32Array(n + 1), n: new Int32Array(n + 1) };
      for (var i = 0; i < n; i++) {
        made.misses[i + 1] = made.misses[i] + miss[i];
        made.n[i + 1] = made.n[i] + (objective.metric !== "tpot" || load.nOut[i] > 1 ? 1 : 0);
      }
      return made;
    });
    // Scored requests alone are counted: the last of them belongs to no span that ends at it.
    var from = load.scored[0], to = from, holding = 0;
    for (var span = 0; span < spans; span++) {
      var start = begin + span * MINUTE_NS;
      while (from < load.scored[1] && played.due[from] < start) { from++; }
      while (to < load.scored[1] && played.due[to] < start + lengthNs) { to++; }
      holding += sums.every(function (one, index) {
        var n = one.n[to] - one.n[from], known = allowed[index];
        if (!known.has(n)) { known.set(n, n - engine.rank(slo[index].quantile, n)); }
        return one.misses[to] - one.misses[from] <= known.get(n);
      }) ? 1 : 0;
    }
    return { kept: holding, spans: spans };
  }

  function is95(found) { return found !== null && 100 * found.kept >= 95 * found.spans; }

  /* Ratios of a list whose nth part was seen to the nth that was played, as 100 x ln, and their lower median. */
  function medianLog(pairs) {
    var logs = pairs.filter(function (pair) { return pair[0] > 0 && pair[1] > 0; }).map(function (pair) {
      return Math.log(pair[0] / pair[1]);
    });
    if (!logs.length) { return null; }
    return 100 * Float64Array.from(logs).sort()[Math.floor((logs.length - 1) / 2)];
  }

  /* How well the model tells one trial; see claims/long_run.py. */
  function toldOf(trial, r, played) {
    var ended = trial.scored.filter(function (i) { return r.status[i] === trials.OK; });
    return {
      repeat: trial.repeat, trial: trial.number, rate_urps: trial.rateUrps, requests: ended.length,
      ttft_percent: medianLog(ended.map(function (i) {
        var row = r.row[i];
        return [trials.METRIC.ttft(r, i) || 0, played.first[row] - played.due[row]];
      })),
      tpot_percent: medianLog(ended.map(function (i) {
        var row = r.row[i], steps = r.outputAsked[i] - 1;
        return steps > 0 ? [(trials.METRIC.tpot(r, i) || 0) * steps, played.last[row] - played.first[row]] : [0, 0];
      }))
    };
  }

  /* ln(step time seen / the model's); null: the model cannot tell. */
  function paceOf(told, played, slower, scored) {
    var seen = told.tpot_percent, from = "first", to = "last";
    if (seen === null) { seen = told.ttft_percent; from = "due"; to = "first"; }
    if (seen === null) { return null; }
    var pairs = [];
    for (var row = scored[0]; row < scored[1]; row++) {
      pairs.push([slower[to][row] - slower[from][row], played[to][row] - played[from][row]]);
    }
    var effect = medianLog(pairs);
    return effect === null || effect < 50 * Math.log(1 + SLOWER) ? null : seen / effect * Math.log(1 + SLOWER);
  }

  /* How many values are followed by one that is less by more than a step. */
  function overtaken(first, stepNs) {
    var count = 0, earliest = Infinity;
    for (var i = first.length - 1; i >= 0; i--) {
      if (earliest < first[i] - stepNs) { count++; }
      earliest = Math.min(earliest, first[i]);
    }
    return count;
  }

  /* Of the requests of a trial that began to be answered, how many a later one overtook: seen and played; see claims/order.py. */
  function orderOf(trial, r, played) {
    var steps = trials.values("tpot", r, trial.records);
    if (!steps.length) { return { n: 0, seen: 0, modelled: 0 }; }
    var step = trials.atQuantile(steps, steps.length, 0.5);
    var began = trial.records.filter(function (i) { return trials.known(r.first[i]); });
    return {
      n: began.length, seen: overtaken(began.map(function (i) { return r.first[i]; }), step),
      modelled: overtaken(began.map(function (i) { return played.first[r.row[i]]; }), step)
    };
  }

  /* A straight line by least squares: {value, half} of its slope; null: there is none. */
  function slope(points, table) {
    var n = points.length, x = points.map(function (p) { return p[0]; }), y = points.map(function (p) { return p[1]; });
    if (n < 3 || Math.min.apply(null, x) === Math.max.apply(null, x)) { return null; }
    var mx = claims.sum(x) / n, my = claims.sum(y) / n;
    var spread = claims.sum(x.map(function (a) { return (a - mx) * (a - mx); }));
    var value = claims.sum(x.map(function (a, i) { return (a - mx) * (y[i] - my); })) / spread;
    var rest = claims.sum(x.map(function (a, i) { var d = y[i] - my - value * (a - mx); return d * d; }));
    return { value: value, half: claims.t975(table, n - 2) * Math.sqrt(rest / (n - 2) / spread) };
  }

  /* The k-th root of an integer, rounded down. */
  function root(value, k) {
    var low = 0n, high = 1n << BigInt(Math.ceil(value.toString(2).length / k) + 1);
    while (high - low > 1n) {
      var middle = (low + high) >> 1n;
      if (middle ** BigInt(k) <= value) { low = middle; } else { high = middle; }
    }
    return low;
  }

  /* ---------- the replay ---------- */

  /* Work out the long run of a verified run again. `tell` is given the share that is done, and is waited for.
     Returns {claim, metrics, text}: of claims.long_run what is made here. Refuses what does not show what it states. */
  async function replay(run, data, tell) {
    var spec = run.document.spec, none = [claims.absent(data, "long_run_goodput"), claims.absent(data, "long_run_rate")];
    var measured = measuredOf(run), repeats = measured.map(function (one) { return one.repeat; });
    if (!run.fit || !measured.length || !isWhole(run.fit, repeats)) {
      return { claim: { outcome: run.fit ? "refused" : "none" }, metrics: none, plays: 0 };
    }
    var slo = spec.setup.slo.map(function (o) {
      return { metric: o.metric, quantile: o.quantile, limitNs: trials.nearest(o.limit_ms * 1000000, 1) };
    });
    expectFits(run.fit, repeats);
    var full = run.fit.fits[0], work = draws.longRun(run.windows.workload), long = null, done = 0, plays = 0;
    var rows = measured.reduce(function (sum, one) { return sum + one.load.nOut.length; }, 0);
    var all = PLAYED_ROWS * (3 + 2 + (run.fit.windows95 ? 2 : 0) + CURVE_PERMILLE.length) + 4 * rows
      + 2 * run.trials.reduce(function (sum, trial) { return sum + trial.due.length; }, 0);

    async function progress(share) { done += share; await tell(Math.min(done / all, 1)); }

    async function play(model, load, rate) {
      var longest = load.nOut.reduce(function (a, b) { return Math.max(a, b); }, 1), ring = 1;
      while (ring <= longest) { ring *= 2; }
      if (model.limits[4] * ring > MOST_BUCKETS) { refuse("engine-model: asks for more room than a replay is given"); }
      var made = engine.play(model, load, rate);
      plays++;
      await progress(load.nOut.length);
      return made;
    }

    async function holds(model, load, rate) {
      var counted = engine.counts(slo, await play(model, load, rate), load.nOut, load.scored);
      return counted.every(function (one, i) { return engine.passes(one, slo[i]); });
    }

    async function shown(fit, repeat, load) {
      var edges = fit.boundaries.get(repeat);
      if (!isAdjacent(edges) || !await holds(fit.engine, load, edges.pass) || await holds(fit.engine, load, edges.fail)) {
        refuse("engine-model: states a boundary at " + edges.pass / 1e6 + " requests/s that the model does not show when it is replayed");
      }
      return edges.boundary;
    }

    while (long === null) { long = work(); await progress(3 * PLAYED_ROWS / 17); }
    var edges = full.boundaries.get(0), ownLong = await shown(full, 0, long), corrected = [];
    for (var one of measured) {
      var own = await shown(full, one.repeat, one.load), without = null;
      var other = run.fit.fits.find(function (fit) { return fit.leftOut === one.repeat; });
      if (other) { without = await shown(other, one.repeat, one.load); }
      corrected.push({
        repeat: one.repeat, measured: one.urps, own: own, without: without,
        urps: Number(BigInt(one.urps) * BigInt(ownLong) / BigInt(own)),
        error: without === null ? null : Math.log(one.urps / without)
      });
    }
    var windows95 = run.fit.windows95;
    if (windows95) {
      var below = kept(slo, await play(full.engine, long, windows95.pass), long, WINDOW_NS);
      var beyond = kept(slo, await play(full.engine, long, windows95.fail), long, WINDOW_NS);
      if (!isAdjacent(windows95) || !is95(below) || beyond === null || is95(beyond)) {
        refuse("engine-model: states a rate of 95% of windows that the model does not show");
      }
    }
    var errors = corrected.map(function (c) { return c.error; });
    var rms = errors.includes(null) ? null : Math.sqrt(claims.sum(errors.map(function (e) { return e * e; })) / errors.length);

    var told = [], points = [], order = { n: 0, seen: 0, modelled: 0 }, boundaries = new Map(measured.map(function (m) { return [m.repeat, m.urps]; }));
    for (var trial of run.trials) {
      var played = await play(full.engine, trial.drawn, trial.rateUrps), fact = toldOf(trial, run.records, played);
      told.push(fact);
      var share = boundaries.has(trial.repeat) ? trial.rateUrps / boundaries.get(trial.repeat) : 1;
      if (share >= NEAR[0] && share <= NEAR[1] && !trial.abandoned) {
        var slower = await play({ prices: slow(full.engine.prices), limits: full.engine.limits }, trial.drawn, trial.rateUrps);
        var pace = paceOf(fact, played, slower, trial.drawn.scored);
        if (pace !== null) { points.push([Date.parse(trial.started) / 1000, pace]); }
        var ordered = orderOf(trial, run.records, played);
        Object.keys(order).forEach(function (key) { order[key] += ordered[key]; });
      }
    }
    var line = slope(points, data.t975), times = points.map(function (p) { return p[0]; });
    var span = points.length ? Math.max.apply(null, times) - Math.min.apply(null, times) : 0;
    var drift = line && { change: line.value * span, half: line.half * span };
    var at = run.trials.map(function (t) { return Date.parse(t.started) / 1000; });
    var refused = measured.length < run.derived.made.repeats.length || corrected.length < MIN_REPEATS || rms === null || rms > MAX_RMS
      || (spec.protocol.mode !== "demo" && Math.max.apply(null, at) - Math.min.apply(null, at) < MIN_SPREAD_S)
      || !drift || Math.abs(drift.change) > Math.max(MAX_DRIFT, drift.half)
      || order.seen - order.modelled > order.n - engine.rank(Math.max.apply(null, slo.map(function (o) { return o.quantile; })), order.n);
    var claim = {
      outcome: refused ? "refused" : "accepted", rms_percent: rms === null ? null : 100 * rms,
      drift_percent: drift ? 100 * drift.change : null, base_ps: full.engine.prices[0], sequence_ps: full.engine.prices[1],
      prompt_token_ps: full.engine.prices[2], context_token_ps: full.engine.prices[3], pass_urps: edges.pass, fail_urps: edges.fail,
      repeats: corrected.map(function (c) {
        return {
          repeat: c.repeat, measured_urps: c.measured, model_urps: c.own, left_out_urps: c.without,
          error_percent: c.error === null ? null : 100 * c.error
        };
      }),
      trials: told
    };
    if (refused) { return { claim: claim, metrics: none, plays: plays }; }

    // A rate of the model's as that of the engine which was measured.
    var pooledUrps = root(corrected.reduce(function (product, c) { return product * BigInt(c.urps); }, 1n), corrected.length);
    var scaled = function (urps) { return Number(BigInt(urps) * pooledUrps / BigInt(ownLong)); };
    claim.windows_95_urps = windows95 ? scaled(windows95.boundary) : null;
    claim.misses = [];
    for (var permille of CURVE_PERMILLE) {
      var rate = Math.max(Math.floor(ownLong * permille / 1000), 1), all200 = await play(full.engine, long, rate);
      claim.misses.push({
        rate_urps: scaled(rate),
        percent: engine.counts(slo, all200, long.nOut, long.scored).map(function (c) { return c.n ? 100 * c.misses / c.n : 0; })
      });
      if (rate === ownLong) {
        var ten = kept(slo, all200, long, WINDOW_NS), hour = kept(slo, all200, long, HOUR_NS);
        claim.windows_kept_percent = ten && 100 * ten.kept / ten.spans;
        claim.hours_kept_percent = hour && 100 * hour.kept / hour.spans;
      }
    }
    var rates = corrected.map(function (c) { return c.urps / 1e6; }), r = run.records;
    var outputs = rates.map(function (rate, i) {
      var top = run.derived.tops[i];
      return rate * long.meanOut * top.scored.filter(function (k) { return r.status[k] === trials.OK; }).length
        / (top.drawn.scored[1] - top.drawn.scored[0]);
    });
    return {
      claim: claim, plays: plays, metrics: [
        claims.pooled(data, "long_run_goodput", outputs, undefined, claims.SYSTEMATIC),
        claims.pooled(data, "long_run_rate", rates, undefined, claims.SYSTEMATIC)
      ]
    };
  }

  scope.TokenwattReplay = { readFit: readFit, replay: replay };
})(globalThis);
