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

  // What is folded is fetched when it is opened.
  function folded() {
    document.querySelectorAll("details[data-load]").forEach(function (details) {
      details.addEventListener("toggle", function () {
        const place = details.querySelector("div");
        if (!details.open || place.childElementCount) return;
        fetch(details.dataset.load).then(function (answer) { return answer.text(); }).then(function (html) { place.replaceChildren(fragment(html)); });
      });
    });
  }

  // The Play page: what the models say comes as events; the last one ends it.
  function play(place) {
    const events = new EventSource(place.dataset.run);
    function say(name, text) {
      const line = document.createElement("p");
      line.className = name;
      line.textContent = text;
      place.replaceChildren(line);
    }
    events.addEventListener("progress", function (event) { say("quiet", JSON.parse(event.data)); });
    events.addEventListener("failed", function (event) { events.close(); say("failed", JSON.parse(event.data)); });
    events.addEventListener("answer", function (event) { events.close(); place.replaceChildren(fragment(JSON.parse(event.data))); });
    events.addEventListener("error", function () { events.close(); });
  }

  // A selection in the text becomes an entity, with its place.
  function taking() {
    document.querySelectorAll("button[data-take]").forEach(function (button) {
      button.addEventListener("click", function () {
        const text = byId("text"), role = button.dataset.take;
        const chosen = text.value.slice(text.selectionStart, text.selectionEnd);
        if (!chosen.trim()) return;
        byId(role).value = chosen.trim();
        byId(role + "_start").value = Array.from(text.value.slice(0, text.selectionStart + chosen.indexOf(chosen.trim()))).length;
      });
    });
    ["subject", "object"].forEach(function (role) {
      if (byId(role)) byId(role).addEventListener("input", function () { byId(role + "_start").value = ""; });
    });
  }

  // What is being made is asked for again until it is there.
  function wait() {
    fetch(location.href).then(function (answer) {
      if (answer.status === 202) setTimeout(wait, 200);
      else location.replace(location.href);
    }, function () { setTimeout(wait, 2000); });
  }

  document.addEventListener("DOMContentLoaded", function () {
    forms();
    folded();
    taking();
    if (byId("wait")) wait();
    if (byId("answer") && byId("answer").dataset.run) play(byId("answer"));
    if (byId("live")) follow(byId("live"));
  });
})();
