/* All configurations of the site: unpacks what catalogue.js holds. Rows are plain objects that read
   their columns when they are asked, so that ten thousand of them cost nothing until then. */
(function () {
  "use strict";

  var data = globalThis.TokenwattCatalogueData;
  if (!data) { return; }
  var texts = data.texts;

  function at(column, index) {
    return Array.isArray(column) ? column[index] : column.all;
  }

  function words(number) {
    return number === null ? null : texts[number];
  }

  function Row(index) {
    this.index = index;
  }

  function field(name, read) {
    Object.defineProperty(Row.prototype, name, {
      enumerable: true,
      get: function () { return read(at(data.rows[name], this.index), this); },
    });
  }

  function same(value) { return value; }

  ["id", "title", "section", "rank", "n", "cards"].forEach(function (name) { field(name, same); });
  ["tied", "simulated", "retracted"].forEach(function (name) { field(name, Boolean); });
  ["under", "mode", "measured", "key_state"].forEach(function (name) { field(name, words); });
  field("url", function (address, row) { return address.replace("*", function () { return row.id; }); });
  field("excluded", function (reasons) { return reasons.map(function (reason) { return reason.map(words); }); });

  function facet(key, index) {
    var value = at(data.values[key], index);
    return Array.isArray(value) ? value.map(words) : words(value);
  }

  function cell(key, index) {
    var column = data.cells[key];
    return {
      value: at(column.value, index),
      low: at(column.low, index),
      high: at(column.high, index),
      n: at(column.n, index),
      reason: words(at(column.reason, index)),
    };
  }

  /* Gives an object whose members are made when they are first asked for. */
  function lazily(keys, make) {
    var known = {};
    keys.forEach(function (key) {
      var value;
      Object.defineProperty(known, key, {
        enumerable: true,
        get: function () { return value === undefined ? (value = make(key)) : value; },
      });
    });
    return known;
  }

  /* Gives a function that remembers what `make` gave for each key. */
  function once(make) {
    var known = new Map();
    return function (key) {
      if (!known.has(key)) { known.set(key, make(key)); }
      return known.get(key);
    };
  }

  function keys(named) {
    return named.map(function (each) { return each.key; });
  }

  Object.defineProperty(Row.prototype, "facets", {
    enumerable: true,
    get: function () {
      var index = this.index;
      return lazily(keys(data.facets), function (key) { return facet(key, index); });
    },
  });
  Object.defineProperty(Row.prototype, "cells", {
    enumerable: true,
    get: function () {
      var index = this.index;
      return lazily(keys(data.columns), function (key) { return cell(key, index); });
    },
  });

  /* Writes a number as every page does: so many decimals, or more for two significant digits; what
     lies exactly between two goes to the even one. */
  function amount(value, decimals) {
    if (value !== 0 && Math.abs(value) < 10) {
      decimals = Math.max(decimals, 1 - Math.floor(Math.log10(Math.abs(value))));
    }
    var written = Math.abs(value).toFixed(decimals), halves = value * Math.pow(2, decimals + 1);
    if (Math.abs(halves % 2) === 1) {
      var below = Math.floor(Math.abs(value) * Math.pow(10, decimals));
      written = ((below + below % 2) / Math.pow(10, decimals)).toFixed(decimals);
    }
    var parts = written.split(".");
    parts[0] = parts[0].replace(/\B(?=(\d{3})+$)/g, ",");
    return (value < 0 ? "-" : "") + parts.join(".");
  }

  var rows = [];
  for (var index = 0; index < data.count; index++) { rows.push(new Row(index)); }

  globalThis.TokenwattCatalogue = {
    columns: data.columns,
    facets: data.facets,
    sections: data.sections,
    rows: rows,
    /* One cell, or one facet, without making the others of its row. */
    cell: cell,
    facet: facet,
    once: once,
    /* The value of a metric in each row, by index; NaN where there is none. */
    values: once(function (key) {
      var column = data.cells[key].value;
      return Float64Array.from(rows, function (_, index) {
        var value = at(column, index);
        return value === null ? NaN : value;
      });
    }),
    /* Numbers that stand for the texts of a facet, by index, and what they stand for. */
    numbers: once(function (key) {
      return rows.map(function (_, index) { return at(data.values[key], index); });
    }),
    text: words,
    amount: amount,
  };
})();
