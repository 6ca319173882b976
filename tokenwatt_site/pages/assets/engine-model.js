/* The engine model of tokenwatt_site/engine_model, to the same bits: integers only, each below 2^53, where a double
   is exact; beyond that a RangeError, never a rounded number. Knows no page. */
(function (scope) {
  "use strict";

  var NONE = -1, LARGEST = Number.MAX_SAFE_INTEGER, HIGHEST_URPS = 100000000000, MOST_STEPS = 1000;
  var GAP_UNIT = 1048576n, EDGE_PPM = 500;

  function exact(value) {
    if (value > LARGEST) { throw new RangeError("beyond 2^53: " + value); }
    return value;
  }

  /* When rows come due, in ns. `elapsed` adds up the gaps, in 1/GAP_UNIT of the mean. */
  function dueNs(elapsed, rateUrps) {
    var due = new Float64Array(elapsed.length), divisor = BigInt(rateUrps) * GAP_UNIT;
    for (var i = 0; i < due.length; i++) {
      due[i] = exact(Number(BigInt(elapsed[i]) * 1000000000000000n / divisor));
    }
    return due;
  }

  function nones(n) { return new Int32Array(n).fill(NONE); }

  /* First and last token times, in ns, and how many were put back; the rules are in steps.py, line for line.
     prices: base, sequence, prompt token, context token, in ps. limits: token budget, most sequences, cache in
     tokens (0: all fit), 1 where prefill is first, replicas. */
  function serve(due, nIn, nOut, prices, limits) {
    var base = prices[0], perSequence = prices[1], perPrompt = prices[2], perContext = prices[3];
    var budget = limits[0], maxBatch = limits[1], kv = limits[2], isFirst = limits[3], replicas = limits[4];
    var n = due.length, longest = 0, i, k;
    for (i = 0; i < n; i++) { longest = Math.max(longest, nOut[i]); }
    var size = 1;
    while (size <= longest) { size *= 2; }
    var mask = size - 1;
    var first = new Float64Array(n).fill(NONE), last = new Float64Array(n).fill(NONE);
    var made = new Int32Array(n), begun = new Int32Array(n), nextWaiting = nones(n);
    var ring = nones(replicas * size), ringNext = nones(n), ringBefore = nones(n), older = nones(n), newer = nones(n);
    var freeAt = new Float64Array(replicas), head = nones(replicas), tail = nones(replicas), newest = nones(replicas);
    var waiting = new Int32Array(replicas), batch = new Int32Array(replicas), steps = new Int32Array(replicas);
    var context = new Float64Array(replicas), held = new Float64Array(replicas);
    var todo = new Float64Array(replicas).fill(NONE);
    var arrived = 0, ended = 0, putBack = 0, done = 0;
    while (ended < n) {
      var r = NONE, j;
      for (k = 0; k < replicas; k++) {
        if (batch[k] + waiting[k] > 0 && (r === NONE || freeAt[k] < freeAt[r])) { r = k; }
      }
      if (arrived < n && (r === NONE || due[arrived] <= freeAt[r])) {
        r = 0;
        for (k = 1; k < replicas; k++) {
          if (batch[k] + waiting[k] < batch[r] + waiting[r]) { r = k; }
        }
        if (batch[r] + waiting[r] === 0) { freeAt[r] = Math.max(freeAt[r], due[arrived]); }
        if (head[r] === NONE) { head[r] = arrived; } else { nextWaiting[tail[r]] = arrived; }
        tail[r] = arrived;
        waiting[r]++;
        arrived++;
        continue;
      }

      var prompt = 0, began = 0, fits = true, decodes;
      for (var phase = 0; phase < 2; phase++) {
        if (phase === isFirst) {
          decodes = batch[r] > 0 && !(isFirst === 1 && prompt > 0);
          while (kv > 0 && decodes && held[r] + batch[r] > kv) {
            if (todo[r] !== NONE) {
              held[r] -= nIn[head[r]] + made[head[r]];
              todo[r] = NONE;
            } else if (batch[r] > 1) {
              j = newest[r];
              made[j] += steps[r] - begun[j];
              context[r] -= nIn[j] + made[j];
              held[r] -= nIn[j] + made[j];
              batch[r]--;
              newest[r] = older[j];
              if (newest[r] !== NONE) { newer[newest[r]] = NONE; }
              var before = ringBefore[j], after = ringNext[j];
              if (before === NONE) {
                ring[r * size + ((steps[r] + nOut[j] - made[j]) & mask)] = after;
              } else {
                ringNext[before] = after;
              }
              if (after !== NONE) { ringBefore[after] = before; }
              nextWaiting[j] = head[r];
              if (head[r] === NONE) { tail[r] = j; }
              head[r] = j;
              waiting[r]++;
              putBack++;
            } else {
              break;
            }
            fits = false;
          }
        } else if (fits) {
          var room = isFirst === 1 ? budget : budget - batch[r], h = head[r];
          while (h !== NONE && room > 0 && batch[r] + began < maxBatch) {
            if (todo[r] === NONE) {
              var need = nIn[h] + made[h];
              if (kv > 0 && batch[r] + began > 0 && held[r] + batch[r] + need > kv) { break; }
              todo[r] = need;
              held[r] += need;
            }
            var taken = Math.min(room, todo[r]);
            room -= taken;
            prompt += taken;
            todo[r] -= taken;
            if (todo[r] > 0) { break; }
            todo[r] = NONE;
            began++;
            h = nextWaiting[h];
          }
        }
      }

      decodes = batch[r] > 0 && !(isFirst === 1 && prompt > 0);
      var cost = base + perPrompt * prompt;
      if (decodes) { cost += perSequence * batch[r] + perContext * context[r]; }
      // Terms are not negative, so a sum within 2^53 had exact parts; and below it a quotient by 1000 never rounds up
      // to an integer that it does not reach.
      freeAt[r] = exact(freeAt[r] + Math.max(1, Math.floor(exact(cost + 500) / 1000)));
      var now = freeAt[r];
      done++;
      if (done + putBack > MOST_STEPS * n) { throw new RangeError("more steps than a replay is given"); }

      if (decodes) {
        steps[r]++;
        context[r] += batch[r];
        held[r] += batch[r];
        j = ring[r * size + (steps[r] & mask)];
        ring[r * size + (steps[r] & mask)] = NONE;
        while (j !== NONE) {
          last[j] = now;
          ended++;
          batch[r]--;
          context[r] -= nIn[j] + nOut[j];
          held[r] -= nIn[j] + nOut[j];
          if (newer[j] === NONE) { newest[r] = older[j]; } else { older[newer[j]] = older[j]; }
          if (older[j] !== NONE) { newer[older[j]] = newer[j]; }
          j = ringNext[j];
        }
      }
      while (began > 0) {
        began--;
        j = head[r];
        head[r] = nextWaiting[j];
        waiting[r]--;
        made[j]++;
        if (first[j] === NONE) { first[j] = now; }
        if (made[j] === nOut[j]) {
          last[j] = now;
          ended++;
          held[r] -= nIn[j] + made[j] - 1;
          continue;
        }
        begun[j] = steps[r];
        batch[r]++;
        context[r] += nIn[j] + made[j];
        held[r]++;
        older[j] = newest[r];
        newer[j] = NONE;
        if (newest[r] !== NONE) { newer[newest[r]] = j; }
        newest[r] = j;
        var bucket = r * size + ((steps[r] + nOut[j] - made[j]) & mask);
        ringBefore[j] = NONE;
        ringNext[j] = ring[bucket];
        if (ring[bucket] !== NONE) { ringBefore[ring[bucket]] = j; }
        ring[bucket] = j;
      }
    }
    return { first: first, last: last, putBack: putBack };
  }

  /* Time per output token to the nearest ns, of two as near the even one; 0 where it is undefined. */
  function tpotNs(first, last, nOut) {
    if (nOut < 2) { return 0; }
    var span = last - first, steps = nOut - 1, below = Math.floor(span / steps), twice = 2 * (span - below * steps);
    return twice > steps || (twice === steps && below % 2 === 1) ? below + 1 : below;
  }

  /* ceil(q n), with q as the decimal that was written. */
  function rank(quantile, n) {
    var parts = /^(\d*)\.?(\d*)(?:e([+-]?\d+))?$/i.exec(String(quantile));
    if (!parts || !(parts[1] + parts[2])) { throw new RangeError("not a decimal: " + quantile); }
    var places = parts[2].length - Number(parts[3] || 0);
    var above = BigInt(parts[1] + parts[2]) * BigInt(n) * 10n ** BigInt(Math.max(-places, 0));
    var below = 10n ** BigInt(Math.max(places, 0));
    return Number((above + below - 1n) / below);
  }

  function passes(count, objective) {
    return count.n > 0 && count.misses <= count.n - rank(objective.quantile, count.n);
  }

  /* load: elapsed, nIn, nOut, scored [from, to). engine: prices, limits. */
  function play(engine, load, rateUrps) {
    var due = dueNs(load.elapsed, rateUrps);
    var served = serve(due, load.nIn, load.nOut, engine.prices, engine.limits);
    return { due: due, first: served.first, last: served.last, putBack: served.putBack };
  }

  /* For each row 1 where it misses the objective {metric, quantile, limitNs}; one that is undefined does not. */
  function missed(objective, played, nOut) {
    var found = new Uint8Array(nOut.length);
    for (var i = 0; i < found.length; i++) {
      var value = objective.metric === "ttft" ? played.first[i] - played.due[i]
        : objective.metric === "e2e" ? played.last[i] - played.due[i]
        : tpotNs(played.first[i], played.last[i], nOut[i]);
      found[i] = value > objective.limitNs ? 1 : 0;
    }
    return found;
  }

  /* Of each objective its misses among the scored rows, and for how many of them it is defined. */
  function counts(slo, played, nOut, scored) {
    return slo.map(function (objective) {
      var miss = missed(objective, played, nOut), count = { misses: 0, n: 0 };
      for (var i = scored[0]; i < scored[1]; i++) {
        count.n += objective.metric !== "tpot" || nOut[i] > 1 ? 1 : 0;
        count.misses += miss[i];
      }
      return count;
    });
  }

  function all(slo, found) {
    return found.every(function (count, i) { return passes(count, slo[i]); });
  }

  function holds(engine, load, rateUrps, slo) {
    return all(slo, counts(slo, play(engine, load, rateUrps), load.nOut, load.scored));
  }

  /* Windows of lengthNs that begin every stepNs of the scored time: which pass, as 0 and 1; see sliding.py. */
  function slidingWindows(slo, played, nOut, scored, lengthNs, stepNs) {
    var due = played.due, begin = due[scored[0]], end = due[scored[1] - 1], found = [];
    var sums = slo.map(function (objective) {
      var miss = missed(objective, played, nOut), misses = new Int32Array(due.length + 1);
      var n = new Int32Array(due.length + 1);
      for (var i = 0; i < due.length; i++) {
        misses[i + 1] = misses[i] + miss[i];
        n[i + 1] = n[i] + (objective.metric !== "tpot" || nOut[i] > 1 ? 1 : 0);
      }
      return { misses: misses, n: n };
    });
    var from = 0, to = 0;
    for (var at = begin; at + lengthNs <= end; at += stepNs) {
      while (due[from] < at) { from++; }
      while (due[to] < at + lengthNs) { to++; }
      found.push(all(slo, sums.map(function (sum) {
        return { misses: sum.misses[to] - sum.misses[from], n: sum.n[to] - sum.n[from] };
      })) ? 1 : 0);
    }
    return found;
  }

  function root(value) {
    if (value < 2n) { return value; }
    var guess = 1n << BigInt((value.toString(2).length + 1) >> 1), next = (guess + value / guess) >> 1n;
    while (next < guess) { guess = next; next = (guess + value / guess) >> 1n; }
    return guess;
  }

  /* The geometric mean of two rates, rounded down. */
  function between(low, high) { return Number(root(BigInt(low) * BigInt(high))); }

  /* The boundary nearest to a rate, as boundary.find_edges finds it, a play at a time: call the function that it
     returns until it gives {edges}, which are null where there are none. */
  function edgeFinder(engine, load, slo, nearUrps) {
    var low = Math.min(Math.max(nearUrps, 1), HIGHEST_URPS), high = low, step = 1.01, way = 0;
    return function () {
      var held;
      if (way === 0) {
        way = holds(engine, load, low, slo) ? 1 : -1;
        if (way === 1) {
          if (high === HIGHEST_URPS) { return { edges: null }; }
          high = Math.min(Math.ceil(high * step), HIGHEST_URPS);
        } else {
          if (low === 1) { return { edges: null }; }
          low = Math.max(Math.floor(low / step), 1);
        }
        step = Math.min(step * step, 2);
        return null;
      }
      if (way === 1) {
        held = holds(engine, load, high, slo);
        if (!held) { way = 2; } else {
          if (high === HIGHEST_URPS) { return { edges: null }; }
          low = high;
          high = Math.min(Math.ceil(high * step), HIGHEST_URPS);
          step = Math.min(step * step, 2);
        }
        return null;
      }
      if (way === -1) {
        held = holds(engine, load, low, slo);
        if (held) { way = 2; } else {
          if (low === 1) { return { edges: null }; }
          high = low;
          low = Math.max(Math.floor(low / step), 1);
          step = Math.min(step * step, 2);
        }
        return null;
      }
      if (high - low <= Math.max(1, Math.floor(low * EDGE_PPM / 1000000))) {
        return { edges: { passUrps: low, failUrps: high, boundaryUrps: between(low, high) } };
      }
      var middle = Math.min(Math.max(between(low, high), low + 1), high - 1);
      if (holds(engine, load, middle, slo)) { low = middle; } else { high = middle; }
      return null;
    };
  }

  scope.TokenwattEngine = {
    dueNs: dueNs, serve: serve, tpotNs: tpotNs, rank: rank, passes: passes, play: play, missed: missed,
    counts: counts, holds: holds, slidingWindows: slidingWindows, edgeFinder: edgeFinder, between: between
  };
})(globalThis);
