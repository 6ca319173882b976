/* Energy of a window from power samples, board by board, as tokenwatt_site/energy/window.py and claims/energy.py make it. What
   is only said of a number (warnings, "not reconciled") is not made again here; what leaves none is. Knows no page. */
(function (scope) {
  "use strict";

  var trials = scope.TokenwattTrials;
  var WITHHELD = "withheld", INVALID = "INVALID", MAX_GAP_PERIODS = 3;
  var INVALID_ABOVE_LIMIT = 1.2, INVALID_BELOW_IDLE = 0.95, MAX_AVERAGING_SHARE = 0.1;

  /* The first place in an ascending list that is at least, or with `after` above, a value. */
  function place(list, value, after) {
    var low = 0, high = list.length;
    while (low < high) {
      var middle = (low + high) >> 1;
      if (list[middle] < value || (after && list[middle] === value)) { low = middle + 1; } else { high = middle; }
    }
    return low;
  }

  /* Of a series {at, value} the part from the last sample before a window to the first after it; empty: it does not enclose it. */
  function around(series, start, end) {
    var first = place(series.at, start, true) - 1, last = place(series.at, end, false);
    var encloses = first >= 0 && first < last && last < series.at.length;
    return {
      at: encloses ? series.at.slice(first, last + 1) : [], value: encloses ? series.value.slice(first, last + 1) : []
    };
  }

  function valueAt(series, at) {
    var after = Math.max(1, place(series.at, at, false)), a = series.at[after - 1], b = series.at[after];
    var p = series.value[after - 1], q = series.value[after];
    return b > a ? p + (q - p) * (at - a) / (b - a) : q;
  }

  function widestEdge(series) {
    var n = series.at.length;
    return Math.max(series.at[1] - series.at[0], series.at[n - 1] - series.at[n - 2]);
  }

  function picked(board, from, to, name, delay) {
    var made = { at: [], value: [] };
    for (var i = from; i < to; i++) {
      if (board[name][i] === board[name][i]) { made.at.push(board.at[i] - delay); made.value.push(board[name][i]); }
    }
    return made;
  }

  /* What a counter grew by; null: it cannot be used; words: it leaves no energy at all. */
  function byCounter(counter, byPower, start, end, maxGap) {
    var near = around(counter, start, end);
    for (var i = 1; i < near.value.length; i++) { if (near.value[i] < near.value[i - 1]) { return INVALID; } }
    if (!near.at.length || widestEdge(near) > maxGap) { return null; }
    if (near.value[0] === near.value[near.value.length - 1]) { return byPower ? null : 0; }
    // A value that is read again says nothing new of the time between.
    var moved = { at: [], value: [] }, n = counter.at.length;
    for (i = 0; i < n; i++) {
      if (i === 0 || counter.value[i] !== counter.value[i - 1] || i === n - 1) {
        moved.at.push(counter.at[i]);
        moved.value.push(counter.value[i]);
      }
    }
    near = around(moved, start, end);
    if (!near.at.length || widestEdge(near) > maxGap) { return WITHHELD; }
    return valueAt(near, end) - valueAt(near, start);
  }

  /* The integral of the watts in mJ; null: there is none. */
  function byPower(power, start, end, maxGap, averaging) {
    if (averaging && averaging > MAX_AVERAGING_SHARE * (end - start)) { return null; }
    var near = around(power, start, end), n = near.at.length, sum = 0;
    for (var i = 1; i < n; i++) { if (near.at[i] - near.at[i - 1] > maxGap) { return null; } }
    if (!n) { return null; }
    var at = [start].concat(near.at.slice(1, -1), [end]);
    var mw = [valueAt(near, start)].concat(near.value.slice(1, -1), [valueAt(near, end)]);
    for (i = 1; i < at.length; i++) { sum += (at[i] - at[i - 1]) * (mw[i - 1] + mw[i]) / 2; }
    return sum / 1e9;
  }

  /* Energy of one board in [start, end], in mJ, or the word for why there is none. */
  function boardEnergy(log, number, start, end) {
    var board = log.samples[number], maxGap = MAX_GAP_PERIODS * log.periodNs, averaging = log.averagingNs || 0;
    var from = Math.max(place(board.at, start - maxGap - averaging, false) - 1, 0), to = place(board.at, end + maxGap + averaging, true);
    var integral = byPower(picked(board, from, to, "power", Math.floor(averaging / 2)), start, end, maxGap, averaging);
    var counted = byCounter(picked(board, from, to, "energy", 0), integral, start, end, maxGap);
    var energy = counted === null ? integral : counted;
    if (energy === INVALID || !(energy > 0)) { return energy === INVALID ? INVALID : WITHHELD; }
    // The limit that a driver enforces is of the GPU; the watts of a module have its processor in them.
    var limit = log.scope === "module" ? null : log.boards[number].limit_mw;
    return limit && energy * 1e9 / (end - start) / limit > INVALID_ABOVE_LIMIT ? INVALID : energy;
  }

  function boardEnergies(log, start, end) {
    return log.boards.map(function (_, number) { return boardEnergy(log, number, start, end); });
  }

  function isNumber(value) { return typeof value === "number"; }

  /* null: a part is missing. */
  function total(energies) {
    if (!energies.length || !energies.every(isNumber)) { return null; }
    return energies.reduce(function (sum, one) { return sum + one; }, 0);
  }

  /* Of each repeat {leastMw of each board, powerMw of all} without a request; from the last launch's idle lines. */
  function idleOf(log, journal) {
    var spans = new Map(), found = new Map();
    journal.forEach(function (line) {
      if (line.event === "launch") { spans.set(line.data.repeat, []); }
      if (line.event === "idle") {
        if (!(line.data.end_ns > line.data.start_ns)) { scope.TokenwattJson.refuse("journal line " + line.seq + " is no idle span"); }
        if (!spans.has(line.data.repeat)) { spans.set(line.data.repeat, []); }
        spans.get(line.data.repeat).push(line.data);
      }
    });
    spans.forEach(function (own, repeat) {
      if (!own.length) { return; }
      var read = own.map(function (span) {
        return boardEnergies(log, span.start_ns, span.end_ns).map(function (mj) {
          return isNumber(mj) ? mj * 1e9 / (span.end_ns - span.start_ns) : mj;
        });
      });
      var invalid = read.some(function (mw) { return mw.includes(INVALID); });
      var watts = invalid ? [] : read.map(total).filter(isNumber);
      var least = log.boards.map(function (_, board) {
        var told = read.map(function (mw) { return mw[board]; }).filter(isNumber);
        return told.length ? Math.min.apply(null, told) : null;
      });
      var mean = watts.length ? watts.reduce(function (sum, mw) { return sum + mw; }, 0) / watts.length : null;
      found.set(repeat, { leastMw: watts.length ? least : [], powerMw: mean });
    });
    return found;
  }

  /* Energy of a trial's window in mJ; null: a board has none, or drew less than it does without a request. */
  function windowEnergy(log, trial, idles) {
    var start = trial.epochNs + trial.window[0], end = trial.epochNs + trial.window[1], idle = idles.get(trial.repeat);
    return total(boardEnergies(log, start, end).map(function (mj, board) {
      var least = idle && idle.leastMw[board];
      return isNumber(mj) && least && mj * 1e9 / (end - start) / least < INVALID_BELOW_IDLE ? INVALID : mj;
    }));
  }

  /* Output tokens that arrived in [start, end]: the first event's at its time, the others evenly to the last. */
  function tokensInWindow(r, list, start, end) {
    var sum = 0;
    list.forEach(function (i) {
      var first = r.first[i], last = r.last[i], output = r.outputTokens[i];
      if (!trials.known(first) || !trials.known(last) || !trials.known(output)) { return; }
      var atFirst = r.firstTokens[i] || 1, span = last - first, inside = Math.min(last, end) - Math.max(first, start);
      if (start <= first && first <= end) { sum += span > 0 ? atFirst : output; }
      if (span > 0 && inside > 0) { sum += (output - atFirst) * inside / span; }
    });
    return sum;
  }

  /* Prompt tokens whose answer began in [start, end]. */
  function promptTokensInWindow(r, list, start, end) {
    return list.reduce(function (sum, i) {
      var prompt = trials.known(r.promptTokens[i]) ? r.promptTokens[i] : r.promptAsked[i];
      return start <= r.first[i] && r.first[i] <= end ? sum + prompt : sum;
    }, 0);
  }

  scope.TokenwattEnergy = {
    idleOf: idleOf, windowEnergy: windowEnergy, tokensInWindow: tokensInWindow, promptTokensInWindow: promptTokensInWindow
  };
})(globalThis);
