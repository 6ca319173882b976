/* A run verified from its bytes: the numbered checks of tokenwatt_site/trust/verify.py, one after the other, as far as a page
   does them. What it says of each stands in pages/verification.py. Knows no page. */
(function (scope) {
  "use strict";

  var json = scope.TokenwattJson, refuse = json.refuse, files = scope.TokenwattFiles, workload = scope.TokenwattWorkload;
  var trials = scope.TokenwattTrials, energy = scope.TokenwattEnergy, claims = scope.TokenwattClaims, replays = scope.TokenwattReplay;
  var CHECKS = 10;

  /* A file that is not there: nothing is said against the run by that. */
  class Missing extends Error {}

  function counted(n, one) { return n.toLocaleString("en-US") + " " + one + (n === 1 ? "" : "s"); }

  /* What the register of the site says of a key, in words, and whether it vouches for it as the signer of a run that ended then. */
  function keyWords(keyid, keys, ended) {
    var known = keys[keyid];
    if (known === undefined) { return { known: false, words: "by the key " + keyid + ", which is not registered on this site" }; }
    var words = "by " + known.name + (known.organisation ? ", " + known.organisation : "") + " (" + keyid + "), registered on this site";
    if (known.revoked) { words += "; revoked at " + known.revoked.at + ": " + known.revoked.reason; }
    if (known.not_before) { words += "; valid from " + known.not_before; }
    if (known.not_after) { words += "; valid until " + known.not_after; }
    // Whether a run of an old or revoked key was witnessed in time, its statements tell, which are not read here.
    var begun = !known.not_before || Date.parse(known.not_before) <= Date.parse(ended);
    return { known: begun && !known.revoked && !(Date.parse(known.not_after) < Date.now()), words: words };
  }

  function pause() { return new Promise(function (resolve) { setTimeout(resolve, 0); }); }

  /* Verify a run.
     source: {bytes, runId (that it should have, or null), fetch(entry): the packed bytes of a piece of evidence, or null}.
     data: what the site ships; see pages/verification.py. tell(number): called before each check, and waited for.
     Returns {checks: [{number, outcome: passed | failed | open, text}], runId, key, numbers, omitted, milliseconds, run}. */
  async function verify(source, data, tell) {
    var begun = performance.now(), run = { data: data }, report = { checks: [], runId: null, key: null, numbers: [], omitted: [] };
    var steps = [
      null,
      function () {
        if (source.bytes.length > 2097152) { refuse("is larger than 2 MiB"); }
        return counted(source.bytes.length, "byte") + ".";
      },
      function () {
        run.document = json.load(source.bytes);
        files.expectRun(run.document);
        return "Read in the one way that there is to read it.";
      },
      async function () {
        run.body = files.signedBytes(run.document);
        report.runId = await json.fileDigest(run.body);
        if (source.runId && source.runId !== report.runId) {
          refuse("has the run id " + report.runId + "; the page names " + source.runId);
        }
        return "Run id " + report.runId + (source.runId ? ", which is the one that the page names." : ".");
      },
      async function () {
        var keyid = await files.checkSignature(run.document, run.body), conditions = run.document.conditions;
        report.key = keyWords(keyid, data.keys, conditions && conditions.ended);
        return "Signed " + report.key.words + ".";
      },
      function () {
        var spec = run.document.spec, id = files.configurationId(spec.setup);
        if (run.document.configuration !== id) {
          refuse("names the configuration " + files.show(run.document.configuration) + ", expected " + id);
        }
        if (spec.setup.arrival === "trace") { return "Configuration " + id + ". It plays a trace, whose rows are not made here."; }
        run.windows = workload.windows(spec, data);
        return "Configuration " + id + "; the tables of " + spec.setup.workload.name + " made again, hash equal.";
      },
      async function () {
        var entries = files.entries(run.document), pieces = {}, total = 0;
        for (var entry of entries) {
          var packed = await source.fetch(entry);
          if (packed === null) { throw new Missing("The evidence " + entry.role + " (" + entry.path + ") is not there."); }
          pieces[entry.role] = await files.piece(packed, entry);
          total += entry.bytes;
        }
        run.journalBytes = pieces.journal;
        run.records = files.requests(pieces.requests);
        run.power = pieces.power && run.document.spec.setup.power.sensor !== "none" ? { log: files.power(pieces.power) } : null;
        run.fit = pieces["engine-model"] ? replays.readFit(pieces["engine-model"]) : null;
        return counted(entries.length, "file") + ", " + total.toLocaleString("en-US") + " bytes unpacked, every digest equal; "
          + counted(run.records.length, "request") + ".";
      },
      function () {
        run.journal = files.journal(run.journalBytes, run.document.journal_head);
        if (!run.windows) {
          return counted(run.journal.length, "line") + ", the chain is whole. Trials of a trace are not looked at here.";
        }
        trials.checkJournal(run.document, run.journal, run.windows, data);
        return counted(run.journal.length, "line") + ", the chain is whole, and each trial has its start and its end.";
      },
      function () {
        if (!run.windows) { return null; }
        run.trials = trials.readTrials(run.document.spec, run.journal, run.records, run.windows);
        return counted(run.trials.length, "trial") + ": each offered the rows that are drawn, when due, and none left out.";
      },
      function () {
        trials.checkRequests(run.records);
        if (run.trials) { trials.checkEpochs(run.trials, run.records); }
        return "No request does what no request can do.";
      },
      function () {
        if (!run.trials) { return null; }
        if (run.power) { run.power.idles = energy.idleOf(run.power.log, run.journal); }
        if (run.document.claims.replicas && trials.replicaCount(run.document.spec) === 1) {
          refuse("claims.replicas tells of replicas, and one engine was asked");
        }
        run.derived = claims.derive(run.document.spec, data, run.journal, run.trials, run.records, run.power);
        report.numbers = claims.compared(run.derived.metrics, run.document.claims, data);
        report.omitted = omitted(run, report.numbers);
        var found = differences(run.derived.made, run.document.claims, "claims", report.numbers);
        if (found.length) {
          refuse(counted(found.length, "place") + " not following from the evidence; the first is " + found[0].path + ": claimed "
            + files.show(found[0].claimed) + ", made again " + files.show(found[0].made));
        }
        return counted(numbersOf(run.derived.made) + claims.sum(report.numbers.map(function (one) { return one.numbers; })), "number")
          + " made again from the evidence, equal to the file's.";
      }
    ];
    for (var number = 1; number <= CHECKS; number++) {
      await tell(number);
      var check = { number: number };
      report.checks.push(check);
      try {
        var text = await steps[number]();
        check.outcome = text === null ? "open" : "passed";
        check.text = text === null ? "Not done here: it plays a trace." : text;
      } catch (error) {
        check.outcome = error instanceof Missing ? "open" : "failed";
        check.text = error instanceof Missing ? error.message : words(error);
        break;
      }
    }
    report.run = run;
    report.milliseconds = performance.now() - begun;
    return report;
  }

  /* Where what was made is not what is claimed: the first place of the whole, and of each number. */
  function differences(made, claimed, path, numbers) {
    var found = numbers.map(function (one) { return one.differs; });
    return [claims.difference(made, claimed, path)].concat(found).filter(Boolean);
  }

  function words(error) {
    if (error instanceof json.Refused) {
      // The name of a field stays as it is.
      var name = /^\S*[._]/.test(error.message);
      return (name ? error.message : error.message[0].toUpperCase() + error.message.slice(1)) + ".";
    }
    return "Holds values that cannot be used (" + error.message + ").";
  }

  /* Latencies of objectives and order statistics: what the builder counts as numbers too. */
  function numbersOf(made) {
    return claims.count(made.trials.map(function (trial) { return trial.objectives.map(function (one) { return one.value_ms; }); }))
      + claims.count(made.distributions.map(function (one) { return one.values_ms; }))
      + claims.count((made.replicas || []).map(function (one) { return [one.percent, one.ttft_p99_ms, one.tpot_p99_ms]; }));
  }

  /* The labels of numbers that are claimed and not made again, not even by a replay. */
  function omitted(run, numbers) {
    var made = new Set(numbers.map(function (one) { return one.label; }));
    return run.document.claims.metrics.filter(function (one) {
      return typeof one.value === "number" && !made.has(one.label) && !(run.fit && one.key.startsWith("long_run_"));
    }).map(function (one) { return one.label; });
  }

  /* Play the engine model of a verified run. Returns {outcome, text, numbers}; tell(share): how much is done, waited for. */
  async function replay(report, tell) {
    var run = report.run, begun = performance.now();
    try {
      var found = await replays.replay(run, run.data, tell), numbers = claims.compared(found.metrics, run.document.claims, run.data);
      var differs = differences(found.claim, run.document.claims.long_run, "claims.long_run", numbers);
      if (differs.length) {
        refuse(differs[0].path + " does not follow from the replay: claimed " + files.show(differs[0].claimed)
          + ", made again " + files.show(differs[0].made));
      }
      var seconds = ((performance.now() - begun) / 1000).toFixed(1);
      return {
        outcome: "passed", numbers: numbers,
        text: counted(found.plays, "replay") + " in " + seconds + " s: the model is " + found.claim.outcome
          + ", and every number of the long run is the file's."
      };
    } catch (error) {
      // What a double cannot hold, or takes too many steps, Python may still play.
      if (error instanceof RangeError) {
        return { outcome: "open", text: "Cannot be replayed in a browser (" + error.message + ").", numbers: [] };
      }
      return { outcome: "failed", text: words(error), numbers: [] };
    }
  }

  scope.TokenwattVerify = { verify: verify, replay: replay, lacking: files.lacking, pause: pause, CHECKS: CHECKS };
})(globalThis);
