/* The page of the checker: takes files or fetches them, tells what came of each check. In the JavaScript of 2009, so that an
   old browser, which cannot read the other scripts, still says that it cannot verify. All that a run says goes in as text. */
(function () {
  "use strict";

  var tool = window.TokenwattVerify, data = window.TokenwattVerifyData;
  var WORDS = { passed: "Holds", failed: "Fails", open: "Not checked" };

  function make(name, className, text) {
    var made = document.createElement(name);
    if (className) { made.className = className; }
    if (text !== undefined) { made.textContent = text; }
    return made;
  }

  function off(root, why) {
    root.querySelector(".tw-check-off").textContent = "Cannot verify here: " + why + ". Use tokenwatt-site verify.";
  }

  function number(value, decimals) {
    if (value === null || value === undefined) { return "none"; }
    var small = Math.abs(value) > 0 && Math.abs(value) < 10, magnitude = Math.floor(Math.log(Math.abs(value)) / Math.LN10);
    var digits = Math.min(small ? Math.max(decimals, 1 - magnitude) : decimals, 12);
    return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  }

  /* ---------- what is told ---------- */

  function Teller(root) {
    this.root = root;
    this.verdict = root.querySelector(".tw-check-verdict");
    this.result = root.querySelector(".tw-check-result");
  }

  Teller.prototype.say = function (outcome, text) {
    this.verdict.className = "tw-check-verdict tw-check--" + outcome;
    this.verdict.textContent = text;
  };

  Teller.prototype.clear = function () {
    this.result.textContent = "";
    this.list = this.result.appendChild(make("ol", "tw-check-list"));
  };

  Teller.prototype.line = function (title, outcome, text) {
    var item = this.list.appendChild(make("li", "tw-check--" + outcome));
    item.appendChild(make("b", "", title));
    item.appendChild(make("span", "tw-check-word", WORDS[outcome]));
    item.appendChild(make("span", "", text));
  };

  Teller.prototype.table = function (numbers, caption) {
    var rows = numbers.filter(function (one) { return one.made !== null || one.differs; });
    if (!rows.length) { return; }
    var details = this.result.appendChild(make("details", "tw-d")), scroll = make("div", "tw-scroll"), table = make("table", "tw-table");
    details.appendChild(make("summary", "", caption));
    scroll.tabIndex = 0;
    scroll.setAttribute("role", "region");
    scroll.setAttribute("aria-label", caption);
    var head = table.createTHead().insertRow();
    ["Number", "Unit", "In the run file", "Made again here", "Compared"].forEach(function (name) {
      var cell = head.appendChild(make("th", "", name));
      cell.scope = "col";
    });
    var body = table.appendChild(make("tbody"));
    rows.forEach(function (one) {
      var row = body.insertRow(), label = row.appendChild(make("th", "", one.label));
      label.scope = "row";
      row.appendChild(make("td", "", one.unit));
      row.appendChild(make("td", "n", number(one.claimed, one.decimals)));
      row.appendChild(make("td", "n", number(one.made, one.decimals)));
      row.appendChild(make("td", one.differs ? "tw-bad" : "tw-ok", one.differs ? "differs" : "equal"));
    });
    scroll.appendChild(table);
    details.appendChild(scroll);
  };

  function titleOf(check) { return check.number + ". " + data.checks[check.number - 1].name; }

  function verdictOf(report) {
    var last = report.checks[report.checks.length - 1], skipped = report.checks.filter(function (one) { return one.outcome === "open"; });
    if (last.outcome === "failed") { return ["failed", "Check " + last.number + " fails: " + last.text]; }
    if (report.checks.length < tool.CHECKS) { return ["open", "Not finished. " + last.text]; }
    var words = "Signature and evidence hold, and the numbers follow from the evidence.";
    if (skipped.length) { words = "Signature, evidence and journal hold. This run plays a trace, so its numbers are not made again here."; }
    return [report.key.known ? "passed" : "open", words + (report.key.known ? "" : " The key is not one that this site vouches for.")];
  }

  /* ---------- the numbers of this very page ---------- */

  /* Where a page shows another number than was made again; `seen` counts all that could be looked at. */
  function shownOtherwise(numbers) {
    var seen = 0, wrong = [];
    Array.prototype.forEach.call(document.querySelectorAll("[data-metric]"), function (cell) {
      numbers.forEach(function (one) {
        if (one.key !== cell.getAttribute("data-metric") || one.label !== cell.getAttribute("data-label")) { return; }
        var text = cell.textContent.replace(/,/g, ""), decimals = (text.split(".")[1] || "").length;
        seen++;
        if (one.made === null || !(Math.abs(Number(text) - one.made) <= 0.500001 * Math.pow(10, -decimals))) { wrong.push(one.label); }
      });
    });
    return { seen: seen, wrong: wrong };
  }

  Teller.prototype.page = function (numbers) {
    var shown = shownOtherwise(numbers);
    if (!shown.seen) { return true; }
    if (shown.wrong.length) {
      this.line("This page", "failed", "Shows other numbers than its evidence gives: " + shown.wrong.join(", ") + ".");
      this.say("failed", "The run holds, but this page shows other numbers: " + shown.wrong.join(", ") + ".");
      return false;
    }
    this.line("This page", "passed", shown.seen + " numbers under All numbers are those made again here.");
    return true;
  };

  /* ---------- a check ---------- */

  function check(root, source) {
    var teller = new Teller(root);
    root.setAttribute("aria-busy", "true");
    teller.clear();
    tool.verify(source, data, function (at) {
      teller.say("open", "Check " + at + " of " + tool.CHECKS + ": " + data.checks[at - 1].name + " …");
      return tool.pause();
    }).then(function (report) {
      var verdict = verdictOf(report), whole = report.checks.length === tool.CHECKS && verdict[0] !== "failed";
      report.checks.forEach(function (one) { teller.line(titleOf(one), one.outcome, one.text); });
      teller.say(verdict[0], verdict[1] + (whole ? " (" + (report.milliseconds / 1000).toFixed(2) + " s)" : ""));
      if (whole && source.runId) { teller.page(report.numbers); }
      teller.table(report.numbers, "Numbers made again");
      if (report.omitted.length) {
        teller.result.appendChild(make("p", "tw-small", "Not made again here, by the builder alone: " + report.omitted.join(", ") + "."));
      }
      if (whole && report.run.fit && report.run.trials) { offerReplay(teller, report, source); }
      root.removeAttribute("aria-busy");
    });
  }

  function offerReplay(teller, report, source) {
    var line = teller.result.appendChild(make("p")), button = line.appendChild(make("button", "tw-btn", "Replay the engine model"));
    button.type = "button";
    line.appendChild(make("span", "tw-small", " Plays the long run again, 200,000 requests at a time; takes seconds."));
    button.addEventListener("click", function () {
      var progress = make("progress");
      progress.max = 1;
      progress.setAttribute("aria-label", "Replay of the engine model");
      line.textContent = "";
      line.appendChild(progress);
      teller.root.setAttribute("aria-busy", "true");
      tool.replay(report, function (share) { progress.value = share; return tool.pause(); }).then(function (found) {
        line.remove();
        teller.line("10. The engine model", found.outcome, found.text);
        if (found.outcome === "failed") { teller.say("failed", "Check 10 fails: " + found.text); }
        if (found.outcome === "passed" && source.runId) { teller.page(found.numbers); }
        teller.table(found.numbers, "Numbers of the long run");
        teller.root.removeAttribute("aria-busy");
      });
    });
  }

  /* ---------- where the files come from ---------- */

  function fetched(url) {
    return fetch(url).then(function (response) {
      return response.ok ? response.arrayBuffer().then(function (buffer) { return new Uint8Array(buffer); }) : null;
    }, function () { return null; });
  }

  function checkPublished(root) {
    var folder = root.getAttribute("data-folder");
    fetched(folder + "/run.json").then(function (bytes) {
      if (!bytes) { new Teller(root).say("open", "The run file could not be fetched."); return; }
      check(root, {
        bytes: bytes, runId: root.getAttribute("data-run"), fetch: function (entry) { return fetched(folder + "/" + entry.path); }
      });
    });
  }

  function bytesOf(file) { return file.arrayBuffer().then(function (buffer) { return new Uint8Array(buffer); }); }

  function checkFiles(root, files) {
    var teller = new Teller(root), evidence = {}, documents = files.filter(function (file) { return /\.json$/i.test(file.name); });
    files.forEach(function (file) { evidence[file.name] = file; });
    teller.clear();
    var named = documents.filter(function (file) { return file.name === "run.json"; });
    if (documents.length > 1 && named.length === 1) { documents = named; }
    if (documents.length !== 1) {
      teller.say("open", "Give one run file (.json) and its evidence; there " + (documents.length ? "are several." : "is none."));
      return;
    }
    bytesOf(documents[0]).then(function (bytes) {
      check(root, {
        bytes: bytes, runId: root.getAttribute("data-run") || null,
        fetch: function (entry) {
          var file = evidence[entry.sha256 + ".jsonl.gz"];
          return file ? bytesOf(file) : Promise.resolve(null);
        }
      });
    });
  }

  function joined(lists) { return Array.prototype.concat.apply([], lists); }

  /* All files below dropped entries; a folder's are read in parts. */
  function walk(entry) {
    if (entry.isFile) {
      return new Promise(function (resolve, reject) { entry.file(function (file) { resolve([file]); }, reject); });
    }
    var reader = entry.createReader(), found = [];
    return new Promise(function (resolve, reject) {
      (function more() {
        reader.readEntries(function (part) {
          found = found.concat(part);
          if (part.length) { more(); } else { resolve(found); }
        }, reject);
      })();
    }).then(function (entries) { return Promise.all(entries.map(walk)); }).then(joined);
  }

  function dropped(transfer) {
    var entries = Array.prototype.map.call(transfer.items, function (item) {
      return item.webkitGetAsEntry && item.webkitGetAsEntry();
    }).filter(Boolean);
    // On a page from disk some browsers read no entry; files need none.
    if (!entries.some(function (entry) { return entry.isDirectory; })) {
      return Promise.resolve(Array.prototype.slice.call(transfer.files));
    }
    return Promise.all(entries.map(walk)).then(joined);
  }

  function prepare(root) {
    var start = root.querySelector(".tw-check-start"), drop = root.querySelector(".tw-drop");
    root.querySelector(".tw-check-off").hidden = true;
    root.querySelector(".tw-check-on").hidden = false;
    if (start && location.protocol === "file:") {
      start.parentNode.hidden = true;
      drop.hidden = false;
    } else if (start) {
      start.addEventListener("click", function () { checkPublished(root); });
    }
    Array.prototype.forEach.call(root.querySelectorAll("input[type=file]"), function (input) {
      input.addEventListener("change", function () {
        checkFiles(root, Array.prototype.slice.call(input.files));
        input.value = "";
      });
    });
    drop.addEventListener("dragover", function (event) { event.preventDefault(); drop.classList.add("tw-drop--over"); });
    drop.addEventListener("dragleave", function () { drop.classList.remove("tw-drop--over"); });
    drop.addEventListener("drop", function (event) {
      event.preventDefault();
      drop.classList.remove("tw-drop--over");
      dropped(event.dataTransfer).then(function (files) { checkFiles(root, files); }, function () {
        new Teller(root).say("open", "The dropped folder could not be read. Choose it, or drop its files.");
      });
    });
  }

  Array.prototype.forEach.call(document.querySelectorAll(".tw-check"), function (root) {
    if (!tool || !data) { off(root, "this browser is too old to read the scripts"); return; }
    tool.lacking().then(function (why) { if (why) { off(root, why); } else { prepare(root); } });
  });
})();
