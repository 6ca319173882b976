/* The simulator of the method page: plays the engine model at the rate that a reader asks for. A play or a step of a
   search is a slice of its own, so that the page stays awake; a Worker may not be loaded from disk. */
(function () {
  "use strict";

  var model = globalThis.TokenwattEngine, data = globalThis.TokenwattSimulatorData, NS = "http://www.w3.org/2000/svg";
  var root = document.getElementById("simulator"), load, job = 0, WIDTH = 1000, EDGE;

  function part(id) { return document.getElementById("sim-" + id); }

  function unpack() {
    var text = atob(data.rows), bytes = new Uint8Array(text.length), n = text.length / 8, sum = 0;
    for (var i = 0; i < text.length; i++) { bytes[i] = text.charCodeAt(i); }
    var view = new DataView(bytes.buffer);
    var rows = { elapsed: new Float64Array(n), nIn: new Int32Array(n), nOut: new Int32Array(n), scored: data.scored };
    for (i = 0; i < n; i++) {
      sum += view.getUint32(8 * i, true);
      rows.elapsed[i] = sum;
      rows.nIn[i] = view.getUint16(8 * i + 4, true);
      rows.nOut[i] = view.getUint16(8 * i + 6, true);
    }
    return rows;
  }

  /* The rows of a window, with as many before and after as fill the engine and keep it full. */
  function cut(from, to) {
    var low = Math.max(0, from - EDGE), high = Math.min(load.nIn.length, to + EDGE), offset = load.elapsed[low];
    return {
      elapsed: load.elapsed.slice(low, high).map(function (value) { return value - offset; }),
      nIn: load.nIn.slice(low, high), nOut: load.nOut.slice(low, high), scored: [from - low, to - low]
    };
  }

  function rate(urps) { return (urps / 1e6).toFixed(2); }
  function percent(share) { return (100 * share).toFixed(1) + "%"; }
  function words(n) { return n.toLocaleString("en-US"); }

  /* Whole windows one after the other, with their rows. */
  function windows(played, lengthNs) {
    var from = data.scored[0], begin = played.due[from], end = played.due[data.scored[1] - 1], found = [];
    while (begin + lengthNs <= end) {
      var to = from;
      while (played.due[to] < begin + lengthNs) { to++; }
      found.push({ begin: begin, from: from, to: to });
      from = to;
      begin += lengthNs;
    }
    return found;
  }

  function path(name, marks) {
    var made = document.createElementNS(NS, "path");
    made.setAttribute("class", name);
    made.setAttribute("d", marks);
    return made;
  }

  function drawn(one, played, missed, lengthNs, shown) {
    var item = document.createElement("li"), picture = document.createElementNS(NS, "svg"), told = document.createElement("span");
    var tall = "", short = "", misses = 0;
    for (var i = one.from; i < one.to; i++) {
      var x = ((played.due[i] - one.begin) * WIDTH / lengthNs).toFixed(1);
      if (missed[i]) { tall += "M" + x + " 0v12"; misses++; } else { short += "M" + x + " 10v2"; }
    }
    var counts = model.counts(data.slo, played, load.nOut, [one.from, one.to]);
    one.keeps = counts.every(function (count, k) { return model.passes(count, data.slo[k]); });
    picture.setAttribute("viewBox", "0 0 " + WIDTH + " 12");
    picture.setAttribute("preserveAspectRatio", "none");
    picture.setAttribute("aria-hidden", "true");
    picture.append(path("tw-sim-hit", short), path("tw-sim-miss", tall));
    told.textContent = words(misses) + " of " + words(one.to - one.from) + " miss: " + (one.keeps ? "keeps the SLO" : "does not keep it");
    item.append(picture, told);
    if (shown) { item.setAttribute("aria-current", "true"); }
    return item;
  }

  function tell(lines) {
    root.querySelector(".tw-sim-result").replaceChildren.apply(root.querySelector(".tw-sim-result"), lines.map(function (line) {
      var p = document.createElement("p");
      p.textContent = line;
      return p;
    }));
  }

  /* A later job ends an earlier one: `slice` is called until it returns true. */
  function run(slice) {
    var mine = ++job;
    root.setAttribute("aria-busy", "true");
    (function next() {
      setTimeout(function () {
        if (mine !== job) { return; }
        if (slice()) { root.removeAttribute("aria-busy"); } else { next(); }
      }, 0);
    })();
  }

  function start() {
    var engine = data.engines[part("engine").value], urps = Math.round(Number(part("rate").value) * 1e6);
    var lengthNs = Number(part("minutes").value) * 60e9, find = null, lines, shown, number;
    if (!(urps >= 100000 && urps <= 100000000)) {
      job++;
      root.removeAttribute("aria-busy");
      return tell(["Give a rate from 0.1 to 100 requests/s."]);
    }
    run(function () {
      if (!find) {
        var played = model.play(engine, load, urps), counts = model.counts(data.slo, played, load.nOut, data.scored);
        var per = data.slo.map(function (objective) { return model.missed(objective, played, load.nOut); });
        var missed = per[0].map(function (value, i) { return value | per[1][i]; });
        var keeps = counts.every(function (count, i) { return model.passes(count, data.slo[i]); });
        var kept = model.slidingWindows(data.slo, played, load.nOut, data.scored, lengthNs, data.stepNs);
        var all = windows(played, lengthNs);
        lines = ["Simulated at " + rate(urps) + " requests/s: " + counts.map(function (count, i) {
          return words(count.misses) + " of " + words(count.n) + " requests (" + (100 * count.misses / count.n).toFixed(2) + "%) miss the "
            + data.slo[i].metric.toUpperCase() + " limit";
        }).join(", and ") + ". Of each " + words(counts[0].n - model.rank(data.slo[0].quantile, counts[0].n))
          + " may: in the long run the SLO is " + (keeps ? "kept." : "not kept.")];
        part("length").textContent = part("minutes").value;
        part("short").hidden = false;
        if (!all.length) {
          root.querySelector("ol").replaceChildren();
          lines.push("These requests come in less than " + part("minutes").value + " minutes: no window is whole.");
          tell(lines);
          return true;
        }
        lines.push(percent(kept.reduce(function (sum, one) { return sum + one; }, 0) / kept.length) + " of " + part("minutes").value
          + "-minute windows keep it.");
        number = Math.min(Math.max(Math.round(Number(part("window").value)) || 1, 1), all.length);
        part("window").max = all.length;
        part("window").value = number;
        root.querySelector("ol").replaceChildren.apply(root.querySelector("ol"), all.map(function (one, i) {
          return drawn(one, played, missed, lengthNs, i === number - 1);
        }));
        shown = all[number - 1];
        find = model.edgeFinder(engine, cut(shown.from, shown.to), data.slo, engine.boundaryUrps);
        return false;
      }
      var end = find();
      if (!end) { return false; }
      var apart = end.edges && end.edges.boundaryUrps / engine.boundaryUrps - 1;
      lines.push(end.edges
        ? "A measurement on window " + number + " alone would find " + rate(end.edges.boundaryUrps) + " requests/s, "
          + percent(Math.abs(apart)) + (apart < 0 ? " below" : " above") + " the boundary of the long run, " + rate(engine.boundaryUrps) + "."
        : "Window " + number + " has no boundary.");
      tell(lines);
      return true;
    });
  }

  function aim() {
    var boundary = data.engines[part("engine").value].boundaryUrps / 1e6, slider = part("slider");
    slider.min = (0.7 * boundary).toFixed(2);
    slider.max = (1.3 * boundary).toFixed(2);
    slider.value = part("rate").value = rate(data.engines[part("engine").value].shownUrps);
  }

  if (!root || !model || !data) { return; }
  load = unpack();
  EDGE = data.scored[0];
  part("slider").addEventListener("input", function () { part("rate").value = part("slider").value; start(); });
  part("rate").addEventListener("input", function () { part("slider").value = part("rate").value; start(); });
  part("engine").addEventListener("change", function () { aim(); start(); });
  part("minutes").addEventListener("change", start);
  part("window").addEventListener("change", start);
  root.querySelector("form").addEventListener("submit", function (event) { event.preventDefault(); });
  root.querySelector("form").hidden = false;
  aim();
  start();
})();
