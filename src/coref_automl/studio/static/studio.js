"use strict";
(function () {
  const root = document.documentElement;
  try { const kept = localStorage.getItem("theme"); if (kept === "dark" || kept === "light") root.dataset.theme = kept; } catch (_) { /* storage is off */ }
  new MutationObserver(function () {
    try { localStorage.setItem("theme", root.dataset.theme); } catch (_) { /* storage is off */ }
  }).observe(root, { attributes: true, attributeFilter: ["data-theme"] });

  function byId(id) { return document.getElementById(id); }

  function fragment(html) {
    const held = document.createElement("template");
    held.innerHTML = html;
    return held.content;
  }

  // The Runs page: parts that the server has drawn anew take the place of those shown.
  function follow(place) {
    const events = new EventSource(place.dataset.live);
    events.addEventListener("parts", function (event) {
      const parts = JSON.parse(event.data);
      Object.keys(parts).forEach(function (id) {
        const old = byId(id);
        if (!old) return;
        if (id === "training") old.replaceChildren(fragment(parts[id]));
        else old.replaceWith(fragment(parts[id]));
      });
      place.textContent = "";
      root.dataset.live = String(Number(root.dataset.live || 0) + 1);
    });
    events.addEventListener("error", function () { place.textContent = place.dataset.lost; });
    events.addEventListener("open", function () { place.textContent = ""; });
  }

  // Forms send themselves when a choice is made; what was not chosen stays out of the address.
  function forms() {
    document.querySelectorAll("form[data-auto]").forEach(function (form) {
      form.addEventListener("change", function () { form.requestSubmit(); });
    });
    document.querySelectorAll("form").forEach(function (form) {
      form.addEventListener("formdata", function (event) {
        Array.from(event.formData.entries()).forEach(function (pair) { if (pair[1] === "") event.formData.delete(pair[0]); });
      });
    });
  }

  document.addEventListener("DOMContentLoaded", function () {
    forms();
    if (byId("live")) follow(byId("live"));
  });
})();
