/* What a load takes of a measured configuration: the formulas of pages/sizing.py, operation for operation. Pure. */
(function () {
  "use strict";

  var SLACK = 1e-12, DAYS_A_MONTH = 365 / 12;

  function number(row, key) {
    var cell = row.cells[key];
    return cell && cell.value !== null ? cell : null;
  }

  function offer(row) {
    var corrected = number(row, "long_run_goodput") !== null && number(row, "long_run_rate") !== null;
    return {
      cards: row.cards || 1,
      rate: number(row, corrected ? "long_run_rate" : "boundary_rate"),
      goodput: number(row, corrected ? "long_run_goodput" : "goodput"),
      corrected: corrected,
      measuredRate: number(row, "boundary_rate"),
      measuredGoodput: number(row, "goodput"),
      power: number(row, "board_power"),
      idle: number(row, "idle_power")
    };
  }

  function wattsOf(load, setups, measured, power, idle) {
    if (power === null) { return null; }
    var floor = idle === null ? power : Math.min(idle, power);
    return setups * floor + (power - floor) * Math.min(setups, load.mean / measured);
  }

  function figures(ask, load, capacity, measured, power, idle) {
    var setups = Math.max(1, Math.ceil(load.need / capacity * (1 - SLACK))), cards = setups * load.cards;
    var watts = wattsOf(load, setups, measured, power, idle);
    var kwh = watts === null ? null : watts * ask.hours * ask.pue / 1000;
    var electricity = kwh === null || ask.per_kwh === null ? null : kwh * ask.per_kwh;
    var rent = ask.per_card_hour === null ? null : cards * ask.hours * ask.per_card_hour;
    var money = electricity === null ? rent : rent === null ? electricity : electricity + rent;
    if (ask.per_kwh !== null && electricity === null) { money = null; }
    return {
      setups: setups,
      cards: cards,
      watts: watts,
      full_watts: power === null ? null : setups * power,
      kwh_day: kwh,
      electricity_day: electricity,
      cards_day: rent,
      money_day: money,
      money_month: money === null ? null : money * DAYS_A_MONTH,
      per_million: money === null ? null : money / load.tokens * 1e6,
      co2_day: kwh === null || ask.g_per_kwh === null ? null : kwh * ask.g_per_kwh / 1000
    };
  }

  function sure(power) { return power === null || (power.low !== null && power.high !== null); }

  function at(power, end) { return power === null ? null : power[end]; }

  /* Returns what the load takes; null: the configuration has no boundary. */
  function size(ask, offered) {
    var capacity = ask.per_day ? offered.goodput : offered.rate;
    var measured = (ask.per_day ? offered.measuredGoodput : offered.measuredRate) || capacity;
    if (offered.rate === null || offered.goodput === null) { return null; }
    var seconds = 3600 * ask.hours, mean = ask.per_day ? ask.load / seconds : ask.load;
    var perRequest = offered.goodput.value / offered.rate.value;
    var load = {
      mean: mean, need: mean * ask.peak * (1 + ask.headroom / 100), cards: offered.cards,
      tokens: ask.per_day ? ask.load : ask.load * seconds * perRequest
    };
    var power = offered.power, idle = offered.idle, low = {}, high = {};
    var middle = figures(ask, load, capacity.value, measured.value, at(power, "value"), at(idle, "value"));
    if (capacity.low !== null && capacity.high !== null) {
      var known = sure(power) && sure(idle);
      low = figures(ask, load, capacity.high, measured.high || measured.value, known ? at(power, "low") : null, known ? at(idle, "low") : null);
      high = figures(ask, load, capacity.low, measured.low || measured.value, known ? at(power, "high") : null, known ? at(idle, "high") : null);
    }
    var found = {};
    Object.keys(middle).forEach(function (key) {
      found[key] = middle[key] === null ? null : {
        value: middle[key], low: key in low ? low[key] : null, high: key in high ? high[key] : null
      };
    });
    return {
      figures: found,
      utilisation: {
        value: mean / (middle.setups * capacity.value),
        low: capacity.high === null ? null : mean / (middle.setups * capacity.high),
        high: capacity.low === null ? null : mean / (middle.setups * capacity.low)
      },
      tokens_day: load.tokens,
      linear: power !== null && idle !== null
    };
  }

  /* Returns [code, sentence] of why a configuration does not answer; null: it does. */
  function whyOut(row, section, asked, policy) {
    if (section.workload !== asked.workload || section.workload_hash !== asked.hash) {
      return ["workload", "measured with " + section.workload];
    }
    var measured = "measured with " + section.slo.join(" and "), looser = false, missing = false;
    asked.slo.forEach(function (objective) {
      var same = section.objectives.filter(function (one) {
        return one.metric === objective.metric && one.quantile === objective.quantile;
      })[0];
      if (!same) { missing = true; } else if (same.limit_ms > objective.limit_ms) { looser = true; }
    });
    if (missing || looser) { return [missing ? "objectives" : "looser", measured]; }
    var barred = row.excluded.filter(function (why) {
      return policy.barred.indexOf(why[0]) >= 0 || (why[0] === "accuracy" && (why.length < 3 || policy.gates.indexOf(why[2]) >= 0));
    })[0];
    if (barred) { return [barred[0], barred[1]]; }
    var offered = offer(row);
    return offered.rate === null || offered.goodput === null ? ["boundary", row.cells.goodput.reason] : null;
  }

  globalThis.TokenwattSizing = { offer: offer, size: size, whyOut: whyOut };
})();
