"use strict";
// Chains to correct: a click or a key changes them, every change is saved, and undone with u.
document.addEventListener("DOMContentLoaded", function () {
  const holder = document.getElementById("chain-state");
  if (!holder) return;
  const state = JSON.parse(holder.textContent), text = Array.from(state.text), told = document.getElementById("saved");
  let clusters = state.clusters, chosen = null, joining = false, version = state.version, accepted = state.accepted;
  let waiting = null, sending = false;
  const undone = [];

  function all(of) {
    const out = [];
    of.forEach(function (chain, number) { chain.forEach(function (span) { out.push({ span: span, chain: number }); }); });
    return out.sort(function (a, b) { return a.span[0] - b.span[0] || b.span[1] - a.span[1]; });
  }
  function same(a, b) { return !!a && !!b && a[0] === b[0] && a[1] === b[1]; }
  function chainOf(span) { return clusters.findIndex(function (chain) { return chain.some(function (one) { return same(one, span); }); }); }

  // The text in stretches: each has the colour of the innermost mention around it, which is the one that a click chooses.
  function draw(place, of, live) {
    const spans = all(of), edges = new Set([0, text.length]), out = document.createDocumentFragment();
    spans.forEach(function (one) { edges.add(one.span[0]); edges.add(one.span[1]); });
    const cuts = Array.from(edges).sort(function (a, b) { return a - b; });
    for (let i = 0; i + 1 < cuts.length; i++) {
      const around = spans.filter(function (one) { return one.span[0] <= cuts[i] && one.span[1] >= cuts[i + 1]; });
      const inner = around.sort(function (a, b) { return (a.span[1] - a.span[0]) - (b.span[1] - b.span[0]); })[0];
      const piece = document.createElement(inner ? "mark" : "span");
      piece.textContent = text.slice(cuts[i], cuts[i + 1]).join("");
      piece.dataset.start = cuts[i];
      if (inner) {
        piece.className = "chain chain-" + inner.chain % 12;
        const link = state.links[inner.span[0] + "-" + inner.span[1]];
        if (link !== undefined && link < 0.5) piece.classList.add("weak");
        if (link !== undefined) piece.title = link.toFixed(2);
        if (live && same(inner.span, chosen)) piece.classList.add("picked");
        if (live) piece.addEventListener("click", function () { if (window.getSelection().isCollapsed) pick(inner.span); });
        if (inner.span[1] === cuts[i + 1]) {
          const number = document.createElement("sub");
          number.textContent = inner.chain + 1;
          piece.append(number);
        }
      }
      out.append(piece);
    }
    place.replaceChildren(out);
  }

  function show() {
    draw(document.getElementById("text"), clusters, true);
    const list = document.getElementById("chains");
    list.replaceChildren.apply(list, clusters.map(function (chain, number) {
      const line = document.createElement("li"), forms = new Set(chain.map(function (span) { return text.slice(span[0], span[1]).join(""); }));
      line.className = "chain-line" + (chosen && number === chainOf(chosen) ? " picked" : "");
      line.textContent = Array.from(forms).join(", ") + " (" + chain.length + ")";
      line.addEventListener("click", function () { pick(chain[0]); });
      return line;
    }));
  }

  function pick(span) {
    if (joining && chosen && !same(span, chosen)) {
      const from = chainOf(chosen), to = chainOf(span);
      joining = false;
      if (from !== to) return change(function (next) { next[Math.min(from, to)] = next[from].concat(next[to]); next.splice(Math.max(from, to), 1); });
    }
    chosen = span;
    show();
  }

  function change(make) {
    if (!state.by) return;
    const before = JSON.stringify(clusters), next = JSON.parse(before);
    make(next);
    const kept = next.filter(function (chain) { return chain.length; });
    kept.forEach(function (chain) { chain.sort(function (a, b) { return a[0] - b[0] || b[1] - a[1]; }); });
    kept.sort(function (a, b) { return a[0][0] - b[0][0] || b[0][1] - a[0][1]; });
    if (JSON.stringify(kept) === before) return show();
    undone.push([before, chosen, accepted]);
    clusters = kept;
    if (chosen && chainOf(chosen) < 0) chosen = null;
    show();
    save();
  }

  function save(then) {
    waiting = { file: state.file, by: state.by, doc: state.doc, clusters: clusters, accepted: accepted, then: then };
    if (sending) return;
    sending = true;
    told.textContent = told.dataset.saving;
    const sent = waiting;
    waiting = null;
    fetch("/chains/save" + location.search.replace(/^.*(lang=\w+).*$|^.*$/, function (_, lang) { return lang ? "?" + lang : ""; }), {
      method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(Object.assign({ version: version }, sent)),
    }).then(function (answer) { return answer.json().then(function (said) { return [answer.ok, said]; }); }).then(function (pair) {
      sending = false;
      if (!pair[0]) { told.textContent = told.dataset.lost + pair[1].error; told.className = "failed"; return; }
      version = pair[1].version;
      told.textContent = told.dataset.saved;
      told.title = pair[1].place;
      if (waiting) save(waiting.then);
      else if (sent.then) sent.then();
    }, function (error) { sending = false; told.textContent = told.dataset.lost + error.message; told.className = "failed"; });
  }

  // The characters that are selected on the page.
  function selected() {
    const range = window.getSelection();
    if (range.isCollapsed || !range.rangeCount) return null;
    const one = range.getRangeAt(0), ends = [[one.startContainer, one.startOffset], [one.endContainer, one.endOffset]].map(function (end) {
      const piece = end[0].parentElement && end[0].parentElement.closest("[data-start]");
      if (!piece || !piece.closest("#text")) return null;
      const shown = piece.firstChild.textContent, upTo = end[0] === piece.firstChild ? shown.slice(0, end[1]) : shown;  // else in its number
      return Number(piece.dataset.start) + Array.from(upTo).length;
    });
    if (ends[0] === null || ends[1] === null || ends[0] >= ends[1]) return null;
    while (ends[0] < ends[1] && /\s/.test(text[ends[0]])) ends[0]++;
    while (ends[1] > ends[0] && /\s/.test(text[ends[1] - 1])) ends[1]--;
    return ends[0] < ends[1] ? ends : null;
  }

  // The next word after a place: what a keyboard alone marks first, and then lengthens or shortens.
  function word(after) {
    let start = after;
    while (after && start < text.length && !/\s/.test(text[start])) start++;  // past the particle of a mention
    while (start < text.length && /\s/.test(text[start])) start++;
    let end = start;
    while (end < text.length && !/\s/.test(text[end])) end++;
    return start < end ? [start, end] : null;
  }

  function resize(first, last) {
    if (!chosen) return;
    const next = [chosen[0] + first, chosen[1] + last], old = chosen;
    if (next[0] < 0 || next[1] > text.length || next[0] >= next[1] || chainOf(next) >= 0) return;
    chosen = next;
    change(function (all) { all[chainOf(old)] = all[chainOf(old)].map(function (span) { return same(span, old) ? next : span; }); });
  }

  const acts = {
    undo: function () {
      const last = undone.pop();
      if (!last) return;
      clusters = JSON.parse(last[0]); chosen = last[1]; accepted = last[2];
      show(); save();
    },
    new: function () {
      let span = selected() || word(chosen ? chosen[1] : 0);
      while (span && chainOf(span) >= 0) span = word(span[1]);
      if (!span) return;
      window.getSelection().removeAllRanges();
      chosen = span;
      change(function (next) { next.push([span]); });
    },
    alone: function () { if (chosen) change(function (next) { const at = chainOf(chosen); next[at] = next[at].filter(function (span) { return !same(span, chosen); }); next.push([chosen]); }); },
    join: function () { joining = !!chosen; },
    drop: function () { if (chosen) change(function (next) { const at = chainOf(chosen); next[at] = next[at].filter(function (span) { return !same(span, chosen); }); }); },
    shorter: function () { resize(0, -1); }, longer: function () { resize(0, 1); },
    later: function () { resize(1, 0); }, earlier: function () { resize(-1, 0); },
    accept: function () {
      if (!state.by) return;
      accepted = true;
      save(function () {
        const here = new URL(location.href);
        if (state.after) { here.searchParams.set("doc", state.after); location.assign(here); } else location.reload();
      });
    },
  };
  const keys = { u: "undo", i: "new", s: "alone", m: "join", x: "drop", "[": "shorter", "]": "longer", "}": "later", "{": "earlier", a: "accept" };
  document.querySelectorAll("[data-act]").forEach(function (button) {
    button.addEventListener("mousedown", function (event) { event.preventDefault(); });
    button.addEventListener("click", acts[button.dataset.act]);
  });
  document.addEventListener("keydown", function (event) {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    const spans = all(clusters);
    if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
      const at = spans.findIndex(function (one) { return same(one.span, chosen); }), step = event.key === "ArrowRight" ? 1 : -1;
      if (spans.length) pick(spans[(at + step + spans.length) % spans.length].span);
    } else if (/^[1-9]$/.test(event.key) && chosen && clusters[event.key - 1]) {
      change(function (next) { const from = chainOf(chosen); next[from] = next[from].filter(function (span) { return !same(span, chosen); }); next[event.key - 1].push(chosen); });
    } else if (keys[event.key]) acts[keys[event.key]]();
    else return;
    event.preventDefault();
  });
  window.addEventListener("beforeunload", function (event) { if (sending || waiting) event.preventDefault(); });
  show();
  if (state.beside) draw(document.getElementById("beside"), state.beside, false);
});
