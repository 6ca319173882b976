/* The trade-off chart: what one number costs in another, of the rows that are shown. The frontier is
   worked out anew from them by the rule of tradeoff.py; a point keeps its colour and shape, whatever
   else is shown, as they follow from the id of its configuration. */
(function () {
  "use strict";

  var known = globalThis.TokenwattCatalogue;
  if (!known) { return; }
  var rows = known.rows, SVG = "http://www.w3.org/2000/svg";
  var X = ["interactivity", "ttft", "tpot"];
  var Y = ["tokens_per_joule", "goodput_per_card", "measured_goodput_per_card", "long_run_goodput", "goodput"];
  var NEVER = ["unpublished", "withdrawn", "superseded", "physics"], FAILED = "accuracy gate failed";
  var COLOURS = ["blue", "green", "purple", "ink"];
  /* Around a centre, of about the same area; drawn as a path so that many points are one element. */
  var SHAPES = [
    ["circle", "m-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z"],
    ["square", "m-4.5-4.5h9v9h-9z"],
    ["diamond", "m0-6l6 6l-6 6l-6-6z"],
    ["triangle", "m0-6l5.8 10h-11.6z"],
    ["triangle pointing down", "m0 6l5.8-10h-11.6z"],
  ];

  /* FNV-1a: the same id has the same mark on every page and day. */
  function style(id) {
    var hash = 2166136261;
    for (var i = 0; i < id.length; i++) { hash = Math.imul(hash ^ id.charCodeAt(i), 16777619) >>> 0; }
    var shape = SHAPES[Math.floor(hash / COLOURS.length) % SHAPES.length];
    return { colour: COLOURS[hash % COLOURS.length], shape: shape[0], path: shape[1] };
  }

  var better = {};
  known.columns.forEach(function (column) { better[column.key] = column.better; });

  function has(key, index) {
    return !isNaN(known.values(key)[index]);
  }

  function placed(indices, x, y) {
    return indices.filter(function (index) { return has(x, index) && has(y, index); });
  }

  function standsAgainst(row) {
    return row.excluded.some(function (why) { return NEVER.indexOf(why[0]) >= 0 || why[2] === FAILED; });
  }

  /* See tradeoff.frontier. */
  function frontier(indices, x, y) {
    var ranked = indices.some(function (index) { return rows[index].rank; });
    var asked = placed(indices, x, y).filter(function (index) {
      return ranked ? rows[index].rank : !standsAgainst(rows[index]);
    });
    var signs = [x, y].map(function (key) { return better[key] === "higher" ? 1 : -1; });
    var points = asked.map(function (index) {
      return [signs[0] * known.values(x)[index], signs[1] * known.values(y)[index], index];
    });
    points.sort(function (a, b) { return b[0] - a[0] || b[1] - a[1] || a[2] - b[2]; });
    var found = [], best = -Infinity, last = null;
    points.forEach(function (point) {
      if (point[1] > best || (last && point[0] === last[0] && point[1] === last[1])) {
        found.push(point[2]);
        best = point[1];
        last = point;
      }
    });
    return found;
  }

  /* Columns that may be an axis: those that some row of a section has. */
  var possible = known.once(function (members) {
    function usable(keys) {
      return keys.filter(function (key) { return members.some(function (index) { return has(key, index); }); });
    }
    return { x: usable(X), y: usable(Y) };
  });

  /* The axes that the address asks for and the section has; what it asks for in vain is told. */
  function asked(choices, members) {
    var found = { x: choices.get("x"), y: choices.get("y"), told: [] };
    ["x", "y"].forEach(function (axis) {
      if (found[axis] !== null && possible(members)[axis].indexOf(found[axis]) < 0) {
        found.told.push([axis, found[axis], "the trade-off has no axis “" + found[axis] + "” here"]);
        found[axis] = null;
      }
    });
    return found;
  }

  /* The axes asked for; where none is, see tradeoff.axes. */
  function axes(choices, members) {
    var wanted = asked(choices, members), able = possible(members), half = Math.ceil(members.length / 2), pair = null, most = 0;
    (wanted.x ? [wanted.x] : able.x).forEach(function (x) {
      (wanted.y ? [wanted.y] : able.y).forEach(function (y) {
        var count = Math.min(half, placed(members, x, y).length);
        if (count > most) { most = count; pair = { x: x, y: y }; }
      });
    });
    return { pair: pair, possible: able };
  }

  function element(name, attributes, parent) {
    var made = document.createElementNS(SVG, name);
    Object.keys(attributes).forEach(function (key) { made.setAttribute(key, attributes[key]); });
    if (parent) { parent.appendChild(made); }
    return made;
  }

  function words(parent, text, x, y, anchor) {
    element("text", { x: x, y: y, "text-anchor": anchor || "start", class: "tw-f-ink2" }, parent).textContent = text;
  }

  /* Round numbers from 0, four or five of them. */
  function ticks(top) {
    var step = Math.pow(10, Math.floor(Math.log10(top / 4)));
    [1, 2, 2.5, 5, 10].some(function (times) {
      if (top / (step * times) <= 5) { step *= times; return true; }
      return false;
    });
    var found = [];
    for (var i = 0; i * step <= top * 1.0001; i++) { found.push(i * step); }
    return found;
  }

  /* The classes of a row's point: of its colour, and hollow where it has no rank. */
  function paint(row) {
    var colour = style(row.id).colour;
    return "tw-trade-point tw-s-" + colour + (row.rank ? " tw-f-" + colour : " tw-trade-hollow");
  }

  function mark(row, size) {
    var svg = element("svg", { viewBox: "-8 -8 16 16", width: size, height: size, class: "tw-mark", "aria-hidden": "true" });
    element("path", { d: "M0 0" + style(row.id).path, class: paint(row) + " tw-trade-front" }, svg);
    return svg;
  }

  /* Draws points and frontier. Marks of one look are one path, so that ten thousand cost no more. */
  function plot(holder, indices, pair, line, names) {
    var narrow = holder.clientWidth < 560, width = narrow ? 345 : 780, height = narrow ? 300 : 340;
    var left = 56, right = 20, top = 28, bottom = 44;
    var svg = element("svg", { viewBox: "0 0 " + width + " " + height, class: "tw-svg tw-trade-svg", role: "img" });
    svg.setAttribute("aria-label", names.y + " against " + names.x + ": " + indices.length + " points, " + line.length
      + " on the frontier; their values are in the table.");
    function end(key) {
      return 1.06 * indices.reduce(function (most, index) { return Math.max(most, known.values(key)[index]); }, 0) || 1;
    }
    var most = { x: end(pair.x), y: end(pair.y) };
    function x(value) { return left + (width - left - right) * value / most.x; }
    function y(value) { return height - bottom - (height - top - bottom) * value / most.y; }
    ticks(most.y).forEach(function (tick) {
      element("line", { x1: left, x2: width - right, y1: y(tick), y2: y(tick), class: "tw-s-rule" }, svg);
      words(svg, known.amount(tick, 0), left - 6, y(tick) + 4, "end");
    });
    ticks(most.x).forEach(function (tick) { words(svg, known.amount(tick, 0), x(tick), height - bottom + 18, "middle"); });
    element("line", { x1: left, x2: width - right, y1: height - bottom, y2: height - bottom, class: "tw-s-strong" }, svg);
    words(svg, names.y, 0, 12);
    words(svg, names.x, width - right, height - 6, "end");
    function at(index) {
      return [x(known.values(pair.x)[index]), y(known.values(pair.y)[index])];
    }
    function point(index) { return "M" + at(index).map(function (n) { return n.toFixed(1); }).join(" "); }
    if (line.length > 1) {
      element("path", { d: line.map(point).join("").replace(/(?!^)M/g, "L"), class: "tw-trade-line tw-s-ink2" }, svg);
    }
    var looks = {}, front = new Set(line);
    indices.forEach(function (index) {
      var look = paint(rows[index]);
      if (!front.has(index)) { looks[look] = (looks[look] || "") + point(index) + style(rows[index].id).path; }
    });
    Object.keys(looks).forEach(function (look) { element("path", { d: looks[look], class: look }, svg); });
    line.forEach(function (index, place) {
      var here = at(index);
      var one = element("path", { d: point(index) + style(rows[index].id).path, class: paint(rows[index]) + " tw-trade-front" }, svg);
      element("title", {}, one).textContent = rows[index].title;
      element("text", { x: here[0] + 8, y: here[1] - 7, class: "tw-trade-n tw-f-ink" }, svg).textContent = String(place + 1);
    });
    holder.replaceChildren(svg);
  }

  globalThis.TokenwattTradeoff = { style: style, mark: mark, asked: asked, axes: axes, placed: placed, frontier: frontier, plot: plot };
})();
