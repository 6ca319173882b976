/* What a comparison says, in blocks of words and numbers: the same as the builder's pages/compare.py, and tested
   against it. Makes no element. */
(function () {
  "use strict";

  var data = globalThis.TokenwattCompareData, core = globalThis.TokenwattComparison, letter = core.letter;
  var WIDTH = 240, MINUS = "\u2212", SEEN = ["better", "worse", "different"];
  var SIDE = { higher: "↑ higher is better", lower: "↓ lower is better", neither: "" };
  var NOTICES = {
    withdrawn: "Withdrawn.", superseded: "Superseded.", disputed: "Disputed.",
    simulated: "Simulated: its numbers are about no product.", "not published": "Not published.",
    interrupted: "Interrupted."
  };
  var OTHER_BOARDS = "Each side ran on the boards that its report names; two of one model may differ, and their" +
    " power readings by up to 5%.";

  /* ---------- words */

  /* As Python writes it: what lies halfway goes to the even digit, where toFixed goes up. Halfway is only what is a
     sum of powers of two, so that twice it, in units of the last digit, is odd and divisible by as many fives. */
  function shown(value, decimals) {
    var size = Math.abs(value), unit = Math.pow(10, decimals), floor = Math.floor(size * unit);
    var halfway = size * unit - floor === 0.5 && (2 * floor + 1) % Math.pow(5, decimals) === 0;
    var words = halfway ? ((floor + floor % 2) / unit).toFixed(decimals) : size.toFixed(decimals);
    return (value < 0 ? "-" : "") + words;
  }

  function fixed(value, decimals) {
    var parts = shown(Math.abs(value), decimals).split(".");
    parts[0] = parts[0].replace(/\B(?=(\d{3})+$)/g, ",");
    return (value < 0 ? "-" : "") + parts.join(".");
  }

  function amount(value, key) {
    if (value === null) { return "–"; }
    var decimals = data.metrics[key].decimals, size = Math.abs(value);
    if (size > 0 && size < 10) { decimals = Math.max(decimals, 1 - Math.floor(Math.log10(size))); }
    return fixed(value, decimals);
  }

  function count(n) { return fixed(n, 0); }

  function pairsOf(row) { return count(row.launches[1]) + (row.launches[1] === 1 ? " pair" : " pairs"); }

  function joined(words) {
    return words.length < 2 ? words.join("") : words.slice(0, -1).join(", ") + " and " + words[words.length - 1];
  }

  function capital(words) { return words.slice(0, 1).toUpperCase() + words.slice(1); }

  function fieldWords(path) {
    return data.fieldWords[path] || capital(path.replace(/[._]/g, " "));
  }

  function valueWords(value) {
    if (value === null) { return "none"; }
    if (typeof value === "boolean") { return value ? "yes" : "no"; }
    if (typeof value !== "object") { return String(value); }
    if (Array.isArray(value)) { return value.map(valueWords).join(" "); }
    return Object.keys(value).map(function (key) { return key + " " + valueWords(value[key]); }).join(", ");
  }

  function change(ratio) {
    var percent = 100 * (ratio - 1);
    return shown(Math.abs(percent), 1) + "% " + (percent >= 0 ? "more" : "less");
  }

  function percent(ratio) {
    var by = 100 * (ratio - 1);
    return (by < 0 ? MINUS : "+") + shown(Math.abs(by), 1) + "%";
  }

  function points(value) {
    var words = shown(Math.abs(value), 2);
    return Number(words) === 0 ? words : (value < 0 ? MINUS : "+") + words;
  }

  function interval(ratio) {
    return ratio.low === null ? "no interval" : shown(ratio.low, 3) + " to " + shown(ratio.high, 3);
  }

  function p(cls, parts) { return { kind: "p", class: cls, parts: parts }; }

  function byKey(pair) {
    var found = {};
    pair.rows.forEach(function (row) { if (row.ratio !== null) { found[row.key] = row; } });
    return found;
  }

  /* ---------- summary and sides */

  function why(detail) {
    if (detail.quoted) {
      return "Every ratio divides by what was published on " + detail.measured +
        ", and has no interval. That its workload is the same is its own word: it has no hash.";
    }
    return capital(detail.exclusions.map(function (each) { return each.text; }).join("; ")) + ".";
  }

  function status(detail) {
    var told = detail.exclusions, more = told.length - 1;
    if (detail.status !== "unranked" || !told.length) { return detail.status; }
    var rest = more ? ", and " + count(more) + (more === 1 ? " more reason" : " more reasons") : "";
    return "unranked: " + told[0].text + rest;
  }

  function side(detail, index) {
    var words = [detail.under];
    if (detail.quoted) {
      words.push("published " + detail.measured);
    } else {
      var signer = detail.signer || "a key that is not registered", run = detail.mode + " mode, n = " + detail.launches;
      words.push(run + ", " + detail.measured + ", signed by " + signer, status(detail));
    }
    return {
      letter: letter(index), role: index ? "compared" : "baseline", title: detail.title, under: words.join("; "), id: detail.id
    };
  }

  function said(row) {
    var ratio = row.ratio, label = data.metrics[row.key].label;
    if (row.key === "goodput") { label += ", not corrected to the long run,"; }
    var name = /^[A-Z]{2}/.test(label) ? label : label.slice(0, 1).toLowerCase() + label.slice(1);
    if (ratio.low === null) {
      return [[name + " ", ""], [row.word, "b"], [" (ratio " + shown(ratio.value, 3) + ", without an interval)", ""]];
    }
    var words = SEEN.indexOf(row.word) >= 0 ? change(ratio.value) : row.word;
    var told = " (" + row.level + "% interval " + percent(ratio.low) + " to " + percent(ratio.high) + ")";
    return [[name + " ", ""], [words, "b"], [told, ""]];
  }

  function summary(a, pair, name) {
    if (pair.refused !== null) { return [[name + " is not compared with A: ", ""], [pair.refused, "b"], [".", ""]]; }
    var divided = byKey(pair), goodput = divided.long_run_goodput ? "long_run_goodput" : "goodput";
    var told = [goodput, "tokens_per_joule", "board_power"].filter(function (key) { return divided[key]; })
      .map(function (key) { return said(divided[key]); });
    if (pair.accuracy.word !== null) { told.push([["accuracy ", ""], [pair.accuracy.word, "b"]]); }
    if (!told.length) { return [["Nothing of " + name + " can be divided by A; the reasons stand below.", ""]]; }
    var parts = [[name + " against A: ", ""]];
    told.forEach(function (each, i) { parts = parts.concat(i ? [["; ", ""]] : [], each); });
    return parts.concat([[(a.quoted ? ", as published and not recomputed" : "") + ".", ""]]);
  }

  function controlled(pair, name) {
    var words = ": " + fieldWords(pair.differing[0]) + " differs between A and " + name + "; no other recorded setup field differs.";
    var parts = [["Controlled pair", "b"], [words, ""]];
    if (pair.unknown.length) {
      parts.push([" Recorded on neither side, so that it may differ: " + joined(pair.unknown.map(fieldWords)) + ".", ""]);
    }
    return parts;
  }

  function top(details, found) {
    var question = details[1], power = question.power_words ? "power: " + question.power_words : "no power measured";
    var words = [question.workload.name, question.slo_text, power].filter(Boolean).join(" · ");
    var made = [p("tw-eyebrow", [[words, ""]])];
    details.forEach(function (detail, i) {
      var lead = detail.quoted ? "As published, not recomputed." : NOTICES[detail.status];
      if (lead) { made.push({ kind: "notice", lead: letter(i) + ": " + lead, rest: why(detail) }); }
      if (detail.gate.outcome === "failed") {
        made.push({ kind: "notice", lead: letter(i) + ": accuracy gate failed.", rest: capital(detail.gate.text) + "." });
      }
    });
    found.pairs.forEach(function (pair, i) {
      made.push(p("tw-summary", summary(details[0], pair, letter(i + 1))));
      if (pair.controlled) { made.push(p("tw-controlled", controlled(pair, letter(i + 1)))); }
    });
    return made.concat([{ kind: "sides", items: details.map(side) }]);
  }

  /* ---------- setup */

  function head(words, cls, axis) { return { text: words, class: cls || "", axis: axis || null }; }

  function cell(parts, cls, small, more) {
    var empty = { parts: parts, class: cls || "", small: small || "", key: null, verdict: null, bar: null, span: null };
    return Object.assign(empty, more);
  }

  function listed(value, values) {
    var others = values.filter(Array.isArray), parts = [];
    value.forEach(function (each, i) {
      var differs = others.some(function (other) {
        return !other.some(function (one) { return core.same(one, each); });
      });
      if (i) { parts.push([" ", ""]); }
      parts.push([valueWords(each), differs ? "b" : ""]);
    });
    return parts.length ? parts : [["none", ""]];
  }

  function fieldRow(details, field) {
    return [cell([[fieldWords(field.path), ""]])].concat(field.values.map(function (value, i) {
      if (details[i].quoted) { return cell([["in its own words", ""]]); }
      if (field.path === "slo") { return cell([[details[i].slo_text, ""]]); }
      if (Array.isArray(value)) { return cell(listed(value, field.values)); }
      return cell([[value === null ? "absent" : valueWords(value), ""]]);
    }));
  }

  function setup(details, found) {
    var made = [{ kind: "h2", id: "setup", text: "What differs in the setup" }];
    var differ = found.fields.length, all = differ + found.equal.length;
    if (differ) {
      made.push({
        kind: "table", label: "Differing setup fields", class: "tw-fields",
        caption: differ + " of " + all + " setup fields differ.",
        heads: [head("Field")].concat(details.map(function (_, i) { return head(letter(i)); })),
        groups: [{ name: "", rows: found.fields.map(function (field) { return fieldRow(details, field); }) }]
      });
    } else if (details.filter(function (detail) { return !detail.quoted; }).length > 1) {
      made.push(p("", [["None of " + all + " setup fields differs: these are runs of one setup.", ""]]));
    }
    if (details.some(function (detail) { return detail.quoted; })) {
      made.push(p("tw-small", [["The publication tells its setup in its own words, which are not compared here.", ""]]));
    }
    if (found.equal.length && differ) {
      var words = "The " + found.equal.length + " fields that are equal";
      var setup = details.find(function (detail) { return !detail.quoted; }).setup;
      var items = found.equal.map(function (path) { return fieldWords(path) + ": " + valueWords(setup[path]); });
      made.push({ kind: "details", summary: words, items: items });
    }
    return made;
  }

  /* ---------- results of a pair */

  function scaleOf(rows) {
    var furthest = 0;
    rows.forEach(function (row) {
      if (row.ratio === null) { return; }
      [row.ratio.value, row.ratio.low, row.ratio.high].forEach(function (end) {
        if (end !== null) { furthest = Math.max(furthest, Math.abs(Math.log(end))); }
      });
    });
    return 1.1 * Math.max(furthest, Math.log(1.05));
  }

  function at(value, scale) { return Number(shown(WIDTH / 2 * (1 + Math.log(value) / scale), 1)); }

  function axis(scale) {
    var tick = data.ticks.filter(function (each) { return Math.log(each) <= 0.95 * scale; }).pop();
    return { ticks: [[at(1 / tick, scale), "÷ " + tick], [at(1, scale), "1"], [at(tick, scale), "× " + tick]] };
  }

  function bar(ratio, word, scale) {
    return {
      at: at(ratio.value, scale), line: ratio.low === null ? null : [at(ratio.low, scale), at(ratio.high, scale)],
      band: [Math.max(0, at(1 / data.same, scale)), Math.min(WIDTH, at(data.same, scale))], shape: data.marks[word][2],
      words: word + ": ratio " + shown(ratio.value, 3) + ", " + interval(ratio)
    };
  }

  function verdict(word) { return { word: word, class: data.marks[word][0], icon: data.marks[word][1] }; }

  function resultRow(row, scale, a) {
    var metric = data.metrics[row.key], better = SIDE[metric.better];
    var small = better ? metric.unit + "; " + better : metric.unit;
    var values = [row.baseline, row.other].map(function (value) { return cell([[amount(value, row.key), ""]], "n"); });
    if (row.ratio === null) {
      var reason = cell([["not compared: " + row.reason, ""]], "tw-none tw-reason", "", { span: 3 });
      return [cell([[row.label, ""]], "", small, { key: row.key }), reason].concat(values);
    }
    var found = verdict(row.word), sure = a.quoted ? "as published, not recomputed" : interval(row.ratio);
    return [
      cell([[row.label, ""]], "", small, { key: row.key, verdict: found }),
      cell([], "tw-wide-cell", "", { verdict: found }),
      cell([[shown(row.ratio.value, 3), "b"]], "n", sure),
      cell([], "tw-ratio", "", { bar: bar(row.ratio, row.word, scale) })
    ].concat(values);
  }

  function how(rows) {
    var told = [];
    rows.forEach(function (row) {
      if (row.ratio === null) { return; }
      var words = row.launches[0] === 0 ? "one published value against n = " + row.launches[1]
        : row.paired ? "paired by realisation, n = " + pairsOf(row)
          : "Welch on logarithms, n = " + row.launches[0] + " and " + row.launches[1] + " launches";
      words += ", " + (row.level ? row.level + "% interval" : "no interval");
      if (told.indexOf(words) < 0) { told.push(words); }
    });
    return told.length ? capital(told.join("; ")) + "." : "";
  }

  function results(a, b, pair, name) {
    var scale = scaleOf(pair.rows), groups = [];
    pair.rows.forEach(function (row) {
      var last = groups[groups.length - 1];
      if (!last || last.group !== row.group) { groups.push(last = { group: row.group, rows: [] }); }
      last.rows.push(resultRow(row, scale, a));
    });
    return {
      kind: "table", label: "Results, " + name + " relative to A", class: "tw-cmp",
      caption: name + " divided by A" + (a.quoted ? ", A as published and not recomputed" : "") + ". " + how(pair.rows),
      heads: [
        head("Metric"), head("Verdict on " + name, "tw-wide-cell"),
        head("Ratio " + name + " / A, interval", "n"), head("Smaller than A, or larger", "tw-ratio", axis(scale)),
        head("A", "n"), head(name, "n")
      ],
      groups: groups.map(function (each) {
        var energy = each.group === "Energy and power" && b.power_words;
        return { name: energy ? each.group + ": " + b.power_words : each.group, rows: each.rows };
      })
    };
  }

  function cards(found, a, name) {
    var made = [{ kind: "h3", id: "cards-" + name, text: "Cards for equal goodput" }];
    if (found.value === null) { return made.concat([p("tw-small", [["Not told: " + found.reason + ".", ""]])]); }
    var parts = [[count(found.value) + " cards of " + name, "b"], [" do the work of 64 of A", ""]];
    if (found.low !== null) {
      parts.push([" (by the interval " + count(found.low) + " to " + count(found.high) + ")", ""]);
    }
    var label = data.metrics[found.of].label, perCard = shown(found.per_card.value, 3);
    var words = ". 64 ÷ the ratio of " + label + " per card, " + perCard + ", rounded up; all cards count.";
    parts.push([words + (a.quoted ? " A is as published, not recomputed." : ""), ""]);
    return made.concat([p("", parts)]);
  }

  function accuracy(found, name) {
    var made = [{ kind: "h3", id: "accuracy-" + name, text: "Accuracy" }];
    if (found.points === null) { return made.concat([p("tw-small", [["Not compared: " + found.reason + ".", ""]])]); }
    var words = ": " + name + " is at " + shown(found.other, 1) + "% against " + shown(found.baseline, 1) + "% on the same " +
      count(found.questions) + " questions of " + found.task + ": " + points(found.points) + " points, 95% interval " +
      points(found.low) + " to " + points(found.high) + ". " + count(found.worse) + " were right on A alone, " +
      count(found.better) + " on " + name + " alone.";
    return made.concat([p("tw-verdict--" + data.marks[found.word][0], [[found.word, "b"], [words, ""]])]);
  }

  function pairBlocks(details, pair, index) {
    var name = letter(index), made = [{ kind: "h2", id: "results-" + name, text: "Results, " + name + " relative to A" }];
    if (pair.refused !== null) {
      made.push(p("tw-missing", [["Not compared: " + pair.refused + ".", ""]]));
    } else {
      made.push(results(details[0], details[index], pair, name), p("tw-fig-note", [[data.howToRead, ""]]));
      if (pair.absent.length) {
        var items = pair.absent.map(function (each) { return each[0] + ": " + each[1]; });
        made.push({ kind: "details", summary: "Numbers that neither side has", items: items });
      }
      made = made.concat(cards(pair.cards, details[0], name));
    }
    return made.concat(accuracy(pair.accuracy, name));
  }

  /* ---------- the end of the page */

  function notCovered(details) {
    var other = details[1], dates = details.map(function (detail, i) {
      return letter(i) + (detail.quoted ? " was published on " : " is of ") + detail.measured;
    });
    var items = [
      ["Causes", "That a field differs does not show that it is the cause."],
      ["Other boards", OTHER_BOARDS],
      ["Other workloads and limits", other.workload.name + " within " + other.slo_text + ". Others can turn the order."],
      ["Time between the runs", dates.join(", ") + "."]
    ];
    var tools = details.map(function (detail) { return detail.tool_version; });
    if (new Set(tools.filter(Boolean)).size > 1) {
      var told = tools.map(function (tool, i) { return tool ? letter(i) + " with " + tool : ""; }).filter(Boolean);
      items.push(["Versions of the tool", told.join(", ") + "."]);
    }
    return { kind: "not", items: items };
  }

  function address(details) {
    return "compare.html#" + details.map(function (detail, i) {
      return letter(i).toLowerCase() + "=" + detail.id;
    }).join("&");
  }

  function cite(details, found) {
    var a = details[0], told = found.pairs.map(function (pair, i) {
      var detail = details[i + 1], rows = byKey(pair), row = rows.long_run_goodput || rows.goodput;
      if (!row) { return detail.title + ": not compared."; }
      var n = row.paired ? "n = " + pairsOf(row) : "n = " + (row.launches[0] ? row.launches[0] + " and " : "") + row.launches[1];
      var level = row.level ? row.level + "% interval " + interval(row.ratio) : "no interval";
      return detail.title + ", " + data.metrics[row.key].label + " " + shown(row.ratio.value, 3) + " of the baseline's, " +
        level + ", " + n + ", " + detail.mode + " mode, " + detail.measured + (a.quoted ? ", A as published" : "") + ": " +
        row.word + " (" + letter(i + 1) + ").";
    });
    var words = "Baseline: " + a.title + ", " + a.measured + ". " + told.join(" ") + " " + address(details);
    return [
      { kind: "h2", id: "cite", text: "Link and cite" },
      { kind: "cmd", label: "Plain text, with ratio, interval and n", text: words }
    ];
  }

  function blocks(details) {
    var found = core.compare(details);
    var made = top(details, found).concat(setup(details, found));
    found.pairs.forEach(function (pair, i) { made = made.concat(pairBlocks(details, pair, i + 1)); });
    return made.concat([notCovered(details)], cite(details, found));
  }

  function heading(details) {
    return joined(details.slice(1).map(function (detail) { return detail.title; })) + " against " + details[0].title;
  }

  globalThis.TokenwattCompareView = { blocks: blocks, heading: heading };
})();
