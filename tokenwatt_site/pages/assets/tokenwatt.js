/* Copy buttons, tooltips closed by Escape, sortable tables. Everything reads without it. */
(function () {
  "use strict";

  function say(button, words) {
    var label = button.querySelector("span"), before = label.textContent;
    label.textContent = words;
    setTimeout(function () { label.textContent = before; }, 1600);
  }

  function copy(button) {
    var source = document.getElementById(button.dataset.copy);
    var written = navigator.clipboard
      ? navigator.clipboard.writeText(source.textContent)
      : Promise.reject(new Error("no clipboard"));
    written.then(
      function () { say(button, "Copied"); },
      function () {
        getSelection().selectAllChildren(source);
        say(button, "Press Ctrl+C");
      }
    );
  }

  /* What a cell sorts by: its number, else its text; null where there is nothing. */
  function key(row, column) {
    var cell = row.cells[column], raw = cell.dataset.value;
    if (raw === undefined) { raw = cell.textContent.trim(); }
    if (raw === "") { return null; }
    var number = Number(raw);
    return Number.isNaN(number) ? raw.toLowerCase() : number;
  }

  function compare(a, b) {
    if (typeof a === typeof b) { return a < b ? -1 : a > b ? 1 : 0; }
    return typeof a === "number" ? -1 : 1;
  }

  /* Missing stands last in both directions; equal rows keep the order that the page came with. */
  function sort(table, column, direction) {
    var sign = direction === "descending" ? -1 : 1;
    Array.prototype.forEach.call(table.tBodies, function (body) {
      var rows = Array.prototype.slice.call(body.rows).filter(function (row) {
        return row.dataset.row !== undefined;
      });
      rows.sort(function (a, b) {
        var x = key(a, column), y = key(b, column);
        if (x === null || y === null) { return (x === null) - (y === null) || a.dataset.row - b.dataset.row; }
        return sign * compare(x, y) || a.dataset.row - b.dataset.row;
      });
      rows.forEach(function (row) { body.appendChild(row); });
    });
    Array.prototype.forEach.call(table.tHead.rows[0].cells, function (head, index) {
      if (index === column) { head.setAttribute("aria-sort", direction); } else { head.removeAttribute("aria-sort"); }
    });
  }

  function state() {
    return new URLSearchParams(location.hash.slice(1));
  }

  function pressed(button) {
    var head = button.closest("th"), table = button.closest("table");
    var before = head.getAttribute("aria-sort"), first = head.dataset.first || "ascending";
    var other = first === "ascending" ? "descending" : "ascending";
    var direction = before === first ? other : first;
    sort(table, head.cellIndex, direction);
    var now = state();
    now.set("sort-" + table.id, head.dataset.key + "." + direction);
    history.replaceState(null, "", "#" + now.toString());
  }

  function restore() {
    var wanted = state();
    document.querySelectorAll("table.tw-sortable").forEach(function (table) {
      var choice = (wanted.get("sort-" + table.id) || "").split(".");
      Array.prototype.forEach.call(table.tHead.rows[0].cells, function (head) {
        if (head.dataset.key === choice[0] && (choice[1] === "ascending" || choice[1] === "descending")) {
          sort(table, head.cellIndex, choice[1]);
        }
      });
    });
  }

  function start() {
    document.querySelectorAll("[data-copy][hidden]").forEach(function (button) { button.hidden = false; });
    restore();
  }

  document.addEventListener("click", function (event) {
    var button = event.target.closest("button");
    if (!button) { return; }
    if (button.dataset.copy) { copy(button); }
    if (button.closest("table.tw-sortable thead")) { pressed(button); }
    if (button.dataset.scheme !== undefined) {
      var body = document.body;
      body.dataset.mdColorScheme = body.dataset.mdColorScheme === "slate" ? "default" : "slate";
    }
  });
  document.addEventListener("keydown", function (event) {
    if (event.key === "Escape") {
      document.querySelectorAll(".tw-facts li").forEach(function (item) { item.classList.add("tw-dismissed"); });
    }
  });
  document.addEventListener("focusin", function () {
    document.querySelectorAll(".tw-dismissed").forEach(function (item) { item.classList.remove("tw-dismissed"); });
  });
  addEventListener("hashchange", restore);
  if (document.readyState === "loading") { document.addEventListener("DOMContentLoaded", start); } else { start(); }
})();
