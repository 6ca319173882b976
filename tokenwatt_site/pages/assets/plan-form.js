/* The fields of the page "What should I run": what may be asked, what is asked, and every choice in the address. */
(function () {
  "use strict";

  var known = globalThis.TokenwattCatalogue, sizing = globalThis.TokenwattSizing, root = document.getElementById("plan");
  if (!root || !known || !sizing || !known.rows.length) { return; }

  var told = JSON.parse(root.dataset.plan), form = part("form"), sections, remembered = {}, priced = null, begun = false, asking;
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
  function whole(value) { return value.toLocaleString("en-US"); }

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
    var mine = ofWorkload(), row = known.rows.find(function (one) {
      if (mine.indexOf(known.sections[one.section]) < 0) { return false; }
      var cells = one.cells;
      return cells.boundary_rate.value !== null && cells.goodput.value !== null && cells.input_throughput.value !== null;
    });
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
    var kinds = Object.create(null);
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
        if (/^\d{4}-\d\d-\d\d$/.test(value) && !isNaN(Date.parse(value))) { priced = value; } else { wrong.push("The address gives no date for its prices."); }
      } else if (!Object.prototype.hasOwnProperty.call(byKey, key)) {
        wrong.push("The address asks for " + quoted(key) + ", which this page does not know.");
      }
    });
    new Set(state.keys()).forEach(function (key) {
      if (state.getAll(key).length > 1) { wrong.push("The address gives " + quoted(key) + " more than once; the first is taken."); }
    });
    notice(wrong);
    asking();
  }

  function changed(event) {
    var control = event.target, key = control.dataset.key;
    if (!key) { return; }
    if (key === "workload") { offerSlos(); }
    if (key === "load") { remembered[part("unit").value] = control.value; }
    if (key === "unit") { aim(control.value); }
    if (PRICES[key.split(".")[0]] === true) { priced = today(); }
    notice([]);
    keep();
    asking();
  }

  /* Offers the fields, and calls `ask` at once and whenever something else is asked. */
  function begin(ask) {
    asking = ask;
    sections = ordering();
    options(part("workload"), distinct(sections, workloadId, workloadWords));
    form.hidden = false;
    root.addEventListener("input", changed);
    form.addEventListener("submit", function (event) { event.preventDefault(); });
    addEventListener("hashchange", restore);
    restore();
  }

  globalThis.TokenwattPlanForm = {
    told: told, part: part, make: make, counted: counted, whole: whole, sloId: sloId, sloWords: sloWords,
    begin: begin, checked: checked, asked: asked, priced: function () { return priced; }
  };
})();
