/* Copy buttons, tooltips closed by Escape, wide tables for the keyboard. Everything reads without it. */
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

  function start() {
    document.querySelectorAll("[data-copy][hidden]").forEach(function (button) { button.hidden = false; });
    // Material lets wide tables of prose scroll, and gives the keyboard no way in.
    document.querySelectorAll(".md-typeset__scrollwrap").forEach(function (wide) {
      wide.tabIndex = 0;
      wide.setAttribute("role", "group");
      wide.setAttribute("aria-label", "Table");
    });
  }

  document.addEventListener("click", function (event) {
    var button = event.target.closest("button");
    if (!button) { return; }
    if (button.dataset.copy) { copy(button); }
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
  if (document.readyState === "loading") { document.addEventListener("DOMContentLoaded", start); } else { start(); }
})();
