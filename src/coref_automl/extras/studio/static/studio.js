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

  // The Runs page is asked for again; what has changed in it takes the place of what is shown.
  function follow(place) {
    fetch(location.href).then(function (answer) { return answer.text(); }).then(function (html) {
      const now = new DOMParser().parseFromString(html, "text/html");
      ["training", "found"].forEach(function (id) {
        const old = byId(id), next = now.getElementById(id);
        const pairs = Array.from(old.children).map(function (child, at) { return [child, next.children[at]]; });
        const same = old.children.length === next.children.length && pairs.every(function (pair) { return pair[0].id === pair[1].id; });
        if (same) pairs.forEach(function (pair) { if (pair[0].outerHTML !== pair[1].outerHTML) pair[0].replaceWith(pair[1]); });
        else old.replaceChildren.apply(old, Array.from(next.childNodes));
      });
      byId("trainings").hidden = !byId("training").children.length;
      place.textContent = "";
    }).catch(function () { place.textContent = place.dataset.lost; }).then(function () { setTimeout(follow, 1500, place); });
  }

  // What was not chosen stays out of the address.
  function forms() {
    document.querySelectorAll("form").forEach(function (form) {
      form.addEventListener("formdata", function (event) {
        Array.from(event.formData.entries()).forEach(function (pair) { if (pair[1] === "") event.formData.delete(pair[0]); });
      });
    });
  }

  // The Play page: what the models say is asked for until it is there.
  function play(place) {
    fetch(place.dataset.run).then(function (answer) { return answer.text().then(function (html) {
      place.replaceChildren(fragment(html));
      if (answer.status === 202) setTimeout(play, 300, place);
    }); }, function () { setTimeout(play, 2000, place); });
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

  // Keys: g and a letter goes to a page, j and k to the next and the previous, digits to a filter of the items.
  const places = { l: "/", c: "/compare", i: "/items", r: "/runs", h: "/chains", p: "/play" };
  function stored(name, value) {
    try { if (value === undefined) return sessionStorage.getItem(name) || ""; sessionStorage.setItem(name, value); } catch (_) { /* storage is off */ }
    return "";
  }
  let going = false, leaving = true;  // until the page is there, keys wait, as those do that come while it is left
  function follow_link(link) { leaving = true; link.click(); }
  function send(form) { if (form.reportValidity()) { leaving = true; form.requestSubmit(form.querySelector("button")); } }
  function item() { return document.activeElement && document.activeElement.closest("#items > .item"); }
  function step(by) {  // to the item beside in a list; at its end, and elsewhere, to the page beside
    const all = Array.from(document.querySelectorAll("#items > .item")), to = all[all.indexOf(item()) + by];
    const link = document.querySelector(by > 0 ? "[rel=next]" : "[rel=prev]");
    if (to) { to.focus(); to.scrollIntoView({ block: "nearest" }); } else if (link) follow_link(link);
  }
  function choose(always) {  // the item of the list that the keys are at
    const box = item() && item().querySelector("[name=id]");
    if (box) box.checked = always || !box.checked;
  }
  function act(key) {
    const tag = byId("tag"), search = document.querySelector("input[type=search]"), filter = /^[0-4]$/.test(key) && document.querySelector("[data-key='" + key + "']");
    if (going && places[key]) follow_link(document.querySelectorAll("header nav a")[Object.keys(places).indexOf(key)]);
    else if (key === "j" || key === "k") step(key === "j" ? 1 : -1);
    else if (filter) follow_link(filter);
    else if (key === "x") choose(false);
    else if (key === "Enter" && document.activeElement === item()) follow_link(item().querySelector("a.open"));
    else if (key === "t" && tag) { if (!document.querySelector("[name=id]:checked")) choose(true); tag.focus(); }
    else if (key === "r" && tag && stored("tag")) { if (!document.querySelector("[name=id]:checked")) choose(true); tag.value = stored("tag"); send(tag.form); }
    else if (key === "/" && search) search.focus();
    else if (key === "?") byId("keys").showModal();
    else { going = key === "g"; return going; }
    going = false;
    return true;
  }
  document.addEventListener("keydown", function (event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (leaving && event.key.length === 1) {
      stored("keys", stored("keys") + event.key);
      event.preventDefault();
    } else if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && event.target.type !== "checkbox") {
      if (event.key === "Escape") event.target.blur();
    } else if (act(event.key)) event.preventDefault();
  });
  function keys() {
    if (byId("tag")) byId("tag").form.addEventListener("submit", function () { leaving = true; stored("tag", byId("tag").value); });
    const waiting = Array.from(stored("keys"));
    stored("keys", "");
    leaving = false;
    while (waiting.length && !leaving) act(waiting.shift());
    stored("keys", waiting.join(""));
    window.addEventListener("pageshow", function (event) { if (event.persisted) leaving = false; });
  }

  let typed = false;  // what somebody has begun to write is never taken away
  document.addEventListener("input", function () { typed = true; });

  // What is not there yet on a page that is shown: it is asked for again until it is, and then shown in its place.
  function later() {
    fetch(location.href).then(function (answer) { return answer.text(); }).then(function (html) {
      if (html.includes('id="later"')) setTimeout(later, 500);
      else if (!typed) location.replace(location.href);
    }, function () { setTimeout(later, 2000); });
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
    taking();
    keys();
    if (byId("wait")) wait();
    if (byId("later")) later();
    if (byId("answer") && byId("answer").dataset.run) play(byId("answer"));
    if (byId("live")) follow(byId("live"));
  });
})();
