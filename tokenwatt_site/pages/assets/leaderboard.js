/* The leaderboard as a reader uses it: one ranking at a time, filters, order, columns, pins, downloads and
   the trade-off, every choice in the address. The page reads without it. */
(function () {
  "use strict";

  var known = globalThis.TokenwattCatalogue, board = globalThis.TokenwattRows, trade = globalThis.TokenwattTradeoff;
  var controls = document.getElementById("controls");
  if (!known || !board || !trade || !controls) { return; }
  var rows = known.rows, CHUNK = 50, BAR = 132;

  var choices, found, limit = CHUNK, built = {};

  function make(tag, attributes, content) {
    var made = document.createElement(tag);
    Object.keys(attributes || {}).forEach(function (key) {
      if (attributes[key] !== null && attributes[key] !== undefined) { made.setAttribute(key, attributes[key]); }
    });
    [].concat(content === undefined ? [] : content).forEach(function (each) { made.append(each); });
    return made;
  }

  function count(n) {
    return n.toLocaleString("en-US");
  }

  function rowsWords(n) {
    return count(n) + (n === 1 ? " row" : " rows");
  }

  /* ---------- the address ---------- */

  function read() {
    var text = location.hash.slice(1), bare = text.indexOf("=") < 0;
    var named = bare && known.sections.some(function (each) { return each.id === text; });
    choices = new URLSearchParams(named ? { board: text } : bare ? "" : text);
  }

  /* `quietly`: no step of its own to go back to, as for each key that is typed. */
  function write(quietly) {
    var text = choices.toString(), address = text ? "#" + text : location.pathname + location.search;
    if (quietly) { history.replaceState(null, "", address); } else { history.pushState(null, "", address); }
    limit = CHUNK;
    show();
  }

  function set(key, value, quietly) {
    if (value === null || value === "") { choices.delete(key); } else { choices.set(key, value); }
    write(quietly);
  }

  function without(key, value) {
    var kept = choices.getAll(key);
    choices.delete(key);
    if (key === "columns") {
      kept = [kept.join(" ").split(" ").filter(function (each) { return each !== value; }).join(" ")].filter(Boolean);
      value = null;
    }
    kept.forEach(function (each) { if (each !== value) { choices.append(key, each); } });
    write();
  }

  function toggle(key, value) {
    if (choices.getAll(key).indexOf(value) >= 0) { without(key, value); return; }
    choices.append(key, value);
    write();
  }

  /* ---------- controls ---------- */

  function field(words, control) {
    return make("label", {}, [words, control]);
  }

  function option(value, words, chosen) {
    var made = make("option", { value: value }, words);
    made.selected = chosen;
    return made;
  }

  function build() {
    var ranking = built.ranking = make("select");
    known.sections.forEach(function (each) {
      var scope = each.power_scope === "none" ? "no power" : "power: " + each.power_scope;
      ranking.append(option(each.id, each.heading + " · " + each.slo_text + " · " + scope + " (" + count(each.count) + ")"));
    });
    ranking.addEventListener("change", function () { set("board", ranking.value); });
    var find = built.find = make("input", { type: "search", size: "14", placeholder: "engine, board, format" });
    find.addEventListener("input", function () { set("find", find.value, true); });
    var best = built.best = make("select", {}, [option("", "every row")]);
    board.BEST.forEach(function (key) { best.append(option(key, "per " + board.columns[key].label.toLowerCase())); });
    best.addEventListener("change", function () { set("best", best.value); });
    var ranked = built.ranked = make("input", { type: "checkbox" });
    ranked.addEventListener("change", function () { set("ranked", ranked.checked ? "1" : null); });

    var filters = make("div", { class: "tw-filters" });
    known.facets.forEach(function (facet) {
      var select = built[facet.key] = make("select");
      select.addEventListener("change", function () { if (select.value) { toggle(facet.key, select.value); } });
      filters.append(field(facet.label, select));
    });
    [["from", "Measured from"], ["to", "Measured to"]].forEach(function (end) {
      var date = built[end[0]] = make("input", { type: "date" });
      date.addEventListener("change", function () { set(end[0], date.value); });
      filters.append(field(end[1], date));
    });
    filters.append(make("label", { class: "tw-tick" }, [ranked, "Only rows with a rank"]));
    var named = built.columns = make("fieldset", { class: "tw-columns" }, make("legend", {}, "Columns"));
    board.order.forEach(function (key) {
      var box = make("input", { type: "checkbox", value: key });
      box.addEventListener("change", function () {
        var shown = found.columns.map(function (column) { return column.key; });
        choices.set("columns", (box.checked ? shown.concat(key) : shown.filter(function (each) { return each !== key; })).join(" "));
        write();
      });
      named.append(make("label", { class: "tw-tick" }, [box, board.columns[key].label]));
    });
    built.summary = make("summary", {}, "Filters and columns");
    built.folded = make("details", { class: "tw-d tw-more-controls" }, [built.summary, filters, named]);
    built.folded.addEventListener("toggle", offer);
    built.chips = make("div", { class: "tw-chips", role: "group", "aria-label": "Filters that are on" });
    built.notice = make("div", { role: "status", class: "tw-told" });

    var link = make("button", { type: "button", class: "tw-btn tw-link" }, make("span", {}, "Copy link"));
    link.addEventListener("click", function () {
      var said = link.firstChild, ask = navigator.clipboard ? navigator.clipboard.writeText(location.href) : Promise.reject(new Error());
      ask.then(function () { said.textContent = "Copied"; }, function () { said.textContent = "Copy it from the address bar"; })
        .then(function () { setTimeout(function () { said.textContent = "Copy link"; }, 1600); });
    });
    built.csv = make("button", { type: "button", class: "tw-btn" });
    built.csv.addEventListener("click", function () { save("csv", "text/csv", board.csv(found)); });
    built.json = make("button", { type: "button", class: "tw-btn" });
    built.json.addEventListener("click", function () { save("json", "application/json", board.json(found, location.href)); });
    controls.append(
      make("div", { class: "tw-bar", role: "group", "aria-label": "What is shown" }, [
        field("Ranking", ranking), field("Find", find), field("Show", best),
      ]),
      make("div", { class: "tw-second" }, [built.folded, make("span", { class: "tw-buttons" }, [link, built.csv, built.json])]),
      built.chips, built.notice);
    controls.hidden = false;
  }

  function save(kind, type, content) {
    var address = URL.createObjectURL(new Blob([content], { type: type + ";charset=utf-8" }));
    var anchor = make("a", { href: address, download: found.board.id.replace("board-", "ranking-") + "." + kind });
    anchor.click();
    setTimeout(function () { URL.revokeObjectURL(address); }, 1000);
  }

  /* What may be chosen beside what is chosen, with how many rows would stay; only where it is in sight. */
  function offer() {
    if (!built.folded.open) { return; }
    known.facets.forEach(function (facet) {
      var select = built[facet.key], chosen = choices.getAll(facet.key), here = new Set();
      var column = known.numbers(facet.key), counts = board.counts(found, facet.key);
      board.members[found.section].forEach(function (index) {
        [].concat(column[index]).forEach(function (number) { here.add(number); });
      });
      var offered = Array.from(here, function (number) {
        var text = known.text(number), stay = counts.get(number) || 0;
        return { text: text, stay: stay, made: option(text, text + " (" + count(stay) + ")", false) };
      }).filter(function (each) { return chosen.indexOf(each.text) < 0; });
      offered.sort(function (a, b) { return b.stay - a.stay || (a.text < b.text ? -1 : 1); });
      offered.forEach(function (each) { each.made.disabled = each.stay === 0; });
      var first = chosen.length ? (facet.key === "facts" ? "and also …" : "or also …") : "any";
      select.replaceChildren.apply(select, [option("", first, true)].concat(offered.map(function (each) { return each.made; })));
    });
  }

  function chip(key, value, words) {
    var made = make("button", { type: "button", class: "tw-chip", "aria-label": "Remove " + words, "data-focus": "chip-" + key + value }, words + " ✕");
    made.addEventListener("click", function () { without(key, value); });
    return made;
  }

  function controlsShow() {
    built.ranking.value = found.board.id;
    if (built.find.value !== (choices.get("find") || "")) { built.find.value = choices.get("find") || ""; }
    built.best.value = found.best || "";
    built.ranked.checked = choices.get("ranked") === "1";
    ["from", "to"].forEach(function (end) { built[end].value = choices.get(end) || ""; });
    built.columns.querySelectorAll("input").forEach(function (box) {
      box.checked = found.columns.some(function (column) { return column.key === box.value; });
    });
    var unknown = {}, chips = [];
    found.notices.forEach(function (notice) { unknown[notice[0] + "=" + notice[1]] = true; });
    choices.forEach(function (value, key) {
      if (unknown[key + "=" + value] || !value) { return; }
      if (board.isFacet(key)) { chips.push(chip(key, value, board.columns[key].label + ": " + value)); }
      if (key === "from" || key === "to") { chips.push(chip(key, value, "Measured " + key + " " + value)); }
      if (key === "ranked") { chips.push(chip(key, value, "Only rows with a rank")); }
    });
    var filters = chips.length;
    if (choices.toString()) {
      var reset = make("button", { type: "button", class: "tw-chip", "data-focus": "reset" }, "Reset all");
      reset.addEventListener("click", function () { choices = new URLSearchParams(); write(); });
      chips.push(reset);
    }
    built.chips.replaceChildren.apply(built.chips, chips);
    built.summary.textContent = "Filters and columns" + (filters ? " (" + filters + " on)" : "");
    built.csv.textContent = "CSV, " + rowsWords(board.all(found).length);
    built.json.textContent = "JSON";
    offer();
  }

  function tell(notices) {
    built.notice.replaceChildren.apply(built.notice, notices.map(function (notice) {
      var remove = make("button", { type: "button", class: "tw-btn", "data-focus": "notice-" + notice[0] + notice[1] }, "Remove");
      remove.addEventListener("click", function () { without(notice[0], notice[1]); });
      return make("p", { class: "tw-notice" }, [make("span", {}, "From the address, and not applied: " + notice[2] + ". "), remove]);
    }));
  }

  /* ---------- the table ---------- */

  function head(column) {
    var label = column.short || column.label;
    if (/^(ttft|tpot|e2e)$/.test(column.key)) { label = found.board.labels[column.key]; }
    var name = column.kind === "metric" || column.kind === "plain" ? "n" : "";
    if (column.key === "rank") { name = "n tw-rank"; }
    if (column.key === "configuration") { name = "tw-pin"; }
    var button = make("button", { type: "button", "data-focus": "sort-" + column.key }, label);
    if (column.unit && label !== column.unit) { button.append(make("br"), column.unit); }
    button.addEventListener("click", function () { sortBy(column); });
    var sort = found.sort && found.sort.key === column.key ? found.sort.direction : null;
    return make("th", { scope: "col", class: name || null, "data-key": column.key, "aria-sort": sort, title: column.definition }, button);
  }

  function sortBy(column) {
    var first = column.better === "lower" ? "ascending" : "descending", other = first === "ascending" ? "descending" : "ascending";
    var again = found.sort && found.sort.key === column.key && found.sort.direction === first;
    set("sort", column.key + "." + (again ? other : first));
  }

  function ranks(row) {
    if (!row.rank) { return "–"; }
    return row.rank[0] === row.rank[1] ? String(row.rank[0]) : row.rank[0] + "–" + row.rank[1];
  }

  function tag(words, why, failed) {
    return make("span", { class: "tw-tag" + (failed ? " tw-tag--failed" : ""), title: why }, words);
  }

  function title(row, index, pinned) {
    var name = row.retracted ? make("s", {}, row.title) : row.title, cell = make("th", { scope: "row" });
    if (row.rank) { cell.append(make("span", { class: "tw-only-narrow" }, ranks(row) + " · ")); }
    cell.append(make("a", { href: row.url }, name));
    if (row.simulated) { cell.append(" ", make("span", { class: "tw-tag tw-tag--big" }, "simulated")); }
    cell.append(" ", make("button", {
      type: "button", class: "tw-pin-it", "aria-pressed": String(pinned), "aria-label": (pinned ? "Pinned: " : "Pin ") + row.title,
      title: pinned ? "Let go" : "Keep on top", "data-pin": row.id, "data-focus": "pin-" + row.id,
    }, pinned ? "Pinned" : "Pin"));
    cell.append(make("small", {}, row.under));
    var why = row.excluded;
    if (why.length) {
      var tags = make("small", { class: "tw-tags" }, ["unranked: ", tag(why[0][2], why[0][1], why[0][2] === "accuracy gate failed")]);
      if (why.length > 1) {
        tags.append(" ", tag("and " + (why.length - 1) + " more", why.slice(1).map(function (each) { return each[1]; }).join("; ")));
      }
      cell.append(tags);
    }
    return cell;
  }

  function interval(cell, digits) {
    if (cell.low === null || cell.high === null) { return ""; }
    return known.amount(cell.low, digits) + " to " + known.amount(cell.high, digits);
  }

  function bar(cell) {
    var SVG = "http://www.w3.org/2000/svg", svg = document.createElementNS(SVG, "svg"), top = highest();
    [["class", "tw-lb-bar"], ["viewBox", "0 0 132 8"], ["preserveAspectRatio", "none"], ["aria-hidden", "true"]]
      .forEach(function (each) { svg.setAttribute(each[0], each[1]); });
    function piece(x, width, name) {
      var rect = document.createElementNS(SVG, "rect");
      rect.setAttribute("x", x.toFixed(1));
      rect.setAttribute("width", width.toFixed(1));
      rect.setAttribute("height", "8");
      rect.setAttribute("class", name);
      svg.appendChild(rect);
    }
    piece(0, BAR, "tw-f-window");
    piece(0, BAR * cell.value / top, "tw-f-soft");
    if (cell.low !== null && cell.high !== null) {
      piece(BAR * cell.low / top, Math.max(2, BAR * (cell.high - cell.low) / top), "tw-f-blue");
    }
    return svg;
  }

  var tops = {};

  function highest() {
    var key = found.board.shown[0], where = found.section;
    if (tops[where] === undefined) {
      var values = known.values(key);
      tops[where] = board.members[where].reduce(function (most, index) { return values[index] > most ? values[index] : most; }, 0) || 1;
    }
    return tops[where];
  }

  function metric(column, index) {
    var cell = known.cell(column.key, index), first = column.key === found.board.shown[0];
    var made = make("td", { class: "n" + (first ? " tw-v" : "") });
    if (cell.value === null) {
      made.title = cell.reason;
      made.append(make("span", { class: "tw-none" }, cell.reason.split(":")[0]));
      return made;
    }
    made.append(known.amount(cell.value, column.digits));
    if (column.key === "goodput" && known.cell("long_run_goodput", index).value === null) { made.append(make("small", {}, "not corrected")); }
    var between = interval(cell, column.digits);
    if (between) { made.append(make("small", {}, between)); }
    if (column.key === "accuracy") { made.append(make("small", {}, "n = " + count(cell.n) + " questions")); }
    if (first) { made.append(bar(cell)); }
    return made;
  }

  function line(index, pinned) {
    var row = rows[index], made = make("tr", { class: (row.tied ? "tw-tie" : "") + (row.rank ? "" : "tw-unr") });
    made.append(make("td", { class: "n tw-rank" }, ranks(row)), title(row, index, pinned));
    found.columns.forEach(function (column) {
      if (column.kind === "metric") { made.append(metric(column, index)); return; }
      var value = board.value(column, index), name = column.kind === "plain" ? "n" : column.key === "measured" ? "tw-nb" : "tw-words";
      if (value === null) { made.append(make("td", { class: name }, make("span", { class: "tw-none" }, "none"))); return; }
      made.append(make("td", { class: name }, typeof value === "number" ? count(value) : value));
    });
    return made;
  }

  function body(name, indices, pinned) {
    var made = make("tbody", { class: name });
    indices.forEach(function (index) { made.append(line(index, pinned)); });
    return made;
  }

  function table(place) {
    var shown = found.shown.filter(function (index) { return found.pinned.indexOf(index) < 0; });
    var pair = [{ key: "rank", label: "Rank", better: "lower" }, { key: "configuration", label: "Configuration", better: "lower" }];
    var top = make("thead", {}, make("tr", {}, pair.concat(found.columns).map(head)));
    var parts = [place.querySelector(".tw-lb caption"), top];
    if (found.pinned.length) { parts.push(body("tw-pinned", found.pinned, true)); }
    parts.push(body("", shown.slice(0, limit), false));
    if (!found.pinned.length && !shown.length) {
      parts.push(make("tbody", {}, make("tr", {}, make("td", { colspan: 2 + found.columns.length, class: "tw-none" }, "No row passes all filters."))));
    }
    var lb = place.querySelector(".tw-lb");
    lb.replaceChildren.apply(lb, parts);
    more(place.querySelector(".tw-more"), Math.min(limit, shown.length), shown.length);
  }

  function more(place, drawn, total) {
    place.hidden = drawn >= total;
    if (place.hidden) { place.replaceChildren(); return; }
    var next = make("button", { type: "button", class: "tw-btn", "data-focus": "more" }, "Show " + count(Math.min(CHUNK, total - drawn)) + " more");
    next.addEventListener("click", function () { limit += CHUNK; show(); });
    place.replaceChildren(next, " " + count(drawn) + " of " + rowsWords(total) + " drawn.");
  }

  function status(place) {
    var ranked = found.shown.filter(function (index) { return rows[index].rank; }).length, hidden = found.total - found.shown.length;
    var parts = [make("b", {}, count(ranked) + " ranked"), ", " + count(found.shown.length - ranked) + " unranked"];
    if (hidden) {
      parts.push(". ", make("b", {}, count(hidden) + " of " + rowsWords(found.total) + " left out"), ": "
        + found.left.map(function (each) { return count(each[1]) + " by " + each[0]; }).join(", "));
    } else { parts.push(". Nothing is left out"); }
    if (found.pinned.length) { parts.push(". " + rowsWords(found.pinned.length) + " pinned on top, whatever the filters"); }
    place.replaceChildren(make("span", {}, parts.concat(".")));
  }

  function reasons(place) {
    var folded = place.querySelector(".tw-reasons");
    if (!folded.open) { return; }
    var into = folded.querySelector(".tw-reasons-rows"), lines = [];
    board.all(found).slice(0, limit).forEach(function (index) {
      rows[index].excluded.forEach(function (why) {
        lines.push(make("tr", {}, [make("th", { scope: "row" }, rows[index].title), make("td", {}, "unranked: " + why[1])]));
      });
    });
    into.replaceChildren.apply(into, lines);
  }

  /* ---------- the trade-off ---------- */

  var waiting = null;

  /* Drawn once it comes into sight: the table does not wait for it. */
  var sight = new IntersectionObserver(function (entries) {
    entries.forEach(function (entry) { if (entry.isIntersecting && waiting === entry.target) { draw(); } });
  }, { rootMargin: "200px" });

  function tradeOff(place) {
    var figure = place.querySelector(".tw-trade");
    if (!figure) { return; }
    waiting = figure;
    sight.unobserve(figure);
    sight.observe(figure);
  }

  function draw() {
    var figure = waiting, plot = figure.querySelector(".tw-trade-plot"), axes = trade.axes(choices, board.members[found.section]);
    waiting = null;
    if (!axes.pair) { return; }
    var pair = axes.pair, names = {}, indices = trade.placed(board.all(found), pair.x, pair.y);
    var line = trade.frontier(board.all(found), pair.x, pair.y);
    ["x", "y"].forEach(function (axis) {
      names[axis] = board.label(board.columns[pair[axis]], found.board) + ", " + board.columns[pair[axis]].unit;
    });
    figure.querySelector("h3").textContent = board.label(board.columns[pair.y], found.board) + " against " + board.label(board.columns[pair.x], found.board);
    var unplaced = board.all(found).length - indices.length;
    var ranked = line.some(function (index) { return rows[index].rank; });
    figure.querySelector(".tw-trade-lead").textContent = "The line joins what no other row shown beats in one number without being beaten in the other"
      + (ranked ? "; rows without a rank are hollow and are not asked." : "; no row shown has a rank, so the line joins unranked rows, which are hollow.")
      + (unplaced ? " " + rowsWords(unplaced) + " not drawn, without one of both numbers." : "");
    plot.hidden = false;
    var choose = make("div", { class: "tw-bar" }, ["y", "x"].map(function (axis) {
      var select = make("select", { "data-focus": "axis-" + axis });
      axes.possible[axis].forEach(function (key) { select.append(option(key, board.label(board.columns[key], found.board), key === pair[axis])); });
      select.addEventListener("change", function () { set(axis, select.value); });
      return field(axis === "y" ? "Upwards" : "To the right", select);
    }));
    var holder = make("div", { class: "tw-trade-holder" });
    plot.replaceChildren(choose, holder);
    if (indices.length) { trade.plot(holder, indices, pair, line, names); } else { holder.append(make("p", { class: "tw-missing" }, "No row shown has both numbers.")); }
    frontierTable(figure.querySelector(".tw-trade-table"), line, pair, names);
  }

  function frontierTable(place, line, pair, names) {
    place.tHead.rows[0].cells[1].textContent = names.x;
    place.tHead.rows[0].cells[2].textContent = names.y;
    place.tBodies[0].replaceChildren.apply(place.tBodies[0], line.map(function (index, number) {
      var row = rows[index], look = trade.style(row.id);
      var name = make("th", { scope: "row" }, [trade.mark(row, 14), " " + (number + 1) + ". ", make("a", { href: row.url }, row.title),
        make("small", {}, row.under + " · " + look.shape + ", " + look.colour)]);
      return make("tr", {}, [name].concat(["x", "y"].map(function (axis) { return metric(board.columns[pair[axis]], index); }),
        make("td", { class: "n" }, ranks(row)), make("td", { class: "n" }, count(row.n))));
    }));
  }

  /* ---------- all of it ---------- */

  function show() {
    var focused = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.focus : undefined;
    found = board.view(choices);
    var place = document.getElementById(found.board.id);
    known.sections.forEach(function (each) { document.getElementById(each.id).hidden = each.id !== found.board.id; });
    controlsShow();
    tell(found.notices.concat(trade.asked(choices, board.members[found.section]).told));
    table(place);
    status(place.querySelector(".tw-shown"));
    reasons(place);
    tradeOff(place);
    if (focused && document.activeElement.dataset.focus !== focused) {
      var again = document.querySelector("[data-focus=\"" + CSS.escape(focused) + "\"]");
      if (again) { again.focus({ preventScroll: true }); }
    }
  }

  function start() {
    build();
    read();
    show();
    document.getElementById("ranking").addEventListener("click", function (event) {
      var pin = event.target.closest("[data-pin]");
      if (pin) { toggle("pin", pin.dataset.pin); }
    });
    document.querySelectorAll(".tw-reasons").forEach(function (folded) {
      folded.addEventListener("toggle", function () { reasons(folded.closest(".tw-board")); });
    });
    addEventListener("popstate", function () { read(); limit = CHUNK; show(); });
  }

  start();
})();
