/* The search of the page for lost addresses: prefixes of ids, in the index that is published for programs. */
(function () {
  "use strict";

  var MOST = 20, SHORTEST = 3;

  function clean(words) {
    return words.toLowerCase().trim().replace(/^sha256:/, "");
  }

  /* What of an address may be an id: the last part that is none of our own names. */
  function wanted(path) {
    var parts = path.split("/").filter(function (part) { return part !== ""; });
    for (var i = parts.length - 1; i >= 0; i--) {
      var part = parts[i];
      try { part = decodeURIComponent(part); } catch (error) { continue; }
      part = part.replace(/\.(html|json|svg|xml|js)$/, "");
      if (["index", "run", "runs", "reports", "results", "badges", "evidence"].indexOf(part) < 0) { return part; }
    }
    return "";
  }

  /* Those that begin with the words; a configuration is also found by what is within its id. */
  function matches(index, words) {
    var found = [];
    index.results.forEach(function (each) {
      if (each.id.indexOf(words) >= 0) {
        found.push({ first: each.id.indexOf(words) === 0, path: each.report, id: each.id, title: each.title, kind: "report" });
      }
    });
    index.runs.forEach(function (each) {
      if (each.run.indexOf(words) === 0) {
        var kind = each.state === "stands" ? "run" : "run, " + each.state;
        found.push({ first: true, path: each.page, id: each.run, title: each.title, kind: kind });
      }
    });
    return found.sort(function (a, b) { return b.first - a.first || (a.id < b.id ? -1 : 1); });
  }

  function start(place) {
    var root = place.getAttribute("data-root"), form = place.querySelector("form");
    var input = place.querySelector("input"), said = place.querySelector(".tw-lost-said");
    var list = place.querySelector(".tw-lost-found"), index = null;

    function show(words) {
      list.textContent = "";
      var found = matches(index, words);
      said.textContent = found.length === 0 ? "No run and no configuration here has this id: " + words
        : found.length + " found" + (found.length > MOST ? ", the first " + MOST + " are shown; give more of the id." : ".");
      found.slice(0, MOST).forEach(function (each) {
        var item = document.createElement("li"), link = document.createElement("a"), id = document.createElement("code");
        link.href = root + each.path;
        link.textContent = each.title;
        id.textContent = each.id;
        item.append(link, " (" + each.kind + ") ", id);
        list.appendChild(item);
      });
    }

    function search(given) {
      var words = clean(given);
      if (words.length < SHORTEST) { said.textContent = "Give at least " + SHORTEST + " signs of the id."; list.textContent = ""; return; }
      if (index) { show(words); return; }
      said.textContent = "Searching.";
      fetch(root + "api/v1/index.json").then(function (response) {
        if (!response.ok) { throw new Error("HTTP " + response.status); }
        return response.json();
      }).then(function (value) { index = value; show(words); }).catch(function () {
        said.textContent = "The list of ids could not be read. The ranking lists every configuration.";
      });
    }

    place.querySelector(".tw-lost-off").hidden = true;
    form.hidden = false;
    form.addEventListener("submit", function (event) { event.preventDefault(); search(input.value); });
    var path = location.pathname, id = wanted(path.indexOf(root) === 0 ? path.slice(root.length) : path);
    input.value = id.slice(0, 100);
    if (id.length >= SHORTEST && id !== "404") { search(id); }
  }

  document.querySelectorAll(".tw-lost").forEach(start);
})();
