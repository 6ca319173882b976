/* The page "What should I run": takes the reader's load and prices, and lists what measured configurations need. Every
   choice is in the address. */
(function () {
  "use strict";

  var known = globalThis.TokenwattCatalogue, sizing = globalThis.TokenwattSizing;
  var root = document.getElementById("plan"), MOST_ROWS = 50, MOST_OUT = 100;
  if (!root || !known || !sizing || !known.rows.length) { return; }

  var told = JSON.parse(root.dataset.plan), form = part("form"), sections, remembered = {}, priced = null, shown = MOST_ROWS, begun = false;
  var PRICES = { price: true, card: true, grid: true, pue: true, currency: true };

  function part(id) { return document.getElementById("plan-" + id); }

  function make(tag, words, name) {
    var made = document.createElement(tag);
    if (words !== undefined && words !== null) { made.textContent = words; }
    if (name) { made.className = name; }
    return made;
  }

  function controls() { return Array.prototype.slice.call(root.querySelectorAll("[data-key]")); }

  function counted(n, one) { return n.toLocaleString("en-US") + " " + one + (n === 1 ? "" : "s"); }

  /* Three digits, or all before the point. */
  function written(value) {
    if (value === 0) { return "0"; }
    var digits = Math.max(0, Math.min(12, 2 - Math.floor(Math.log10(Math.abs(value)))));
    return Number(value.toFixed(digits)).toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  }

  function whole(value) { return value.toLocaleString("en-US"); }
  function percent(value) { return (100 * value).toFixed(0) + "%"; }
  function money(value) { return value >= 0.1 && value < 100 ? value.toFixed(2) : written(value); }

  /* ---------- what may be asked ---------- */

  function workloadId(section) { return section.workload + "." + section.workload_hash.replace(/^sha256:/, "").slice(0, 8); }

  function sloId(section) {
    return section.objectives.map(function (o) { return [o.metric, o.quantile, o.limit_ms].join("-"); }).join("_");
  }

  function limit(ms) { return ms >= 1000 ? ms / 1000 + " s" : ms + " ms"; }

  function sloWords(section) {
    return section.objectives.map(function (o) {
      return o.metric.toUpperCase() + " p" + Number((100 * o.quantile).toPrecision(12)) + " ≤ " + limit(o.limit_ms);
    }).join(" and ");
  }

  function options(select, found) {
    select.replaceChildren.apply(select, found.map(function (one) {
      var option = make("option", one[1]);
      option.value = one[0];
      return option;
    }));
  }

  function distinct(sections, id, words) {
    var seen = {};
    return sections.filter(function (section) {
      return Object.prototype.hasOwnProperty.call(seen, id(section)) ? false : (seen[id(section)] = true);
    }).map(function (section) { return [id(section), words(section)]; });
  }

  /* The first question that has an answer comes first. */
  function ordering() {
    var answered = known.rows.filter(function (row) {
      var section = known.sections[row.section];
      return !sizing.whyOut(row, section, { workload: section.workload, hash: section.workload_hash, slo: section.objectives }, told);
    }).map(function (row) { return row.section; });
    var first = known.sections.filter(function (section, index) { return answered.indexOf(index) >= 0; })[0];
    return known.sections.slice().sort(function (a, b) { return (b === first) - (a === first); });
  }

  function workloadWords(section) {
    var twice = sections.some(function (one) { return one.workload === section.workload && one.workload_hash !== section.workload_hash; });
    return section.workload + (twice ? " (" + workloadId(section).slice(-8) + ")" : "");
  }

  function ofWorkload() {
    return sections.filter(function (section) { return workloadId(section) === part("workload").value; });
  }

  function offerSlos() {
    var before = part("slo").value, slos = distinct(ofWorkload(), sloId, sloWords);
    options(part("slo"), slos);
    if (slos.some(function (one) { return one[0] === before; })) { part("slo").value = before; }
    part("workload-told").textContent = lengths();
  }

  /* How long its requests are on average, from any row that tells. */
  function lengths() {
    var mine = ofWorkload(), row = known.rows.filter(function (one) {
      var cells = one.cells;
      return mine.indexOf(known.sections[one.section]) >= 0 && cells.boundary_rate.value !== null
        && cells.goodput.value !== null && cells.input_throughput && cells.input_throughput.value !== null;
    })[0];
    if (!row) { return ""; }
    var rate = row.cells.boundary_rate.value;
    return "A request: " + whole(Math.round(row.cells.input_throughput.value / rate)) + " tokens in and "
      + whole(Math.round(row.cells.goodput.value / rate)) + " out on average. Yours should be like it.";
  }

  function aim(unit) {
    var load = told.loads[unit], field = part("load");
    field.min = load[1];
    field.max = load[2];
    field.value = remembered[unit] || load[3];
    field.dataset.default = load[3];
    part("load-unit").textContent = load[0] + ", " + load[1].toLocaleString("en-US") + " to " + load[2].toLocaleString("en-US");
  }

  /* ---------- what is asked ---------- */

  function complaint(field) {
    var least = Number(field.min), most = Number(field.max), value = Number(field.value);
    if (field.validity.badInput) { return "This is no number."; }
    if (field.value === "") { return field.required ? "A number is needed, such as " + field.dataset.default + "." : ""; }
    if (!(value >= least && value <= most)) {
      return "From " + least.toLocaleString("en-US", { maximumFractionDigits: 3 }) + " to " + most.toLocaleString("en-US") + ".";
    }
    return "";
  }

  /* Says at each field what is wrong with it. */
  function checked() {
    var wrong = 0;
    root.querySelectorAll("input[type=number]").forEach(function (field) {
      var words = complaint(field), at = document.getElementById(field.id + "-error");
      if (at.textContent !== words) { at.textContent = words; }
      if (words) { field.setAttribute("aria-invalid", "true"); wrong++; } else { field.removeAttribute("aria-invalid"); }
    });
    return wrong;
  }

  function given(id) { return part(id).value === "" ? null : Number(part(id).value); }

  function asked() {
    var section = ofWorkload().filter(function (one) { return sloId(one) === part("slo").value; })[0];
    var kinds = {};
    root.querySelectorAll("[data-accelerator]").forEach(function (field) {
      if (field.value !== "") { kinds[field.dataset.accelerator] = Number(field.value); }
    });
    return {
      workload: section.workload, hash: section.workload_hash, slo: section.objectives, id: sloId(section),
      load: given("load"), per_day: part("unit").value === "tokens", peak: given("peak"), headroom: given("headroom"),
      hours: given("hours"), pue: given("pue"), per_kwh: given("price"), per_card_hour: given("card"), g_per_kwh: given("grid"),
      kinds: kinds
    };
  }

  function priceOf(ask, row) {
    var kind = row.facets.accelerator;
    var own = Object.prototype.hasOwnProperty.call(ask.kinds, kind) ? ask.kinds[kind] : ask.per_card_hour;
    return Object.assign({}, ask, { per_card_hour: own });
  }

  /* Returns groups of rows that answer, in order, and those that do not with the reason. */
  function answers(ask) {
    var groups = {}, out = [];
    known.rows.forEach(function (row) {
      var section = known.sections[row.section], why = sizing.whyOut(row, section, ask, told);
      if (why) { out.push({ row: row, why: why }); return; }
      var offered = sizing.offer(row), answer = sizing.size(priceOf(ask, row), offered);
      var apart = row.excluded.length > 0 || !offered.corrected;
      var id = [apart ? 1 : 0, section.cpu ? 1 : 0, section.power_scope].join(" ");
      (groups[id] = groups[id] || { id: id, apart: apart, section: section, rows: [] }).rows.push({
        row: row, section: section, offered: offered, answer: answer
      });
    });
    return { groups: Object.keys(groups).sort().map(function (id) { return groups[id]; }), out: out };
  }

  var SORTED = { cards: "cards", watts: "watts", money: "money_day" };

  function figure(one) { return one.answer.figures[SORTED[part("sort").value]]; }

  function ordered(rows) {
    return rows.sort(function (a, b) {
      var x = figure(a), y = figure(b);
      if (!x || !y) { return (x ? 0 : 1) - (y ? 0 : 1) || (a.row.title < b.row.title ? -1 : 1); }
      return x.value - y.value || (x.high || x.value) - (y.high || y.value) || (a.row.title < b.row.title ? -1 : 1);
    });
  }

  /* ---------- what is shown ---------- */

  function range(number, words) {
    var low = number.low === null ? null : words(number.low), high = number.high === null ? null : words(number.high);
    return low === null || high === null || low === high ? words(number.value) : low + " to " + high;
  }

  function cell(number, words, notes, missing) {
    var made = make("td", null, "n");
    if (number) {
      made.textContent = range(number, words);
      (notes || []).forEach(function (note) { if (note) { made.append(make("small", note)); } });
    } else {
      made.append(make("span", missing, "tw-none"));
    }
    return made;
  }

  function unit(section, n) { return counted(n, section.cpu ? "machine" : "card").replace(/^\S+ /, ""); }

  function middle(number, words) {
    return number.low === null || words(number.low) === words(number.high) ? "" : words(number.value) + " by the mean";
  }

  function unsure(one) {
    var capacity = one.offered.rate, n = one.row.cells.goodput.n;
    if (capacity.low === null) { return "n = " + n + ": no interval"; }
    return n < 3 ? "n = 2: a range" : "";
  }

  function titled(one) {
    var made = make("th"), link = make("a", one.row.title), facets = one.row.facets;
    made.scope = "row";
    link.href = told.root + "/" + one.row.url;
    made.append(link, make("small", [one.section.cpu ? "CPU" : one.row.cards + "× " + facets.accelerator, facets.version].join(" · ")));
    var marks = one.row.excluded.map(function (why) { return why[2] || why[1]; });
    if (!one.offered.corrected && !one.row.excluded.some(function (why) { return why[0] === "long-run"; })) {
      marks.push("not corrected to the long run");
    }
    if (sloId(one.section) !== part("slo").value) { marks.push("measured with " + sloWords(one.section)); }
    if (marks.length) {
      var tags = make("small", null, "tw-tags");
      marks.forEach(function (mark) { tags.append(make("span", mark, "tw-tag"), " "); });
      made.append(tags);
    }
    return made;
  }

  function columns(ask) {
    var counts = ask.per_kwh !== null || ask.per_card_hour !== null || Object.keys(ask.kinds).length > 0;
    var currency = part("currency").value.trim() || "money";
    var none = "power not measured", unpriced = function (one) {
      return ask.per_kwh !== null && !one.answer.figures.watts ? none : "no price given";
    };
    function plain(key, words) {
      return function (one) { return cell(one.answer.figures[key], words, [], unpriced(one)); };
    }
    return [
      ["Takes", function (one) {
        var f = one.answer.figures, made = cell(f.cards, whole, [
          one.section.cpu || one.offered.cards === 1 ? "" : range(f.setups, whole) + " × a setup of " + one.offered.cards,
          middle(f.cards, whole), unsure(one)
        ]);
        made.className += " tw-v";
        made.firstChild.textContent += " " + unit(one.section, f.cards.high || f.cards.value);
        return made;
      }],
      ["Watts,\nmean", function (one) {
        var f = one.answer.figures;
        return cell(f.watts, written, [
          one.answer.linear ? "on a line from idle" : "all at the boundary",
          one.answer.linear ? "at most " + range(f.full_watts, written) : ""
        ], none);
      }],
      ["kWh\na day", function (one) { return cell(one.answer.figures.kwh_day, written, [], none); }]
    ].concat(counts ? [
      [currency + "\na day", function (one) {
        var f = one.answer.figures, parts = f.electricity_day && f.cards_day
          ? [money(f.cards_day.value) + " cards", money(f.electricity_day.value) + " electricity"] : [];
        return cell(f.money_day, money, parts, unpriced(one));
      }],
      [currency + "\na month", plain("money_month", money)],
      [currency + " per\nM output tok", plain("per_million", money)]
    ] : [], ask.g_per_kwh !== null ? [
      ["kgCO2\na day", function (one) { return cell(one.answer.figures.co2_day, written, [], none); }]
    ] : [], [
      ["Busy at\nthe mean", function (one) { return cell(one.answer.utilisation, percent, []); }]
    ]);
  }

  function headOf(group) {
    var scope = told.scopes[group.section.power_scope], words = group.apart ? "Apart, marked: less sure" : "May rank, long run";
    return words + (group.section.cpu ? " · on CPUs" : "") + " · " + (scope ? "watts of " + scope : "power not measured");
  }

  function table(ask, groups) {
    var made = make("table", null, "tw-table tw-lb tw-plan-table"), shape = columns(ask), left = shown;
    var caption = make("caption"), head = make("thead"), line = make("tr"), first = make("th", "Configuration", "tw-pin");
    caption.append(make("span", "Whole setups for " + loadWords(ask) + ", by " + part("sort").selectedOptions[0].textContent
      + ", fewest first in each group. Watts of one group are not those of another."));
    first.scope = "col";
    line.append(first);
    shape.forEach(function (column) {
      var th = make("th", null, "n");
      th.scope = "col";
      column[0].split("\n").forEach(function (words, i) { if (i) { th.append(make("br")); } th.append(words); });
      line.append(th);
    });
    head.append(line);
    made.append(caption, head);
    groups.forEach(function (group) {
      var body = make("tbody"), row = make("tr"), th = make("th", headOf(group));
      if (left <= 0) { return; }
      th.scope = "rowgroup";
      th.colSpan = shape.length + 1;
      row.append(th);
      body.append(row);
      group.rows.slice(0, left).forEach(function (one) {
        var tr = make("tr");
        tr.append(titled(one));
        shape.forEach(function (column) { tr.append(column[1](one)); });
        body.append(tr);
      });
      left -= group.rows.length;
      made.append(body);
    });
    return made;
  }

  function loadWords(ask) {
    var load = part("load").value, unitWords = told.loads[part("unit").value][0];
    return Number(load).toLocaleString("en-US", { maximumFractionDigits: 6 }) + " " + unitWords + " on average, peaks × " + ask.peak
      + ", " + ask.headroom + "% headroom";
  }

  function verdict(groups) {
    var by = SORTED[part("sort").value];
    var group = groups.filter(function (one) { return one.rows.some(figure); })[0] || groups[0];
    if (!group) { return "No measured configuration answers this. The reasons are below."; }
    var best = group.rows[0], f = best.answer.figures, mine = figure(best);
    var cards = range(f.cards, whole) + " " + (best.section.cpu ? unit(best.section, f.cards.high || f.cards.value) : "× " + best.row.facets.accelerator);
    var words = best.row.title + ": " + cards;
    if (f.watts) { words += ", " + range(f.watts, written) + " W on average"; }
    if (f.money_day) { words += ", " + range(f.money_day, money) + " " + (part("currency").value.trim() || "money") + " a day"; }
    if (group.apart) { words += ". It is marked: see its tags"; }
    if (!mine) { return words + ". No row has a number to sort by."; }
    var high = mine.high === null ? Infinity : mine.high;
    var close = group.rows.slice(1).filter(function (one) {
      var its = one.answer.figures[by];
      return its && (its.low === null ? -Infinity : its.low) <= high;
    }).length;
    return words + "." + (close ? " Of its group " + counted(close, "other") + " cannot be told from it by " + part("sort").selectedOptions[0].textContent + "." : "");
  }

  function listOut(out) {
    var counts = {}, details = part("out"), body = details.querySelector("tbody");
    out.forEach(function (one) { counts[one.why[0]] = (counts[one.why[0]] || 0) + 1; });
    details.hidden = !out.length;
    details.querySelector("summary").textContent = counted(out.length, "configuration") + (out.length === 1 ? " does" : " do") + " not answer, and why";
    details.querySelector("ul").replaceChildren.apply(details.querySelector("ul"), Object.keys(told.out).filter(function (code) {
      return counts[code];
    }).map(function (code) { return make("li", told.out[code] + ": " + whole(counts[code])); }));
    body.replaceChildren.apply(body, out.slice(0, MOST_OUT).map(function (one) {
      var tr = make("tr"), th = make("th"), link = make("a", one.row.title);
      th.scope = "row";
      link.href = told.root + "/" + one.row.url;
      th.append(link);
      tr.append(th, make("td", told.out[one.why[0]] + (one.why[1] ? ": " + one.why[1] : "")));
      return tr;
    }));
    part("out-more").textContent = out.length > MOST_OUT ? "The first " + MOST_OUT + " are listed; all are counted." : "";
  }

  function show() {
    var area = part("answer"), wrong = checked();
    part("sorting").hidden = wrong > 0;
    if (wrong) {
      area.replaceChildren();
      part("out").hidden = true;
      part("verdict").textContent = "Mend " + counted(wrong, "field") + " above, then there is an answer.";
      return;
    }
    var ask = asked(), found = answers(ask), total = 0;
    found.groups.forEach(function (group) { ordered(group.rows); total += group.rows.length; });
    part("verdict").textContent = verdict(found.groups);
    part("sorting").hidden = !total;
    area.replaceChildren();
    if (total) {
      var region = make("div", null, "tw-scroll tw-lb-scroll");
      region.tabIndex = 0;
      region.setAttribute("role", "region");
      region.setAttribute("aria-label", "What each configuration takes, scrolls sideways on small screens");
      region.append(table(ask, found.groups));
      area.append(region);
    }
    if (total > shown) {
      var more = make("button", "Show " + whole(Math.min(MOST_ROWS, total - shown)) + " more of " + whole(total), "tw-btn");
      more.type = "button";
      more.addEventListener("click", function () { shown += MOST_ROWS; show(); });
      area.append(more);
    }
    if (total) { area.append(make("p", footnote(ask), "tw-small")); }
    listOut(found.out);
  }

  function footnote(ask) {
    var any = ask.per_kwh !== null || ask.per_card_hour !== null || Object.keys(ask.kinds).length > 0;
    return "Power was measured at the boundary only; what these draw at part load is an assumption, told in each row. "
      + (any ? priced ? "Prices are yours, entered on " + priced + "." : "Prices are those of the fields; when they were entered is not in the address."
        : "Give a price for money.");
  }

  /* ---------- the address ---------- */

  function today() {
    var now = new Date();
    return [now.getFullYear(), String(now.getMonth() + 1).padStart(2, "0"), String(now.getDate()).padStart(2, "0")].join("-");
  }

  function keep() {
    var state = new URLSearchParams();
    controls().forEach(function (control) {
      if (control.value !== "" || control.dataset.default) { state.set(control.dataset.key, control.value); }
    });
    if (priced) { state.set("priced", priced); }
    history.replaceState(null, "", "#" + state.toString());
  }

  function notice(lines) {
    part("notice").replaceChildren.apply(part("notice"), lines.map(function (line) {
      var p = make("p", null, "tw-notice");
      p.append(make("span", line));
      return p;
    }));
  }

  function quoted(text) { return "“" + (text.length > 60 ? text.slice(0, 60) + "…" : text) + "”"; }

  /* Sets a control to what the address says, and returns what is wrong with that; empty: nothing. */
  function put(control, value) {
    if (control.tagName === "SELECT") {
      if (!Array.prototype.some.call(control.options, function (option) { return option.value === value; })) {
        return "The address asks for " + control.dataset.key + " " + quoted(value) + ", which is not here; "
          + (control.selectedOptions[0] ? control.selectedOptions[0].textContent : "nothing") + " is shown.";
      }
      control.value = value;
    } else if (control.type === "number") {
      if (value === "" && !control.required) { control.value = ""; return ""; }
      if (value.trim() === "" || !isFinite(Number(value))) {
        return "The address gives " + quoted(value) + " for " + control.dataset.key + ", which is no number; "
          + (control.value === "" ? "none" : control.value) + " is taken.";
      }
      control.value = String(Number(value));
    } else {
      control.value = value.slice(0, control.maxLength);
    }
    return "";
  }

  function restore() {
    var hash = location.hash.slice(1), state = new URLSearchParams(hash), wrong = [], byKey = {};
    // A place on the page is no choice; and none is one, too.
    if (hash && hash.indexOf("=") < 0) {
      if (begun) { return; }
      state = new URLSearchParams();
    }
    begun = true;
    priced = null;
    remembered = {};
    controls().forEach(function (control) { byKey[control.dataset.key] = control; });
    function take(key) {
      if (!state.has(key)) { return; }
      var words = put(byKey[key], state.get(key));
      if (words) { wrong.push(words); }
    }
    controls().forEach(function (control) {
      if (control.tagName === "SELECT") { control.selectedIndex = 0; } else { control.value = control.dataset.default; }
    });
    // What one choice offers depends on those before it.
    take("workload");
    offerSlos();
    part("slo").selectedIndex = 0;
    take("slo");
    take("unit");
    aim(part("unit").value);
    Object.keys(byKey).forEach(function (key) {
      if (["workload", "slo", "unit"].indexOf(key) < 0) { take(key); }
    });
    state.forEach(function (value, key) {
      if (key === "priced") {
        if (/^\d{4}-\d\d-\d\d$/.test(value)) { priced = value; } else { wrong.push("The address gives no date for its prices."); }
      } else if (!Object.prototype.hasOwnProperty.call(byKey, key)) {
        wrong.push("The address asks for " + quoted(key) + ", which this page does not know.");
      }
    });
    notice(wrong);
    shown = MOST_ROWS;
    show();
  }

  function changed(event) {
    var control = event.target, key = control.dataset.key;
    if (!key) { return; }
    if (key === "workload") { offerSlos(); }
    if (key === "load") { remembered[part("unit").value] = control.value; }
    if (key === "unit") { aim(control.value); }
    if (PRICES[key.split(".")[0]] === true) { priced = today(); }
    shown = MOST_ROWS;
    notice([]);
    keep();
    show();
  }

  sections = ordering();
  options(part("workload"), distinct(sections, workloadId, workloadWords));
  form.hidden = false;
  root.addEventListener("input", changed);
  form.addEventListener("submit", function (event) { event.preventDefault(); });
  addEventListener("hashchange", restore);
  restore();
})();
