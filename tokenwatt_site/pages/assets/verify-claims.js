/* Numbers made again from evidence, as tokenwatt_site/claims/derive.py makes them, and held against those of a run file:
   |a - b| <= 5e-7 max(|a|, |b|), counts exactly. Knows no page. */
(function (scope) {
  "use strict";

  var trials = scope.TokenwattTrials, energy = scope.TokenwattEnergy, engine = scope.TokenwattEngine;
  var TOLERANCE = 5e-7, SYSTEMATIC = 1.96 * 0.005;
  var BRACKET = { full: 1.02, quick: 1.05, demo: 1.15 };

  /* Whole numbers are counts, or fractions far below 2^53 that come out whole in both languages. */
  function same(a, b) {
    return a === b || !(Number.isInteger(a) && Number.isInteger(b)) && Math.abs(a - b) <= TOLERANCE * Math.max(Math.abs(a), Math.abs(b));
  }

  /* The first place where what was made here is not in a claim; null: none. What was not made is not looked at. */
  function difference(made, claimed, path) {
    if (made === undefined) { return null; }
    if (made === null || claimed === null || typeof made !== "object" || typeof claimed !== "object") {
      var equal = typeof made === "number" && typeof claimed === "number" ? same(made, claimed) : made === claimed;
      return equal ? null : { path: path, claimed: claimed, made: made };
    }
    if (Array.isArray(made) && made.length !== claimed.length) {
      return { path: path + ".length", claimed: claimed.length, made: made.length };
    }
    if (path.endsWith(".failures") && Object.keys(made).length !== Object.keys(claimed).length) {
      return { path: path, claimed: Object.keys(claimed).join(), made: Object.keys(made).join() };
    }
    for (var key of Object.keys(made)) {
      var found = difference(made[key], claimed[key], path + "." + key);
      if (found) { return found; }
    }
    return null;
  }

  /* How many numbers there are. */
  function count(made) {
    if (typeof made === "number") { return 1; }
    if (made === null || typeof made !== "object") { return 0; }
    return Object.values(made).reduce(function (sum, part) { return sum + count(part); }, 0);
  }

  function t975(table, df) {
    if (df <= table.length) { return table[df - 1]; }
    var z = 1.959964;
    return z + (z * z * z + z) / (4 * df) + (5 * Math.pow(z, 5) + 16 * z * z * z + 3 * z) / (96 * df * df);
  }

  function sum(list) { return list.reduce(function (total, value) { return total + value; }, 0); }

  /* One number over repeats, by the registry's way of pooling; see statistics.pool. */
  function pooled(data, key, values, label, systematic) {
    var metric = data.metrics[key], n = values.length, geometric = metric.pooling === "geometric";
    if (!n || (geometric && Math.min.apply(null, values) <= 0)) { return absent(data, key, label); }
    var made = {
      key: key, label: label || metric.label, value: values[0], repeats: values, low: null, high: null, new_launch_low: null,
      new_launch_high: null
    };
    if (n === 2) {
      made.value = sum(values) / 2;
      made.low = Math.min(values[0], values[1]);
      made.high = Math.max(values[0], values[1]);
    }
    if (n > 2) {
      var y = geometric ? values.map(Math.log) : values, mean = sum(y) / n, back = geometric ? Math.exp : Number;
      var s = Math.sqrt(sum(y.map(function (item) { return (item - mean) * (item - mean); })) / (n - 1));
      var t = t975(data.t975, n - 1), ofMean = t * s / Math.sqrt(n), ofLaunch = t * s * Math.sqrt(1 + 1 / n);
      if (systematic) { ofMean = Math.sqrt(ofMean * ofMean + systematic * systematic); }
      made.value = back(mean);
      made.low = back(mean - ofMean);
      made.high = back(mean + ofMean);
      made.new_launch_low = back(mean - ofLaunch);
      made.new_launch_high = back(mean + ofLaunch);
    }
    return made;
  }

  /* There is no such number. What the label is where boards are no GPUs is not made here. */
  function absent(data, key, label) { return { key: key, label: label || data.metrics[key].label, value: null, repeats: [] }; }

  /* ---------- trials and repeats ---------- */

  function trialClaim(spec, trial, r, power) {
    var judged = trials.judgements(spec.setup.slo, trial, r), failures = {};
    var scored = trial.drawn.scored[1] - trial.drawn.scored[0];
    var early = trial.scored.length < scored || trial.scored.some(function (i) { return r.status[i] === trials.CENSORED; });
    trial.records.forEach(function (i) {
      var name = trials.FAILURES[r.status[i]];
      if (name) { failures[name] = (failures[name] || 0) + 1; }
    });
    var stamp = trials.stampNs(trial, r), mj = power && !early ? energy.windowEnergy(power.log, trial, power.idles) : null;
    var length = trial.window[1] - trial.window[0];
    var invalid = trials.isInvalid(spec, trial, r, judged);
    return {
      repeat: trial.repeat, trial: trial.number, rate_urps: trial.rateUrps, realisation: trial.drawn.number,
      verdict: invalid ? "INVALID" : judged.some(function (one) { return one.outcome === "FAIL"; }) ? "FAIL" : "PASS",
      stopped_early: early, scored: scored, complete: complete(trial, r), within_all: withinAll(spec, trial, r), failures: failures,
      objectives: judged.map(function (one) {
        var n = one.n, q = one.objective.quantile, carried = one.valueNs !== null && engine.rank(q, n) < n;
        return {
          n: n, undefined: one.undefined, misses: one.misses, allowed: one.allowed, passed: one.outcome === "PASS",
          value_ms: carried ? one.valueNs / 1e6 : null
        };
      }),
      output_tokens_per_s: early ? null : energy.tokensInWindow(r, trial.records, trial.window[0], trial.window[1]) * 1e9 / length,
      lag_p99_ms: trial.records.length ? trials.p99(trial.records.map(function (i) { return trials.lagNs(r, i); })) / 1e6 : null,
      uncertainty_p99_ms: stamp === null ? null : stamp / 1e6, client_cpu_percent: trial.cpuPpm / 1e4,
      energy_j: mj === null ? null : mj / 1e3, started: trial.started
    };
  }

  function complete(trial, r) { return trial.scored.filter(function (i) { return r.status[i] === trials.OK; }).length; }

  function withinAll(spec, trial, r) {
    return trial.scored.filter(function (i) { return trials.meetsAll(spec.setup.slo, r, i); }).length;
  }

  /* The repeats, and of each that has one the trial at its highest passing rate, on the rows that it offered last. */
  function repeatClaims(spec, all, claimed) {
    var lastBand = new Map(), made = [], tops = [];
    all.forEach(function (trial) { lastBand.set(trial.repeat, trial.band); });
    Array.from(lastBand.keys()).sort(function (a, b) { return a - b; }).forEach(function (repeat) {
      var places = all.map(function (_, i) { return i; }).filter(function (i) {
        return all[i].repeat === repeat && all[i].band === lastBand.get(repeat);
      });
      var rates = function (verdict) {
        return places.filter(function (i) { return claimed[i].verdict === verdict; }).map(function (i) { return all[i].rateUrps; });
      };
      var failed = rates("FAIL"), high = failed.length ? Math.min.apply(null, failed) : null;
      var passed = rates("PASS").filter(function (rate) { return high === null || rate < high; });
      var low = passed.length ? Math.max.apply(null, passed) : null;
      var narrow = low !== null && high !== null && high <= low * BRACKET[spec.protocol.mode];
      var top = places.find(function (i) { return claimed[i].verdict === "PASS" && all[i].rateUrps === low; });
      var last = all[places[places.length - 1]];
      if (top !== undefined) { tops.push(all[top]); }
      made.push({
        repeat: repeat, band_urps: last.band.low_urps, scored: last.drawn.scored[1] - last.drawn.scored[0], highest_pass_urps: low,
        lowest_fail_urps: high, boundary_urps: narrow ? engine.between(low, high) : null,
        window_s: top === undefined ? null : (all[top].window[1] - all[top].window[0]) / 1e9
      });
    });
    return { repeats: made, tops: tops };
  }

  /* ---------- numbers over repeats ---------- */

  function rateClaims(data, repeats, tops, r) {
    var passing = tops.map(function (t) { return t.rateUrps / 1e6; });
    var highest = tops.length ? pooled(data, "highest_pass_rate", passing) : absent(data, "highest_pass_rate");
    if (!repeats.length || repeats.some(function (one) { return one.boundary_urps === null; })) {
      return [absent(data, "goodput"), absent(data, "boundary_rate"), highest, absent(data, "input_throughput")];
    }
    var rates = repeats.map(function (one) { return one.boundary_urps / 1e6; });
    return [
      pooled(data, "goodput", rates.map(function (rate, i) {
        return rate * tops[i].drawn.meanOut * (complete(tops[i], r) / scoredOf(tops[i]));
      })),
      pooled(data, "boundary_rate", rates), highest,
      pooled(data, "input_throughput", rates.map(function (rate, i) { return rate * tops[i].drawn.meanIn; }))
    ];
  }

  function scoredOf(trial) { return trial.drawn.scored[1] - trial.drawn.scored[0]; }

  function latencyClaims(spec, data, tops, r) {
    var wanted = spec.setup.slo.map(function (o) { return [o.metric, o.quantile]; }), seen = new Set();
    ["ttft", "tpot", "e2e"].forEach(function (key) { wanted.push([key, 0.5], [key, 0.9]); });
    spec.setup.slo.forEach(function (o) { if (o.metric === "ttft") { wanted.push(["ttft_from_send", o.quantile]); } });
    return wanted.filter(function (one) { return !seen.has(one.join()) && seen.add(one.join()); }).map(function (one) {
      var key = one[0], q = one[1], name = key === "ttft_from_send" ? data.metrics[key].label : key.toUpperCase();
      var label = name + " p" + Number((q * 100).toPrecision(6)), ms = [], carried = true;
      tops.forEach(function (top) {
        var known = trials.values(key, r, top.scored);
        var n = known.length + top.scored.filter(function (i) { return r.status[i] !== trials.OK; }).length;
        var value = trials.atQuantile(known, n, q);
        carried = carried && (n === 0 || engine.rank(q, n) < n);
        if (value !== null) { ms.push(value / 1e6); }
      });
      return tops.length && carried && ms.length === tops.length ? pooled(data, key, ms, label) : absent(data, key, label);
    });
  }

  function shareClaims(spec, data, tops, r) {
    var of = function (key, counted) {
      return pooled(data, key, tops.map(function (t) { return 100 * counted(t) / scoredOf(t); }));
    };
    var made = [
      of("attainment", function (t) { return withinAll(spec, t, r); }), of("complete", function (t) { return complete(t, r); })
    ];
    if (!spec.setup.conversation) { return made; }
    var shares = tops.map(function (t) {
      var told = t.scored.filter(function (i) { return r.promptTokens[i] > 0; });
      var cached = told.filter(function (i) { return trials.known(r.cached[i]); });
      if (!cached.length) { return null; }
      return 100 * sum(cached.map(function (i) { return r.cached[i]; })) / sum(told.map(function (i) { return r.promptTokens[i]; }));
    });
    made.push(shares.includes(null) ? absent(data, "cached_prompt_share") : pooled(data, "cached_prompt_share", shares));
    return made;
  }

  /* Without labels: what they are where the boards are no GPUs is not made here. */
  function energyClaims(spec, data, tops, r, power) {
    var unlabelled = function (claim) { claim.label = undefined; return claim; };
    var none = function (key) { return unlabelled(absent(data, key)); };
    var keys = ["tokens_per_joule", "joules_per_token", "joules_per_token_above_idle", "joules_per_any_token", "joules_per_slo_token",
      "board_power", "power_limit_share", "idle_power"];
    if (!power || !tops.length) { return keys.map(none); }
    var mj = tops.map(function (t) { return energy.windowEnergy(power.log, t, power.idles); });
    var idle = tops.map(function (t) { var one = power.idles.get(t.repeat); return one ? one.powerMw : null; });
    var idleClaim = idle.includes(null) ? none("idle_power")
      : unlabelled(pooled(data, "idle_power", idle.map(function (mw) { return mw / 1e3; })));
    if (mj.includes(null)) { return keys.slice(0, 7).map(none).concat([idleClaim]); }
    var joules = mj.map(function (one) { return one / 1e3; }), over = function (key, above, tokens) {
      return Math.min.apply(null, tokens) <= 0 ? none(key)
        : unlabelled(pooled(data, key, above.map(function (j, i) { return j / tokens[i]; })));
    };
    var within = function (t, list) { return energy.tokensInWindow(r, list, t.window[0], t.window[1]); };
    var lengths = tops.map(function (t) { return t.window[1] - t.window[0]; });
    var tokens = tops.map(function (t) { return within(t, t.records); });
    var any = tops.map(function (t, i) { return tokens[i] + energy.promptTokensInWindow(r, t.records, t.window[0], t.window[1]); });
    var slo = tops.map(function (t) {
      return within(t, t.records.filter(function (i) { return trials.meetsAll(spec.setup.slo, r, i); }));
    });
    var above = joules.map(function (j, i) { return j - idle[i] * lengths[i] / 1e12; });
    var watts = mj.map(function (one, i) { return one * 1e9 / lengths[i] / 1e3; });
    var limits = power.log.boards.map(function (board) { return board.limit_mw; });
    var limited = power.log.scope !== "module" && limits.every(Boolean);
    return [
      unlabelled(pooled(data, "tokens_per_joule", tokens.map(function (n, i) { return n / joules[i]; }))),
      over("joules_per_token", joules, tokens),
      idle.includes(null) || Math.min.apply(null, above) <= 0 ? none(keys[2]) : over(keys[2], above, tokens),
      over("joules_per_any_token", joules, any), over("joules_per_slo_token", joules, slo),
      unlabelled(pooled(data, "board_power", watts)),
      limited ? unlabelled(pooled(data, "power_limit_share", watts.map(function (w) { return 100 * w * 1e3 / sum(limits); })))
        : none("power_limit_share"),
      idleClaim
    ];
  }

  function distributions(tops, r) {
    var scored = [].concat.apply([], tops.map(function (t) { return t.scored; })), made = [];
    var failed = scored.filter(function (i) { return r.status[i] !== trials.OK; }).length;
    ["ttft", "tpot", "e2e"].forEach(function (key) {
      var known = trials.values(key, r, scored), n = known.length + failed, ms = [];
      for (var i = 1; i <= 100; i++) {
        var value = trials.atQuantile(known, n, i / 100);
        if (value !== null) { ms.push(value / 1e6); }
      }
      if (ms.length) { made.push({ key: key, n: n, values_ms: ms }); }
    });
    return made;
  }

  /* What each replica did in the windows at the highest passing rates; undefined where one engine was asked. */
  function replicaClaims(spec, journal, tops, r) {
    var count = trials.replicaCount(spec), scored = [].concat.apply([], tops.map(function (t) { return t.scored; })), made = [];
    if (count === 1) { return undefined; }
    var told = [].concat.apply([], Array.from(trials.launchesOf(journal).values())).map(function (line) {
      return trials.replicasOf(line, count);
    });
    for (var place = 0; place < count; place++) {
      var own = scored.filter(function (i) { return r.row[i] % count === place; });
      var failed = own.filter(function (i) { return r.status[i] !== trials.OK; }).length;
      var versions = new Set(told.map(function (launch) { return launch[place].version; }).filter(Boolean));
      made.push({
        number: place + 1, version: Array.from(versions).join(", ") || null, requests: own.length,
        percent: scored.length ? 100 * own.length / scored.length : null, failed: failed,
        ttft_p99_ms: p99Ms("ttft", own, failed, r), tpot_p99_ms: p99Ms("tpot", own, failed, r)
      });
    }
    return made;
  }

  function p99Ms(key, own, failed, r) {
    var known = trials.values(key, r, own), n = known.length + failed, value = trials.atQuantile(known, n, 0.99);
    return value === null || engine.rank(0.99, n) >= n ? null : value / 1e6;
  }

  /* The claims of a run that follow from its journal, its requests and power; `power` is {log, idles}, or null. */
  function derive(spec, data, journal, all, r, power) {
    var claimed = all.map(function (trial) { return trialClaim(spec, trial, r, power); }), found = repeatClaims(spec, all, claimed);
    var metrics = [].concat(
      rateClaims(data, found.repeats, found.tops, r), latencyClaims(spec, data, found.tops, r),
      shareClaims(spec, data, found.tops, r), energyClaims(spec, data, found.tops, r, power)
    );
    return {
      made: {
        slo_met: found.tops.length > 0 && found.repeats.every(function (one) { return one.highest_pass_urps !== null; }),
        trials: claimed, repeats: found.repeats, distributions: distributions(found.tops, r),
        replicas: replicaClaims(spec, journal, found.tops, r)
      },
      metrics: metrics, tops: found.tops
    };
  }

  /* Each metric made here beside the one that is claimed: {label, unit, decimals, claimed, made, differs}. */
  function compared(metrics, claims, data) {
    return metrics.map(function (made) {
      var claimed = claims.metrics.find(function (one) {
        return one.key === made.key && (made.label === undefined || one.label === made.label);
      });
      var about = data.metrics[made.key], label = claimed ? claimed.label : made.label || about.label;
      return {
        key: made.key, label: label, unit: about.unit, decimals: about.decimals, made: made.value,
        claimed: claimed ? claimed.value : undefined, numbers: count(made),
        differs: claimed ? difference(made, claimed, label) : { path: label, claimed: "nothing", made: made.value }
      };
    });
  }

  scope.TokenwattClaims = {
    SYSTEMATIC: SYSTEMATIC, same: same, difference: difference, count: count, pooled: pooled, absent: absent, sum: sum,
    derive: derive, compared: compared, t975: t975
  };
})(globalThis);
