/* The page on which a reader picks what to compare. The address holds the choice: #a=ID&b=ID&c=ID, the baseline first.
   Results come as scripts, which also load from disk. Text of runs is only ever set as text. */
(function () {
  "use strict";

  var data = globalThis.TokenwattCompareData, view = globalThis.TokenwattCompareView, letter = globalThis.TokenwattComparison.letter;
  var root = document.getElementById("compare"), NS = "http://www.w3.org/2000/svg", SHOWN = 200;
  var known = Object.create(null), waiting = Object.create(null), job = 0, sides = [], filter = "", choice = location.hash, plain = document.title;

  function part(id) { return document.getElementById("compare-" + id); }

  /* ---------- elements */

  function fill(made, content) {
    content.forEach(function (each) {
      if (each !== null && each !== undefined) {
        made.appendChild(typeof each === "string" ? document.createTextNode(each) : each);
      }
    });
    return made;
  }

  function make(name, attributes, content) {
    var made = document.createElement(name);
    Object.keys(attributes || {}).forEach(function (key) { made.setAttribute(key, attributes[key]); });
    return fill(made, content || []);
  }

  function draw(name, attributes, content) {
    var made = document.createElementNS(NS, name);
    Object.keys(attributes).forEach(function (key) { made.setAttribute(key, attributes[key]); });
    return fill(made, content || []);
  }

  function icon(name) {
    return draw("svg", { class: "tw-i", "aria-hidden": "true", focusable: "false" }, [draw("use", { href: "#tw-i-" + name })]);
  }

  function words(parts) {
    return parts.map(function (each) { return each[1] === "b" ? make("b", {}, [each[0]]) : each[0]; });
  }

  function button(label, act) {
    var made = make("button", { type: "button", class: "tw-btn" }, [label]);
    made.addEventListener("click", act);
    return made;
  }

  /* ---------- blocks: the elements that _comparison.html.j2 writes */

  function mark(shape, x) {
    if (shape === "circle" || shape === "ring") { return draw("circle", { cx: x, cy: 19, r: shape === "ring" ? 4.5 : 5 }); }
    if (shape === "square") { return draw("rect", { x: x - 5, y: 14, width: 10, height: 10 }); }
    if (shape === "slot") { return draw("rect", { x: x - 5, y: 15, width: 10, height: 8 }); }
    return draw("rect", { x: x - 4.5, y: 14.5, width: 9, height: 9, transform: "rotate(45 " + x + " 19)" });
  }

  function bar(found) {
    var line = found.line, name = "tw-svg tw-ratio-bar tw-mark--" + found.shape;
    return draw("svg", { class: name, viewBox: "0 0 240 38", role: "img", "aria-label": found.words }, [
      draw("rect", { x: found.band[0], y: 0, width: found.band[1] - found.band[0], height: 38, class: "tw-f-window" }),
      draw("line", { x1: 120, y1: 0, x2: 120, y2: 38, class: "tw-one" }),
      line && draw("path", { d: "M" + line[0] + " 14v10M" + line[0] + " 19H" + line[1] + "M" + line[1] + " 14v10" }),
      mark(found.shape, found.at)
    ]);
  }

  function axis(found) {
    var made = draw("svg", { class: "tw-svg tw-ratio-axis", viewBox: "0 0 240 24", "aria-hidden": "true", focusable: "false" });
    found.ticks.forEach(function (tick) {
      fill(made, [
        draw("line", { x1: tick[0], y1: 17, x2: tick[0], y2: 24, class: "tw-s-strong" }),
        draw("text", { x: tick[0], y: 12, "text-anchor": "middle", class: "tw-f-ink2" }, [tick[1]])
      ]);
    });
    return made;
  }

  function inside(cell) {
    if (cell.bar) { return [bar(cell.bar)]; }
    var glossary = root.dataset.glossary, shown = words(cell.parts), found = cell.verdict;
    if (cell.key && glossary) { shown = [make("a", { href: glossary + "#" + cell.key }, shown)]; }
    if (cell.small) { shown.push(make("span", { class: "tw-small tw-line" }, [cell.small])); }
    if (found) {
      var name = "tw-verdict tw-verdict--" + found.class + (cell.key ? " tw-only-narrow" : "");
      shown.push(make("span", { class: name }, [icon(found.icon), " " + found.word]));
    }
    return shown;
  }

  function tableRow(row) {
    return make("tr", {}, row.map(function (cell, i) {
      if (i === 0) { return make("th", { scope: "row" }, inside(cell)); }
      return make("td", cell.span ? { class: cell.class, colspan: cell.span } : { class: cell.class }, inside(cell));
    }));
  }

  function table(block) {
    var body = make("tbody");
    block.groups.forEach(function (group) {
      if (group.name) {
        fill(body, [make("tr", {}, [make("th", { scope: "rowgroup", colspan: block.heads.length }, [group.name])])]);
      }
      fill(body, group.rows.map(tableRow));
    });
    var heads = block.heads.map(function (head) {
      return make("th", { scope: "col", class: head.class }, [head.text, head.axis && axis(head.axis)]);
    });
    return make("div", { class: "tw-scroll", tabindex: "0", role: "region", "aria-label": block.label }, [
      make("table", { class: "tw-table tw-table--wide " + block.class }, [
        make("caption", {}, [make("span", {}, [block.caption])]), make("thead", {}, [make("tr", {}, heads)]), body
      ])
    ]);
  }

  function side(found) {
    var url = (known[found.id] || {}).url;
    return make("li", {}, [
      make("span", { class: "tw-small" }, [make("span", { class: "tw-key" }, [found.letter]), " " + found.role]),
      make("b", {}, [found.title]), make("span", { class: "tw-small tw-line" }, [found.under]),
      url ? make("a", { href: root.dataset.root + url }, ["Report of " + found.letter]) : null
    ]);
  }

  function command(id, label, text) {
    var copy = make("button", { type: "button", class: "tw-btn", "data-copy": id, "aria-label": "Copy: " + label },
      [icon("copy"), make("span", {}, ["Copy"])]);
    return make("div", { class: "tw-cmd" }, [
      make("div", { class: "tw-cmd-h" }, [make("span", {}, [label]), copy]),
      make("pre", { tabindex: "0", "aria-label": label }, [make("code", { id: id }, [text])])
    ]);
  }

  function notCovered(items) {
    var heading = make("h2", { id: "not-covered-h" }, [icon("warn"), " Not covered by this comparison"]);
    return make("section", { class: "tw-not", id: "not-covered", "aria-labelledby": "not-covered-h" }, [
      heading, make("ul", {}, items.map(function (item) { return make("li", {}, [item[0], make("span", {}, [item[1]])]); }))
    ]);
  }

  function notice(lead, rest) {
    return make("p", { class: "tw-notice" }, [icon("warn"), make("span", {}, [make("b", {}, [lead]), " " + rest])]);
  }

  function list(items) {
    return make("ul", { class: "tw-list" }, items.map(function (item) { return make("li", {}, [item]); }));
  }

  function element(block) {
    switch (block.kind) {
      case "h2": return make("h2", { id: block.id }, [block.text]);
      case "h3": return make("h3", { id: block.id, class: "tw-part" }, [block.text]);
      case "p": return make("p", { class: block.class }, words(block.parts));
      case "notice": return notice(block.lead, block.rest);
      case "sides": return make("ul", { class: "tw-ab" }, block.items.map(side));
      case "table": return table(block);
      case "details":
        return make("details", { class: "tw-d" }, [make("summary", {}, [block.summary]), list(block.items)]);
      case "not": return notCovered(block.items);
      default: return command("cite-text", block.label, block.text);
    }
  }

  /* ---------- results as scripts */

  globalThis.TokenwattDetail = function (detail) { known[detail.id] = detail; };

  function load(id) {
    if (known[id]) { return Promise.resolve(known[id]); }
    if (!/^(quoted\/)?[a-z0-9][a-z0-9-]{0,79}$/.test(id)) { return Promise.resolve(null); }
    waiting[id] = waiting[id] || new Promise(function (done) {
      var script = make("script", { src: root.dataset.root + "details/" + id + ".js" });
      script.addEventListener("load", function () { done(known[id] || null); });
      script.addEventListener("error", function () { done(null); });
      document.head.appendChild(script);
    });
    return waiting[id];
  }

  /* ---------- the address */

  function go(ids) {
    location.hash = ids.map(function (id, i) { return letter(i).toLowerCase() + "=" + id; }).join("&");
  }

  function asked() {
    var ids = [], told = [];
    var given = new URLSearchParams(location.hash.slice(1));
    // By letter: A is the baseline wherever it stands.
    given.sort();
    Array.from(given).forEach(function (pair) {
      var key = pair[0], id = pair[1];
      if (!id) {
        if (/^[a-z]$/.test(key)) { told.push("The address names nothing as " + key.toUpperCase() + "."); }
      } else if (!/^[a-z]$/.test(key)) {
        told.push("The address asks for \u201c" + key + "\u201d, which this page does not know.");
      } else if (ids.indexOf(id) >= 0) {
        told.push("The address names " + id + " twice; it is compared once.");
      } else if (ids.length === data.most) {
        told.push(id + " is left out: this page compares at most " + data.most + ".");
      } else {
        ids.push(id);
      }
    });
    return { ids: ids, told: told };
  }

  /* ---------- picking */

  function rowsOfCatalogue() {
    return (globalThis.TokenwattCatalogue || { rows: [] }).rows;
  }

  function options() {
    var catalogue = globalThis.TokenwattCatalogue, wanted = filter.toLowerCase().split(/\s+/), left = 0, count = 0;
    var baseline = sides.length ? rowsOfCatalogue().find(function (row) { return row.id === sides[0].id; }) : null;
    var alike = make("optgroup", { label: baseline ? "Same workload, SLO and power scope as A" : "Measured" });
    var others = make("optgroup", { label: "Another question: little or nothing of it can be divided" });
    function offer(id, title, group) {
      if (sides.some(function (each) { return each.id === id; })) { return; }
      var text = (title + " " + id).toLowerCase();
      if (!wanted.every(function (word) { return text.indexOf(word) >= 0; })) { return; }
      if (count === SHOWN) { left++; return; }
      count++;
      fill(group, [make("option", { value: id }, [title + " (" + id.slice(-12) + ")"])]);
    }
    rowsOfCatalogue().forEach(function (row) {
      if (!baseline || row.section === baseline.section) { offer(row.id, row.title, alike); }
    });
    if (baseline) {
      rowsOfCatalogue().forEach(function (row) { if (row.section !== baseline.section) { offer(row.id, row.title, others); } });
    }
    var published = make("optgroup", { label: "As published, not recomputed" });
    if (catalogue && !sides.length) { data.quoted.forEach(function (each) { offer(each[0], each[1], published); }); }
    return { groups: [alike, others, published].filter(function (g) { return g.children.length; }), left: left, count: count };
  }

  function adding() {
    var name = letter(sides.length), found = options(), select = make("select", { id: "compare-options" });
    function offered(now) { select.replaceChildren.apply(select, [make("option", { value: "" }, ["Choose one"])].concat(now.groups)); }
    var search = make("input", { type: "search", id: "compare-filter", autocomplete: "off" });
    search.value = filter;
    var left = make("p", { class: "tw-small", role: "status" });
    function tell(now) {
      left.textContent = now.count === 0 ? "None fits." : now.left ? now.left + " more; type to narrow them." : "";
    }
    offered(found);
    tell(found);
    search.addEventListener("input", function () {
      filter = search.value;
      var now = options();
      offered(now);
      tell(now);
    });
    var add = button(sides.length ? "Compare with it" : "Take as the baseline", function () {
      if (!select.value) { return; }
      filter = "";
      go(sides.map(function (each) { return each.id; }).concat([select.value]));
    });
    return make("fieldset", {}, [
      make("legend", {}, [sides.length ? "Add " + name : "A, the baseline"]),
      make("label", {}, ["Words of its name", search]), make("label", {}, ["Configuration", select]), left,
      make("p", { class: "tw-pick-act" }, [add])
    ]);
  }

  function chosen(detail, index) {
    var ids = sides.map(function (each) { return each.id; }), name = letter(index);
    var rest = ids.filter(function (_, i) { return i !== index; });
    return make("fieldset", {}, [
      make("legend", {}, [name + (index ? "" : ", the baseline")]), make("p", { class: "tw-picked" }, [detail.title]),
      make("p", { class: "tw-pick-side" }, [
        index ? button("Make " + name + " the baseline", function () { go([detail.id].concat(rest)); }) : null,
        button("Remove " + name, function () { go(rest); })
      ])
    ]);
  }

  /* ---------- all of it */

  function show(details, told) {
    sides = details;
    part("notices").replaceChildren.apply(part("notices"), told.map(function (each) { return notice("Not as asked.", each); }));
    var heading = details.length > 1 ? view.heading(details) : "Compare";
    part("title").textContent = heading;
    document.title = details.length > 1 ? heading : plain;
    var blocks = details.length > 1 ? view.blocks(details).map(element) : [];
    if (blocks.length && /^http/.test(location.protocol)) {
      blocks.push(command("compare-link", "Address of this comparison", location.href));
    }
    part("result").replaceChildren.apply(part("result"), blocks);
    var more = details.length < data.most && rowsOfCatalogue().length ? [adding()] : [];
    part("pick").replaceChildren(make("div", { class: "tw-pick" }, details.map(chosen).concat(more)));
    if (!rowsOfCatalogue().length) { fill(part("pick"), [make("p", {}, ["Nothing is measured on this site yet."])]); }
  }

  function refresh() {
    var mine = ++job, wanted = asked(), focused = document.activeElement, kept = focused && focused.id;
    var inside = root.contains(focused) && focused.tagName === "BUTTON";
    Promise.all(wanted.ids.map(load)).then(function (found) {
      if (mine !== job) { return; }
      var told = wanted.told.concat(wanted.ids.filter(function (_, i) { return found[i] === null; }).map(function (id) {
        return id + " is not on this site.";
      }));
      show(found.filter(Boolean), told);
      // What was pressed is made anew; the keyboard goes on at the choice.
      var next = document.getElementById(inside ? "compare-options" : kept) || (inside && part("pick").querySelector("button"));
      if (next) { next.focus({ preventScroll: true }); }
    });
  }

  part("off").hidden = true;
  addEventListener("hashchange", function () {
    if (location.hash.length > 1 && document.getElementById(location.hash.slice(1))) {
      // A link within the page is no other choice: it has led there, and the address keeps the choice.
      history.replaceState(null, "", choice || location.pathname);
      return;
    }
    choice = location.hash;
    refresh();
  });
  refresh();
})();
