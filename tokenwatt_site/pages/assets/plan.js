/* The page "What should I run": what measured configurations take for what its fields ask. */
(function () {
  "use strict";

  var known = globalThis.TokenwattCatalogue, sizing = globalThis.TokenwattSizing, form = globalThis.TokenwattPlanForm;
  var MOST_ROWS = 50, MOST_OUT = 100, shown;
  if (!form) { return; }

  var told = form.told, part = form.part, make = form.make, counted = form.counted, whole = form.whole;

  /* Three digits, or all before the point. */
  function written(value) {
    if (value === 0) { return "0"; }
    var digits = Math.max(0, Math.min(12, 2 - Math.floor(Math.log10(Math.abs(value)))));
    return Number(value.toFixed(digits)).toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  }

  function percent(value) { return (100 * value).toFixed(0) + "%"; }
  function money(value) { return value >= 0.1 && value < 100 ? value.toFixed(2) : written(value); }

  /* ---------- who answers ---------- */

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
    if (form.sloId(one.section) !== part("slo").value) { marks.push("measured with " + form.sloWords(one.section)); }
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
    var none = "not known", unpriced = function (one) {
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
        ], "power not measured");
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
    var area = part("answer"), wrong = form.checked();
    part("sorting").hidden = wrong > 0;
    if (wrong) {
      area.replaceChildren();
      part("out").hidden = true;
      part("verdict").textContent = "Mend " + counted(wrong, "field") + " above, then there is an answer.";
      return;
    }
    var ask = form.asked(), found = answers(ask), total = 0;
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
    var priced = form.priced(), any = ask.per_kwh !== null || ask.per_card_hour !== null || Object.keys(ask.kinds).length > 0;
    return "Power was measured at the boundary only; what these draw at part load is an assumption, told in each row. "
      + (any ? priced ? "Prices are yours, entered on " + priced + "." : "Prices are those of the fields; when they were entered is not in the address."
        : "Give a price for money.");
  }

  form.begin(function () {
    shown = MOST_ROWS;
    show();
  });
})();
