/* Which rows of the catalogue a reader sees, and in which order: pure, from the choices in the address.
   Choices are a URLSearchParams. What it holds and nobody knows stays in it, and is told. */
(function () {
  "use strict";

  var known = globalThis.TokenwattCatalogue;
  if (!known) { return; }
  var rows = known.rows;

  var BEST = ["accelerator", "engine", "model"];
  var PLAIN = [
    { key: "rank", label: "Rank", better: "lower", kind: "rank" },
    { key: "configuration", label: "Configuration", better: "lower", kind: "text" },
    { key: "n", label: "n, launches", short: "n", unit: "launches", better: "higher", kind: "plain" },
    { key: "measured", label: "Measured", better: "higher", kind: "text" },
    { key: "cards", label: "Cards, whole setup", short: "Cards", better: "lower", kind: "plain" },
  ];
  var ENDS = ["n", "measured"];
  var CHOICES = ["board", "find", "from", "to", "ranked", "best", "sort", "columns", "pin", "x", "y"];

  var columns = Object.create(null), order = [];
  known.columns.forEach(function (column) {
    add({ key: column.key, label: column.label, short: column.short, unit: column.unit, better: column.better,
      digits: column.digits, definition: column.definition, kind: "metric" });
  });
  PLAIN.forEach(add);
  known.facets.forEach(function (facet) { add({ key: facet.key, label: facet.label, better: "lower", kind: "facet" }); });

  function add(column) {
    columns[column.key] = column;
    if (column.key !== "rank" && column.key !== "configuration") { order.push(column.key); }
  }

  var members = known.sections.map(function () { return []; });
  rows.forEach(function (row, index) { members[row.section].push(index); });

  /* Of a facet: text -> its number. */
  var numbers = known.once(function (key) {
    var every = new Set();
    known.numbers(key).forEach(function (value) { [].concat(value).forEach(function (number) { every.add(number); }); });
    return new Map(Array.from(every, function (number) { return [known.text(number), number]; }));
  });

  var placeOf = known.once(function (id) { return rows.findIndex(function (row) { return row.id === id; }); });

  /* What a column sorts by, of each row: a number, NaN where there is nothing. */
  var keys = known.once(function (key) {
    var column = columns[key];
    switch (column.kind) {
      case "metric": return known.values(key);
      case "facet": return placed(rows.map(function (_, index) { return [].concat(known.facet(key, index)).join(", "); }));
      case "rank": return Float64Array.from(rows, function (row) { return row.rank ? row.rank[0] : NaN; });
      case "text": return placed(rows.map(function (row) { return key === "measured" ? row.measured : row.title; }));
      default: return Float64Array.from(rows, function (row) { return row[key] === null ? NaN : row[key]; });
    }
  });

  /* The place of each text among all of them, great and small letters alike. */
  function placed(texts) {
    texts = texts.map(function (text) { return text.toLowerCase(); });
    var places = new Map(Array.from(new Set(texts)).sort().map(function (text, place) { return [text, place]; }));
    return Float64Array.from(texts, function (text) { return text ? places.get(text) : NaN; });
  }

  /* Missing stands last in both directions; equal rows keep the order of the board. */
  function sorted(indices, key, direction) {
    var by = keys(key), sign = direction === "descending" ? -1 : 1, there = [], missing = [];
    indices.forEach(function (index) { (by[index] === by[index] ? there : missing).push(index); });
    there.sort(function (a, b) { return sign * (by[a] - by[b]) || a - b; });
    return there.concat(missing);
  }

  function section(choices, notices) {
    var asked = choices.get("board");
    var index = known.sections.findIndex(function (each) { return each.id === asked; });
    if (asked !== null && index < 0) { notices.push(["board", asked, "no ranking here is " + asked]); }
    return Math.max(index, 0);
  }

  /* Which of the asked values count: those that a row of this section has. The others are told. */
  function valid(key, asked, mine, notices) {
    var label = columns[key].label, found = [];
    asked.forEach(function (value) {
      var number = numbers(key).get(value), column = known.numbers(key);
      var here = number !== undefined && mine.some(function (index) { return has(column[index], number); });
      if (here) { found.push(number); return; }
      var where = number === undefined ? "nowhere on this site" : "in no row of this ranking";
      notices.push([key, value, label + " “" + value + "” is " + where]);
    });
    return found;
  }

  function has(value, number) {
    return Array.isArray(value) ? value.indexOf(number) >= 0 : value === number;
  }

  var searchable = known.once(function (index) { return (rows[index].title + " " + rows[index].under).toLowerCase(); });

  /* Of a choice that there is one of, the first counts. */
  function repeated(choices, notices) {
    CHOICES.forEach(function (key) {
      if (key === "pin" || key === "columns") { return; }
      choices.getAll(key).forEach(function (value, at, every) {
        if (value !== every[0]) { notices.push([key, value, key + " is given more than once, and “" + value + "” is not the first"]); }
      });
    });
  }

  /* The filters that are on, in the order in which a row that is left out is counted. */
  function stages(choices, mine, notices) {
    var found = [];
    if (choices.get("ranked") === "1") {
      found.push({ key: "ranked", label: "only ranked", test: function (index) { return rows[index].rank !== null; } });
    } else if (choices.has("ranked")) {
      notices.push(["ranked", choices.get("ranked"), "ranked is 1, or is not given"]);
    }
    known.facets.forEach(function (facet) {
      var asked = valid(facet.key, choices.getAll(facet.key), mine, notices), column = known.numbers(facet.key);
      if (!asked.length) { return; }
      // Of facts a row has several, and a reader wants all that were asked for.
      var test = facet.key === "facts"
        ? function (index) { return asked.every(function (number) { return has(column[index], number); }); }
        : function (index) { return asked.indexOf(column[index]) >= 0; };
      found.push({ key: facet.key, label: facet.label, test: test });
    });
    [["from", "Measured from", 1], ["to", "Measured to", -1]].forEach(function (end) {
      var date = choices.get(end[0]);
      if (!date) { return; }
      if (!/^\d{4}-\d{2}-\d{2}$/.test(date) || isNaN(Date.parse(date))) { notices.push([end[0], date, end[1] + " “" + date + "” is no date"]); return; }
      found.push({ key: end[0], label: end[1] + " " + date, test: function (index) {
        return end[2] > 0 ? rows[index].measured >= date : rows[index].measured <= date;
      } });
    });
    var words = (choices.get("find") || "").toLowerCase().split(/\s+/).filter(Boolean);
    if (words.length) {
      found.push({ key: "find", label: "Find", test: function (index) {
        return words.every(function (word) { return searchable(index).indexOf(word) >= 0; });
      } });
    }
    return found;
  }

  /* Of each value of a facet the rows of the best rank, all of them where several are tied; of a value
     without a ranked row the first. */
  function bestOf(indices, key) {
    var first = new Map(), column = known.numbers(key);
    indices.forEach(function (index) { if (!first.has(column[index])) { first.set(column[index], index); } });
    return indices.filter(function (index) {
      var leader = first.get(column[index]), rank = rows[leader].rank;
      return index === leader || (rank !== null && rows[index].rank !== null && rows[index].rank[0] === rank[0]);
    });
  }

  function shownColumns(choices, board, notices) {
    if (!choices.has("columns")) { return board.shown.concat(ENDS); }
    return Array.from(new Set(choices.getAll("columns").join(" ").split(" "))).filter(function (key) {
      if (!key) { return false; }
      if (order.indexOf(key) >= 0) { return true; }
      notices.push(["columns", key, "no column is called “" + key + "”"]);
      return false;
    });
  }

  function sorting(choices, notices) {
    var asked = choices.get("sort"), parts = (asked || "").split(".");
    if (asked === null) { return null; }
    if (columns[parts[0]] && (parts[1] === "ascending" || parts[1] === "descending") && parts.length === 2) {
      return { key: parts[0], direction: parts[1] };
    }
    notices.push(["sort", asked, "no order is called “" + asked + "”"]);
    return null;
  }

  function pins(choices, current, notices) {
    var found = [];
    new Set(choices.getAll("pin")).forEach(function (id) {
      var index = placeOf(id);
      if (index < 0) { notices.push(["pin", id, "no configuration here is called “" + id + "”"]); return; }
      if (rows[index].section === current) { found.push(index); return; }
      notices.push(["pin", id, "“" + rows[index].title + "” is pinned and stands in another ranking"]);
    });
    return found;
  }

  function isFacet(key) {
    return key in columns && columns[key].kind === "facet";
  }

  /* How many rows would be shown if a value of a facet were chosen too: number of its text -> rows. */
  function counts(found, key) {
    var column = known.numbers(key), into = new Map();
    // Beside a fact another one is asked for as well; beside a value of another facet, as an alternative.
    var asked = found.filters.filter(function (stage) { return key === "facts" || stage.key !== key; });
    members[found.section].forEach(function (index) {
      if (!asked.every(function (stage) { return stage.test(index); })) { return; }
      [].concat(column[index]).forEach(function (number) { into.set(number, (into.get(number) || 0) + 1); });
    });
    return into;
  }

  /* Everything that the page shows.
     left: [words, rows] of what is left out, each row once, by the first filter that it does not pass. */
  function view(choices) {
    var notices = [], current = section(choices, notices), mine = members[current], board = known.sections[current];
    choices.forEach(function (value, key) {
      if (CHOICES.indexOf(key) < 0 && !isFacet(key)) { notices.push([key, value, "nothing here is called “" + key + "”"]); }
    });
    repeated(choices, notices);
    var filters = stages(choices, mine, notices), left = new Map(), passed = [];
    mine.forEach(function (index) {
      var failed = filters.find(function (stage) { return !stage.test(index); });
      if (failed) { left.set(failed.label, (left.get(failed.label) || 0) + 1); } else { passed.push(index); }
    });
    var best = choices.get("best");
    if (best !== null && BEST.indexOf(best) < 0) { notices.push(["best", best, "there is no best per “" + best + "”"]); best = null; }
    if (best !== null) {
      var kept = bestOf(passed, best);
      if (kept.length < passed.length) { left.set("not the best per " + columns[best].label.toLowerCase(), passed.length - kept.length); }
      passed = kept;
    }
    var sort = sorting(choices, notices), pinned = pins(choices, current, notices);
    return {
      section: current, board: board, total: mine.length, notices: notices, best: best, sort: sort,
      filters: filters, columns: shownColumns(choices, board, notices).map(function (key) { return columns[key]; }),
      left: Array.from(left), pinned: pinned, shown: sort ? sorted(passed, sort.key, sort.direction) : passed,
    };
  }

  /* Pinned rows first, none twice. */
  function all(found) {
    return found.pinned.concat(found.shown.filter(function (index) { return found.pinned.indexOf(index) < 0; }));
  }

  /* A CSV cell (RFC 4180): texts are quoted, numbers are not, nothing is a formula. */
  function csvCell(value) {
    if (value === null || value === undefined) { return ""; }
    if (typeof value !== "string") { return String(value); }
    var text = /^ *[=+\-@\t\r\n]/.test(value) ? "'" + value : value;
    return '"' + text.replace(/"/g, '""') + '"';
  }

  function value(column, index) {
    if (column.kind === "facet") {
      var told = known.facet(column.key, index);
      return Array.isArray(told) ? told.join("; ") : told;
    }
    return rows[index][column.key];
  }

  function label(column, board) {
    return board.labels[column.key] || column.label;
  }

  function csv(found) {
    var board = found.board, metrics = found.columns.filter(function (column) { return column.kind === "metric"; });
    var head = ["Workload", "SLO", "Power scope", "Configuration", "Page", "Best rank", "Worst rank"];
    found.columns.forEach(function (column) {
      var name = label(column, board);
      if (column.kind !== "metric") { head.push(column.label); return; }
      ["", ", low", ", high"].forEach(function (of) { head.push(name + of + " (" + column.unit + ")"); });
    });
    head.push("Pinned", "Simulated", "Unranked because", "Missing because");
    var lines = all(found).map(function (index) {
      var row = rows[index], rank = row.rank || [null, null], missing = [];
      var line = [board.workload, board.slo.join("; "), board.power_scope, row.title, row.url, rank[0], rank[1]];
      found.columns.forEach(function (column) {
        if (column.kind !== "metric") { line.push(value(column, index)); return; }
        var cell = known.cell(column.key, index);
        line.push(cell.value, cell.low, cell.high);
      });
      metrics.forEach(function (column) {
        var cell = known.cell(column.key, index);
        if (cell.value === null) { missing.push(label(column, board) + ": " + cell.reason); }
      });
      var pinned = found.pinned.indexOf(index) >= 0;
      line.push(pinned ? "yes" : "no", row.simulated ? "yes" : "no");
      line.push(row.excluded.map(function (why) { return why[1]; }).join("; "), missing.join("; "));
      return line;
    });
    return [head].concat(lines).map(function (line) { return line.map(csvCell).join(",") + "\r\n"; }).join("");
  }

  function json(found, address) {
    var board = found.board;
    return JSON.stringify({
      schema: "tokenwatt/selection/1",
      address: address,
      workload: board.workload, workload_hash: board.workload_hash, slo: board.slo, power_scope: board.power_scope,
      left_out: found.left.map(function (each) { return { because: each[0], rows: each[1] }; }),
      columns: found.columns.map(function (column) {
        return { key: column.key, label: label(column, board), unit: column.unit || null, definition: column.definition || null };
      }),
      rows: all(found).map(function (index) {
        var row = rows[index], cells = {};
        found.columns.forEach(function (column) {
          cells[column.key] = column.kind === "metric" ? known.cell(column.key, index) : value(column, index);
        });
        return {
          id: row.id, title: row.title, url: row.url, rank: row.rank, pinned: found.pinned.indexOf(index) >= 0,
          simulated: row.simulated, unranked_because: row.excluded.map(function (why) { return why[1]; }), cells: cells,
        };
      }),
    }, null, 1) + "\n";
  }

  globalThis.TokenwattRows = {
    BEST: BEST,
    columns: columns,
    order: order,
    isFacet: isFacet,
    view: view,
    counts: counts,
    all: all,
    value: value,
    label: label,
    csv: csv,
    json: json,
    members: members,
  };
})();
