/* Configurations side by side: what differs, what may be divided, and what it shows. The same as the builder's
   comparison.py on the same results, and tested against it. Gives its answer in the same form. */
(function () {
  "use strict";

  var data = globalThis.TokenwattCompareData;
  var ENERGY = "Energy and power", LATENCY = "Latency at one offered rate", MIN_LAUNCHES = 3, REFERENCE_CARDS = 64;
  var ORDER = ["Throughput", LATENCY, ENERGY, "Memory bandwidth"], NORMAL = { 95: 1.959964, 90: 1.644854 }, Z = 1.959964;

  /* ---------- statistics */

  function cornishFisher(z, df) {
    return z + (z * z * z + z) / (4 * df) + (5 * Math.pow(z, 5) + 16 * z * z * z + 3 * z) / (96 * df * df);
  }

  function t975(df) {
    return df <= data.t975.length ? data.t975[df - 1] : cornishFisher(NORMAL[95], df);
  }

  function t95(df) {
    var table = data.t95;
    if (df > table.length) { return cornishFisher(NORMAL[90], df); }
    var k = Math.min(Math.floor(df), table.length - 2), a = 1 / k, b = 1 / (k + 1), c = 1 / (k + 2), x = 1 / df;
    return table[k - 1] * (x - b) * (x - c) / ((a - b) * (a - c)) +
      table[k] * (x - a) * (x - c) / ((b - a) * (b - c)) +
      table[k + 1] * (x - a) * (x - b) / ((c - a) * (c - b));
  }

  function sum(values) { return values.reduce(function (a, b) { return a + b; }, 0); }
  function mean(values) { return sum(values) / values.length; }
  function logs(values) { return values.map(Math.log); }

  function variance(values) {
    var middle = mean(values);
    return sum(values.map(function (value) { return (value - middle) * (value - middle); })) / (values.length - 1);
  }

  function ratioOf(difference, half) {
    return {
      value: Math.exp(difference),
      low: half === null ? null : Math.exp(difference - half),
      high: half === null ? null : Math.exp(difference + half)
    };
  }

  function against(fresh, old) {
    var a = logs(fresh), b = logs(old), difference = mean(a) - mean(b);
    if (Math.min(a.length, b.length) < MIN_LAUNCHES) { return ratioOf(difference, null); }
    var va = variance(a) / a.length, vb = variance(b) / b.length;
    if (va + vb === 0) { return ratioOf(difference, 0); }
    var df = (va + vb) * (va + vb) / (va * va / (a.length - 1) + vb * vb / (b.length - 1));
    return ratioOf(difference, t95(df) * Math.sqrt(va + vb));
  }

  function paired(ones, others) {
    var n = Math.min(ones.length, others.length), a = logs(ones.slice(0, n)), b = logs(others.slice(0, n));
    var y = a.map(function (value, i) { return value - b[i]; });
    return ratioOf(mean(y), n < MIN_LAUNCHES ? null : t975(n - 1) * Math.sqrt(variance(y) / n));
  }

  function wordOf(ratio, better) {
    var low = ratio.low, high = ratio.high;
    if (low !== null && low > 1 / data.same && high < data.same) { return "same within 3%"; }
    if (low === null || (low <= 1 && high >= 1)) { return "no difference shown"; }
    if (better === "neither") { return "different"; }
    return (low > 1) === (better === "higher") ? "better" : "worse";
  }

  function ratio(ones, others, onRows) {
    return onRows ? [paired(others, ones), 95] : [against(others, ones), 90];
  }

  function widened(found, level) {
    if (found.low === null) { return found; }
    var half = Math.log(found.high / found.value);
    half = Math.hypot(half, Math.SQRT2 * data.systematic * NORMAL[level] / NORMAL[95]);
    return { value: found.value, low: found.value * Math.exp(-half), high: found.value * Math.exp(half) };
  }

  /* Tango's score interval of a paired difference; see accuracy_gate.py. */
  function spread(worse, better, drop) {
    if (drop < 0) { return spread(better, worse, -drop); }
    var b = (2 - worse + better) * drop - worse - better;
    var root = Math.sqrt(b * b + 8 * better * drop * (1 - drop));
    var q = b <= 0 ? (root - b) / 4 : 2 * better * drop * (1 - drop) / (root + b);
    return 2 * q + drop * (1 - drop);
  }

  function upper(n, worse, better) {
    var low = (worse - better) / n, high = 1;
    while (high - low > 1e-12) {
      var middle = (low + high) / 2, beyond = Math.pow(n * middle - (worse - better), 2);
      if (beyond > Z * Z * n * spread(worse / n, better / n, middle)) { high = middle; } else { low = middle; }
    }
    return (low + high) / 2;
  }

  /* ---------- what may be divided */

  function same(a, b) { return JSON.stringify(a) === JSON.stringify(b); }

  function limits(detail) {
    return detail.slo.map(function (each) { return each.label + " " + each.limit_ms; }).sort();
  }

  function sameWindows(a, b) { return a.mode === b.mode && same(a.rows, b.rows); }

  function otherWorkload(a, b) {
    var one = a.workload, other = b.workload;
    if (one.name === null) { return "A names no workload"; }
    if (one.name !== other.name) { return "another workload: " + other.name + " against " + one.name; }
    if (!a.quoted && one.hash !== other.hash) { return "another workload of the name " + one.name + ": its hash differs"; }
    return null;
  }

  function refused(a, b, name) {
    if (b.quoted) { return "an earlier publication can only be the baseline: nothing of it was recomputed"; }
    if (a.simulated !== b.simulated) {
      return (a.simulated ? "A" : name) + " was simulated and the other measured: a simulated number is about nothing";
    }
    return [otherWorkload(a, b), otherLimits(a, b)].filter(Boolean).join("; ") || null;
  }

  function otherLimits(a, b) {
    if (a.slo === null) { return "A tells no SLO in words that can be compared"; }
    return same(limits(a), limits(b)) ? null : "another SLO: " + b.slo_text + " against " + a.slo_text;
  }

  function barred(key, a, b) {
    if (data.kinds[ENERGY].indexOf(key) >= 0 && a.power_scope !== b.power_scope) {
      return "another boundary of power: " + b.power_scope + " against " + (a.power_scope || "one that is not told");
    }
    if (a.quoted) { return null; }
    var whole = data.whole.indexOf(key) >= 0;
    if (a.mode !== b.mode) {
      if (!whole) { return b.mode + " mode against " + a.mode + ": windows of another length"; }
      var few = a.launches < b.launches ? a : b;
      if (few.launches >= MIN_LAUNCHES) { return null; }
      return few.mode + " mode with n = " + few.launches + ": an interval takes " + MIN_LAUNCHES + " launches";
    }
    return !whole && !same(a.rows, b.rows) ? "windows of another length: short ones overstate more" : null;
  }

  function number(detail, key) {
    var found = detail.metrics.find(function (metric) { return metric.key === key; });
    var reason = detail.quoted ? "not told by the publication" : "the run does not tell";
    return found || { label: data.metrics[key].label, value: null, repeats: [], reason: reason };
  }

  function values(found) { return found.repeats.length ? found.repeats : [found.value]; }

  function missing(one, other, name) {
    var told = [["A", one], [name, other]].filter(function (each) { return each[1].value === null; });
    if (told.length === 2 && one.reason === other.reason) { return one.reason; }
    if (told.length) { return told.map(function (each) { return each[0] + ": " + each[1].reason; }).join("; "); }
    var least = Math.min.apply(null, values(one).concat(values(other)));
    return least <= 0 ? "a ratio takes numbers above 0" : null;
  }

  /* ---------- rows */

  function row(group, key, label, baseline, other, more) {
    return Object.assign({
      group: group, key: key, label: label, baseline: baseline, other: other, reason: null, ratio: null, level: null,
      paired: false, launches: [0, 0], word: null
    }, more);
  }

  function pairs(a, b, one, other) {
    if (a.quoted || !sameWindows(a, b)) { return 0; }
    var n = Math.min(a.realisations.length, b.realisations.length);
    var whole = one.repeats.length === a.realisations.length && other.repeats.length === b.realisations.length;
    return whole && same(a.realisations.slice(0, n), b.realisations.slice(0, n)) ? n : 0;
  }

  function divided(group, key, one, other, n) {
    var ones = values(one), others = values(other);
    if (n) { ones = ones.slice(0, n); others = others.slice(0, n); }
    var found = ratio(ones, others, n > 0), level = found[1];
    if (data.longRun.indexOf(key) >= 0) { found[0] = widened(found[0], level); }
    return row(group, key, other.label, one.value, other.value, {
      ratio: found[0], level: found[0].low === null ? null : level, paired: n > 0,
      launches: [one.repeats.slice(0, ones.length).length, others.length],
      word: wordOf(found[0], data.metrics[key].better)
    });
  }

  function rowsOf(a, b, name) {
    var found = [];
    Object.keys(data.kinds).forEach(function (group) {
      data.kinds[group].forEach(function (key) {
        var one = number(a, key), other = number(b, key), why = barred(key, a, b) || missing(one, other, name);
        found.push(why === null
          ? divided(group, key, one, other, pairs(a, b, one, other))
          : row(group, key, other.label, one.value, other.value, { reason: why }));
      });
    });
    return found;
  }

  function offered(detail, label, repeats) {
    var found = {}, whole = {};
    detail.trials.forEach(function (trial) {
      var value = trial.ms[label];
      if (trial.repeat > repeats || !(value > 0)) { return; }
      var at = found[trial.rate_urps] = found[trial.rate_urps] || {};
      if (at[trial.repeat] === undefined) { at[trial.repeat] = value; }
    });
    Object.keys(found).forEach(function (rate) {
      var of = Object.keys(found[rate]).map(Number).sort(function (x, y) { return x - y; });
      if (of.length === repeats) { whole[rate] = of.map(function (repeat) { return found[rate][repeat]; }); }
    });
    return whole;
  }

  function latency(a, b) {
    var n = a.quoted ? 0 : Math.min(a.realisations.length, b.realisations.length);
    if (!sameWindows(a, b) || !same(a.realisations.slice(0, n), b.realisations.slice(0, n))) { n = 0; }
    return b.slo.map(function (objective) {
      var one = n ? offered(a, objective.label, n) : {}, other = n ? offered(b, objective.label, n) : {};
      var rates = Object.keys(one).filter(function (rate) { return other[rate]; }).map(Number);
      if (!rates.length) {
        var why = "no rate was offered to both in every repeat, on the same rows";
        return row(LATENCY, objective.metric, objective.label, null, null, { reason: why });
      }
      var rate = Math.max.apply(null, rates), found = ratio(one[rate], other[rate], true);
      var label = objective.label + " at " + Number((rate / 1e6).toPrecision(4)) + " requests/s";
      return row(LATENCY, objective.metric, label, Math.exp(mean(logs(one[rate]))), Math.exp(mean(logs(other[rate]))), {
        ratio: found[0], level: found[0].low === null ? null : found[1], paired: true, launches: [n, n],
        word: wordOf(found[0], "lower")
      });
    });
  }

  /* ---------- cards and answers */

  function cardsFor(perCard) { return Math.ceil(REFERENCE_CARDS / perCard * (1 - 1e-12)); }

  function cardsOf(a, b, rows, why) {
    var none = { of: null, per_card: null, value: null, low: null, high: null, reason: null };
    var found = ["long_run_goodput", "goodput"].map(function (key) {
      return rows.find(function (each) { return each.key === key && each.ratio !== null; });
    }).find(Boolean);
    if (why !== null || !found) {
      return Object.assign(none, { reason: why || "no goodput of both can be divided" });
    }
    none.of = found.key;
    if (a.cards === null || b.cards === null) {
      return Object.assign(none, { reason: a.cpu || b.cpu ? "there is no accelerator card" : "cards are not told" });
    }
    var share = a.cards / b.cards, of = found.ratio;
    var each = {
      value: of.value * share, low: of.low === null ? null : of.low * share, high: of.high === null ? null : of.high * share
    };
    return {
      of: found.key, per_card: each, value: cardsFor(each.value), low: each.high === null ? null : cardsFor(each.high),
      high: each.low === null ? null : cardsFor(each.low), reason: null
    };
  }

  function noAccuracy(a, b, name) {
    if (a.quoted || b.quoted) { return "a publication without its answers: they cannot be paired question by question"; }
    if (a.simulated !== b.simulated) { return "answers of a simulated engine are made up"; }
    if (a.answers === null) { return "A: " + a.gate.text; }
    if (b.answers === null) { return name + ": " + b.gate.text; }
    var other = Object.keys(a.setup).filter(function (path) {
      return path.indexOf("accuracy_gate.") === 0 && path !== "accuracy_gate.max_drop_points" &&
        !same(value(a.setup, path), value(b.setup, path));
    });
    return other.length ? "they answered other questions: " + other.join(", ") : null;
  }

  function right(answers) {
    var packed = atob(answers.correct), found = [];
    for (var i = 0; i < answers.questions; i++) {
      found.push((packed.charCodeAt(i >> 3) & (128 >> (i % 8))) !== 0);
    }
    return found;
  }

  function accuracyOf(a, b, name) {
    var none = {
      task: null, questions: null, baseline: number(a, "accuracy").value, other: number(b, "accuracy").value, points: null,
      low: null, high: null, worse: null, better: null, word: null, reason: noAccuracy(a, b, name)
    };
    if (none.reason !== null) { return none; }
    var ones = right(a.answers), others = right(b.answers), n = ones.length;
    var worse = ones.filter(function (is, i) { return is && !others[i]; }).length;
    var better = ones.filter(function (is, i) { return !is && others[i]; }).length;
    var low = -100 * upper(n, worse, better), high = 100 * upper(n, better, worse);
    return {
      task: b.setup["accuracy_gate.task"] + "-" + b.setup["accuracy_gate.shots"] + "shot", questions: n,
      baseline: 100 * ones.filter(Boolean).length / n, other: 100 * others.filter(Boolean).length / n,
      points: -100 * ((worse - better) / n), low: low, high: high, worse: worse, better: better,
      word: low > 0 ? "better" : high < 0 ? "worse" : "no difference shown", reason: null
    };
  }

  /* ---------- all of it */

  function value(setup, path) {
    return Object.prototype.hasOwnProperty.call(setup, path) ? setup[path] : null;
  }

  function pathsOf(setups) {
    var found = new Set();
    setups.forEach(function (setup) { Object.keys(setup).forEach(function (path) { found.add(path); }); });
    return Array.from(found);
  }

  function letter(index) { return String.fromCharCode(65 + index); }

  function pair(a, b, name) {
    var known = !a.quoted && !b.quoted, paths = known ? pathsOf([a.setup, b.setup]) : [], why = refused(a, b, name);
    var differing = paths.filter(function (path) { return !same(value(a.setup, path), value(b.setup, path)); });
    var found = why === null ? rowsOf(a, b, name).concat(latency(a, b)) : [];
    found = ORDER.reduce(function (sorted, group) {
      return sorted.concat(found.filter(function (each) { return each.group === group; }));
    }, []);
    var told = function (each) { return each.baseline !== null || each.other !== null || each.group === LATENCY; };
    var rows = found.filter(told);
    return {
      refused: why,
      differing: differing,
      unknown: paths.filter(function (path) {
        var none = a.setup[path] === "not recorded" && b.setup[path] === "not recorded";
        return none && !(a.cpu && b.cpu && data.ofBoards.indexOf(path) >= 0);
      }),
      controlled: known && a.simulated === b.simulated && sameWindows(a, b) && differing.length === 1,
      rows: rows,
      absent: found.filter(function (each) { return !told(each); }).map(function (each) { return [each.label, each.reason]; }),
      cards: cardsOf(a, b, rows, why),
      accuracy: accuracyOf(a, b, name)
    };
  }

  function compare(details) {
    var recorded = details.filter(function (detail) { return !detail.quoted; }).map(function (d) { return d.setup; });
    var paths = pathsOf(recorded), equal = paths.filter(function (path) {
      return recorded.every(function (setup) { return same(value(setup, path), value(recorded[0], path)); });
    });
    return {
      fields: paths.filter(function (path) { return equal.indexOf(path) < 0; }).map(function (path) {
        return { path: path, values: details.map(function (detail) { return value(detail.setup, path); }) };
      }),
      equal: equal,
      pairs: details.slice(1).map(function (detail, i) { return pair(details[0], detail, letter(i + 1)); })
    };
  }

  globalThis.TokenwattComparison = { compare: compare, letter: letter, same: same };
})();
